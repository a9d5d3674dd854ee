// POSIX threads that exchange by MPI with those of the other rank, more than CPUs. Each rank prints "all is well".
#include <mpi.h>
#include <pthread.h>
#include "check.h"

enum { THREADS = 16, ROUNDS = 50 };

static int rank;

static void *exchange(void *argument) {
    int tag = (int)(long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int own = rank * 1000000 + tag * 1000 + i, other = -1;
        MPI_Sendrecv(&own, 1, MPI_INT, 1 - rank, tag, &other, 1, MPI_INT, 1 - rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(other == (1 - rank) * 1000000 + tag * 1000 + i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, exchange, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    MPI_Finalize();
    puts("all is well");
    return 0;
}
