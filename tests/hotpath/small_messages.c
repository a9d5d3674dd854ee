/* Small messages: rank 0 sends some numbers, and only when they lie there rank 1 receives them. Run under a tool that counts what
 * happens inside the calls named; tools/testing/suites/hotpath.py does. That messages are there, or taken, is said outside of MPI,
 * by the sizes of two files, so that no other call finds a message before its receive. Arguments: the start of the files'
 * names, how many messages, and `blocking` or `nonblocking`.
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

/* A file whose size counts what was done. */
static int counter(const char *start, const char *end)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.%s", start, end);
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return file;
}

static void wait_for(int file, int count)
{
    struct stat about;
    while (fstat(file, &about) == 0 && about.st_size < count)
        usleep(200);
}

static void say(int file, int count)
{
    if (ftruncate(file, count) != 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, count, blocking;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        fprintf(stderr, "usage: small_messages FILES COUNT blocking|nonblocking\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    count = atoi(argv[2]);
    blocking = strcmp(argv[3], "blocking") == 0;
    int sent = counter(argv[1], "sent"), taken = counter(argv[1], "taken");
    printf("rank %d is process %d\n", rank, (int)getpid());
    fflush(stdout);
    for (int first = 0; first < count; first += TOGETHER) {
        if (rank == 0) {
            wait_for(taken, first);
            send_all(first, blocking);
            say(sent, first + TOGETHER);
        } else if (rank == 1) {
            wait_for(sent, first + TOGETHER);
            receive_all(first, blocking);
            say(taken, first + TOGETHER);
        }
    }
    MPI_Finalize();
    return 0;
}
