/* Persistent collectives: all of them, started again and again, by each rank in an order of its own.
 * ranks: 1 2 3 4 5
 * limit: 120 */
#include "check.h"

#include <time.h>

enum { KINDS = 18, ROUNDS = 6, MOST = 40000 };

/* What rank `who` puts at `i` for rank `to` in a round. */
static unsigned value(int round, int who, int to, int i)
{
    return (unsigned)(round * 7919 + who * 1000003 + to * 10007 + i * 17 + 5);
}

static unsigned sum(int round, int to, int i)
{
    unsigned total = 0;
    for (int who = 0; who < check_size; who++)
        total += value(round, who, to, i);
    return total;
}

/* One collective with its buffers: `send` and `recv` have a block of `count` for every rank. */
struct plan {
    int kind, count, root;
    unsigned *send, *recv;
    MPI_Request req;
};

static int *same(int value)
{
    int *all = check_alloc((size_t)check_size * sizeof(int));
    for (int r = 0; r < check_size; r++)
        all[r] = value;
    return all;
}

static int *multiples(int of)
{
    int *all = check_alloc((size_t)check_size * sizeof(int));
    for (int r = 0; r < check_size; r++)
        all[r] = r * of;
    return all;
}

/* What the program's memory holds after the call must not matter. */
static void spoil(int *numbers)
{
    for (int r = 0; r < check_size; r++)
        numbers[r] = -77;
    free(numbers);
}

/* In `wide` the elements are of a type of its own, freed at once, in `own` combined by an operation of the program's, freed at once. */
static void init(struct plan *p, MPI_Comm comm, MPI_Datatype wide, MPI_Op own)
{
    int n = p->count, root = p->root, *counts = same(n), *displs = multiples(n), *bytes = multiples(4 * n);
    MPI_Datatype *types = check_alloc((size_t)check_size * sizeof *types), u = MPI_UNSIGNED;
    for (int r = 0; r < check_size; r++)
        types[r] = u;
    unsigned *s = p->send, *r = p->recv;
    MPI_Request *q = &p->req;
    switch (p->kind) {
    case 0: MPI_Barrier_init(comm, MPI_INFO_NULL, q); break;
    case 1: MPI_Bcast_init(r, n, u, root, comm, MPI_INFO_NULL, q); break;
    case 2: MPI_Gather_init(s, n, u, r, n, u, root, comm, MPI_INFO_NULL, q); break;
    case 3: MPI_Gatherv_init(s, n, u, r, counts, displs, u, root, comm, MPI_INFO_NULL, q); break;
    case 4: MPI_Scatter_init(s, n, u, r, n, u, root, comm, MPI_INFO_NULL, q); break;
    case 5: MPI_Scatterv_init(s, counts, displs, u, r, n, u, root, comm, MPI_INFO_NULL, q); break;
    case 6: MPI_Allgather_init(s, n, u, r, n, u, comm, MPI_INFO_NULL, q); break;
    case 7: MPI_Allgatherv_init(s, n, u, r, counts, displs, u, comm, MPI_INFO_NULL, q); break;
    case 8: MPI_Alltoall_init(s, n, u, r, n, u, comm, MPI_INFO_NULL, q); break;
    case 9: MPI_Alltoallv_init(s, counts, displs, u, r, counts, displs, u, comm, MPI_INFO_NULL, q); break;
    case 10: MPI_Alltoallw_init(s, counts, bytes, types, r, counts, bytes, types, comm, MPI_INFO_NULL, q); break;
    case 11: MPI_Reduce_init(s, r, n, u, MPI_SUM, root, comm, MPI_INFO_NULL, q); break;
    case 12: MPI_Allreduce_init(s, r, n, u, own, comm, MPI_INFO_NULL, q); break;
    case 13: MPI_Reduce_scatter_init(s, r, counts, u, MPI_SUM, comm, MPI_INFO_NULL, q); break;
    case 14: MPI_Reduce_scatter_block_init(s, r, n, u, MPI_SUM, comm, MPI_INFO_NULL, q); break;
    case 15: MPI_Scan_init(s, r, n, u, MPI_SUM, comm, MPI_INFO_NULL, q); break;
    case 16: MPI_Exscan_init(s, r, n, u, MPI_SUM, comm, MPI_INFO_NULL, q); break;
    default: MPI_Allgather_init(s, 1, wide, r, 1, wide, comm, MPI_INFO_NULL, q); break;
    }
    spoil(counts), spoil(displs), spoil(bytes), free(types);
}

