/* Large messages that move without the hands of the side that computes: the other waits in MPI and does all of it. The two sides tell each
 * other by a file of their own, not by MPI, that they are done; nobody looks at a clock but to give up.
 * ranks: 2 */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { TAG = 3, BYTES_MAX = 4 << 20, GIVE_UP_S = 20 };

static const int lengths[] = {70000, 96 << 10, 256 << 10, BYTES_MAX};

/* A word that both ranks see, without MPI. */
static volatile int *shared_word(void)
{
    char name[] = "/tmp/garonne-overlap-XXXXXX";
    int file = -1;
    if (check_rank == 0) {
        file = mkstemp(name);
        if (file < 0 || ftruncate(file, 4096) != 0)
            abort();
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    FILE *opened = check_rank == 0 ? fdopen(file, "r+") : fopen(name, "r+");
    if (!opened)
        abort();
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(opened), 0);
    if (memory == MAP_FAILED)
        abort();
    fclose(opened);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check_rank == 0)
        unlink(name);
    return memory;
}

/* Computes until the other side says so. */
static int said(volatile int *word, int value)
{
    time_t since = time(NULL);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value)
        if (time(NULL) - since > GIVE_UP_S)
            return 0;
        else
            usleep(100);
    return 1;
}

static void fill(unsigned char *buffer, int bytes, int seed)
{
    for (int i = 0; i < bytes; i++)
        buffer[i] = (unsigned char)(i * 7 + seed);
}

static int is_filled(const unsigned char *buffer, int bytes, int seed)
{
    for (int i = 0; i < bytes; i++)
        if (buffer[i] != (unsigned char)(i * 7 + seed))
            return 0;
    return 1;
}

static void senders_write_while_receivers_compute(void)
{
    volatile int *done = shared_word();
    unsigned char *buffer = check_alloc(BYTES_MAX);
    for (int i = 0; i < 4; i++) {
        if (check_rank == 0) {
            fill(buffer, lengths[i], i);
            MPI_Send(buffer, lengths[i], MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            __atomic_store_n(done, i + 1, __ATOMIC_RELEASE);
        } else {
            MPI_Request req;
            MPI_Status status;
            int count;
            memset(buffer, 0xee, BYTES_MAX);
            MPI_Irecv(buffer, BYTES_MAX, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &req);
            CHECK(said(done, i + 1));
            CHECK(is_filled(buffer, lengths[i], i));
            MPI_Wait(&req, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK_EQ(count, lengths[i]);
            CHECK(is_filled(buffer, lengths[i], i) && (lengths[i] == BYTES_MAX || buffer[lengths[i]] == 0xee));
        }
    }
    free(buffer);
    munmap((void *)done, 4096);
}

static void receivers_read_while_senders_compute(void)
{
    volatile int *done = shared_word();
    unsigned char *buffer = check_alloc(BYTES_MAX);
    for (int i = 0; i < 4; i++) {
        if (check_rank == 0) {
            MPI_Request req;
            fill(buffer, lengths[i], i + 100);
            MPI_Isend(buffer, lengths[i], MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &req);
            CHECK(said(done, i + 1));
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, BYTES_MAX, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(is_filled(buffer, lengths[i], i + 100));
            __atomic_store_n(done, i + 1, __ATOMIC_RELEASE);
        }
    }
    free(buffer);
    munmap((void *)done, 4096);
}

static void a_window_of_receives_fills_in_order_while_the_receiver_computes(void)
{
    enum { WINDOW = 8, BYTES = 100000 };
    volatile int *done = shared_word();
    unsigned char *buffers = check_alloc(WINDOW * BYTES);
    if (check_rank == 0) {
        for (int i = 0; i < WINDOW; i++) {
            /* Every other one is small, and goes another way to the same receives. */
            fill(buffers, BYTES, i);
            MPI_Send(buffers, i % 2 ? 100 : BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        }
        __atomic_store_n(done, 1, __ATOMIC_RELEASE);
    } else {
        MPI_Request req[WINDOW];
        MPI_Status statuses[WINDOW];
        for (int i = 0; i < WINDOW; i++)
            MPI_Irecv(buffers + i * BYTES, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &req[i]);
        CHECK(said(done, 1));
        MPI_Waitall(WINDOW, req, statuses);
        for (int i = 0; i < WINDOW; i++) {
            int count;
            MPI_Get_count(&statuses[i], MPI_BYTE, &count);
            CHECK_EQ(count, i % 2 ? 100 : BYTES);
            CHECK(is_filled(buffers + i * BYTES, count, i));
        }
    }
    free(buffers);
    munmap((void *)done, 4096);
}

static void cancelled_receives_stay_untouched(void)
{
    enum { BYTES = 200000 };
    unsigned char *first = check_alloc(BYTES), *second = check_alloc(BYTES);
    for (int round = 0; round < 200; round++) {
        if (check_rank == 0) {
            fill(first, BYTES, round);
            MPI_Send(first, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Request req[2];
            MPI_Status status[2];
            int gone[2];
            memset(first, 0xee, BYTES);
            memset(second, 0xee, BYTES);
            MPI_Irecv(first, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &req[0]);
            MPI_Irecv(second, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &req[1]);
            if (round % 3)
                usleep((unsigned)(round % 7) * 20);
            MPI_Cancel(&req[0]);
            MPI_Wait(&req[0], &status[0]);
            MPI_Test_cancelled(&status[0], &gone[0]);
            if (!gone[0])
                MPI_Cancel(&req[1]);
            MPI_Wait(&req[1], &status[1]);
            MPI_Test_cancelled(&status[1], &gone[1]);
            CHECK_EQ(gone[0] + gone[1], 1);
            CHECK(is_filled(gone[0] ? second : first, BYTES, round));
            unsigned char *other = gone[0] ? first : second;
            for (int i = 0; i < BYTES; i++)
                if (other[i] != 0xee) {
                    CHECK_EQ(i, -1);
                    break;
                }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(first);
    free(second);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(senders_write_while_receivers_compute);
    RUN(receivers_read_while_senders_compute);
    RUN(a_window_of_receives_fills_in_order_while_the_receiver_computes);
    RUN(cancelled_receives_stay_untouched);
    return check_end();
}
