/* A receive that names another tag than its message has.
 * ranks: 3
 * who: a message of rank 0 with tag 42 \(4 B, sent at wrong_tag\.c:{send}\).* tag 41
 * who: rank 1: MPI_Recv
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(&x, 1, MPI_INT, 1, 42, MPI_COMM_WORLD); /* send */
    if (rank == 1)
        MPI_Recv(&x, 1, MPI_INT, 0, 41, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
