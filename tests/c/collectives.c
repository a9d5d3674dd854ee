/* Collectives, blocking and nonblocking, regular and irregular, in place, from every root, at sizes around each
 * algorithm's limits. The nonblocking form of each is used in odd rounds, completed with others in flight.
 * ranks: 1 2 3 4 5
 * limit: 120 */
#include "check.h"

static const int COUNTS[] = {0, 1, 2, 7, 16, 129, 1024, 5000, 40000};
enum { NCOUNTS = sizeof COUNTS / sizeof *COUNTS, MOST = 40000 };

/* One value per (who, place): any mistake of block or offset shows. */
static int value(int who, int i) { return who * 1000003 + i * 17 + 5; }

static int *numbers(int count)
{
    int *memory = check_alloc(((size_t)count + 1) * sizeof(int));
    for (int i = 0; i <= count; i++)
        memory[i] = -9;
    return memory;
}

static void mine(int *into, int who, int from, int count)
{
    for (int i = 0; i < count; i++)
        into[i] = value(who, from + i);
}

/* Reports the first wrong place only. */
static void expect(const int *got, int who, int from, int count)
{
    for (int i = 0; i < count; i++) {
        if (got[i] != value(who, from + i)) {
            CHECK_EQ(got[i], value(who, from + i));
            return;
        }
    }
}

static void finish(MPI_Request *req) { MPI_Wait(req, MPI_STATUS_IGNORE); }

static void barrier_holds_everybody(void)
{
    for (int round = 0; round < 20; round++) {
        MPI_Request req;
        if (round % 2) {
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            MPI_Ibarrier(MPI_COMM_WORLD, &req);
            finish(&req);
        }
    }
}

static void bcast_from_every_root(void)
{
    for (int c = 0; c < NCOUNTS; c++) {
        for (int root = 0; root < check_size; root++) {
            int count = COUNTS[c], *data = numbers(count);
            if (check_rank == root)
                mine(data, root, 0, count);
            if ((c + root) % 2) {
                MPI_Request req;
                MPI_Ibcast(data, count, MPI_INT, root, MPI_COMM_WORLD, &req);
                finish(&req);
            } else {
                MPI_Bcast(data, count, MPI_INT, root, MPI_COMM_WORLD);
            }
            expect(data, root, 0, count);
            CHECK_EQ(data[count], -9);
            free(data);
        }
    }
}

