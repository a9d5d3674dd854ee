/* Handles as a library sees them that is compiled on its own. */
#include <mpi.h>

/* Addresses of predefined handles, as functions return them and as a table of constants holds them. */
struct handles {
    MPI_Comm world, null;
    MPI_Datatype types[4];
    MPI_Op sum;
    MPI_Errhandler fatal;
    MPI_Group empty;
    MPI_Info env;
    MPI_Request request;
    MPI_Message no_proc;
};

void library_handles(struct handles *handles);
const struct handles *library_table(void);
int library_exchange(MPI_Comm comm, MPI_Datatype datatype, int other, void *out, void *in);
