/* How much of a message hides behind computing (PIOMan, IEEE Cluster 2009, section V.C), built with every MPI:
 *     overlap MAP SAMPLES NANOSECONDS PERCENT,PERCENT... SIDE:SHAPE:BYTES...
 *
 * Two ranks. Rank 0 writes its buffer anew; both meet, and leave their cores idle until then; rank 0 calls MPI_Isend, rank 1 MPI_Irecv; whoever SIDE names (sender,
 * receiver, both) computes without calling MPI; both call MPI_Wait. T_comm is the same with nothing to compute, and T_comp, which is
 * PERCENT of it, is the computing alone. All are the times of the side that computes, of the later one for both: medians over rows
 * of about NANOSECONDS. SHAPE is contiguous or strided (blocks of 64 bytes with gaps of their size). Rank 0 prints for each PERCENT of a sample
 *     overlap SIDE SHAPE BYTES PERCENT T_COMM T_COMP T_TOTAL HANDOFF_BEFORE HANDOFF_AFTER */
#include "work.h"

#include <errno.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    TAG = 1,
    BLOCK = 64, /* bytes between two gaps */
    REPEATS_MIN = 5,
    REPEATS_MAX = 500,
    WARM = 2, /* exchanges at the beginning of a row that do not count: what adapts has seen the change */
    PERCENTS_MAX = 16
};

/* Ranks look for each other without MPI, so that nothing advances while they do. */
static const uint64_t SPINS_BEFORE_YIELD = 10000;
/* A rank that waits longer than this lets its MPI advance: one that needs that would hang otherwise. */
static const double RESCUE_NS = 50e6;

enum side { SENDER = 1, RECEIVER = 2, BOTH = 3 };

struct place {
    struct handoff handoff;
    _Alignas(128) _Atomic uint64_t arrived[2][16];
    _Alignas(128) _Atomic uint32_t bell[2][32]; /* counts arrivals, for those that sleep */
    _Alignas(128) double took[REPEATS_MAX]; /* rank 1's times; written before and read after a meeting */
};

struct setup {
    enum side side;
    const char *side_name, *shape_name;
    int bytes, strided;
    size_t span; /* of the message in memory */
    MPI_Datatype type;
};

static int rank;
static char *buffer;
static struct place *shared;
static uint64_t epoch, meetings;
static double turns_per_ns, clock_ns;

