// A C++ client: templates and exceptions around plain calls, containers as buffers.
#include <mpi.h>

#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

extern "C" int part_sum(int number);

template <typename T> struct mpi_type;
template <> struct mpi_type<int> { static MPI_Datatype get() { return MPI_INT; } };
template <> struct mpi_type<double> { static MPI_Datatype get() { return MPI_DOUBLE; } };

static void check(int code)
{
    if (code != MPI_SUCCESS)
        throw std::runtime_error("MPI call failed");
}

template <typename T> std::vector<T> gathered(const std::vector<T> &mine, int size)
{
    std::vector<T> all(mine.size() * static_cast<std::size_t>(size));
    const int count = static_cast<int>(mine.size());
    check(MPI_Allgather(mine.data(), count, mpi_type<T>::get(), all.data(), count, mpi_type<T>::get(), MPI_COMM_WORLD));
    return all;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0, failed = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<double> mine(1000, rank + 1.0);
    const auto all = gathered(mine, size);
    failed += std::accumulate(all.begin(), all.end(), 0.0) != 500.0 * size * (size + 1);
    failed += part_sum(rank) != size * (size - 1) / 2;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    try { // an exception through a frame that has called MPI
        check(MPI_Send(&rank, 1, MPI_INT, size + 5, 0, MPI_COMM_WORLD));
        failed++;
    } catch (const std::runtime_error &) {
    }
    if (rank == 0)
        std::cout << "client: " << size << " ranks, " << failed << " failures" << std::endl;
    MPI_Finalize();
    return failed;
}
