/* A flood of unexpected messages to a rank that does not receive: nothing is lost, memory stays bounded, and a message
 * sent behind the flood can be received first, by name, by wildcard tag class, and after a probe.
 * ranks: 2
 * limit: 400 */
#include <sys/resource.h>

#include "check.h"

enum { FLOOD = 200000, TAG_FLOOD = 1, TAG_LAST = 2, BATCH = 20000 };

/* Resident memory may grow by this much on the receiver: far above what the documented limits add up to (tens of MB),
 * far below the flood's own payload and bookkeeping. */
enum { GROWTH_MAX_KB = 256 * 1024 };

static long resident_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1)
        abort();
    fclose(file);
    return pages * 4;
}

static int flood_bytes;

static void flood_then_last(void)
{
    unsigned char *message = check_alloc((size_t)flood_bytes + 4);
    if (check_rank == 0) {
        MPI_Request *req = check_alloc(FLOOD * sizeof *req);
        memset(message, 1, (size_t)flood_bytes + 4);
        for (int i = 0; i < FLOOD; i++)
            MPI_Isend(message, flood_bytes, MPI_BYTE, 1, TAG_FLOOD, MPI_COMM_WORLD, &req[i]);
        int last = 4711;
        MPI_Send(&last, 1, MPI_INT, 1, TAG_LAST, MPI_COMM_WORLD);
        MPI_Waitall(FLOOD, req, MPI_STATUSES_IGNORE);
        free(req);
    } else {
        long before = resident_kb();
        int last = 0, count;
        MPI_Status status;
        MPI_Probe(MPI_ANY_SOURCE, TAG_LAST, MPI_COMM_WORLD, &status);
        MPI_Recv(&last, 1, MPI_INT, 0, TAG_LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK_EQ(last, 4711);
        CHECK(resident_kb() - before < GROWTH_MAX_KB);
        for (int i = 0; i < FLOOD; i++) {
            MPI_Recv(message, flood_bytes + 4, MPI_BYTE, i % 2 ? 0 : MPI_ANY_SOURCE, i % 3 ? TAG_FLOOD : MPI_ANY_TAG,
                     MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            if (count != flood_bytes)
                CHECK_EQ(count, flood_bytes);
        }
    }
    free(message);
}

static void small_flood_loses_nothing(void)
{
    flood_bytes = 8;
    flood_then_last();
}

static void flood_of_kilobytes_stays_bounded(void)
{
    flood_bytes = 2048;
    flood_then_last();
}

/* Blocking sends to a slow receiver, in sequence. */
static void receiver_behind_catches_up(void)
{
    int value = 0, wrong = 0;
    for (int batch = 0; batch < 10; batch++) {
        if (check_rank == 0) {
            for (int i = 0; i < BATCH; i++) {
                value = batch * BATCH + i;
                MPI_Send(&value, 1, MPI_INT, 1, TAG_FLOOD, MPI_COMM_WORLD);
            }
        } else {
            for (int i = 0; i < BATCH; i++) {
                MPI_Recv(&value, 1, MPI_INT, 0, TAG_FLOOD, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                wrong += value != batch * BATCH + i;
            }
        }
    }
    CHECK_EQ(wrong, 0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(small_flood_loses_nothing);
    RUN(flood_of_kilobytes_stays_bounded);
    RUN(receiver_behind_catches_up);
    return check_end();
}
