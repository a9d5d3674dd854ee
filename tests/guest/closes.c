/* A program that closes all descriptors from 3 on after MPI_Init and opens files of its own there: MPI works on, and writes to none of them.
 * With an argument ranks have talked before. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#define FILES 40

int main(int argc, char **argv)
{
    int rank, size, level, one = 1, sum = 0, count = 1 << 20;
    char *out = calloc(count, 1), *in = calloc(count, 1);
    (void)argv;
    MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        MPI_Sendrecv(out, count, MPI_CHAR, (rank + 1) % size, 0, in, count, MPI_CHAR, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    FILE *own = tmpfile();
    int first = fileno(own);
    for (int i = 1; i < FILES; i++)
        if (dup(first) != first + i)
            return 3;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int round = 0; round < 5; round++)
        for (int at = 1; at < size; at++)
            MPI_Sendrecv(out, count, MPI_CHAR, (rank + at) % size, 0, in, count, MPI_CHAR, (rank + size - at) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm again;
    MPI_Comm_dup(MPI_COMM_WORLD, &again);
    MPI_Barrier(again);
    MPI_Comm_free(&again);
    MPI_Finalize();
    struct stat about;
    fstat(first, &about);
    int left = 0;
    for (int fd = first; fd < first + FILES; fd++)
        left += fcntl(fd, F_GETFD) >= 0;
    if (about.st_size != 0 || left != FILES || sum != size)
        return fprintf(stderr, "%ld bytes written, %d of %d files left, sum %d\n", (long)about.st_size, left, FILES, sum), 1;
    puts("ok");
    return 0;
}
