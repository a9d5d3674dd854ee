/* Heat spreading through a square plate, solved on any number of ranks; the result is written as a picture.
 *
 *     mpicc -O2 heat2d.c -o heat2d -lm
 *     mpirun -n 4 ./heat2d -o heat.png
 *     mpirun -n 4 ./heat2d -m persistent
 *
 * The plate is cut into tiles, one per rank, on a Cartesian grid. In every step each rank exchanges the rims of its
 * tile with up to four neighbours (rows are contiguous, columns are a strided datatype). -m says how: blocking (exchange, then
 * update), nonblocking (the default: the cells that need no neighbour are updated meanwhile), or persistent (the same with requests that
 * are made once). Every CHECK_EVERY steps all ranks agree on how much still changes. At the end rank 0
 * receives every tile straight into its place in the whole plate, through a subarray datatype. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "png.h"

enum { CHECK_EVERY = 50, TAG_RESULT = 99 };
enum { NORTH, SOUTH, WEST, EAST, SIDES };
enum { REQUESTS = 2 * SIDES };

/* How the rims are exchanged. */
enum manner { BLOCKING, NONBLOCKING, PERSISTENT, MANNERS };
static const char *const MANNER[MANNERS] = {"blocking", "nonblocking", "persistent"};

/* The part of the plate that one rank owns, with a rim one cell wide around it. */
struct tile {
    int rows, cols;     /* without the rim */
    int row0, col0;     /* where the first own cell lies in the plate */
    int plate;          /* side of the whole plate */
    double *now, *next; /* (rows + 2) x (cols + 2) cells */
    int neighbour[SIDES];
    MPI_Datatype column;
    MPI_Comm grid;
    enum manner manner;
    MPI_Request ready[2][REQUESTS]; /* persistent ones, for the cells in `first` and for the others */
    const double *first;
    double exchanging; /* seconds in calls of MPI during the steps */
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "heat2d: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static size_t at(const struct tile *t, int row, int col)
{
    return (size_t)row * (size_t)(t->cols + 2) + (size_t)col;
}

/* Splits `total` cells among `parts`; the first ones get the remainder. */
static void share(int total, int parts, int index, int *start, int *count)
{
    int base = total / parts, rest = total % parts;
    *count = base + (index < rest);
    *start = index * base + (index < rest ? index : rest);
}

/* The plate is cold but for two hot discs; its border stays cold. */
static double initial(int plate, int row, int col)
{
    double y = (row + 0.5) / plate, x = (col + 0.5) / plate;
    double a = hypot(x - 0.30, y - 0.35), b = hypot(x - 0.68, y - 0.62);
    return a < 0.16 ? 1.0 : b < 0.22 ? 0.8 : 0.0;
}

static void tile_create(struct tile *t, int plate)
{
    int size, rank, dims[2] = {0, 0}, periodic[2] = {0, 0}, place[2];
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, 1, &t->grid);
    MPI_Comm_rank(t->grid, &rank);
    MPI_Cart_coords(t->grid, rank, 2, place);
    MPI_Cart_shift(t->grid, 0, 1, &t->neighbour[NORTH], &t->neighbour[SOUTH]);
    MPI_Cart_shift(t->grid, 1, 1, &t->neighbour[WEST], &t->neighbour[EAST]);
    t->plate = plate;
    share(plate, dims[0], place[0], &t->row0, &t->rows);
    share(plate, dims[1], place[1], &t->col0, &t->cols);
    size_t cells = (size_t)(t->rows + 2) * (size_t)(t->cols + 2);
    t->now = allocate(cells, sizeof(double));
    t->next = allocate(cells, sizeof(double));
    MPI_Type_vector(t->rows, 1, t->cols + 2, MPI_DOUBLE, &t->column);
    MPI_Type_commit(&t->column);
    for (int r = 1; r <= t->rows; r++)
        for (int c = 1; c <= t->cols; c++)
            t->now[at(t, r, c)] = initial(plate, t->row0 + r - 1, t->col0 + c - 1);
}

static void tile_free(struct tile *t)
{
    MPI_Type_free(&t->column);
    MPI_Comm_free(&t->grid);
    free(t->now);
    free(t->next);
}

