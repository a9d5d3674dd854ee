/* A rank that starts the program named by its argument before MPI_Init, and again after it: the children are worlds of their own. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void start(const char *program) {
    if (system(program) != 0) {
        fprintf(stderr, "%s failed\n", program);
        exit(1);
    }
}

int main(int argc, char **argv) {
    int rank, size;
    (void)argc;
    start(argv[1]);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    start(argv[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
