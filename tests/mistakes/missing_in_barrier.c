/* A barrier that one rank does not reach, since it waits for input that does not come.
 * ranks: 4
 * who: 3 of 4 .*entered.* MPI_COMM_WORLD.* missing: rank 2
 * who: rank 2.*wait_for_input.* missing_in_barrier\.c:{read}
 * who: read
 */
#include <mpi.h>
#include <unistd.h>

__attribute__((noinline)) static int wait_for_input(int from)
{
    char byte = 0;
    return read(from, &byte, 1) == 1 ? byte : -1; /* read */
}

int main(void)
{
    int rank, ends[2];
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 2 && pipe(ends) == 0 && wait_for_input(ends[0]) == 0)
        return 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
