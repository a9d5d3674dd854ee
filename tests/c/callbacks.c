/* What callbacks of the program are given: the handles that the program passed, in every call that takes a callback.
 * ranks: 1 2 3 4
 * limit: 60 */
#include "check.h"

/* The type that the program passed to the reduction under way, its extent, and how often an operation was called. */
static MPI_Datatype passed;
static MPI_Aint wanted_extent;
static long calls;

static void sees(MPI_Datatype type)
{
    MPI_Aint lb = -1, extent = -1;
    CHECK(type == passed);
    /* Also of a type that the program has freed meanwhile. */
    CHECK_EQ(MPI_Type_get_extent(type, &lb, &extent), MPI_SUCCESS);
    CHECK(lb == 0 && extent == wanted_extent);
    calls++;
}

static void add_longs(const long *in, long *inout, long long count)
{
    for (long long i = 0; i < count * wanted_extent / (MPI_Aint)sizeof *in; i++)
        inout[i] += in[i];
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    sees(*type);
    add_longs(in, inout, *count);
}

static void add_large(void *in, void *inout, MPI_Count *count, MPI_Datatype *type)
{
    sees(*type);
    add_longs(in, inout, *count);
}

enum { MOST = 3000, RANKS_MOST = 8 };
static long in[2 * MOST * RANKS_MOST], out[2 * MOST * RANKS_MOST];

/* A new type that the next reductions are passed; between it and the one before lies another's handle. */
static MPI_Datatype new_pair(void)
{
    MPI_Datatype other, pair;
    MPI_Type_contiguous(3, MPI_INT, &other);
    MPI_Type_contiguous(2, MPI_LONG, &pair);
    MPI_Type_commit(&pair);
    MPI_Type_free(&other);
    passed = pair;
    wanted_extent = 2 * (MPI_Aint)sizeof(long);
    return pair;
}

