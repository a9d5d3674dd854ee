/* What no message can beat on this machine: `floor MAP SAMPLES BYTES...` forks a second process and measures the bare
 * hand-off of a cache line, the exchange of slots of one line through two rings, and copies: memcpy of lines that the other core wrote, the same by blocks of 64 bytes with gaps, and process_vm_readv
 * from the other process, as a receiver makes them; memcpy into common memory of lines that the copying core wrote itself, and process_vm_writev into the other process, as a sender does.
 * Prints the same lines as bench.c: sample WHAT BYTES NANOSECONDS BEFORE AFTER */
#include "handoff.h"

#include <sys/uio.h>
#include <sys/wait.h>

enum {
    REPEATS = 8,
    WARM = 1, /* copies at the beginning that do not count: lines lie as the way before left them */
    SLOTS = 256,
    BLOCK = 64
};

/* A message at its barest: a line of its own, with a stamp that says that the rest is there. */
struct slot {
    _Alignas(64) _Atomic uint64_t stamp;
    uint64_t words[7];
};

static struct handoff *shared;
static uint64_t epoch;
static int rank;

static double handoff(void) { return handoff_measure(shared, rank, &epoch); }

/* One way of a round trip through a ring for each direction, in ns. Unlike the bare hand-off, where both write one line right after
 * they read it, a slot is taken away from the reader that waits on it and then brought back: two trips of a line. */
static double rings(struct slot *to_one, struct slot *to_zero)
{
    static uint64_t sent;
    struct slot *out = rank ? to_zero : to_one, *in = rank ? to_one : to_zero;
    uint64_t sum = 0;
    double start = 0;
    for (uint64_t i = 0; i <= HANDOFF_ROUNDS; i++) {
        struct slot *write = &out[sent % SLOTS], *read = &in[sent % SLOTS];
        sent++;
        for (int turn = 0; turn < 2; turn++) {
            if ((turn == 0) == (rank == 0)) {
                for (int word = 0; word < 4; word++)
                    write->words[word] = sent + word;
                atomic_store_explicit(&write->stamp, sent, memory_order_release);
            } else {
                while (atomic_load_explicit(&read->stamp, memory_order_acquire) != sent)
                    ;
                for (int word = 0; word < 4; word++)
                    sum += read->words[word];
            }
        }
        if (i == 0)
            start = now_ns(); /* the first round only waits for the other to arrive */
    }
    double nanos = (now_ns() - start) / HANDOFF_ROUNDS / 2;
    return sum ? nanos : -1;
}

static void report(const char *what, size_t bytes, double ns, double before, double after)
{
    if (rank == 0)
        printf("sample %s %zu %.2f %.2f %.2f\n", what, bytes, ns, before, after);
}

/* How the bytes get from one side to the other: a receiver copies them as they lie, by blocks with gaps of their size, or has the kernel do it;
 * a sender puts them into common memory, or has the kernel write them into the receiver's. */
enum way { PLAIN, STRIDED, READV, STAGE, WRITEV, WAYS };

static const char *const NAMES[WAYS] = {"memcpy", "strided", "readv", "stage", "writev"};

/* `common` is memory of both, of which the other process has pages of its own to the kernel; `own` is that of one. */
struct buffers {
    char *common, *own;
    size_t bytes;
    pid_t other;
};

static void copy_blocks(char *to, const char *from, size_t bytes)
{
    size_t block = bytes < BLOCK ? bytes : BLOCK;
    for (size_t done = 0; done + block <= bytes; done += block)
        memcpy(to + 2 * done, from + 2 * done, block);
}

/* False if the kernel does not let us. */
static int copy(const struct buffers *b, enum way way)
{
    struct iovec near = {b->own, b->bytes}, far = {b->common, b->bytes};
    switch (way) {
    case PLAIN:
        memcpy(b->own, b->common, b->bytes);
        return 1;
    case STRIDED:
        copy_blocks(b->own, b->common, b->bytes);
        return 1;
    case READV:
        return process_vm_readv(b->other, &near, 1, &far, 1, 0) == (ssize_t)b->bytes;
    case STAGE:
        memcpy(b->common, b->own, b->bytes);
        return 1;
    default:
        return process_vm_writev(b->other, &near, 1, &far, 1, 0) == (ssize_t)b->bytes;
    }
}

/* What a receiver does with what a sender brought: takes it out of common memory, or looks whether it came, as overlap.c does. */
static void accept_sent(const struct buffers *b, enum way way)
{
    static volatile char seen;
    if (way == STAGE)
        memcpy(b->own, b->common, b->bytes);
    else
        seen = (char)(b->common[0] + b->common[b->bytes / 2] + b->common[b->bytes - 1]);
    (void)seen;
}

/* Rank 0 copies. The sender, rank 1 for a receiver's ways, writes its buffer before each copy, so that the lines lie in its core's cache, and nobody touches the buffers during the copy. */
static double copies(const struct buffers *b, enum way way)
{
    double total = 0;
    int done = 1, sender = way >= STAGE ? 0 : 1;
    for (int i = -WARM; i < REPEATS; i++) {
        if (rank == sender)
            memset(sender ? b->common : b->own, i, way == STRIDED ? 2 * b->bytes : b->bytes);
        handoff();
        double start = now_ns();
        if (rank == 0)
            done &= copy(b, way);
        if (i >= 0)
            total += now_ns() - start;
        handoff();
        if (rank == 1 && sender == 0)
            accept_sent(b, way);
    }
    return done ? total / REPEATS : -1;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: floor MAP SAMPLES BYTES...\n");
        return 2;
    }
    shared = handoff_map(argv[1]);
    int samples = atoi(argv[2]);
    size_t largest = 0;
    for (int i = 3; i < argc; i++) {
        if (atol(argv[i]) < 1) {
            fprintf(stderr, "floor: '%s' is no number of bytes above 0\n", argv[i]);
            return 2;
        }
        largest = (size_t)atol(argv[i]) > largest ? (size_t)atol(argv[i]) : largest;
    }
    char *memory = mmap(NULL, 2 * largest + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *own = malloc(2 * largest + 1);
    if (memory == MAP_FAILED || !own)
        return 2;
    memset(own, 0, 2 * largest + 1);
    struct slot *slots = mmap(NULL, 2 * SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        return 2;
    pid_t child = fork();
    rank = child == 0;
    pin(rank);
    for (int s = 0; s < samples; s++) {
        double before = handoff(), ns = handoff();
        report("handoff", 0, ns, before, handoff());
        before = handoff();
        ns = rings(slots, slots + SLOTS);
        report("ring", 0, ns, before, handoff());
        for (int i = 3; i < argc; i++) {
            struct buffers buffers = {memory, own, (size_t)atol(argv[i]), rank == 0 ? child : 1};
            for (enum way way = PLAIN; way < WAYS; way++) {
                double start = handoff(), took = copies(&buffers, way), end = handoff();
                if (took >= 0)
                    report(NAMES[way], buffers.bytes, took, start, end);
            }
        }
    }
    if (rank == 0)
        waitpid(child, NULL, 0);
    return 0;
}
