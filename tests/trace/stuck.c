/* Sends messages of known sizes round a ring until a file `stop` is in the directory named, then gets stuck in a known way: ranks 0 and 3 wait for each other, rank 1
 * sleeps, rank 2 computes, and all others wait for a message of the rank before them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 1 << 17, TAG = 1 };

static char sent[ROOM], received[ROOM];

static void receive(int from) {
    MPI_Recv(received, ROOM, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, size, left = -1, told;
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    /* Each message says how many rounds are left, so that all do as many; -1: that is not known yet. */
    while (left != 0) {
        snprintf(path, sizeof path, "%s/stop", argv[1]);
        if (rank == 0 && left < 0 && access(path, F_OK) == 0)
            left = size + 1;
        memcpy(sent, &left, sizeof left);
        /* Rank r sends (r + 1) * 1000 bytes. */
        MPI_Sendrecv(sent, (rank + 1) * 1000, MPI_BYTE, (rank + 1) % size, TAG, received, ROOM, MPI_BYTE, (rank + size - 1) % size, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        memcpy(&told, received, sizeof told);
        left = left > 0 ? left - 1 : told > 0 ? told - 1 : -1;
        usleep(2000);
    }
    if (rank == 1)
        for (;;)
            sleep(1);
    if (rank == 2)
        for (volatile unsigned turns = 0;; turns++) {
        }
    if (rank == 0 || rank == 3)
        receive(3 - rank);
    receive(rank - 1);
    MPI_Finalize();
    return 0;
}
