/* A rank that asks by MPI_Iprobe, with pauses, for a message that is never sent.
 * ranks: 2
 * who: rank 0.* message of rank 1 with tag 3 .*MPI_Iprobe at polls_by_probe\.c:{probe}, .* in vain
 * who: if rank 0 does nothing but poll, .* none can go on
 * never: verdict: deadlock
 */
#include <mpi.h>
#include <unistd.h>

int main(void)
{
    int rank, there = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    while (rank == 0 && !there) {
        MPI_Iprobe(1, 3, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE); /* probe */
        usleep(1000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