static void gather_and_scatter_at_every_root(void)
{
    for (int c = 0; c < NCOUNTS; c++) {
        for (int root = 0; root < check_size; root++) {
            int count = COUNTS[c] / 4 + c % 2, *own = numbers(count), *all = numbers(count * check_size);
            MPI_Request req;
            mine(own, check_rank, 0, count);
            if (check_rank == root && c % 3 == 0) {
                mine(all + count * root, root, 0, count);
                MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
            } else if (c % 3 == 1) {
                MPI_Igather(own, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD, &req);
                finish(&req);
            } else {
                MPI_Gather(own, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
            }
            if (check_rank == root)
                for (int r = 0; r < check_size; r++)
                    expect(all + count * r, r, 0, count);
            memset(own, 0, (size_t)count * sizeof(int));
            if (c % 2) {
                MPI_Iscatter(all, count, MPI_INT, own, count, MPI_INT, root, MPI_COMM_WORLD, &req);
                finish(&req);
            } else {
                MPI_Scatter(all, count, MPI_INT, own, count, MPI_INT, root, MPI_COMM_WORLD);
            }
            expect(own, check_rank, 0, count);
            CHECK_EQ(own[count], -9);
            free(own);
            free(all);
        }
    }
}

/* Blocks of different lengths, some empty, in reverse order with gaps. */
struct irregular {
    int *counts, *places, total;
};

static struct irregular irregular(int unit)
{
    struct irregular layout = {check_alloc((size_t)check_size * 4), check_alloc((size_t)check_size * 4), 0};
    for (int r = check_size - 1; r >= 0; r--) {
        layout.counts[r] = r % 3 == 1 ? 0 : unit * (r + 1);
        layout.places[r] = layout.total;
        layout.total += layout.counts[r] + 2;
    }
    return layout;
}

static void irregular_free(struct irregular layout)
{
    free(layout.counts);
    free(layout.places);
}

static void gatherv_scatterv_and_allgatherv_place_their_blocks(void)
{
    for (int c = 0; c < 7; c++) {
        struct irregular at = irregular(COUNTS[c]);
        int own_count = at.counts[check_rank], root = c % check_size, *own = numbers(own_count), *all = numbers(at.total);
        MPI_Request req;
        mine(own, check_rank, 0, own_count);
        if (c % 2)
            MPI_Gatherv(own, own_count, MPI_INT, all, at.counts, at.places, MPI_INT, root, MPI_COMM_WORLD);
        else {
            MPI_Igatherv(own, own_count, MPI_INT, all, at.counts, at.places, MPI_INT, root, MPI_COMM_WORLD, &req);
            finish(&req);
        }
        for (int r = 0; check_rank == root && r < check_size; r++) {
            expect(all + at.places[r], r, 0, at.counts[r]);
            CHECK_EQ(all[at.places[r] + at.counts[r]], -9);
        }
        memset(own, 0, (size_t)own_count * 4);
        if (c % 2) {
            MPI_Iscatterv(all, at.counts, at.places, MPI_INT, own, own_count, MPI_INT, root, MPI_COMM_WORLD, &req);
            finish(&req);
        } else
            MPI_Scatterv(all, at.counts, at.places, MPI_INT, own, own_count, MPI_INT, root, MPI_COMM_WORLD);
        expect(own, check_rank, 0, own_count);
        int *every = numbers(at.total);
        if (c % 3 == 0) {
            mine(every + at.places[check_rank], check_rank, 0, own_count);
            MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, every, at.counts, at.places, MPI_INT, MPI_COMM_WORLD);
        } else if (c % 3 == 1) {
            MPI_Iallgatherv(own, own_count, MPI_INT, every, at.counts, at.places, MPI_INT, MPI_COMM_WORLD, &req);
            finish(&req);
        } else {
            MPI_Allgatherv(own, own_count, MPI_INT, every, at.counts, at.places, MPI_INT, MPI_COMM_WORLD);
        }
        for (int r = 0; r < check_size; r++) {
            expect(every + at.places[r], r, 0, at.counts[r]);
            CHECK_EQ(every[at.places[r] + at.counts[r]], -9);
        }
        free(own);
        free(all);
        free(every);
        irregular_free(at);
    }
}

static void allgather_gives_everybody_everything(void)
{
    for (int c = 0; c < NCOUNTS; c++) {
        int count = COUNTS[c], *own = numbers(count), *all = numbers(count * check_size);
        MPI_Request req;
        mine(own, check_rank, 0, count);
        if (c % 3 == 0) {
            mine(all + count * check_rank, check_rank, 0, count);
            MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
        } else if (c % 3 == 1) {
            MPI_Iallgather(own, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD, &req);
            finish(&req);
        } else {
            MPI_Allgather(own, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
        }
        for (int r = 0; r < check_size; r++)
            expect(all + count * r, r, 0, count);
        CHECK_EQ(all[count * check_size], -9);
        free(own);
        free(all);
    }
}

/* The block from s to r carries value(s, r * block + i). */
static void alltoall_exchanges_every_pair(void)
{
    for (int c = 0; c < NCOUNTS; c++) {
        int block = COUNTS[c] / 2, *out = numbers(block * check_size), *in = numbers(block * check_size);
        MPI_Request req;
        mine(out, check_rank, 0, block * check_size);
        if (c % 3 == 0) {
            memcpy(in, out, (size_t)(block * check_size) * sizeof(int));
            MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, in, block, MPI_INT, MPI_COMM_WORLD);
        } else if (c % 3 == 1) {
            MPI_Ialltoall(out, block, MPI_INT, in, block, MPI_INT, MPI_COMM_WORLD, &req);
            finish(&req);
        } else {
            MPI_Alltoall(out, block, MPI_INT, in, block, MPI_INT, MPI_COMM_WORLD);
        }
        for (int s = 0; s < check_size; s++)
            expect(in + block * s, s, block * check_rank, block);
        CHECK_EQ(in[block * check_size], -9);
        free(out);
        free(in);
    }
}

