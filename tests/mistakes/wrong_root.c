/* A broadcast for which each rank names itself as the root, and the sum after it.
 * ranks: 3
 * ends: 40
 * output: G0112
 * output: root
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1, sum;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(&x, &sum, 1, MPI_INT, MPI_SUM, rank, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
