/* Nonblocking collectives beside computing, after the formula of IMB-NBC, built with every MPI:
 *     nonblocking MAP SAMPLES NANOSECONDS LENGTH,LENGTH... NAME:BYTES...
 *
 * T_pure is the time of a call and its MPI_Wait, T_cpu that of computing on all ranks at once, T_ovrl that of the call,
 * the same computing, and MPI_Wait. Each is the mean over a row of about NANOSECONDS between two barriers, of the slowest
 * rank. LENGTH says how long is computed: `pure` not at all, `overlap` about as long as the call takes, `20ms` for so many milliseconds; then ranks meet without MPI before each
 * call and start together, so that nobody waits for one that started late.
 * BYTES are those of one block: the whole of ibcast, iallreduce and ireduce, what one rank gives one other else; `_init` names the persistent forms. Rank 0 prints
 *     nbc NAME BYTES LENGTH T_PURE T_CPU DISTURBED T_OVRL CALLS WITHIN WAIT WAIT_WORST HANDOFF_BEFORE HANDOFF_AFTER
 * DISTURBED is how much longer than its median the computing alone took at worst, CALLS what is spent in the calls, WITHIN computing beside them, WAIT in MPI_Wait, and
 * WAIT_WORST the longest of the row: medians of the rank where they are longest. With `pure` all after T_PURE are 0; of milliseconds T_CPU is the median, too. */
#include "rescue.h"
#include "work.h"

enum {
    LENGTHS_MAX = 16,
    REPEATS_MIN = 5,   /* of computing for milliseconds, */
    REPEATS_MAX = 500,
    ALONE_MAX = 15,    /* and of the same alone */
    KEPT_MAX = 1 << 16 /* iterations of a row of which medians are taken; the longest is that of all */
};

struct place {
    struct handoff handoff;
    _Alignas(128) _Atomic uint32_t arrived, met; /* arrivals at meetings, and meetings that all have come to */
};

static int rank, size;
static char *out, *in;
static int *counts, *places;
static double turns_per_ns, clock_ns;
static struct place *shared;

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

/* The persistent ones are started again and again. */
static MPI_Request kept;

static void start_kept(int bytes, MPI_Request *req)
{
    (void)bytes;
    MPI_Start(&kept);
    *req = kept;
}

static void barrier_init(int bytes, MPI_Request *req)
{
    (void)bytes, MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, req);
}

static void bcast_init(int bytes, MPI_Request *req)
{
    MPI_Bcast_init(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, req);
}

static void allreduce_init(int bytes, MPI_Request *req)
{
    MPI_Allreduce_init(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, req);
}

static void alltoall_init(int bytes, MPI_Request *req)
{
    MPI_Alltoall_init(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, MPI_INFO_NULL, req);
}

static const struct what {
    const char *name;
    operation *start;
    operation *init; /* of a persistent one */
} WHATS[] = {
    {"ibarrier", ibarrier},     {"ibcast", ibcast},           {"iallreduce", iallreduce},   {"ireduce", ireduce},
    {"ialltoall", ialltoall},   {"ialltoallv", ialltoallv},   {"iallgather", iallgather},   {"iallgatherv", iallgatherv},
    {"igather", igather},       {"igatherv", igatherv},       {"iscatter", iscatter},       {"iscatterv", iscatterv},
    {"barrier_init", start_kept, barrier_init},       {"bcast_init", start_kept, bcast_init},
    {"allreduce_init", start_kept, allreduce_init},   {"alltoall_init", start_kept, alltoall_init},
};

/* Of a row: the mean of an iteration, what calls, computing and MPI_Wait take in it, and the longest of the last two; of each the rank's where it is longest. */
struct row {
    double mean, calls, within, wait, within_worst, wait_worst;
};

