/* C++ exceptions that leave callbacks of the program: the call of MPI that the callback belongs to throws them, and the library works on afterwards,
 * on this rank and on the others.
 * ranks: 1 2 3 5
 * limit: 60 */
#include "check.h"

#include <csetjmp>
#include <exception>
#include <vector>

/* What is thrown; those that are alive are counted, so that none is lost. */
struct Thrown {
    static int alive;
    int what;
    explicit Thrown(int w) : what(w) { alive++; }
    Thrown(const Thrown &other) : what(other.what) { alive++; }
    ~Thrown() { alive--; }
};
int Thrown::alive;

/* Whether `call` throws, and `what`. */
template <typename F> static bool throws(int what, F call)
{
    try {
        call();
    } catch (const Thrown &thrown) {
        CHECK_EQ(thrown.what, what);
        return true;
    }
    return false;
}

#define THROWS(what, ...) CHECK(throws(what, [&] { __VA_ARGS__; }))

/* Everything works, in every way in which ranks meet. */
static void all_is_well()
{
    int one = 1, sum = 0;
    std::vector<int> many(20000, 1), sums(20000);
    MPI_Request request;
    MPI_Comm comm;
    CHECK_EQ(Thrown::alive, 0);
    CHECK_EQ(std::uncaught_exceptions(), 0);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK_EQ(sum, check_size);
    MPI_Allreduce(many.data(), sums.data(), 20000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK_EQ(sums[19999], check_size);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQ(sum, check_size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Sendrecv(&check_rank, 1, MPI_INT, (check_rank + 1) % check_size, 0, &one, 1, MPI_INT,
                 (check_rank + check_size - 1) % check_size, 0, comm, MPI_STATUS_IGNORE);
    CHECK_EQ(one, (check_rank + check_size - 1) % check_size);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
}

static void handler(MPI_Comm *, int *, ...)
{
    throw Thrown(1);
}

static jmp_buf back;

static void jumping_handler(MPI_Comm *, int *, ...)
{
    longjmp(back, 1);
}

static void session_handler(MPI_Session *, int *, ...)
{
    throw Thrown(2);
}

/* A communicator of this process with an error handler. */
static MPI_Comm own(MPI_Comm_errhandler_function *function)
{
    MPI_Comm comm;
    MPI_Errhandler made;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_errhandler(function, &made);
    MPI_Comm_set_errhandler(comm, made);
    MPI_Errhandler_free(&made);
    return comm;
}

static void error_handlers_throw()
{
    MPI_Comm comm = own(handler);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int two[2] = {1, 2}, one, index;
    for (int i = 0; i < 1000; i++)
        THROWS(1, MPI_Send(two, 1, MPI_INT, 9999, 0, comm));
    THROWS(1, MPI_Allreduce(two, &one, 1, MPI_INT, MPI_REPLACE, comm));
    THROWS(1, MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER));
    auto truncated = [&](int n) {
        for (int i = 0; i < n; i++)
            MPI_Irecv(&one, 1, MPI_INT, 0, i, comm, &requests[i]);
        for (int i = 0; i < n; i++)
            MPI_Send(two, 2, MPI_INT, 0, i, comm);
    };
    truncated(1);
    THROWS(1, MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    truncated(2);
    THROWS(1, MPI_Waitall(2, requests, statuses));
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    truncated(2);
    THROWS(1, MPI_Waitany(2, requests, &index, statuses));
    THROWS(1, MPI_Waitany(2, requests, &index, statuses));
    MPI_Send(two, 2, MPI_INT, 0, 0, comm);
    THROWS(1, MPI_Recv(&one, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE));
    MPI_Comm_free(&comm);
    MPI_Errhandler made;
    MPI_Session session;
    MPI_Info info;
    MPI_Session_create_errhandler(session_handler, &made);
    MPI_Session_init(MPI_INFO_NULL, made, &session);
    THROWS(2, MPI_Session_get_pset_info(session, "nowhere", &info));
    MPI_Session_finalize(&session);
    MPI_Errhandler_free(&made);
    all_is_well();
}

static void error_handlers_jump()
{
    MPI_Comm comm = own(jumping_handler);
    static volatile int jumps;
    for (volatile int i = 0; i < 3; i++) {
        if (setjmp(back))
            jumps++;
        else
            MPI_Send(nullptr, 0, MPI_INT, 9999, 0, comm);
    }
    CHECK_EQ(jumps, 3);
    MPI_Comm_free(&comm);
    all_is_well();
}

static MPI_Comm inner;

static void outer_handler(MPI_Comm *, int *, ...)
{
    THROWS(1, MPI_Send(nullptr, 0, MPI_INT, 9999, 0, inner));
    throw Thrown(3);
}

static void a_handler_throws_within_another()
{
    inner = own(handler);
    MPI_Comm outer = own(outer_handler);
    THROWS(3, MPI_Send(nullptr, 0, MPI_INT, 9999, 0, outer));
    MPI_Comm_free(&inner);
    MPI_Comm_free(&outer);
    all_is_well();
}

/* The ranks whose operation throws: all, or one. */
static int thrower;
static long calls;

static void operation(void *in, void *inout, int *count, MPI_Datatype *)
{
    calls++;
    if (thrower < 0 || thrower == check_rank)
        throw Thrown(4);
    for (int i = 0; i < *count; i++)
        static_cast<int *>(inout)[i] += static_cast<int *>(in)[i];
}

/* A rank hears of it if its operation was called. */
template <typename F> static void tells(F call)
{
    calls = 0;
    bool thrown = throws(4, call);
    CHECK_EQ(thrown, calls > 0 && (thrower < 0 || thrower == check_rank));
    CHECK(!thrown || calls == 1);
}

static void operations_throw()
{
    static int in[30000], out[30000];
    MPI_Op ops[2];
    MPI_Datatype pair;
    MPI_Op_create(operation, 1, &ops[0]);
    MPI_Op_create(operation, 0, &ops[1]);
    MPI_Type_contiguous(1, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    for (int at = 0; at < 12; at++) {
        MPI_Op op = ops[at % 2];
        int count = at / 2 % 2 ? 30000 : 2;
        MPI_Datatype type = at % 3 ? MPI_INT : pair;
        thrower = at < 4 ? -1 : at % check_size;
        MPI_Request requests[3];
        MPI_Status statuses[3];
        if (thrower < 0)
            THROWS(4, MPI_Reduce_local(in, out, count, type, op));
        tells([&] { MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD); });
        tells([&] { MPI_Reduce(in, out, count, type, op, 0, MPI_COMM_WORLD); });
        tells([&] { MPI_Scan(in, out, count, type, op, MPI_COMM_WORLD); });
        tells([&] { MPI_Exscan(in, out, count, type, op, MPI_COMM_WORLD); });
        tells([&] { MPI_Reduce_scatter_block(in, out, count / check_size, type, op, MPI_COMM_WORLD); });
        tells([&] {
            MPI_Iallreduce(in, out, count, type, op, MPI_COMM_WORLD, &requests[0]);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        });
        CHECK(requests[0] == MPI_REQUEST_NULL);
        tells([&] {
            int flag = 0;
            MPI_Iscan(in, out, count, type, op, MPI_COMM_WORLD, &requests[0]);
            while (!flag)
                MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
        });
        /* It goes on while something else is waited for, and only its own end tells of it. */
        tells([&] {
            int sum, one = 1;
            bool waits = false;
            try {
                MPI_Ireduce(in, out, count, type, op, 0, MPI_COMM_WORLD, &requests[0]);
                MPI_Barrier(MPI_COMM_WORLD);
                MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
                CHECK_EQ(sum, 1);
                waits = true;
                MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            } catch (const Thrown &) {
                CHECK(waits);
                throw;
            }
        });
        /* Several at once: the one that throws takes nothing from the others. */
        int number = check_rank, got = -1;
        tells([&] {
            MPI_Irecv(&got, 1, MPI_INT, (check_rank + 1) % check_size, 5, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(&number, 1, MPI_INT, (check_rank + check_size - 1) % check_size, 5, MPI_COMM_WORLD, &requests[1]);
            MPI_Iallreduce(in, out, count, type, op, MPI_COMM_WORLD, &requests[2]);
            MPI_Waitall(3, requests, statuses);
        });
        CHECK_EQ(got, (check_rank + 1) % check_size);
        CHECK(requests[2] == MPI_REQUEST_NULL);
        MPI_Allreduce_init(in, out, count, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
        for (int start = 0; start < 3; start++)
            tells([&] {
                MPI_Start(&requests[0]);
                MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            });
        MPI_Request_free(&requests[0]);
        all_is_well();
    }
    MPI_Type_free(&pair);
    MPI_Op_free(&ops[0]);
    MPI_Op_free(&ops[1]);
}

static bool quiet;

static int copying(MPI_Comm, int, void *, void *, void *, int *)
{
    throw Thrown(5);
}

static int deleting(MPI_Comm, int, void *, void *)
{
    if (!quiet)
        throw Thrown(6);
    return MPI_SUCCESS;
}

static int copying_type(MPI_Datatype, int, void *, void *, void *, int *)
{
    throw Thrown(7);
}

static int deleting_type(MPI_Datatype, int, void *, void *)
{
    if (!quiet)
        throw Thrown(8);
    return MPI_SUCCESS;
}

static void attribute_functions_throw()
{
    MPI_Comm comm, copy;
    MPI_Request request;
    int key, flag;
    void *value;
    quiet = false;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(copying, deleting, &key, nullptr);
    MPI_Comm_set_attr(comm, key, &key);
    THROWS(5, MPI_Comm_dup(comm, &copy));
    CHECK(copy == MPI_COMM_NULL);
    THROWS(5, MPI_Comm_idup(comm, &copy, &request));
    THROWS(6, MPI_Comm_set_attr(comm, key, nullptr));
    THROWS(6, MPI_Comm_delete_attr(comm, key));
    THROWS(6, MPI_Comm_free(&comm));
    MPI_Comm_get_attr(comm, key, &value, &flag);
    CHECK(flag && value == &key);
    quiet = true;
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    MPI_Datatype type, other;
    quiet = false;
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_create_keyval(copying_type, deleting_type, &key, nullptr);
    MPI_Type_set_attr(type, key, &key);
    THROWS(7, MPI_Type_dup(type, &other));
    THROWS(8, MPI_Type_set_attr(type, key, nullptr));
    THROWS(8, MPI_Type_delete_attr(type, key));
    THROWS(8, MPI_Type_free(&type));
    quiet = true;
    MPI_Type_free(&type);
    MPI_Type_free_keyval(&key);
    all_is_well();
}

/* Which of the functions of a generalised request throws. */
static int odd;

static int query(void *, MPI_Status *status)
{
    if (odd == 0)
        throw Thrown(9);
    MPI_Status_set_elements(status, MPI_INT, 1);
    return MPI_SUCCESS;
}

static int release(void *)
{
    if (odd == 1)
        throw Thrown(9);
    return MPI_SUCCESS;
}

static int cancel(void *, int)
{
    if (odd == 2)
        throw Thrown(9);
    return MPI_SUCCESS;
}

static void functions_of_generalised_requests_throw()
{
    MPI_Request request, other;
    MPI_Status status;
    int flag;
    for (odd = 0; odd < 2; odd++) {
        MPI_Grequest_start(query, release, cancel, nullptr, &request);
        MPI_Grequest_complete(request);
        THROWS(9, MPI_Wait(&request, &status));
        CHECK(request == MPI_REQUEST_NULL);
        MPI_Grequest_start(query, release, cancel, nullptr, &request);
        MPI_Grequest_complete(request);
        THROWS(9, MPI_Waitall(1, &request, &status));
    }
    odd = 1;
    MPI_Grequest_start(query, release, cancel, nullptr, &request);
    other = request;
    MPI_Request_free(&request);
    THROWS(9, MPI_Grequest_complete(other));
    odd = 2;
    MPI_Grequest_start(query, release, cancel, nullptr, &request);
    THROWS(9, MPI_Cancel(&request));
    MPI_Grequest_complete(request);
    MPI_Wait(&request, &status);
    odd = 0;
    MPI_Grequest_start(query, release, cancel, nullptr, &request);
    MPI_Grequest_complete(request);
    THROWS(9, MPI_Request_get_status(request, &flag, &status));
    THROWS(9, MPI_Request_get_status_all(1, &request, &flag, &status));
    odd = 3;
    MPI_Wait(&request, &status);
    all_is_well();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(error_handlers_throw);
    RUN(error_handlers_jump);
    RUN(a_handler_throws_within_another);
    RUN(operations_throw);
    RUN(attribute_functions_throw);
    RUN(functions_of_generalised_requests_throw);
    int key;
    quiet = false;
    MPI_Comm_create_keyval(copying, deleting, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
    THROWS(6, MPI_Finalize());
    quiet = true;
    return check_end();
}
