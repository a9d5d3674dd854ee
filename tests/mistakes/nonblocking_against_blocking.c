/* MPI_Ibarrier on one rank, MPI_Barrier on the others: these do not match each other.
 * ranks: 3
 * who: MPI_Ibarrier.* nonblocking_against_blocking\.c
 * who: MPI_Barrier.* nonblocking_against_blocking\.c:{blocking}
 */
#include <mpi.h>

int main(void)
{
    int rank;
    MPI_Request request;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Barrier(MPI_COMM_WORLD); /* blocking */
    }
    MPI_Finalize();
}
