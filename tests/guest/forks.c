/* Processes that a rank forks: they run beside it, start programs, end at once or by exit(), and may not call MPI. */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

enum { LARGE = 1 << 20 };

static int status_of(pid_t child) {
    int status;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    return status;
}

int main(int argc, char **argv) {
    int rank, size, value, i;
    char text[64] = "";
    char *data = malloc(LARGE), *got = malloc(LARGE);
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (i = 0; i < 20; i++) {
        int right = (rank + 1) % size, left = (rank + size - 1) % size;
        memset(data, rank + i, LARGE);
        MPI_Irecv(got, LARGE, MPI_CHAR, left, i, MPI_COMM_WORLD, &requests[0]);
        /* A child that lives while its parent's transfers move, and leaves by exit() with its handlers. */
        pid_t child = fork();
        if (child == 0) exit(7);
        MPI_Isend(data, LARGE, MPI_CHAR, right, i, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(got[0] == (char)(left + i) && got[LARGE - 1] == (char)(left + i));
        CHECK(WEXITSTATUS(status_of(child)) == 7);
    }
    /* A program of its own, by a shell and a pipe. */
    FILE *pipe = popen("echo from a shell", "r");
    CHECK(pipe && fgets(text, sizeof text, pipe) && !strcmp(text, "from a shell\n"));
    CHECK(pclose(pipe) == 0);
    CHECK(WEXITSTATUS(system("exit 3")) == 3);
    /* What MPI says to a forked child: an error, by name, and no harm to the parent. */
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    MPI_Irecv(got, 1, MPI_INT, (rank + size - 1) % size, 99, dup, &requests[0]);
    pid_t child = fork();
    if (child == 0) {
        int flag, next = (rank + 1) % size;
        MPI_Finalized(&flag);
        int bad = !flag || !MPI_Send(&rank, 1, MPI_INT, next, 99, dup) || !MPI_Isend(data, LARGE, MPI_CHAR, next, 99, dup, &requests[1]) ||
                  !MPI_Recv(&value, 0, MPI_INT, next, 99, dup, MPI_STATUS_IGNORE) || !MPI_Barrier(dup) ||
                  !MPI_Bcast(&value, 1, MPI_INT, 0, dup) || MPI_Finalize();
        _exit(bad ? 1 : 42);
    }
    CHECK(WEXITSTATUS(status_of(child)) == 42);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 99, dup);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK(*(int *)got == (rank + size - 1) % size);
    MPI_Comm_free(&dup);
    /* Where errors are fatal, it is the child that ends. */
    child = fork();
    if (child == 0) {
        fclose(stderr);
        MPI_Barrier(MPI_COMM_WORLD);
        _exit(0);
    }
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    value = -1;
    MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(value == size * (size - 1) / 2);
    /* A child that is a rank's program again is a world of its own. */
    if (argc < 2) {
        snprintf(text, sizeof text, "%d", size);
        child = fork();
        if (child == 0) {
            execl(argv[0], argv[0], "alone", (char *)NULL);
            _exit(99);
        }
        CHECK(status_of(child) == 0);
    } else {
        CHECK(size == 1);
    }
    MPI_Finalize();
    free(data);
    free(got);
    if (argc < 2 && rank == 0) printf("ok\n");
    return 0;
}