static int pair_count(int from, int to, int unit) { return (from * 2 + to) % 3 == 2 ? 0 : unit * (1 + (from + to) % 3); }

static void alltoallv_and_w_exchange_blocks_of_all_lengths(void)
{
    for (int c = 0; c < 7; c++) {
        size_t bytes = (size_t)check_size * sizeof(int);
        int *scounts = check_alloc(bytes), *splaces = check_alloc(bytes), *rcounts = check_alloc(bytes);
        int *rplaces = check_alloc(bytes), stotal = 0, rtotal = 0;
        MPI_Datatype *types = check_alloc((size_t)check_size * sizeof *types);
        for (int r = 0; r < check_size; r++) {
            scounts[r] = pair_count(check_rank, r, COUNTS[c]);
            rcounts[r] = pair_count(r, check_rank, COUNTS[c]);
            splaces[r] = stotal;
            rplaces[r] = rtotal;
            stotal += scounts[r] + 1;
            rtotal += rcounts[r] + 1;
            types[r] = MPI_INT;
        }
        int *out = numbers(stotal), *in = numbers(rtotal);
        MPI_Request req;
        for (int r = 0; r < check_size; r++)
            mine(out + splaces[r], check_rank * 100 + r, 0, scounts[r]);
        if (c % 3 == 0) {
            MPI_Alltoallv(out, scounts, splaces, MPI_INT, in, rcounts, rplaces, MPI_INT, MPI_COMM_WORLD);
        } else if (c % 3 == 1) {
            MPI_Ialltoallv(out, scounts, splaces, MPI_INT, in, rcounts, rplaces, MPI_INT, MPI_COMM_WORLD, &req);
            finish(&req);
        } else {
            for (int r = 0; r < check_size; r++) {
                splaces[r] *= 4;
                rplaces[r] *= 4;
            }
            MPI_Alltoallw(out, scounts, splaces, types, in, rcounts, rplaces, types, MPI_COMM_WORLD);
        }
        for (int r = 0; r < check_size; r++) {
            int *block = in + rplaces[r] / (c % 3 == 2 ? 4 : 1);
            expect(block, r * 100 + check_rank, 0, rcounts[r]);
            CHECK_EQ(block[rcounts[r]], -9);
        }
        free(out), free(in), free(scounts), free(splaces), free(rcounts), free(rplaces), free(types);
    }
}

/* Where nothing is exchanged there need be no type, as in MPICH. */
static void alltoallw_takes_no_type_for_empty_blocks(void)
{
    int *counts = check_alloc((size_t)check_size * sizeof(int)), in = -9, out = 40 + check_rank;
    MPI_Datatype *types = check_alloc((size_t)check_size * sizeof *types);
    for (int r = 0; r < check_size; r++) {
        counts[r] = r == check_rank;
        types[r] = r == check_rank ? MPI_INT : MPI_DATATYPE_NULL;
    }
    int *places = calloc((size_t)check_size, sizeof(int));
    MPI_Alltoallw(&out, counts, places, types, &in, counts, places, types, MPI_COMM_WORLD);
    CHECK_EQ(in, 40 + check_rank);
    free(counts), free(places), free(types);
}

static long long sum_to(int rank_end, int i)
{
    long long sum = 0;
    for (int r = 0; r < rank_end; r++)
        sum += (long long)(r + 1) * (i % 1000 + 1);
    return sum;
}