typedef int starter(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* MPI_Isend with the arguments that MPI_Irecv has, too; and the same for requests that are only made. */
static int isend(void *cells, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *req)
{
    return MPI_Isend(cells, n, type, to, tag, comm, req);
}

static int send_init(void *cells, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *req)
{
    return MPI_Send_init(cells, n, type, to, tag, comm, req);
}

/* Requests for the four rims of the cells `u`: what comes in, and what goes out. Beyond the plate's edge the neighbour is MPI_PROC_NULL. */
static void rims(struct tile *t, double *u, starter *recv, starter *send, MPI_Request req[REQUESTS])
{
    int south = t->rows, east = t->cols;
    recv(&u[at(t, 0, 1)], t->cols, MPI_DOUBLE, t->neighbour[NORTH], SOUTH, t->grid, &req[0]);
    recv(&u[at(t, south + 1, 1)], t->cols, MPI_DOUBLE, t->neighbour[SOUTH], NORTH, t->grid, &req[1]);
    recv(&u[at(t, 1, 0)], 1, t->column, t->neighbour[WEST], EAST, t->grid, &req[2]);
    recv(&u[at(t, 1, east + 1)], 1, t->column, t->neighbour[EAST], WEST, t->grid, &req[3]);
    send(&u[at(t, 1, 1)], t->cols, MPI_DOUBLE, t->neighbour[NORTH], NORTH, t->grid, &req[4]);
    send(&u[at(t, south, 1)], t->cols, MPI_DOUBLE, t->neighbour[SOUTH], SOUTH, t->grid, &req[5]);
    send(&u[at(t, 1, 1)], 1, t->column, t->neighbour[WEST], WEST, t->grid, &req[6]);
    send(&u[at(t, 1, east)], 1, t->column, t->neighbour[EAST], EAST, t->grid, &req[7]);
}

/* One side after the other. */
static void exchange_now(struct tile *t)
{
    double *u = t->now;
    int south = t->rows, east = t->cols, *to = t->neighbour;
    MPI_Sendrecv(&u[at(t, 1, 1)], t->cols, MPI_DOUBLE, to[NORTH], NORTH, &u[at(t, south + 1, 1)], t->cols, MPI_DOUBLE, to[SOUTH],
                 NORTH, t->grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[at(t, south, 1)], t->cols, MPI_DOUBLE, to[SOUTH], SOUTH, &u[at(t, 0, 1)], t->cols, MPI_DOUBLE, to[NORTH],
                 SOUTH, t->grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[at(t, 1, 1)], 1, t->column, to[WEST], WEST, &u[at(t, 1, east + 1)], 1, t->column, to[EAST], WEST, t->grid,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[at(t, 1, east)], 1, t->column, to[EAST], EAST, &u[at(t, 1, 0)], 1, t->column, to[WEST], EAST, t->grid,
                 MPI_STATUS_IGNORE);
}

/* Starts the exchange; the requests to wait for, NULL when it is over already. */
static MPI_Request *exchange_start(struct tile *t, MPI_Request own[REQUESTS])
{
    double since = MPI_Wtime();
    MPI_Request *req = own;
    if (t->manner == PERSISTENT) {
        req = t->ready[t->now != t->first];
        MPI_Startall(REQUESTS, req);
    } else if (t->manner == NONBLOCKING) {
        rims(t, t->now, MPI_Irecv, isend, req);
    } else {
        exchange_now(t);
        req = NULL;
    }
    t->exchanging += MPI_Wtime() - since;
    return req;
}

static void exchange_end(struct tile *t, MPI_Request *req)
{
    double since = MPI_Wtime();
    if (req)
        MPI_Waitall(REQUESTS, req, MPI_STATUSES_IGNORE);
    t->exchanging += MPI_Wtime() - since;
}

/* The requests that are made once. */
static void exchange_prepare(struct tile *t)
{
    t->first = t->now;
    if (t->manner == PERSISTENT) {
        rims(t, t->now, MPI_Recv_init, send_init, t->ready[0]);
        rims(t, t->next, MPI_Recv_init, send_init, t->ready[1]);
    }
}

static void exchange_forget(struct tile *t)
{
    for (int i = 0; i < 2 * REQUESTS && t->manner == PERSISTENT; i++)
        MPI_Request_free(&t->ready[i / REQUESTS][i % REQUESTS]);
}

static enum manner manner_named(const char *name)
{
    for (enum manner m = BLOCKING; m < MANNERS; m++)
        if (strcmp(name, MANNER[m]) == 0)
            return m;
    fprintf(stderr, "heat2d: -m is blocking, nonblocking or persistent, not '%s'\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return MANNERS;
}

/* One explicit step on the cells of a rectangle; returns the largest change. */
static double update(struct tile *t, int row_first, int row_last, int col_first, int col_last)
{
    size_t width = (size_t)(t->cols + 2);
    double largest = 0;
    for (int r = row_first; r <= row_last; r++) {
        for (int c = col_first; c <= col_last; c++) {
            size_t i = at(t, r, c);
            const double *u = t->now;
            double change = 0.25 * (u[i - width] + u[i + width] + u[i - 1] + u[i + 1]) - u[i];
            t->next[i] = u[i] + change;
            largest = fmax(largest, fabs(change));
        }
    }
    return largest;
}

static double step(struct tile *t)
{
    MPI_Request own[REQUESTS], *req = exchange_start(t, own);
    double largest = update(t, 2, t->rows - 1, 2, t->cols - 1);
    exchange_end(t, req);
    /* The rim of the own cells; a tile of one row or column must not be updated twice. */
    largest = fmax(largest, update(t, 1, 1, 1, t->cols));
    if (t->rows > 1)
        largest = fmax(largest, update(t, t->rows, t->rows, 1, t->cols));
    largest = fmax(largest, update(t, 2, t->rows - 1, 1, 1));
    if (t->cols > 1)
        largest = fmax(largest, update(t, 2, t->rows - 1, t->cols, t->cols));
    double *swap = t->now;
    t->now = t->next;
    t->next = swap;
    return largest;
}

static MPI_Datatype block(int rows, int cols, int row0, int col0, int sub_rows, int sub_cols)
{
    int sizes[2] = {rows, cols}, subsizes[2] = {sub_rows, sub_cols}, starts[2] = {row0, col0};
    MPI_Datatype type;
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Collects the plate on rank 0 of the grid; NULL elsewhere. */
static double *collect(struct tile *t)
{
    int size, rank, mine[4] = {t->row0, t->col0, t->rows, t->cols};
    MPI_Comm_size(t->grid, &size);
    MPI_Comm_rank(t->grid, &rank);
    int *all = rank == 0 ? allocate((size_t)size * 4, sizeof(int)) : NULL;
    MPI_Gather(mine, 4, MPI_INT, all, 4, MPI_INT, 0, t->grid);
    MPI_Datatype inner = block(t->rows + 2, t->cols + 2, 1, 1, t->rows, t->cols);
    MPI_Request sent;
    MPI_Isend(t->now, 1, inner, 0, TAG_RESULT, t->grid, &sent);
    double *plate = NULL;
    if (rank == 0) {
        plate = allocate((size_t)t->plate * (size_t)t->plate, sizeof(double));
        for (int peer = 0; peer < size; peer++) {
            const int *p = &all[4 * peer];
            MPI_Datatype place = block(t->plate, t->plate, p[0], p[1], p[2], p[3]);
            MPI_Recv(plate, 1, place, peer, TAG_RESULT, t->grid, MPI_STATUS_IGNORE);
            MPI_Type_free(&place);
        }
        free(all);
    }
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Type_free(&inner);
    return plate;
}

/* Black, red, yellow, white. */
static void colour(double heat, unsigned char rgb[3])
{
    for (int i = 0; i < 3; i++) {
        double level = fmin(1, fmax(0, 3 * heat - i));
        rgb[i] = (unsigned char)(255 * level);
    }
}

static int draw(const char *path, int side, const double *plate)
{
    unsigned char *rgb = allocate((size_t)side * (size_t)side, 3);
    for (size_t i = 0; i < (size_t)side * (size_t)side; i++)
        colour(plate[i], rgb + 3 * i);
    int result = png_write(path, side, side, rgb);
    free(rgb);
    return result;
}

static double sum(const double *values, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

int main(int argc, char **argv)
{
    int side = 480, steps = 2000, rank, size, option, done = 0, failed = 0;
    const char *path = "heat.png";
    enum manner manner = NONBLOCKING;
    MPI_Init(&argc, &argv);
    while ((option = getopt(argc, argv, "n:s:o:m:")) != -1) {
        switch (option) {
        case 'n': side = atoi(optarg); break;
        case 's': steps = atoi(optarg); break;
        case 'o': path = optarg; break;
        case 'm': manner = manner_named(optarg); break;
        default: MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (side < size || steps < 1) {
        fprintf(stderr, "heat2d: the side (-n) must be at least the number of ranks, the steps (-s) at least 1\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct tile tile = {.manner = manner};
    tile_create(&tile, side);
    exchange_prepare(&tile);
    MPI_Comm_rank(tile.grid, &rank);
    double started = MPI_Wtime(), change = 1;
    while (done < steps && change > 1e-7) {
        double own = step(&tile);
        if (++done % CHECK_EVERY == 0 || done == steps)
            MPI_Allreduce(&own, &change, 1, MPI_DOUBLE, MPI_MAX, tile.grid);
    }
    double seconds = MPI_Wtime() - started, longest;
    exchange_forget(&tile);
    MPI_Reduce(&tile.exchanging, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, tile.grid);
    double *plate = collect(&tile);
    if (rank == 0) {
        double rim_bytes = 4.0 * 8 * (tile.rows + tile.cols); /* sent and received by a tile in the middle */
        printf("heat2d: %d ranks, %d x %d cells, %d steps in %.3f s, largest change %.2e, heat left %.6f\n", size, side,
               side, done, seconds, change, sum(plate, (size_t)side * (size_t)side) / side / side);
        printf("heat2d: %s, about %.1f KB exchanged per rank and step, at most %.3f s inside the exchange; picture: %s\n", MANNER[manner],
               rim_bytes / 1024, longest, path);
        failed = draw(path, side, plate) != 0;
        if (failed)
            perror(path);
        free(plate);
    }
    tile_free(&tile);
    MPI_Finalize();
    return failed;
}
