/* Ranks that make different communicators of one.
 * ranks: 4
 * ends: 40
 * output: G0112
 * output: ranks 0,2-3  MPI_Comm_dup\(\)   at constructors_differ\.c:{duplicate}, 3 of 4
 * output: rank 1  MPI_Comm_split\(\)   at constructors_differ\.c:{split}, 1 of 4
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
