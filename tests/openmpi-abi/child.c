/* Says its rank and the size of its world. */

#include <mpi.h>
#include <stdio.h>

int main(void) {
    int rank, size;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("child %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
