/* A crash that the program handles itself, with a handler from before MPI_Init.
 * ranks: 2
 * ends: 3
 * output: handled signal 11
 * output: error\[G0201\]: rank 1
 * never: store at
 */
#include <mpi.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static void handle(int signal)
{
    static const char words[] = "handled signal 11\n";
    if (write(2, words, sizeof words - 1) < 0 || signal != SIGSEGV)
        _exit(4);
    _exit(3);
}

__attribute__((noinline)) static void store(int *volatile where)
{
    *where = 7;
}

int main(void)
{
    int rank, x = 0;
    signal(SIGSEGV, handle);
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    store(rank == 1 ? NULL : &x);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return x != 7;
}
