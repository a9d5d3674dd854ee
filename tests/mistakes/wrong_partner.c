/* MPI_Sendrecv in which one rank takes the wrong partner.
 * ranks: 4
 * who: rank 3: MPI_Sendrecv.*rank 1.* wrong_partner\.c:{exchange}
 */
#include <mpi.h>

int main(void)
{
    int rank, partner, in, out = 1;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    partner = rank == 3 ? 1 : rank ^ 1;
    MPI_Sendrecv(&out, 1, MPI_INT, partner, 2, &in, 1, MPI_INT, partner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* exchange */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
