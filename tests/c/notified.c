/* Notified access: whoever sees a counter sees the bytes that were put before it was raised; a pipeline of ranks that only wait for
 * counters; counters of several origins; what is refused.
 * ranks: 1 2 3 5
 * limit: 60 */
#include "check.h"

enum { CREATED, ALLOCATED, DYNAMIC, KINDS, COUNTERS = 16 };

struct window {
    MPI_Win win;
    char *base;
    MPI_Aint disp; /* of the memory of the next rank */
};

static int next_rank(void) { return (check_rank + 1) % check_size; }
static int last_rank(void) { return (check_rank + check_size - 1) % check_size; }

static void make(struct window *w, int kind, MPI_Aint bytes)
{
    MPI_Aint at;
    w->disp = 0;
    switch (kind) {
    case CREATED:
        w->base = check_alloc((size_t)bytes);
        MPI_Win_create(w->base, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
        break;
    case ALLOCATED:
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->base, &w->win);
        break;
    default:
        w->base = check_alloc((size_t)bytes);
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
        MPI_Win_attach(w->win, w->base, bytes);
        MPI_Get_address(w->base, &at);
        MPI_Sendrecv(&at, 1, MPI_AINT, last_rank(), 0, &w->disp, 1, MPI_AINT, next_rank(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    memset(w->base, 0, (size_t)bytes);
    MPI_Win_lock_all(0, w->win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void unmake(struct window *w, int kind)
{
    MPI_Win_unlock_all(w->win);
    if (kind == DYNAMIC) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(w->win, w->base);
    }
    MPI_Win_free(&w->win);
    if (kind != ALLOCATED)
        free(w->base);
}

/* Each rank puts to the next one, which answers by putting further: two slots in turns, each written again only when its reader has
 * told so by a counter of the rank before. */
static void bytes_are_there_when_the_counter_is(void)
{
    enum { LEN = 600, ROUNDS = 50, FULL = 3, EMPTY = COUNTERS - 1 };
    for (int kind = 0; kind < KINDS; kind++) {
        struct window w;
        int out[LEN], seen[LEN], wrong = 0;
        MPI_Count told;
        make(&w, kind, 2 * sizeof out);
        for (int round = 0; round < ROUNDS; round++) {
            MPI_Aint slot = round % 2 * (MPI_Aint)sizeof out;
            for (int i = 0; i < LEN; i++)
                out[i] = round * 1000 + check_rank * 7 + i;
            if (round >= 2)
                CHECK_EQ(MPIX_Win_notify_wait(EMPTY, round - 1, w.win), MPI_SUCCESS);
            CHECK_EQ(MPIX_Put_notify(out, LEN, MPI_INT, next_rank(), w.disp + slot, LEN, MPI_INT, FULL, w.win), MPI_SUCCESS);
            CHECK_EQ(MPIX_Win_notify_wait(FULL, round + 1, w.win), MPI_SUCCESS);
            memcpy(seen, w.base + slot, sizeof seen);
            for (int i = 0; i < LEN; i++)
                wrong += seen[i] != round * 1000 + last_rank() * 7 + i;
            CHECK_EQ(MPIX_Put_notify(out, 0, MPI_INT, last_rank(), 0, 0, MPI_INT, EMPTY, w.win), MPI_SUCCESS);
        }
        CHECK_EQ(wrong, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        MPIX_Win_notify_get(FULL, &told, w.win);
        CHECK_EQ(told, ROUNDS);
        MPIX_Win_notify_get(EMPTY, &told, w.win);
        CHECK_EQ(told, ROUNDS);
        MPIX_Win_notify_get(0, &told, w.win);
        CHECK_EQ(told, 0);
        unmake(&w, kind);
    }
}

/* A derived type at the target, and rank 0 that waits for all others by one counter. */
static void counters_add_up(void)
{
    enum { TURNS = 20 };
    for (int kind = 0; kind < DYNAMIC; kind++) {
        struct window w;
        MPI_Datatype column;
        MPI_Count told = 0;
        int words[4];
        MPI_Type_vector(4, 1, check_size, MPI_INT, &column);
        MPI_Type_commit(&column);
        make(&w, kind, 4 * check_size * (MPI_Aint)sizeof(int));
        for (int turn = 0; turn < TURNS; turn++) {
            for (int i = 0; i < 4; i++)
                words[i] = turn * 100 + check_rank * 10 + i;
            MPIX_Put_notify(words, 4, MPI_INT, 0, check_rank * (MPI_Aint)sizeof(int), 1, column, 1, w.win);
        }
        if (check_rank == 0) {
            while (told < TURNS * check_size) {
                CHECK(MPIX_Win_notify_get(1, &told, w.win) == MPI_SUCCESS && told <= TURNS * check_size);
            }
            for (int origin = 0; origin < check_size; origin++)
                for (int i = 0; i < 4; i++)
                    CHECK_EQ(((int *)w.base)[i * check_size + origin], (TURNS - 1) * 100 + origin * 10 + i);
        }
        unmake(&w, kind);
        MPI_Type_free(&column);
    }
}

static void wrong_calls_have_their_classes(void)
{
    int *base, x = 0;
    MPI_Count told = -1;
    MPI_Win win;
    MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPIX_Put_notify(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, win), MPI_ERR_RMA_SYNC);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    CHECK_CLASS(MPIX_Put_notify(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, COUNTERS, win), MPI_ERR_ARG);
    CHECK_CLASS(MPIX_Put_notify(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, -1, win), MPI_ERR_ARG);
    CHECK_CLASS(MPIX_Put_notify(&x, 1, MPI_INT, 0, 8, 1, MPI_INT, 0, win), MPI_ERR_RMA_RANGE);
    CHECK_EQ(MPIX_Put_notify(&x, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, 0, win), MPI_SUCCESS);
    CHECK_CLASS(MPIX_Win_notify_get(COUNTERS, &told, win), MPI_ERR_ARG);
    CHECK_CLASS(MPIX_Win_notify_wait(-1, 0, win), MPI_ERR_ARG);
    CHECK_CLASS(MPIX_Win_notify_wait(0, -1, win), MPI_ERR_COUNT);
    CHECK_EQ(MPIX_Win_notify_wait(0, 0, win), MPI_SUCCESS);
    /* What was refused has raised nothing. */
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(MPIX_Win_notify_get(0, &told, win), MPI_SUCCESS);
    CHECK_EQ(told, 0);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(bytes_are_there_when_the_counter_is);
    RUN(counters_add_up);
    RUN(wrong_calls_have_their_classes);
    return check_end();
}