static void fill(struct plan *p, int round)
{
    for (int r = 0; r < check_size; r++)
        for (int i = 0; i < p->count; i++) {
            p->send[r * p->count + i] = value(round, check_rank, r, i);
            p->recv[r * p->count + i] = p->kind == 1 && check_rank == p->root ? value(round, check_rank, r, i) : 7;
        }
}

/* What belongs at element `i` of the block of rank `r`. */
static unsigned wanted(const struct plan *p, int round, int r, int i)
{
    int first = r == 0, me = check_rank, at_root = me == p->root;
    unsigned before = 7, total = 0;
    switch (p->kind) {
    case 1: return first ? value(round, p->root, 0, i) : at_root ? value(round, me, r, i) : before;
    case 2:
    case 3: return at_root ? value(round, r, 0, i) : before;
    case 4:
    case 5: return first ? value(round, p->root, me, i) : before;
    case 6:
    case 7:
    case 17: return value(round, r, 0, i);
    case 8:
    case 9:
    case 10: return value(round, r, me, i);
    case 11: return first && at_root ? sum(round, 0, i) : before;
    case 12: return first ? sum(round, 0, i) : before;
    case 13:
    case 14: return first ? sum(round, me, i) : before;
    case 15:
    case 16:
        for (int who = 0; who < me + (p->kind == 15); who++)
            total += value(round, who, 0, i);
        return first && me + (p->kind == 15) > 0 ? total : before;
    default: return before;
    }
}

static void look(const struct plan *p, int round)
{
    for (int r = 0; r < check_size; r++)
        for (int i = 0; i < p->count; i++)
            if (p->recv[r * p->count + i] != wanted(p, round, r, i)) {
                fprintf(stderr, "collective %d of %d elements, round %d, block %d, element %d\n", p->kind, p->count,
                        round, r, i);
                CHECK_EQ(p->recv[r * p->count + i], wanted(p, round, r, i));
                return;
            }
}

static unsigned state;

static int below(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 8) % n;
}

static void shuffle(int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int other = below(i + 1), held = order[i];
        order[i] = order[other], order[other] = held;
    }
}

static void added(void *in, void *inout, int *len, MPI_Datatype *type)
{
    CHECK(*type == MPI_UNSIGNED);
    for (int i = 0; i < *len; i++)
        ((unsigned *)inout)[i] += ((unsigned *)in)[i];
}

/* All of them on one communicator, with what they were made from freed before the first start. */
static void each_rank_starts_in_an_order_of_its_own(void)
{
    static const int COUNTS[] = {1, 16, 1024, 5000, MOST};
    state = 77u + (unsigned)check_rank;
    for (int c = 0; c < 5; c++) {
        struct plan plans[KINDS];
        MPI_Comm comm;
        MPI_Datatype wide;
        MPI_Op own;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Type_contiguous(COUNTS[c], MPI_UNSIGNED, &wide);
        MPI_Type_commit(&wide);
        MPI_Op_create(added, 1, &own);
        for (int k = 0; k < KINDS; k++) {
            struct plan *p = &plans[k];
            size_t bytes = (size_t)COUNTS[c] * (size_t)check_size * sizeof(unsigned);
            *p = (struct plan){k, COUNTS[c], (k + c) % check_size, check_alloc(bytes), check_alloc(bytes),
                               MPI_REQUEST_NULL};
            init(p, comm, wide, own);
        }
        MPI_Type_free(&wide);
        MPI_Op_free(&own);
        MPI_Comm_free(&comm);
        for (int round = 0; round < ROUNDS; round++) {
            int order[KINDS], left = KINDS;
            MPI_Request all[KINDS];
            for (int k = 0; k < KINDS; k++)
                fill(&plans[k], round);
            shuffle(order, KINDS);
            for (int k = 0; k < KINDS; k++)
                MPI_Start(&plans[order[k]].req);
            for (int k = 0; k < KINDS; k++)
                all[k] = plans[k].req;
            while (left > 0) {
                int flag, at;
                if (round % 3 == 0) {
                    MPI_Waitall(KINDS, all, MPI_STATUSES_IGNORE);
                    left = 0;
                } else if (round % 3 == 1) {
                    MPI_Waitany(KINDS, all, &at, MPI_STATUS_IGNORE);
                    left--;
                    look(&plans[at], round);
                } else {
                    shuffle(order, KINDS);
                    for (left = 0, at = 0; at < KINDS; at++) {
                        MPI_Test(&all[order[at]], &flag, MPI_STATUS_IGNORE);
                        left += !flag;
                    }
                }
            }
            for (int k = 0; k < KINDS; k++) {
                CHECK(all[k] == plans[k].req);
                look(&plans[k], round);
            }
        }
        for (int k = 0; k < KINDS; k++) {
            MPI_Request_free(&plans[k].req);
            CHECK(plans[k].req == MPI_REQUEST_NULL);
            free(plans[k].send), free(plans[k].recv);
        }
    }
}

