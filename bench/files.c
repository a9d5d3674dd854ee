/* Collective accesses to a file, built with every MPI: `files MAP SAMPLES NANOSECONDS WHAT:BYTES...`, on any number of ranks.
 *
 * All ranks together move TOTAL bytes to or from a file in TMPDIR, in blocks of BYTES that ranks have in turn; what is in the file is checked.
 *     write, read                by one collective call of all
 *     alone_write, alone_read    by one independent call of each
 *     open                       open and close; BYTES is of no account
 * Prints, where a sample is the time of the slowest rank for all bytes (open: for one pair of calls):
 * sample WHAT BYTES NANOSECONDS HANDOFF_BEFORE HANDOFF_AFTER */
#include "work.h"

#include <mpi.h>
#include <string.h>

enum { TOTAL = 32 << 20, OPENS = 16 };

static int rank, size;
static char path[4096];

static char byte_of(int of, long at)
{
    return (char)(of * 31 + at / 8 + 1);
}

static double opens(void)
{
    double start = now_ns();
    for (int i = 0; i < OPENS; i++) {
        MPI_File file;
        if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file))
            MPI_Abort(MPI_COMM_WORLD, 3);
        MPI_File_close(&file);
    }
    return (now_ns() - start) / OPENS;
}

static double access_once(const char *what, int bytes, char *data)
{
    int each = TOTAL / size / bytes * bytes, alone = strncmp(what, "alone", 5) == 0, reads = strstr(what, "read") != NULL;
    MPI_Datatype type;
    MPI_File file;
    MPI_Status status;
    for (long at = 0; at < each; at++)
        data[at] = reads ? 0 : byte_of(rank, at);
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file))
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Type_vector(each / bytes, bytes, bytes * size, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, (MPI_Offset)rank * bytes, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_ns();
    int code = reads ? (alone ? MPI_File_read : MPI_File_read_all)(file, data, each, MPI_BYTE, &status)
                     : (alone ? MPI_File_write : MPI_File_write_all)(file, data, each, MPI_BYTE, &status);
    double took = now_ns() - start;
    for (long at = 0; reads && at < each; at++)
        if (data[at] != byte_of(rank, at))
            MPI_Abort(MPI_COMM_WORLD, 4);
    if (code)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Type_free(&type);
    MPI_File_close(&file);
    return took;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5) {
        fprintf(stderr, "usage: files MAP SAMPLES NANOSECONDS WHAT:BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    struct handoff *shared = handoff_map(argv[1]);
    uint64_t epoch = 0;
    const char *place = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/garonne-bench-io-%d", place ? place : "/tmp", (int)getpid());
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    char *data = malloc(TOTAL);
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (!colon || !data)
            MPI_Abort(MPI_COMM_WORLD, 2);
        *colon = 0;
        int bytes = atoi(colon + 1), is_open = strcmp(argv[i], "open") == 0;
        if (!is_open)
            access_once("write", bytes, data);
        /* The first one is not counted. */
        for (int sample = -1; sample < atoi(argv[2]); sample++) {
            double before = handoff_measure(shared, rank, &epoch);
            MPI_Barrier(MPI_COMM_WORLD);
            double own = is_open ? opens() : access_once(argv[i], bytes, data), took = 0;
            MPI_Reduce(&own, &took, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            double after = handoff_measure(shared, rank, &epoch);
            if (rank == 0 && sample >= 0)
                printf("sample %s %d %.0f %.2f %.2f\n", argv[i], bytes, took, before, after);
        }
        /* What was written is what is there. */
        if (!is_open)
            access_once("read", bytes, data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        unlink(path);
    free(data);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
