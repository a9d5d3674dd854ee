/* Two collective calls in another order on one rank.
 * ranks: 4
 * ends: 40
 * output: G0112
 * output: rank 2  MPI_Bcast\(.*\)   at collective_order\.c:{other}, 1 of 4
 * output: (MPI_Barrier.* collective_order\.c:{barrier}|MPI_Bcast.* collective_order\.c:{other})
 * output: MPI_Barrier\(\)   at collective_order\.c:{barrier}, [1-3] of 4
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 2)
        MPI_Bcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD); /* other */
    MPI_Barrier(MPI_COMM_WORLD); /* barrier */
    if (rank != 2)
        MPI_Bcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
