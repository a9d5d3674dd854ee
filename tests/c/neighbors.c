/* Neighbourhood collectives in all their forms, on grids, graphs and distributed graphs, also where two processes are neighbours more than once.
 * ranks: 1 2 3 4 6 */
#include "check.h"

enum { FORMS = 3, MOST = 16, LONGEST = 5000 };

/* A process's neighbours, and which of a source's blocks is the one that comes. */
static int sources[MOST], destinations[MOST], nsources, ndestinations, sent_as[MOST];

static int value(int who, int edge, int i) { return who * 100003 + edge * 1009 + i * 3 + 1; }

/* Carries out what `call` does in one of three forms; a persistent one twice. */
#define IN_FORM(form, name, iname, init, ...)                                                                          \
    do {                                                                                                               \
        MPI_Request form_req;                                                                                          \
        if ((form) == 0) {                                                                                             \
            name(__VA_ARGS__);                                                                                         \
        } else if ((form) == 1) {                                                                                      \
            iname(__VA_ARGS__, &form_req);                                                                             \
            MPI_Wait(&form_req, MPI_STATUS_IGNORE);                                                                    \
        } else {                                                                                                       \
            init(__VA_ARGS__, MPI_INFO_NULL, &form_req);                                                               \
            for (int form_round = 0; form_round < 2; form_round++) {                                                   \
                MPI_Start(&form_req);                                                                                  \
                MPI_Wait(&form_req, MPI_STATUS_IGNORE);                                                                \
            }                                                                                                          \
            MPI_Request_free(&form_req);                                                                               \
        }                                                                                                              \
    } while (0)

static int *blocks(int count)
{
    int *memory = check_alloc((size_t)count * (MOST + 1) * sizeof(int));
    for (int i = 0; i < count * (MOST + 1); i++)
        memory[i] = -4;
    return memory;
}

/* What came from source `edge`: block `as` of it, or nothing from beyond the edge of a grid. */
static void look(const int *got, int edge, int as, int count)
{
    for (int i = 0; i < count; i++) {
        int wanted = sources[edge] == MPI_PROC_NULL ? -4 : value(sources[edge], as, i);
        if (got[i] != wanted) {
            CHECK_EQ(got[i], wanted);
            return;
        }
    }
}

static void exchange(MPI_Comm comm)
{
    static const int COUNTS[] = {0, 1, 100, LONGEST};
    for (int c = 0; c < 4; c++)
        for (int form = 0; form < FORMS; form++) {
            int n = COUNTS[c], rank, counts[MOST], displs[MOST];
            MPI_Aint bytes[MOST];
            MPI_Datatype types[MOST];
            MPI_Comm_rank(comm, &rank);
            int *send = blocks(n), *recv = blocks(n);
            for (int edge = 0; edge < MOST; edge++) {
                counts[edge] = n;
                displs[edge] = (MOST - 1 - edge) * n; /* last block first */
                bytes[edge] = (MPI_Aint)displs[edge] * 4;
                types[edge] = MPI_INT;
            }
            for (int edge = 0; edge < ndestinations; edge++)
                for (int i = 0; i < n; i++)
                    send[edge * n + i] = value(rank, edge, i);
            IN_FORM(form, MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init, send, n, MPI_INT,
                    recv, n, MPI_INT, comm);
            for (int edge = 0; edge < nsources; edge++)
                look(recv + edge * n, edge, sent_as[edge], n);
            free(recv), recv = blocks(n);
            IN_FORM(form, MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init, send, n,
                    MPI_INT, recv, n, MPI_INT, comm);
            for (int edge = 0; edge < nsources && ndestinations > 0; edge++)
                look(recv + edge * n, edge, 0, n);
            free(recv), recv = blocks(n);
            IN_FORM(form, MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init, send, n,
                    MPI_INT, recv, counts, displs, MPI_INT, comm);
            for (int edge = 0; edge < nsources && ndestinations > 0; edge++)
                look(recv + displs[edge], edge, 0, n);
            int *spread = blocks(n);
            for (int edge = 0; edge < ndestinations; edge++)
                memcpy(spread + displs[edge], send + edge * n, (size_t)n * sizeof(int));
            free(recv), recv = blocks(n);
            IN_FORM(form, MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init, spread, counts,
                    displs, MPI_INT, recv, counts, displs, MPI_INT, comm);
            for (int edge = 0; edge < nsources; edge++)
                look(recv + displs[edge], edge, sent_as[edge], n);
            free(recv), recv = blocks(n);
            IN_FORM(form, MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init, spread, counts,
                    bytes, types, recv, counts, bytes, types, comm);
            for (int edge = 0; edge < nsources; edge++)
                look(recv + displs[edge], edge, sent_as[edge], n);
            free(send), free(recv), free(spread);
        }
}

