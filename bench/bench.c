/* The benchmark that is built with every MPI: `bench MAP SAMPLES NANOSECONDS WHAT[:BYTES]...`
 *
 * MAP is a file for the hand-off between ranks 0 and 1. Each WHAT is measured SAMPLES times; a sample takes about
 * NANOSECONDS and has a hand-off measurement right before and right after it. Rank 0 prints one line per sample:
 *     sample WHAT BYTES NANOSECONDS_PER_OPERATION HANDOFF_BEFORE HANDOFF_AFTER
 * and, for `memory`, each rank's share of memory. */
#include "handoff.h"

#include <dirent.h>
#include <mpi.h>

enum { WINDOW = 64, TAG = 1 };

static int rank, size, root;
static char *out, *in;
static MPI_Datatype type;
static int count; /* of `type` in one message */

typedef void operation(int bytes, long times);

/* Half a round trip is one operation; ranks beyond 1 stay out of it. */
static void pingpong(int bytes, long times)
{
    for (long i = 0; i < times && rank < 2; i += 2) {
        if (rank == 0)
            MPI_Send(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

/* What the receiver reads of its messages: so that it does read them. */
static volatile uint64_t seen;

static void write_anew(int bytes, long turn)
{
    uint64_t *words = (uint64_t *)out, value = (uint64_t)turn;
    for (int i = 0; i < bytes / 8; i++)
        words[i] = value + (uint64_t)i;
}

static void read_all(int bytes)
{
    const uint64_t *words = (const uint64_t *)in;
    uint64_t sum = 0;
    for (int i = 0; i < bytes / 8; i++)
        sum += words[i];
    seen = sum;
}

/* Half a round trip of what its sender wrote right before and its receiver reads right after, both within the time. */
static void fresh(int bytes, long times)
{
    for (long i = 0; i < times && rank < 2; i += 2) {
        if (rank == 0) {
            write_anew(bytes, i);
            MPI_Send(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        }
        MPI_Recv(in, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        read_all(bytes);
        if (rank == 1) {
            write_anew(bytes, i);
            MPI_Send(out, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

/* One message of a window is one operation; the receiver acknowledges each window. */
static void rate(int bytes, long times)
{
    MPI_Request req[WINDOW];
    for (long i = 0; i < times && rank < 2; i += WINDOW) {
        for (int w = 0; w < WINDOW; w++) {
            if (rank == 0)
                MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &req[w]);
            else
                MPI_Irecv(in + (size_t)w * (size_t)bytes, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &req[w]);
        }
        MPI_Waitall(WINDOW, req, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(in, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(out, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

/* Half a round trip of a derived type. */
static void typed(int bytes, long times)
{
    (void)bytes;
    for (long i = 0; i < times && rank < 2; i += 2) {
        if (rank == 0)
            MPI_Send(out, count, type, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, count, type, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out, count, type, 0, TAG, MPI_COMM_WORLD);
    }
}

static void barrier(int bytes, long times)
{
    (void)bytes;
    for (long i = 0; i < times; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(int bytes, long times)
{
    for (long i = 0; i < times; i++)
        MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* The root moves on each time, so that a broadcast cannot run ahead of its receivers for ever. */
static void bcast(int bytes, long times)
{
    for (long i = 0; i < times; i++, root = (root + 1) % size)
        MPI_Bcast(out, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static void alltoall(int bytes, long times)
{
    for (long i = 0; i < times; i++)
        MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void allgather(int bytes, long times)
{
    for (long i = 0; i < times; i++)
        MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void memory(int bytes, long times) { (void)bytes, (void)times; }

/* What is measured; `step` is how many operations come at least together. */
static const struct what {
    const char *name;
    operation *run;
    int step;
} WHATS[] = {
    {"pingpong", pingpong, 2},   {"fresh", fresh, 2},          {"rate", rate, WINDOW},   {"contiguous", typed, 2},
    {"indexed", typed, 2},       {"vector8", typed, 2},        {"vector64", typed, 2},   {"barrier", barrier, 1},
    {"allreduce", allreduce, 1}, {"bcast", bcast, 1},          {"alltoall", alltoall, 1}, {"allgather", allgather, 1},
    {"memory", memory, 1},
};

/* A type of `bytes` bytes of data: plain, a small block and a large one, or strided blocks with gaps of their size. */
static void make_type(const char *name, int bytes)
{
    int lengths[2] = {64, bytes - 64}, places[2] = {0, 128};
    count = 1;
    if (strcmp(name, "indexed") == 0)
        MPI_Type_indexed(2, lengths, places, MPI_BYTE, &type);
    else if (strcmp(name, "vector8") == 0)
        MPI_Type_vector(bytes / 8, 8, 16, MPI_BYTE, &type);
    else if (strcmp(name, "vector64") == 0)
        MPI_Type_vector(bytes / 64, 64, 128, MPI_BYTE, &type);
    else
        MPI_Type_contiguous(bytes, MPI_BYTE, &type);
    MPI_Type_commit(&type);
}

/* All ranks learn rank 0's number of operations. */
static long agreed(long times)
{
    MPI_Bcast(&times, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return times;
}

static double timed(const struct what *what, int bytes, long times)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_ns();
    what->run(bytes, times);
    return now_ns() - start;
}

static void measure(const struct what *what, int bytes, int samples, double wanted_ns, struct handoff *shared)
{
    static uint64_t epoch;
    int handoffs = size > 1;
    make_type(what->name, bytes);
    long times = what->step;
    for (;;) { /* grow until a sample is long enough; also warms up */
        /* The lesser of two: what touches its memory for the first time, or learns, takes a millisecond once, and would pass for a sample. */
        double first = timed(what, bytes, times), again = timed(what, bytes, times), took = again < first ? again : first;
        long next = took >= wanted_ns / 2 ? 0 : times * (took < wanted_ns / 10 ? 4 : 2);
        next = agreed(next);
        if (next == 0)
            break;
        times = next;
    }
    for (int i = 0; i < samples; i++) {
        double before = handoffs ? handoff_measure(shared, rank, &epoch) : 0;
        double took = timed(what, bytes, times);
        double after = handoffs ? handoff_measure(shared, rank, &epoch) : 0;
        if (rank == 0)
            printf("sample %s %d %.2f %.2f %.2f\n", what->name, bytes, took / (double)times, before, after);
    }
    if (rank == 0)
        fflush(stdout);
    MPI_Type_free(&type);
}

/* Proportional set size of a process in KB, if its program is the one of this file. */
static long pss_of(const char *process, const char *program)
{
    char path[64], line[4096];
    long kb = 0;
    snprintf(path, sizeof path, "/proc/%.20s/exe", process);
    ssize_t length = readlink(path, line, sizeof line - 1);
    if (length < 0 || (line[length] = 0, strcmp(line, program)))
        return 0;
    snprintf(path, sizeof path, "/proc/%.20s/smaps_rollup", process);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %ld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

/* Memory of all processes of ranks, after everybody has talked to everybody near, shared among the ranks. A process may have several
 * ranks, and others that stand for them: all of one program file count. */
static void print_memory(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char program[4096];
    MPI_Sendrecv(out, 8, MPI_BYTE, right, TAG, in, 8, MPI_BYTE, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    ssize_t length = rank == 0 ? readlink("/proc/self/exe", program, sizeof program - 1) : -1;
    DIR *processes = length > 0 ? opendir("/proc") : NULL;
    long all = 0;
    if (processes) {
        program[length] = 0;
        for (struct dirent *entry; (entry = readdir(processes));)
            if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
                all += pss_of(entry->d_name, program);
        closedir(processes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("memory %d %.1f\n", size, (double)all / size);
}

static const struct what *find(const char *name)
{
    for (size_t i = 0; i < sizeof WHATS / sizeof *WHATS; i++)
        if (strcmp(WHATS[i].name, name) == 0)
            return &WHATS[i];
    fprintf(stderr, "bench: no measurement '%s'\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return NULL;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2) /* `launch`: nothing but start and end */
        return MPI_Finalize();
    if (argc < 5) {
        fprintf(stderr, "usage: bench MAP SAMPLES NANOSECONDS WHAT[:BYTES]...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    struct handoff *shared = handoff_map(argv[1]);
    size_t largest = 1;
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        size_t bytes = colon ? (size_t)atol(colon + 1) : 0, copies = strncmp(argv[i], "al", 2) == 0 ? (size_t)size : 2;
        if (strncmp(argv[i], "rate", 4) == 0)
            copies = WINDOW;
        largest = bytes * copies > largest ? bytes * copies : largest;
    }
    out = malloc(largest + 4096);
    in = malloc(largest + 4096);
    if (!out || !in)
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(out, 0, largest + 4096);
    memset(in, 0, largest + 4096);
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        int bytes = colon ? atoi(colon + 1) : 0;
        if (colon)
            *colon = 0;
        if (strcmp(argv[i], "memory") == 0)
            print_memory();
        else
            measure(find(argv[i]), bytes, atoi(argv[2]), atof(argv[3]), shared);
    }
    free(out), free(in);
    return MPI_Finalize();
}
