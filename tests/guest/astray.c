/* What programs do with tasks that they should not, or rarely: each is refused as the header says, or works; nothing hangs, ends the process or spoils what comes after. With the argument `mpi` all of it comes again
 * between MPI_Init and MPI_Finalize and after that; without, the process never calls MPI. */
#include <errno.h>
#include <fcntl.h>
#include <garonne_tasks.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            fflush(stdout); \
            _exit(1); \
        } \
    } while (0)

enum { MANY = 100000, ROOM = 5000, PATIENCE_S = 60 };

static garonne_tasks *tasks;
static const garonne_how now = {.urgency = GARONNE_NOW};

/* Waits until a count has come so far. */
static int comes(atomic_int *count, int least)
{
    for (int i = 0; i < PATIENCE_S * 1000 && atomic_load(count) < least; i++)
        usleep(1000);
    return atomic_load(count) >= least;
}

static int counts(void *state, const garonne_at *at)
{
    (void)at;
    atomic_fetch_add((atomic_int *)state, 1);
    return GARONNE_DONE;
}

static int repeats(void *state, const garonne_at *at)
{
    (void)at;
    atomic_fetch_add((atomic_int *)state, 1);
    return GARONNE_AGAIN;
}

static int event(void *state, uint32_t value, const garonne_at *at)
{
    (void)value, (void)at;
    atomic_fetch_add((atomic_int *)state, 1);
    return GARONNE_KEEP;
}

/* A run that goes on until it is let go. */
static struct {
    garonne_task task;
    atomic_int begun, go, over;
    int inside[4];
} held;

static int holds(void *state, const garonne_at *at)
{
    (void)state;
    CHECK(garonne_lengthy(tasks, at) == GARONNE_OK);
    held.inside[0] = garonne_task_submit(&held.task);
    held.inside[1] = garonne_task_wait(&held.task);
    held.inside[2] = garonne_task_life(&held.task);
    atomic_store(&held.begun, 1);
    while (!atomic_load(&held.go))
        usleep(100);
    atomic_store(&held.over, 1);
    return GARONNE_DONE;
}

static void *let_go(void *state)
{
    usleep(20000);
    atomic_store(&held.go, 1);
    return state;
}

static void hold(const garonne_how *how)
{
    memset(&held, 0, sizeof held);
    CHECK(garonne_task_init(&held.task, tasks, how, holds, NULL) == GARONNE_OK);
    CHECK(garonne_task_submit(&held.task) == GARONNE_OK);
    CHECK(comes(&held.begun, 1));
}

static void twice_and_from_inside(void)
{
    garonne_call *call;
    for (int urgent = 0; urgent < 2; urgent++) {
        hold(urgent ? &now : NULL);
        CHECK(garonne_task_submit(&held.task) == GARONNE_MISUSE);
        CHECK(garonne_blocking(tasks, let_go, NULL, &call) == GARONNE_OK);
        CHECK(garonne_task_wait(&held.task) == GARONNE_FINISHED && held.over);
        CHECK(held.inside[0] == GARONNE_MISUSE && held.inside[1] == GARONNE_PENDING && held.inside[2] == GARONNE_PENDING);
        CHECK(garonne_call_wait(call, NULL) == GARONNE_OK);
        /* It may be submitted again, and is destroyed while it runs. */
        held.begun = held.go = held.over = 0;
        CHECK(garonne_task_submit(&held.task) == GARONNE_OK && comes(&held.begun, 1));
        CHECK(garonne_blocking(tasks, let_go, NULL, &call) == GARONNE_OK);
        CHECK(garonne_task_destroy(&held.task) == GARONNE_OK && held.over);
        CHECK(garonne_task_destroy(&held.task) == GARONNE_MISUSE && garonne_task_submit(&held.task) == GARONNE_MISUSE);
        CHECK(garonne_task_wait(&held.task) == GARONNE_MISUSE && garonne_task_life(&held.task) == GARONNE_MISUSE);
        CHECK(garonne_call_wait(call, NULL) == GARONNE_OK);
    }
}

