/* A null pointer, three calls deep, behind a barrier.
 * ranks: 3
 * ends: 139
 * output: error\[G0206\]: rank 1 .* SIGSEGV in or after MPI_Barrier at crash\.c:{barrier}
 * output: there is no memory at 0x0$
 * output: in store at crash\.c:{store}
 * output: called by solve at crash\.c:{solve}
 * output: called by main at crash\.c:{main}
 */
#include <mpi.h>
#include <stddef.h>

__attribute__((noinline)) static void store(int *where, int what)
{
    *where = what; /* store */
}

__attribute__((noinline)) static int solve(int *where)
{
    store(where, 7); /* solve */
    return *where;
}

int main(void)
{
    int rank, x = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD); /* barrier */
    x = solve(rank == 1 ? NULL : &x); /* main */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return x != 7;
}
