/* Small messages: rank 0 sends some numbers, and only when they lie there rank 1 receives them. Run under a tool that counts what
 * happens inside the calls named; tools/testing/suites/hotpath.py does. That the messages are there is said outside of MPI,
 * by the size of a file, so that no call of rank 1 has looked at them before. Several at a time, because the first may have to
 * wake rank 1, which sleeps in the barrier on a crowded machine. Arguments: a file, how many messages, and `blocking` or
 * `nonblocking`.
 */
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOGETHER = 50, TAG = 7 };

static double numbers[TOGETHER];
static MPI_Request requests[TOGETHER];
static MPI_Status statuses[TOGETHER];

static void send_all(int first, int blocking)
{
    for (int i = 0; i < TOGETHER; i++) {
        numbers[i] = first + i;
        if (blocking)
            MPI_Send(&numbers[i], 1, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD);
        else
            MPI_Isend(&numbers[i], 1, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
    }
    if (!blocking)
        MPI_Waitall(TOGETHER, requests, statuses);
}

static void receive_all(int first, int blocking)
{
    memset(numbers, 0, sizeof numbers);
    for (int i = 0; i < TOGETHER; i++)
        if (blocking)
            MPI_Recv(&numbers[i], 1, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, &statuses[i]);
        else
            MPI_Irecv(&numbers[i], 1, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
    if (!blocking)
        MPI_Waitall(TOGETHER, requests, statuses);
    for (int i = 0; i < TOGETHER; i++)
        if (numbers[i] != first + i || statuses[i].MPI_SOURCE != 0 || statuses[i].MPI_TAG != TAG) {
            fprintf(stderr, "message %d came as %g from %d with tag %d\n", first + i, numbers[i], statuses[i].MPI_SOURCE,
                    statuses[i].MPI_TAG);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, count = argc > 3 ? atoi(argv[2]) : 0, blocking = argc > 3 && strcmp(argv[3], "blocking") == 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int file = argc > 3 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0) {
        fprintf(stderr, "usage: small_messages FILE COUNT blocking|nonblocking\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    printf("rank %d is process %d\n", rank, (int)getpid());
    fflush(stdout);
    for (int first = 0; first < count; first += TOGETHER) {
        struct stat about = {0};
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            send_all(first, blocking);
            if (ftruncate(file, first + TOGETHER) != 0)
                MPI_Abort(MPI_COMM_WORLD, 3);
        } else if (rank == 1) {
            while (about.st_size < first + TOGETHER) {
                usleep(200);
                fstat(file, &about);
            }
            receive_all(first, blocking);
        }
    }
    MPI_Finalize();
    return 0;
}
