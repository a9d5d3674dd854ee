/* MPI_Comm_split called by all ranks but one, which goes on to a barrier.
 * ranks: 4
 * ends: 40
 * output: G0112
 * output: rank 0  MPI_Barrier\(\)
 * output: MPI_Comm_split\(\)
 * output: (MPI_Comm_split.* split_by_some\.c:{split}|MPI_Barrier.* split_by_some\.c:{barrier})
 */
#include <mpi.h>

int main(void)
{
    int rank;
    MPI_Comm part;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0)
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &part); /* split */
    MPI_Barrier(MPI_COMM_WORLD); /* barrier */
    MPI_Finalize();
}
