/* A rank ends MPI while its window is open: accesses from another host get an error that names it, instead of waiting for ever. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, code = MPI_SUCCESS, len, *base;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    /* Before rank 1 has ended they succeed; one of them is on its way when it ends. */
    for (int turn = 0; rank == 0 && turn < 3; turn++) {
        do {
            code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
            if (code == MPI_SUCCESS)
                MPI_Win_unlock(1, win);
        } while (code == MPI_SUCCESS);
        MPI_Error_string(code, text, &len);
        printf("%s\n", text);
    }
    MPI_Finalize();
    return 0;
}
