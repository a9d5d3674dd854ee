/* What the programs on files share: names in a directory that all ranks see, and a file's bytes seen without MPI. */
#ifndef TESTS_C_FILES_H
#define TESTS_C_FILES_H

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A name that all ranks have alike and nobody else has. The directory is that of GARONNE_TEST_FILES or TMPDIR. */
static inline const char *file_name(const char *what)
{
    static char names[8][512];
    static int turn;
    char *name = names[turn++ % 8];
    const char *place = getenv("GARONNE_TEST_FILES");
    place = place ? place : getenv("TMPDIR");
    snprintf(name, sizeof names[0], "%s/garonne-%d-%s", place ? place : "/tmp", (int)getpid(), what);
    MPI_Bcast(name, sizeof names[0], MPI_CHAR, 0, MPI_COMM_WORLD);
    return name;
}

static inline MPI_File file_open(const char *name, int mode)
{
    MPI_File file = MPI_FILE_NULL;
    CHECK_EQ(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file), MPI_SUCCESS);
    if (file == MPI_FILE_NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return file;
}

static inline MPI_File file_new(const char *name)
{
    return file_open(name, MPI_MODE_RDWR | MPI_MODE_CREATE);
}

/* Closes it, and removes it once all have. */
static inline void file_end(MPI_File *file, const char *name)
{
    CHECK_EQ(MPI_File_close(file), MPI_SUCCESS);
    CHECK(*file == MPI_FILE_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check_rank == 0)
        CHECK_EQ(MPI_File_delete(name, MPI_INFO_NULL), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Bytes of the file as any program sees them; -1 if it is not there. */
static inline long long file_bytes(const char *name)
{
    struct stat found;
    return stat(name, &found) ? -1 : (long long)found.st_size;
}

static inline size_t file_look(const char *name, long long offset, void *into, size_t bytes)
{
    int fd = open(name, O_RDONLY);
    size_t got = 0;
    for (ssize_t n = 1; fd >= 0 && n > 0 && got < bytes; got += n > 0 ? (size_t)n : 0)
        n = pread(fd, (char *)into + got, bytes - got, (off_t)(offset + (long long)got));
    if (fd >= 0)
        close(fd);
    return got;
}

/* Makes the file with bytes of this seed, on rank 0, before anybody goes on. */
static inline void file_put(const char *name, size_t bytes, size_t seed)
{
    if (check_rank == 0) {
        unsigned char *data = check_alloc(bytes);
        FILE *out = fopen(name, "w");
        check_fill(data, bytes, seed);
        CHECK(out && fwrite(data, 1, bytes, out) == bytes);
        if (out)
            fclose(out);
        free(data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static inline int status_count(MPI_Status *status, MPI_Datatype type)
{
    int count = -1;
    MPI_Get_count(status, type, &count);
    return count;
}

#endif
