/* A null pointer where the place of crashes is not wanted.
 * ranks: 2
 * environment: GARONNE_BACKTRACE=0
 * ends: 139
 * output: error\[G0206\]: rank 1 .* SIGSEGV
 * never: store
 */
#include <mpi.h>
#include <stddef.h>

__attribute__((noinline)) static void store(int *volatile where)
{
    *where = 7;
}

int main(void)
{
    int rank, x = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    store(rank == 1 ? NULL : &x);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return x != 7;
}
