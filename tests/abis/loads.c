/* Loads libraries that were built for different ABIs of MPI, each with names of its own, and lets them work in one world. Arguments: the
 * libraries; then two of their numbers, if the second is to get a communicator of the first, `world` or one `made`, or a file that it has
 * `opened`. It runs on 2 ranks.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 };

static void *libraries[MOST];

static void *function(int of, const char *name)
{
    void *found = dlsym(libraries[of], name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return found;
}

#define CALL(of, result, name, types) ((result (*) types)function(of, #name))
#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

int main(int argc, char **argv)
{
    for (int i = 0; i < MOST; i++) {
        libraries[i] = argc > MOST ? dlopen(argv[1 + i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (!libraries[i]) {
            fprintf(stderr, "%s\n", argc > MOST ? dlerror() : "usage: loads LIBRARY LIBRARY LIBRARY [FROM TO world|made|opened]");
            return 2;
        }
    }
    CHECK(CALL(0, int, begin, (void))() == 0);
    int rank = CALL(0, int, rank_of, (void))();
    if (argc == MOST + 4) {
        intptr_t handle = ((intptr_t(*)(void))function(atoi(argv[MOST + 1]), argv[MOST + 3]))();
        const char *taker = strcmp(argv[MOST + 3], "opened") ? "meet_on" : "sync_on";
        CHECK(((int (*)(intptr_t))function(atoi(argv[MOST + 2]), taker))(handle) != 0);
        return 0;
    }
    for (int i = 0; i < MOST; i++) {
        CHECK(CALL(i, int, has_begun, (void))());
        CHECK(CALL(i, int, rank_of, (void))() == rank);
        CHECK(CALL(i, int, sum_of, (int))(10 + rank) == 21);
        CHECK(CALL(i, int, meet_on, (intptr_t))(CALL(i, intptr_t, world, (void))()) == 0);
    }
    /* What one sends another receives, in order; the ranks use different libraries in the same collective call. */
    for (int from = 0; from < MOST; from++)
        for (int to = 0; to < MOST; to++)
            for (int number = 0; number < 20; number++) {
                if (rank == 0)
                    CHECK(CALL(from, int, send, (int, int))(100 * from + number, 1) == 0);
                else
                    CHECK(CALL(to, int, receive, (int))(0) == 100 * from + number);
            }
    CHECK(CALL(rank ? 2 : 1, int, sum_of, (int))(rank) == 1);
    CHECK(CALL(2, int, end, (void))() == 0);
    printf("rank %d: one world\n", rank);
    return 0;
}
