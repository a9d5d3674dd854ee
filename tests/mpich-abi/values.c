/* What programs get to see of handles and numbers in the ABI of the MPICH family, where a library that converts goes wrong easily.
 * ranks: 2
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, wrong;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            wrong++; \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #what); \
        } \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static MPI_Datatype seen;

static void add(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
    seen = *datatype;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

/* User functions get the program's datatype, also after the operation was freed, in calls that end later. */
static void operations(void)
{
    int one = 1, sum = 0;
    MPI_Op op;
    MPI_Request request;
    MPI_Datatype pair;
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD));
    CHECK(sum == 2 && seen == MPI_INT);
    OK(MPI_Reduce_local(&one, &sum, 1, MPI_INTEGER, op));
    CHECK(sum == 3 && seen == MPI_INTEGER);
    seen = 0;
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT32_T, op, MPI_COMM_WORLD, &request));
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == 2 && seen == MPI_INT32_T && request == MPI_REQUEST_NULL);
    OK(MPI_Type_contiguous(1, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Allreduce(&one, &sum, 1, pair, op, MPI_COMM_WORLD));
    CHECK(seen == pair && pair < 0);
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&pair));
    CHECK(pair == MPI_DATATYPE_NULL);
    /* ScaLAPACK makes and frees an operation in each of its combine calls. */
    for (int i = 0; i < 20000; i++) {
        MPI_Op_create(add, 1, &op);
        MPI_Op_free(&op);
    }
    OK(MPI_Op_create(add, 0, &op));
    OK(MPI_Reduce_local(&one, &sum, 1, MPI_INT, op));
    OK(MPI_Op_free(&op));
    struct {
        float value;
        int at;
    } mine = { (float)rank, rank }, most = { 0, 0 };
    OK(MPI_Allreduce(&mine, &most, 1, MPI_FLOAT_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    CHECK(most.at == 1 && most.value == 1);
}

static MPI_Datatype deleted_of;
static int deleted_key, copied;

static int delete_type(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)value;
    deleted_of = type;
    deleted_key = key;
    return extra == (void *)&copied ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static int copy_comm(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)key, (void)extra;
    copied += comm == MPI_COMM_WORLD;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    int key, flag, *number, class;
    char *value;
    MPI_Comm twin;
    OK(MPI_Type_create_keyval(MPI_TYPE_DUP_FN, delete_type, &key, &copied));
    OK(MPI_Type_set_attr(MPI_INT, key, "int"));
    OK(MPI_Type_get_attr(MPI_INT, key, &value, &flag));
    CHECK(flag && strcmp(value, "int") == 0);
    OK(MPI_Type_delete_attr(MPI_INT, key));
    CHECK(deleted_of == MPI_INT && deleted_key == key);
    OK(MPI_Type_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Comm_create_keyval(copy_comm, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, "world"));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    OK(MPI_Comm_get_attr(twin, key, &value, &flag));
    CHECK(copied == 1 && flag && strcmp(value, "world") == 0);
    OK(MPI_Comm_free(&twin));
    CHECK(twin == MPI_COMM_NULL);
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    OK(MPI_Comm_free_keyval(&key));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, "again"));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    OK(MPI_Comm_get_attr(twin, key, &value, &flag));
    CHECK(flag && strcmp(value, "again") == 0);
    OK(MPI_Comm_free(&twin));
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    OK(MPI_Comm_free_keyval(&key));

    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag));
    CHECK(flag && *number >= 32767);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &number, &flag));
    CHECK(!flag || *number == MPI_PROC_NULL || *number >= 0);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &number, &flag));
    CHECK(!flag || *number == MPI_PROC_NULL || *number == MPI_ANY_SOURCE || *number >= 0);
    OK(MPI_Attr_get(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag));
    CHECK(flag && *number == MPI_ERR_LASTCODE);
    OK(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag));
    CHECK(flag && *number == class);
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Add_error_string(class, "of the program"));
    OK(MPI_Error_string(class, text, &flag));
    CHECK(strcmp(text, "of the program") == 0 && class_of(class) == class);
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    handled += *comm == MPI_COMM_SELF && class_of(*code) == MPI_ERR_RANK;
}