/* Queued, or on its way into a run, or repeating. */
static void destroyed_at_any_moment(void)
{
    for (int i = 0; i < 2000; i++) {
        garonne_task task;
        atomic_int runs = 0;
        CHECK(garonne_task_init(&task, tasks, i % 2 ? &now : NULL, i % 3 ? counts : repeats, &runs) == GARONNE_OK);
        CHECK(garonne_task_submit(&task) == GARONNE_OK);
        if (i % 5 == 0)
            usleep(i % 100);
        CHECK(garonne_task_destroy(&task) == GARONNE_OK);
        int before = runs;
        if (i % 50 == 0)
            usleep(1000);
        CHECK(runs == before);
    }
}

static void many(void)
{
    static garonne_task all[MANY];
    atomic_int runs = 0;
    int full = 0;
    for (int i = 0; i < MANY; i++) {
        CHECK(garonne_task_init(&all[i], tasks, i % 7 == 0 ? &now : NULL, counts, &runs) == GARONNE_OK);
        int code = garonne_task_submit(&all[i]);
        while (code == GARONNE_RESOURCE) {
            full++;
            CHECK(garonne_tasks_schedule(tasks, GARONNE_FORCED) >= 0);
            code = garonne_task_submit(&all[i]);
        }
        CHECK(code == GARONNE_OK);
    }
    CHECK(comes(&runs, MANY));
    for (int i = 0; i < MANY; i++) {
        CHECK(garonne_task_wait(&all[i]) == GARONNE_FINISHED);
        CHECK(garonne_task_destroy(&all[i]) == GARONNE_OK);
    }
    CHECK(runs == MANY);
    /* In one place, more than it has room for: the machine of a rank that is bound to a core is that core. */
    garonne_how repeating = {.patience_us = 50000};
    int in = 0;
    for (; in < ROOM; in++) {
        CHECK(garonne_task_init(&all[in], tasks, &repeating, repeats, &runs) == GARONNE_OK);
        int code = garonne_task_submit(&all[in]);
        CHECK(code == GARONNE_OK || code == GARONNE_RESOURCE);
        if (code == GARONNE_RESOURCE) {
            CHECK(garonne_task_life(&all[in]) == GARONNE_NEW && garonne_task_destroy(&all[in]) == GARONNE_OK);
            break;
        }
    }
    CHECK(in >= 128 && in < ROOM);
    while (in-- > 0)
        CHECK(garonne_task_destroy(&all[in]) == GARONNE_OK);
    (void)full;
}

