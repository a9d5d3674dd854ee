/* A thread that never calls MPI writes where nothing may be written, while the first one waits in MPI.
 * ranks: 2
 * ends: 139
 * output: error\[G0206\]: rank 0 .* SIGSEGV
 * output: the memory at 0x[0-9a-f]+ may not be used so
 * output: in its thread [0-9]+ \(helper\)
 * output: in work at crash_in_thread\.c:{work}
 * never: main at
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sys/mman.h>

static void *work(void *place)
{
    pthread_setname_np(pthread_self(), "helper");
    *(volatile int *)place = 7; /* work */
    return place;
}

int main(void)
{
    int rank, provided;
    pthread_t thread;
    MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        pthread_create(&thread, NULL, work, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        MPI_Recv(&rank, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
