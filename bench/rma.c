/* Windows, built with every MPI: `rma MAP SAMPLES NANOSECONDS WINDOW_OPERATION:BYTES...`, on two ranks; contended operations on more, too.
 *
 * WINDOW is `allocate`, `shared`, `create` or `dynamic`. Rank 0 is the origin, rank 1 the target. OPERATION:
 *     put get fetch swap add   followed by a flush, within lock_all; the target waits in a barrier
 *     rate                     puts, one flush behind each RATE_PUTS of them; the time of one
 *     lock                     lock, put, unlock
 *     contend                  the same by all ranks at once for NANOSECONDS, CONTENDED_NS at least; the time of one at the rank that had the lock least often
 *     count                    fetch_and_op and flush by all ranks at once, likewise
 *                              of both a second line, WINDOW_OPERATION_best: the time of one at the rank that came to it most often
 *     fence pscw               put between two fences, or within start and complete, post and wait
 *     computing                fetch_and_op and flush while the target computes without MPI for COMPUTING_NS; at most COMPUTING_CALLS
 *     free                     make and free the window
 * Each sample is the mean over about NANOSECONDS: sample WHAT BYTES NANOSECONDS HANDOFF_BEFORE HANDOFF_AFTER */
#include "work.h"

#include <mpi.h>

enum { RANKS_MAX = 16, RATE_PUTS = 1000, COMPUTING_CALLS = 1000, CALLS_MAX = 1 << 20 };
/* Contended operations go on for so long at least: several time slices, where there are more ranks than cores. */
static const double COMPUTING_NS = 50e6, CONTENDED_NS = 200e6;

