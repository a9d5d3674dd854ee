/* Ranks that make different communicators of one.
 * ranks: 4
 * ends: 40
 * output: G0112
 * output: MPI_Comm_dup\(\)
 * output: rank 1  MPI_Comm_split\(\)
 * output: (MPI_Comm_dup.* constructors_differ\.c:{duplicate}|MPI_Comm_split.* constructors_differ\.c:{split})
 */
#include <mpi.h>

int main(void)
{
    int rank;
    MPI_Comm made;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &made); /* split */
    else
        MPI_Comm_dup(MPI_COMM_WORLD, &made); /* duplicate */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
