/* Memory of windows: parts of all sizes, also none and more than 4 GiB; alignment; thousands of attached pieces; memory of other ranks
 * by its address; hints with their defaults.
 * ranks: 1 2 4
 * limit: 60 */
#include "check.h"

#include <stdint.h>

static int next_rank(void) { return (check_rank + 1) % check_size; }

static void thousands_of_pieces_are_attached(void)
{
    enum { PIECES = 2000, PIECE = 24 };
    char *memory = check_alloc(PIECES * PIECE);
    MPI_Aint address, *all = check_alloc((size_t)check_size * sizeof *all);
    MPI_Win win;
    int wrong = 0;
    memset(memory, 0, PIECES * PIECE);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    /* Not in order, so that the list has to be sorted; all but the last 8 B of each, so that none touches the next. */
    for (int i = 0; i < PIECES; i++)
        CHECK_EQ(MPI_Win_attach(win, memory + (i * 7 % PIECES) * PIECE, PIECE - 8), MPI_SUCCESS);
    MPI_Get_address(memory, &address);
    MPI_Allgather(&address, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < PIECES; i++) {
        long value = i * 3 + check_rank;
        MPI_Put(&value, 1, MPI_LONG, next_rank(), MPI_Aint_add(all[next_rank()], i * PIECE + 8), 1, MPI_LONG, win);
    }
    CHECK_CLASS(MPI_Put(&wrong, 4, MPI_BYTE, next_rank(), MPI_Aint_add(all[next_rank()], 14), 4, MPI_BYTE, win), MPI_ERR_RMA_RANGE);
    CHECK_CLASS(MPI_Put(&wrong, 4, MPI_BYTE, next_rank(), MPI_Aint_add(all[next_rank()], PIECES * PIECE), 4, MPI_BYTE, win), MPI_ERR_RMA_RANGE);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    int from = (check_rank + check_size - 1) % check_size;
    for (int i = 0; i < PIECES; i++) {
        long got;
        memcpy(&got, memory + i * PIECE + 8, sizeof got);
        wrong += got != i * 3 + from;
    }
    CHECK_EQ(wrong, 0);
    for (int i = 0; i < PIECES; i++)
        CHECK_EQ(MPI_Win_detach(win, memory + i * PIECE), MPI_SUCCESS);
    MPI_Win_free(&win);
    free(memory), free(all);
}

