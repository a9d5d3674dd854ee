/* Targets that do nothing: what origins do to them while they compute without MPI; and one domain of atomicity for all ways to change
 * an element, from all ranks at once, the target among them.
 * ranks: 2 3 5
 * limit: 120 */
#include "check.h"

enum { CREATED, ALLOCATED, DYNAMIC, KINDS };
/* Longs of a window: the flag that ends the target's computing, a counter, then elements. */
enum { FLAG, COUNTER, SWAPPED, ELEMENTS, COUNT = 4096, LONGS = ELEMENTS + COUNT };

struct window {
    MPI_Win win;
    long *base;
    MPI_Aint disp, unit; /* of rank 0's memory */
};

static void make(struct window *w, int kind)
{
    MPI_Aint bytes = LONGS * (MPI_Aint)sizeof(long);
    w->disp = 0, w->unit = kind == DYNAMIC ? (MPI_Aint)sizeof(long) : 1;
    if (kind == ALLOCATED) {
        MPI_Win_allocate(bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &w->base, &w->win);
    } else {
        w->base = check_alloc((size_t)bytes);
        if (kind == CREATED) {
            MPI_Win_create(w->base, bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
        } else {
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
            MPI_Win_attach(w->win, w->base, bytes);
            MPI_Get_address(w->base, &w->disp);
            MPI_Bcast(&w->disp, 1, MPI_AINT, 0, MPI_COMM_WORLD);
        }
    }
    memset(w->base, 0, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void unmake(struct window *w, int kind)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind == DYNAMIC)
        MPI_Win_detach(w->win, w->base);
    MPI_Win_free(&w->win);
    if (kind != ALLOCATED)
        free(w->base);
}

static MPI_Aint at(const struct window *w, int index) { return w->disp + w->unit * index; }

/* Rank 0 computes until the last of the others has told it to stop, by its memory alone: a library that needs its hands hangs here. */
static void a_target_that_computes_delays_nobody(void)
{
    enum { TURNS = 50 };
    for (int kind = 0; kind < KINDS; kind++) {
        struct window w;
        make(&w, kind);
        if (check_rank == 0) {
            while (__atomic_load_n(&w.base[FLAG], __ATOMIC_ACQUIRE) == 0)
                ;
            CHECK_EQ(w.base[COUNTER], (long)TURNS * 3 * (check_size - 1));
        } else {
            long one = 1, old, got[COUNT], put[COUNT];
            for (int i = 0; i < COUNT; i++)
                put[i] = i;
            for (int turn = 0; turn < TURNS; turn++) {
                MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win);
                MPI_Get(&old, 1, MPI_LONG, 0, at(&w, COUNTER), 1, MPI_LONG, w.win);
                MPI_Win_flush(0, w.win);
                old++;
                MPI_Put(&old, 1, MPI_LONG, 0, at(&w, COUNTER), 1, MPI_LONG, w.win);
                MPI_Win_unlock(0, w.win);
                MPI_Win_lock_all(0, w.win);
                MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, at(&w, COUNTER), MPI_SUM, w.win);
                MPI_Win_flush(0, w.win);
                MPI_Put(put, COUNT, MPI_LONG, 0, at(&w, ELEMENTS), COUNT, MPI_LONG, w.win);
                MPI_Accumulate(&one, 1, MPI_LONG, 0, at(&w, COUNTER), 1, MPI_LONG, MPI_SUM, w.win);
                MPI_Get(got, COUNT, MPI_LONG, 0, at(&w, ELEMENTS), COUNT, MPI_LONG, w.win);
                MPI_Win_unlock_all(w.win);
                CHECK(memcmp(got, put, sizeof got) == 0);
            }
            /* Who is last tells rank 0 to stop. */
            MPI_Win_lock_all(0, w.win);
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, at(&w, SWAPPED), MPI_SUM, w.win);
            MPI_Win_flush(0, w.win);
            if (old == check_size - 2)
                MPI_Accumulate(&one, 1, MPI_LONG, 0, at(&w, FLAG), 1, MPI_LONG, MPI_REPLACE, w.win);
            MPI_Win_unlock_all(w.win);
        }
        unmake(&w, kind);
    }
}

/* Each adds to the same elements by every function that may: many elements at once, one, with and without the old value, by a loop of
 * comparisons, at one's own memory, too. */
