/* Threads with communicators of their own, which are in shards of their own: all kinds of messages and waits in each, and waits about several at once.
 * ranks: 1 2 4
 * limit: 120 */
#include "check.h"
#include "threads.h"

enum { ROUNDS = 60, LARGEST = 400000, MANY = 300000, PROBED = 9999, TAGS = 40 };

static MPI_Comm own_comm[THREADS], spread_comm;
static int right, left;

static void check_bytes(const unsigned char *bytes, int count, int value)
{
    for (int k = 0; k < count; k += 61)
        CHECK_EQ(bytes[k], value & 255);
}

static void await_two(MPI_Request *req, int way)
{
    int index, flag = 0;
    switch (way % 4) {
    case 0: MPI_Waitall(2, req, MPI_STATUSES_IGNORE); break;
    case 1:
        MPI_Waitany(2, req, &index, MPI_STATUS_IGNORE);
        MPI_Waitany(2, req, &index, MPI_STATUS_IGNORE);
        break;
    case 2:
        while (!flag)
            MPI_Testall(2, req, &flag, MPI_STATUSES_IGNORE);
        break;
    default:
        MPI_Wait(&req[1], MPI_STATUS_IGNORE);
        MPI_Wait(&req[0], MPI_STATUS_IGNORE);
    }
}

static void *exchange(void *argument)
{
    static const int counts[] = {1, 8, 100, 4000, 20000, 70000, LARGEST};
    int t = (int)(long)argument;
    unsigned char *out = check_alloc(LARGEST), *in = check_alloc(LARGEST);
    for (int i = 0; i < ROUNDS; i++) {
        int count = counts[(i + t) % 7], one = check_rank, sum = -1;
        MPI_Request req[2];
        memset(out, i + t + check_rank, count);
        MPI_Irecv(in, count, MPI_BYTE, left, i, own_comm[t], &req[0]);
        MPI_Isend(out, count, MPI_BYTE, right, i, own_comm[t], &req[1]);
        await_two(req, i);
        check_bytes(in, count, i + t + left);
        if (i % 5 == 0) {
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, own_comm[t]);
            CHECK_EQ(sum, check_size * (check_size - 1) / 2);
        }
        if (i % 7 == 0) {
            MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, own_comm[t], req);
            MPI_Wait(req, MPI_STATUS_IGNORE);
            CHECK_EQ(sum, check_size * (check_size - 1) / 2);
        }
        if (i % 13 == 0) {
            memset(out, check_rank == i % check_size ? i : 0, MANY);
            MPI_Ibcast(out, MANY, MPI_BYTE, i % check_size, own_comm[t], req);
            MPI_Wait(req, MPI_STATUS_IGNORE);
            check_bytes(out, MANY, i);
        }
    }
    free(in), free(out);
    return NULL;
}

static void threads_exchange_in_their_own_shards(void) { each(exchange); }

static void *probe(void *argument)
{
    int t = (int)(long)argument, count;
    char out[50] = {0}, in[50];
    MPI_Status status;
    MPI_Message message;
    MPI_Request req;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Isend(out, 50, MPI_BYTE, right, PROBED, own_comm[t], &req);
        MPI_Probe(left, MPI_ANY_TAG, own_comm[t], &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQ(count, 50);
        MPI_Mprobe(MPI_ANY_SOURCE, status.MPI_TAG, own_comm[t], &message, &status);
        MPI_Mrecv(in, 50, MPI_BYTE, &message, &status);
        CHECK_EQ(status.MPI_SOURCE, left);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        MPI_Irecv(in, 50, MPI_BYTE, left, i, own_comm[t], &req);
        MPI_Cancel(&req);
        MPI_Wait(&req, &status);
        MPI_Test_cancelled(&status, &count);
        CHECK(count);
    }
    return NULL;
}

static void threads_probe_and_cancel_in_their_own_shards(void) { each(probe); }

/* One thread with messages in all shards, which wait for each other across ranks. */
static void one_thread_waits_for_messages_of_all_shards(void)
{
    unsigned char *in[THREADS], *out[THREADS];
    for (int t = 0; t < THREADS; t++)
        in[t] = check_alloc(MANY), out[t] = check_alloc(MANY);
    for (int i = 0; i < 12; i++) {
        MPI_Request req[2 * THREADS];
        int index;
        for (int t = 0; t < THREADS; t++) {
            memset(out[t], t + check_rank, MANY);
            MPI_Irecv(in[t], MANY, MPI_BYTE, left, 0, own_comm[t], &req[t]);
        }
        for (int t = 0; t < THREADS; t++)
            MPI_Isend(out[t], MANY, MPI_BYTE, right, 0, own_comm[t], &req[THREADS + t]);
        if (i % 2)
            MPI_Barrier(own_comm[i % THREADS]);
        for (int k = 0; i % 3 && k < 2 * THREADS; k++) {
            if (i % 3 == 1)
                MPI_Waitany(2 * THREADS, req, &index, MPI_STATUS_IGNORE);
            else
                MPI_Wait(&req[2 * THREADS - 1 - k], MPI_STATUS_IGNORE);
        }
        MPI_Waitall(2 * THREADS, req, MPI_STATUSES_IGNORE);
        for (int t = 0; t < THREADS; t++)
            check_bytes(in[t], MANY, t + left);
    }
    for (int t = 0; t < THREADS; t++)
        free(in[t]), free(out[t]);
}

