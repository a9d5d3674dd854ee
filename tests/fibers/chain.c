/* Two ranks with a hundred threads each, every one of which waits in MPI for a thread of the other rank that starts later. A program of POSIX
 * threads: it knows nothing of fibers. Whoever blocked a worker would block those for whom it waits. */
#include <dirent.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #what); MPI_Abort(MPI_COMM_WORLD, 1); exit(1); } } while (0)

enum { THREADS = 100, ROUNDS = 20, LARGE = 50000 };

static int rank, other;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int finished;

static void *link_of_chain(void *argument) {
    int self = (int)(size_t)argument, next = (self + THREADS - 1) % THREADS;
    int *data = malloc(LARGE * sizeof *data);
    for (int round = 0; round < ROUNDS; round++) {
        /* The last thread begins; all others wait for the one after them, on the other rank. */
        int count = round % 5 == 4 ? LARGE : 1;
        if (self == THREADS - 1)
            for (int i = 0; i < count; i++)
                data[i] = round + i;
        else if (round % 3 == 0) {
            MPI_Request request;
            CHECK(MPI_Irecv(data, count, MPI_INT, other, self, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
            CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        } else {
            MPI_Status status;
            int length;
            CHECK(MPI_Probe(other, self, MPI_COMM_WORLD, &status) == MPI_SUCCESS && MPI_Get_count(&status, MPI_INT, &length) == MPI_SUCCESS);
            CHECK(length == count && MPI_Recv(data, count, MPI_INT, other, self, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        }
        CHECK(data[0] == round && data[count - 1] == round + count - 1);
        if (self > 0)
            CHECK((round % 2 ? MPI_Send : MPI_Ssend)(data, count, MPI_INT, other, next, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    free(data);
    pthread_mutex_lock(&mutex);
    finished++;
    pthread_mutex_unlock(&mutex);
    return argument;
}

/* Each thread has a communicator, in which the threads of its number meet. */
static MPI_Comm communicators[THREADS];

static void *meet(void *argument) {
    size_t self = (size_t)argument;
    for (int round = 0; round < 3; round++) {
        int sum;
        CHECK(MPI_Barrier(communicators[self]) == MPI_SUCCESS);
        CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, communicators[self]) == MPI_SUCCESS && sum == 1);
    }
    return argument;
}

static int threads_of_system(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2;
}

static void run(void *(*start)(void *), size_t threads, int backwards) {
    pthread_t all[THREADS];
    for (size_t i = 0; i < threads; i++) {
        size_t self = backwards ? threads - 1 - i : i;
        CHECK(pthread_create(&all[i], NULL, start, (void *)self) == 0);
    }
    for (size_t i = 0; i < threads; i++) {
        void *result;
        CHECK(pthread_join(all[i], &result) == 0 && result == (void *)(backwards ? threads - 1 - i : i));
    }
}

int main(int argc, char **argv) {
    int provided, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE && size == 2);
    other = 1 - rank;
    run(link_of_chain, THREADS, 0);
    CHECK(finished == THREADS);
    int most = threads_of_system();
    for (int i = 0; i < 8; i++)
        CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]) == MPI_SUCCESS);
    /* The ranks begin from different ends. */
    run(meet, 8, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1)
        CHECK(most <= atoi(argv[1]));
    for (int i = 0; i < 8; i++)
        MPI_Comm_free(&communicators[i]);
    printf("rank %d: all is well with %d threads of the system\n", rank, most);
    MPI_Finalize();
    return 0;
}
