/* Calls that are given no place for what they give (a null pointer for a request, a flag, a handle): they are refused before anything happens, so nothing
 * was sent, received, taken or ended, and the same call with a place goes on as if the first had not been.
 * ranks: 1 2 4
 * limit: 60 */
#include "check.h"

enum { LONG = 100000, LENGTHS = 4 };

static const int lengths[LENGTHS] = {1, 3000, 20000, LONG};
static MPI_Comm comm;
static int *in, *out, next, before;

static void fill(int count, int seed)
{
    for (int i = 0; i < count; i++)
        in[i] = seed + i, out[i] = -1;
}

static void has_come(int count, int seed)
{
    CHECK_EQ(out[0], seed);
    CHECK_EQ(out[count - 1], seed + count - 1);
}

/* Nothing is there that nobody sent. */
static void nothing_more(void)
{
    int flag;
    MPI_Barrier(comm);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
    CHECK_EQ(flag, 0);
    /* Nobody goes on before all have looked. */
    MPI_Barrier(comm);
}

static void takes(int count)
{
    MPI_Recv(out, count, MPI_INT, before, 5, comm, MPI_STATUS_IGNORE);
    has_come(count, before * 7);
}

#define SENDS(call)                                                                                                    \
    do {                                                                                                               \
        MPI_Request request;                                                                                           \
        fill(count, check_rank * 7);                                                                                   \
        CHECK_CLASS(call(in, count, type, next, 5, comm, NULL), MPI_ERR_ARG);                                          \
        nothing_more();                                                                                                \
        CHECK_EQ(call(in, count, type, next, 5, comm, &request), MPI_SUCCESS);                                         \
        takes(count);                                                                                                  \
        CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);                                                  \
        nothing_more();                                                                                                \
    } while (0)

static void sends(MPI_Datatype type)
{
    for (int turn = 0; turn < 2 * LENGTHS; turn++) {
        int count = lengths[turn % LENGTHS];
        SENDS(MPI_Isend);
        SENDS(MPI_Isend_c);
        SENDS(MPI_Issend);
        SENDS(MPI_Ibsend);
    }
}

