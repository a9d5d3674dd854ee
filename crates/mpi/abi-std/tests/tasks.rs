//! `garonne_tasks.h` from C: tasks in the caller's memory, events, blocking calls, misuse. Needs no
//! MPI_Init.

mod support;

use std::path::Path;
use support::{Place, run, stdout};

const HEAD: &str = r#"
    #define _GNU_SOURCE
    #include <garonne_tasks.h>
    #include <errno.h>
    #include <linux/futex.h>
    #include <signal.h>
    #include <stdatomic.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #define CHECK(x) do { if (!(x)) { printf("line %d: %s\n", __LINE__, #x); exit(1); } } while (0)
"#;

fn holds(name: &str, text: &str) {
    let place = Place::new(name);
    let output = run(&place.program(name, &format!("{HEAD}{text}")), &[]);
    assert_eq!(stdout(&output), "ok");
}

#[test]
fn a_signal_handler_submits_whatever_it_interrupts() {
    holds(
        "c-handler",
        r#"
        #include <sys/time.h>
        enum { TASKS = 8 };
        static garonne_task theirs[TASKS];
        static atomic_int submitted, wrong;
        static int nothing(void *state, const garonne_at *at) { (void)state; (void)at; return GARONNE_DONE; }
        static void handler(int signal) {
            (void)signal;
            int before = errno, rc = garonne_task_submit(&theirs[submitted++ % TASKS]);
            if (rc != GARONNE_OK && rc != GARONNE_MISUSE) wrong++;
            errno = before;
        }
        int main(void) {
            garonne_tasks *tasks;
            garonne_how now = {.urgency = GARONNE_NOW};
            CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
            for (int i = 0; i < TASKS; i++) CHECK(garonne_task_init(&theirs[i], tasks, &now, nothing, NULL) == GARONNE_OK);
            CHECK(garonne_task_submit(&theirs[0]) == GARONNE_OK);
            CHECK(garonne_task_wait(&theirs[0]) == GARONNE_FINISHED);
            signal(SIGALRM, handler);
            struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
            CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
            for (int i = 0; submitted < 3000 || i < 1000; i++) {
                garonne_task mine;
                CHECK(garonne_task_init(&mine, tasks, i & 1 ? &now : NULL, nothing, NULL) == GARONNE_OK);
                CHECK(garonne_task_submit(&mine) == GARONNE_OK);
                if (i % 16 == 0) CHECK(garonne_task_wait(&mine) == GARONNE_FINISHED);
                garonne_task_destroy(&mine);
            }
            CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
            CHECK(wrong == 0);
            for (int i = 0; i < TASKS; i++) garonne_task_destroy(&theirs[i]);
            garonne_tasks_close(tasks);
            printf("ok");
            return 0;
        }
        "#,
    );
}

