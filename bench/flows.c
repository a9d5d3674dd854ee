/* Flows of messages that an optimising library can arrange, built with every MPI:
 * `flows MAP SAMPLES NANOSECONDS WHAT:NUMBER:BYTES...`, on two ranks, on one host or two.
 *
 *     pingpong  half a round trip of one message of BYTES
 *     series    half a round trip of NUMBER MPI_Isend of BYTES on as many communicators, then MPI_Waitall (Mad-MPI's multi-segment ping-pong)
 *     indexed   half a round trip of one message: NUMBER pairs of a block of 64 B and one of BYTES, with gaps
 *     plain     the same bytes without gaps
 *     stream    one message of BYTES out of a window of NUMBER, answered as a whole
 *     idle      99th percentile of half round trips of BYTES; NUMBER is not used
 *     beside    the same while NUMBER messages of 1 MB are under way in the same direction, which a hint says to stand in nobody's way
 *
 * Output and MAP as of bench.c; for indexed, plain, idle and beside the number is printed in place of the bytes. */
#include "handoff.h"

#include <mpi.h>

enum { SERIES_MAX = 64, WINDOW_MAX = 64, TAG = 1, BULK_TAG = 2, STOP_TAG = 3, SMALL_BLOCK = 64, GAP = 64, BULK = 1 << 20, LATENCIES = 2000 };

struct setup {
    const char *name;
    int number, bytes;
};

static int rank, count;
static char *out, *in, *bulk;
static MPI_Comm comms[SERIES_MAX];
static MPI_Datatype type;
static double latencies[LATENCIES];

typedef double operation(const struct setup *s, long times);