static void errors(void)
{
    int value = 0, code;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Request garbage = 12345;
    MPI_Errhandler own, got;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got));
    CHECK(got == MPI_ERRORS_RETURN);
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, 1000, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Recv(&value, 1, MPI_INT, 0, -2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Bcast(&value, 1, MPI_INT, 2, MPI_COMM_WORLD)) == MPI_ERR_ROOT);
    CHECK(class_of(MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    /* An unknown index of a datatype, and a handle of the standard ABI. */
    CHECK(class_of(MPI_Send(&value, 1, (MPI_Datatype)0x4c0004ff, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Send(&value, 1, (MPI_Datatype)0x205, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Allreduce(&value, &value, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD)) == MPI_ERR_OP);
    code = MPI_Wait(&garbage, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPI_ERR_REQUEST && garbage == 12345);
    OK(MPI_Error_string(code, text, &value));
    CHECK(strstr(text, "MPI_ERR_REQUEST") != NULL && (int)strlen(text) == value);
    OK(MPI_Error_string(MPI_ERR_TRUNCATE, text, &value));
    CHECK(strstr(text, "MPI_ERR_TRUNCATE") != NULL);
    CHECK(class_of(MPI_T_ERR_INVALID_INDEX) == MPI_T_ERR_INVALID_INDEX);
    /* A handler in use survives its handle. */
    OK(MPI_Comm_create_errhandler(handler, &own));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, own));
    OK(MPI_Errhandler_free(&own));
    CHECK(own == MPI_ERRHANDLER_NULL);
    MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_SELF);
    CHECK(handled == 1);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
}

