/* Messages while their receiver is elsewhere: `elsewhere MANNER MILLISECONDS BYTES TIMES`, on two ranks.
 *
 * Rank 1 posts a receive, is away for so long, then waits; rank 0 starts its send when the other has gone and computes for as long before
 * it waits, too. MANNER: `sleep` (nanosleep), `read` (blocked on an empty socket until another process answers), `compute` (all cores compute).
 * Prints the median of the time that rank 1's MPI_Wait took. Nobody calls MPI_Test. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void pause_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void compute(double seconds)
{
    double end = MPI_Wtime() + seconds;
    volatile double sink = 1;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 1000; i++)
            sink = sink * 1.0000001;
}

static void be_away(const char *manner, double seconds, int other)
{
    char byte;
    if (strcmp(manner, "sleep") == 0)
        pause_for(seconds);
    else if (strcmp(manner, "compute") == 0)
        compute(seconds);
    else if (write(other, "?", 1) != 1 || read(other, &byte, 1) != 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    double seconds = atof(argv[2]) / 1e3;
    int bytes = atoi(argv[3]), times = atoi(argv[4]), ends[2] = {-1, -1}, rank;
    double *waited = calloc((size_t)times, sizeof *waited);
    char *data = calloc((size_t)bytes, 1);
    if (!waited || !data || times < 1 || (strcmp(argv[1], "read") == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0))
        return 1;
    if (ends[0] >= 0 && fork() == 0) {
        char byte;
        /* When the asker is gone its read ends it. */
        close(ends[0]);
        while (read(ends[1], &byte, 1) == 1) {
            pause_for(seconds);
            if (write(ends[1], &byte, 1) != 1)
                break;
        }
        _exit(0);
    }
    if (ends[1] >= 0)
        close(ends[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < times; i++) {
        MPI_Request request;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            MPI_Irecv(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
            be_away(argv[1], seconds, ends[0]);
        } else {
            MPI_Isend(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
            compute(seconds);
        }
        double since = MPI_Wtime();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        waited[i] = MPI_Wtime() - since;
    }
    qsort(waited, (size_t)times, sizeof *waited, ascending);
    if (rank == 1)
        printf("%s: %.1f us in MPI_Wait (median of %d; %.1f to %.1f)\n", argv[1], waited[times / 2] * 1e6, times, waited[0] * 1e6, waited[times - 1] * 1e6);
    MPI_Finalize();
    return 0;
}
