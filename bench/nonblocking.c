/* Nonblocking collectives beside computing, after the formula of IMB-NBC, built with every MPI:
 *     nonblocking MAP SAMPLES NANOSECONDS pure|overlap NAME:BYTES...
 *
 * T_pure is the time of a call and its MPI_Wait, T_cpu that of computing about as long on all ranks at once, T_ovrl that of the call,
 * the same computing, and MPI_Wait. Each is the mean over a row of about NANOSECONDS between two barriers, of the slowest
 * rank. BYTES are those of one block: the whole of ibcast, iallreduce and ireduce, what one rank gives one other else. Rank 0 prints
 *     nbc NAME BYTES T_PURE T_CPU T_OVRL HANDOFF_BEFORE HANDOFF_AFTER
 * (with `pure` the others are 0). */
#include "work.h"

#include <mpi.h>

static int rank, size;
static char *out, *in;
static int *counts, *places;
static double turns_per_ns;
static struct handoff *shared;

typedef void operation(int bytes, MPI_Request *req);

static void ibarrier(int bytes, MPI_Request *req) { (void)bytes, MPI_Ibarrier(MPI_COMM_WORLD, req); }
static void ibcast(int bytes, MPI_Request *req) { MPI_Ibcast(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, req); }

static void iallreduce(int bytes, MPI_Request *req)
{
    MPI_Iallreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, req);
}

static void ireduce(int bytes, MPI_Request *req)
{
    MPI_Ireduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, req);
}

static void ialltoall(int bytes, MPI_Request *req)
{
    MPI_Ialltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, req);
}

static void ialltoallv(int bytes, MPI_Request *req)
{
    (void)bytes;
    MPI_Ialltoallv(out, counts, places, MPI_BYTE, in, counts, places, MPI_BYTE, MPI_COMM_WORLD, req);
}

static void iallgather(int bytes, MPI_Request *req)
{
    MPI_Iallgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, req);
}

static void iallgatherv(int bytes, MPI_Request *req)
{
    MPI_Iallgatherv(out, bytes, MPI_BYTE, in, counts, places, MPI_BYTE, MPI_COMM_WORLD, req);
}

static void igather(int bytes, MPI_Request *req)
{
    MPI_Igather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, req);
}

static void igatherv(int bytes, MPI_Request *req)
{
    MPI_Igatherv(out, bytes, MPI_BYTE, in, counts, places, MPI_BYTE, 0, MPI_COMM_WORLD, req);
}

static void iscatter(int bytes, MPI_Request *req)
{
    MPI_Iscatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, req);
}

static void iscatterv(int bytes, MPI_Request *req)
{
    MPI_Iscatterv(out, counts, places, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, req);
}

static const struct what {
    const char *name;
    operation *start;
} WHATS[] = {
    {"ibarrier", ibarrier},     {"ibcast", ibcast},           {"iallreduce", iallreduce},   {"ireduce", ireduce},
    {"ialltoall", ialltoall},   {"ialltoallv", ialltoallv},   {"iallgather", iallgather},   {"iallgatherv", iallgatherv},
    {"igather", igather},       {"igatherv", igatherv},       {"iscatter", iscatter},       {"iscatterv", iscatterv},
};

static double slowest(double own)
{
    double all;
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* Mean nanoseconds of a call, computing and the wait; without a call only of the computing. */
static double row(const struct what *what, int bytes, long repeats, uint64_t turns)
{
    MPI_Request req = MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_ns();
    for (long i = 0; i < repeats; i++) {
        if (what)
            what->start(bytes, &req);
        if (turns > 0)
            work_do(turns);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    }
    return slowest((now_ns() - start) / (double)repeats);
}

static void measure(const struct what *what, int bytes, int samples, double wanted_ns, int overlapped)
{
    static uint64_t epoch;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    long repeats = 1;
    double pure = row(what, bytes, repeats, 0); /* warms up */
    while ((pure = row(what, bytes, repeats, 0)) * (double)repeats < wanted_ns / 2)
        repeats *= pure * (double)repeats < wanted_ns / 10 ? 4 : 2;
    for (int i = 0; i < samples; i++) {
        double before = handoff_measure(shared, rank, &epoch), cpu = 0, both = 0;
        pure = row(what, bytes, repeats, 0);
        if (overlapped) {
            /* Every rank knows the same slowest time; ranks that share a core compute as long together. */
            double share = (double)((size + cores - 1) / cores);
            uint64_t turns = (uint64_t)(pure * turns_per_ns / share) + 1;
            cpu = row(NULL, bytes, repeats, turns);
            both = row(what, bytes, repeats, turns);
        }
        double after = handoff_measure(shared, rank, &epoch);
        if (rank == 0)
            printf("nbc %s %d %.1f %.1f %.1f %.2f %.2f\n", what->name, bytes, pure, cpu, both, before, after);
    }
    if (rank == 0)
        fflush(stdout);
}

static const struct what *find(const char *name)
{
    for (size_t i = 0; i < sizeof WHATS / sizeof *WHATS; i++)
        if (strcmp(WHATS[i].name, name) == 0)
            return &WHATS[i];
    fprintf(stderr, "nonblocking: no measurement '%s'\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return NULL;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 6 || size < 2) {
        fprintf(stderr, "usage: nonblocking MAP SAMPLES NANOSECONDS pure|overlap NAME:BYTES..., on two ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    shared = handoff_map(argv[1]);
    counts = calloc((size_t)size, sizeof *counts), places = calloc((size_t)size, sizeof *places);
    turns_per_ns = work_turns_per_ns();
    MPI_Bcast(&turns_per_ns, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 5; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        int bytes = colon ? atoi(colon + 1) : 0;
        if (colon)
            *colon = 0;
        size_t room = (size_t)bytes * (size_t)size + 8;
        out = calloc(1, room), in = calloc(1, room);
        if (!out || !in || !counts || !places)
            MPI_Abort(MPI_COMM_WORLD, 2);
        for (int r = 0; r < size; r++)
            counts[r] = bytes, places[r] = r * bytes;
        measure(find(argv[i]), bytes, atoi(argv[2]), atof(argv[3]), strcmp(argv[4], "overlap") == 0);
        free(out), free(in);
    }
    free(counts), free(places);
    return MPI_Finalize();
}
