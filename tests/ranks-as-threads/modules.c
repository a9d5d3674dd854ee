/* Libraries that a rank loads while it runs are its own. The argument is the path of one. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, fails;

#define CHECK(what) ((what) ? (void)0 : (void)(fails++, fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #what)))

int of_program(void) { return 100 * rank; }

/* ISO C knows no pointer that is both. */
typedef int function(void);
static function *find(void *library, const char *name)
{
    function *found;
    *(void **)&found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("OWN", text, 1);

    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "rank %d cannot load it: %s\n", rank, dlerror());
        return 1;
    }
    for (int i = 0; i < rank; i++) find(library, "module_calls")();
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(find(library, "module_calls")() == rank + 1);
    CHECK(find(library, "module_rank")() == rank);
    CHECK(find(library, "module_asks")() == 100 * rank + 3 && find(library, "module_asks")() == 100 * rank + 4);
    const char *(*variable)(const char *);
    *(void **)&variable = dlsym(library, "module_variable");
    CHECK(variable && !strcmp(variable("OWN"), text));

    /* Once more is the same, also after it was given back. */
    CHECK(dlopen(argv[1], RTLD_LAZY | RTLD_NOLOAD) == library && dlclose(library) == 0);
    CHECK(dlopen(argv[1], RTLD_LAZY) == library && find(library, "module_calls")() == rank + 2);

    void *program = dlopen(NULL, RTLD_NOW);
    CHECK(program && find(program, "of_program") == of_program && dlclose(program) == 0 && find(program, "of_program") == of_program);
    CHECK(!dlopen("libno-such-thing.so", RTLD_NOW));
    const char *why = dlerror();
    CHECK(why && strstr(why, "no-such-thing") && dlerror() == NULL);
    CHECK(!dlopen("/etc/passwd", RTLD_NOW) && dlerror());
    void *shared = dlopen("libm.so.6", RTLD_NOW);
    CHECK(shared && dlsym(shared, "cos") && dlclose(shared) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (!fails) printf("rank %d has modules of its own\n", rank);
    return fails ? 1 : 0;
}
