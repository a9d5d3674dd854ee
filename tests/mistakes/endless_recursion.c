/* A recursion without end fills the stack.
 * ranks: 2
 * ends: 139
 * output: error\[G0206\]: rank 0 .* SIGSEGV
 * output: the stack is full
 * output: in descend at endless_recursion\.c:{descend} \([0-9]+ times, or more\)|called by descend at endless_recursion\.c:{descend} \(
 */
#include <mpi.h>
#include <string.h>

__attribute__((noinline)) static int descend(volatile int *depth)
{
    volatile char room[256];
    memset((char *)room, *depth, sizeof room);
    *depth += 1;
    if (*depth < 0)
        return 0;
    return descend(depth) + room[0]; /* descend */
}

int main(void)
{
    int rank;
    volatile int depth = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        return descend(&depth);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
