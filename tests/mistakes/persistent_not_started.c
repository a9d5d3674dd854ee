/* A persistent send that is made and waited for, and never started.
 * ranks: 2
 * who: rank 0: MPI_Recv.*rank 1.* persistent_not_started\.c:{receive}
 * who: rank 1: MPI_Barrier
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Request request;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        MPI_Send_init(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&x, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receive */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
