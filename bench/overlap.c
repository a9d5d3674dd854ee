/* How much of a message hides behind computing (PIOMan, IEEE Cluster 2009, section V.C), built with every MPI:
 *     overlap MAP SAMPLES NANOSECONDS LENGTH,LENGTH... SIDE:SHAPE:BYTES...
 *
 * Two ranks. Rank 0 writes its buffer anew; both meet, and leave their cores idle until then; rank 0 calls MPI_Isend, rank 1 MPI_Irecv; whoever SIDE names (sender,
 * receiver, both) computes without calling MPI; both call MPI_Wait. T_comm is the same with nothing to compute, and T_comp is the
 * computing alone, of a LENGTH in percent of T_comm (100) or in milliseconds (20ms). All are the times of the side that computes, of the later one for both: medians over rows
 * of about NANOSECONDS. SHAPE is contiguous or strided (blocks of 64 bytes with gaps of their size). Rank 0 prints for each LENGTH of a sample
 *     overlap SIDE SHAPE BYTES LENGTH T_COMM COMM_WORST T_COMP DISTURBED T_TOTAL CALLS WITHIN WAIT WAIT_WORST HANDOFF_BEFORE HANDOFF_AFTER
 * COMM_WORST is the longest exchange with nothing to compute; DISTURBED how much longer than T_comp the computing alone took at worst, without any MPI; of T_total, CALLS is spent in the
 * calls, WITHIN computing, and WAIT in MPI_Wait, whose longest in the row is WAIT_WORST. Where nothing is computed the whole exchange counts as the wait. */
#include "rescue.h"
#include "work.h"


enum {
    TAG = 1,
    BLOCK = 64, /* bytes between two gaps */
    REPEATS_MIN = 5,
    REPEATS_MAX = 500,
    WARM = 2, /* exchanges at the beginning of a row that do not count: what adapts has seen the change */
    ALONE_MAX = 15, /* rows of computing alone are no longer */
    LENGTHS_MAX = 16
};

/* Ranks look for each other without MPI, so that nothing advances while they do. */
static const uint64_t SPINS_BEFORE_YIELD = 10000;

enum side { SENDER = 1, RECEIVER = 2, BOTH = 3 };

/* Where the time of one exchange went, or of a row of them. */
struct spent {
    double all, within, wait;
};

/* Medians over the exchanges of a row, and the longest. */
struct row {
    double total, total_worst, calls, within, wait, wait_worst;
};

struct place {
    struct handoff handoff;
    _Alignas(128) _Atomic uint64_t arrived[2][16];
    _Alignas(128) _Atomic uint32_t bell[2][32]; /* counts arrivals, for those that sleep */
    _Alignas(128) struct spent spent[REPEATS_MAX]; /* rank 1's times; written before and read after a meeting */
    struct row row; /* what they come to, for both */
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
        if (now_ns() - since > rescue_ns)
            rescue();
    }
}

