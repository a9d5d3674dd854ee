/* A halo exchange over a grid without periods that counts its neighbours by hand: rank 0 waits for rank 3.
 * ranks: 4
 * who: rank 0: MPI_Recv.*rank 3.* edges_of_a_grid\.c:{receive}
 * who: comm "grid"
 */
#include <mpi.h>

int main(void)
{
    int rank, size, open = 0, left, right, x = 1;
    MPI_Comm grid;
    MPI_Init(0, 0);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &open, 0, &grid);
    MPI_Comm_set_name(grid, "grid");
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_shift(grid, 0, 1, &left, &right);
    MPI_Send(&x, 1, MPI_INT, right, 4, grid);
    MPI_Recv(&x, 1, MPI_INT, (rank + size - 1) % size, 4, grid, MPI_STATUS_IGNORE); /* receive */
    MPI_Barrier(grid);
    MPI_Finalize();
}