static void meet(void)
{
    uint64_t mine = ++meetings, spins = 0;
    double since = 0;
    atomic_store_explicit(&shared->arrived[rank][0], mine, memory_order_release);
    while (atomic_load_explicit(&shared->arrived[1 - rank][0], memory_order_acquire) < mine) {
        if (++spins % SPINS_BEFORE_YIELD != 0)
            continue;
        sched_yield();
        since = since == 0 ? now_ns() : since;
        if (now_ns() - since > RESCUE_NS) {
            int flag;
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
    }
}

/* Waits for the other rank without keeping a core from whoever advances what is open; then both meet, so that they start together. */
static void gather(void)
{
    static uint32_t gatherings;
    struct timespec rescue = {.tv_nsec = (long)RESCUE_NS};
    uint32_t mine = ++gatherings, seen;
    atomic_store(&shared->bell[rank][0], mine);
    syscall(SYS_futex, &shared->bell[rank][0], FUTEX_WAKE, 1, NULL, NULL, 0);
    while ((int32_t)((seen = atomic_load(&shared->bell[1 - rank][0])) - mine) < 0)
        if (syscall(SYS_futex, &shared->bell[1 - rank][0], FUTEX_WAIT, seen, &rescue, NULL, 0) != 0 && errno == ETIMEDOUT) {
            int flag;
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
    meet();
}

static void check_arrived(const struct setup *s, char expected)
{
    size_t last = s->span - 1, middle = s->strided ? s->span / 2 / BLOCK / 2 * 2 * BLOCK : s->span / 2;
    if (buffer[0] == expected && buffer[middle] == expected && buffer[last] == expected)
        return;
    fprintf(stderr, "overlap: %s %s of %d bytes: the receiver has other data than were sent\n", s->side_name, s->shape_name, s->bytes);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* One exchange; this rank's time from the start of the message to its end. */
static double exchange(const struct setup *s, uint64_t turns)
{
    static char stamp;
    MPI_Request req;
    int count = s->strided ? 1 : s->bytes, computes = rank == 0 ? s->side & SENDER : s->side & RECEIVER;
    stamp++;
    if (rank == 0)
        memset(buffer, stamp, s->span);
    gather();
    double start = now_ns();
    if (rank == 0)
        MPI_Isend(buffer, count, s->type, 1, TAG, MPI_COMM_WORLD, &req);
    else
        MPI_Irecv(buffer, count, s->type, 0, TAG, MPI_COMM_WORLD, &req);
    if (computes)
        work_do(turns);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    double took = now_ns() - start - clock_ns;
    if (rank == 1)
        check_arrived(s, stamp);
    return took;
}

/* The median time of `repeats` exchanges, of the side that counts; the same on both ranks. */
static double row(const struct setup *s, uint64_t turns, int repeats)
{
    static double own[REPEATS_MAX];
    for (int i = -WARM; i < repeats; i++) {
        double took = exchange(s, turns);
        if (i >= 0)
            own[i] = took;
    }
    if (rank == 1)
        memcpy(shared->took, own, (size_t)repeats * sizeof *own);
    meet();
    if (rank == 0) {
        for (int i = 0; i < repeats; i++) {
            double other = shared->took[i];
            own[i] = s->side == SENDER || (s->side == BOTH && own[i] > other) ? own[i] : other;
        }
        shared->took[0] = median(own, repeats);
    }
    meet();
    double result = shared->took[0];
    meet();
    return result;
}

/* What the computing takes alone: of the sides that compute, at the same time. */
static double computing(const struct setup *s, uint64_t turns, int repeats)
{
    static double own[REPEATS_MAX];
    repeats = repeats < 15 ? repeats : 15;
    int computes = rank == 0 ? s->side & SENDER : s->side & RECEIVER;
    meet();
    for (int i = 0; i < repeats; i++)
        own[i] = computes && turns > 0 ? work_timed(turns) - clock_ns : 0;
    if (rank == 1)
        shared->took[0] = median(own, repeats);
    meet();
    double result = rank == 0 && computes ? median(own, repeats) : 0;
    return rank == 0 && shared->took[0] > result ? shared->took[0] : result;
}

static int repeats_for(double each_ns, double wanted_ns)
{
    double repeats = wanted_ns / (each_ns + 1);
    return repeats < REPEATS_MIN ? REPEATS_MIN : repeats > REPEATS_MAX ? REPEATS_MAX : (int)repeats;
}

static void measure(const struct setup *s, int samples, double wanted_ns, const int *percents, int count)
{
    row(s, 0, REPEATS_MIN); /* buffers are mapped, ways are learnt */
    double typical = row(s, 0, 3 * REPEATS_MIN);
    for (int i = 0; i < samples; i++) {
        double before = handoff_measure(&shared->handoff, rank, &epoch), comp[PERCENTS_MAX], total[PERCENTS_MAX];
        double comm = row(s, 0, repeats_for(typical, wanted_ns));
        for (int p = 0; p < count; p++) {
            /* Both ranks know the same median, so both compute alike. */
            uint64_t turns = (uint64_t)(comm * percents[p] / 100 * turns_per_ns);
            int repeats = repeats_for(comm * (1 + percents[p] / 100.0), wanted_ns);
            comp[p] = computing(s, turns, repeats);
            total[p] = row(s, turns, repeats);
        }
        double after = handoff_measure(&shared->handoff, rank, &epoch);
        typical = comm;
        for (int p = 0; rank == 0 && p < count; p++)
            printf("overlap %s %s %d %d %.1f %.1f %.1f %.2f %.2f\n", s->side_name, s->shape_name, s->bytes, percents[p], comm, comp[p],
                   total[p], before, after);
    }
    if (rank == 0)
        fflush(stdout);
}

static void usage(const char *what)
{
    fprintf(stderr, "overlap: '%s' is not understood\nusage: overlap MAP SAMPLES NANOSECONDS PERCENT,PERCENT... SIDE:SHAPE:BYTES...\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static struct setup parse(char *word)
{
    char *side = strtok(word, ":"), *shape = strtok(NULL, ":"), *bytes = strtok(NULL, ":");
    if (!side || !shape || !bytes || atoi(bytes) < 1)
        usage(side ? side : "");
    struct setup s = {.side_name = side, .shape_name = shape, .bytes = atoi(bytes)};
    s.side = strcmp(side, "sender") == 0 ? SENDER : strcmp(side, "receiver") == 0 ? RECEIVER : BOTH;
    s.strided = strcmp(shape, "strided") == 0;
    s.type = MPI_BYTE;
    s.span = (size_t)s.bytes;
    if (s.strided) {
        int block = s.bytes < BLOCK ? s.bytes : BLOCK, blocks = s.bytes / block;
        s.bytes = blocks * block;
        s.span = (size_t)(blocks - 1) * 2 * BLOCK + (size_t)block;
        MPI_Type_vector(blocks, block, 2 * BLOCK, MPI_BYTE, &s.type);
        MPI_Type_commit(&s.type);
    }
    return s;
}

int main(int argc, char **argv)
{
    int size, percents[PERCENTS_MAX], count = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 6 || size != 2)
        usage(size != 2 ? "other than two ranks" : "too few arguments");
    pin(rank);
    shared = shared_map(argv[1], sizeof *shared);
    for (char *word = strtok(argv[4], ","); word; word = strtok(NULL, ",")) {
        if (count == PERCENTS_MAX)
            usage(word);
        percents[count++] = atoi(word);
    }
    meet();
    turns_per_ns = work_turns_per_ns();
    clock_ns = work_clock_ns();
    for (int i = 5; i < argc; i++) {
        struct setup s = parse(argv[i]);
        buffer = malloc(s.span);
        if (!buffer)
            MPI_Abort(MPI_COMM_WORLD, 2);
        memset(buffer, 0, s.span);
        measure(&s, atoi(argv[2]), atof(argv[3]), percents, count);
        if (s.strided)
            MPI_Type_free(&s.type);
        free(buffer);
    }
    return MPI_Finalize();
}
