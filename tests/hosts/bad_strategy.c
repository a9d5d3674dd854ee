/* Strategies that are wrong in one way, which is said when this is compiled. */
#include <garonne_strategy.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(CRASHES_AT_LOAD) || defined(HANGS_AT_LOAD) || defined(ENDS_AT_LOAD)
__attribute__((constructor)) static void at_load(void)
{
#if defined(CRASHES_AT_LOAD)
    abort();
#elif defined(ENDS_AT_LOAD)
    _exit(0);
#else
    for (;;)
        pause();
#endif
}
#endif

/* Answers without sense, one after the other. Not pure, of course. */
static unsigned turn;

#ifdef CRASHES
static int *volatile nowhere;
#endif

__attribute__((unused)) static int may_wait(const struct garonne_message *message)
{
    static const int answers[] = {7, GARONNE_WAIT, -3, GARONNE_DECIDED, GARONNE_YOURS};
    return message ? answers[__atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % 5] : 0;
}

__attribute__((unused)) static int order(const struct garonne_window *window, uint32_t *places)
{
#ifdef CRASHES
    *nowhere = 1;
#endif
#ifdef HANGS
    for (;;)
        pause();
#endif
    uint32_t count = window->count;
    switch (__atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % 6) {
    case 0: /* nothing written */
        return GARONNE_DECIDED;
    case 1: /* all the same */
        memset(places, 0, count * sizeof *places);
        return GARONNE_DECIDED;
    case 2: /* from the last on */
        for (uint32_t at = 0; at < count; at++)
            places[at] = count - 1 - at;
        return GARONNE_DECIDED;
    case 3: /* behind its end */
        for (uint32_t at = 0; at <= count; at++)
            places[at] = at;
        return GARONNE_DECIDED;
    case 4:
        return 12345;
    default: /* right */
        for (uint32_t at = 0; at < count; at++)
            places[at] = at;
        return GARONNE_DECIDED;
    }
}

__attribute__((unused)) static int piece(const struct garonne_flow *flow, struct garonne_piece *piece)
{
    unsigned mine = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED);
    piece->way = mine % 7; /* mostly not there */
    piece->bytes = mine % 3 == 0 ? 0 : mine % 3 == 1 ? UINT64_MAX : flow->left;
    return mine % 4 == 0 ? GARONNE_WAIT : mine % 4 == 1 ? -77 : GARONNE_DECIDED;
}

const struct garonne_strategy garonne_strategy_v1 = {
#ifdef LATER_VERSION
    .version = GARONNE_STRATEGY_VERSION + 1,
#else
    .version = GARONNE_STRATEGY_VERSION,
#endif
#ifdef TOO_SHORT
    .size = 8,
#else
    .size = sizeof(struct garonne_strategy),
#endif
    .name = "bad",
#ifndef DECIDES_NOTHING
    .may_wait = may_wait,
    .order = order,
    .piece = piece,
#endif
};
