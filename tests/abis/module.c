/* What a library of a program does with MPI, compiled for one ABI. The program, which knows no MPI, loads several. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int begin(void)
{
    return MPI_Init(NULL, NULL);
}

int has_begun(void)
{
    int flag = 0;
    MPI_Initialized(&flag);
    return flag;
}

/* The sum of the numbers of all ranks. */
int sum_of(int number)
{
    int sum = -1;
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

int send(int number, int to)
{
    return MPI_Send(&number, 1, MPI_INT, to, 5, MPI_COMM_WORLD);
}

int receive(int from)
{
    int number = -1;
    MPI_Status status;
    MPI_Recv(&number, 1, MPI_INT, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    return status.MPI_SOURCE == from && status.MPI_TAG == 5 ? number : -1;
}

int rank_of(void)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

intptr_t world(void)
{
    return (intptr_t)MPI_COMM_WORLD;
}

/* A communicator that is made now. */
intptr_t made(void)
{
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return (intptr_t)comm;
}

/* A file that is opened now, and has no name any more. */
intptr_t opened(void)
{
    char path[] = "/tmp/garonne-crossed-XXXXXX";
    MPI_File file = MPI_FILE_NULL;
    int made = mkstemp(path);
    if (made < 0)
        return 0;
    close(made);
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    unlink(path);
    return (intptr_t)file;
}

/* Uses a handle of a file that another library may have given. */
int sync_on(intptr_t handle)
{
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
    return MPI_File_sync((MPI_File)handle);
}

/* Uses a handle that another library may have given. */
int meet_on(intptr_t handle)
{
    return MPI_Barrier((MPI_Comm)handle);
}

int end(void)
{
    return MPI_Finalize();
}
