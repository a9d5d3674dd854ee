/* A large message that nobody receives: its receiver is in MPI_Finalize.
 * ranks: 2
 * who: rank 0: MPI_Send.* send_without_receive\.c:{send}
 * who: rank 1.*MPI_Finalize
 */
#include <mpi.h>
#include <stdlib.h>

int main(void)
{
    int rank, count = 1 << 24;
    int *data = calloc(count, sizeof *data);
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(data, count, MPI_INT, 1, 3, MPI_COMM_WORLD); /* send */
    MPI_Finalize();
}
