/* A shift to the right in which each rank waits for its right neighbour.
 * ranks: 4
 * who: deadlock
 * who: a message of rank 3 with tag 5 \(4 B, sent at wrong_source\.c:{send}\)
 */
#include <mpi.h>

int main(void)
{
    int rank, size, x = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Send(&x, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD); /* send */
    MPI_Recv(&x, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
}
