/* Ranks that disagree about a collective: every one of them gets MPI_ERR_NOT_SAME instead of waiting for the others, and the
 * communicator serves on. Who called a short broadcast may hear of it in the next collective, because it does not wait for all.
 * ranks: 2 3 5
 * limit: 60 */
#include "check.h"

static MPI_Comm comm;
static int *in, *out;
enum { MOST = 300000 };

/* A communicator on which nothing was called yet: calls are compared from the first collective on. */
static void renew(void)
{
    MPI_Comm fresh;
    MPI_Comm_dup(comm, &fresh);
    MPI_Comm_free(&comm);
    comm = fresh;
}

static void settle(void)
{
    for (int i = 0; i < 3; i++)
        CHECK_EQ(MPI_Barrier(comm), MPI_SUCCESS);
}

static void still_serves(void)
{
    int sum = -1, one = 1;
    CHECK_EQ(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
    CHECK_EQ(sum, check_size);
    memset(out, 0, sizeof *out * MOST);
    for (int i = 0; i < MOST; i++)
        in[i] = check_rank + i;
    CHECK_EQ(MPI_Allreduce(in, out, MOST / 2, MPI_INT, MPI_MAX, comm), MPI_SUCCESS);
    CHECK_EQ(out[0], check_size - 1);
    CHECK_EQ(out[MOST / 2 - 1], check_size - 1 + MOST / 2 - 1);
}

enum when { AT_ONCE, IN_TIME };

/* What a call returned, and in time what the next one returns. */
static void told(int code, enum when when)
{
    int next = MPI_Barrier(comm), class = MPI_SUCCESS;
    if (when == IN_TIME && code == MPI_SUCCESS)
        code = next, next = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    CHECK_EQ(class, MPI_ERR_NOT_SAME);
    CHECK_EQ(next, MPI_SUCCESS);
}

/* `odd` is the rank that calls something else; each of them once, in turn in the first collective and in a later one. */
#define DISAGREE_WHEN(when_theirs, when_other, theirs, other)                                                          \
    do {                                                                                                               \
        for (int odd = 0; odd < check_size; odd++) {                                                                   \
            if (odd % 2)                                                                                               \
                settle();                                                                                              \
            else                                                                                                       \
                renew();                                                                                               \
            if (check_rank == odd)                                                                                     \
                told(other, when_other);                                                                               \
            else                                                                                                       \
                told(theirs, when_theirs);                                                                             \
        }                                                                                                              \
        still_serves();                                                                                                \
    } while (0)
#define DISAGREE(theirs, other) DISAGREE_WHEN(AT_ONCE, AT_ONCE, theirs, other)

/* Making a communicator is a collective like others, and the program may go on when ranks disagreed about it. */
static void constructors(void)
{
    MPI_Comm made = MPI_COMM_NULL;
    int dims[1] = {check_size}, periods[1] = {0};
    DISAGREE(MPI_Barrier(comm), MPI_Comm_dup(comm, &made));
    DISAGREE(MPI_Comm_dup(comm, &made), MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm));
    DISAGREE(MPI_Comm_split(comm, 0, 0, &made), MPI_Comm_dup(comm, &made));
    DISAGREE(MPI_Cart_create(comm, 1, dims, periods, 0, &made), MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made));
    CHECK_EQ(MPI_Comm_dup(comm, &made), MPI_SUCCESS);
    MPI_Comm_free(&made);
}

static void different_lengths(void)
{
    DISAGREE_WHEN(IN_TIME, IN_TIME, MPI_Bcast(in, 2, MPI_INT, 0, comm), MPI_Bcast(in, 3, MPI_INT, 0, comm));
    DISAGREE_WHEN(IN_TIME, AT_ONCE, MPI_Bcast(in, 2, MPI_INT, 0, comm), MPI_Bcast(in, MOST, MPI_INT, 0, comm));
    DISAGREE(MPI_Allreduce(in, out, MOST, MPI_INT, MPI_SUM, comm), MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm));
    DISAGREE(MPI_Allreduce(in, out, MOST, MPI_INT, MPI_SUM, comm),
             MPI_Allreduce(in, out, MOST - 1, MPI_INT, MPI_SUM, comm));
    DISAGREE(MPI_Alltoall(in, 1000, MPI_INT, out, 1000, MPI_INT, comm),
             MPI_Alltoall(in, 20000, MPI_INT, out, 20000, MPI_INT, comm));
    DISAGREE(MPI_Gather(in, 10, MPI_INT, out, 10, MPI_INT, 0, comm), MPI_Gather(in, 9, MPI_INT, out, 9, MPI_INT, 0, comm));
    DISAGREE(MPI_Scan(in, out, 10, MPI_INT, MPI_SUM, comm), MPI_Scan(in, out, 1000, MPI_INT, MPI_SUM, comm));
}

