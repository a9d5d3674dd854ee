/* Collectives of which a rank refuses its own arguments: that rank has not taken part, the others wait for it in that very call, and it calls again
 * what was meant. Nothing is out of step afterwards, on boards, by messages, in calls that do not wait, and where all ranks are wrong.
 * ranks: 1 2 3 5
 * limit: 60 */
#include "check.h"

enum { LONG = 50000, RANKS_MOST = 64 };

static MPI_Comm comm;
static int size, rank, *in, *out;

/* The rank that errs, in turn. */
static int odd;

static int errs(void)
{
    return rank == odd;
}

static void fill(int count)
{
    for (int i = 0; i < count; i++)
        in[i] = rank * 3 + i, out[i] = -1;
}

/* What comes of the sum of what all have filled in. */
static void is_sum(int count)
{
    for (int i = 0; i < count; i += count > 100 ? count - 1 : 1)
        CHECK_EQ(out[i], 3 * size * (size - 1) / 2 + size * i);
}

static void sums(int count)
{
    fill(count);
    CHECK_EQ(MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
    is_sum(count);
}

/* All collectives of all kinds are in step. */
static void all_is_well(void)
{
    MPI_Request request;
    MPI_Comm other;
    sums(1);
    CHECK_EQ(MPI_Barrier(comm), MPI_SUCCESS);
    sums(LONG);
    fill(3);
    CHECK_EQ(MPI_Iallreduce(in, out, 3, MPI_INT, MPI_SUM, comm, &request), MPI_SUCCESS);
    CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    is_sum(3);
    fill(5);
    CHECK_EQ(MPI_Allreduce_init(in, out, 5, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request), MPI_SUCCESS);
    CHECK_EQ(MPI_Start(&request), MPI_SUCCESS);
    CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    is_sum(5);
    CHECK_EQ(MPI_Request_free(&request), MPI_SUCCESS);
    CHECK_EQ(MPI_Comm_dup(comm, &other), MPI_SUCCESS);
    CHECK_EQ(MPI_Comm_free(&other), MPI_SUCCESS);
}

/* The call that is wrong and the one that was meant; with `who` the rank or all. */
#define ERR_THEN(who, class, wrong, right)                                                                             \
    do {                                                                                                               \
        if (who)                                                                                                       \
            CHECK_CLASS(wrong, class);                                                                                 \
        CHECK_EQ(right, MPI_SUCCESS);                                                                                  \
    } while (0)

static MPI_Datatype raw;

static void blocking(int who)
{
    int counts[RANKS_MOST], places[RANKS_MOST], none[RANKS_MOST];
    for (int i = 0; i < RANKS_MOST; i++)
        counts[i] = 1, places[i] = i, none[i] = -1;
    static const int lengths[] = {1, 40, LONG};
    for (int at = 0; at < 3; at++) {
        int n = lengths[at];
        fill(n);
        ERR_THEN(who, MPI_ERR_TYPE, MPI_Allreduce(in, out, n, MPI_DATATYPE_NULL, MPI_SUM, comm), MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm));
        is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_OP, MPI_Allreduce(in, out, n, MPI_INT, MPI_OP_NULL, comm), MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm));
        is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_COUNT, MPI_Allreduce(in, out, -1, MPI_INT, MPI_SUM, comm), MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm));
        is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_OP, MPI_Allreduce(in, out, n, MPI_INT, MPI_REPLACE, comm), MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm));
        is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_TYPE, MPI_Bcast(in, n, raw, size - 1, comm), MPI_Bcast(in, n, MPI_INT, size - 1, comm));
        CHECK_EQ(in[n - 1], (size - 1) * 3 + n - 1);
        fill(n);
        ERR_THEN(who, MPI_ERR_ROOT, MPI_Bcast(in, n, MPI_INT, size, comm), MPI_Bcast(in, n, MPI_INT, 0, comm));
        CHECK_EQ(in[n - 1], n - 1);
        fill(n);
        ERR_THEN(who, MPI_ERR_OP, MPI_Reduce(in, out, n, MPI_INT, MPI_OP_NULL, 0, comm), MPI_Reduce(in, out, n, MPI_INT, MPI_SUM, 0, comm));
        if (rank == 0)
            is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_COUNT, MPI_Scan(in, out, -2, MPI_INT, MPI_SUM, comm), MPI_Scan(in, out, n, MPI_INT, MPI_SUM, comm));
        CHECK_EQ(out[0], 3 * rank * (rank + 1) / 2);
    }
    fill(RANKS_MOST);
    ERR_THEN(who, MPI_ERR_COUNT, MPI_Allgatherv(in, 1, MPI_INT, out, none, places, MPI_INT, comm),
             MPI_Allgatherv(in, 1, MPI_INT, out, counts, places, MPI_INT, comm));
    for (int i = 0; i < size; i++)
        CHECK_EQ(out[i], i * 3);
    fill(RANKS_MOST);
    ERR_THEN(who, MPI_ERR_COUNT, MPI_Alltoall(in, -1, MPI_INT, out, 1, MPI_INT, comm), MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, comm));
    for (int i = 0; i < size; i++)
        CHECK_EQ(out[i], i * 3 + rank);
    fill(RANKS_MOST);
    ERR_THEN(who, MPI_ERR_TYPE, MPI_Gather(in, 1, MPI_DATATYPE_NULL, out, 1, MPI_DATATYPE_NULL, 0, comm),
             MPI_Gather(in, 1, MPI_INT, out, 1, MPI_INT, 0, comm));
    if (rank == 0)
        CHECK_EQ(out[size - 1], 3 * (size - 1));
    fill(RANKS_MOST);
    ERR_THEN(who, MPI_ERR_COUNT, MPI_Reduce_scatter(in, out, none, MPI_INT, MPI_SUM, comm), MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm));
    CHECK_EQ(out[0], 3 * size * (size - 1) / 2 + size * rank);
}

