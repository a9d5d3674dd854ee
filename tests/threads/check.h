// What the programs of this folder check by. A check that fails ends the program.
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) ((what) ? (void)0 : fail(#what, __LINE__))

static void fail(const char *what, int line) {
    fprintf(stderr, "line %d: %s does not hold\n", line, what);
    abort();
}
