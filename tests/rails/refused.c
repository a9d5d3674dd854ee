/* Ranks of one host whose system stops letting them into each other's memory in the middle of the job, as it does where capabilities are dropped: `refused WHO`, WHO being
 * a rank or -1 for all. Messages, those that are announced ahead and long collectives are checked before and after. */
#define _GNU_SOURCE
#include "../forbidding.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEN = 3000000, BLOCK = 200000, ROUNDS = 24, RANKS_MAX = 8, SUMS = 100000 };

static int rank, size;

static void fail(const char *what, int round)
{
    fprintf(stderr, "wrong in round %d: %s\n", round, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static void forbid(void)
{
    /* Of all threads, also those of the library. */
    if (forbid_memory(SECCOMP_FILTER_FLAG_TSYNC) != 0)
        MPI_Abort(MPI_COMM_WORLD, 8);
}

static unsigned char byte_of(int from, int round, int at)
{
    return (unsigned char)(from * 31 + round * 7 + at + at / 251);
}

static void fill(unsigned char *bytes, int len, int round)
{
    for (int i = 0; i < len; i++)
        bytes[i] = byte_of(rank, round, i);
}

static void look(const unsigned char *bytes, int len, int from, int round, int first, const char *what)
{
    for (int i = 0; i < len; i++)
        if (bytes[i] != byte_of(from, round, first + i))
            fail(what, round);
}

int main(int argc, char **argv)
{
    int who = argc > 1 ? atoi(argv[1]) : -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    unsigned char *out = malloc(LEN), *in = malloc(LEN), *all = malloc((size_t)BLOCK * RANKS_MAX);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2 && (who == -1 || who == rank))
            forbid();
        fill(out, LEN, round);
        memset(in, 0, LEN);
        MPI_Sendrecv(out, LEN, MPI_BYTE, right, 3, in, LEN, MPI_BYTE, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        look(in, LEN, left, round, 0, "a message");
        MPI_Request requests[2];
        memset(in, 0, LEN);
        MPI_Irecv(in, LEN, MPI_BYTE, left, 4, MPI_COMM_WORLD, &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Isend(out, LEN, MPI_BYTE, right, 4, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        look(in, LEN, left, round, 0, "a message announced ahead");
        MPI_Alltoall(out, BLOCK, MPI_BYTE, all, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            look(all + (size_t)from * BLOCK, BLOCK, from, round, rank * BLOCK, "a block of alltoall");
        MPI_Allgather(out, BLOCK, MPI_BYTE, all, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            look(all + (size_t)from * BLOCK, BLOCK, from, round, 0, "a block of allgather");
        int *sums = (int *)in;
        MPI_Allreduce(out, sums, SUMS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < SUMS; i++) {
            unsigned int sum = 0;
            for (int from = 0; from < size; from++)
                for (int byte = 0; byte < 4; byte++)
                    sum += (unsigned int)byte_of(from, round, 4 * i + byte) << 8 * byte;
            if ((unsigned int)sums[i] != sum)
                fail("a sum", round);
        }
        if (rank == 0)
            fill(in, LEN, round);
        MPI_Bcast(in, LEN, MPI_BYTE, 0, MPI_COMM_WORLD);
        look(in, LEN, 0, round, 0, "a broadcast");
    }
    free(out), free(in), free(all);
    MPI_Finalize();
    if (rank == 0)
        printf("all is well\n");
    return 0;
}