#[test]
fn tasks_of_c_run_repeat_are_waited_for_withdrawn_and_refused() {
    holds(
        "c-tasks",
        r#"
        static atomic_int runs;
        static int count(void *state, const garonne_at *at) {
            CHECK(at->core >= 0 && at->keypoint >= 0);
            int *left = state;
            runs++;
            return (*left)-- > 0 ? GARONNE_AGAIN : GARONNE_DONE;
        }
        static int wait_for_itself(void *state, const garonne_at *at) { (void)at; CHECK(garonne_task_wait(state) == GARONNE_PENDING); return GARONNE_DONE; }
        static int forever(void *state, const garonne_at *at) { (void)state; (void)at; return GARONNE_AGAIN; }
        int main(void) {
            garonne_tasks *tasks;
            CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
            for (int place = GARONNE_MACHINE; place <= GARONNE_CALLER_PACKAGE; place++) {
                garonne_how how = {.place = place, .name = place == GARONNE_CPUS ? "0-4000" : "no device"};
                garonne_task task;
                int left = 3, wanted = place == GARONNE_DEVICE ? GARONNE_MISUSE : GARONNE_OK;
                runs = 0;
                CHECK(garonne_task_init(&task, tasks, &how, count, &left) == wanted);
                if (wanted) continue;
                CHECK(garonne_task_life(&task) == GARONNE_NEW);
                CHECK(garonne_task_submit(&task) == GARONNE_OK);
                CHECK(garonne_task_wait(&task) == GARONNE_FINISHED);
                CHECK(runs == 4);
                garonne_task_destroy(&task);
            }
            garonne_task task;
            CHECK(garonne_task_init(&task, tasks, NULL, forever, NULL) == GARONNE_OK);
            CHECK(garonne_task_submit(&task) == GARONNE_OK);
            CHECK(garonne_task_submit(&task) == GARONNE_MISUSE);
            CHECK(garonne_tasks_schedule(tasks, GARONNE_SWITCH) >= 0);
            CHECK(garonne_task_withdraw(&task) == GARONNE_WITHDRAWN);
            CHECK(garonne_task_submit(&task) == GARONNE_OK);
            garonne_task_destroy(&task);
            CHECK(garonne_task_init(&task, tasks, NULL, wait_for_itself, &task) == GARONNE_OK);
            CHECK(garonne_task_submit(&task) == GARONNE_OK);
            CHECK(garonne_task_wait(&task) == GARONNE_FINISHED);
            garonne_task_destroy(&task);
            for (int place = GARONNE_CALLER_PACKAGE + 1; place < 99; place++) {
                garonne_how wrong = {.place = place};
                CHECK(garonne_task_init(&task, tasks, &wrong, forever, NULL) == GARONNE_MISUSE);
            }
            CHECK(garonne_task_init(&task, tasks, NULL, NULL, NULL) == GARONNE_MISUSE);
            CHECK(garonne_task_init(NULL, tasks, NULL, forever, NULL) == GARONNE_MISUSE);
            CHECK(garonne_task_init(&task, NULL, NULL, forever, NULL) == GARONNE_MISUSE);
            CHECK(garonne_task_submit(NULL) == GARONNE_MISUSE && garonne_task_wait(NULL) == GARONNE_MISUSE);
            CHECK(garonne_tasks_schedule(tasks, 17) == GARONNE_MISUSE);
            CHECK(strlen(garonne_tasks_error(GARONNE_MISUSE)) > 0);
            int left = 0;
            CHECK(garonne_task_init(&task, tasks, NULL, count, &left) == GARONNE_OK);
            pid_t child = fork();
            if (child == 0) _exit(garonne_task_submit(&task) != GARONNE_MISUSE);
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            garonne_task_destroy(&task);
            garonne_tasks_close(tasks);
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn events_of_c_come_with_their_values_and_end_with_their_watches() {
    holds(
        "c-events",
        r#"
        static atomic_int seen;
        static int note(void *state, uint32_t value, const garonne_at *at) {
            (void)at;
            atomic_fetch_add((atomic_int *)state, (int)value + 1);
            return GARONNE_STOP;
        }
        static int from;
        static int take(void *state, uint32_t value, const garonne_at *at) {
            char byte;
            (void)at;
            CHECK((int)value == from && read(from, &byte, 1) == 1);
            atomic_store((atomic_int *)state, byte);
            return GARONNE_KEEP;
        }
        static void *slow(void *argument) { char byte; CHECK(read(*(int *)argument, &byte, 1) == 1); return argument; }
        static void until(int value) { while (seen != value) usleep(100); }
        int main(void) {
            garonne_tasks *tasks;
            garonne_watch *watch;
            garonne_how now = {.urgency = GARONNE_NOW};
            int pipes[2];
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGUSR1);
            CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
            CHECK(garonne_tasks_open(&tasks) == GARONNE_OK && pipe(pipes) == 0);
            from = pipes[0];
            for (int i = 0; i < 2; i++) {
                garonne_how *how = i ? &now : NULL;
                seen = 0;
                CHECK(garonne_on_alarm(tasks, 1000000, 0, how, note, &seen, &watch) == GARONNE_OK);
                until(1);
                garonne_watch_end(watch);
                seen = 0;
                CHECK(garonne_on_descriptor(tasks, from, GARONNE_READABLE, how, take, &seen, &watch) == GARONNE_OK);
                CHECK(write(pipes[1], "a", 1) == 1);
                until('a');
                CHECK(write(pipes[1], "b", 1) == 1);
                until('b');
                garonne_watch_end(watch);
                seen = 0;
                CHECK(garonne_on_signal(tasks, SIGUSR1, how, note, &seen, &watch) == GARONNE_OK);
                CHECK(kill(getpid(), SIGUSR1) == 0);
                until(SIGUSR1 + 1);
                garonne_watch_end(watch);
                seen = 0;
                uint32_t word = 4;
                CHECK(garonne_on_word(tasks, &word, 4, how, note, &seen, &watch) == GARONNE_OK);
                __atomic_store_n(&word, 6, __ATOMIC_RELEASE);
                syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
                until(7);
                garonne_watch_end(watch);
            }
            garonne_call *call;
            void *result;
            CHECK(garonne_blocking(tasks, slow, &pipes[0], &call) == GARONNE_OK);
            CHECK(garonne_call_over(call) == 0);
            CHECK(write(pipes[1], "c", 1) == 1);
            CHECK(garonne_call_wait(call, &result) == GARONNE_OK && result == &pipes[0]);
            errno = 0;
            CHECK(garonne_on_descriptor(tasks, 12345, GARONNE_READABLE, NULL, take, NULL, &watch) == GARONNE_SYSTEM && errno == EBADF);
            CHECK(garonne_on_descriptor(tasks, from, 0, NULL, take, NULL, &watch) == GARONNE_MISUSE);
            CHECK(garonne_on_word(tasks, NULL, 0, NULL, note, NULL, &watch) == GARONNE_MISUSE);
            CHECK(garonne_on_alarm(tasks, 1, 0, NULL, NULL, NULL, &watch) == GARONNE_MISUSE);
            garonne_tasks_close(tasks);
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn two_libraries_that_watch_one_signal_both_hear_of_it() {
    holds(
        "c-signals",
        r#"
        static atomic_int seen[2];
        static int note(void *state, uint32_t value, const garonne_at *at) {
            (void)at;
            CHECK(value == SIGCHLD);
            atomic_fetch_add((atomic_int *)state, 1);
            return GARONNE_KEEP;
        }
        static void until(int which, int value) { while (seen[which] != value) usleep(100); }
        int main(void) {
            garonne_tasks *theirs[2];
            garonne_watch *watches[2];
            for (int i = 0; i < 2; i++) {
                CHECK(garonne_tasks_open(&theirs[i]) == GARONNE_OK);
                CHECK(garonne_on_signal(theirs[i], SIGCHLD, NULL, note, &seen[i], &watches[i]) == GARONNE_OK);
            }
            for (int sent = 1; sent <= 20; sent++) {
                CHECK(kill(getpid(), SIGCHLD) == 0);
                until(0, sent);
                until(1, sent);
            }
            garonne_watch_end(watches[1]);
            garonne_tasks_close(theirs[1]);
            CHECK(kill(getpid(), SIGCHLD) == 0);
            until(0, 21);
            CHECK(seen[1] == 20);
            garonne_watch_end(watches[0]);
            sigset_t pending, blocked;
            CHECK(kill(getpid(), SIGCHLD) == 0);
            CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGCHLD));
            CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGCHLD));
            CHECK(garonne_on_signal(theirs[0], SIGCHLD, NULL, note, &seen[0], &watches[0]) == GARONNE_OK);
            until(0, 22);
            garonne_watch_end(watches[0]);
            garonne_tasks_close(theirs[0]);
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn the_end_of_a_call_is_an_event_for_all_who_watch_it_and_for_those_who_come_late() {
    holds(
        "c-completion",
        r#"
        typedef struct { garonne_call *call; void *result; atomic_int runs; } ending;
        static int take(void *state, uint32_t value, const garonne_at *at) {
            ending *its = state;
            CHECK(value == 0 && at->core >= 0);
            CHECK(garonne_call_over(its->call) == 1 && garonne_call_wait(its->call, &its->result) == GARONNE_OK);
            its->runs++;
            return GARONNE_KEEP;
        }
        static int count(void *state, uint32_t value, const garonne_at *at) {
            (void)value, (void)at;
            atomic_fetch_add((atomic_int *)state, 1);
            return GARONNE_KEEP;
        }
        static void *slow(void *argument) { char byte; CHECK(read(*(int *)argument, &byte, 1) == 1); return argument; }
        int main(void) {
            garonne_tasks *tasks;
            garonne_how now = {.urgency = GARONNE_NOW};
            CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
            for (int i = 0; i < 2; i++) {
                garonne_watch *taking, *counting, *ended, *late;
                atomic_int other = 0, never = 0, after = 0;
                ending its = {0};
                int pipes[2];
                CHECK(pipe(pipes) == 0 && garonne_blocking(tasks, slow, &pipes[0], &its.call) == GARONNE_OK);
                CHECK(garonne_on_completion(tasks, its.call, i ? &now : NULL, count, &other, &counting) == GARONNE_OK);
                CHECK(garonne_on_completion(tasks, its.call, NULL, count, &never, &ended) == GARONNE_OK);
                CHECK(other == 0);
                garonne_watch_end(ended);
                CHECK(write(pipes[1], "a", 1) == 1);
                while (other != 1) usleep(100);
                CHECK(garonne_on_completion(tasks, its.call, NULL, count, &after, &late) == GARONNE_OK);
                while (after != 1) usleep(100);
                CHECK(garonne_on_completion(tasks, its.call, i ? &now : NULL, take, &its, &taking) == GARONNE_OK);
                while (its.runs != 1) usleep(100);
                CHECK(its.result == &pipes[0]);
                garonne_watch_end(taking);
                garonne_watch_end(counting);
                garonne_watch_end(late);
                CHECK(its.runs == 1 && other == 1 && after == 1 && never == 0);
                close(pipes[0]), close(pipes[1]);
            }
            garonne_watch *watch;
            CHECK(garonne_on_completion(tasks, NULL, NULL, count, NULL, &watch) == GARONNE_MISUSE);
            garonne_tasks_close(tasks);
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn what_waits_behind_a_lengthy_run_goes_to_others() {
    holds(
        "c-lengthy",
        r#"
        static garonne_tasks *tasks;
        static garonne_task behind;
        static atomic_int ran;
        static int note(void *state, const garonne_at *at) { (void)state, (void)at; ran = 1; return GARONNE_DONE; }
        /* Whoever runs this polls, so its submission calls nobody; and it does not end before the other task has run. */
        static void take_long(const garonne_at *at) {
            CHECK(garonne_task_submit(&behind) == GARONNE_OK);
            CHECK(garonne_lengthy(tasks, NULL) == GARONNE_MISUSE && garonne_lengthy(NULL, at) == GARONNE_MISUSE);
            CHECK(garonne_lengthy(tasks, at) == GARONNE_OK && garonne_lengthy(tasks, at) == GARONNE_OK);
            for (int ms = 0; !ran; ms++) {
                CHECK(ms < 60000);
                usleep(1000);
            }
        }
        static int task(void *state, const garonne_at *at) { (void)state; take_long(at); return GARONNE_DONE; }
        static int event(void *state, uint32_t value, const garonne_at *at) {
            (void)value;
            take_long(at);
            *(atomic_int *)state = 1;
            return GARONNE_STOP;
        }
        int main(void) {
            CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
            for (int i = 0; i < 10; i++) {
                garonne_task lengthy;
                garonne_watch *watch;
                atomic_int came = 0;
                CHECK(garonne_task_init(&behind, tasks, NULL, note, NULL) == GARONNE_OK);
                CHECK(garonne_task_init(&lengthy, tasks, NULL, task, NULL) == GARONNE_OK);
                ran = 0;
                CHECK(garonne_task_submit(&lengthy) == GARONNE_OK && garonne_task_wait(&lengthy) == GARONNE_FINISHED);
                CHECK(garonne_task_wait(&behind) == GARONNE_FINISHED);
                ran = 0;
                CHECK(garonne_on_alarm(tasks, 1000, 0, NULL, event, &came, &watch) == GARONNE_OK);
                while (!came) usleep(100);
                garonne_watch_end(watch);
                garonne_task_destroy(&lengthy);
                garonne_task_destroy(&behind);
            }
            garonne_tasks_close(tasks);
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn a_task_that_is_destroyed_already_never_was_or_was_copied_is_refused() {
    holds(
        "c-destroyed",
        r#"
        static int nothing(void *state, const garonne_at *at) { (void)state, (void)at; return GARONNE_DONE; }
        static void refused(garonne_task *task) {
            CHECK(garonne_task_destroy(task) == GARONNE_MISUSE);
            CHECK(garonne_task_submit(task) == GARONNE_MISUSE && garonne_task_wait(task) == GARONNE_MISUSE);
            CHECK(garonne_task_life(task) == GARONNE_MISUSE && garonne_task_withdraw(task) == GARONNE_MISUSE);
        }
        int main(void) {
            garonne_tasks *tasks;
            CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
            static garonne_task never, places[2];
            garonne_task *task = malloc(sizeof *task);
            refused(&never);
            refused(NULL);
            for (int i = 0; i < 20; i++) {
                CHECK(garonne_task_init(task, tasks, NULL, nothing, NULL) == GARONNE_OK);
                if (i & 1) CHECK(garonne_task_submit(task) == GARONNE_OK);
                places[i / 10] = *task;
                refused(&places[i / 10]);
                CHECK(garonne_task_destroy(task) == GARONNE_OK);
                refused(task);
                refused(task);
            }
            garonne_tasks_close(tasks);
            free(task);
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn the_example_shows_every_source_and_the_switch_of_a_scheduler() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/tasks.c");
    let text = std::fs::read_to_string(example).unwrap();
    let place = Place::new("c-example");
    let said = stdout(&run(&place.program_with("c-example", &text, &["-O2"]), &[]));
    let expected = [
        "sum 1048576, computed meanwhile 1.644934, ",
        "8 bytes read, the answer came",
    ];
    assert!(expected.iter().all(|words| said.contains(words)), "{said}");
}
