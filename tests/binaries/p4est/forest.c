/* A forest of octrees of the distribution's p4est, refined, balanced and partitioned by all ranks; written and read through MPI files, with ghosts
 * exchanged. Its sums do not depend on the number of ranks: they are those that one process finds. */
#include <p4est_algorithms.h>
#include <p4est_bits.h>
#include <p4est_extended.h>
#include <p4est_ghost.h>
#include <p4est_lnodes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEVELS = 7 };

static int refine(p4est_t *forest, p4est_topidx_t tree, p4est_quadrant_t *quadrant)
{
    (void)forest;
    return quadrant->level < LEVELS && (p4est_quadrant_child_id(quadrant) == tree % 4 || quadrant->level < 2);
}

static int coarsen(p4est_t *forest, p4est_topidx_t tree, p4est_quadrant_t *quadrants[])
{
    (void)forest;
    return quadrants[0]->level > 3 && tree % 2;
}

static int weight(p4est_t *forest, p4est_topidx_t tree, p4est_quadrant_t *quadrant)
{
    (void)forest;
    (void)tree;
    return 1 + quadrant->level;
}

static void fail(const char *what)
{
    fprintf(stderr, "forest: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    sc_init(MPI_COMM_WORLD, 1, 0, NULL, SC_LP_ERROR);
    p4est_init(NULL, SC_LP_ERROR);
    p4est_connectivity_t *shape = p4est_connectivity_new_star();
    p4est_t *forest = p4est_new_ext(MPI_COMM_WORLD, shape, 0, 1, 1, sizeof(long), NULL, NULL);
    p4est_refine(forest, 1, refine, NULL);
    p4est_partition(forest, 1, weight);
    p4est_coarsen(forest, 0, coarsen, NULL);
    p4est_balance(forest, P4EST_CONNECT_FULL, NULL);
    p4est_partition(forest, 0, NULL);
    p4est_ghost_t *ghost = p4est_ghost_new(forest, P4EST_CONNECT_FULL);

    /* Each quadrant holds its place in the order of all; whoever has it as a ghost finds that there. */
    long at = (long)forest->global_first_quadrant[forest->mpirank];
    for (p4est_topidx_t tree = forest->first_local_tree; tree <= forest->last_local_tree; tree++) {
        sc_array_t *quadrants = &p4est_tree_array_index(forest->trees, tree)->quadrants;
        for (size_t i = 0; i < quadrants->elem_count; i++)
            *(long *)p4est_quadrant_array_index(quadrants, i)->p.user_data = at++;
    }
    long *of_ghosts = calloc(ghost->ghosts.elem_count + 1, sizeof *of_ghosts);
    p4est_ghost_exchange_data(forest, ghost, of_ghosts);
    for (int from = 0; from < forest->mpisize; from++)
        for (p4est_locidx_t i = ghost->proc_offsets[from]; i < ghost->proc_offsets[from + 1]; i++)
            if (of_ghosts[i] != (long)forest->global_first_quadrant[from] + p4est_quadrant_array_index(&ghost->ghosts, i)->p.piggy3.local_num)
                fail("a ghost has another's data");

    p4est_lnodes_t *nodes = p4est_lnodes_new(forest, ghost, 2);
    long own = nodes->owned_count, all = 0;
    MPI_Allreduce(&own, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    unsigned checksum = p4est_checksum(forest);

    p4est_save("forest.p4est", forest, 1);
    p4est_connectivity_t *other_shape = NULL;
    p4est_t *other = p4est_load("forest.p4est", MPI_COMM_WORLD, sizeof(long), 1, NULL, &other_shape);
    if (!p4est_is_equal(forest, other, 1))
        fail("what was read is not what was written");
    if (forest->mpirank == 0)
        printf("quadrants %ld, checksum %08x, nodes %ld\n", (long)forest->global_num_quadrants, checksum, all);
    p4est_destroy(other);
    p4est_connectivity_destroy(other_shape);
    p4est_lnodes_destroy(nodes);
    free(of_ghosts);
    p4est_ghost_destroy(ghost);
    p4est_destroy(forest);
    p4est_connectivity_destroy(shape);
    sc_finalize();
    MPI_Finalize();
    return 0;
}
