/* A buffer that is none, which MPI itself reads.
 * ranks: 2
 * ends: 139
 * output: error\[G0206\]: rank 0 .* SIGSEGV in or after MPI_Send at crash_in_call\.c:{send}
 * output: in MPI_Send of libmpi_abi
 * output: called by exchange at crash_in_call\.c:{send}
 * output: called by main at crash_in_call\.c:{main}
 */
#include <mpi.h>
#include <stdint.h>

__attribute__((noinline)) static int exchange(int rank, void *place)
{
    int error = 0;
    if (rank == 0)
        error = MPI_Send(place, 4, MPI_INT, 1, 0, MPI_COMM_WORLD); /* send */
    MPI_Barrier(MPI_COMM_WORLD);
    return error;
}

int main(void)
{
    int rank, error;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    error = exchange(rank, (void *)(uintptr_t)64); /* main */
    MPI_Finalize();
    return error;
}
