/* A rank whose threads block each other by locks of the program, while the others wait for it.
 * ranks: 3
 * who: rank 1.*take_both.* lock_of_the_program\.c
 * who: 2 of 3 .*missing: rank 1
 */
#include <mpi.h>
#include <pthread.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static int take_both(void)
{
    return pthread_mutex_lock(&first) + pthread_mutex_lock(&first);
}

int main(void)
{
    int rank;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && take_both())
        return 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
