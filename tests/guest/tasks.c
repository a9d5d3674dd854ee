/* A thread that waits in MPI runs the tasks of its process: its partner goes on only when the task has run. With the argument `refused` the system gives the process no thread, so
 * nobody else could run it. */
#include <garonne_tasks.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            fflush(stdout); \
            MPI_Abort(MPI_COMM_WORLD, 1); \
        } \
    } while (0)

enum { RECV, WAITALL, BARRIER, ALLREDUCE, WAYS, LARGE = 1 << 20 };

static int rank, refused;
static pthread_t program;
static char name[64], big[LARGE];

typedef struct {
    garonne_task task;
    int runs, wanted, waits;
} job;

/* Says so to the partner at its last run. */
static int work(void *state, const garonne_at *at)
{
    job *its = state;
    if (refused) {
        CHECK(at->keypoint == GARONNE_WAIT);
        CHECK(pthread_equal(pthread_self(), program));
    }
    if (++its->runs < its->wanted)
        return GARONNE_AGAIN;
    if (its->waits) {
        int got = 0;
        MPI_Recv(&got, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == its->waits);
    }
    CHECK(unlink(name) == 0);
    return GARONNE_DONE;
}

static void meet(int way)
{
    int value = 0, sum = 0;
    MPI_Request requests[2];
    switch (way) {
    case RECV:
        if (rank == 0)
            MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        break;
    case WAITALL:
        if (rank == 0) {
            MPI_Irecv(big, LARGE, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[1]);
        } else {
            MPI_Isend(big, LARGE, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &requests[1]);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        break;
    case BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    default:
        value = 1;
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == 2);
    }
}

/* Where the first rank waits for the second in this way, and the second for the first's task. */
static void waits(garonne_tasks *tasks, int way, int wanted, int within)
{
    job its = {.wanted = wanted, .waits = within};
    if (rank == 0) {
        strcpy(name, "/tmp/garonne-tasks-XXXXXX");
        int file = mkstemp(name);
        CHECK(file >= 0 && close(file) == 0);
        CHECK(garonne_task_init(&its.task, tasks, NULL, work, &its) == GARONNE_OK);
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0)
        CHECK(garonne_task_submit(&its.task) == GARONNE_OK);
    else {
        if (within)
            MPI_Send(&within, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        while (access(name, F_OK) == 0)
            usleep(1000);
    }
    meet(way);
    if (rank == 0) {
        CHECK(garonne_task_wait(&its.task) == GARONNE_FINISHED && its.runs == wanted);
        garonne_task_destroy(&its.task);
    }
}

static int beat(void *state, uint32_t value, const garonne_at *at)
{
    (void)state, (void)value, (void)at;
    return GARONNE_STOP;
}

static void *call(void *state)
{
    return state;
}

/* What needs a thread of its own says in one way that there is none. */
static void no_events(garonne_tasks *tasks)
{
    static uint32_t word;
    garonne_watch *watch;
    garonne_call *blocks;
    CHECK(garonne_on_alarm(tasks, 1, 0, NULL, beat, NULL, &watch) == GARONNE_RESOURCE);
    CHECK(garonne_on_word(tasks, &word, 0, NULL, beat, NULL, &watch) == GARONNE_RESOURCE);
    CHECK(garonne_blocking(tasks, call, NULL, &blocks) == GARONNE_RESOURCE);
}

int main(int argc, char **argv)
{
    garonne_tasks *tasks;
    refused = argc > 1 && !strcmp(argv[1], "refused");
    int level;
    MPI_Init_thread(&argc, &argv, refused ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    program = pthread_self();
    if (refused) {
        struct rlimit none = {0, 0};
        CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    }
    CHECK(garonne_tasks_open(&tasks) == GARONNE_OK);
    if (refused)
        no_events(tasks);
    for (int way = 0; way < WAYS; way++) {
        waits(tasks, way, 1, 0);
        waits(tasks, way, 3, 0);
        /* A task may wait in MPI itself. */
        waits(tasks, way, 1, 7 + way);
    }
    garonne_tasks_close(tasks);
    MPI_Finalize();
    printf("ok\n");
    return 0;
}
