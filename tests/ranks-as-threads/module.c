/* A library that ranks load while they run: its variables are the rank's, it calls MPI, and it uses a function of the program. */
#include <mpi.h>
#include <stdlib.h>

int of_program(void);

static int calls;
__thread int of_thread = 3;

int module_calls(void) { return ++calls; }

int module_rank(void)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int module_asks(void) { return of_program() + of_thread++; }

const char *module_variable(const char *name) { return getenv(name); }
