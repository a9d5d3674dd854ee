/* Ranks that go on when one dies, built with every MPI: `survive MAP SAMPLES NANOSECONDS WHAT:NUMBER...`
 *
 *     agree   one of many MPIX_Comm_agree of all ranks, of which none is dead
 *     notice  from when the last rank kills itself until a receive from it returns the error
 *     shrink  MPIX_Comm_shrink of all that are left, all of whom know of the death
 * NUMBER counts nothing. A job gives one sample of what a rank dies for. Prints: sample WHAT NUMBER NANOSECONDS 0 0 */
#include "handoff.h"

#include <mpi.h>
#include <signal.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

enum { NOTICE = 7 };

static void sample(const char *what, double ns)
{
    printf("sample %s 0 %.1f 0 0\n", what, ns);
    fflush(stdout);
}

static double agreements(long count)
{
    int flag = 1;
    double start = now_ns();
    for (long i = 0; i < count; i++)
        if (MPIX_Comm_agree(MPI_COMM_WORLD, &flag) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 5);
    return (now_ns() - start) / (double)count;
}

static void agree(int rank, int samples, double nanoseconds)
{
    double first = agreements(10);
    long count = first < nanoseconds ? (long)(nanoseconds / first) : 1;
    MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    for (int i = 0; i < samples; i++) {
        double each = agreements(count);
        if (rank == 0)
            sample("agree", each);
    }
}

/* The last rank dies, and every other one knows of it at the end. */
static double death(int rank, int size)
{
    double died = 0, noticed = 0;
    if (rank == size - 1) {
        died = now_ns();
        for (int to = 0; to < size - 1; to++)
            MPI_Ssend(&died, 1, MPI_DOUBLE, to, NOTICE, MPI_COMM_WORLD);
        died = now_ns();
        MPI_Ssend(&died, 1, MPI_DOUBLE, 0, NOTICE, MPI_COMM_WORLD);
        kill(getpid(), SIGKILL);
    }
    MPI_Recv(&died, 1, MPI_DOUBLE, size - 1, NOTICE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Recv(&died, 1, MPI_DOUBLE, size - 1, NOTICE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (MPI_Recv(&noticed, 1, MPI_DOUBLE, size - 1, NOTICE, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return now_ns() - died;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc != 5 || size < 2) {
        fprintf(stderr, "usage: survive MAP SAMPLES NANOSECONDS WHAT:NUMBER, on two ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (strncmp(argv[4], "agree:", 6) == 0) {
        agree(rank, atoi(argv[2]), atof(argv[3]));
        MPI_Finalize();
        return 0;
    }
    double noticed = death(rank, size);
    MPI_Comm left = MPI_COMM_NULL;
    double start = now_ns();
    int code = MPIX_Comm_shrink(MPI_COMM_WORLD, &left), count = 0;
    double took = now_ns() - start;
    if (code == MPI_SUCCESS)
        MPI_Comm_size(left, &count);
    if (count != size - 1)
        MPI_Abort(MPI_COMM_WORLD, 4);
    if (rank == 0 && strncmp(argv[4], "notice:", 7) == 0)
        sample("notice", noticed);
    else if (rank == 0)
        sample("shrink", took);
    MPI_Comm_free(&left);
    MPI_Finalize();
    return 0;
}
