/* Writes to a file system of some megabytes until it is full: every way of writing says so, nobody hangs, and what fits is written.
 * usage: full DIRECTORY; ranks: any */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 * 1024, MOST = 100 };

static int rank, size, failures;

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static int once(int way, MPI_File file, int i, const char *data)
{
    MPI_Offset at = ((MPI_Offset)i * size + rank) * BLOCK;
    MPI_Request request = MPI_REQUEST_NULL;
    int code;
    switch (way) {
    case 0: return MPI_File_write_at_all(file, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    case 1: return MPI_File_write_at(file, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    case 2: return MPI_File_write_shared(file, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    case 3: return MPI_File_write_ordered(file, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    case 4: return MPI_File_preallocate(file, (MPI_Offset)(i + 1) * size * BLOCK);
    case 5:
        /* Blocks of 64 bytes of all ranks in turn, by writers. */
        return MPI_File_write_all(file, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    default:
        code = MPI_File_iwrite_at(file, at, data, BLOCK, MPI_BYTE, &request);
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    char path[4096], *data = malloc(BLOCK);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    memset(data, 'a' + rank, BLOCK);
    snprintf(path, sizeof path, "%s/file", argv[1]);
    for (int way = 0; way < 7; way++) {
        int full = 0, anywhere = 0, count = 0;
        MPI_File file;
        if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file))
            MPI_Abort(MPI_COMM_WORLD, 3);
        if (way == 5) {
            MPI_Datatype block, type;
            MPI_Aint at = (MPI_Aint)rank * 64;
            int one = 64;
            MPI_Type_create_hindexed(1, &one, &at, MPI_BYTE, &block);
            MPI_Type_create_resized(block, 0, (MPI_Aint)size * 64, &type);
            MPI_Type_commit(&type);
            MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
        }
        for (int i = 0; i < MOST && !anywhere; i++) {
            int code = once(way, file, i, data);
            if (code && class_of(code) != MPI_ERR_NO_SPACE) {
                char text[MPI_MAX_ERROR_STRING];
                int len;
                MPI_Error_string(code, text, &len);
                printf("way %d, rank %d: class %d: %s\n", way, rank, class_of(code), text);
                failures++;
            }
            full = full || code != MPI_SUCCESS;
            count += code == MPI_SUCCESS;
            MPI_Allreduce(&full, &anywhere, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
        }
        if (!anywhere) {
            printf("way %d: the file system never gets full\n", way);
            failures++;
        }
        MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (count == 0) {
            printf("way %d: nothing fits\n", way);
            failures++;
        }
        if (MPI_File_close(&file)) {
            printf("way %d: close fails\n", way);
            failures++;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && !failures)
        puts("all is told");
    MPI_Finalize();
    return failures != 0;
}
