/* Ranks of several hosts that talk: says where each is, then as many rounds as asked for (0: until SIGUSR1 comes) of small and large messages and
 * collectives whose contents are checked. A second argument is the length of large ones. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 300000, SMALL = 64 };

static volatile sig_atomic_t enough;

static void stop(int number)
{
    (void)number;
    enough = 1;
}

static void fail(const char *what, int round)
{
    fprintf(stderr, "wrong in round %d: %s\n", round, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static unsigned char byte_of(int rank, int round, int at)
{
    return (unsigned char)(rank * 31 + round * 7 + at);
}

int main(int argc, char **argv)
{
    int rank, size, here, name_len, rounds = argc > 1 ? atoi(argv[1]) : 1, large = argc > 2 ? atoi(argv[2]) : LARGE;
    char name[MPI_MAX_PROCESSOR_NAME];
    /* Whoever looks for this process may send it at once. */
    signal(SIGUSR1, stop);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &name_len);
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    printf("rank %d of %d on %s with %d\n", rank, size, name, here);
    fflush(stdout);
    unsigned char *out = malloc((size_t)large), *in = malloc((size_t)large);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int all_enough = 0;
    for (int round = 0; rounds == 0 ? !all_enough : round < rounds; round++) {
        int sums[SMALL], mine[SMALL], near = 0, one = 1;
        for (int i = 0; i < SMALL; i++)
            mine[i] = rank + i + round;
        MPI_Allreduce(mine, sums, SMALL, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < SMALL; i++)
            if (sums[i] != size * (size - 1) / 2 + size * (i + round))
                fail("a sum", round);
        MPI_Allreduce(&one, &near, 1, MPI_INT, MPI_SUM, node);
        int mine_enough = enough;
        MPI_Allreduce(&mine_enough, &all_enough, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (near != here)
            fail("a sum of the node", round);
        int len = round % 3 == 0 ? large : 1 + (int)((long)round * 977 % large);
        for (int i = 0; i < len; i++)
            out[i] = byte_of(rank, round, i);
        memset(in, 0, (size_t)large);
        MPI_Sendrecv(out, len, MPI_UNSIGNED_CHAR, right, 3, in, large, MPI_UNSIGNED_CHAR, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < len; i++)
            if (in[i] != byte_of(left, round, i))
                fail("a message", round);
        for (int peer = 0; peer < size; peer++) {
            int value = rank * 1000 + round, got = -1;
            MPI_Sendrecv(&value, 1, MPI_INT, peer, 4, &got, 1, MPI_INT, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (got != peer * 1000 + round)
                fail("a number", round);
        }
    }
    MPI_Comm_free(&node);
    free(out);
    free(in);
    MPI_Finalize();
    if (rank == 0)
        printf("all is well\n");
    return 0;
}
