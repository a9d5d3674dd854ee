/* Doubles that are received as long integers.
 * ranks: 2
 * environment: GARONNE_CHECK=types
 * ends: 3
 * output: MPI_DOUBLE
 * output: wrong_type\.c:{receive}
 */
#include <mpi.h>

int main(void)
{
    int rank;
    double real = 1;
    long number;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(&real, 1, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD);
    else
        MPI_Recv(&number, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receive */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
