/* Loads libraries of Fortran, each with common blocks of mpif.h of its own, and calls them. OWN: the program has blocks, too. NAME: the procedure. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef NAME
#define NAME uses_sentinels_
#endif
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

void NAME(int *wrong);

static void check(const char *what, void (*uses_sentinels)(int *)) {
    int wrong = 0;
    uses_sentinels(&wrong);
    if (wrong) {
        fprintf(stderr, "%s: %d wrong\n", what, wrong);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    for (int round = 0; round < 2; round++) {
#ifdef OWN
        check("the program", NAME);
#endif
        for (int i = 1; i < argc; i++) {
            void *library = dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL);
            if (!library) {
                fprintf(stderr, "%s\n", dlerror());
                MPI_Abort(MPI_COMM_WORLD, 2);
            }
            check(argv[i], (void (*)(int *))dlsym(library, TEXT(NAME)));
            /* The library must stay in its place: a buffer could get its address. */
            dlclose(library);
        }
    }
    MPI_Finalize();
    printf("all right\n");
    return 0;
}
