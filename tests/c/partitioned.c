/* Partitioned communication: different partitions on both sides, any order, early arrival, matching, errors.
 * ranks: 1 2 3
 * limit: 120 */
#include "check.h"

enum { MOST = 4096, ROUNDS = 3, CASES = 60 };

static unsigned long long seed = 12345;

/* The same numbers on every rank. */
static int below(int n)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((seed >> 33) % (unsigned)n);
}

static int value(int round, int who, int i)
{
    return round * 7919 + who * 1000003 + i * 17 + 5;
}

static void shuffle(int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = below(i + 1), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

/* A divisor of n. */
static int divisor(int n)
{
    int d;
    do
        d = 1 + below(n < 32 ? n : 32);
    while (n % d);
    return d;
}

/* Ints with gaps or without; *stride is the distance of two in the buffer. */
static MPI_Datatype ints(int with_gaps, int *stride)
{
    MPI_Datatype type;
    *stride = with_gaps ? 3 : 1;
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)(*stride * (int)sizeof(int)), &type);
    MPI_Type_commit(&type);
    return type;
}

/* Everybody sends to the next and receives from the one before, with random partitions, types, orders and ways to mark them. */
static void random_partitions(void)
{
    int next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    int *out = check_alloc(3 * MOST * sizeof(int)), *in = check_alloc(3 * MOST * sizeof(int)), order[MOST];
    for (int c = 0; c < CASES; c++) {
        int all = (1 + below(12)) * (1 + below(12)) * (c % 10 ? 1 : 28), sends = divisor(all), receives = divisor(all), so, ri;
        MPI_Datatype stype = ints(below(2), &so), rtype = ints(below(2), &ri);
        MPI_Request req[2];
        MPI_Status status[2];
        MPI_Psend_init(out, sends, all / sends, stype, next, c, MPI_COMM_WORLD, MPI_INFO_NULL, &req[0]);
        MPI_Precv_init(in, receives, all / receives, rtype, before, c, MPI_COMM_WORLD, MPI_INFO_NULL, &req[1]);
        MPI_Type_free(&stype);
        MPI_Type_free(&rtype);
        for (int round = 0; round < ROUNDS; round++) {
            int way = below(4), got, flag;
            for (int i = 0; i < all; i++) {
                out[i * so] = value(round, check_rank, i);
                in[i * ri] = -1;
            }
            shuffle(order, sends);
            MPI_Startall(2, req);
            if (way == 0)
                MPI_Pready_range(0, sends - 1, req[0]);
            else if (way == 1)
                MPI_Pready_list(sends, order, req[0]);
            else
                for (int i = 0; i < sends; i++)
                    MPI_Pready(order[i], req[0]);
            if (way == 3)
                for (int i = 0; i < receives; i++)
                    for (flag = 0; !flag;) {
                        MPI_Parrived(req[1], i, &flag);
                        for (int k = i * (all / receives); flag && k < (i + 1) * (all / receives); k++)
                            CHECK_EQ(in[k * ri], value(round, before, k));
                    }
            if (below(2)) {
                MPI_Waitall(2, req, status);
            } else {
                MPI_Wait(&req[0], &status[0]);
                MPI_Wait(&req[1], &status[1]);
            }
            MPI_Get_count(&status[1], MPI_INT, &got);
            CHECK_EQ(got, all);
            CHECK_EQ(status[1].MPI_SOURCE, before);
            CHECK_EQ(status[1].MPI_TAG, c);
            for (int i = 0; i < all; i++)
                CHECK_EQ(in[i * ri], value(round, before, i));
            MPI_Parrived(req[1], 0, &flag);
            CHECK_EQ(flag, 1);
        }
        MPI_Request_free(&req[0]);
        MPI_Request_free(&req[1]);
    }
    free(out);
    free(in);
}