static void nothing_is_sent(void)
{
    int room = 2 * LONG * sizeof *in + MPI_BSEND_OVERHEAD;
    void *buffer = check_alloc(room), *back = NULL;
    MPI_Buffer_attach(buffer, room);
    sends(MPI_INT);
    CHECK_CLASS(MPI_Buffer_detach(&back, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Buffer_detach(NULL, &room), MPI_ERR_ARG);
    CHECK_EQ(MPI_Buffer_detach(&back, &room), MPI_SUCCESS);
    CHECK(back == buffer);
    free(buffer);
}

/* A receive that was refused takes no message, and no memory is written but that of the one that was meant. */
static void nothing_is_received(void)
{
    int *other = check_alloc(sizeof *other * LONG);
    for (int turn = 0; turn < 2 * LENGTHS; turn++) {
        int count = lengths[turn % LENGTHS];
        MPI_Request requests[2];
        fill(count, check_rank * 7);
        memset(other, 0, sizeof *other * LONG);
        CHECK_CLASS(MPI_Irecv(other, count, MPI_INT, before, 5, comm, NULL), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Irecv_c(other, count, MPI_INT, MPI_ANY_SOURCE, 5, comm, NULL), MPI_ERR_ARG);
        CHECK_EQ(MPI_Irecv(out, count, MPI_INT, before, 5, comm, &requests[0]), MPI_SUCCESS);
        CHECK_EQ(MPI_Isend(in, count, MPI_INT, next, 5, comm, &requests[1]), MPI_SUCCESS);
        CHECK_EQ(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
        has_come(count, before * 7);
        CHECK(other[0] == 0 && other[count - 1] == 0);
        CHECK_CLASS(MPI_Isendrecv(in, count, MPI_INT, next, 5, other, count, MPI_INT, before, 5, comm, NULL), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Isendrecv_replace(other, count, MPI_INT, next, 5, before, 5, comm, NULL), MPI_ERR_ARG);
        nothing_more();
    }
    free(other);
}

/* A message that no place was given for stays where it is. */
static void nothing_is_taken(void)
{
    for (int turn = 0; turn < LENGTHS; turn++) {
        int count = lengths[turn], flag = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Request request, receive;
        fill(count, check_rank * 7);
        MPI_Isend(in, count, MPI_INT, next, 5, comm, &request);
        MPI_Probe(before, 5, comm, MPI_STATUS_IGNORE);
        CHECK_CLASS(MPI_Mprobe(before, 5, comm, NULL, MPI_STATUS_IGNORE), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Improbe(before, 5, comm, NULL, &message, MPI_STATUS_IGNORE), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Improbe(before, 5, comm, &flag, NULL, MPI_STATUS_IGNORE), MPI_ERR_ARG);
        MPI_Improbe(before, 5, comm, &flag, &message, MPI_STATUS_IGNORE);
        CHECK_EQ(flag, 1);
        if (flag) {
            CHECK_CLASS(MPI_Imrecv(out, count, MPI_INT, &message, NULL), MPI_ERR_ARG);
            CHECK(message != MPI_MESSAGE_NULL);
            CHECK_EQ(MPI_Imrecv(out, count, MPI_INT, &message, &receive), MPI_SUCCESS);
            CHECK_EQ(MPI_Wait(&receive, MPI_STATUS_IGNORE), MPI_SUCCESS);
            has_come(count, before * 7);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        nothing_more();
    }
}

/* A request of which nobody could hear that it was over is still there. */
static void nothing_ends(void)
{
    for (int turn = 0; turn < 8; turn++) {
        int flag = 0, index, count, value = -1;
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(&value, 1, MPI_INT, before, 5, comm, &request);
        MPI_Send(&check_rank, 1, MPI_INT, next, 5, comm);
        while (!flag)
            MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
        CHECK_CLASS(MPI_Test(&request, NULL, &status), MPI_ERR_ARG);
        CHECK(request != MPI_REQUEST_NULL);
        CHECK_CLASS(MPI_Testall(1, &request, NULL, &status), MPI_ERR_ARG);
        CHECK(request != MPI_REQUEST_NULL);
        CHECK_CLASS(MPI_Testany(1, &request, &index, NULL, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Testany(1, &request, NULL, &flag, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Waitany(1, &request, NULL, &status), MPI_ERR_ARG);
        CHECK(request != MPI_REQUEST_NULL);
        CHECK_CLASS(MPI_Testsome(1, &request, NULL, &index, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Testsome(1, &request, &count, NULL, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Waitsome(1, &request, NULL, &index, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Waitsome(1, &request, &count, NULL, &status), MPI_ERR_ARG);
        CHECK(request != MPI_REQUEST_NULL);
        CHECK_EQ(MPI_Wait(&request, &status), MPI_SUCCESS);
        CHECK_EQ(status.MPI_SOURCE, before);
        CHECK_EQ(value, before);
        CHECK_CLASS(MPI_Wait(NULL, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Test(NULL, &flag, &status), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Start(NULL), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Cancel(NULL), MPI_ERR_ARG);
        CHECK_CLASS(MPI_Request_free(NULL), MPI_ERR_ARG);
        CHECK_EQ(MPI_Waitsome(0, NULL, &count, NULL, MPI_STATUSES_IGNORE), MPI_SUCCESS);
        CHECK_EQ(count, MPI_UNDEFINED);
    }
}

static void nothing_is_begun(void)
{
    int one = 1, sum = 0;
    MPI_Comm other;
    MPI_Request request;
    void *memory;
    CHECK_CLASS(MPI_Send_init(in, 1, MPI_INT, next, 5, comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Ssend_init(in, 1, MPI_INT, next, 5, comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Bsend_init(in, 1, MPI_INT, next, 5, comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Rsend_init(in, 1, MPI_INT, next, 5, comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Recv_init(out, 1, MPI_INT, before, 5, comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Ibcast(in, 1, MPI_INT, 0, comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Bcast_init(in, 1, MPI_INT, 0, comm, MPI_INFO_NULL, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Ibarrier(comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Comm_idup(comm, &other, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Comm_idup(comm, NULL, &request), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Comm_split(comm, 0, 0, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Comm_iflush_buffer(comm, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Type_contiguous(2, MPI_INT, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, NULL, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Alloc_mem(100, MPI_INFO_NULL, NULL), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Comm_rank(comm, NULL), MPI_ERR_ARG);
    CHECK_EQ(MPI_Alloc_mem(100, MPI_INFO_NULL, &memory), MPI_SUCCESS);
    MPI_Free_mem(memory);
    CHECK_EQ(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request), MPI_SUCCESS);
    CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    CHECK_EQ(sum, check_size);
    CHECK_EQ(MPI_Comm_dup(comm, &other), MPI_SUCCESS);
    MPI_Comm_free(&other);
    nothing_more();
}

/* The argument is named. */
static void the_argument_is_named(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(MPI_Isend(in, 1, MPI_INT, next, 5, comm, NULL), text, &len);
    CHECK(strstr(text, "request is a null pointer") != NULL);
    MPI_Error_string(MPI_Comm_idup(comm, NULL, NULL), text, &len);
    CHECK(strstr(text, "newcomm is a null pointer") != NULL);
    nothing_more();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    in = check_alloc(sizeof *in * LONG), out = check_alloc(sizeof *out * LONG);
    next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RUN(nothing_is_sent);
    RUN(nothing_is_received);
    RUN(nothing_is_taken);
    RUN(nothing_ends);
    RUN(nothing_is_begun);
    RUN(the_argument_is_named);
    MPI_Comm_free(&comm);
    free(in), free(out);
    return check_end();
}
