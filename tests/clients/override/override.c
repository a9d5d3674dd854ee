/* A tool that counts MPI_Send through the profiling interface; also a program of its own with -DPROGRAM. */
#include <mpi.h>
#include <stdio.h>

static int sends;

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("counted %d sends\n", sends);
    return PMPI_Finalize();
}

#ifdef PROGRAM
#include "program.c"
#endif