/* A partition arrives before the others are ready: each is marked when the one before was confirmed. */
static void early_arrival(void)
{
    enum { PARTS = 8, COUNT = 40000 };
    if (check_size < 2 || check_rank > 1)
        return;
    int *data = check_alloc(PARTS * COUNT * sizeof(int)), token = 0;
    MPI_Request req;
    if (check_rank == 0)
        MPI_Psend_init(data, PARTS, COUNT, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    else
        MPI_Precv_init(data, PARTS, COUNT, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    for (int round = 0; round < 2; round++) {
        MPI_Start(&req);
        for (int p = PARTS - 1; p >= 0; p--) {
            if (check_rank == 0) {
                for (int i = 0; i < COUNT; i++)
                    data[p * COUNT + i] = value(round, p, i);
                MPI_Pready(p, req);
                MPI_Recv(&token, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                int flag = 0;
                while (!flag)
                    MPI_Parrived(req, p, &flag);
                CHECK_EQ(data[p * COUNT + COUNT - 1], value(round, p, COUNT - 1));
                if (p > 0) {
                    MPI_Parrived(req, p - 1, &flag);
                    CHECK_EQ(flag, 0);
                }
                MPI_Send(&token, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
            }
        }
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&req);
    free(data);
}

/* Operations of one tag match in the order of their initialisation, whatever the order of their starts. */
static void order_of_initialisation(void)
{
    enum { OPS = 6 };
    int next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    int out[OPS], in[OPS], order[OPS];
    MPI_Request send[OPS], recv[OPS];
    for (int i = 0; i < OPS; i++) {
        MPI_Psend_init(&out[i], 1, 1, MPI_INT, next, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &send[i]);
        MPI_Precv_init(&in[i], 1, 1, MPI_INT, before, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &recv[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        shuffle(order, OPS);
        for (int i = 0; i < OPS; i++) {
            int op = order[i];
            out[op] = value(round, check_rank, op);
            MPI_Start(&send[op]);
            MPI_Pready(0, send[op]);
        }
        shuffle(order, OPS);
        for (int i = 0; i < OPS; i++)
            MPI_Start(&recv[order[i]]);
        MPI_Waitall(OPS, recv, MPI_STATUSES_IGNORE);
        MPI_Waitall(OPS, send, MPI_STATUSES_IGNORE);
        for (int i = 0; i < OPS; i++)
            CHECK_EQ(in[i], value(round, before, i));
    }
    for (int i = 0; i < OPS; i++) {
        MPI_Request_free(&send[i]);
        MPI_Request_free(&recv[i]);
    }
}

/* A receive that is freed before anything was announced takes no send, and neither does a send that is freed. */
static void freed_before_start(void)
{
    int out[2] = {1, 2}, in[2] = {0, 0};
    MPI_Request req, other;
    for (int who = 0; who < 2; who++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (check_rank == 0 && check_size > 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (who == 1) {
                MPI_Psend_init(in, 1, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &other);
                MPI_Request_free(&other);
            }
            MPI_Psend_init(out, 2, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Start(&req);
            MPI_Pready_range(0, 1, req);
            MPI_Wait(&req, MPI_STATUS_IGNORE);
            MPI_Request_free(&req);
        } else if (check_rank == 1) {
            if (who == 0) {
                MPI_Precv_init(out, 1, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &other);
                MPI_Request_free(&other);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Precv_init(in, 2, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
            MPI_Start(&req);
            MPI_Wait(&req, MPI_STATUS_IGNORE);
            CHECK_EQ(in[1], 2);
            MPI_Request_free(&req);
        } else if (check_size > 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
}

/* No elements, no partner, oneself. */
static void nothing_and_nobody(void)
{
    int in[4] = {0}, out[4] = {4, 3, 2, 1}, flag;
    MPI_Request req[2];
    MPI_Status status;
    MPI_Psend_init(out, 4, 0, MPI_INT, check_rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &req[0]);
    MPI_Precv_init(in, 2, 0, MPI_INT, check_rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &req[1]);
    MPI_Startall(2, req);
    MPI_Pready_range(0, 3, req[0]);
    MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);

    MPI_Psend_init(out, 4, 1, MPI_INT, check_rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &req[0]);
    MPI_Precv_init(in, 1, 4, MPI_INT, check_rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &req[1]);
    MPI_Startall(2, req);
    MPI_Pready_range(0, 3, req[0]);
    MPI_Wait(&req[0], MPI_STATUS_IGNORE);
    MPI_Wait(&req[1], MPI_STATUS_IGNORE);
    CHECK_EQ(in[3], 1);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);

    MPI_Psend_init(out, 2, 2, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &req[0]);
    MPI_Precv_init(in, 2, 2, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &req[1]);
    MPI_Startall(2, req);
    MPI_Pready(1, req[0]);
    MPI_Parrived(req[1], 1, &flag);
    CHECK_EQ(flag, 1);
    MPI_Wait(&req[1], &status);
    CHECK_EQ(status.MPI_SOURCE, MPI_PROC_NULL);
    MPI_Wait(&req[0], MPI_STATUS_IGNORE);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);
}

static void errors(void)
{
    int in[4], out[4] = {0}, flag = 0, list[] = {0, 2, 0};
    MPI_Comm comm;
    MPI_Request req[2], null = MPI_REQUEST_NULL, plain;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Psend_init(out, -1, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &req[0]), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Psend_init(out, 1, -1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &req[0]), MPI_ERR_COUNT);
    CHECK_CLASS(MPI_Psend_init(out, 1, 1, MPI_INT, 7, 0, comm, MPI_INFO_NULL, &req[0]), MPI_ERR_RANK);
    CHECK_CLASS(MPI_Precv_init(in, 1, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_INFO_NULL, &req[0]), MPI_ERR_RANK);
    CHECK_CLASS(MPI_Precv_init(in, 1, 1, MPI_INT, 0, MPI_ANY_TAG, comm, MPI_INFO_NULL, &req[0]), MPI_ERR_TAG);
    MPI_Psend_init(out, 4, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &req[0]);
    MPI_Precv_init(in, 4, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &req[1]);
    CHECK_CLASS(MPI_Pready(0, req[0]), MPI_ERR_REQUEST);
    MPI_Parrived(req[1], 0, &flag);
    CHECK_EQ(flag, 1);
    flag = 0;
    MPI_Parrived(null, 0, &flag);
    CHECK_EQ(flag, 1);
    MPI_Startall(2, req);
    CHECK_CLASS(MPI_Pready(4, req[0]), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Pready(-1, req[0]), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Pready_range(3, 1, req[0]), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Pready_list(3, list, req[0]), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Pready(0, req[1]), MPI_ERR_REQUEST);
    CHECK_CLASS(MPI_Pready(0, null), MPI_ERR_REQUEST);
    CHECK_CLASS(MPI_Parrived(req[1], 4, &flag), MPI_ERR_ARG);
    CHECK_CLASS(MPI_Parrived(req[0], 0, &flag), MPI_ERR_REQUEST);
    CHECK_CLASS(MPI_Start(&req[0]), MPI_ERR_REQUEST);
    MPI_Pready_range(0, 3, req[0]);
    CHECK_CLASS(MPI_Pready(2, req[0]), MPI_ERR_ARG);
    MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);
    MPI_Irecv(in, 1, MPI_INT, 0, 0, comm, &plain);
    CHECK_CLASS(MPI_Pready(0, plain), MPI_ERR_REQUEST);
    MPI_Cancel(&plain);
    MPI_Wait(&plain, MPI_STATUS_IGNORE);
    /* Both sides are told that their buffers differ. */
    MPI_Psend_init(out, 4, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &req[0]);
    MPI_Precv_init(in, 3, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &req[1]);
    MPI_Startall(2, req);
    MPI_Pready_range(0, 3, req[0]);
    CHECK_CLASS(MPI_Wait(&req[0], MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    CHECK_CLASS(MPI_Wait(&req[1], MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    MPI_Request_free(&req[0]);
    MPI_Request_free(&req[1]);
    MPI_Comm_free(&comm);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Receives that nobody sends to, freed and not, do not keep the program from ending. */
static void left_open(void)
{
    static int in[4];
    MPI_Request req;
    MPI_Precv_init(in, 4, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    MPI_Request_free(&req);
    MPI_Precv_init(in, 4, 1, MPI_INT, 0, 78, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(random_partitions);
    RUN(early_arrival);
    RUN(order_of_initialisation);
    RUN(freed_before_start);
    RUN(nothing_and_nobody);
    RUN(errors);
    RUN(left_open);
    return check_end();
}