static void nothing_on_one_side(void)
{
    DISAGREE_WHEN(IN_TIME, AT_ONCE, MPI_Bcast(in, 2, MPI_INT, 0, comm), MPI_Bcast(in, 0, MPI_INT, 0, comm));
    DISAGREE(MPI_Allreduce(in, out, 0, MPI_INT, MPI_SUM, comm), MPI_Allreduce(in, out, 50000, MPI_INT, MPI_SUM, comm));
}

static void different_calls(void)
{
    int counts[8], places[8];
    for (int i = 0; i < 8; i++)
        counts[i] = 1, places[i] = i;
    DISAGREE_WHEN(AT_ONCE, IN_TIME, MPI_Barrier(comm), MPI_Bcast(in, 8, MPI_BYTE, 0, comm));
    DISAGREE(MPI_Barrier(comm), MPI_Alltoall(in, 20000, MPI_INT, out, 20000, MPI_INT, comm));
    DISAGREE(MPI_Reduce(in, out, 4, MPI_INT, MPI_SUM, 0, comm), MPI_Allreduce(in, out, 4, MPI_INT, MPI_SUM, comm));
    DISAGREE(MPI_Barrier(comm), MPI_Alltoallv(in, counts, places, MPI_INT, out, counts, places, MPI_INT, comm));
    DISAGREE(MPI_Exscan(in, out, 1, MPI_INT, MPI_SUM, comm), MPI_Scan(in, out, 1, MPI_INT, MPI_SUM, comm));
}

static void different_roots_and_operations(void)
{
    DISAGREE_WHEN(IN_TIME, IN_TIME, MPI_Bcast(in, 2, MPI_INT, 0, comm), MPI_Bcast(in, 2, MPI_INT, 1, comm));
    DISAGREE(MPI_Reduce(in, out, MOST, MPI_INT, MPI_SUM, 0, comm), MPI_Reduce(in, out, MOST, MPI_INT, MPI_SUM, 1, comm));
    DISAGREE(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm), MPI_Allreduce(in, out, 1, MPI_INT, MPI_MAX, comm));
    DISAGREE(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm), MPI_Allreduce(in, out, 1, MPI_FLOAT, MPI_SUM, comm));
}

/* What may differ: how the same data is described. */
static void descriptions_may_differ(void)
{
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    settle();
    for (int count = 2; count <= MOST; count = count * 12 + 4) {
        in[0] = in[count - 1] = check_rank == 0 ? 77 : 0;
        if (check_rank % 2)
            CHECK_EQ(MPI_Bcast(in, count / 2, pair, 0, comm), MPI_SUCCESS);
        else
            CHECK_EQ(MPI_Bcast(in, count, MPI_INT, 0, comm), MPI_SUCCESS);
        CHECK_EQ(in[0], 77);
        CHECK_EQ(in[count - 1], 77);
    }
    MPI_Type_free(&pair);
}

static void blocks_of_one_rank_must_be_alike(void)
{
    CHECK_CLASS(MPI_Allgather(in, 1, MPI_INT, out, 2, MPI_INT, comm), MPI_ERR_COUNT);
    CHECK_CLASS(MPI_Alltoall(in, 3, MPI_INT, out, 2, MPI_INT, comm), MPI_ERR_COUNT);
    still_serves();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    in = check_alloc(sizeof *in * MOST), out = check_alloc(sizeof *out * MOST);
    memset(in, 0, sizeof *in * MOST);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "those who disagree");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    RUN(constructors);
    RUN(different_lengths);
    RUN(nothing_on_one_side);
    RUN(different_calls);
    RUN(different_roots_and_operations);
    RUN(descriptions_may_differ);
    RUN(blocks_of_one_rank_must_be_alike);
    MPI_Comm_free(&comm);
    free(in), free(out);
    return check_end();
}
