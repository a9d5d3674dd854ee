/* A rank that asks by MPI_Test, with pauses, for a message that is never sent.
 * ranks: 2
 * gap: a rank that asks again and again is not shown to wait yet
 * who: rank 0.*(MPI_Test|MPI_Irecv).*rank 1.* polls_by_test\.c
 */
#include <mpi.h>
#include <unistd.h>

int main(void)
{
    int rank, x, done = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Request request;
        MPI_Irecv(&x, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
        while (!done) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            usleep(1000);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