/* A rank that is ahead starts the next round before the others have ended this one. */
static void one_rank_may_be_rounds_ahead(void)
{
    unsigned data = 0;
    MPI_Request req;
    MPI_Bcast_init(&data, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    for (unsigned round = 0; round < 500; round++) {
        data = check_rank == 0 ? round : 0;
        MPI_Start(&req);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK_EQ(data, round);
    }
    MPI_Request_free(&req);
}

/* Short ones, more than shared memory has room for beside others, all open at a time, some freed and made again in between. */
static void thousands_are_open_at_a_time(void)
{
    enum { MANY = 3000, ROUNDS_OF_MANY = 3 };
    MPI_Comm comm;
    MPI_Request *reqs = check_alloc(MANY * sizeof *reqs);
    unsigned *in = check_alloc(MANY * sizeof *in), *out = check_alloc(MANY * sizeof *out);
    int *order = check_alloc(MANY * sizeof *order);
    state = 5u + (unsigned)check_rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < MANY; i++)
        MPI_Allreduce_init(&in[i], &out[i], 1, MPI_UNSIGNED, MPI_SUM, comm, MPI_INFO_NULL, &reqs[i]);
    for (int round = 0; round < ROUNDS_OF_MANY; round++) {
        for (int i = 0; i < MANY; i++)
            in[i] = value(round, check_rank, 0, i), out[i] = 7;
        if (round == 1) {
            MPI_Startall(MANY, reqs);
        } else {
            shuffle(order, MANY);
            for (int i = 0; i < MANY; i++)
                MPI_Start(&reqs[order[i]]);
        }
        MPI_Waitall(MANY, reqs, MPI_STATUSES_IGNORE);
        for (int i = 0; i < MANY; i++)
            if (out[i] != sum(round, 0, i)) {
                CHECK_EQ(out[i], sum(round, 0, i));
                break;
            }
        for (int i = round; i < MANY; i += 7) {
            MPI_Request_free(&reqs[i]);
            MPI_Allreduce_init(&in[i], &out[i], 1, MPI_UNSIGNED, MPI_SUM, comm, MPI_INFO_NULL, &reqs[i]);
        }
    }
    /* What is started on a communicator that was freed goes on as before. */
    MPI_Comm_free(&comm);
    for (int i = 0; i < MANY; i++)
        in[i] = (unsigned)i, out[i] = 7;
    MPI_Startall(MANY, reqs);
    MPI_Waitall(MANY, reqs, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++) {
        if (out[i] != (unsigned)(i * check_size))
            CHECK_EQ(out[i], (unsigned)(i * check_size));
        MPI_Request_free(&reqs[i]);
    }
    free(reqs), free(in), free(out), free(order);
}

