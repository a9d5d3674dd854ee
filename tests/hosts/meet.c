/* Ranks of many hosts that meet: a sum, a broadcast, a barrier and a ring, whose contents are checked, as many rounds as asked for. Each speaks with few others, as in large jobs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what, int round)
{
    fprintf(stderr, "wrong in round %d: %s\n", round, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(int argc, char **argv)
{
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("rank %d of %d\n", rank, size);
    fflush(stdout);
    for (int round = 0; round < rounds; round++) {
        int mine = rank + round, sum = 0, word = rank == round % size ? round * 7 : -1, got = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size * (size - 1) / 2 + size * round)
            fail("the sum", round);
        MPI_Bcast(&word, 1, MPI_INT, round % size, MPI_COMM_WORLD);
        if (word != round * 7)
            fail("the broadcast", round);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Sendrecv(&mine, 1, MPI_INT, (rank + 1) % size, 3, &got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (got != (rank + size - 1) % size + round)
            fail("the ring", round);
    }
    MPI_Finalize();
    if (rank == 0)
        printf("all is well\n");
    return 0;
}
