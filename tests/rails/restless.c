/* Ranks that send each other messages of all lengths, many at a time and both ways, and look at every byte, until SIGUSR1 comes: what is sent is drawn from the seed that is the argument, from who
 * sends it to whom, and from its number. Now and then a rank computes, posts late, or tests instead of waiting. */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 6, LONGEST = 4 << 20, TAGS = 3, UNUSED = 0xdd };

static volatile sig_atomic_t enough;

static void stop(int number)
{
    (void)number;
    enough = 1;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t seed;

/* What stands for a message: its length, its tag and its bytes come of it. */
static uint64_t name_of(int from, int to, int number)
{
    return mix(seed + mix(((uint64_t)from << 48) + ((uint64_t)to << 32) + (uint64_t)number + 1));
}

static size_t length_of(uint64_t name)
{
    static const uint64_t most[] = {64, 4096, 4096, 32768, 32768, 262144, 262144, LONGEST / 2, LONGEST};
    return (size_t)(mix(name + 1) % (most[name % 9] + 1));
}

static uint64_t word_of(uint64_t name, size_t at)
{
    return (name | 1) * (at + 1) ^ name >> 7;
}

static void fill(unsigned char *to, uint64_t name, size_t len)
{
    for (size_t at = 0; at < len; at += 8) {
        uint64_t word = word_of(name, at);
        memcpy(to + at, &word, len - at < 8 ? len - at : 8);
    }
}

static int is_right(const unsigned char *got, uint64_t name, size_t len)
{
    for (size_t at = 0; at < len; at += 8) {
        uint64_t word = word_of(name, at);
        if (memcmp(got + at, &word, len - at < 8 ? len - at : 8) != 0)
            return 0;
    }
    return got[len] == UNUSED;
}

static void pause_for(uint64_t microseconds)
{
    struct timespec time = {0, (long)microseconds * 1000};
    nanosleep(&time, NULL);
}

static void exchange(int rank, int size, int round)
{
    static unsigned char *out[WINDOW], *in[WINDOW];
    uint64_t mood = mix(seed ^ mix((uint64_t)rank * 7919 + (uint64_t)round));
    for (int peer = 0; peer < size; peer++) {
        if (peer == rank)
            continue;
        MPI_Request requests[2 * WINDOW];
        uint64_t late = mood % 7 == 0 ? mood % 20000 : 0;
        for (int pass = 0; pass < 2; pass++) {
            if (pass == 1 && late)
                pause_for(late);
            for (int at = 0; at < WINDOW; at++) {
                int number = round * WINDOW + at, sends = (mood >> 9 & 1) == (unsigned)pass;
                uint64_t name = sends ? name_of(rank, peer, number) : name_of(peer, rank, number);
                size_t len = length_of(name);
                int tag = (int)(mix(name + 2) % TAGS);
                unsigned char **memory = sends ? &out[at] : &in[at];
                *memory = malloc(len + 1);
                if (!*memory)
                    MPI_Abort(MPI_COMM_WORLD, 8);
                memset(*memory, UNUSED, len + 1);
                if (sends) {
                    fill(*memory, name, len);
                    MPI_Isend(*memory, (int)len, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[at]);
                } else
                    MPI_Irecv(*memory, (int)len + 1, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[WINDOW + at]);
            }
        }
        if (mood % 5 == 0)
            pause_for(mood % 9000);
        MPI_Status statuses[2 * WINDOW];
        if (mood % 3 == 0) {
            int done = 0;
            while (!done) {
                MPI_Testall(2 * WINDOW, requests, &done, statuses);
                pause_for(200);
            }
        } else
            MPI_Waitall(2 * WINDOW, requests, statuses);
        for (int at = 0; at < WINDOW; at++) {
            int number = round * WINDOW + at, got;
            uint64_t name = name_of(peer, rank, number);
            size_t len = length_of(name);
            MPI_Get_count(&statuses[WINDOW + at], MPI_BYTE, &got);
            if ((size_t)got != len || !is_right(in[at], name, len)) {
                fprintf(stderr, "wrong: message %d of %d to %d, %zu bytes\n", number, peer, rank, len);
                MPI_Abort(MPI_COMM_WORLD, 9);
            }
            memset(out[at], UNUSED, length_of(name_of(rank, peer, number)));
            free(out[at]);
            free(in[at]);
        }
    }
}

int main(int argc, char **argv)
{
    int rank, size, over = 0, rounds = 0;
    seed = mix(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    signal(SIGUSR1, stop);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (!over) {
        exchange(rank, size, rounds++);
        int mine = enough;
        MPI_Allreduce(&mine, &over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    if (rank == 0)
        printf("all is well after %d rounds\n", rounds);
    return 0;
}
