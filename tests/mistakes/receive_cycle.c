/* Two ranks that both receive before they send.
 * ranks: 2
 * who: deadlock
 * who: rank 0: MPI_Recv.* receive_cycle\.c:{receive}
 * who: rank 1: MPI_Recv.* receive_cycle\.c:{receive}
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Recv(&x, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receive */
    MPI_Send(&x, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD);
    MPI_Finalize();
}