/* Some ranks bring nothing; what they may not reach is refused, also far outside. */
static void parts_may_be_empty(void)
{
    MPI_Aint size = check_rank % 2 ? 0 : 100, told;
    char *base, *other, x = 1;
    int unit;
    MPI_Win win;
    MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_fence(0, win);
    for (int rank = 0; rank < check_size; rank++) {
        MPI_Aint there = rank % 2 ? 0 : 100;
        CHECK_EQ(MPI_Put(&x, 0, MPI_CHAR, rank, 0, 0, MPI_CHAR, win), MPI_SUCCESS);
        CHECK_CLASS(MPI_Put(&x, 1, MPI_CHAR, rank, there, 1, MPI_CHAR, win), MPI_ERR_RMA_RANGE);
        CHECK_CLASS(MPI_Get(&x, 1, MPI_CHAR, rank, (MPI_Aint)1 << 40, 1, MPI_CHAR, win), MPI_ERR_RMA_RANGE);
        CHECK_CLASS(MPI_Put(&x, 1, MPI_CHAR, rank, INT64_MAX, 1, MPI_CHAR, win), MPI_ERR_RMA_RANGE);
        CHECK_CLASS(MPI_Put(&x, 1, MPI_CHAR, rank, -1, 1, MPI_CHAR, win), MPI_ERR_DISP);
        if (there > 0)
            CHECK_EQ(MPI_Put(&x, 1, MPI_CHAR, rank, check_rank, 1, MPI_CHAR, win), MPI_SUCCESS);
    }
    MPI_Win_fence(0, win);
    for (int i = 0; i < check_size && size > 0; i++)
        CHECK_EQ(base[i], 1);
    /* MPI 4.1: also of memory that MPI_Win_allocate gave. Ranks on other hosts have size 0. */
    for (int rank = 0; rank < check_size; rank++) {
        CHECK_EQ(MPI_Win_shared_query(win, rank, &told, &unit, &other), MPI_SUCCESS);
        CHECK(told == 0 || (rank % 2 == 0 && told == 100 && unit == 1 && other[check_rank] == 1));
        CHECK(rank != check_rank || (told == size && (size == 0 || other == base)));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
}

/* Address space alone: only pages that are touched take memory. */
static void a_part_may_exceed_4_gib(void)
{
    MPI_Aint size = check_rank == 0 ? ((MPI_Aint)1 << 32) + 65536 : 0, last = ((MPI_Aint)1 << 32) + 65536 - 8;
    long *base, value = 17, got = 0, before = -1;
    MPI_Win win;
    MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_fence(0, win);
    if (check_rank == check_size - 1)
        MPI_Put(&value, 1, MPI_LONG, 0, last, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    MPI_Get(&got, 1, MPI_LONG, 0, last, 1, MPI_LONG, win);
    MPI_Get(&before, 1, MPI_LONG, 0, last - ((MPI_Aint)1 << 32), 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    CHECK_EQ(got, 17);
    CHECK_EQ(before, 0);
    MPI_Win_free(&win);
}

/* Also above a page; what one member asks for holds for all of its host. */
static void memory_is_aligned_as_asked(void)
{
    const int ALIGNMENTS[] = {64, 4096, 8192, 1 << 21, 1 << 24};
    int rank, members;
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &members);
    for (int i = 0; i < 5; i++) {
        uintptr_t alignment = (uintptr_t)ALIGNMENTS[i];
        char *base, *other, text[16];
        MPI_Aint size;
        int unit;
        MPI_Info info;
        MPI_Win win;
        snprintf(text, sizeof text, "%d", ALIGNMENTS[i]);
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpi_minimum_memory_alignment", text);
        MPI_Win_allocate(33, 1, rank == 0 ? info : MPI_INFO_NULL, host, &base, &win);
        CHECK_EQ((uintptr_t)base % alignment, 0);
        MPI_Win_fence(0, win);
        memset(base, rank + 1, 33);
        MPI_Win_fence(0, win);
        for (int member = 0; member < members; member++) {
            MPI_Win_shared_query(win, member, &size, &unit, &other);
            CHECK_EQ(size, 33);
            CHECK_EQ((uintptr_t)other % alignment, 0);
            CHECK_EQ(other[32], member + 1);
        }
        MPI_Win_free(&win);
        /* Of parts that follow each other the first one. */
        MPI_Win_allocate_shared(33, 1, info, host, &base, &win);
        CHECK_EQ((uintptr_t)(base - 33 * rank) % alignment, 0);
        MPI_Win_free(&win);
        MPI_Win_allocate(33, 1, info, MPI_COMM_WORLD, &base, &win);
        CHECK_EQ((uintptr_t)base % alignment, 0);
        MPI_Win_free(&win);
        MPI_Info_free(&info);
    }
    MPI_Comm_free(&host);
}

static void hints_have_defaults(void)
{
    const char *const HINTS[] = {"no_locks", "accumulate_ordering", "accumulate_ops", "same_size", "same_disp_unit", "mpi_accumulate_granularity"};
    char *base, text[MPI_MAX_INFO_VAL + 1];
    int flag;
    MPI_Info told;
    MPI_Win win;
    MPI_Win_allocate(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_get_info(win, &told);
    for (size_t i = 0; i < sizeof HINTS / sizeof *HINTS; i++) {
        MPI_Info_get(told, HINTS[i], MPI_MAX_INFO_VAL, text, &flag);
        if (!flag || !*text)
            fprintf(stderr, "%s is not told\n", HINTS[i]);
        CHECK(flag && *text);
    }
    MPI_Info_free(&told);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(thousands_of_pieces_are_attached);
    RUN(parts_may_be_empty);
    RUN(a_part_may_exceed_4_gib);
    RUN(memory_is_aligned_as_asked);
    RUN(hints_have_defaults);
    return check_end();
}
