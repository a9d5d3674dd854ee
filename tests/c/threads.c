/* MPI_THREAD_MULTIPLE: many threads send, receive, probe and take part in collectives on their own communicators.
 * ranks: 1 2 3
 * limit: 120 */
#include "check.h"
#include "threads.h"

enum { ROUNDS = 200, LARGE = 60000 };

static MPI_Comm own_comm[THREADS];

/* All on MPI_COMM_WORLD, kept apart by tags only. */
static void *exchange_by_tag(void *argument)
{
    int t = (int)(long)argument, right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    int *in = check_alloc(LARGE * sizeof(int)), *out = check_alloc(LARGE * sizeof(int));
    for (int i = 0; i < ROUNDS; i++) {
        int count = i % 20 ? i % 100 + 1 : LARGE;
        MPI_Status status;
        MPI_Request req;
        out[0] = t * 1000 + i;
        out[count - 1] = t * 1000 + i;
        MPI_Isend(out, count, MPI_INT, right, t, MPI_COMM_WORLD, &req);
        if (i % 3 == 0)
            MPI_Probe(left, t, MPI_COMM_WORLD, &status);
        MPI_Recv(in, LARGE, MPI_INT, i % 2 ? MPI_ANY_SOURCE : left, t, MPI_COMM_WORLD, &status);
        MPI_Wait(&req, MPI_STATUS_IGNORE);
        CHECK_EQ(in[0], t * 1000 + i);
        CHECK_EQ(in[count - 1], t * 1000 + i);
        CHECK_EQ(status.MPI_SOURCE, left);
    }
    free(in), free(out);
    return NULL;
}

static void threads_share_one_communicator(void) { each(exchange_by_tag); }

static void *reduce_on_own(void *argument)
{
    int t = (int)(long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int in = check_rank + t + i, out = -1;
        MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, own_comm[t]);
        CHECK_EQ(out, check_size * (t + i) + check_size * (check_size - 1) / 2);
        if (i % 50 == 0)
            MPI_Barrier(own_comm[t]);
    }
    return NULL;
}

/* The buffer is full after each round, and empty again when the receivers have what was in it. */
enum { BUFFERED_ROUNDS = 12, BUFFERED_LEN = 4 << 20 };

static void *exchange_buffered(void *argument)
{
    int t = (int)(long)argument, right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    unsigned char *in = check_alloc(BUFFERED_LEN), *out = check_alloc(BUFFERED_LEN);
    MPI_Request req;
    check_fill(out, BUFFERED_LEN, (size_t)t);
    MPI_Bsend_init(out, BUFFERED_LEN, MPI_BYTE, right, t, MPI_COMM_WORLD, &req);
    MPI_Start(&req);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    MPI_Recv(in, BUFFERED_LEN, MPI_BYTE, left, t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(check_same(in, BUFFERED_LEN, (size_t)t));
    MPI_Request_free(&req);
    free(in), free(out);
    return NULL;
}

static void threads_fill_the_buffer_again_and_again(void)
{
    int size = THREADS * (BUFFERED_LEN + MPI_BSEND_OVERHEAD);
    void *buffer = check_alloc((size_t)size);
    MPI_Buffer_attach(buffer, size);
    for (int i = 0; i < BUFFERED_ROUNDS; i++) {
        each(exchange_buffered);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Buffer_detach(&buffer, &size);
    free(buffer);
}

static void threads_reduce_on_their_own_communicators(void)
{
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own_comm[t]);
    each(reduce_on_own);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&own_comm[t]);
}

static MPI_Request shared[THREADS];
static int landed[THREADS];

static void *wait_for_one(void *argument)
{
    long t = (long)argument;
    MPI_Wait(&shared[t], MPI_STATUS_IGNORE);
    CHECK_EQ(landed[t], 500 + t);
    return NULL;
}

/* The threads sleep in MPI_Wait while the main thread, later, sends what they wait for. */
static void *feeder(void *argument)
{
    (void)argument;
    for (int t = THREADS - 1; t >= 0; t--) {
        int value = 500 + t;
        MPI_Send(&value, 1, MPI_INT, (check_rank + 1) % check_size, 900 + t, MPI_COMM_WORLD);
    }
    return NULL;
}

static void threads_wait_for_what_another_sends(void)
{
    pthread_t thread[THREADS], sender;
    for (long t = 0; t < THREADS; t++) {
        MPI_Irecv(&landed[t], 1, MPI_INT, MPI_ANY_SOURCE, 900 + (int)t, MPI_COMM_WORLD, &shared[t]);
        pthread_create(&thread[t], NULL, wait_for_one, (void *)t);
    }
    pthread_create(&sender, NULL, feeder, NULL);
    for (long t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    pthread_join(sender, NULL);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    CHECK_EQ(provided, MPI_THREAD_MULTIPLE);
    RUN(threads_share_one_communicator);
    RUN(threads_reduce_on_their_own_communicators);
    RUN(threads_fill_the_buffer_again_and_again);
    RUN(threads_wait_for_what_another_sends);
    return check_end();
}
