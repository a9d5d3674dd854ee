/* Opens the library as a plug-in of some other program would: late, and with its names kept local. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(int *, char ***) = (int (*)(int *, char ***))dlsym(library, "MPI_Init");
    int (*size_of)(void *, int *) = (int (*)(void *, int *))dlsym(library, "MPI_Comm_size");
    int (*barrier)(void *) = (int (*)(void *))dlsym(library, "MPI_Barrier");
    int (*finalize)(void) = (int (*)(void))dlsym(library, "MPI_Finalize");
    int size = 0;
    void *world = (void *)0x101; /* MPI_COMM_WORLD in the standard ABI */
    if (init(NULL, NULL) || size_of(world, &size) || barrier(world) || finalize())
        return 2;
    printf("size %d\n", size);
    return 0;
}
