/* A rank that leaves main without MPI_Finalize while the others are in it.
 * ranks: 3
 * ends: 1
 * output: rank 1.*(without|before) MPI_Finalize
 */
#include <mpi.h>

int main(void)
{
    int rank;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        return 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
