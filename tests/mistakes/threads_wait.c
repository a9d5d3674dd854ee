/* Two threads of each rank wait, each for the message that the other rank would send after its own.
 * ranks: 2
 * who: rank 0.*"left".* threads_wait\.c:{receive}
 * who: rank 0.*"right".* threads_wait\.c:{receive}
 */
#include <mpi.h>
#include <pthread.h>

static int rank;

static void *exchange(void *of)
{
    MPI_Comm comm = *(MPI_Comm *)of;
    int x = 1;
    MPI_Recv(&x, 1, MPI_INT, 1 - rank, 3, comm, MPI_STATUS_IGNORE); /* receive */
    MPI_Send(&x, 1, MPI_INT, 1 - rank, 3, comm);
    return 0;
}

int main(void)
{
    int level;
    MPI_Comm left, right;
    pthread_t thread;
    MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &left);
    MPI_Comm_dup(MPI_COMM_WORLD, &right);
    MPI_Comm_set_name(left, "left");
    MPI_Comm_set_name(right, "right");
    pthread_create(&thread, 0, exchange, &left);
    exchange(&right);
    pthread_join(thread, 0);
    MPI_Finalize();
}
