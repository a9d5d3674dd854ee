#include <mpi.h>

/* C side of the client: the sum of all ranks' numbers. */
int part_sum(int number)
{
    int sum = 0;
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}
