/* A receive that is smaller than its message.
 * ranks: 2
 * ends: 15
 * output: truncated
 * output: truncated\.c:{receive}
 */
#include <mpi.h>

int main(void)
{
    int rank, x[8] = {0};
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(x, 8, MPI_INT, 1, 3, MPI_COMM_WORLD);
    else
        MPI_Recv(x, 4, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receive */
    MPI_Finalize();
}
