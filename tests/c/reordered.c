/* Topologies whose constructors may reorder ranks: neighbours are right, and on one host where that is possible.
 * ranks: 1 4
 * limit: 120 */
#include "check.h"

/* A number of the calling process's host: the lowest rank there. */
static int host(void)
{
    MPI_Comm near;
    int rank, lowest;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, near);
    MPI_Comm_free(&near);
    return lowest;
}

static int hosts(int mine)
{
    int rank, is_lowest, count;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_lowest = mine == rank;
    MPI_Allreduce(&is_lowest, &count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return count;
}

/* Edges of a ring that lead to another host, counted over all processes. */
static int crossing(MPI_Comm ring, int mine)
{
    int left, right, other, all, crosses;
    MPI_Cart_shift(ring, 0, 1, &left, &right);
    MPI_Sendrecv(&mine, 1, MPI_INT, right, 0, &other, 1, MPI_INT, left, 0, ring, MPI_STATUS_IGNORE);
    crosses = left != MPI_PROC_NULL && other != mine;
    MPI_Allreduce(&crosses, &all, 1, MPI_INT, MPI_SUM, ring);
    return all;
}

static void grids_are_brought_together(void)
{
    int size = check_size, mine = host();
    MPI_Comm ring, torus;
    int one[] = {size}, yes[] = {1, 1}, sides[] = {0, 0}, coords[2], rank, back;
    MPI_Cart_create(MPI_COMM_WORLD, 1, one, yes, 1, &ring);
    int count = hosts(mine);
    CHECK(crossing(ring, mine) == (count > 1 ? count : 0));
    MPI_Comm_free(&ring);
    MPI_Dims_create(size, 2, sides);
    MPI_Cart_create(MPI_COMM_WORLD, 2, sides, yes, 1, &torus);
    MPI_Comm_rank(torus, &rank);
    MPI_Cart_coords(torus, rank, 2, coords);
    MPI_Cart_rank(torus, coords, &back);
    CHECK(back == rank);
    int got[4][2];
    MPI_Neighbor_allgather(coords, 2, MPI_INT, got, 2, MPI_INT, torus);
    for (int k = 0; k < 4; k++) {
        int wanted[] = {coords[0], coords[1]}, d = k / 2, step = k % 2 ? 1 : sides[d] - 1;
        wanted[d] = (wanted[d] + step) % sides[d];
        CHECK(got[k][0] == wanted[0] && got[k][1] == wanted[1]);
    }
    MPI_Comm_free(&torus);
}

static void nodes_of_a_graph_keep_their_neighbours(void)
{
    int size = check_size;
    int *index = malloc((size_t)size * sizeof *index), *edges = malloc(2 * (size_t)size * sizeof *edges);
    int rank, count;
    for (int n = 0; n < size; n++) {
        edges[2 * n] = (n + 1) % size;
        edges[2 * n + 1] = (n + size - 1) % size;
        index[n] = 2 * n + 2;
    }
    MPI_Comm comm;
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 1, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Graph_neighbors_count(comm, rank, &count);
    CHECK(count == 2);
    int got[2];
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, comm);
    CHECK(got[0] == (rank + 1) % size && got[1] == (rank + size - 1) % size);
    MPI_Comm_free(&comm);
    free(index);
    free(edges);
}

/* The neighbours of the node whose rank a process got, also if it gave those of another one. */
static void check_distributed(MPI_Comm comm, int size, int weighted)
{
    int rank, in, out, has_weights, sources[2], source_weights[2], to[2], weights[2], got[2];
    MPI_Comm_rank(comm, &rank);
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &has_weights);
    CHECK(in == 2 && out == 2 && has_weights == weighted);
    MPI_Dist_graph_neighbors(comm, 2, sources, source_weights, 2, to, weights);
    CHECK(to[0] == (rank + 1) % size && to[1] == (rank + 2) % size);
    if (weighted)
        CHECK(weights[0] == 100 + rank && weights[1] == 1);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, comm);
    CHECK(got[0] == sources[0] && got[1] == sources[1]);
}

static void nodes_of_a_distributed_graph_keep_their_neighbours(void)
{
    int size = check_size, rank = check_rank;
    MPI_Comm comm;
    int before = (rank + size - 1) % size, second = (rank + 2 * size - 2) % size;
    int sources[] = {before, second}, from[] = {100 + before, 1};
    int to[] = {(rank + 1) % size, (rank + 2) % size}, weights[] = {100 + rank, 1}, degree = 2;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, from, 2, to, weights, MPI_INFO_NULL, 1, &comm);
    check_distributed(comm, size, 1);
    MPI_Comm_free(&comm);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 1, &comm);
    check_distributed(comm, size, 0);
    MPI_Comm_free(&comm);
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, to, weights, MPI_INFO_NULL, 1, &comm);
    check_distributed(comm, size, 1);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(grids_are_brought_together);
    RUN(nodes_of_a_graph_keep_their_neighbours);
    RUN(nodes_of_a_distributed_graph_keep_their_neighbours);
    return check_end();
}
