/* Two ranks that both send what no buffer holds before they receive.
 * ranks: 2
 * who: deadlock
 * who: rank 0: MPI_Send.* send_cycle\.c:{send}
 */
#include <mpi.h>
#include <stdlib.h>

int main(void)
{
    int rank, count = 1 << 24;
    int *out = calloc(count, sizeof *out), *in = calloc(count, sizeof *in);
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Send(out, count, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD); /* send */
    MPI_Recv(in, count, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
}
