/* Work done by idle cores while the program computes, through Garonne's tasks.
 *
 *     mpicc -O2 tasks.c -o tasks && ./tasks
 *
 * A block of data is summed up in pieces by tasks, near the memory's user, while main computes something else in two threads of its own making (fibres), at whose switches it lets
 * tasks run. Meanwhile a descriptor and an alarm become events, a task repeats until something has happened, and a blocking call waits on a thread of its own. No task is
 * allocated: each lies in an array or variable of the program. */
#include <errno.h>
#include <fcntl.h>
#include <garonne_tasks.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

enum { PIECES = 16, NUMBERS = 1 << 20, FIBRES = 2, TERMS = 20000000, SLICE = 100000, STACK = 256 * 1024 };

struct piece {
    const double *from;
    double sum;
    int core; /* who did it */
    garonne_task task;
};

static garonne_tasks *tasks;
static atomic_int beats, bytes;
static int pipe_ends[2];

static int sum_up(void *state, const garonne_at *at) {
    struct piece *piece = state;
    for (int i = 0; i < NUMBERS / PIECES; i++)
        piece->sum += piece->from[i];
    piece->core = at->core;
    return GARONNE_DONE;
}

/* An alarm. */
static int beat(void *state, uint32_t value, const garonne_at *at) {
    (void)state, (void)value, (void)at;
    beats++;
    return GARONNE_KEEP;
}

/* A descriptor can be read. As long as it can, this is called: so it reads all there is, and stops at the end. */
static int take(void *state, uint32_t value, const garonne_at *at) {
    char buffer[64];
    ssize_t got;
    (void)state, (void)at;
    while ((got = read((int)value, buffer, sizeof buffer)) > 0)
        bytes += (int)got;
    return got < 0 && errno == EAGAIN ? GARONNE_KEEP : GARONNE_STOP;
}

/* A task that repeats: looked at by whoever is idle until it is done. */
static int await_beat(void *state, const garonne_at *at) {
    (void)state, (void)at;
    return beats > 0 ? GARONNE_DONE : GARONNE_AGAIN;
}

static void *ask(void *argument) {
    usleep(20000); /* as slow as a name server */
    return argument;
}

/* The call is over. */
static int answered(void *state, uint32_t value, const garonne_at *at) {
    (void)value, (void)at;
    atomic_store((atomic_int *)state, 1);
    return GARONNE_STOP;
}

static void must(int code) {
    if (code < 0) {
        fprintf(stderr, "error: %s\n", garonne_tasks_error(code));
        exit(1);
    }
}

/* Threads of the program's own, and who switches between them. */
static ucontext_t scheduler, fibres[FIBRES];
static char stacks[FIBRES][STACK];
static double own[FIBRES];
static int left = FIBRES;

static void compute(int which) {
    for (long i = 1; i <= TERMS / FIBRES; i++) {
        double n = (double)(i * FIBRES - which);
        own[which] += 1 / (n * n);
        if (i % SLICE == 0)
            swapcontext(&fibres[which], &scheduler);
    }
    left--; /* uc_link leads back */
}

static void run_fibres(void) {
    for (int which = 0; which < FIBRES; which++) {
        getcontext(&fibres[which]);
        fibres[which].uc_stack.ss_sp = stacks[which];
        fibres[which].uc_stack.ss_size = STACK;
        fibres[which].uc_link = &scheduler;
        makecontext(&fibres[which], (void (*)(void))compute, 1, which);
    }
    /* All take as many turns, so all are over in the same round. */
    while (left > 0)
        for (int which = 0; which < FIBRES; which++) {
            swapcontext(&scheduler, &fibres[which]);
            must(garonne_tasks_schedule(tasks, GARONNE_SWITCH)); /* runs what waits for this core; costs next to nothing if nothing does */
        }
}

int main(void) {
    static struct piece pieces[PIECES];
    static atomic_int over;
    garonne_watch *alarm, *letters, *ending;
    garonne_call *call;
    garonne_task waiting;
    garonne_how near = {.place = GARONNE_NEAR_CALLER}, now = {.urgency = GARONNE_NOW}, patient = {.patience_us = 1000};
    double *numbers = malloc(NUMBERS * sizeof *numbers), total = 0;
    void *answer;

    if (!numbers || pipe(pipe_ends) != 0 || fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK) != 0)
        return 1;
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = 1;
    must(garonne_tasks_open(&tasks));
    must(garonne_on_alarm(tasks, 1000000, 1000000, &now, beat, NULL, &alarm));
    must(garonne_on_descriptor(tasks, pipe_ends[0], GARONNE_READABLE, NULL, take, NULL, &letters));
    must(garonne_blocking(tasks, ask, "the answer", &call));
    must(garonne_on_completion(tasks, call, NULL, answered, &over, &ending));
    must(garonne_task_init(&waiting, tasks, &patient, await_beat, NULL));
    must(garonne_task_submit(&waiting));
    for (int i = 0; i < PIECES; i++) {
        pieces[i].from = numbers + i * (NUMBERS / PIECES);
        must(garonne_task_init(&pieces[i].task, tasks, &near, sum_up, &pieces[i]));
        must(garonne_task_submit(&pieces[i].task));
    }
    if (write(pipe_ends[1], "a letter", 8) != 8)
        return 1;
    run_fibres();
    for (int i = 0; i < PIECES; i++) {
        must(garonne_task_wait(&pieces[i].task));
        total += pieces[i].sum;
        must(garonne_task_destroy(&pieces[i].task));
        printf("%s%d", i ? " " : "pieces done by cores ", pieces[i].core);
    }
    must(garonne_task_wait(&waiting));
    must(garonne_task_destroy(&waiting));
    must(garonne_call_wait(call, &answer));
    while (!over || bytes < 8)
        usleep(1000);
    garonne_watch_end(alarm);
    garonne_watch_end(letters);
    garonne_watch_end(ending);
    printf("\nsum %.0f, computed meanwhile %.6f, beats while computing: %s, %d bytes read, %s came\n", total, own[0] + own[1], beats ? "yes" : "no", bytes, (char *)answer);
    garonne_tasks_close(tasks);
    free(numbers);
    return total == NUMBERS ? 0 : 1;
}
