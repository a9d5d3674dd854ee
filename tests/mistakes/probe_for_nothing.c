/* MPI_Probe for a message that is never sent.
 * ranks: 2
 * who: rank 0: MPI_Probe.* probe_for_nothing\.c:{probe}
 */
#include <mpi.h>

int main(void)
{
    int rank;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Probe(1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* probe */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
