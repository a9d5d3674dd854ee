/* A rank that computes for ever while the others wait for it.
 * ranks: 4
 * who: rank 1.*iterate.* endless_loop\.c
 * who: 3 of 4 .*missing: rank 1
 */
#include <mpi.h>

__attribute__((noinline)) static double iterate(volatile double *residual)
{
    while (*residual > 0)
        *residual = *residual * 0.5 + 1;
    return *residual;
}

int main(void)
{
    int rank;
    double residual = 1, sum;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        residual = iterate(&residual);
    MPI_Allreduce(&residual, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
}