static double pingpong(const struct setup *s, long times)
{
    double start = now_ns();
    for (long i = 0; i < times; i++) {
        if (rank == 0)
            MPI_Send(out, s->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, s->bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out, s->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
    return (now_ns() - start) / (double)(2 * times);
}

static void send_series(const struct setup *s)
{
    MPI_Request req[SERIES_MAX];
    for (int k = 0; k < s->number; k++)
        MPI_Isend(out + (size_t)k * (size_t)s->bytes, s->bytes, MPI_BYTE, 1 - rank, TAG, comms[k], &req[k]);
    MPI_Waitall(s->number, req, MPI_STATUSES_IGNORE);
}

static void receive_series(const struct setup *s)
{
    MPI_Request req[SERIES_MAX];
    for (int k = 0; k < s->number; k++)
        MPI_Irecv(in + (size_t)k * (size_t)s->bytes, s->bytes, MPI_BYTE, 1 - rank, TAG, comms[k], &req[k]);
    MPI_Waitall(s->number, req, MPI_STATUSES_IGNORE);
}

static double series(const struct setup *s, long times)
{
    double start = now_ns();
    for (long i = 0; i < times; i++) {
        if (rank == 0)
            send_series(s);
        receive_series(s);
        if (rank == 1)
            send_series(s);
    }
    return (now_ns() - start) / (double)(2 * times);
}

static double typed(const struct setup *s, long times)
{
    (void)s;
    double start = now_ns();
    for (long i = 0; i < times; i++) {
        if (rank == 0)
            MPI_Send(out, count, type, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, count, type, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out, count, type, 0, TAG, MPI_COMM_WORLD);
    }
    return (now_ns() - start) / (double)(2 * times);
}

static double stream(const struct setup *s, long times)
{
    MPI_Request req[WINDOW_MAX];
    double start = now_ns();
    for (long i = 0; i < times; i++) {
        for (int w = 0; w < s->number; w++) {
            if (rank == 0)
                MPI_Isend(out, s->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &req[w]);
            else
                MPI_Irecv(in + (size_t)w * (size_t)s->bytes, s->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &req[w]);
        }
        MPI_Waitall(s->number, req, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(in, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(out, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
    return (now_ns() - start) / (double)(s->number * times);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of half round trips, of which rank 0 takes note: the one that 99 of 100 are below. */
static double percentile99(long times)
{
    qsort(latencies, (size_t)times, sizeof *latencies, by_size);
    return latencies[times * 99 / 100];
}

static void begin_bulk(int at, MPI_Request *request)
{
    if (rank == 0)
        MPI_Isend(bulk, BULK, MPI_BYTE, 1, BULK_TAG, comms[0], request);
    else
        MPI_Irecv(bulk + (size_t)at * BULK, BULK, MPI_BYTE, 0, BULK_TAG, comms[0], request);
}

static double beside(const struct setup *s, long times)
{
    MPI_Request req[WINDOW_MAX];
    int flows = strcmp(s->name, "beside") == 0 ? s->number : 0, done;
    long moved = 0;
    times = times > LATENCIES ? LATENCIES : times;
    for (int w = 0; w < flows; w++)
        begin_bulk(w, &req[w]);
    for (long i = 0; i < times; i++) {
        double start = now_ns();
        if (rank == 0)
            MPI_Send(out, s->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, s->bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out, s->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        latencies[i] = (now_ns() - start) / 2;
        /* What has ended begins anew, in the order in which it was begun on both sides. */
        while (flows > 0) {
            int at = (int)(moved % flows);
            MPI_Test(&req[at], &done, MPI_STATUS_IGNORE);
            if (!done)
                break;
            begin_bulk(at, &req[at]);
            moved++;
        }
    }
    if (flows > 0) { /* both sides end after the same number of messages */
        long theirs;
        MPI_Sendrecv(&moved, 1, MPI_LONG, 1 - rank, STOP_TAG, &theirs, 1, MPI_LONG, 1 - rank, STOP_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (; moved < theirs; moved++) {
            int at = (int)(moved % flows);
            MPI_Wait(&req[at], MPI_STATUS_IGNORE);
            begin_bulk(at, &req[at]);
        }
        MPI_Waitall(flows, req, MPI_STATUSES_IGNORE);
    }
    return percentile99(times);
}

static const struct what {
    const char *name;
    operation *run;
    int numbered; /* its rows are told apart by the number, not by the bytes */
} WHATS[] = {
    {"pingpong", pingpong, 0}, {"series", series, 0}, {"indexed", typed, 1}, {"plain", typed, 1},
    {"stream", stream, 0},     {"idle", beside, 1},   {"beside", beside, 1},
};

static void make_type(const struct setup *s)
{
    int pair = SMALL_BLOCK + s->bytes, lengths[2 * SERIES_MAX], places[2 * SERIES_MAX];
    count = 1;
    for (int i = 0; i < s->number; i++) {
        lengths[2 * i] = SMALL_BLOCK, places[2 * i] = i * (pair + 2 * GAP);
        lengths[2 * i + 1] = s->bytes, places[2 * i + 1] = places[2 * i] + SMALL_BLOCK + GAP;
    }
    if (strcmp(s->name, "indexed") == 0)
        MPI_Type_indexed(2 * s->number, lengths, places, MPI_BYTE, &type);
    else
        MPI_Type_contiguous(s->number * pair, MPI_BYTE, &type);
    MPI_Type_commit(&type);
}

/* What the bulk flows' communicator is told; an MPI that does not know the hint ignores it. */
static void hint(const char *priority)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "garonne_priority", priority);
    MPI_Comm_set_info(comms[0], info);
    MPI_Info_free(&info);
}

static double timed(const struct what *what, const struct setup *s, long times)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return what->run(s, times);
}

static void measure(const struct what *what, const struct setup *s, int samples, double wanted_ns, struct handoff *shared)
{
    static uint64_t epoch;
    int typed_one = what->run == typed;
    long times = 1;
    if (typed_one)
        make_type(s);
    for (;;) { /* grow until a sample is long enough; also warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now_ns();
        what->run(s, times);
        double took = now_ns() - start;
        long next = took >= wanted_ns / 2 || times > 1000000 ? 0 : times * (took < wanted_ns / 10 ? 4 : 2);
        MPI_Bcast(&next, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (next == 0)
            break;
        times = next;
    }
    if (what->run == beside)
        times = LATENCIES;
    for (int i = 0; i < samples; i++) {
        double before = handoff_measure(shared, rank, &epoch);
        double each = timed(what, s, times);
        double after = handoff_measure(shared, rank, &epoch);
        if (rank == 0)
            printf("sample %s %d %d %.2f %.2f %.2f\n", what->name, what->numbered ? 0 : s->number, what->numbered ? s->number : s->bytes, each, before, after);
    }
    if (rank == 0)
        fflush(stdout);
    if (typed_one)
        MPI_Type_free(&type);
}

static void usage(const char *what)
{
    fprintf(stderr, "flows: '%s' is not understood\nusage: flows MAP SAMPLES NANOSECONDS WHAT:NUMBER:BYTES...\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static struct setup parse(char *word, const struct what **what)
{
    char *name = strtok(word, ":"), *number = strtok(NULL, ":"), *bytes = strtok(NULL, ":");
    if (!name || !number || !bytes)
        usage(word);
    struct setup s = {.name = name, .number = atoi(number), .bytes = atoi(bytes)};
    *what = NULL;
    for (size_t i = 0; i < sizeof WHATS / sizeof *WHATS; i++)
        if (strcmp(WHATS[i].name, name) == 0)
            *what = &WHATS[i];
    if (!*what || s.number < 1 || s.number > SERIES_MAX || s.bytes < 1)
        usage(name);
    return s;
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5 || size != 2)
        usage(size != 2 ? "other than two ranks" : "too few arguments");
    pin(rank);
    struct handoff *shared = handoff_map(argv[1]);
    for (int k = 0; k < SERIES_MAX; k++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
    for (int i = 4; i < argc; i++) {
        const struct what *what;
        struct setup s = parse(argv[i], &what);
        size_t bytes = (size_t)s.number * ((size_t)s.bytes + SMALL_BLOCK + 2 * GAP);
        out = calloc(1, bytes), in = calloc(1, bytes);
        bulk = calloc(what->run == beside ? (size_t)s.number : 1, BULK);
        if (!out || !in || !bulk)
            MPI_Abort(MPI_COMM_WORLD, 2);
        memset(out, 1, bytes), memset(in, 1, bytes);
        hint(what->run == beside ? "low" : "normal");
        measure(what, &s, atoi(argv[2]), atof(argv[3]), shared);
        free(out), free(in), free(bulk);
    }
    for (int k = 0; k < SERIES_MAX; k++)
        MPI_Comm_free(&comms[k]);
    return MPI_Finalize();
}
