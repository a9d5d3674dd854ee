/* Each rank of a process has its own variables, arguments, environment, working directory and descriptors. The last argument says how it ends. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int given = 5, zero;
static int *pointer = &given;
static __thread int local = 7, local_zero;
static int begun;
static int fails;

#define CHECK(what) ((what) ? (void)0 : (void)(fails++, fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #what)))

__attribute__((constructor)) static void begin(void) { begun++; }
__attribute__((destructor)) static void end(void) { printf("destructor of %d\n", zero); }
static void last(void) { printf("end of %d\n", zero); }

static int count(void) {
    static int calls = 100;
    return ++calls;
}

static void *thread(void *argument) {
    (void)argument;
    int fresh = local == 7 && local_zero == 0;
    local = -1;
    return fresh && getenv("OWN") ? &given : NULL;
}

int main(int argc, char **argv) {
    int rank, size, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char text[32], folder[4096], path[64];
    snprintf(text, sizeof text, "%d", rank);
    const char *number = getenv("PMI_RANK");
    CHECK(number && !strcmp(number, text));
    extern char **environ;
    int seen = 0;
    for (char **entry = environ; *entry; entry++) seen += !strncmp(*entry, "PMI_RANK=", 9) && !strcmp(*entry + 9, text);
    CHECK(seen == 1);
    setenv("OWN", text, 1);
    argv[0][0] = (char)('a' + rank % 26);
    given += rank, zero += rank, local += rank, local_zero += rank;
    for (int i = 0; i < rank; i++) count();
    snprintf(path, sizeof path, "/tmp/garonne-ranks-%d-%d", (int)getpid(), rank);
    CHECK(mkdtemp(strcat(path, "XXXXXX")) != NULL);
    CHECK(chdir(path) == 0);
    int descriptor = dup(1);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(given == 5 + rank && zero == rank && local == 7 + rank && local_zero == rank && begun == 1 && pointer == &given);
    CHECK(count() == 101 + rank && argv[0][0] == (char)('a' + rank % 26) && !strcmp(getenv("OWN"), text));
    CHECK(getcwd(folder, sizeof folder) && !strcmp(folder, path));
    CHECK(close(descriptor) == 0 && rmdir(path) == 0);
    pthread_t other;
    void *same;
    CHECK(!pthread_create(&other, NULL, thread, NULL) && !pthread_join(other, &same) && same == &given && local == 7 + rank);

    int sum, to = (rank + 1) % size, from = (rank + size - 1) % size, bytes = 1 << 18;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size - 1) / 2);
    char *out = malloc(bytes), *in = malloc(bytes);
    memset(out, rank, bytes);
    MPI_Sendrecv(out, bytes, MPI_CHAR, to, 0, in, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; i++) fails += in[i] != (char)from;
    free(out), free(in);

    int pids[2] = {(int)getpid(), -(int)getpid()}, most[2];
    MPI_Allreduce(pids, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    const char *how = argv[argc - 1];
    if (!strcmp(how, "together")) CHECK(most[0] == -most[1]);
    CHECK(atexit(last) == 0);
    if (rank == size - 1 && !strcmp(how, "crash")) *(volatile int *)NULL = 1;
    if (rank == size - 1 && !strcmp(how, "exit")) exit(7);
    if (rank == size - 1 && !strcmp(how, "leave")) exit(0);
    if (rank == size - 1 && !strcmp(how, "abort")) abort();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    printf("rank %d of %d is well\n", rank, size);
    return fails ? 1 : 0;
}