static void not_waiting(int who)
{
    static const int lengths[] = {1, 40, LONG};
    for (int at = 0; at < 3; at++) {
        int n = lengths[at];
        MPI_Request request;
        fill(n);
        ERR_THEN(who, MPI_ERR_TYPE, MPI_Iallreduce(in, out, n, MPI_DATATYPE_NULL, MPI_SUM, comm, &request),
                 MPI_Iallreduce(in, out, n, MPI_INT, MPI_SUM, comm, &request));
        CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_ARG, MPI_Iallreduce(in, out, n, MPI_INT, MPI_SUM, comm, NULL), MPI_Iallreduce(in, out, n, MPI_INT, MPI_SUM, comm, &request));
        CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        is_sum(n);
        fill(n);
        ERR_THEN(who, MPI_ERR_ROOT, MPI_Ibcast(in, n, MPI_INT, -7, comm, &request), MPI_Ibcast(in, n, MPI_INT, 0, comm, &request));
        CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        CHECK_EQ(in[n - 1], n - 1);
        ERR_THEN(who, MPI_ERR_ARG, MPI_Ibarrier(comm, NULL), MPI_Ibarrier(comm, &request));
        CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
}

static void persistent(int who)
{
    static const int lengths[] = {1, LONG};
    for (int at = 0; at < 2; at++) {
        int n = lengths[at];
        MPI_Request request;
        fill(n);
        ERR_THEN(who, MPI_ERR_OP, MPI_Allreduce_init(in, out, n, MPI_INT, MPI_OP_NULL, comm, MPI_INFO_NULL, &request),
                 MPI_Allreduce_init(in, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
        for (int turn = 0; turn < 2; turn++) {
            fill(n);
            CHECK_EQ(MPI_Start(&request), MPI_SUCCESS);
            CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
            is_sum(n);
        }
        CHECK_EQ(MPI_Request_free(&request), MPI_SUCCESS);
        fill(n);
        ERR_THEN(who, MPI_ERR_ARG, MPI_Allreduce_init(in, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, NULL),
                 MPI_Allreduce_init(in, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
        CHECK_EQ(MPI_Start(&request), MPI_SUCCESS);
        CHECK_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        is_sum(n);
        CHECK_EQ(MPI_Request_free(&request), MPI_SUCCESS);
    }
}

static void communicators(int who)
{
    MPI_Comm made;
    MPI_Group mine;
    int n;
    ERR_THEN(who, MPI_ERR_ARG, MPI_Comm_split(comm, -5, 0, &made), MPI_Comm_split(comm, rank % 2, 0, &made));
    CHECK_EQ(MPI_Comm_size(made, &n), MPI_SUCCESS);
    CHECK_EQ(n, (size + 1 - rank % 2) / 2);
    CHECK_EQ(MPI_Comm_free(&made), MPI_SUCCESS);
    ERR_THEN(who, MPI_ERR_ARG, MPI_Comm_dup(comm, NULL), MPI_Comm_dup(comm, &made));
    CHECK_EQ(MPI_Comm_free(&made), MPI_SUCCESS);
    ERR_THEN(who, MPI_ERR_INFO, MPI_Comm_dup_with_info(comm, (MPI_Info)77, &made), MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &made));
    CHECK_EQ(MPI_Comm_free(&made), MPI_SUCCESS);
    MPI_Comm_group(comm, &mine);
    ERR_THEN(who, MPI_ERR_GROUP, MPI_Comm_create(comm, MPI_GROUP_NULL, &made), MPI_Comm_create(comm, mine, &made));
    CHECK_EQ(MPI_Comm_free(&made), MPI_SUCCESS);
    MPI_Group_free(&mine);
}

/* With every part and every rank that errs, on a fresh communicator and on one that has a board. */
static void each(void (*part)(int))
{
    for (int fresh = 0; fresh < 2; fresh++)
        for (odd = 0; odd < size; odd++) {
            if (fresh) {
                MPI_Comm other;
                MPI_Comm_dup(comm, &other);
                MPI_Comm_free(&comm);
                comm = other;
            } else {
                all_is_well();
            }
            part(errs());
            all_is_well();
        }
    part(1);
    all_is_well();
}

static void one_errs_and_calls_again(void)
{
    each(blocking);
}

static void one_errs_in_calls_that_do_not_wait(void)
{
    each(not_waiting);
}

static void one_errs_in_persistent_calls(void)
{
    each(persistent);
}

static void one_errs_where_communicators_are_made(void)
{
    each(communicators);
}

/* Two groups, whose collectives go by messages. */
static void one_errs_between_groups(void)
{
    if (size < 2)
        return;
    MPI_Comm half, inter;
    MPI_Comm_split(comm, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, comm, rank % 2 ? 0 : 1, 4, &inter);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    int other = rank % 2 ? (size + 1) / 2 : size / 2;
    for (odd = 0; odd < size; odd++) {
        int one = 1, sum = -1, root = rank % 2 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, value = rank == 0 ? 9 : -1;
        ERR_THEN(errs(), MPI_ERR_OP, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_OP_NULL, inter), MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
        CHECK_EQ(sum, other);
        ERR_THEN(errs(), MPI_ERR_ROOT, MPI_Bcast(&value, 1, MPI_INT, 99, inter), MPI_Bcast(&value, 1, MPI_INT, root, inter));
        CHECK_EQ(value, rank == 0 || rank % 2 ? 9 : -1);
        CHECK_EQ(MPI_Barrier(inter), MPI_SUCCESS);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Who has less room than it was sent is told so, or all are that they disagree; all have taken part, and go on. */
static void what_is_cut_short_is_over(void)
{
    for (int turn = 0; turn < 3; turn++) {
        for (int n = 4; n <= LONG; n = n == 4 ? 2000 : n == 2000 ? LONG : LONG + 1) {
            fill(n);
            int codes[2], told = 0, all;
            codes[0] = MPI_Bcast(in, rank == 0 ? n : n / 2, MPI_INT, 0, comm);
            /* A root that did not wait for the others hears of it here; who has what it wanted of one with as little room hears nothing. */
            codes[1] = MPI_Barrier(comm);
            for (int i = 0; i < 2; i++) {
                int class = MPI_SUCCESS;
                MPI_Error_class(codes[i], &class);
                told |= class != MPI_SUCCESS;
                CHECK(class == MPI_SUCCESS || class == MPI_ERR_NOT_SAME || (class == MPI_ERR_TRUNCATE && i == 0 && rank > 0));
            }
            all_is_well();
            CHECK_EQ(MPI_Allreduce(&told, &all, 1, MPI_INT, MPI_LOR, comm), MPI_SUCCESS);
            CHECK_EQ(all, size > 1);
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    in = check_alloc(sizeof *in * LONG), out = check_alloc(sizeof *out * LONG);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    rank = check_rank, size = check_size;
    MPI_Type_contiguous(2, MPI_INT, &raw);
    RUN(one_errs_and_calls_again);
    RUN(one_errs_in_calls_that_do_not_wait);
    RUN(one_errs_in_persistent_calls);
    RUN(one_errs_where_communicators_are_made);
    RUN(one_errs_between_groups);
    RUN(what_is_cut_short_is_over);
    MPI_Type_free(&raw);
    MPI_Comm_free(&comm);
    free(in), free(out);
    return check_end();
}
