/* Heat in a rod, by ranks of which any may die at any time: new ones take their places.
 *
 *     mpicc -O2 heat_respawn.c -o heat_respawn
 *     garonne run --survive -n 4 ./heat_respawn 4000 2000          (kill ranks meanwhile)
 *     garonne run --survive -n 4 ./heat_respawn 4000 2000 7        (ranks kill themselves at random: seed 7)
 *
 * As heat_survive.c until somebody has died. Then the survivors shrink the communicator, start as many processes as
 * are missing, merge both groups, and agree with the new ones on whether all have come so far. If not, they begin
 * again. The first survivor tells all the saved state.
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
static char *program, **words;    /* the command and what follows it */
static int rank, size, wanted, cells, steps, seed = -1;
static int first, mine;           /* this rank's cells */
static double *rod, *next;        /* with a cell of each neighbour beside them */
static double *saved, *gathered;  /* the whole rod */
static int saved_step, started;   /* how many processes were started so far */

static double start_of(int cell) { return cell % 97 < 48 ? 1.0 + cell % 7 : 0.0; }

static double heat(double left, double here, double right) { return here + 0.25 * (left - 2 * here + right); }

static void share(int of, int *begin, int *count)
{
    *begin = (int)((long long)cells * of / size);
    *count = (int)((long long)cells * (of + 1) / size) - *begin;
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

/* All members of a communicator say whether they have come so far; returns whether all have, and nobody has died. */
static int all_have(MPI_Comm of, int code)
{
    int yes = code == MPI_SUCCESS;
    if (!yes) MPIX_Comm_revoke(of);
    return MPIX_Comm_agree(of, &yes) == MPI_SUCCESS && yes;
}

/* Tells all members the state that the first one has saved, and takes this rank's cells from it. */
static int restore(void)
{
    int state[2] = {saved_step, started};
    int code = MPI_Bcast(state, 2, MPI_INT, 0, comm);
    if (code == MPI_SUCCESS) code = MPI_Bcast(saved, cells, MPI_DOUBLE, 0, comm);
    if (!all_have(comm, code)) return 0;
    saved_step = state[0];
    started = state[1];
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    share(rank, &first, &mine);
    memcpy(rod + 1, saved + first, (size_t)mine * sizeof *rod);
    return size == wanted;
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

static void use(MPI_Comm other)
{
    if (comm != MPI_COMM_WORLD) MPI_Comm_free(&comm);
    comm = other;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

/* Merges both groups. Returns whether all have done so. */
static int merge(MPI_Comm inter, int is_new, MPI_Comm *whole)
{
    *whole = MPI_COMM_NULL;
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    int code = MPI_Intercomm_merge(inter, is_new, whole);
    if (all_have(inter, code)) return 1;
    if (*whole != MPI_COMM_NULL) MPI_Comm_free(whole);
    return 0;
}

/* The survivors start as many processes as are missing. */
static void complete(void)
{
    MPI_Comm other, inter = MPI_COMM_NULL;
    int left;
    if (MPIX_Comm_shrink(comm, &other) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
    use(other);
    MPI_Comm_size(comm, &left);
    if (left == wanted) return;
    int code = MPI_Comm_spawn(program, words, wanted - left, MPI_INFO_NULL, 0, comm, &inter, MPI_ERRCODES_IGNORE);
    if (all_have(comm, code)) {
        started += wanted - left;
        if (merge(inter, 0, &other)) use(other);
    }
    if (inter != MPI_COMM_NULL) MPI_Comm_free(&inter);
}

static void die(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

/* Has this rank die at a random time. */
static void maybe_die(unsigned number, int percent)
{
    srand((unsigned)seed * 1000u + number);
    if (rand() % 100 >= percent) return;
    struct itimerval when = {{0, 0}, {0, 1 + rand() % 60000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &when, NULL);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    program = argv[0];
    words = argv + 1;
    cells = argc > 1 ? atoi(argv[1]) : 4000;
    steps = argc > 2 ? atoi(argv[2]) : 2000;
    if (argc > 3) seed = atoi(argv[3]);
    size_t bytes = (size_t)(cells + 2) * sizeof *rod;
    rod = malloc(bytes), next = malloc(bytes), saved = malloc(bytes), gathered = malloc(bytes);
    for (int i = 0; i < cells; i++) saved[i] = start_of(i);
    comm = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &wanted);
    MPI_Comm_get_parent(&parent);
    int speaks = 0;
    if (parent != MPI_COMM_NULL) {
        MPI_Comm whole;
        if (seed >= 0) maybe_die((unsigned)getpid(), 30);
        if (!merge(parent, 1, &whole)) exit(4); /* the survivors begin again without this one */
        use(whole);
        MPI_Comm_size(comm, &wanted);
        MPI_Comm_free(&parent);
    } else if (seed >= 0) {
        /* One may not die, and says how it ends. */
        speaks = rank == seed % wanted;
        if (!speaks) maybe_die((unsigned)rank, 80);
    } else {
        speaks = rank == 0;
    }
    int is_whole = restore();
    while (saved_step < steps) {
        while (!is_whole) {
            complete();
            is_whole = restore();
        }
        is_whole = advance_to(saved_step + SAVE < steps ? saved_step + SAVE : steps);
    }
    /* Each rank has the whole rod, and computes it once more alone. */
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
    if (speaks) printf("%d processes were started while it ran; the answer is %s\n", started, wrong ? "wrong" : "right");
    MPI_Finalize();
    return wrong;
}
