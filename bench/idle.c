/* What waiting costs others, built with every MPI: `idle MAP SAMPLES NANOSECONDS MODE...`
 *
 * Rank 0 does something for about NANOSECONDS while the others do something else:
 *     sleeping  computes; they sleep outside MPI (what the others are compared with)
 *     waiting   computes; they are blocked in MPI_Recv
 *     traffic   computes; rank 1 sends it large messages whose receives are posted, the rest are blocked in MPI_Recv
 *     idle      sleeps outside MPI; they are blocked in MPI_Recv
 * and prints: idle MODE RANKS WALL_NS THREAD_CPU_NS PROCESS_CPU_NS OTHERS_CPU_NS
 * of rank 0's computing (or sleeping), its own process, and the sum over the other processes. */
#include "work.h"

#include <mpi.h>
#include <sys/resource.h>

enum { TAG = 1, BULK = 2, MESSAGES = 64, MESSAGE = 262144 };

static int rank, size;
static char *bulk;
static MPI_Request req[MESSAGES];

static double clock_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void sleep_ns(double ns)
{
    struct timespec t = {(time_t)(ns / 1e9), (long)ns % 1000000000L};
    while (nanosleep(&t, &t) != 0)
        ;
}

/* Rank 0's part; fills in wall, thread and process time. */
static void lead(const char *mode, uint64_t turns, double wanted_ns, double *spent)
{
    int one = 1, traffic = strcmp(mode, "traffic") == 0;
    for (int i = 0; traffic && i < MESSAGES; i++)
        MPI_Irecv(bulk + (size_t)i * MESSAGE, MESSAGE, MPI_BYTE, 1, BULK, MPI_COMM_WORLD, &req[i]);
    spent[1] = -clock_of(CLOCK_THREAD_CPUTIME_ID), spent[2] = -clock_of(CLOCK_PROCESS_CPUTIME_ID), spent[0] = -now_ns();
    if (strcmp(mode, "idle") == 0)
        sleep_ns(wanted_ns);
    else
        work_do(turns);
    spent[0] += now_ns(), spent[1] += clock_of(CLOCK_THREAD_CPUTIME_ID), spent[2] += clock_of(CLOCK_PROCESS_CPUTIME_ID);
    if (traffic)
        MPI_Waitall(MESSAGES, req, MPI_STATUSES_IGNORE);
    for (int to = 1; to < size && strcmp(mode, "sleeping") != 0; to++)
        MPI_Send(&one, 1, MPI_INT, to, TAG, MPI_COMM_WORLD);
}

static void follow(const char *mode, double wanted_ns)
{
    int one;
    if (strcmp(mode, "sleeping") == 0)
        return sleep_ns(1.5 * wanted_ns);
    if (strcmp(mode, "traffic") == 0 && rank == 1)
        for (int i = 0; i < MESSAGES; i++)
            MPI_Send(bulk + (size_t)i * MESSAGE, MESSAGE, MPI_BYTE, 0, BULK, MPI_COMM_WORLD);
    MPI_Recv(&one, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5 || size < 2) {
        fprintf(stderr, "usage: idle MAP SAMPLES NANOSECONDS MODE..., on two ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    double wanted_ns = atof(argv[3]);
    bulk = rank < 2 ? calloc(MESSAGES, MESSAGE) : NULL;
    if (rank < 2 && !bulk)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int s = 0; s < atoi(argv[2]); s++) {
        for (int i = 4; i < argc; i++) {
            double spent[3] = {0}, own = 0, others = 0;
            MPI_Barrier(MPI_COMM_WORLD);
            /* So that all are where they are to be, and what a barrier leaves to do is done. */
            sleep_ns(rank == 0 ? 20e6 : 0);
            double before = clock_of(CLOCK_PROCESS_CPUTIME_ID);
            if (rank == 0)
                lead(argv[i], (uint64_t)(wanted_ns * work_turns_per_ns()), wanted_ns, spent);
            else
                follow(argv[i], wanted_ns), own = clock_of(CLOCK_PROCESS_CPUTIME_ID) - before;
            MPI_Reduce(&own, &others, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
            if (rank == 0)
                printf("idle %s %d %.0f %.0f %.0f %.0f\n", argv[i], size, spent[0], spent[1], spent[2], others), fflush(stdout);
        }
    }
    free(bulk);
    return MPI_Finalize();
}
