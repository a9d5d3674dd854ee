/* An exception that nobody catches.
 * ranks: 2
 * ends: 134
 * output: terminate called after throwing an instance of 'std::out_of_range'
 * output: error\[G0206\]: rank 1 .* SIGABRT
 * output: called by look_up.* at uncaught\.cpp:{throws}
 * output: called by main at uncaught\.cpp:{main}
 */
#include <mpi.h>
#include <stdexcept>

__attribute__((noinline)) static int look_up(int place)
{
    if (place > 0)
        throw std::out_of_range("no such place"); /* throws */
    return place;
}

int main()
{
    int rank, found;
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    found = look_up(rank); /* main */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return found;
}