/* Two neighbours in each dimension; what is sent downwards comes from above. */
static void on_a_grid(int ndims, const int *dims, int periodic)
{
    MPI_Comm grid;
    int periods[3] = {periodic, periodic, periodic};
    MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &grid);
    if (grid == MPI_COMM_NULL)
        return;
    nsources = ndestinations = 2 * ndims;
    for (int d = 0; d < ndims; d++) {
        MPI_Cart_shift(grid, d, 1, &sources[2 * d], &sources[2 * d + 1]);
        sent_as[2 * d] = 2 * d + 1;
        sent_as[2 * d + 1] = 2 * d;
    }
    memcpy(destinations, sources, sizeof sources);
    exchange(grid);
    MPI_Comm_free(&grid);
}

static void grids(void)
{
    for (int periodic = 0; periodic < 2; periodic++) {
        int line[1] = {check_size}, flat[3] = {1, check_size, 1}, plane[2] = {0, 0};
        MPI_Dims_create(check_size, 2, plane);
        on_a_grid(1, line, periodic);
        on_a_grid(3, flat, periodic);
        on_a_grid(2, plane, periodic);
    }
}

/* A ring in which everybody sends twice to the next, and once to itself. */
static void distributed_graphs(void)
{
    MPI_Comm graph;
    int next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    nsources = ndestinations = 3;
    destinations[0] = next, destinations[1] = check_rank, destinations[2] = next;
    sources[0] = before, sources[1] = before, sources[2] = check_rank;
    sent_as[0] = 0, sent_as[1] = 2, sent_as[2] = 1;
    if (check_size == 1)
        for (int edge = 0; edge < 3; edge++)
            sent_as[edge] = edge;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, sources, MPI_UNWEIGHTED, 3, destinations, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    exchange(graph);
    MPI_Comm_free(&graph);
}

/* Nobody but rank 0 has a neighbour to send to; who has none is not waited for. */
static void some_have_no_neighbours(void)
{
    MPI_Comm graph;
    nsources = check_rank != 0, ndestinations = check_rank == 0 ? check_size - 1 : 0;
    sources[0] = 0, sent_as[0] = check_rank - 1;
    for (int r = 1; r < check_size; r++)
        destinations[r - 1] = r;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, nsources, sources, MPI_UNWEIGHTED, ndestinations, destinations,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    int got[LONGEST], mine[LONGEST];
    for (int i = 0; i < LONGEST; i++)
        mine[i] = value(check_rank, 0, i);
    MPI_Neighbor_allgather(mine, LONGEST, MPI_INT, got, LONGEST, MPI_INT, graph);
    if (check_rank > 0)
        look(got, 0, 0, LONGEST);
    MPI_Comm_free(&graph);
}

static void graphs(void)
{
    MPI_Comm star;
    int index[MOST], edges[2 * MOST], n = check_size;
    for (int r = 0; r < n; r++)
        index[r] = n - 1 + r;
    for (int r = 1; r < n; r++)
        edges[r - 1] = r, edges[n - 2 + r] = 0;
    MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 0, &star);
    nsources = ndestinations = check_rank == 0 ? n - 1 : 1;
    if (n == 1)
        nsources = ndestinations = 0;
    for (int edge = 0; edge < nsources; edge++) {
        sources[edge] = check_rank == 0 ? edge + 1 : 0;
        sent_as[edge] = check_rank == 0 ? 0 : check_rank - 1;
    }
    exchange(star);
    MPI_Comm_free(&star);
}

/* Who computes beside its neighbours' exchange is not waited for: rank 0 and 1 are done before the last rank calls. */
static void only_neighbours_wait_for_each_other(void)
{
    if (check_size < 3)
        return;
    MPI_Comm graph;
    int both = check_rank < 2, other = 1 - check_rank, got = -1, mine = check_rank + 40;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, both, &other, MPI_UNWEIGHTED, both, &other, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    int last = check_size - 1;
    if (check_rank == last)
        MPI_Recv(&got, 1, MPI_INT, 0, 3, graph, MPI_STATUS_IGNORE);
    MPI_Neighbor_alltoall(&mine, 1, MPI_INT, &got, 1, MPI_INT, graph);
    if (both)
        CHECK_EQ(got, other + 40);
    if (check_rank == 0)
        MPI_Send(&mine, 1, MPI_INT, last, 3, graph);
    MPI_Comm_free(&graph);
}

static void mistakes_are_told(void)
{
    int data[2] = {0, 0};
    MPI_Request req;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Neighbor_allgather(data, 1, MPI_INT, data, 1, MPI_INT, MPI_COMM_WORLD), MPI_ERR_TOPOLOGY);
    CHECK_CLASS(MPI_Neighbor_alltoall_init(data, 1, MPI_INT, data, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &req),
                MPI_ERR_TOPOLOGY);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(grids);
    RUN(distributed_graphs);
    RUN(graphs);
    RUN(some_have_no_neighbours);
    RUN(only_neighbours_wait_for_each_other);
    RUN(mistakes_are_told);
    return check_end();
}
