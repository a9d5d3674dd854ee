/* Windows of every kind that nobody frees: the program ends as if they were freed. Some are in use by the others until the end.
 * ranks: 1 2 4
 * limit: 60 */
#include "check.h"

enum { CREATED, ALLOCATED, DYNAMIC, KINDS };

static void windows_are_kept(void)
{
    static long own[2];
    for (int kind = 0; kind < KINDS; kind++) {
        MPI_Win win;
        long *base = own, sum = 0, one = 1;
        MPI_Aint there = 0;
        int next = (check_rank + 1) % check_size;
        own[0] = own[1] = 0;
        if (kind == CREATED) {
            MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        } else if (kind == ALLOCATED) {
            MPI_Win_allocate(sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
            base[0] = base[1] = 0;
        } else {
            MPI_Aint mine;
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
            MPI_Win_attach(win, own, sizeof own);
            MPI_Get_address(own, &mine);
            MPI_Sendrecv(&mine, 1, MPI_AINT, (check_rank + check_size - 1) % check_size, 0, &there, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, win);
        for (int i = 0; i < 10; i++)
            MPI_Accumulate(&one, 1, MPI_LONG, next, there, 1, MPI_LONG, MPI_SUM, win);
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, check_rank, 0, win);
        sum = base[0];
        MPI_Win_unlock(check_rank, win);
        CHECK_EQ(sum, 10);
        MPI_Barrier(MPI_COMM_WORLD);
        /* One of them is even locked at the end. */
        if (kind == ALLOCATED)
            MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(windows_are_kept);
    return check_end();
}