static void statuses(void)
{
    int out[3] = { 1, 2, 3 }, in[3] = { 0, 0, 0 }, count, flag, other = 1 - rank;
    MPI_Status status = { .MPI_ERROR = 333 }, both[2];
    MPI_Request requests[100];
    MPI_Count large = 0;
    /* MPI_ERROR is the program's in calls that complete one operation. */
    OK(MPI_Sendrecv(out, 3, MPI_INT, other, 5, in, 3, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == other && status.MPI_TAG == 5 && status.MPI_ERROR == 333);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 3);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Recv(in, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Status_set_elements_x(&status, MPI_BYTE, ((MPI_Count)1 << 40) + 7));
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Get_elements_x(&status, MPI_BYTE, &large));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(large == ((MPI_Count)1 << 40) + 7 && flag);
    CHECK(status.count_lo == 7 && status.count_hi_and_cancelled == ((1 << 8) << 1 | 1));
    MPI_Fint fortran[5];
    MPI_Status back;
    OK(MPI_Status_c2f(&status, fortran));
    OK(MPI_Status_f2c(fortran, &back));
    CHECK(memcmp(&status, &back, sizeof back) == 0 && fortran[3] == MPI_ANY_TAG);
    CHECK(MPI_Status_c2f(MPI_STATUS_IGNORE, fortran) != MPI_SUCCESS);
    /* One of two fails: the classes are in the statuses. */
    OK(MPI_Irecv(in, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Irecv(in + 1, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Send(out, 1, MPI_INT, other, 6, MPI_COMM_WORLD));
    OK(MPI_Send(out, 2, MPI_INT, other, 7, MPI_COMM_WORLD));
    CHECK(class_of(MPI_Waitall(2, requests, both)) == MPI_ERR_IN_STATUS);
    CHECK(both[0].MPI_ERROR == MPI_SUCCESS && class_of(both[1].MPI_ERROR) == MPI_ERR_TRUNCATE);
    /* More requests than lie in place, null ones among them. */
    int many[100];
    for (int i = 0; i < 100; i++) {
        many[i] = -1;
        requests[i] = MPI_REQUEST_NULL;
        if (i % 3 != 0)
            OK(MPI_Irecv(&many[i], 1, MPI_INT, other, i, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = 0; i < 100; i++)
        if (i % 3 != 0)
            OK(MPI_Send(&i, 1, MPI_INT, other, i, MPI_COMM_WORLD));
    OK(MPI_Waitall(100, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 100; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL && many[i] == (i % 3 != 0 ? i : -1));
    OK(MPI_Waitany(100, requests, &count, &status));
    CHECK(count == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
    MPI_Message message;
    OK(MPI_Mprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Mrecv(in, 1, MPI_INT, &message, &status));
    CHECK(message == MPI_MESSAGE_NULL && status.MPI_SOURCE == MPI_PROC_NULL);
}

static void datatypes(void)
{
    int integers[32], counts[4], combiner, sizes[1] = { 8 }, distributions[1] = { MPI_DISTRIBUTE_BLOCK };
    int arguments[1] = { MPI_DISTRIBUTE_DFLT_DARG }, processes[1] = { 2 }, subsizes[1] = { 4 }, starts[1] = { 2 };
    MPI_Datatype made, parts[4], types[2] = { MPI_DOUBLE, MPI_SHORT_INT };
    MPI_Aint addresses[4], displacements[2] = { 0, 16 }, lower, upper, extent;
    int lengths[2] = { 1, 2 };
    OK(MPI_Type_create_darray(2, rank, 1, sizes, distributions, arguments, processes, MPI_ORDER_FORTRAN, MPI_INT, &made));
    OK(MPI_Type_get_envelope(made, &counts[0], &counts[1], &counts[2], &combiner));
    CHECK(combiner == MPI_COMBINER_DARRAY && counts[0] == 8 && counts[2] == 1);
    OK(MPI_Type_get_contents(made, counts[0], counts[1], counts[2], integers, addresses, parts));
    CHECK(integers[0] == 2 && integers[1] == rank && integers[3] == 8 && integers[4] == MPI_DISTRIBUTE_BLOCK);
    CHECK(integers[5] == MPI_DISTRIBUTE_DFLT_DARG && integers[6] == 2 && integers[7] == MPI_ORDER_FORTRAN);
    CHECK(parts[0] == MPI_INT);
    OK(MPI_Type_free(&made));
    OK(MPI_Type_create_subarray(1, sizes, subsizes, starts, MPI_ORDER_C, MPI_LONG_DOUBLE_INT, &made));
    OK(MPI_Type_get_contents(made, 5, 0, 1, integers, addresses, parts));
    CHECK(integers[4] == MPI_ORDER_C && parts[0] == MPI_LONG_DOUBLE_INT);
    OK(MPI_Type_free(&made));
    OK(MPI_Type_create_struct(2, lengths, displacements, types, &made));
    OK(MPI_Type_get_contents(made, 3, 2, 2, integers, addresses, parts));
    CHECK(parts[0] == MPI_DOUBLE && parts[1] == MPI_SHORT_INT && addresses[1] == 16);
    OK(MPI_Type_free(&made));
    OK(MPI_Type_get_envelope(MPI_2INT, &counts[0], &counts[1], &counts[2], &combiner));
    CHECK(combiner == MPI_COMBINER_NAMED);
    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &made));
    CHECK(made == MPI_REAL8 || made == MPI_DOUBLE || made == MPI_DOUBLE_PRECISION);
    /* Functions that MPI 3.0 removed. */
    OK(MPI_Address(integers, &extent));
    CHECK(extent == (MPI_Aint)(intptr_t)integers);
    OK(MPI_Type_struct(2, lengths, displacements, types, &made));
    OK(MPI_Type_lb(made, &lower));
    OK(MPI_Type_ub(made, &upper));
    OK(MPI_Type_extent(made, &extent));
    CHECK(lower == 0 && extent == upper - lower && upper >= 32);
    OK(MPI_Type_free(&made));
    OK(MPI_Type_hvector(2, 1, 24, MPI_INT, &made));
    OK(MPI_Type_extent(made, &extent));
    CHECK(extent == 28);
    OK(MPI_Type_free(&made));
    OK(MPI_Type_hindexed(2, lengths, displacements, MPI_INT, &made));
    OK(MPI_Type_ub(made, &upper));
    CHECK(upper == 24);
    OK(MPI_Type_free(&made));
}

static void collectives(void)
{
    int out[2] = { rank, rank + 10 }, in[2], ones[2] = { 1, 1 }, offsets[2] = { 0, sizeof(int) };
    MPI_Datatype types[2] = { MPI_INT, MPI_INT }, garbage[2] = { 77, 0x5c0000ff };
    OK(MPI_Alltoallw(out, ones, offsets, types, in, ones, offsets, types, MPI_COMM_WORLD));
    CHECK(in[0] == (rank ? 10 : 0) && in[1] == (rank ? 11 : 1));
    /* In place, the arguments of what is sent mean nothing. */
    OK(MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, garbage, out, ones, offsets, types, MPI_COMM_WORLD));
    CHECK(out[0] == in[0] && out[1] == in[1]);
    OK(MPI_Allreduce(MPI_IN_PLACE, out, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(out[0] == 10 && out[1] == 12);
    int neighbour[1] = { 1 - rank }, weight[1] = { 5 }, counts[3], found[1], weights[1];
    MPI_Comm graph;
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, neighbour, MPI_UNWEIGHTED, 1, neighbour, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &counts[0], &counts[1], &counts[2]));
    CHECK(counts[0] == 1 && counts[1] == 1 && !counts[2]);
    OK(MPI_Topo_test(graph, &counts[0]));
    CHECK(counts[0] == MPI_DIST_GRAPH);
    OK(MPI_Comm_free(&graph));
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, neighbour, weight, 1, neighbour, weight, MPI_INFO_NULL, 0, &graph));
    OK(MPI_Dist_graph_neighbors(graph, 1, found, weights, 1, found, MPI_UNWEIGHTED));
    CHECK(found[0] == 1 - rank && weights[0] == 5);
    OK(MPI_Comm_free(&graph));
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &counts[0], &counts[1], &counts[2]));
    CHECK(counts[0] == 0 && counts[2]);
    OK(MPI_Comm_free(&graph));
    MPI_Group world, other;
    int ranks[3] = { 0, MPI_PROC_NULL, 1 }, translated[3];
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &rank, &other));
    OK(MPI_Group_translate_ranks(world, 3, ranks, other, translated));
    CHECK(translated[1] == MPI_PROC_NULL && translated[rank ? 2 : 0] == 0 && translated[rank ? 0 : 2] == MPI_UNDEFINED);
    OK(MPI_Group_compare(world, other, &counts[0]));
    CHECK(counts[0] == MPI_UNEQUAL);
    OK(MPI_Group_free(&other));
    OK(MPI_Group_free(&world));
    CHECK(world == MPI_GROUP_NULL);
    OK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &counts[0]));
    CHECK(counts[0] == MPI_IDENT);
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &graph));
    OK(MPI_Comm_free(&graph));
}

