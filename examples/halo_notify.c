/* Heat in a rod, with halos by notified access: neighbours put their edge and raise a counter, and nobody meets anybody else.
 *
 *     mpicc -O2 halo_notify.c -o halo_notify
 *     garonne run -n 4 ./halo_notify 1000000 2000
 *
 * Each rank has a halo of two parities at each end. A neighbour writes that of the other parity while this one is read, and cannot be
 * further ahead: before its next put it waits for this rank's. MPIX_ functions are extensions of Garonne. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Counters: what the left and the right neighbour have put. */
enum { FROM_LEFT, FROM_RIGHT };

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long cells = argc > 1 ? atol(argv[1]) : 100000, steps = argc > 2 ? atol(argv[2]) : 1000;
    if (cells < 1 || steps < 0) {
        fprintf(stderr, "usage: halo_notify CELLS_OF_EACH_RANK STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    double *halo; /* [parity][FROM_LEFT, FROM_RIGHT] */
    MPI_Win win;
    MPI_Win_allocate(4 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &halo, &win);
    double *now = calloc((size_t)cells + 2, sizeof(double)), *then = calloc((size_t)cells + 2, sizeof(double));
    if (!now || !then)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == 0)
        now[1] = 1e6;
    MPI_Win_lock_all(0, win);
    double start = MPI_Wtime();
    for (long step = 0; step < steps; step++) {
        int parity = (int)(step % 2);
        MPIX_Put_notify(&now[1], 1, MPI_DOUBLE, left, 2 * parity + FROM_RIGHT, 1, MPI_DOUBLE, FROM_RIGHT, win);
        MPIX_Put_notify(&now[cells], 1, MPI_DOUBLE, right, 2 * parity + FROM_LEFT, 1, MPI_DOUBLE, FROM_LEFT, win);
        for (long i = 2; i < cells; i++)
            then[i] = now[i] + 0.25 * (now[i - 1] - 2 * now[i] + now[i + 1]);
        /* The ends of the rod are closed. */
        now[0] = now[1], now[cells + 1] = now[cells];
        if (left != MPI_PROC_NULL) {
            MPIX_Win_notify_wait(FROM_LEFT, step + 1, win);
            now[0] = halo[2 * parity + FROM_LEFT];
        }
        if (right != MPI_PROC_NULL) {
            MPIX_Win_notify_wait(FROM_RIGHT, step + 1, win);
            now[cells + 1] = halo[2 * parity + FROM_RIGHT];
        }
        then[1] = now[1] + 0.25 * (now[0] - 2 * now[1] + now[2]);
        if (cells > 1)
            then[cells] = now[cells] + 0.25 * (now[cells - 1] - 2 * now[cells] + now[cells + 1]);
        double *swap = now;
        now = then, then = swap;
    }
    double seconds = MPI_Wtime() - start, sum = 0, all;
    MPI_Win_unlock_all(win);
    for (long i = 1; i <= cells; i++)
        sum += now[i];
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%ld steps in %.3f s; heat %.3f of 1000000\n", steps, seconds, all);
    free(now);
    free(then);
    MPI_Win_free(&win);
    MPI_Finalize();
    return all > 999999 && all < 1000001 ? 0 : 1;
}
