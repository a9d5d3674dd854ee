/* What tracing costs: half a round trip of 8 B, the time of an 8 B message in windows of 64, and half a round trip of 1 MB, in microseconds. Run it with and without
 * `--trace`, several times in turn:
 *
 *     garonne run -n 2 ./cost
 *     garonne run -n 2 --trace cost.json ./cost
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, LARGE = 1 << 20, WARM_UP = 10 };

static int rank;
static char *buffer;

static void ping_pong(int bytes) {
    if (rank == 0) {
        MPI_Send(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static void window(int bytes) {
    static MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++)
        if (rank == 0)
            MPI_Isend(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(buffer + i * bytes, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(buffer, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(buffer, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

/* Microseconds of one turn. */
static double timed(void (*turn)(int), int bytes, int turns) {
    for (int i = 0; i < WARM_UP; i++)
        turn(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < turns; i++)
        turn(bytes);
    return (MPI_Wtime() - begin) * 1e6 / turns;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    buffer = malloc(LARGE);
    memset(buffer, 1, LARGE);
    double small = timed(ping_pong, 8, 5000) / 2;
    double rate = timed(window, 8, 500) / WINDOW;
    double large = timed(ping_pong, LARGE, 300) / 2;
    if (rank == 0)
        printf("8 B half round trip %.3f us, 8 B in windows of 64 %.3f us, 1 MB half round trip %.1f us\n", small, rate, large);
    free(buffer);
    MPI_Finalize();
    return 0;
}