static struct row slowest(struct row own)
{
    struct row all;
    MPI_Allreduce(&own, &all, sizeof own / sizeof own.mean, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* A call and its wait; nobody looks at the clock in between. */
static double bare_row(const struct what *what, int bytes, long repeats)
{
    MPI_Request req = MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_ns();
    for (long i = 0; i < repeats; i++) {
        what->start(bytes, &req);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    }
    return slowest((struct row){.mean = (now_ns() - start) / (double)repeats}).mean;
}

/* All ranks meet, asleep and without MPI, so that nothing advances there. */
static void meet(void)
{
    static uint32_t meetings;
    uint32_t mine = ++meetings;
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == mine * (uint32_t)size)
        rescue_tell(&shared->met, mine);
    rescue_wait(&shared->met, mine);
}

enum starts { APART, TOGETHER };

/* A call, computing and the wait, or only the computing, with as many looks at the clock. */
static struct row computing_row(const struct what *what, int bytes, long repeats, uint64_t turns, enum starts starts)
{
    static double calls[KEPT_MAX], within[KEPT_MAX], wait[KEPT_MAX];
    MPI_Request req = MPI_REQUEST_NULL;
    struct row row = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = now_ns();
    for (long i = 0; i < repeats; i++) {
        if (starts == TOGETHER) {
            meet();
            begun = now_ns();
        }
        if (what)
            what->start(bytes, &req);
        double from = now_ns();
        work_do(turns);
        double waits = now_ns();
        if (what)
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        double end = now_ns(), waited = end - waits - clock_ns, computed = waits - from - clock_ns;
        row.wait_worst = waited > row.wait_worst ? waited : row.wait_worst;
        row.within_worst = computed > row.within_worst ? computed : row.within_worst;
        if (i < KEPT_MAX)
            calls[i] = from - begun - clock_ns + waited, within[i] = computed, wait[i] = waited;
        row.mean += (end - begun) / (double)repeats;
        begun = end;
    }
    int kept = (int)(repeats < KEPT_MAX ? repeats : KEPT_MAX);
    row.calls = median(calls, kept), row.within = median(within, kept), row.wait = median(wait, kept);
    return slowest(row);
}

/* How much longer than its median the computing of a row took at worst. */
static double disturbed(struct row row) { return row.within_worst - row.within; }

static int computes(const struct length *length) { return strcmp(length->word, "pure") != 0; }

/* Computing of one length, alone and beside the call. Every rank knows the same slowest time; ranks that share a core compute as long together. */
static void beside(const struct what *what, int bytes, double pure, long repeats, double wanted_ns, const struct length *length, struct row *alone, struct row *both)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double share = (double)((size + cores - 1) / cores), ns = length->ns > 0 ? length->ns : pure;
    uint64_t turns = (uint64_t)(ns * turns_per_ns / share) + 1;
    enum starts starts = length->ns > 0 ? TOGETHER : APART;
    if (length->ns > 0) {
        double fitting = wanted_ns / (pure + ns);
        repeats = fitting < REPEATS_MIN ? REPEATS_MIN : fitting < REPEATS_MAX ? (long)fitting : REPEATS_MAX;
    }
    *alone = computing_row(NULL, bytes, starts == TOGETHER && repeats > ALONE_MAX ? ALONE_MAX : repeats, turns, starts);
    *both = computing_row(what, bytes, repeats, turns, starts);
}

static void measure(const struct what *what, int bytes, int samples, double wanted_ns, const struct length *lengths, int count)
{
    static uint64_t epoch;
    long repeats = 1;
    if (what->init)
        what->init(bytes, &kept);
    double pure = bare_row(what, bytes, repeats); /* warms up */
    while ((pure = bare_row(what, bytes, repeats)) * (double)repeats < wanted_ns / 2)
        repeats *= pure * (double)repeats < wanted_ns / 10 ? 4 : 2;
    for (int i = 0; i < samples; i++) {
        struct row alone[LENGTHS_MAX] = {0}, both[LENGTHS_MAX] = {0};
        double before = handoff_measure(&shared->handoff, rank, &epoch);
        pure = bare_row(what, bytes, repeats);
        for (int l = 0; l < count; l++)
            if (computes(&lengths[l]))
                beside(what, bytes, pure, repeats, wanted_ns, &lengths[l], &alone[l], &both[l]);
        double after = handoff_measure(&shared->handoff, rank, &epoch);
        for (int l = 0; rank == 0 && l < count; l++)
            printf("nbc %s %d %s %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.2f %.2f\n", what->name, bytes, lengths[l].word, pure,
                   lengths[l].ns > 0 ? alone[l].within : alone[l].mean, disturbed(alone[l]), both[l].mean, both[l].calls, both[l].within, both[l].wait, both[l].wait_worst, before, after);
    }
    if (what->init)
        MPI_Request_free(&kept);
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
    struct length lengths[LENGTHS_MAX];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 6 || size < 2) {
        fprintf(stderr, "usage: nonblocking MAP SAMPLES NANOSECONDS LENGTH,LENGTH... NAME:BYTES..., on two ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    shared = shared_map(argv[1], sizeof *shared);
    counts = calloc((size_t)size, sizeof *counts), places = calloc((size_t)size, sizeof *places);
    turns_per_ns = work_turns_per_ns();
    clock_ns = work_clock_ns();
    int known = lengths_of(argv[4], lengths, LENGTHS_MAX);
    if (known < 0) {
        fprintf(stderr, "nonblocking: more than %d lengths\n", LENGTHS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
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
        measure(find(argv[i]), bytes, atoi(argv[2]), atof(argv[3]), lengths, known);
        free(out), free(in);
    }
    free(counts), free(places);
    return MPI_Finalize();
}