/* The receiver waits in one shard; that message comes only when it has taken a large one in another. */
static void a_wait_in_one_shard_advances_the_others(void)
{
    char *large = check_alloc(LARGEST), small = 0;
    MPI_Request req;
    for (int i = 0; i < 20; i++) {
        MPI_Comm far = own_comm[i % THREADS], near = i % 2 ? MPI_COMM_WORLD : own_comm[(i + 1) % THREADS];
        memset(large, i, LARGEST);
        if (check_rank % 2 == 0 && check_rank + 1 < check_size) {
            MPI_Ssend(large, LARGEST, MPI_BYTE, check_rank + 1, i, far);
            MPI_Send(&small, 1, MPI_BYTE, check_rank + 1, i, near);
        } else if (check_rank % 2) {
            MPI_Irecv(large, LARGEST, MPI_BYTE, check_rank - 1, i, far, &req);
            MPI_Recv(&small, 1, MPI_BYTE, check_rank - 1, i, near, MPI_STATUS_IGNORE);
            MPI_Wait(&req, MPI_STATUS_IGNORE);
            CHECK_EQ(large[LARGEST - 1], i);
        }
    }
    free(large);
}

static void *by_tag(void *argument)
{
    int t = (int)(long)argument, out, in[4];
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request req[4];
        for (int k = 0; k < 4; k++)
            MPI_Irecv(&in[k], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : left, t * 4 + k, spread_comm, &req[k]);
        for (int k = 3; k >= 0; k--) {
            out = i * 100 + t * 4 + k;
            MPI_Send(&out, 1, MPI_INT, right, t * 4 + k, spread_comm);
        }
        MPI_Waitall(4, req, MPI_STATUSES_IGNORE);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(in[k], i * 100 + t * 4 + k);
    }
    return NULL;
}

static void tags_of_one_communicator_are_in_many_shards(void)
{
    int out, in, flag;
    MPI_Status status;
    each(by_tag);
    MPI_Barrier(spread_comm);
    /* Messages of one tag keep their order. */
    for (int i = 0; i < 3 * TAGS; i++)
        MPI_Send(&i, 1, MPI_INT, right, i % TAGS, spread_comm);
    for (int tag = TAGS - 1; tag >= 0; tag--)
        for (int i = 0; i < 3; i++) {
            MPI_Recv(&in, 1, MPI_INT, left, tag, spread_comm, MPI_STATUS_IGNORE);
            CHECK_EQ(in, i * TAGS + tag);
        }
    MPI_Comm_set_errhandler(spread_comm, MPI_ERRORS_RETURN);
    /* What was promised not to be asked is refused, or there is nothing. */
    out = MPI_Iprobe(left, MPI_ANY_TAG, spread_comm, &flag, &status);
    if (out != MPI_SUCCESS)
        CHECK_CLASS(out, MPI_ERR_TAG);
    else
        CHECK(!flag);
}

/* A hint names the shard; it is kept, and communicators of one shard do not mix. */
static void a_hint_names_the_shard(void)
{
    MPI_Info info, kept;
    MPI_Comm same[2];
    char value[8] = "";
    int length = sizeof value, flag, out, in;
    MPI_Info_create(&info);
    MPI_Info_set(info, "garonne_shard", "3");
    for (int i = 0; i < 2; i++)
        MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &same[i]);
    MPI_Comm_get_info(same[0], &kept);
    MPI_Info_get_string(kept, "garonne_shard", &length, value, &flag);
    CHECK(flag && strcmp(value, "3") == 0);
    MPI_Info_free(&kept), MPI_Info_free(&info);
    for (int i = 0; i < 2; i++)
        MPI_Send((out = i + 7, &out), 1, MPI_INT, right, 0, same[i]);
    for (int i = 1; i >= 0; i--) {
        MPI_Recv(&in, 1, MPI_INT, left, 0, same[i], MPI_STATUS_IGNORE);
        CHECK_EQ(in, i + 7);
        MPI_Comm_free(&same[i]);
    }
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Info info;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    CHECK_EQ(provided, MPI_THREAD_MULTIPLE);
    right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own_comm[t]);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &spread_comm);
    MPI_Info_free(&info);
    RUN(threads_exchange_in_their_own_shards);
    RUN(threads_probe_and_cancel_in_their_own_shards);
    RUN(one_thread_waits_for_messages_of_all_shards);
    RUN(a_wait_in_one_shard_advances_the_others);
    RUN(tags_of_one_communicator_are_in_many_shards);
    RUN(a_hint_names_the_shard);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&own_comm[t]);
    MPI_Comm_free(&spread_comm);
    return check_end();
}
