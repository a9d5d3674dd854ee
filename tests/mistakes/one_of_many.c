/* MPI_Waitall over many receives of which one has no message.
 * ranks: 2
 * who: rank 0: MPI_(Waitall|Irecv).*tag 57.* one_of_many\.c
 */
#include <mpi.h>

int main(void)
{
    int rank, x[100];
    MPI_Request requests[100];
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int tag = 0; tag < 100; tag++)
        if (rank == 0)
            MPI_Irecv(&x[tag], 1, MPI_INT, 1, tag, MPI_COMM_WORLD, &requests[tag]);
        else if (tag != 57)
            MPI_Send(&tag, 1, MPI_INT, 0, tag, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Waitall(100, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
