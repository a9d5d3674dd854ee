/* Work done by idle cores while the program computes, through Garonne's tasks.
 *
 *     mpicc -O2 tasks.c -o tasks && ./tasks
 *
 * A block of data is summed up in pieces by tasks, near the memory's user, while main computes something else; a descriptor and an alarm become
 * events meanwhile, and a blocking call waits on a thread of its own. No task is allocated: each lies in an array of the program. */
#include <garonne_tasks.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECES = 16, NUMBERS = 1 << 20 };

struct piece {
    const double *from;
    double sum;
    int core; /* who did it */
    garonne_task task;
};

static int sum_up(void *state, const garonne_at *at) {
    struct piece *piece = state;
    for (int i = 0; i < NUMBERS / PIECES; i++)
        piece->sum += piece->from[i];
    piece->core = at->core;
    return GARONNE_DONE;
}

static int beat(void *state, uint32_t value, const garonne_at *at) {
    (void)value, (void)at;
    atomic_fetch_add((atomic_int *)state, 1);
    return GARONNE_KEEP;
}

static void *ask(void *argument) {
    usleep(20000); /* as slow as a name server */
    return argument;
}

static void must(int code) {
    if (code < 0) {
        fprintf(stderr, "error: %s\n", garonne_tasks_error(code));
        exit(1);
    }
}

int main(void) {
    static struct piece pieces[PIECES];
    static atomic_int beats;
    garonne_tasks *tasks;
    garonne_watch *alarm;
    garonne_call *call;
    garonne_how near = {.place = GARONNE_NEAR_CALLER}, now = {.urgency = GARONNE_NOW};
    double *numbers = malloc(NUMBERS * sizeof *numbers), own = 0, total = 0;
    void *answer;

    if (!numbers)
        return 1;
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = 1;
    must(garonne_tasks_open(&tasks));
    must(garonne_on_alarm(tasks, 1000000, 1000000, &now, beat, &beats, &alarm));
    must(garonne_blocking(tasks, ask, "the answer", &call));
    for (int i = 0; i < PIECES; i++) {
        pieces[i].from = numbers + i * (NUMBERS / PIECES);
        must(garonne_task_init(&pieces[i].task, tasks, &near, sum_up, &pieces[i]));
        must(garonne_task_submit(&pieces[i].task));
    }
    for (long i = 1; i < 20000000; i++)
        own += 1.0 / ((double)i * (double)i);
    for (int i = 0; i < PIECES; i++) {
        must(garonne_task_wait(&pieces[i].task));
        total += pieces[i].sum;
        garonne_task_destroy(&pieces[i].task);
        printf("%s%d", i ? " " : "pieces done by cores ", pieces[i].core);
    }
    must(garonne_call_wait(call, &answer));
    garonne_watch_end(alarm);
    printf("\nsum %.0f, computed meanwhile %.6f, beats while computing: %s, %s came\n", total, own, beats ? "yes" : "no", (char *)answer);
    garonne_tasks_close(tasks);
    free(numbers);
    return total == NUMBERS ? 0 : 1;
}
