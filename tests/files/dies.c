/* Collective writes in which the last rank dies: what was synced before stays, and the job ends with the reason.
 * usage: dies DIRECTORY COLLECTIVES; ranks: 2 and more */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, TIMES = 4000 };

static MPI_File opened(const char *place, const char *name, MPI_Datatype type)
{
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", place, name);
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_WRONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file) ||
        MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL))
        MPI_Abort(MPI_COMM_WORLD, 3);
    return file;
}

int main(int argc, char **argv)
{
    int rank, size, one = BLOCK, times;
    char *data = malloc(BLOCK * TIMES);
    MPI_Aint at;
    MPI_Datatype block, type;
    MPI_File before, during;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    times = atoi(argv[2]);
    at = (MPI_Aint)rank * BLOCK;
    MPI_Type_create_hindexed(1, &one, &at, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)size * BLOCK, &type);
    MPI_Type_commit(&type);
    memset(data, 'a' + rank, BLOCK * TIMES);
    before = opened(argv[1], "before", type);
    if (MPI_File_write_all(before, data, BLOCK * TIMES, MPI_BYTE, MPI_STATUS_IGNORE) || MPI_File_sync(before))
        MPI_Abort(MPI_COMM_WORLD, 3);
    during = opened(argv[1], "during", type);
    for (int i = 0;; i++) {
        if (rank == size - 1 && i == times)
            raise(SIGKILL);
        MPI_File_write_at_all(during, 0, data, BLOCK * TIMES, MPI_BYTE, MPI_STATUS_IGNORE);
    }
}
