// The C++ classes of MPI, for the C++ libraries of other MPIs: operations, attributes, error handlers.
// Attribute keys need ATTRIBUTES: Open MPI's library reads its own memory behind a communicator then.
// ranks: 2
#define OMPI_SKIP_MPICXX_WARNING
#include <mpi.h>

#include <cstdio>

static int wrong = 0, failures = 0;
#ifdef ATTRIBUTES
static int copies = 0, deletes = 0;
#endif

static void expect(bool is_right, int number)
{
    if (!is_right) {
        std::printf("wrong: %d\n", number);
        wrong = number;
    }
}

static void add(const void *from, void *to, int len, const MPI::Datatype &datatype)
{
    expect(datatype == MPI::INT, 1);
    for (int i = 0; i < len; i++)
        static_cast<int *>(to)[i] += static_cast<const int *>(from)[i];
}

#ifdef ATTRIBUTES
static int copy(const MPI::Comm &comm, int, void *extra, void *in, void *out, bool &flag)
{
    expect(comm.Get_size() == MPI::COMM_WORLD.Get_size(), 2);
    copies += *static_cast<int *>(extra);
    *static_cast<void **>(out) = in;
    flag = true;
    return MPI::SUCCESS;
}

static int forget(MPI::Comm &, int, void *, void *)
{
    deletes++;
    return MPI::SUCCESS;
}
#endif

static void failed(MPI::Comm &, int *, ...)
{
    failures++;
}

int main(int argc, char **argv)
{
    MPI::Init(argc, argv);
    int rank = MPI::COMM_WORLD.Get_rank(), size = MPI::COMM_WORLD.Get_size();

    MPI::Op op;
    op.Init(add, true);
    int x[2] = {rank, 1}, y[2] = {-1, -1};
    MPI::COMM_WORLD.Allreduce(x, y, 2, MPI::INT, op);
    expect(y[0] == size * (size - 1) / 2 && y[1] == size, 3);
    op.Free();

    void *found = nullptr;
    MPI::Intracomm other = MPI::COMM_WORLD.Dup();
#ifdef ATTRIBUTES
    int extra = 10, value = 7;
    int key = MPI::Comm::Create_keyval(copy, forget, &extra);
    MPI::COMM_WORLD.Set_attr(key, &value);
    other.Free();
    other = MPI::COMM_WORLD.Dup();
    expect(other.Get_attr(key, &found) && found == &value && copies == 10, 4);
    other.Delete_attr(key);
    expect(deletes == 1, 5);
#endif
    expect(other.Get_attr(MPI::TAG_UB, &found) && *static_cast<int *>(found) == 2147483647, 6);

    MPI::Status status;
    int number = -1;
    MPI::Request request = MPI::COMM_WORLD.Isend(&rank, 1, MPI::INT, size - 1 - rank, 3);
    MPI::COMM_WORLD.Recv(&number, 1, MPI::INT, MPI::ANY_SOURCE, MPI::ANY_TAG, status);
    request.Wait();
    expect(status.Get_source() == number && status.Get_tag() == 3, 7);
    expect(number == size - 1 - rank && status.Get_count(MPI::INT) == 1, 8);
    MPI::Group group = MPI::COMM_WORLD.Get_group();
    expect(group.Get_size() == size && other.Get_topology() == MPI::UNDEFINED, 9);
    bool periods[1] = {true};
    int dims[1] = {size};
    MPI::Cartcomm cart = MPI::COMM_WORLD.Create_cart(1, dims, periods, false);
    expect(cart.Get_dim() == 1 && cart.Get_topology() == MPI::CART, 10);
    cart.Free();

    MPI::Errhandler handler = MPI::Comm::Create_errhandler(failed);
    other.Set_errhandler(handler);
    other.Send(&number, 1, MPI::INT, size, 0);
    // MPICH's library calls it once more.
    expect(failures >= 1, 11);
    other.Free();
    if (wrong)
        MPI::COMM_WORLD.Abort(wrong);
    MPI::Finalize();
}