static void odd_sources(void)
{
    garonne_watch *watch = NULL, *other = NULL;
    atomic_int runs = 0;
    static uint32_t words[2];
    int ends[2];
    CHECK(pipe(ends) == 0);
    /* No descriptor, one that was closed, one that cannot be watched, one that is closed while it is watched. */
    CHECK(garonne_on_descriptor(tasks, -1, GARONNE_READABLE, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_descriptor(tasks, ends[0], 0, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    int closed = dup(ends[0]), file = open("/proc/self/exe", O_RDONLY);
    CHECK(closed >= 0 && close(closed) == 0 && file >= 0);
    errno = 0;
    CHECK(garonne_on_descriptor(tasks, closed, GARONNE_READABLE, NULL, event, &runs, &watch) == GARONNE_SYSTEM && errno == EBADF);
    CHECK(garonne_on_descriptor(tasks, file, GARONNE_READABLE, NULL, event, &runs, &watch) == GARONNE_SYSTEM && errno == EPERM);
    CHECK(close(file) == 0 && !watch && runs == 0);
    for (int urgent = 0; urgent < 2; urgent++) {
        int own[2];
        CHECK(pipe(own) == 0);
        CHECK(garonne_on_descriptor(tasks, own[0], GARONNE_READABLE, urgent ? &now : NULL, event, &runs, &watch) == GARONNE_OK);
        int before = runs;
        CHECK(close(own[0]) == 0 && write(own[1], "x", 1) == 1 && comes(&runs, before + 1));
        garonne_watch_end(watch);
        CHECK(close(own[1]) == 0);
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    /* At once, and after centuries. */
    for (int urgent = 0; urgent < 2; urgent++) {
        const garonne_how *how = urgent ? &now : NULL;
        runs = 0;
        CHECK(garonne_on_alarm(tasks, UINT64_MAX, UINT64_MAX, how, event, &runs, &other) == GARONNE_OK);
        CHECK(garonne_on_alarm(tasks, 0, 0, how, event, &runs, &watch) == GARONNE_OK && comes(&runs, 1));
        garonne_watch_end(watch);
        CHECK(garonne_on_alarm(tasks, 0, UINT64_MAX, how, event, &runs, &watch) == GARONNE_OK && comes(&runs, 2));
        garonne_watch_end(watch);
        CHECK(garonne_on_alarm(tasks, 0, 1, how, event, &runs, &watch) == GARONNE_OK && comes(&runs, 10));
        garonne_watch_end(watch);
        int before = runs;
        usleep(2000);
        CHECK(runs == before);
        garonne_watch_end(other);
    }
    CHECK(garonne_on_word(tasks, (uint32_t *)((char *)words + 1), 0, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_word(tasks, NULL, 0, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_signal(tasks, 0, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_signal(tasks, SIGKILL, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_signal(tasks, 1000, NULL, event, &runs, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_alarm(tasks, 0, 0, NULL, NULL, NULL, &watch) == GARONNE_MISUSE);
    CHECK(garonne_on_alarm(tasks, 0, 0, NULL, event, &runs, NULL) == GARONNE_MISUSE);
    garonne_watch_end(NULL);
    garonne_tasks_close(NULL);
}

static void odd_arguments(void)
{
    garonne_task task;
    atomic_int runs = 0;
    memset(&task, 0, sizeof task);
    CHECK(garonne_task_submit(&task) == GARONNE_MISUSE && garonne_task_destroy(&task) == GARONNE_MISUSE && garonne_task_life(NULL) == GARONNE_MISUSE);
    garonne_how hows[] = {{.place = 99}, {.urgency = 2}, {.place = GARONNE_CORE, .cpu = 100000}, {.place = GARONNE_CPUS}, {.place = GARONNE_CPUS, .name = "x"}, {.place = GARONNE_DEVICE, .name = "none"}};
    for (unsigned i = 0; i < sizeof hows / sizeof *hows; i++)
        CHECK(garonne_task_init(&task, tasks, &hows[i], counts, &runs) == GARONNE_MISUSE);
    CHECK(garonne_task_init(&task, NULL, NULL, counts, &runs) == GARONNE_MISUSE && garonne_task_init(NULL, tasks, NULL, counts, &runs) == GARONNE_MISUSE);
    CHECK(garonne_task_init(&task, tasks, NULL, NULL, &runs) == GARONNE_MISUSE && garonne_tasks_open(NULL) == GARONNE_MISUSE);
    CHECK(garonne_tasks_schedule(tasks, 17) == GARONNE_MISUSE && garonne_tasks_schedule(NULL, GARONNE_FORCED) == GARONNE_MISUSE);
    /* A copy is no task. */
    CHECK(garonne_task_init(&task, tasks, NULL, counts, &runs) == GARONNE_OK);
    garonne_task copy = task;
    CHECK(garonne_task_submit(&copy) == GARONNE_MISUSE && garonne_task_destroy(&copy) == GARONNE_MISUSE);
    CHECK(garonne_task_wait(&task) == GARONNE_NEW && garonne_task_withdraw(&task) == GARONNE_NEW);
    CHECK(garonne_task_destroy(&task) == GARONNE_OK && runs == 0);
}

static void *sleeps(void *state)
{
    while (!atomic_load((atomic_int *)state))
        usleep(1000);
    return state;
}

/* A child has none of the threads: everything is refused there at once, and the parent's goes on undisturbed. */
static void forked(void)
{
    static uint32_t word;
    static garonne_task queued, fresh;
    garonne_watch *watches[3], *none = NULL;
    garonne_call *call, *others = NULL;
    atomic_int runs = 0, beats = 0, letters = 0, over = 0;
    int ends[2], status;
    garonne_tasks *again = NULL;
    CHECK(pipe(ends) == 0);
    hold(NULL);
    CHECK(garonne_task_init(&queued, tasks, NULL, repeats, &runs) == GARONNE_OK && garonne_task_submit(&queued) == GARONNE_OK);
    CHECK(garonne_task_init(&fresh, tasks, &now, counts, &runs) == GARONNE_OK);
    CHECK(garonne_on_alarm(tasks, 1000000, 1000000, &now, event, &beats, &watches[0]) == GARONNE_OK);
    CHECK(garonne_on_descriptor(tasks, ends[0], GARONNE_READABLE, NULL, event, &letters, &watches[1]) == GARONNE_OK);
    CHECK(garonne_on_word(tasks, &word, 0, NULL, event, &letters, &watches[2]) == GARONNE_OK);
    CHECK(garonne_blocking(tasks, sleeps, &over, &call) == GARONNE_OK);
    CHECK(comes(&beats, 3));
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        CHECK(garonne_tasks_open(&again) == GARONNE_MISUSE && !again);
        CHECK(garonne_task_submit(&fresh) == GARONNE_MISUSE && garonne_task_submit(&queued) == GARONNE_MISUSE);
        CHECK(garonne_tasks_schedule(tasks, GARONNE_FORCED) == GARONNE_MISUSE);
        CHECK(garonne_task_wait(&queued) == GARONNE_PENDING && garonne_task_wait(&held.task) == GARONNE_PENDING);
        CHECK(garonne_task_withdraw(&held.task) == GARONNE_MISUSE && garonne_task_destroy(&held.task) == GARONNE_MISUSE);
        CHECK(garonne_task_withdraw(&queued) == GARONNE_MISUSE && garonne_task_destroy(&queued) == GARONNE_MISUSE);
        CHECK(garonne_on_alarm(tasks, 0, 0, NULL, event, &runs, &none) == GARONNE_MISUSE && !none);
        CHECK(garonne_on_word(tasks, &word, 1, NULL, event, &runs, &none) == GARONNE_MISUSE && !none);
        CHECK(garonne_blocking(tasks, sleeps, &over, &others) == GARONNE_MISUSE && !others);
        CHECK(garonne_call_over(call) == 0 && garonne_call_wait(call, NULL) == GARONNE_MISUSE);
        for (int i = 0; i < 3; i++)
            garonne_watch_end(watches[i]);
        garonne_tasks_close(tasks);
        _exit(42);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    int before = beats;
    CHECK(comes(&beats, before + 3));
    CHECK(write(ends[1], "x", 1) == 1 && comes(&letters, 1));
    for (int i = 0; i < 3; i++)
        garonne_watch_end(watches[i]);
    atomic_store(&held.go, 1);
    CHECK(garonne_task_wait(&held.task) == GARONNE_FINISHED && garonne_task_destroy(&held.task) == GARONNE_OK);
    CHECK(garonne_task_destroy(&queued) == GARONNE_OK);
    CHECK(garonne_task_submit(&fresh) == GARONNE_OK && garonne_task_wait(&fresh) == GARONNE_FINISHED && garonne_task_destroy(&fresh) == GARONNE_OK);
    atomic_store(&over, 1);
    CHECK(garonne_call_wait(call, NULL) == GARONNE_OK);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void all(void)
{
    CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
    odd_arguments();
    twice_and_from_inside();
    destroyed_at_any_moment();
    odd_sources();
    many();
    forked();
    garonne_tasks_close(tasks);
}

int main(int argc, char **argv)
{
    all();
    if (argc > 1 && !strcmp(argv[1], "mpi")) {
        MPI_Init(&argc, &argv);
        all();
        MPI_Finalize();
        all();
    }
    /* What a program leaves behind does not keep it from ending. */
    static atomic_int runs;
    static garonne_task left;
    garonne_watch *watch;
    CHECK(garonne_tasks_open(&tasks) == GARONNE_OK && garonne_task_init(&left, tasks, NULL, repeats, &runs) == GARONNE_OK);
    CHECK(garonne_task_submit(&left) == GARONNE_OK && garonne_on_alarm(tasks, 0, 1000, &now, event, &runs, &watch) == GARONNE_OK);
    CHECK(comes(&runs, 10));
    printf("ok\n");
    return 0;
}
