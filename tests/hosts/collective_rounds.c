/* Some rounds of one collective of 64 KB, whose results are checked: "bcast" from rank 0, or "allreduce". Links are counted outside. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64 * 1024 / sizeof(int) };

int main(int argc, char **argv)
{
    static int data[WORDS], sum[WORDS];
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int is_bcast = argc > 1 && strcmp(argv[1], "bcast") == 0;
    int rounds = argc > 2 ? atoi(argv[2]) : 1;
    for (int round = 0; round < rounds; round++) {
        for (int at = 0; at < WORDS; at++)
            data[at] = is_bcast && rank != 0 ? -1 : at + round + rank;
        if (is_bcast)
            MPI_Bcast(data, WORDS, MPI_INT, 0, MPI_COMM_WORLD);
        else
            MPI_Allreduce(data, sum, WORDS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < WORDS; at++) {
            int wanted = is_bcast ? at + round : size * (at + round) + size * (size - 1) / 2;
            if ((is_bcast ? data : sum)[at] != wanted) {
                fprintf(stderr, "wrong in round %d on rank %d\n", round, rank);
                MPI_Abort(MPI_COMM_WORLD, 9);
            }
        }
    }
    MPI_Finalize();
    if (rank == 0)
        printf("%d rounds are right\n", rounds);
    return 0;
}