/* Made again and again, each used once or not at all, on communicators that come and go. */
static void ones_that_come_and_go(void)
{
    for (int round = 0; round < 40; round++) {
        MPI_Comm comm;
        MPI_Request reqs[20];
        unsigned data[20];
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < 20; i++) {
            data[i] = check_rank == i % check_size ? value(round, i, 0, 0) : 7;
            MPI_Bcast_init(&data[i], 1, MPI_UNSIGNED, i % check_size, comm, MPI_INFO_NULL, &reqs[i]);
        }
        if (round % 2 == 0)
            MPI_Comm_free(&comm);
        /* Some are freed before any rank knows where they would meet. */
        for (int i = round % 3; i < 20; i += 3)
            MPI_Request_free(&reqs[i]);
        for (int i = 19; i >= 0; i--)
            if (reqs[i] != MPI_REQUEST_NULL)
                MPI_Start(&reqs[i]);
        MPI_Waitall(20, reqs, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 20; i++)
            if (reqs[i] != MPI_REQUEST_NULL) {
                CHECK_EQ(data[i], value(round, i, 0, 0));
                MPI_Request_free(&reqs[i]);
            }
        if (round % 2 == 1)
            MPI_Comm_free(&comm);
    }
}

/* Elements with gaps, and combined by an operation of the program's whose order counts. */
static void first_of(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        ((unsigned *)inout)[i] = ((unsigned *)in)[i] * 3u + ((unsigned *)inout)[i];
}

static void short_ones_with_gaps_and_with_operations_of_the_programs(void)
{
    MPI_Datatype gaps;
    MPI_Op op;
    MPI_Request reqs[3];
    unsigned data[10], in[4], out[4], scanned[4];
    MPI_Type_vector(5, 1, 2, MPI_UNSIGNED, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Op_create(first_of, 0, &op);
    MPI_Bcast_init(data, 1, gaps, check_size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &reqs[0]);
    MPI_Allreduce_init(in, out, 4, MPI_UNSIGNED, op, MPI_COMM_WORLD, MPI_INFO_NULL, &reqs[1]);
    MPI_Scan_init(in, scanned, 4, MPI_UNSIGNED, op, MPI_COMM_WORLD, MPI_INFO_NULL, &reqs[2]);
    MPI_Type_free(&gaps);
    MPI_Op_free(&op);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++)
            data[i] = check_rank == check_size - 1 ? value(round, check_rank, 0, i) : 7;
        for (int i = 0; i < 4; i++)
            in[i] = value(round, check_rank, 0, i);
        /* Each rank begins with another. */
        for (int k = 0; k < 3; k++)
            MPI_Start(&reqs[(k + check_rank) % 3]);
        MPI_Waitall(3, reqs, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 10; i++)
            CHECK_EQ(data[i], i % 2 == 0 || check_rank == check_size - 1 ? value(round, check_size - 1, 0, i) : 7);
        for (int i = 0; i < 4; i++) {
            unsigned all = value(round, 0, 0, i), some = all;
            for (int who = 1; who < check_size; who++) {
                all = all * 3u + value(round, who, 0, i);
                if (who <= check_rank)
                    some = all;
            }
            CHECK_EQ(out[i], all);
            CHECK_EQ(scanned[i], some);
        }
    }
    for (int k = 0; k < 3; k++)
        MPI_Request_free(&reqs[k]);
}

