/* A receive from any source took the message for which a later receive waits.
 * ranks: 3
 * who: rank 0: MPI_Recv.*rank 1.* wildcard_took_it\.c:{named}
 * who: rank 0: a message of rank 1 with tag 3 was taken by the receive from MPI_ANY_SOURCE at wildcard_took_it\.c:{any}
 */
#include <mpi.h>
#include <unistd.h>

int main(void)
{
    int rank, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        MPI_Send(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2)
        MPI_Send(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(&x, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* any */
        MPI_Recv(&x, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* named */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