/* Messages of all sizes and kinds by the same pair, on communicators that come and go. */
static void fast_paths(void)
{
    static int large[100000];
    int value, other = 1 - rank;
    for (int round = 0; round < 30; round++) {
        MPI_Comm comm;
        MPI_Status status;
        MPI_Request request;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        for (int i = 0; i < 20; i++) {
            int sent = 1000 * round + i;
            value = -1;
            OK(MPI_Irecv(&value, 1, MPI_INT, i % 2 ? other : MPI_ANY_SOURCE, i % 3 ? i : MPI_ANY_TAG, i % 5 ? comm : MPI_COMM_WORLD, &request));
            OK(MPI_Send(&sent, 1, MPI_INT, other, i, i % 5 ? comm : MPI_COMM_WORLD));
            OK(MPI_Wait(&request, &status));
            CHECK(value == sent && status.MPI_SOURCE == other && status.MPI_TAG == i);
            OK(MPI_Isend(&sent, 1, MPI_INT, rank, i, comm, &request));
            OK(MPI_Recv(&value, 1, MPI_INT, rank, i, comm, &status));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            CHECK(value == sent && status.MPI_SOURCE == rank);
            if (i == 10)
                OK(MPI_Sendrecv_replace(large, 100000, MPI_INT, other, 1, other, 1, comm, &status));
        }
        OK(MPI_Comm_free(&comm));
    }
    OK(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    /* Addresses that mean something are no buffers. */
    CHECK(MPI_Send(MPI_IN_PLACE, 1, MPI_INT, other, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
    CHECK(MPI_Recv(MPI_IN_PLACE, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS);
}

static void buffered(void)
{
    enum { MESSAGES = 10, BYTES = 100 };
    char *room, data[BYTES] = "", in[BYTES];
    /* The overhead of Intel's header, which is less than that of others. */
    int size = MESSAGES * (BYTES + 88);
    room = malloc(size);
    OK(MPI_Buffer_attach(room, size));
    for (int i = 0; i < MESSAGES; i++)
        OK(MPI_Bsend(data, BYTES, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD));
    for (int i = 0; i < MESSAGES; i++)
        OK(MPI_Recv(in, BYTES, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    void *back;
    OK(MPI_Buffer_detach(&back, &size));
    CHECK(back == room && size == MESSAGES * (BYTES + 88));
    free(room);
}

static void before_init(void)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL], key[MPI_MAX_INFO_KEY], longest[MPI_MAX_INFO_KEY];
    int flag, count;
    OK(MPI_Info_create(&info));
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    OK(MPI_Info_set(info, longest, "long"));
    OK(MPI_Info_get_nkeys(info, &count));
    OK(MPI_Info_get_nthkey(info, 0, key));
    CHECK(count == 1 && strcmp(key, longest) == 0);
    OK(MPI_Info_get(info, longest, sizeof value - 1, value, &flag));
    CHECK(flag && strcmp(value, "long") == 0);
    OK(MPI_Info_free(&info));
    CHECK(info == MPI_INFO_NULL);
}

static void names(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING], name[MPI_MAX_PROCESSOR_NAME];
    int length = -1, major, minor;
    OK(MPI_Get_library_version(version, &length));
    CHECK(strncmp(version, "MPICH Version:", 14) == 0 && strstr(version, "Garonne") && length == (int)strlen(version));
    OK(MPI_Get_processor_name(name, &length));
    CHECK(length == (int)strlen(name) && length < MPI_MAX_PROCESSOR_NAME);
    OK(MPI_Abi_get_version(&major, &minor));
    CHECK(major == -1 && minor == -1);
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0);
    OK(MPI_Type_get_name(MPI_2INT, name, &length));
    CHECK(strcmp(name, "MPI_2INT") == 0);
    CHECK((MPI_Comm_c2f)(MPI_COMM_SELF) == (MPI_Fint)MPI_COMM_SELF && (MPI_Type_f2c)(MPI_INT) == MPI_INT);
    CHECK((MPI_File_c2f)(MPI_FILE_NULL) == 0 && (MPI_File_f2c)(0) == MPI_FILE_NULL);
}

static void tools(void)
{
    int provided, count;
    CHECK(MPI_T_cvar_get_num(&count) == MPI_T_ERR_NOT_INITIALIZED);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK(provided >= MPI_THREAD_SINGLE && provided <= MPI_THREAD_MULTIPLE);
    OK(MPI_T_cvar_get_num(&count));
    MPI_T_pvar_session session;
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_cvar_get_index("no such variable", &count) == MPI_T_ERR_INVALID_NAME);
    OK(MPI_T_finalize());
}

/* MPICH's own datatype of C's _Float16: it has a size, a name, operations, and its handle comes back. */
static void half_precision(void)
{
    /* 1.5 and 3 in half precision, a sum that rounds, and infinity where there is no larger number. */
    const unsigned short mine[3] = {0x3e00, 0x6800, 0x7bff};
    unsigned short sum[3], largest[3], got[3] = {0};
    MPI_Datatype pair, inner;
    int size = 0, length = 0, integers, addresses, types, combiner;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Status status;
    OK(MPI_Type_size(MPIX_C_FLOAT16, &size));
    OK(MPI_Type_get_name(MPIX_C_FLOAT16, name, &length));
    CHECK(size == 2 && strcmp(name, "MPIX_C_FLOAT16") == 0);
    OK(MPI_Allreduce(mine, sum, 3, MPIX_C_FLOAT16, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum[0] == 0x4200 && sum[1] == 0x6c00 && sum[2] == 0x7c00);
    OK(MPI_Allreduce(mine, largest, 3, MPIX_C_FLOAT16, MPI_MAX, MPI_COMM_WORLD));
    CHECK(memcmp(mine, largest, sizeof mine) == 0);
    OK(MPI_Sendrecv(mine, 3, MPIX_C_FLOAT16, rank, 3, got, 3, MPIX_C_FLOAT16, rank, 3, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPIX_C_FLOAT16, &size));
    CHECK(size == 3 && memcmp(mine, got, sizeof mine) == 0);
    OK(MPI_Type_contiguous(2, MPIX_C_FLOAT16, &pair));
    OK(MPI_Type_get_envelope(pair, &integers, &addresses, &types, &combiner));
    CHECK(combiner == MPI_COMBINER_CONTIGUOUS && types == 1);
    OK(MPI_Type_get_contents(pair, 1, 0, 1, &size, NULL, &inner));
    CHECK(inner == MPIX_C_FLOAT16 && size == 2);
    OK(MPI_Type_free(&pair));
    CHECK(class_of(MPI_Allreduce(mine, sum, 3, MPIX_C_FLOAT16, MPI_BAND, MPI_COMM_WORLD)) == MPI_ERR_OP);
}

/* MPI_LB and MPI_UB, which MPI 3.0 removed, and which programs still have: markers win over data, and remain in types made of it. */
static void markers(void)
{
    MPI_Datatype lower = (MPI_Datatype)0x4c000010, upper = (MPI_Datatype)0x4c000011, types[] = { lower, MPI_INT, upper }, marked, both, plain;
    int lengths[] = { 1, 2, 1 }, ones[] = { 1, 1 };
    MPI_Aint places[] = { -4, 8, 40 }, beside[] = { 0, 100 }, lb, extent;
    OK(MPI_Type_create_struct(3, lengths, places, types, &marked));
    MPI_Type_get_extent(marked, &lb, &extent);
    CHECK(lb == -4 && extent == 44);
    MPI_Type_get_true_extent(marked, &lb, &extent);
    CHECK(lb == 8 && extent == 8);
    MPI_Datatype parts[] = { marked, MPI_INT };
    OK(MPI_Type_create_struct(2, ones, beside, parts, &both));
    MPI_Type_get_extent(both, &lb, &extent);
    CHECK(lb == -4 && extent == 44);
    MPI_Type_free(&both);
    parts[1] = upper;
    OK(MPI_Type_create_struct(2, ones, beside, parts, &both));
    MPI_Type_get_extent(both, &lb, &extent);
    CHECK(lb == -4 && extent == 104);
    MPI_Type_free(&both);
    MPI_Type_free(&marked);
    /* One alone, and of length 0. */
    OK(MPI_Type_create_struct(2, lengths + 1, places + 1, types + 1, &plain));
    MPI_Type_get_extent(plain, &lb, &extent);
    CHECK(lb == 8 && extent == 32);
    MPI_Type_free(&plain);
    lengths[0] = lengths[2] = 0;
    OK(MPI_Type_create_struct(3, lengths, places, types, &plain));
    MPI_Type_get_extent(plain, &lb, &extent);
    CHECK(lb == 8 && extent == 8);
    /* Two elements of it arrive as two of the plain type. */
    lengths[0] = lengths[2] = 1;
    MPI_Type_create_struct(3, lengths, places, types, &marked);
    MPI_Type_commit(&marked);
    int from[25], to[4] = { 0 };
    for (int i = 0; i < 25; i++)
        from[i] = i;
    MPI_Sendrecv(from + 1, 2, marked, 0, 0, to, 4, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    CHECK(to[0] == 3 && to[1] == 4 && to[2] == 14 && to[3] == 15);
    MPI_Type_free(&marked);
    MPI_Type_free(&plain);
}

int main(int argc, char **argv)
{
    int provided;
    before_init();
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
    CHECK(provided >= MPI_THREAD_FUNNELED && provided <= MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    operations();
    attributes();
    errors();
    statuses();
    datatypes();
    markers();
    half_precision();
    collectives();
    fast_paths();
    buffered();
    names();
    tools();
    OK(MPI_Finalize());
    return wrong != 0;
}
