/* An integer divided by zero.
 * ranks: 2
 * ends: 136
 * output: error\[G0206\]: rank 1 .* SIGFPE
 * output: an integer was divided by zero
 * output: in mean at divides_by_zero\.c:{divide}
 * output: called by main at divides_by_zero\.c:{main}
 */
#include <mpi.h>

__attribute__((noinline)) static int mean(int sum, volatile int *count)
{
    return sum / *count; /* divide */
}

int main(void)
{
    int rank, sum;
    volatile int count = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    count = rank == 1 ? 0 : 1;
    sum = mean(100, &count); /* main */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return sum != 100;
}
