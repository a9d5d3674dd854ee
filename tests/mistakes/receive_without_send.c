/* A receive whose message is never sent: its sender is in MPI_Finalize.
 * ranks: 2
 * who: rank 0: MPI_Recv.* receive_without_send\.c:{receive}
 * who: rank 1.*MPI_Finalize
 */
#include <mpi.h>

int main(void)
{
    int rank, x;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Recv(&x, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receive */
    MPI_Finalize();
}
