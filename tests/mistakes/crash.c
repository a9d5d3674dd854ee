/* A null pointer, three calls deep, behind a barrier.
 * ranks: 3
 * ends: 139
 * gap: the place of a signal is not shown yet
 * output: rank 1
 * output: store.* crash\.c:{store}
 * output: solve.* crash\.c:{solve}
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
    MPI_Barrier(MPI_COMM_WORLD);
    x = solve(rank == 1 ? NULL : &x);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return x != 7;
}
