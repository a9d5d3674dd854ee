/* One rank duplicates a communicator while the others broadcast.
 * ranks: 4
 * ends: 40
 * output: G0112
 * output: rank 3  MPI_Comm_dup\(\)
 * output: MPI_Bcast\(4 B
 * output: (MPI_Comm_dup.* duplicate_against_broadcast\.c:{duplicate}|MPI_Bcast.* duplicate_against_broadcast\.c:{broadcast})
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Comm copy;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 3)
        MPI_Comm_dup(MPI_COMM_WORLD, &copy); /* duplicate */
    else
        MPI_Bcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD); /* broadcast */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
