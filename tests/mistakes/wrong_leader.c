/* Two groups that name other tags for the intercommunicator between them.
 * ranks: 4
 * who: rank 0: MPI_Intercomm_create.* wrong_leader\.c:{create}
 * who: rank 2: MPI_Intercomm_create.* wrong_leader\.c:{create}
 */
#include <mpi.h>

int main(void)
{
    int rank;
    MPI_Comm half, both;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < 2 ? 2 : 0, 10 + rank / 2, &both); /* create */
    MPI_Finalize();
}
