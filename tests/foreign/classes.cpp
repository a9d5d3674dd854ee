// The C++ classes of MPI, for the C++ libraries of other MPIs: operations, attributes, error handlers, exceptions.
// THROWS: the library throws exceptions. Open MPI's in Debian is built without, and keeps the code instead.
// ranks: 2
#define OMPI_SKIP_MPICXX_WARNING
#include <mpi.h>

#include <cstdio>

static int wrong = 0, failures = 0, copies = 0, deletes = 0;

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

static int copy(const MPI::Comm &comm, int, void *extra, void *in, void *out, bool &flag)
{
    expect(comm.Get_size() == MPI::COMM_WORLD.Get_size(), 2);
    // The object is one of the communicator's class.
    expect((dynamic_cast<const MPI::Cartcomm *>(&comm) != nullptr) == (comm.Get_topology() == MPI::CART), 14);
    copies += *static_cast<int *>(extra);
    *static_cast<void **>(out) = in;
    flag = true;
    return MPI::SUCCESS;
}

static int forget(MPI::Comm &comm, int, void *, void *extra)
{
    expect(comm.Get_size() == MPI::COMM_WORLD.Get_size() && *static_cast<int *>(extra) == 10, 15);
    deletes++;
    return MPI::SUCCESS;
}

#ifdef THROWS
#define VALUE void *
#else
#define VALUE const void *
#endif

static int copy_of_type(const MPI::Datatype &type, int, void *, VALUE in, void *out, bool &flag)
{
    expect(type.Get_size() == 12, 16);
    *static_cast<VALUE *>(out) = in;
    flag = true;
    return MPI::SUCCESS;
}

static int forget_type(MPI::Datatype &, int, void *, void *)
{
    return MPI::SUCCESS;
}

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
    int extra = 10, value = 7;
    int key = MPI::Comm::Create_keyval(copy, forget, &extra);
    MPI::COMM_WORLD.Set_attr(key, &value);
    other.Free();
    other = MPI::COMM_WORLD.Dup();
    expect(other.Get_attr(key, &found) && found == &value && copies == 10, 4);
    other.Delete_attr(key);
    expect(deletes == 1, 5);
    MPI::Datatype three = MPI::INT.Create_contiguous(3);
    int type_key = MPI::Datatype::Create_keyval(copy_of_type, forget_type, nullptr);
    three.Set_attr(type_key, &value);
    MPI::Datatype again = three.Dup();
    expect(again.Get_attr(type_key, &found) && found == &value, 17);
    again.Free();
    three.Free();
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
    cart.Set_attr(key, &value);
    MPI::Cartcomm other_cart = cart.Dup();
    expect(copies == 20 && other_cart.Get_attr(key, &found) && found == &value, 18);
    other_cart.Free();
    cart.Free();
    expect(deletes == 3, 19);

    MPI::Errhandler handler = MPI::Comm::Create_errhandler(failed);
    other.Set_errhandler(handler);
    other.Send(&number, 1, MPI::INT, size, 0);
    // MPICH's library calls it once more.
    expect(failures >= 1, 11);

    other.Set_errhandler(MPI::ERRORS_THROW_EXCEPTIONS);
    expect(other.Get_errhandler() == MPI::ERRORS_THROW_EXCEPTIONS, 12);
    int code = MPI::SUCCESS;
#ifdef THROWS
    try {
        other.Send(&number, 1, MPI::INT, size, 0);
    } catch (MPI::Exception &exception) {
        code = exception.Get_error_code();
    }
#else
    other.Send(&number, 1, MPI::INT, size, 0);
    code = MPI::mpi_errno;
#endif
    expect(code != MPI::SUCCESS && MPI::Get_error_class(code) == MPI::ERR_RANK, 13);
    other.Free();
    if (wrong)
        MPI::COMM_WORLD.Abort(wrong);
    MPI::Finalize();
}
