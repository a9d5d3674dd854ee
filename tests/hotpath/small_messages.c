/* Small messages: rank 0 sends some numbers, and only when they lie there rank 1 receives them. Run under a tool that counts what
 * happens inside MPI_Send and MPI_Recv; tools/testing/suites/hotpath.py does. Several at a time, because the first may have
 * to wake rank 1, which sleeps in the barrier on a crowded machine. Argument: how many messages.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOGETHER = 50 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, count = argc > 1 ? atoi(argv[1]) : 100;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("rank %d is process %d\n", rank, (int)getpid());
    fflush(stdout);
    for (int first = 0; first < count; first += TOGETHER) {
        for (int i = first; rank == 0 && i < first + TOGETHER; i++) {
            double number = i;
            MPI_Send(&number, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = first; rank == 1 && i < first + TOGETHER; i++) {
            double number = -1;
            MPI_Status status;
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
