/* Small messages one by one: rank 0 sends a number, and only when it lies there rank 1 receives it. Run under a tool that
 * counts what happens inside MPI_Send and MPI_Recv; tools/testing/suites/hotpath.py does. Argument: how many messages.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, count = argc > 1 ? atoi(argv[1]) : 100;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("rank %d is process %d\n", rank, (int)getpid());
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        double number = i;
        MPI_Status status;
        if (rank == 0)
            MPI_Send(&number, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            number = -1;
            MPI_Recv(&number, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, &status);
            if (number != i || status.MPI_SOURCE != 0 || status.MPI_TAG != 7) {
                fprintf(stderr, "message %d came as %g from %d with tag %d\n", i, number, status.MPI_SOURCE, status.MPI_TAG);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
