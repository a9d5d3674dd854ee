/* A receive from one communicator, the message in another.
 * ranks: 3
 * who: a message of rank 0 with tag 7 \(4 B, sent at wrong_communicator\.c:{send}\).*comm "halo"
 * who: rank 1: MPI_Recv
 */
#include <mpi.h>

int main(void)
{
    int rank, x = 1;
    MPI_Comm halo;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    MPI_Comm_set_name(halo, "halo");
    if (rank == 0)
        MPI_Send(&x, 1, MPI_INT, 1, 7, halo); /* send */
    if (rank == 1)
        MPI_Recv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
