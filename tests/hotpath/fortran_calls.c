/* Calls by C and by Fortran, whose instructions are compared. Arguments: `c` or `fortran`, and how often. One rank. */
#include <mpi.h>
#include <stdlib.h>

/* The symbols that a Fortran compiler makes of the routines. */
void mpi_comm_rank_(int *comm, int *rank, int *ierror);
void mpi_send_(void *buf, int *count, int *type, int *dest, int *tag, int *comm, int *ierror);
void mpi_irecv_(void *buf, int *count, int *type, int *source, int *tag, int *comm, int *request, int *ierror);
void mpi_wait_(int *request, int *status, int *ierror);

static int comm, type, one = 1, zero = 0, wrong = 0;

__attribute__((noinline)) static void by_c(void)
{
    int rank = -1, sent = 5, got = 0;
    MPI_Request request;
    MPI_Status status;
    wrong |= MPI_Comm_rank(MPI_COMM_SELF, &rank) | MPI_Irecv(&got, 1, MPI_INTEGER, 0, 1, MPI_COMM_SELF, &request);
    wrong |= MPI_Send(&sent, 1, MPI_INTEGER, 0, 1, MPI_COMM_SELF) | MPI_Wait(&request, &status);
    wrong |= rank != 0 || got != 5 || status.MPI_TAG != 1;
}

__attribute__((noinline)) static void by_fortran(void)
{
    int rank = -1, sent = 5, got = 0, request, errors[4], status[8];
    mpi_comm_rank_(&comm, &rank, errors);
    mpi_irecv_(&got, &one, &type, &zero, &one, &comm, &request, errors + 1);
    mpi_send_(&sent, &one, &type, &zero, &one, &comm, errors + 2);
    mpi_wait_(&request, status, errors + 3);
    wrong |= errors[0] | errors[1] | errors[2] | errors[3] | (rank != 0 || got != 5 || status[1] != 1);
}

int main(int argc, char **argv)
{
    int calls = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Init(&argc, &argv);
    comm = MPI_Comm_toint(MPI_COMM_SELF);
    type = MPI_Type_toint(MPI_INTEGER);
    for (int i = 0; i < calls; i++) {
        if (argv[1][0] == 'c')
            by_c();
        else
            by_fortran();
    }
    MPI_Finalize();
    return wrong != 0;
}
