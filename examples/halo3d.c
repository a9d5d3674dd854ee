/* A cube cut into blocks, one per rank, whose faces are exchanged in every step: what most codes on regular meshes do.
 *
 *     mpicc -O2 halo3d.c -o halo3d -lm
 *     mpirun -n 8 ./halo3d -n 128 -s 50
 *
 * A seven-point stencil on a periodic cube of -n cells a side. The faces in the three directions are contiguous, rows with gaps, and single cells with gaps:
 * three derived datatypes, no packing by hand. The program runs the same steps twice, first exchanging before it computes, then computing the inner cells while
 * the faces are under way, checks that both give the same cells, and says how much of the exchange the second way hid. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FACES = 6, REQUESTS = 2 * FACES };
enum way { FIRST_EXCHANGE, MEANWHILE, WAYS };

/* A rank's cells with a shell one cell wide around them. */
struct block {
    int n[3];                  /* without the shell */
    double *now, *next;
    int neighbour[FACES];      /* below and above in each direction */
    MPI_Datatype face[3];      /* a layer across each direction, shell left out */
    MPI_Comm grid;
};

static void *allocate(size_t count)
{
    double *cells = calloc(count, sizeof *cells);
    if (!cells) {
        fprintf(stderr, "halo3d: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return cells;
}

static size_t at(const struct block *b, int x, int y, int z)
{
    return ((size_t)x * (size_t)(b->n[1] + 2) + (size_t)y) * (size_t)(b->n[2] + 2) + (size_t)z;
}

static size_t cells_of(const struct block *b)
{
    return (size_t)(b->n[0] + 2) * (size_t)(b->n[1] + 2) * (size_t)(b->n[2] + 2);
}

static void block_create(struct block *b, int side)
{
    int size, rank, dims[3] = {0, 0, 0}, periodic[3] = {1, 1, 1}, place[3];
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 3, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periodic, 1, &b->grid);
    MPI_Comm_rank(b->grid, &rank);
    MPI_Cart_coords(b->grid, rank, 3, place);
    int whole[3];
    for (int d = 0; d < 3; d++) {
        b->n[d] = side / dims[d] + (place[d] < side % dims[d]);
        whole[d] = b->n[d] + 2;
        MPI_Cart_shift(b->grid, d, 1, &b->neighbour[2 * d], &b->neighbour[2 * d + 1]);
    }
    for (int d = 0; d < 3; d++) {
        int sub[3] = {b->n[0], b->n[1], b->n[2]}, start[3] = {0, 0, 0};
        sub[d] = 1;
        MPI_Type_create_subarray(3, whole, sub, start, MPI_ORDER_C, MPI_DOUBLE, &b->face[d]);
        MPI_Type_commit(&b->face[d]);
    }
    b->now = allocate(cells_of(b));
    b->next = allocate(cells_of(b));
}

static void block_free(struct block *b)
{
    for (int d = 0; d < 3; d++)
        MPI_Type_free(&b->face[d]);
    MPI_Comm_free(&b->grid);
    free(b->now), free(b->next);
}

static void fill(struct block *b)
{
    int rank;
    MPI_Comm_rank(b->grid, &rank);
    memset(b->now, 0, cells_of(b) * sizeof *b->now);
    for (int x = 1; x <= b->n[0]; x++)
        for (int y = 1; y <= b->n[1]; y++)
            for (int z = 1; z <= b->n[2]; z++)
                b->now[at(b, x, y, z)] = sin(0.1 * x + rank) + cos(0.2 * y) * sin(0.3 * z);
}

/* The first cell of the layer of face `f`: of our own outermost cells, or of the shell beyond them. */
static double *layer(struct block *b, int f, int shell)
{
    int c[3] = {1, 1, 1}, d = f / 2, low = f % 2 == 0;
    c[d] = low ? !shell : b->n[d] + shell;
    return &b->now[at(b, c[0], c[1], c[2])];
}

static void exchange_start(struct block *b, MPI_Request *req)
{
    for (int f = 0; f < FACES; f++)
        MPI_Irecv(layer(b, f, 1), 1, b->face[f / 2], b->neighbour[f], f ^ 1, b->grid, &req[f]);
    for (int f = 0; f < FACES; f++)
        MPI_Isend(layer(b, f, 0), 1, b->face[f / 2], b->neighbour[f], f, b->grid, &req[FACES + f]);
}

/* The cells of a box, its bounds included. */
static void update(struct block *b, const int low[3], const int high[3])
{
    size_t line = (size_t)(b->n[2] + 2), plane = (size_t)(b->n[1] + 2) * line;
    for (int x = low[0]; x <= high[0]; x++)
        for (int y = low[1]; y <= high[1]; y++)
            for (int z = low[2]; z <= high[2]; z++) {
                size_t i = at(b, x, y, z);
                const double *u = b->now;
                b->next[i] = u[i] + 0.1 * (u[i - 1] + u[i + 1] + u[i - line] + u[i + line] + u[i - plane] + u[i + plane] - 6 * u[i]);
            }
}

static void update_inner(struct block *b)
{
    int low[3] = {2, 2, 2}, high[3] = {b->n[0] - 1, b->n[1] - 1, b->n[2] - 1};
    update(b, low, high);
}

/* The outermost own cells, each once: layers across the first direction whole, then what is left across the others. */
static void update_outer(struct block *b)
{
    int low[3] = {1, 1, 1}, high[3] = {b->n[0], b->n[1], b->n[2]};
    for (int d = 0; d < 3; d++) {
        int first[3] = {low[0], low[1], low[2]}, last[3] = {high[0], high[1], high[2]};
        first[d] = last[d] = low[d];
        update(b, first, last);
        if (high[d] > low[d]) {
            first[d] = last[d] = high[d];
            update(b, first, last);
        }
        low[d]++, high[d]--;
    }
}

/* Runs the steps; seconds of all, and in `in_mpi` those inside MPI. */
static double run(struct block *b, enum way way, int steps, double *in_mpi)
{
    fill(b);
    MPI_Barrier(b->grid);
    double started = MPI_Wtime();
    *in_mpi = 0;
    for (int s = 0; s < steps; s++) {
        MPI_Request req[REQUESTS];
        double since = MPI_Wtime();
        exchange_start(b, req);
        if (way == FIRST_EXCHANGE)
            MPI_Waitall(REQUESTS, req, MPI_STATUSES_IGNORE);
        *in_mpi += MPI_Wtime() - since;
        update_inner(b);
        since = MPI_Wtime();
        if (way == MEANWHILE)
            MPI_Waitall(REQUESTS, req, MPI_STATUSES_IGNORE);
        *in_mpi += MPI_Wtime() - since;
        update_outer(b);
        double *swap = b->now;
        b->now = b->next, b->next = swap;
    }
    return MPI_Wtime() - started;
}

/* A number that any wrong cell changes. */
static double checksum(struct block *b)
{
    double own = 0, all;
    for (int x = 1; x <= b->n[0]; x++)
        for (int y = 1; y <= b->n[1]; y++)
            for (int z = 1; z <= b->n[2]; z++)
                own += b->now[at(b, x, y, z)] * (1 + (x * 7 + y * 3 + z) % 11);
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, b->grid);
    return all;
}

