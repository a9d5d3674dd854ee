/* The root broadcasts, the others receive.
 * ranks: 3
 * who: rank 1: MPI_Recv.* broadcast_against_receive\.c:{receive}
 * who: rank 0: MPI_(Bcast|Barrier)
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Bcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else
        MPI_Recv(&x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receive */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
