/* Processes that start or meet while a program runs, built with every MPI: `spawn MAP SAMPLES NANOSECONDS WHAT:NUMBER...`
 *
 *     spawn    rank 0 starts NUMBER processes; the time until it may speak to them
 *     connect  rank 0 accepts what rank 1 connects, on two ranks; NUMBER counts nothing
 * What is made is disconnected outside the time. Prints: sample WHAT NUMBER NANOSECONDS 0 0 */
#include "handoff.h"

#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Comm parent, inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    if (argc < 5) {
        fprintf(stderr, "usage: spawn MAP SAMPLES NANOSECONDS WHAT:NUMBER...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':'), port[MPI_MAX_PORT_NAME] = "";
        if (!colon)
            MPI_Abort(MPI_COMM_WORLD, 2);
        *colon = 0;
        int number = atoi(colon + 1), connects = strcmp(argv[i], "connect") == 0;
        if (connects && size < 2)
            continue;
        if (connects && rank == 0) {
            MPI_Open_port(MPI_INFO_NULL, port);
            MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        } else if (connects && rank == 1) {
            MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        for (int sample = 0; sample < atoi(argv[2]); sample++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = now_ns();
            if (connects && rank == 1)
                MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
            else if (connects && rank == 0)
                MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
            else if (rank == 0)
                MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, number, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
            double took = now_ns() - start;
            if (rank == 0 || (connects && rank == 1))
                MPI_Comm_disconnect(&inter);
            if (rank == 0) {
                printf("sample %s %d %.0f 0 0\n", argv[i], number, took);
                fflush(stdout);
            }
        }
        if (connects && rank == 0)
            MPI_Close_port(port);
    }
    MPI_Finalize();
    return 0;
}
