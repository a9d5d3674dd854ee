/* Cartesian, graph and distributed-graph topologies.
 * ranks: 1 2 3 5 */
#include "check.h"

static void dims_create_balances(void)
{
    int dims[3] = {0, 0, 0};
    MPI_Dims_create(24, 3, dims);
    CHECK(dims[0] == 4 && dims[1] == 3 && dims[2] == 2);
    int fixed[2] = {0, 3};
    MPI_Dims_create(12, 2, fixed);
    CHECK(fixed[0] == 4 && fixed[1] == 3);
}

static void cartesian_ring_knows_its_neighbours(void)
{
    MPI_Comm ring, sub;
    int dims[2] = {0, 1}, periods[2] = {1, 0}, coords[2], rank, from, to, status, ndims, keep[2] = {1, 0}, size;
    dims[0] = check_size;
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &ring);
    MPI_Topo_test(ring, &status);
    CHECK_EQ(status, MPI_CART);
    MPI_Cartdim_get(ring, &ndims);
    CHECK_EQ(ndims, 2);
    MPI_Comm_rank(ring, &rank);
    MPI_Cart_coords(ring, rank, 2, coords);
    CHECK_EQ(coords[0], rank);
    MPI_Cart_shift(ring, 0, 1, &from, &to);
    CHECK_EQ(to, (rank + 1) % check_size);
    CHECK_EQ(from, (rank + check_size - 1) % check_size);
    MPI_Cart_shift(ring, 1, 1, &from, &to);
    CHECK_EQ(from, MPI_PROC_NULL);
    CHECK_EQ(to, MPI_PROC_NULL);
    coords[0] = -1; /* periodic: wraps */
    coords[1] = 0;
    MPI_Cart_rank(ring, coords, &rank);
    CHECK_EQ(rank, check_size - 1);
    MPI_Cart_sub(ring, keep, &sub);
    MPI_Comm_size(sub, &size);
    CHECK_EQ(size, check_size);
    int got_dims[2], got_periods[2], got_coords[2];
    MPI_Cart_get(ring, 2, got_dims, got_periods, got_coords);
    CHECK(got_dims[0] == check_size && got_periods[0] == 1 && got_periods[1] == 0);
    MPI_Comm_free(&sub);
    MPI_Comm_free(&ring);
}

static void ranks_outside_the_grid_get_nothing(void)
{
    MPI_Comm grid;
    int dims[1] = {(check_size + 1) / 2}, periods[1] = {0};
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &grid);
    CHECK_EQ(grid == MPI_COMM_NULL, check_rank >= dims[0]);
    if (grid != MPI_COMM_NULL)
        MPI_Comm_free(&grid);
}

static void graph_lists_neighbours(void)
{
    MPI_Comm graph; /* a star around rank 0 */
    int n = check_size, *index = check_alloc((size_t)n * 4), *edges = check_alloc((size_t)n * 8), count, nodes, nedges;
    for (int r = 0; r < n; r++) {
        index[r] = n - 1 + r;
        edges[r] = r + 1;
    }
    for (int r = 1; r < n; r++)
        edges[n - 2 + r] = 0;
    MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 0, &graph);
    MPI_Graphdims_get(graph, &nodes, &nedges);
    CHECK_EQ(nodes, n);
    CHECK_EQ(nedges, 2 * (n - 1));
    MPI_Graph_neighbors_count(graph, 0, &count);
    CHECK_EQ(count, n - 1);
    if (check_rank > 0) {
        int neighbour = -1;
        MPI_Graph_neighbors_count(graph, check_rank, &count);
        CHECK_EQ(count, 1);
        MPI_Graph_neighbors(graph, check_rank, 1, &neighbour);
        CHECK_EQ(neighbour, 0);
    }
    MPI_Comm_free(&graph);
    free(index), free(edges);
}

static void distributed_graph_agrees_however_it_is_given(void)
{
    MPI_Comm adjacent, general;
    int right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    int source, weight_in, dest, weight_out, in, out, weighted, one = 1, weight = 10 + check_rank;
    int expected = 10 + left;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, &expected, 1, &right, &weight, MPI_INFO_NULL, 0, &adjacent);
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &check_rank, &one, &right, &weight, MPI_INFO_NULL, 0, &general);
    MPI_Comm both[2] = {adjacent, general};
    for (int i = 0; i < 2; i++) {
        MPI_Dist_graph_neighbors_count(both[i], &in, &out, &weighted);
        CHECK_EQ(in, 1);
        CHECK_EQ(out, 1);
        CHECK(weighted);
        MPI_Dist_graph_neighbors(both[i], 1, &source, &weight_in, 1, &dest, &weight_out);
        CHECK_EQ(source, left);
        CHECK_EQ(dest, right);
        CHECK_EQ(weight_in, 10 + left);
        CHECK_EQ(weight_out, 10 + check_rank);
        MPI_Comm_free(&both[i]);
    }
    MPI_Dist_graph_create(MPI_COMM_WORLD, 0, NULL, NULL, NULL, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &general);
    MPI_Dist_graph_neighbors_count(general, &in, &out, &weighted);
    CHECK(in == 0 && out == 0 && !weighted);
    MPI_Comm_free(&general);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(dims_create_balances);
    RUN(cartesian_ring_knows_its_neighbours);
    RUN(ranks_outside_the_grid_get_nothing);
    RUN(graph_lists_neighbours);
    RUN(distributed_graph_agrees_however_it_is_given);
    return check_end();
}
