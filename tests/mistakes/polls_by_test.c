/* A rank that asks by MPI_Test, with pauses, for a message that is never sent.
 * ranks: 2
 * who: rank 0.* message of rank 1 with tag 3 .*MPI_Test at polls_by_test\.c:{test} of MPI_Irecv at polls_by_test\.c:{receive}, .* in vain
 * who: if rank 0 does nothing but poll, .* none can go on
 * never: verdict: deadlock
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
        MPI_Irecv(&x, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request); /* receive */
        while (!done) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE); /* test */
            usleep(1000);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