/* Between other collectives, blocking and not, which are counted apart. */
static void others_go_on_between(void)
{
    int before = check_rank, total = 0, blocking = 0, open = 0;
    MPI_Request req, other;
    MPI_Allreduce_init(&before, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    for (int round = 0; round < 50; round++) {
        before = check_rank + round;
        /* Even ranks start it first, odd ranks last. */
        if (check_rank % 2 == 0)
            MPI_Start(&req);
        MPI_Iallreduce(&before, &open, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &other);
        MPI_Allreduce(&before, &blocking, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (check_rank % 2 == 1)
            MPI_Start(&req);
        MPI_Wait(&other, MPI_STATUS_IGNORE);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK_EQ(total, check_size * (check_size - 1) / 2 + check_size * round);
        CHECK_EQ(open, check_size - 1 + round);
        CHECK_EQ(blocking, round);
    }
    MPI_Request_free(&req);
}

/* The result is the next round's operand. */
static void in_place_again_and_again(void)
{
    unsigned data[3] = {1, 2, 3};
    MPI_Request reqs[2];
    MPI_Allreduce_init(MPI_IN_PLACE, data, 3, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &reqs[0]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &reqs[1]);
    unsigned factor = 1;
    for (int round = 0; round < 9; round++) {
        MPI_Startall(2, reqs);
        MPI_Waitall(2, reqs, MPI_STATUSES_IGNORE);
        factor *= (unsigned)check_size;
        for (unsigned i = 0; i < 3; i++)
            CHECK_EQ(data[i], (i + 1) * factor);
    }
    MPI_Request_free(&reqs[0]);
    MPI_Request_free(&reqs[1]);
}

static void between_two_groups(void)
{
    if (check_size < 2)
        return;
    MPI_Comm half, both;
    MPI_Request req;
    int low = check_rank < check_size / 2, got = -1, mine = check_rank + 1, remote, total = 0;
    MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? check_size / 2 : 0, 5, &both);
    MPI_Comm_remote_size(both, &remote);
    MPI_Allreduce_init(&mine, &got, 1, MPI_INT, MPI_SUM, both, MPI_INFO_NULL, &req);
    for (int r = 0; r < check_size; r++)
        total += (r < check_size / 2) != low ? r + 1 : 0;
    for (int round = 0; round < 5; round++) {
        got = -1;
        MPI_Start(&req);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK_EQ(got, total);
    }
    MPI_Request_free(&req);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

/* One that its rank freed under way is carried on until all have had their part, also in MPI_Finalize: called last. */
static void freed_ones_go_on_until_the_end(void)
{
    enum { LONG = 3 << 20 };
    char *data = check_alloc(LONG);
    MPI_Request req;
    if (check_rank == 0)
        check_fill(data, LONG, 5);
    MPI_Bcast_init(data, LONG, MPI_BYTE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    if (check_rank > 0) {
        /* The root is in MPI_Finalize by then, or soon. */
        struct timespec moment = {0, 100000000};
        nanosleep(&moment, NULL);
    }
    /* A short one, too, that ranks free under way and others wait for. */
    static unsigned mine, total;
    MPI_Request small;
    mine = (unsigned)check_rank + 1;
    MPI_Allreduce_init(&mine, &total, 1, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &small);
    MPI_Start(&small);
    MPI_Start(&req);
    if (check_rank == 0) {
        MPI_Request_free(&req);
    } else {
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK(check_same(data, LONG, 5));
        MPI_Request_free(&req);
    }
    if (check_rank != check_size - 1) {
        MPI_Request_free(&small);
    } else {
        MPI_Wait(&small, MPI_STATUS_IGNORE);
        CHECK_EQ(total, (unsigned)(check_size * (check_size + 1) / 2));
        MPI_Request_free(&small);
    }
    /* The root's memory is the collective's until MPI_Finalize. */
}

static void mistakes_are_told(void)
{
    MPI_Request req = MPI_REQUEST_NULL;
    int data = 0, flag = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Bcast_init(&data, 1, MPI_INT, check_size, MPI_COMM_WORLD, MPI_INFO_NULL, &req), MPI_ERR_ROOT);
    CHECK_CLASS(MPI_Bcast_init(&data, -1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &req), MPI_ERR_COUNT);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* hears of what no communicator does */
    CHECK_CLASS(MPI_Barrier_init(MPI_COMM_NULL, MPI_INFO_NULL, &req), MPI_ERR_COMM);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    CHECK(req == MPI_REQUEST_NULL);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &req);
    MPI_Test(&req, &flag, MPI_STATUS_IGNORE);
    CHECK(flag && req != MPI_REQUEST_NULL);
    MPI_Start(&req);
    CHECK_CLASS(MPI_Start(&req), MPI_ERR_REQUEST);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    MPI_Request_free(&req);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(each_rank_starts_in_an_order_of_its_own);
    RUN(one_rank_may_be_rounds_ahead);
    RUN(thousands_are_open_at_a_time);
    RUN(ones_that_come_and_go);
    RUN(short_ones_with_gaps_and_with_operations_of_the_programs);
    RUN(others_go_on_between);
    RUN(in_place_again_and_again);
    RUN(between_two_groups);
    RUN(mistakes_are_told);
    RUN(freed_ones_go_on_until_the_end);
    return check_end();
}