int main(int argc, char **argv)
{
    int side = 96, steps = 40, rank, size, option;
    MPI_Init(&argc, &argv);
    while ((option = getopt(argc, argv, "n:s:")) != -1) {
        switch (option) {
        case 'n': side = atoi(optarg); break;
        case 's': steps = atoi(optarg); break;
        default: MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (side < 3 * size || steps < 1) {
        fprintf(stderr, "halo3d: the side (-n) must be at least three times the number of ranks, the steps (-s) at least 1\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct block b;
    block_create(&b, side);
    MPI_Comm_rank(b.grid, &rank);
    double own[WAYS][2], most[WAYS][2], sum[WAYS];
    run(&b, FIRST_EXCHANGE, 2, &own[0][1]); /* maps buffers, learns ways */
    for (enum way way = FIRST_EXCHANGE; way < WAYS; way++) {
        own[way][0] = run(&b, way, steps, &own[way][1]);
        sum[way] = checksum(&b);
    }
    MPI_Reduce(own, most, 2 * WAYS, MPI_DOUBLE, MPI_MAX, 0, b.grid);
    int same = sum[FIRST_EXCHANGE] == sum[MEANWHILE];
    if (rank == 0) {
        double faces = 2.0 * 8 * ((double)b.n[0] * b.n[1] + (double)b.n[1] * b.n[2] + (double)b.n[0] * b.n[2]);
        printf("halo3d: %d ranks, %d x %d x %d cells each, %.0f KB of faces per rank and step, %d steps\n", size, b.n[0], b.n[1], b.n[2],
               faces / 1024, steps);
        printf("halo3d: exchange first  %.4f s, %.4f s of it in MPI\n", most[0][0], most[0][1]);
        printf("halo3d: meanwhile       %.4f s, %.4f s of it in MPI: %.0f %% of the exchange hidden, %.1f %% of the time saved\n", most[1][0],
               most[1][1], 100 * (1 - most[1][1] / most[0][1]), 100 * (1 - most[1][0] / most[0][0]));
        printf("halo3d: the cells are %s\n", same ? "the same" : "NOT the same");
    }
    block_free(&b);
    MPI_Finalize();
    return !same;
}