static long long *addends(int count)
{
    long long *data = check_alloc(((size_t)count + 1) * sizeof *data);
    for (int i = 0; i < count; i++)
        data[i] = (long long)(check_rank + 1) * (i % 1000 + 1);
    data[count] = -9;
    return data;
}

static void expect_sum(const long long *got, int rank_end, int from, int count)
{
    for (int i = 0; i < count; i++) {
        if (got[i] != sum_to(rank_end, from + i)) {
            CHECK_EQ(got[i], sum_to(rank_end, from + i));
            return;
        }
    }
}

static void reductions_add_up(void)
{
    for (int c = 0; c < NCOUNTS; c++) {
        int count = COUNTS[c], root = c % check_size;
        long long *in = addends(count), *out = addends(count);
        MPI_Request req;
        memset(out, 0, (size_t)count * sizeof *out);
        MPI_Allreduce(in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        expect_sum(out, check_size, 0, count);
        CHECK_EQ(out[count], -9);
        memcpy(out, in, (size_t)count * sizeof *out);
        MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        expect_sum(out, check_size, 0, count);
        memset(out, 0, (size_t)count * sizeof *out);
        MPI_Iallreduce(in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, &req);
        finish(&req);
        expect_sum(out, check_size, 0, count);
        memset(out, 0, (size_t)count * sizeof *out);
        if (c % 2) {
            MPI_Reduce(in, out, count, MPI_LONG_LONG, MPI_SUM, root, MPI_COMM_WORLD);
        } else {
            MPI_Ireduce(in, out, count, MPI_LONG_LONG, MPI_SUM, root, MPI_COMM_WORLD, &req);
            finish(&req);
        }
        if (check_rank == root)
            expect_sum(out, check_size, 0, count);
        free(in);
        free(out);
    }
}

static void scans_add_up_to_their_rank(void)
{
    for (int c = 0; c < NCOUNTS; c++) {
        int count = COUNTS[c];
        long long *in = addends(count), *out = addends(count);
        MPI_Request req;
        MPI_Scan(in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        expect_sum(out, check_rank + 1, 0, count);
        memcpy(out, in, (size_t)count * sizeof *out);
        MPI_Iscan(MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, &req);
        finish(&req);
        expect_sum(out, check_rank + 1, 0, count);
        if (c % 2) {
            MPI_Exscan(in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        } else {
            MPI_Iexscan(in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, &req);
            finish(&req);
        }
        if (check_rank > 0)
            expect_sum(out, check_rank, 0, count);
        CHECK_EQ(out[count], -9);
        free(in);
        free(out);
    }
}

static void reduce_scatter_gives_each_its_part(void)
{
    for (int c = 0; c < 7; c++) {
        struct irregular at = irregular(COUNTS[c]);
        int total = 0, before = 0, block = COUNTS[c];
        for (int r = 0; r < check_size; r++) {
            before += r < check_rank ? at.counts[r] : 0;
            total += at.counts[r];
        }
        long long *in = addends(total), *out = addends(total);
        MPI_Request req;
        if (c % 2) {
            MPI_Reduce_scatter(in, out, at.counts, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        } else {
            MPI_Ireduce_scatter(in, out, at.counts, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, &req);
            finish(&req);
        }
        expect_sum(out, check_size, before, at.counts[check_rank]);
        free(in);
        free(out);
        in = addends(block * check_size);
        out = addends(block);
        if (c % 2) {
            MPI_Ireduce_scatter_block(in, out, block, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, &req);
            finish(&req);
            expect_sum(out, check_size, block * check_rank, block);
        } else {
            MPI_Reduce_scatter_block(MPI_IN_PLACE, in, block, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
            expect_sum(in, check_size, block * check_rank, block);
        }
        free(in);
        free(out);
        irregular_free(at);
    }
}

static void many_collectives_fly_at_once(void)
{
    enum { FLYING = 30 };
    MPI_Request req[FLYING];
    int in[FLYING], out[FLYING];
    for (int i = 0; i < FLYING; i++) {
        in[i] = check_rank + i;
        out[i] = i % check_size == check_rank ? 1000 + i : -1;
        if (i % 3 == 0)
            MPI_Ibcast(&out[i], 1, MPI_INT, i % check_size, MPI_COMM_WORLD, &req[i]);
        else if (i % 3 == 1)
            MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &req[i]);
        else
            MPI_Ibarrier(MPI_COMM_WORLD, &req[i]);
    }
    int right = (check_rank + 1) % check_size, got; /* messages between them */
    MPI_Sendrecv(&check_rank, 1, MPI_INT, right, 0, &got, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK_EQ(got, (check_rank + check_size - 1) % check_size);
    MPI_Waitall(FLYING, req, MPI_STATUSES_IGNORE);
    for (int i = 0; i < FLYING; i++) {
        if (i % 3 == 0)
            CHECK_EQ(out[i], 1000 + i);
        if (i % 3 == 1)
            CHECK_EQ(out[i], check_size - 1 + i);
    }
}

static void derived_types_go_through_collectives(void)
{
    enum { ROWS = 50, COLS = 6 };
    MPI_Datatype column, resized;
    int matrix[ROWS][COLS], all[ROWS][64];
    MPI_Type_vector(ROWS, 1, COLS, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < ROWS * COLS; i++)
        matrix[i / COLS][i % COLS] = check_rank == 0 ? i : -1;
    MPI_Bcast(&matrix[0][2], 1, column, 0, MPI_COMM_WORLD);
    for (int i = 0; i < ROWS; i++) {
        CHECK_EQ(matrix[i][2], i * COLS + 2);
        CHECK_EQ(matrix[i][3], check_rank == 0 ? i * COLS + 3 : -1);
    }
    MPI_Type_free(&column);
    MPI_Type_vector(ROWS, 1, 64, MPI_INT, &column); /* each rank's block becomes a column */
    MPI_Type_create_resized(column, 0, sizeof(int), &resized);
    MPI_Type_commit(&resized);
    int own[ROWS];
    mine(own, check_rank, 0, ROWS);
    memset(all, 0, sizeof all);
    MPI_Allgather(own, ROWS, MPI_INT, all, 1, resized, MPI_COMM_WORLD);
    for (int r = 0; r < check_size; r++)
        for (int i = 0; i < ROWS; i++)
            CHECK_EQ(all[i][r], value(r, i));
    MPI_Type_free(&column);
    MPI_Type_free(&resized);
}

static void large_blocks_arrive_whole(void)
{
    size_t len = 9u << 20;
    unsigned char *data = check_alloc(len);
    check_fill(data, len, check_rank == check_size - 1 ? 3 : 4);
    MPI_Bcast(data, (int)len, MPI_BYTE, check_size - 1, MPI_COMM_WORLD);
    CHECK(check_same(data, len, 3));
    double *x = check_alloc(len), *y = check_alloc(len);
    int count = (int)(len / sizeof(double));
    for (int i = 0; i < count; i++)
        x[i] = i + check_rank;
    MPI_Allreduce(x, y, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += y[i] != (double)i * check_size + check_size * (check_size - 1) / 2.0;
    CHECK_EQ(wrong, 0);
    free(data), free(x), free(y);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(barrier_holds_everybody);
    RUN(bcast_from_every_root);
    RUN(gather_and_scatter_at_every_root);
    RUN(gatherv_scatterv_and_allgatherv_place_their_blocks);
    RUN(allgather_gives_everybody_everything);
    RUN(alltoall_exchanges_every_pair);
    RUN(alltoallv_and_w_exchange_blocks_of_all_lengths);
    RUN(alltoallw_takes_no_type_for_empty_blocks);
    RUN(reductions_add_up);
    RUN(scans_add_up_to_their_rank);
    RUN(reduce_scatter_gives_each_its_part);
    RUN(many_collectives_fly_at_once);
    RUN(derived_types_go_through_collectives);
    RUN(large_blocks_arrive_whole);
    return check_end();
}
