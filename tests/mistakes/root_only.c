/* MPI_Gather called by its root alone, as if it fetched.
 * ranks: 4
 * who: rank 0: MPI_Gather.* root_only\.c:{gather}
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1, all[4];
    MPI_Comm work;
    MPI_Init(0, 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &work);
    MPI_Comm_rank(work, &rank);
    if (rank == 0)
        MPI_Gather(&x, 1, MPI_INT, all, 1, MPI_INT, 0, work); /* gather */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