/* Waits for the other rank without keeping a core from whoever advances what is open; then both meet, so that they start together. */
static void gather(void)
{
    static uint32_t gatherings;
    uint32_t mine = ++gatherings;
    rescue_tell(&shared->bell[rank][0], mine);
    rescue_wait(&shared->bell[1 - rank][0], mine);
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

/* One exchange, from the start of the message to its end, as this rank sees it. */
static struct spent exchange(const struct setup *s, uint64_t turns)
{
    static char stamp;
    MPI_Request req;
    int count = s->strided ? 1 : s->bytes, computes = rank == 0 ? s->side & SENDER : s->side & RECEIVER;
    struct spent spent = {0};
    stamp++;
    if (rank == 0)
        memset(buffer, stamp, s->span);
    gather();
    double start = now_ns(), waits = start;
    if (rank == 0)
        MPI_Isend(buffer, count, s->type, 1, TAG, MPI_COMM_WORLD, &req);
    else
        MPI_Irecv(buffer, count, s->type, 0, TAG, MPI_COMM_WORLD, &req);
    if (computes && turns > 0) {
        double from = now_ns();
        work_do(turns);
        waits = now_ns();
        spent.within = waits - from - clock_ns;
        start += 2 * clock_ns; /* what these two looks took */
    }
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    double end = now_ns();
    spent.all = end - start - clock_ns;
    spent.wait = end - waits - clock_ns;
    if (rank == 1)
        check_arrived(s, stamp);
    return spent;
}

static double longer(double a, double b) { return a > b ? a : b; }

/* Of one exchange, what counts: the times of the side that computes, the longer ones for both. */
static struct spent counted(enum side side, struct spent sender, struct spent receiver)
{
    struct spent both = {longer(sender.all, receiver.all), longer(sender.within, receiver.within), longer(sender.wait, receiver.wait)};
    return side == SENDER ? sender : side == RECEIVER ? receiver : both;
}

static struct row summary(const struct spent *spent, int repeats)
{
    static double all[REPEATS_MAX], calls[REPEATS_MAX], within[REPEATS_MAX], wait[REPEATS_MAX];
    struct row row = {0};
    for (int i = 0; i < repeats; i++) {
        all[i] = spent[i].all, within[i] = spent[i].within, wait[i] = spent[i].wait;
        calls[i] = all[i] - within[i];
        row.total_worst = longer(row.total_worst, all[i]);
        row.wait_worst = longer(row.wait_worst, wait[i]);
    }
    row.total = median(all, repeats), row.calls = median(calls, repeats);
    row.within = median(within, repeats), row.wait = median(wait, repeats);
    return row;
}

/* `repeats` exchanges; the same on both ranks. */
static struct row row(const struct setup *s, uint64_t turns, int repeats)
{
    static struct spent own[REPEATS_MAX];
    for (int i = -WARM; i < repeats; i++) {
        struct spent spent = exchange(s, turns);
        if (i >= 0)
            own[i] = spent;
    }
    if (rank == 1)
        memcpy(shared->spent, own, (size_t)repeats * sizeof *own);
    meet();
    if (rank == 0) {
        for (int i = 0; i < repeats; i++)
            own[i] = counted(s->side, own[i], shared->spent[i]);
        shared->row = summary(own, repeats);
    }
    meet();
    struct row result = shared->row;
    meet();
    return result;
}

/* What the computing takes alone, of the sides that compute, at the same time: the median, and how much longer it took at worst. Rank 0 knows both sides'.
 * For as long as exchanges of a share of T_comm take, the other side waits in MPI and keeps its core; beside milliseconds it sleeps, and so it does here. */
static struct spent computing(const struct setup *s, const struct length *length, uint64_t turns, int repeats)
{
    static double own[REPEATS_MAX];
    struct spent alone = {0};
    repeats = repeats < ALONE_MAX ? repeats : ALONE_MAX;
    int computes = rank == 0 ? s->side & SENDER : s->side & RECEIVER;
    meet();
    if (computes && turns > 0) {
        for (int i = 0; i < repeats; i++)
            own[i] = work_timed(turns) - clock_ns;
        alone.within = median(own, repeats);
        alone.wait = own[repeats - 1] - alone.within; /* they are sorted now */
    }
    if (rank == 1)
        shared->spent[0] = alone;
    if (length->ns > 0)
        gather();
    else
        meet();
    return rank == 0 ? counted(s->side, alone, shared->spent[0]) : alone;
}

static int repeats_for(double each_ns, double wanted_ns)
{
    double repeats = wanted_ns / (each_ns + 1);
    return repeats < REPEATS_MIN ? REPEATS_MIN : repeats > REPEATS_MAX ? REPEATS_MAX : (int)repeats;
}

static void measure(const struct setup *s, int samples, double wanted_ns, const struct length *lengths, int count)
{
    row(s, 0, REPEATS_MIN); /* buffers are mapped, ways are learnt */
    double typical = row(s, 0, 3 * REPEATS_MIN).total;
    for (int i = 0; i < samples; i++) {
        double before = handoff_measure(&shared->handoff, rank, &epoch);
        struct spent alone[LENGTHS_MAX];
        struct row beside[LENGTHS_MAX], comm = row(s, 0, repeats_for(typical, wanted_ns));
        for (int l = 0; l < count; l++) {
            /* Both ranks know the same median, so both compute alike. */
            double ns = lengths[l].ns > 0 ? lengths[l].ns : comm.total * atof(lengths[l].word) / 100;
            uint64_t turns = (uint64_t)(ns * turns_per_ns);
            int repeats = repeats_for(comm.total + ns, wanted_ns);
            alone[l] = computing(s, &lengths[l], turns, repeats);
            beside[l] = row(s, turns, repeats);
        }
        double after = handoff_measure(&shared->handoff, rank, &epoch);
        typical = comm.total;
        for (int l = 0; rank == 0 && l < count; l++)
            printf("overlap %s %s %d %s %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.2f %.2f\n", s->side_name, s->shape_name, s->bytes, lengths[l].word,
                   comm.total, comm.total_worst, alone[l].within, alone[l].wait, beside[l].total, beside[l].calls, beside[l].within, beside[l].wait,
                   beside[l].wait_worst, before, after);
    }
    if (rank == 0)
        fflush(stdout);
}

static void usage(const char *what)
{
    fprintf(stderr, "overlap: '%s' is not understood\nusage: overlap MAP SAMPLES NANOSECONDS LENGTH,LENGTH... SIDE:SHAPE:BYTES...\n", what);
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
    struct length lengths[LENGTHS_MAX];
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 6 || size != 2)
        usage(size != 2 ? "other than two ranks" : "too few arguments");
    pin(rank);
    shared = shared_map(argv[1], sizeof *shared);
    int count = lengths_of(argv[4], lengths, LENGTHS_MAX);
    if (count < 0)
        usage("too many lengths");
    meet();
    turns_per_ns = work_turns_per_ns();
    clock_ns = work_clock_ns();
    for (int i = 5; i < argc; i++) {
        struct setup s = parse(argv[i]);
        buffer = malloc(s.span);
        if (!buffer)
            MPI_Abort(MPI_COMM_WORLD, 2);
        memset(buffer, 0, s.span);
        measure(&s, atoi(argv[2]), atof(argv[3]), lengths, count);
        if (s.strided)
            MPI_Type_free(&s.type);
        free(buffer);
    }
    return MPI_Finalize();
}