static void all_ways_are_one_domain_of_atomicity(void)
{
    enum { TURNS = 60 };
    for (int kind = 0; kind < KINDS; kind++) {
        struct window w;
        long one = 1, old, seen, *ones = check_alloc(COUNT * sizeof *ones), *olds = check_alloc(COUNT * sizeof *olds);
        MPI_Datatype halves;
        /* Elements that lie apart, across pages. */
        MPI_Type_vector(COUNT / 2, 1, 2, MPI_LONG, &halves);
        MPI_Type_commit(&halves);
        make(&w, kind);
        for (int i = 0; i < COUNT; i++)
            ones[i] = 1;
        MPI_Win_lock_all(0, w.win);
        for (int turn = 0; turn < TURNS; turn++) {
            int place = ELEMENTS + (turn * 67 + check_rank) % COUNT;
            MPI_Accumulate(ones, COUNT, MPI_LONG, 0, at(&w, ELEMENTS), COUNT, MPI_LONG, MPI_SUM, w.win);
            MPI_Accumulate(ones, COUNT / 2, MPI_LONG, 0, at(&w, ELEMENTS), 1, halves, MPI_SUM, w.win);
            MPI_Get_accumulate(ones, COUNT, MPI_LONG, olds, COUNT, MPI_LONG, 0, at(&w, ELEMENTS), COUNT, MPI_LONG, MPI_SUM, w.win);
            for (int element = 0; element < 4; element++) {
                MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, at(&w, ELEMENTS + element), MPI_SUM, w.win);
                MPI_Win_flush(0, w.win);
            }
            MPI_Accumulate(&one, 1, MPI_LONG, 0, at(&w, ELEMENTS), 1, MPI_LONG, MPI_SUM, w.win);
            MPI_Fetch_and_op(NULL, &seen, MPI_LONG, 0, at(&w, place), MPI_NO_OP, w.win);
            MPI_Win_flush(0, w.win);
            do {
                long next = (old = seen) + 1;
                MPI_Compare_and_swap(&next, &old, &seen, MPI_LONG, 0, at(&w, place), w.win);
                MPI_Win_flush(0, w.win);
            } while (seen != old);
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, at(&w, SWAPPED), MPI_SUM, w.win);
        }
        MPI_Win_unlock_all(w.win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (check_rank == 0) {
            long *wanted = calloc(COUNT, sizeof *wanted), wrong = 0;
            for (int rank = 0; rank < check_size; rank++)
                for (int turn = 0; turn < TURNS; turn++) {
                    for (int i = 0; i < COUNT; i++)
                        wanted[i] += 2 + (i % 2 == 0) + (i < 4) + (i == 0);
                    wanted[(turn * 67 + rank) % COUNT]++;
                }
            for (int i = 0; i < COUNT; i++)
                wrong += w.base[ELEMENTS + i] != wanted[i];
            CHECK_EQ(wrong, 0);
            CHECK_EQ(w.base[SWAPPED], (long)TURNS * check_size);
            free(wanted);
        }
        unmake(&w, kind);
        MPI_Type_free(&halves);
        free(ones), free(olds);
    }
}

/* Some lock all members while others lock one of them exclusively, for the first time and later: who has locked all sees no change
 * that is half made, and no change is lost. */
static void locks_of_all_and_of_one_exclude_each_other(void)
{
    enum { WINDOWS = 12, TURNS = 20 };
    for (int window = 0; window < WINDOWS; window++) {
        struct window w;
        long odd = 0, pair[2], changes = 0, all = 0;
        make(&w, window % KINDS);
        for (int turn = 0; turn < TURNS; turn++) {
            /* In some windows all begin by locking all, in others some do not. */
            int alone = turn > 0 ? (turn + check_rank) % 3 == 0 : window >= KINDS && check_rank % 2 == window % 2;
            if (alone) {
                MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win);
                MPI_Get(pair, 2, MPI_LONG, 0, at(&w, ELEMENTS), 2, MPI_LONG, w.win);
                MPI_Win_flush(0, w.win);
                odd += pair[0] != pair[1];
                for (int i = 0; i < 2; i++) {
                    pair[i]++;
                    MPI_Put(&pair[i], 1, MPI_LONG, 0, at(&w, ELEMENTS + i), 1, MPI_LONG, w.win);
                    MPI_Win_flush(0, w.win);
                }
                MPI_Win_unlock(0, w.win);
                changes++;
            } else {
                long again[2];
                MPI_Win_lock_all(0, w.win);
                MPI_Get(pair, 2, MPI_LONG, 0, at(&w, ELEMENTS), 2, MPI_LONG, w.win);
                MPI_Win_flush_all(w.win);
                for (int look = 0; look < 50; look++) {
                    MPI_Get(again, 2, MPI_LONG, 0, at(&w, ELEMENTS), 2, MPI_LONG, w.win);
                    MPI_Win_flush_all(w.win);
                    odd += again[0] != pair[0] || again[1] != pair[0];
                }
                MPI_Win_unlock_all(w.win);
            }
        }
        CHECK_EQ(odd, 0);
        MPI_Allreduce(&changes, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (check_rank == 0)
            CHECK_EQ(w.base[ELEMENTS], all);
        unmake(&w, window % KINDS);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(a_target_that_computes_delays_nobody);
    RUN(all_ways_are_one_domain_of_atomicity);
    RUN(locks_of_all_and_of_one_exclude_each_other);
    return check_end();
}
