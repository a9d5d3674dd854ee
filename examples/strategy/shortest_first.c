/* A strategy for Garonne's optimisation window: the shortest message leaves first, as far as the order within each communicator allows.
 *
 *     mpicc -O2 -shared -fPIC shortest_first.c -o libshortest_first.so
 *     garonne strategy ./libshortest_first.so
 *     GARONNE_STRATEGY=./libshortest_first.so mpirun -n 4 --host a,b ./app
 *
 * For jobs whose small messages are waited for, and whose large ones are not. Only the first message of each context may leave next, so a step takes the shortest of these. Every
 * eighth place goes to the oldest message that is left: without that, a long one would never leave while short ones come. What the other functions would decide
 * is left to Garonne. */
#include <garonne_strategy.h>
#include <stddef.h>

enum { WINDOW_MAX = 64, FAIR = 8 };

/* The messages that may leave next are the first of their contexts; this is the shortest of them, the oldest among equals. */
static uint32_t shortest(const struct garonne_window *window, const unsigned char *left)
{
    uint32_t best = window->count;
    for (uint32_t at = 0; at < window->count; at++) {
        if (!left[at])
            continue;
        int first = 1;
        for (uint32_t before = 0; before < at && first; before++)
            first = !left[before] || window->chunks[before].context != window->chunks[at].context;
        if (first && (best == window->count || window->chunks[at].bytes < window->chunks[best].bytes))
            best = at;
    }
    return best;
}

static int order(const struct garonne_window *window, uint32_t *places)
{
    unsigned char left[WINDOW_MAX];
    uint32_t oldest = 0;
    if (window->count > WINDOW_MAX)
        return GARONNE_YOURS;
    for (uint32_t at = 0; at < window->count; at++)
        left[at] = 1;
    for (uint32_t step = 0; step < window->count; step++) {
        while (!left[oldest])
            oldest++;
        uint32_t next = step % FAIR == FAIR - 1 ? oldest : shortest(window, left);
        left[next] = 0;
        places[step] = next;
    }
    return GARONNE_DECIDED;
}

const struct garonne_strategy garonne_strategy_v1 = {
    .version = GARONNE_STRATEGY_VERSION,
    .size = sizeof(struct garonne_strategy),
    .name = "shortest first",
    .order = order,
};
