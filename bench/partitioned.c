/* Partitioned communication, built with every MPI: `partitioned MAP SAMPLES NANOSECONDS WHAT:BYTES...`, on two ranks.
 *
 * Rank 0 sends PARTITIONS of BYTES each; clocks of one machine are compared.
 *     rest   from when the last partition is ready, long after the others, until rank 1 has all
 *     first  from when the first is ready until rank 1 is told that it is there; the others are ready HOLD_NS later, so no more than about that
 * Prints: sample WHAT BYTES NANOSECONDS HANDOFF_BEFORE HANDOFF_AFTER */
#include "work.h"

#include <mpi.h>

enum { PARTITIONS = 16, TAG = 1, TIME = 2 };
static const double HOLD_NS = 5e6;

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5 || size != 2) {
        fprintf(stderr, "usage: partitioned MAP SAMPLES NANOSECONDS WHAT:BYTES..., on two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    struct handoff *shared = handoff_map(argv[1]);
    uint64_t epoch = 0, hold = (uint64_t)(HOLD_NS * work_turns_per_ns());
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (!colon)
            MPI_Abort(MPI_COMM_WORLD, 2);
        *colon = 0;
        int bytes = atoi(colon + 1), is_first = strcmp(argv[i], "first") == 0;
        char *data = calloc(PARTITIONS, (size_t)bytes);
        MPI_Request request;
        if (!data)
            MPI_Abort(MPI_COMM_WORLD, 2);
        if (rank == 0)
            MPI_Psend_init(data, PARTITIONS, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        else
            MPI_Precv_init(data, PARTITIONS, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        /* The first round, which matches the two, is not counted. */
        for (int sample = -1; sample < atoi(argv[2]); sample++) {
            double before = handoff_measure(shared, rank, &epoch), time = 0;
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Start(&request);
            if (rank == 0) {
                if (is_first)
                    time = now_ns();
                MPI_Pready(0, request);
                if (is_first)
                    work_do(hold);
                for (int part = 1; part < PARTITIONS - 1; part++)
                    MPI_Pready(part, request);
                if (!is_first) {
                    work_do(hold);
                    time = now_ns();
                }
                MPI_Pready(PARTITIONS - 1, request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                MPI_Send(&time, 1, MPI_DOUBLE, 1, TIME, MPI_COMM_WORLD);
            } else {
                double begun = 0;
                int there = 0;
                while (is_first && !there)
                    MPI_Parrived(request, 0, &there);
                time = is_first ? now_ns() : 0;
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                time = is_first ? time : now_ns();
                MPI_Recv(&begun, 1, MPI_DOUBLE, 0, TIME, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                time -= begun;
            }
            double after = handoff_measure(shared, rank, &epoch);
            if (rank == 1 && sample >= 0)
                printf("sample %s %d %.0f %.2f %.2f\n", argv[i], bytes, time, before, after);
        }
        MPI_Request_free(&request);
        free(data);
    }
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
