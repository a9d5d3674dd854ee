/* A message that nobody receives, found at the end.
 * ranks: 2
 * environment: GARONNE_CHECK=messages
 * ends: *
 * output: rank 0.*tag 42.* never_received\.c:{send}
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(&x, 1, MPI_INT, 1, 42, MPI_COMM_WORLD); /* send */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