/* Completes a nonblocking reduction. A type that is freed while it is open may not become another's handle. */
static void completes(MPI_Request *request, MPI_Datatype *type, int frees)
{
    MPI_Datatype other[3];
    if (frees)
        MPI_Type_free(type);
    for (int i = 0; i < 3; i++)
        MPI_Type_contiguous(5, MPI_INT, &other[i]);
    CHECK_EQ(MPI_Wait(request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    for (int i = 0; i < 3; i++)
        MPI_Type_free(&other[i]);
    if (!frees)
        MPI_Type_free(type);
}

/* The same for a persistent one, which is started twice. */
static void starts(MPI_Request *request, MPI_Datatype *type, int frees)
{
    if (frees)
        MPI_Type_free(type);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(MPI_Start(request), MPI_SUCCESS);
        CHECK_EQ(MPI_Wait(request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
    MPI_Request_free(request);
    if (!frees)
        MPI_Type_free(type);
}

/* All forms of one reduction. */
#define FORMS(name, ...)                                                                                               \
    do {                                                                                                               \
        MPI_Request request;                                                                                           \
        type = new_pair();                                                                                             \
        CHECK_EQ(MPI_##name(__VA_ARGS__, MPI_COMM_WORLD), MPI_SUCCESS);                                                \
        MPI_Type_free(&type);                                                                                          \
        for (int frees = 0; frees < 2; frees++) {                                                                      \
            type = new_pair();                                                                                         \
            CHECK_EQ(MPI_I##name(__VA_ARGS__, MPI_COMM_WORLD, &request), MPI_SUCCESS);                                 \
            completes(&request, &type, frees);                                                                         \
            type = new_pair();                                                                                         \
            CHECK_EQ(MPI_P##name(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, &request), MPI_SUCCESS);                  \
            starts(&request, &type, frees);                                                                            \
        }                                                                                                              \
    } while (0)

/* One prefix for the persistent forms, and the names of the nonblocking ones, as `FORMS` makes them. */
#define MPI_PAllreduce MPI_Allreduce_init
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_PAllreduce_c MPI_Allreduce_init_c
#define MPI_IAllreduce_c MPI_Iallreduce_c
#define MPI_PReduce MPI_Reduce_init
#define MPI_IReduce MPI_Ireduce
#define MPI_PReduce_c MPI_Reduce_init_c
#define MPI_IReduce_c MPI_Ireduce_c
#define MPI_PScan MPI_Scan_init
#define MPI_IScan MPI_Iscan
#define MPI_PScan_c MPI_Scan_init_c
#define MPI_IScan_c MPI_Iscan_c
#define MPI_PExscan MPI_Exscan_init
#define MPI_IExscan MPI_Iexscan
#define MPI_PExscan_c MPI_Exscan_init_c
#define MPI_IExscan_c MPI_Iexscan_c
#define MPI_PReduce_scatter MPI_Reduce_scatter_init
#define MPI_IReduce_scatter MPI_Ireduce_scatter
#define MPI_PReduce_scatter_c MPI_Reduce_scatter_init_c
#define MPI_IReduce_scatter_c MPI_Ireduce_scatter_c
#define MPI_PReduce_scatter_block MPI_Reduce_scatter_block_init
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block
#define MPI_PReduce_scatter_block_c MPI_Reduce_scatter_block_init_c
#define MPI_IReduce_scatter_block_c MPI_Ireduce_scatter_block_c

static void all_reductions(MPI_Op op, int count)
{
    MPI_Datatype type;
    int counts[RANKS_MOST];
    MPI_Count large[RANKS_MOST];
    for (int i = 0; i < RANKS_MOST; i++)
        counts[i] = count, large[i] = count;
    calls = 0;
    FORMS(Allreduce, in, out, count, type, op);
    FORMS(Allreduce_c, in, out, count, type, op);
    FORMS(Reduce, in, out, count, type, op, check_size - 1);
    FORMS(Reduce_c, in, out, count, type, op, 0);
    FORMS(Scan, in, out, count, type, op);
    FORMS(Scan_c, in, out, count, type, op);
    FORMS(Exscan, in, out, count, type, op);
    FORMS(Exscan_c, in, out, count, type, op);
    FORMS(Reduce_scatter, in, out, counts, type, op);
    FORMS(Reduce_scatter_c, in, out, large, type, op);
    FORMS(Reduce_scatter_block, in, out, count, type, op);
    FORMS(Reduce_scatter_block_c, in, out, count, type, op);
    type = new_pair();
    CHECK_EQ(MPI_Reduce_local(in, out, count, type, op), MPI_SUCCESS);
    CHECK_EQ(MPI_Reduce_local_c(in, out, count, type, op), MPI_SUCCESS);
    MPI_Type_free(&type);
    CHECK(calls >= 2 && (check_size == 1 || calls > 10));
}

static void operations_get_the_datatype_that_was_passed(void)
{
    MPI_Op ops[4];
    MPI_Op_create(add, 1, &ops[0]);
    MPI_Op_create(add, 0, &ops[1]);
    MPI_Op_create_c(add_large, 1, &ops[2]);
    MPI_Op_create_c(add_large, 0, &ops[3]);
    for (int i = 0; i < 4; i++) {
        all_reductions(ops[i], 1);
        all_reductions(ops[i], MOST);
        /* A predefined type is named by the program's own word for it, too. */
        passed = MPI_LONG, wanted_extent = sizeof(long);
        MPI_Allreduce(in, out, 3, MPI_LONG, ops[i], MPI_COMM_WORLD);
        MPI_Reduce_local(in, out, 3, MPI_LONG, ops[i]);
        MPI_Op_free(&ops[i]);
    }
}

static void a_type_freed_under_an_open_reduction_is_freed_once(void)
{
    MPI_Errhandler before;
    MPI_Datatype type = new_pair(), copy = type;
    MPI_Request request;
    MPI_Op op;
    int size = -1;
    MPI_Op_create(add, 1, &op);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &before);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Allreduce_init(in, out, 1, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    CHECK_EQ(MPI_Type_free(&type), MPI_SUCCESS);
    type = copy;
    CHECK_CLASS(MPI_Type_free(&type), MPI_ERR_TYPE);
    MPI_Request_free(&request);
    CHECK_CLASS(MPI_Type_size(copy, &size), MPI_ERR_TYPE);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, before);
    MPI_Errhandler_free(&before);
    MPI_Op_free(&op);
}

/* The object that attribute functions are to be given, and how often they were called. */
static MPI_Comm comm_wanted;
static MPI_Datatype type_wanted;
static int copies, deletions;

static int copy_of_comm(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
    (void)key;
    CHECK(comm == comm_wanted && extra == &copies);
    copies++, *(void **)copy = value, *flag = 1;
    return MPI_SUCCESS;
}

static int deletion_on_comm(MPI_Comm comm, int key, void *value, void *extra)
{
    int size = 0;
    (void)key, (void)value;
    CHECK(comm == comm_wanted && extra == &copies);
    /* The communicator is still there. */
    CHECK_EQ(MPI_Comm_size(comm, &size), MPI_SUCCESS);
    deletions++;
    return MPI_SUCCESS;
}

static int copy_of_type(MPI_Datatype type, int key, void *extra, void *value, void *copy, int *flag)
{
    (void)key;
    CHECK(type == type_wanted && extra == &copies);
    copies++, *(void **)copy = value, *flag = 1;
    return MPI_SUCCESS;
}

static int deletion_on_type(MPI_Datatype type, int key, void *value, void *extra)
{
    int size = 0;
    (void)key, (void)value;
    CHECK(type == type_wanted && extra == &copies);
    CHECK_EQ(MPI_Type_size(type, &size), MPI_SUCCESS);
    deletions++;
    return MPI_SUCCESS;
}

static void attribute_functions_get_the_communicator(void)
{
    MPI_Comm made[6], parent;
    MPI_Request request;
    int key;
    copies = deletions = 0;
    MPI_Comm_create_keyval(copy_of_comm, deletion_on_comm, &key, &copies);
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    comm_wanted = parent;
    MPI_Comm_set_attr(parent, key, &key);
    MPI_Comm_set_attr(parent, key, &key);
    CHECK_EQ(deletions, 1);
    MPI_Comm_dup(parent, &made[0]);
    MPI_Comm_dup_with_info(parent, MPI_INFO_NULL, &made[1]);
    MPI_Comm_idup(parent, &made[2], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_idup_with_info(parent, MPI_INFO_NULL, &made[3], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    comm_wanted = made[0];
    MPI_Comm_dup(made[0], &made[4]);
    comm_wanted = made[4];
    MPI_Comm_dup(made[4], &made[5]);
    CHECK_EQ(copies, 6);
    for (int i = 0; i < 6; i++) {
        comm_wanted = made[i];
        if (i % 3 == 2)
            MPI_Comm_delete_attr(made[i], key);
        if (i % 3 == 1)
            MPI_Comm_disconnect(&made[i]);
        else
            MPI_Comm_free(&made[i]);
    }
    CHECK_EQ(deletions, 7);
    comm_wanted = parent;
    MPI_Comm_free(&parent);
    comm_wanted = MPI_COMM_WORLD;
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    comm_wanted = parent;
    MPI_Comm_free(&parent);
    CHECK_EQ(deletions, 10);
    /* Deleted at the end of all, where the result of this program is told already: the count would be too late. */
    MPI_Comm_free_keyval(&key);
}

static void attribute_functions_get_the_datatype(void)
{
    MPI_Datatype made, copy, again;
    int key;
    copies = deletions = 0;
    MPI_Type_create_keyval(copy_of_type, deletion_on_type, &key, &copies);
    made = new_pair();
    type_wanted = made;
    MPI_Type_set_attr(made, key, &key);
    MPI_Type_set_attr(made, key, &key);
    CHECK_EQ(deletions, 1);
    MPI_Type_dup(made, &copy);
    type_wanted = copy;
    MPI_Type_dup(copy, &again);
    CHECK_EQ(copies, 2);
    type_wanted = again;
    MPI_Type_delete_attr(again, key);
    MPI_Type_free(&again);
    type_wanted = copy;
    MPI_Type_free(&copy);
    type_wanted = made;
    MPI_Type_free(&made);
    CHECK_EQ(deletions, 4);
    type_wanted = MPI_DOUBLE;
    MPI_Type_set_attr(MPI_DOUBLE, key, &key);
    MPI_Type_dup(MPI_DOUBLE, &copy);
    MPI_Type_delete_attr(MPI_DOUBLE, key);
    type_wanted = copy;
    MPI_Type_free(&copy);
    CHECK_EQ(deletions, 6);
    MPI_Type_free_keyval(&key);
}

static int handled;

static void on_comm(MPI_Comm *comm, int *code, ...)
{
    int size = 0, class = 0;
    CHECK(*comm == comm_wanted);
    CHECK_EQ(MPI_Comm_size(*comm, &size), MPI_SUCCESS);
    CHECK_EQ(MPI_Error_class(*code, &class), MPI_SUCCESS);
    CHECK(class != MPI_SUCCESS);
    handled++;
}

static MPI_Session session_wanted;

static void on_session(MPI_Session *session, int *code, ...)
{
    (void)code;
    CHECK(*session == session_wanted);
    handled++;
}

static void error_handlers_get_the_communicator(void)
{
    MPI_Errhandler handler, before;
    MPI_Request request;
    MPI_Comm comm;
    int two[2] = {1, 2}, one, code;
    handled = 0;
    MPI_Comm_create_errhandler(on_comm, &handler);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    comm_wanted = comm;
    CHECK_CLASS(MPI_Send(two, 1, MPI_INT, 5, 0, comm), MPI_ERR_RANK);
    MPI_Irecv(&one, 1, MPI_INT, 0, 0, comm, &request);
    MPI_Send(two, 2, MPI_INT, 0, 0, comm);
    CHECK_CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    CHECK_EQ(handled, 3);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    comm_wanted = MPI_COMM_WORLD;
    code = MPI_Send(two, 1, MPI_INT, check_size, 0, MPI_COMM_WORLD);
    CHECK_CLASS(code, MPI_ERR_RANK);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &before);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    comm_wanted = MPI_COMM_SELF;
    CHECK_CLASS(MPI_Type_free(&(MPI_Datatype){MPI_INT}), MPI_ERR_TYPE);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, before);
    CHECK_EQ(handled, 5);
    /* A request that outlives its communicator's handle: the handler is given that handle, and can use it. */
    comm_wanted = comm;
    MPI_Recv_init(&one, 1, MPI_INT, 0, 1, comm, &request);
    MPI_Send(two, 2, MPI_INT, 0, 1, comm);
    MPI_Start(&request);
    MPI_Comm_free(&comm);
    CHECK_CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    CHECK_EQ(handled, 6);
    MPI_Request_free(&request);
    MPI_Errhandler_free(&handler);
}

static void error_handlers_get_the_session(void)
{
    MPI_Errhandler handler;
    MPI_Session session;
    MPI_Info info;
    int count = -1;
    char name[8];
    handled = 0;
    MPI_Session_create_errhandler(on_session, &handler);
    MPI_Session_init(MPI_INFO_NULL, handler, &session);
    session_wanted = session;
    MPI_Session_call_errhandler(session, MPI_ERR_OTHER);
    CHECK_CLASS(MPI_Session_get_pset_info(session, "nowhere", &info), MPI_ERR_ARG);
    count = sizeof name;
    CHECK_CLASS(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 1000, &count, name), MPI_ERR_ARG);
    CHECK_EQ(handled, 3);
    MPI_Session_finalize(&session);
    MPI_Errhandler_free(&handler);
}

/* The functions of generalised requests, which are given what the program passed along, and the status. */
static int queries, frees_of_request, cancels;

static int query(void *extra, MPI_Status *status)
{
    CHECK(extra == &queries);
    MPI_Status_set_elements(status, MPI_INT, 7);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 3, status->MPI_TAG = 4;
    queries++;
    return MPI_SUCCESS;
}

static int release(void *extra)
{
    CHECK(extra == &queries);
    frees_of_request++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    CHECK(extra == &queries && !complete);
    cancels++;
    return MPI_SUCCESS;
}

static void functions_of_generalised_requests_get_their_state(void)
{
    MPI_Request request;
    MPI_Status status;
    int count = 0;
    queries = frees_of_request = cancels = 0;
    MPI_Grequest_start(query, release, cancel, &queries, &request);
    MPI_Cancel(&request);
    MPI_Grequest_complete(request);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 7 && status.MPI_SOURCE == 3 && status.MPI_TAG == 4);
    CHECK(queries == 1 && frees_of_request == 1 && cancels == 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(operations_get_the_datatype_that_was_passed);
    RUN(a_type_freed_under_an_open_reduction_is_freed_once);
    RUN(attribute_functions_get_the_communicator);
    RUN(attribute_functions_get_the_datatype);
    RUN(error_handlers_get_the_communicator);
    RUN(error_handlers_get_the_session);
    RUN(functions_of_generalised_requests_get_their_state);
    return check_end();
}