static int rank, size;
static char *own, *memory;
static MPI_Aint target;
static MPI_Win win;
static double turns_per_ns;

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* Of all ranks together. */
static void make(const char *kind, int bytes)
{
    target = 0;
    if (starts(kind, "allocate")) {
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else if (starts(kind, "shared")) {
        MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else if (starts(kind, "create")) {
        MPI_Win_create(memory = own, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else {
        MPI_Aint addresses[RANKS_MAX];
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_attach(win, memory = own, bytes);
        MPI_Get_address(own, &target);
        MPI_Allgather(&target, 1, MPI_AINT, addresses, 1, MPI_AINT, MPI_COMM_WORLD);
        target = addresses[1];
    }
}

static void unmake(const char *kind)
{
    if (starts(kind, "dynamic"))
        MPI_Win_detach(win, own);
    MPI_Win_free(&win);
}

static void fetch(void)
{
    static long one = 1, before;
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 1, target, MPI_SUM, win);
}

/* One operation of the origin. */
static void operate(const char *what, char *data, int bytes)
{
    static long one = 1, two = 2, before;
    if (starts(what, "get"))
        MPI_Get(data, bytes, MPI_BYTE, 1, target, bytes, MPI_BYTE, win);
    else if (starts(what, "fetch") || starts(what, "computing"))
        fetch();
    else if (starts(what, "swap"))
        MPI_Compare_and_swap(&two, &one, &before, MPI_LONG, 1, target, win);
    else if (starts(what, "add"))
        MPI_Accumulate(data, bytes / 8, MPI_DOUBLE, 1, target, bytes / 8, MPI_DOUBLE, MPI_SUM, win);
    else
        MPI_Put(data, bytes, MPI_BYTE, 1, target, bytes, MPI_BYTE, win);
}

/* `calls` operations with what ends them. Of both ranks where the target takes part; then `group` is that of the other. */
static void row(const char *kind, const char *what, char *data, int bytes, long calls, MPI_Group group)
{
    for (long i = 0; i < calls; i++) {
        if (starts(what, "free")) {
            make(kind, bytes);
            unmake(kind);
        } else if (starts(what, "fence")) {
            if (rank == 0)
                operate("put", data, bytes);
            MPI_Win_fence(0, win);
        } else if (starts(what, "pscw") && rank == 0) {
            MPI_Win_start(group, 0, win);
            operate("put", data, bytes);
            MPI_Win_complete(win);
        } else if (starts(what, "pscw")) {
            MPI_Win_post(group, 0, win);
            MPI_Win_wait(win);
        } else if (starts(what, "lock")) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
            operate("put", data, bytes);
            MPI_Win_unlock(1, win);
        } else {
            operate(what, data, bytes);
            if (!starts(what, "rate") || i % RATE_PUTS == RATE_PUTS - 1 || i == calls - 1)
                MPI_Win_flush(1, win);
        }
    }
}

/* Has rank 1's lock in turns with the others, or adds to its counter, for a while. Returns how often the rank did so that came to it least often, and into `most` that of the other end. */
static long contend(int counts, char *data, int bytes, double ns, long *most)
{
    long turns = 0, least;
    double start = now_ns();
    while (now_ns() - start < ns) {
        if (counts) {
            fetch();
            MPI_Win_flush(1, win);
        } else {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
            operate("put", data, bytes);
            MPI_Win_unlock(1, win);
        }
        turns++;
    }
    MPI_Allreduce(&turns, &least, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&turns, most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    return least > 0 ? least : 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int alone = 1;
    for (int i = 4; i < argc; i++)
        alone = alone && (strstr(argv[i], "_contend:") || strstr(argv[i], "_count:"));
    if (argc < 5 || size < 2 || size > RANKS_MAX || (size > 2 && !alone)) {
        fprintf(stderr, "usage: rma MAP SAMPLES NANOSECONDS WINDOW_OPERATION:BYTES..., on two ranks, contended operations on up to %d\n", RANKS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    struct handoff *shared = handoff_map(argv[1]);
    uint64_t epoch = 0;
    double wanted_ns = atof(argv[3]);
    int other = rank == 0;
    MPI_Group all, group;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &other, &group);
    turns_per_ns = work_turns_per_ns();
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':'), *line = strchr(argv[i], '_');
        if (!colon || !line)
            MPI_Abort(MPI_COMM_WORLD, 2);
        *colon = 0;
        int bytes = atoi(colon + 1);
        const char *what = line + 1;
        int both = starts(what, "fence") || starts(what, "pscw") || starts(what, "free");
        int counts = starts(what, "count"), contends = starts(what, "contend") || counts, passive = !both && !contends && !starts(what, "lock"), computes = starts(what, "computing");
        char *data = calloc(1, (size_t)bytes);
        own = calloc(1, (size_t)bytes);
        if (!data || !own)
            MPI_Abort(MPI_COMM_WORLD, 2);
        if (!starts(what, "free"))
            make(argv[i], bytes);
        if (starts(what, "fence"))
            MPI_Win_fence(0, win);
        long calls = 1, most = 0;
        for (int sample = -1; sample < atoi(argv[2]); sample++) {
            double before = sample < 0 ? 0 : handoff_measure(shared, rank, &epoch), took = 0;
            if (passive && !computes && rank == 0)
                MPI_Win_lock_all(0, win);
            if (contends) {
                MPI_Barrier(MPI_COMM_WORLD);
                took = wanted_ns > CONTENDED_NS ? wanted_ns : CONTENDED_NS;
                if (counts)
                    MPI_Win_lock_all(0, win);
                calls = contend(counts, data, bytes, took, &most);
                if (counts)
                    MPI_Win_unlock_all(win);
            } else if (sample < 0 && !computes) {
                /* How many calls a sample takes; both ranks know it where both take part. */
                for (;; calls *= 2) {
                    MPI_Barrier(MPI_COMM_WORLD);
                    double start = now_ns();
                    if (both || rank == 0)
                        row(argv[i], what, data, bytes, calls, group);
                    took = now_ns() - start;
                    MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                    if (took >= wanted_ns / 2 || calls >= CALLS_MAX)
                        break;
                }
            } else {
                MPI_Barrier(MPI_COMM_WORLD);
                if (computes && rank == 1)
                    work_do((uint64_t)(COMPUTING_NS * turns_per_ns));
                double start = now_ns();
                if (computes && rank == 0) {
                    calls = COMPUTING_CALLS;
                    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
                    row(argv[i], what, data, bytes, calls, group);
                    MPI_Win_unlock(1, win);
                } else if (!computes && (both || rank == 0)) {
                    row(argv[i], what, data, bytes, calls, group);
                }
                took = now_ns() - start;
            }
            if (passive && !computes && rank == 0)
                MPI_Win_unlock_all(win);
            MPI_Barrier(MPI_COMM_WORLD);
            if (sample < 0)
                continue;
            double after = handoff_measure(shared, rank, &epoch);
            if (rank == 0)
                printf("sample %s %d %.3f %.2f %.2f\n", argv[i], bytes, took / (double)calls, before, after);
            if (rank == 0 && contends)
                printf("sample %s_best %d %.3f %.2f %.2f\n", argv[i], bytes, took / (double)most, before, after);
        }
        if (starts(what, "fence"))
            MPI_Win_fence(0, win);
        if (!starts(what, "free"))
            unmake(argv[i]);
        free(data);
        free(own);
    }
    fflush(stdout);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    MPI_Finalize();
    return 0;
}
