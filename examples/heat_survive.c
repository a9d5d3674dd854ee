/* Heat in a rod, by ranks of which any may die at any time: the survivors go on from the last saved state.
 *
 *     mpicc -O2 heat_survive.c -o heat_survive
 *     garonne run --survive -n 8 ./heat_survive 4000 2000          (kill ranks meanwhile)
 *     garonne run --survive -n 8 ./heat_survive 4000 2000 7        (ranks kill themselves at random: seed 7)
 *
 * Every SAVE steps all ranks gather the whole rod, and agree on whether all have it: then it is the saved state of
 * all, or of none. Who sees an error in between revokes the communicator, so that all come to the agreement at once.
 * Where that has failed, or a death is new, the survivors shrink the communicator, share the rod out anew, and repeat
 * the steps since the saved state.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { SAVE = 50 };

static MPI_Comm comm;
static int rank, size, cells, steps;
static int first, mine;           /* this rank's cells */
static double *rod, *next;        /* with a cell of each neighbour beside them */
static double *saved, *gathered;  /* the whole rod */
static int saved_step;

static double start_of(int cell) { return cell % 97 < 48 ? 1.0 + cell % 7 : 0.0; }

static double heat(double left, double here, double right) { return here + 0.25 * (left - 2 * here + right); }

static void share(int of, int *begin, int *count)
{
    *begin = (int)((long long)cells * of / size);
    *count = (int)((long long)cells * (of + 1) / size) - *begin;
}

/* Takes this rank's cells from the saved state. */
static void restore(void)
{
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    share(rank, &first, &mine);
    memcpy(rod + 1, saved + first, (size_t)mine * sizeof *rod);
}

static int step(void)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    rod[0] = rod[mine + 1] = 0; /* the ends are cold */
    int code = MPI_Sendrecv(&rod[1], 1, MPI_DOUBLE, left, 0, &rod[mine + 1], 1, MPI_DOUBLE, right, 0, comm,
                            MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Sendrecv(&rod[mine], 1, MPI_DOUBLE, right, 1, &rod[0], 1, MPI_DOUBLE, left, 1, comm, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return code;
    for (int i = 1; i <= mine; i++) next[i] = heat(rod[i - 1], rod[i], rod[i + 1]);
    double *old = rod;
    rod = next;
    next = old;
    return MPI_SUCCESS;
}

static int gather(void)
{
    int *counts = malloc((size_t)size * sizeof *counts), *begins = malloc((size_t)size * sizeof *begins);
    for (int i = 0; i < size; i++) share(i, &begins[i], &counts[i]);
    int code = MPI_Allgatherv(rod + 1, mine, MPI_DOUBLE, gathered, counts, begins, MPI_DOUBLE, comm);
    free(counts);
    free(begins);
    return code;
}

/* Goes on to this step; all save its state, or none does. Returns whether nobody has died. */
static int advance_to(int end)
{
    int code = MPI_SUCCESS;
    for (int at = saved_step; at < end && code == MPI_SUCCESS; at++) code = step();
    if (code == MPI_SUCCESS) code = gather();
    int all_have_it = code == MPI_SUCCESS;
    if (!all_have_it) MPIX_Comm_revoke(comm);
    int agreed = MPIX_Comm_agree(comm, &all_have_it);
    if (all_have_it) {
        double *old = saved;
        saved = gathered;
        gathered = old;
        saved_step = end;
    }
    return all_have_it && agreed == MPI_SUCCESS;
}

static void recover(void)
{
    MPI_Comm smaller;
    if (MPIX_Comm_shrink(comm, &smaller) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
    if (comm != MPI_COMM_WORLD) MPI_Comm_free(&comm);
    comm = smaller;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    restore();
}

static void die(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

/* Has this rank die at a random time, unless it is the one that may not. */
static void maybe_die(unsigned seed)
{
    if (rank == (int)(seed % (unsigned)size)) return; /* one that is left */
    srand(seed * 1000u + (unsigned)rank);
    if (rand() % 100 < 20) return;
    struct itimerval when = {{0, 0}, {0, 1 + rand() % 30000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &when, NULL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    cells = argc > 1 ? atoi(argv[1]) : 4000;
    steps = argc > 2 ? atoi(argv[2]) : 2000;
    comm = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    size_t bytes = (size_t)(cells + 2) * sizeof *rod;
    rod = malloc(bytes), next = malloc(bytes), saved = malloc(bytes), gathered = malloc(bytes);
    for (int i = 0; i < cells; i++) saved[i] = start_of(i);
    restore();
    /* The one that may not die says how it ends. */
    int begun = size, speaks = rank == (argc > 3 ? atoi(argv[3]) % size : 0);
    if (argc > 3) maybe_die((unsigned)atoi(argv[3]));
    while (saved_step < steps)
        if (!advance_to(saved_step + SAVE < steps ? saved_step + SAVE : steps)) recover();
    /* Each survivor has the whole rod, and computes it once more alone. */
    double *alone = malloc(bytes), *other = malloc(bytes);
    alone[0] = alone[cells + 1] = other[0] = other[cells + 1] = 0;
    for (int i = 0; i < cells; i++) alone[i + 1] = start_of(i);
    for (int at = 0; at < steps; at++) {
        for (int i = 1; i <= cells; i++) other[i] = heat(alone[i - 1], alone[i], alone[i + 1]);
        double *old = alone;
        alone = other;
        other = old;
    }
    int wrong = memcmp(alone + 1, saved, (size_t)cells * sizeof *saved) != 0;
    if (wrong) fprintf(stderr, "rank %d of %d: the answer is wrong\n", rank, size);
    if (speaks) printf("%d of %d ranks are left; the answer is %s\n", size, begun, wrong ? "wrong" : "right");
    MPI_Finalize();
    return wrong;
}
