/* Makes a mistake whose error names the place of the call: the argument says which. */
#include <mpi.h>
#include <stdlib.h>

/* Extensions of MPICH and of Open MPI that the libraries do not have; the error comes before an argument is looked at. */
int MPIX_Grequest_start(void *query, void *release, void *cancel, void *poll, void *wait, void *state, MPI_Request *request) __attribute__((weak));
int OMPI_Affinity_str(int form, char *bound, char *current, char *exists) __attribute__((weak));

static void comm_handler(MPI_Comm *comm, int *code, ...)
{
    int class;
    MPI_Error_class(*code, &class);
    exit(*comm == MPI_COMM_SELF && class == MPI_ERR_RANK ? 7 : 8);
}

int main(int argc, char **argv)
{
    int value = 0, what = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    switch (what) {
    case 1:
        MPI_Send(&value, 1, MPI_INT, 1000, 0, MPI_COMM_WORLD); /* rank */
        break;
    case 2:
        MPI_Recv(&value, 1, MPI_INT, 0, -2, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* tag */
        break;
    case 3:
        MPI_Barrier(MPI_COMM_NULL); /* communicator */
        break;
    case 5:
        MPI_Barrier((MPI_Comm)0x101); /* handle */
        break;
    case 6:
        MPIX_Grequest_start ? MPIX_Grequest_start(0, 0, 0, 0, 0, 0, 0) : OMPI_Affinity_str(0, 0, 0, 0); /* extension */
        break;
    case 4:
        MPI_Comm_create_errhandler(comm_handler, &handler);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
        MPI_Send(&value, 1, MPI_INT, 1000, 0, MPI_COMM_SELF); /* handler */
        break;
    }
    MPI_Finalize();
    return 0;
}
