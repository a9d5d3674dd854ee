/* Rank 1 fails in the way that its argument names, while the others wait for it; without an argument all wait for ever. With `poor` it has no descriptor to
 * reach its agent with. With `starts` each rank starts a process, which is a world of its own. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size;
    const char *how = argc > 1 ? argv[1] : "";
    const char *number = getenv("PMI_RANK");
    if (!strcmp(how, "poor") && number && atoi(number) == 1) {
        struct rlimit none = {3, 3};
        setrlimit(RLIMIT_NOFILE, &none);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(how, "alone")) {
        MPI_Finalize();
        return size == 1 ? 0 : 3;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(how, "starts")) {
        char command[4096];
        snprintf(command, sizeof command, "'%s' alone", argv[0]);
        int code = system(command);
        MPI_Finalize();
        return code == 0 ? 0 : 4;
    }
    if (rank == 1) {
        if (!strcmp(how, "abort"))
            MPI_Abort(MPI_COMM_WORLD, 7);
        if (!strcmp(how, "crash"))
            raise(SIGSEGV);
        if (!strcmp(how, "exit"))
            _exit(5);
    }
    if (strcmp(how, "after")) {
        /* Nobody sends this. */
        MPI_Recv(NULL, 0, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return rank == 1 ? 6 : 0;
}
