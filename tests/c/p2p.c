/* Point-to-point: modes, nonblocking, order, wildcards, probes, persistent, completion calls, PROC_NULL, cancel.
 * ranks: 1 2 3 5 */
#include "check.h"

/* Around the usual switches of protocol: empty, inline, eager, rendezvous, pipelined. */
static const int SIZES[] = {0, 1, 8, 63, 64, 65, 500, 1024, 4095, 8192, 16385, 65536, 65537, 300001, 2000003};
enum { NSIZES = sizeof SIZES / sizeof *SIZES, LARGEST = 2000003, ROUNDS = 20 };
static unsigned char *out, *in;
static int right, left;

typedef int send_call(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void ring_with(send_call *send)
{
    for (int i = 0; i < NSIZES; i++) {
        MPI_Request req[2];
        MPI_Status status[2];
        int count;
        check_fill(out, (size_t)SIZES[i], (size_t)(check_rank + i));
        memset(in, 0, (size_t)SIZES[i] + 1);
        MPI_Irecv(in, SIZES[i], MPI_BYTE, left, i, MPI_COMM_WORLD, &req[0]);
        send(out, SIZES[i], MPI_BYTE, right, i, MPI_COMM_WORLD, &req[1]);
        MPI_Waitall(2, req, status);
        CHECK(req[0] == MPI_REQUEST_NULL && req[1] == MPI_REQUEST_NULL);
        CHECK_EQ(status[0].MPI_SOURCE, left);
        CHECK_EQ(status[0].MPI_TAG, i);
        MPI_Get_count(&status[0], MPI_BYTE, &count);
        CHECK_EQ(count, SIZES[i]);
        CHECK(check_same(in, (size_t)SIZES[i], (size_t)(left + i)));
        CHECK_EQ(in[SIZES[i]], 0);
    }
}

static void isend_reaches_at_every_size(void) { ring_with(MPI_Isend); }
static void issend_reaches_at_every_size(void) { ring_with(MPI_Issend); }

static void ibsend_reaches_at_every_size(void)
{
    int room = LARGEST + MPI_BSEND_OVERHEAD, back_len;
    void *buffer = check_alloc((size_t)room), *back;
    MPI_Buffer_attach(buffer, room);
    for (int i = 0; i < NSIZES; i++) {
        MPI_Request req;
        check_fill(out, (size_t)SIZES[i], (size_t)(check_rank + i));
        MPI_Irecv(in, SIZES[i], MPI_BYTE, left, i, MPI_COMM_WORLD, &req);
        MPI_Bsend(out, SIZES[i], MPI_BYTE, right, i, MPI_COMM_WORLD);
        memset(out, 255, (size_t)SIZES[i]); /* the send must not look at it any more */
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK(check_same(in, (size_t)SIZES[i], (size_t)(left + i)));
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Buffer_flush();
    }
    MPI_Buffer_detach(&back, &back_len);
    CHECK(back == buffer);
    CHECK_EQ(back_len, room);
    free(buffer);
}

static void ready_sends_find_their_receives(void)
{
    for (int i = 0; i < NSIZES; i++) {
        MPI_Request req;
        check_fill(out, (size_t)SIZES[i], (size_t)(check_rank + i));
        MPI_Irecv(in, SIZES[i], MPI_BYTE, left, 5, MPI_COMM_WORLD, &req);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Rsend(out, SIZES[i], MPI_BYTE, right, 5, MPI_COMM_WORLD);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK(check_same(in, (size_t)SIZES[i], (size_t)(left + i)));
    }
}

static void blocking_pairs_exchange_unexpected_messages(void)
{
    if (check_size < 2 || check_rank > 1)
        return;
    for (int i = 0; i < NSIZES; i++) {
        if (check_rank == 0) {
            check_fill(out, (size_t)SIZES[i], (size_t)i);
            MPI_Send(out, SIZES[i], MPI_BYTE, 1, 2 * i, MPI_COMM_WORLD);
            MPI_Ssend(out, SIZES[i], MPI_BYTE, 1, 2 * i + 1, MPI_COMM_WORLD);
        } else {
            double until = MPI_Wtime() + 0.001;
            while (MPI_Wtime() < until)
                ;
            MPI_Recv(in, LARGEST, MPI_BYTE, 0, 2 * i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(check_same(in, (size_t)SIZES[i], (size_t)i));
            MPI_Recv(in, LARGEST, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(check_same(in, (size_t)SIZES[i], (size_t)i));
        }
    }
}

static void sendrecv_goes_round(void)
{
    MPI_Status status;
    for (int i = 0; i < NSIZES; i++) {
        int count;
        check_fill(out, (size_t)SIZES[i], (size_t)(check_rank * 3 + i));
        MPI_Sendrecv(out, SIZES[i], MPI_BYTE, right, 7, in, LARGEST, MPI_BYTE, left, 7, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQ(count, SIZES[i]);
        CHECK(check_same(in, (size_t)SIZES[i], (size_t)(left * 3 + i)));
        MPI_Sendrecv_replace(in, SIZES[i], MPI_BYTE, left, 8, right, 8, MPI_COMM_WORLD, &status);
        CHECK(check_same(in, (size_t)SIZES[i], (size_t)(check_rank * 3 + i)));
    }
}

static void isendrecv_completes_both_halves(void)
{
    MPI_Request req;
    int mine = check_rank, other = -1;
    MPI_Isendrecv(&mine, 1, MPI_INT, right, 1, &other, 1, MPI_INT, left, 1, MPI_COMM_WORLD, &req);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    CHECK_EQ(other, left);
    MPI_Isendrecv_replace(&mine, 1, MPI_INT, right, 2, left, 2, MPI_COMM_WORLD, &req);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    CHECK_EQ(mine, left);
}

/* Two messages of one sender match in the order they were sent, whatever their sizes and the receive's wildcards. */
static void messages_of_one_sender_do_not_overtake(void)
{
    enum { COUNT = 300 };
    MPI_Request *req = check_alloc((size_t)COUNT * sizeof *req);
    unsigned char **sent = check_alloc((size_t)COUNT * sizeof *sent);
    for (int i = 0; i < COUNT; i++) {
        int bytes = SIZES[i % (NSIZES - 1)] + 4;
        sent[i] = check_alloc((size_t)bytes);
        memcpy(sent[i], &i, 4);
        MPI_Isend(sent[i], bytes, MPI_BYTE, right, i % 3, MPI_COMM_WORLD, &req[i]);
        if (i % 50 == 49 || i == COUNT - 1) {
            for (int j = i / 50 * 50; j <= i; j++) {
                int got;
                MPI_Status status;
                MPI_Recv(in, LARGEST, MPI_BYTE, j % 2 ? MPI_ANY_SOURCE : left, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
                memcpy(&got, in, 4);
                CHECK_EQ(got, j);
                CHECK_EQ(status.MPI_TAG, j % 3);
            }
        }
    }
    MPI_Waitall(COUNT, req, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++)
        free(sent[i]);
    free(sent);
    free(req);
}

static void any_source_takes_each_message_once(void)
{
    enum { EACH = 50 };
    if (check_rank != 0) {
        for (int i = 0; i < EACH; i++) {
            int value = check_rank * 1000 + i;
            MPI_Send(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
        }
        return;
    }
    int *seen = check_alloc((size_t)check_size * sizeof *seen);
    memset(seen, 0, (size_t)check_size * sizeof *seen);
    for (int i = 0; i < EACH * (check_size - 1); i++) {
        int value;
        MPI_Status status;
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK_EQ(value, status.MPI_SOURCE * 1000 + seen[status.MPI_SOURCE]);
        CHECK_EQ(status.MPI_TAG, seen[status.MPI_SOURCE]);
        seen[status.MPI_SOURCE]++;
    }
    for (int r = 1; r < check_size; r++)
        CHECK_EQ(seen[r], EACH);
    free(seen);
}

/* Posted receives: specific, any-source, any-tag and both; the oldest that fits must win. */
static void oldest_posted_receive_wins(void)
{
    int got[4] = {-1, -1, -1, -1}, value[4] = {10, 11, 12, 13};
    MPI_Request req[4];
    MPI_Status status[4];
    MPI_Irecv(&got[0], 1, MPI_INT, left, 2, MPI_COMM_WORLD, &req[0]);
    MPI_Irecv(&got[1], 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &req[1]);
    MPI_Irecv(&got[2], 1, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD, &req[2]);
    MPI_Irecv(&got[3], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &req[3]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&value[0], 1, MPI_INT, right, 3, MPI_COMM_WORLD); /* only any-tag: request 2 */
    MPI_Send(&value[1], 1, MPI_INT, right, 1, MPI_COMM_WORLD); /* request 1 */
    MPI_Send(&value[2], 1, MPI_INT, right, 1, MPI_COMM_WORLD); /* request 3, since 1 and 2 are gone */
    MPI_Send(&value[3], 1, MPI_INT, right, 2, MPI_COMM_WORLD); /* request 0 */
    MPI_Waitall(4, req, status);
    CHECK_EQ(got[2], 10);
    CHECK_EQ(got[1], 11);
    CHECK_EQ(got[3], 12);
    CHECK_EQ(got[0], 13);
    CHECK_EQ(status[3].MPI_TAG, 1);
    CHECK_EQ(status[1].MPI_SOURCE, left);
}

static void probe_tells_size_and_leaves_the_message(void)
{
    MPI_Status status;
    MPI_Request req;
    for (int i = 0; i < NSIZES; i++) {
        int count, flag = 0;
        check_fill(out, (size_t)SIZES[i], (size_t)i);
        MPI_Isend(out, SIZES[i], MPI_BYTE, right, i, MPI_COMM_WORLD, &req);
        if (i % 2) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        } else {
            while (!flag)
                MPI_Iprobe(left, i, MPI_COMM_WORLD, &flag, &status);
        }
        CHECK_EQ(status.MPI_SOURCE, left);
        CHECK_EQ(status.MPI_TAG, i);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQ(count, SIZES[i]);
        MPI_Recv(in, count, MPI_BYTE, left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(check_same(in, (size_t)count, (size_t)i));
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    }
    int flag = 1;
    MPI_Iprobe(MPI_ANY_SOURCE, 12345, MPI_COMM_WORLD, &flag, &status);
    CHECK(!flag);
}

static void matched_probe_takes_the_message_away(void)
{
    MPI_Status status;
    MPI_Message message;
    MPI_Request req[2];
    for (int i = 0; i < NSIZES; i++) {
        int flag = 0, count;
        check_fill(out, (size_t)SIZES[i], (size_t)i);
        MPI_Isend(out, SIZES[i], MPI_BYTE, right, 40 + i, MPI_COMM_WORLD, &req[0]);
        if (i % 2)
            MPI_Mprobe(left, 40 + i, MPI_COMM_WORLD, &message, &status);
        else
            while (!flag)
                MPI_Improbe(MPI_ANY_SOURCE, 40 + i, MPI_COMM_WORLD, &flag, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQ(count, SIZES[i]);
        MPI_Iprobe(left, 40 + i, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
        if (i % 3) {
            MPI_Mrecv(in, count, MPI_BYTE, &message, &status);
        } else {
            MPI_Imrecv(in, count, MPI_BYTE, &message, &req[1]);
            MPI_Wait(&req[1], &status);
        }
        CHECK(message == MPI_MESSAGE_NULL);
        CHECK_EQ(status.MPI_SOURCE, left);
        CHECK(check_same(in, (size_t)count, (size_t)i));
        MPI_Wait(&req[0], MPI_STATUS_IGNORE);
    }
    message = MPI_MESSAGE_NULL;
    MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    MPI_Mrecv(in, 1, MPI_BYTE, &message, &status);
    CHECK_EQ(status.MPI_SOURCE, MPI_PROC_NULL);
}

static void persistent_requests_start_again(void)
{
    MPI_Request req[2];
    int value, got = -1;
    MPI_Recv_init(&got, 1, MPI_INT, left, 9, MPI_COMM_WORLD, &req[0]);
    MPI_Send_init(&value, 1, MPI_INT, right, 9, MPI_COMM_WORLD, &req[1]);
    for (int i = 0; i < ROUNDS; i++) {
        value = check_rank * 100 + i;
        if (i % 2) {
            MPI_Startall(2, req);
        } else {
            MPI_Start(&req[1]);
            MPI_Start(&req[0]);
        }
        MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
        CHECK(req[0] != MPI_REQUEST_NULL);
        CHECK_EQ(got, left * 100 + i);
    }
    int flag = 0; /* inactive: complete at once, with an empty status */
    MPI_Status status;
    MPI_Test(&req[0], &flag, &status);
    CHECK(flag);
    CHECK_EQ(status.MPI_SOURCE, MPI_ANY_SOURCE);
    CHECK_EQ(status.MPI_TAG, MPI_ANY_TAG);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);
    CHECK(req[0] == MPI_REQUEST_NULL);
    MPI_Ssend_init(&value, 1, MPI_INT, right, 9, MPI_COMM_WORLD, &req[1]);
    MPI_Recv_init(&got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &req[0]);
    value = check_rank + 5;
    MPI_Startall(2, req);
    MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
    CHECK_EQ(got, left + 5);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);
}

static void completion_calls_report_each_request_once(void)
{
    enum { COUNT = 12 };
    MPI_Request req[COUNT], send[COUNT];
    MPI_Status status[COUNT];
    int got[COUNT], value[COUNT], index, indices[COUNT], outcount, flag, seen[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        MPI_Irecv(&got[i], 1, MPI_INT, left, i, MPI_COMM_WORLD, &req[i]);
        value[i] = i * i;
    }
    MPI_Testany(COUNT, req, &index, &flag, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = COUNT - 1; i >= 0; i--)
        MPI_Isend(&value[i], 1, MPI_INT, right, i, MPI_COMM_WORLD, &send[i]);
    for (int i = 0; i < 4; i++) {
        MPI_Waitany(COUNT, req, &index, &status[0]);
        CHECK(index >= 0 && index < COUNT);
        CHECK_EQ(status[0].MPI_TAG, index);
        seen[index]++;
    }
    for (int left_over = 4; left_over > 0;) {
        MPI_Testsome(COUNT, req, &outcount, indices, status);
        CHECK(outcount != MPI_UNDEFINED);
        for (int i = 0; i < outcount; i++)
            seen[indices[i]]++;
        left_over -= outcount;
    }
    for (outcount = 0; outcount != MPI_UNDEFINED;) {
        MPI_Waitsome(COUNT, req, &outcount, indices, status);
        for (int i = 0; outcount != MPI_UNDEFINED && i < outcount; i++) {
            CHECK_EQ(status[i].MPI_TAG, indices[i]);
            seen[indices[i]]++;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(seen[i], 1);
        CHECK_EQ(got[i], i * i);
    }
    MPI_Waitany(COUNT, req, &index, &status[0]);
    CHECK_EQ(index, MPI_UNDEFINED);
    for (flag = 0; !flag;)
        MPI_Testall(COUNT, send, &flag, MPI_STATUSES_IGNORE);
    MPI_Testall(COUNT, send, &flag, MPI_STATUSES_IGNORE);
    CHECK(flag);
}

/* Of requests that are over at once the first is the one, in each set anew. */
static void of_several_over_at_once_the_first_is_found(void)
{
    enum { COUNT = 5 };
    MPI_Request send[COUNT];
    int value = 7, got, index, flag;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            MPI_Isend(&value, 1, MPI_INT, 0, i, MPI_COMM_SELF, &send[i]);
        for (int i = 0; i < COUNT; i++)
            MPI_Recv(&got, 1, MPI_INT, 0, i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        MPI_Waitany(COUNT, send, &index, MPI_STATUS_IGNORE);
        CHECK_EQ(index, 0);
        MPI_Testany(COUNT, send, &index, &flag, MPI_STATUS_IGNORE);
        CHECK(flag);
        CHECK_EQ(index, 1);
        MPI_Waitall(COUNT, send, MPI_STATUSES_IGNORE);
    }
}

static void request_status_can_be_asked_without_freeing(void)
{
    MPI_Request req, sent;
    MPI_Status status;
    int value = check_rank, got = -1, flag = 0;
    MPI_Irecv(&got, 1, MPI_INT, left, 3, MPI_COMM_WORLD, &req);
    MPI_Isend(&value, 1, MPI_INT, right, 3, MPI_COMM_WORLD, &sent);
    while (!flag)
        MPI_Request_get_status(req, &flag, &status);
    CHECK(req != MPI_REQUEST_NULL);
    CHECK_EQ(status.MPI_SOURCE, left);
    CHECK_EQ(got, left);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
}

static void proc_null_completes_at_once(void)
{
    MPI_Status status;
    MPI_Request req;
    int value = 42, count = -1;
    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    CHECK_EQ(value, 42);
    CHECK_EQ(status.MPI_SOURCE, MPI_PROC_NULL);
    CHECK_EQ(status.MPI_TAG, MPI_ANY_TAG);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK_EQ(count, 0);
    MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &req);
    MPI_Wait(&req, &status);
    CHECK_EQ(status.MPI_SOURCE, MPI_PROC_NULL);
}

static void receives_can_be_cancelled(void)
{
    MPI_Request req;
    MPI_Status status;
    int value = 7, flag = 0;
    MPI_Irecv(&value, 1, MPI_INT, left, 555, MPI_COMM_WORLD, &req);
    MPI_Cancel(&req);
    MPI_Wait(&req, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &req);
    MPI_Cancel(&req);
    MPI_Wait(&req, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
}

static void truncation_is_an_error_and_the_next_message_is_sound(void)
{
    static const int sizes[] = {64, 100000};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        MPI_Request req[2];
        check_fill(out, (size_t)sizes[i], 1);
        memset(in, 0, (size_t)sizes[i]);
        MPI_Isend(out, sizes[i], MPI_BYTE, right, 0, comm, &req[0]);
        MPI_Isend(out, 16, MPI_BYTE, right, 0, comm, &req[1]);
        MPI_Status which = {.MPI_SOURCE = -9, .MPI_TAG = -9};
        CHECK_CLASS(MPI_Recv(in, sizes[i] / 2, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &which), MPI_ERR_TRUNCATE);
        CHECK_EQ(which.MPI_SOURCE, left);
        CHECK_EQ(which.MPI_TAG, 0);
        CHECK_EQ(in[sizes[i] / 2], 0);
        CHECK_EQ(MPI_Recv(in, 16, MPI_BYTE, left, 0, comm, MPI_STATUS_IGNORE), MPI_SUCCESS);
        CHECK(check_same(in, 16, 1));
        MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
    }
    MPI_Comm_free(&comm);
}

/* Whether its message was there before the receive or came after it: whoever starts one cannot know. */
static void a_receive_that_is_too_small_fails_where_it_is_waited_for(void)
{
    static const int sizes[] = {2, 64, 20000, 70000, 1000000};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        for (int how = 0; how < 4; how++) {
            int early = how & 1, persistent = how & 2, room = sizes[i] - sizes[i] / 3 - 1;
            MPI_Request send, recv = MPI_REQUEST_NULL;
            MPI_Status status = {.MPI_SOURCE = -9, .MPI_TAG = -9};
            MPI_Isend(out, sizes[i], MPI_BYTE, right, how, comm, &send);
            if (early)
                MPI_Probe(left, how, comm, MPI_STATUS_IGNORE);
            if (persistent) {
                MPI_Recv_init(in, room, MPI_BYTE, left, how, comm, &recv);
                CHECK_EQ(MPI_Start(&recv), MPI_SUCCESS);
            } else
                CHECK_EQ(MPI_Irecv(in, room, MPI_BYTE, left, how, comm, &recv), MPI_SUCCESS);
            CHECK(recv != MPI_REQUEST_NULL);
            CHECK_CLASS(MPI_Wait(&recv, &status), MPI_ERR_TRUNCATE);
            CHECK_EQ(status.MPI_SOURCE, left);
            CHECK_EQ(status.MPI_TAG, how);
            if (persistent)
                MPI_Request_free(&recv);
            CHECK(recv == MPI_REQUEST_NULL);
            CHECK_EQ(MPI_Wait(&send, MPI_STATUS_IGNORE), MPI_SUCCESS);
        }
    MPI_Comm_free(&comm);
}

static void bad_arguments_are_refused_by_class(void)
{
    MPI_Comm comm;
    MPI_Request req;
    int value = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Send(&value, 1, MPI_INT, check_size, 0, comm), MPI_ERR_RANK);
    CHECK_CLASS(MPI_Send(&value, -1, MPI_INT, 0, 0, comm), MPI_ERR_COUNT);
    CHECK_CLASS(MPI_Send(&value, 1, MPI_INT, 0, -5, comm), MPI_ERR_TAG);
    CHECK_CLASS(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, comm), MPI_ERR_TYPE);
    CHECK_CLASS(MPI_Irecv(&value, 1, MPI_INT, -77, 0, comm, &req), MPI_ERR_RANK);
    MPI_Comm_free(&comm);
}

static int general_queries, general_frees;

static int query_general(void *extra, MPI_Status *status)
{
    general_queries++;
    return MPI_Status_set_elements(status, MPI_INT, *(int *)extra);
}

static int free_general(void *extra)
{
    (void)extra;
    general_frees++;
    return MPI_SUCCESS;
}

static int cancel_general(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

/* The program's own copy of the handle is good until the request was both freed and completed. */
static void a_generalized_request_may_be_freed_before_it_is_completed(void)
{
    int three = 3;
    MPI_Request request, copy;
    general_queries = general_frees = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Grequest_start(query_general, free_general, cancel_general, &three, &request);
    copy = request;
    CHECK_EQ(MPI_Request_free(&request), MPI_SUCCESS);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK_EQ(general_frees, 0);
    CHECK_EQ(MPI_Grequest_complete(copy), MPI_SUCCESS);
    CHECK_EQ(general_frees, 1);
    CHECK_CLASS(MPI_Grequest_complete(copy), MPI_ERR_REQUEST);
    MPI_Grequest_start(query_general, free_general, cancel_general, &three, &request);
    copy = request;
    CHECK_EQ(MPI_Grequest_complete(request), MPI_SUCCESS);
    CHECK_EQ(MPI_Request_free(&request), MPI_SUCCESS);
    CHECK_EQ(general_frees, 2);
    CHECK_CLASS(MPI_Grequest_complete(copy), MPI_ERR_REQUEST);
    CHECK_EQ(general_queries, 0);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    out = check_alloc(LARGEST + 1);
    in = check_alloc(LARGEST + 1);
    right = (check_rank + 1) % check_size;
    left = (check_rank + check_size - 1) % check_size;
    RUN(isend_reaches_at_every_size);
    RUN(issend_reaches_at_every_size);
    RUN(ibsend_reaches_at_every_size);
    RUN(ready_sends_find_their_receives);
    RUN(blocking_pairs_exchange_unexpected_messages);
    RUN(sendrecv_goes_round);
    RUN(isendrecv_completes_both_halves);
    RUN(messages_of_one_sender_do_not_overtake);
    RUN(any_source_takes_each_message_once);
    RUN(oldest_posted_receive_wins);
    RUN(probe_tells_size_and_leaves_the_message);
    RUN(matched_probe_takes_the_message_away);
    RUN(persistent_requests_start_again);
    RUN(completion_calls_report_each_request_once);
    RUN(of_several_over_at_once_the_first_is_found);
    RUN(request_status_can_be_asked_without_freeing);
    RUN(proc_null_completes_at_once);
    RUN(receives_can_be_cancelled);
    RUN(truncation_is_an_error_and_the_next_message_is_sound);
    RUN(a_receive_that_is_too_small_fails_where_it_is_waited_for);
    RUN(a_generalized_request_may_be_freed_before_it_is_completed);
    RUN(bad_arguments_are_refused_by_class);
    free(out);
    free(in);
    return check_end();
}
