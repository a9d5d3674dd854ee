/* A synchronous send of a rank to itself.
 * ranks: 2
 * who: deadlock
 * who: rank 0: MPI_Ssend.* ssend_to_self\.c:{send}
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Ssend(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD); /* send */
        MPI_Recv(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
