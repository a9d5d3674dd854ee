/* Threads that block in receives of one pattern: each message goes to one of them, none waits for ever, and no receive that was posted before by MPI_Irecv loses its turn.
 * ranks: 2
 * limit: 120 */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 6, MESSAGES = 3000, TURN = 1, ANSWER = 2, FIRST = 3, READY = 4, STOP = -1 };

static _Atomic int got[MESSAGES], answered, posted;
static int wildcards;

static void *answer(void *argument)
{
    (void)argument;
    for (;;) {
        int word = STOP;
        MPI_Status status;
        MPI_Recv(&word, 1, MPI_INT, wildcards ? MPI_ANY_SOURCE : 0, TURN, MPI_COMM_WORLD, &status);
        CHECK_EQ(status.MPI_SOURCE, 0);
        if (word == STOP)
            return NULL;
        atomic_fetch_add(&got[word], 1);
        atomic_fetch_add(&answered, 1);
        MPI_Send(&word, 1, MPI_INT, 0, ANSWER, MPI_COMM_WORLD);
    }
}

/* One message under way at a time, so that one thread may do all the work; then all at once. */
static void each_message_goes_to_one_thread(void)
{
    for (int burst = 0; burst < 2; burst++)
        for (wildcards = 0; wildcards < 2; wildcards++) {
            if (check_rank == 1) {
                pthread_t thread[THREADS];
                atomic_store(&answered, 0);
                for (int i = 0; i < MESSAGES; i++)
                    atomic_store(&got[i], 0);
                for (int t = 0; t < THREADS; t++)
                    pthread_create(&thread[t], NULL, answer, NULL);
                for (int t = 0; t < THREADS; t++)
                    pthread_join(thread[t], NULL);
                CHECK_EQ(atomic_load(&answered), MESSAGES);
                for (int i = 0; i < MESSAGES; i++)
                    CHECK_EQ(atomic_load(&got[i]), 1);
            } else {
                int word;
                for (int i = 0; i < MESSAGES; i++) {
                    MPI_Send(&i, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD);
                    if (burst)
                        continue;
                    MPI_Recv(&word, 1, MPI_INT, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    CHECK_EQ(word, i);
                }
                for (int i = 0; burst && i < MESSAGES; i++)
                    MPI_Recv(&word, 1, MPI_INT, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                for (int t = 0, stop = STOP; t < THREADS; t++)
                    MPI_Send(&stop, 1, MPI_INT, 1, TURN, MPI_COMM_WORLD);
            }
            MPI_Barrier(MPI_COMM_WORLD);
        }
}

static void *receive_late(void *sum)
{
    int word;
    while (!atomic_load(&posted))
        ;
    MPI_Recv(&word, 1, MPI_INT, 0, FIRST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    atomic_fetch_add((_Atomic int *)sum, word);
    return NULL;
}

static void a_posted_receive_keeps_its_turn(void)
{
    for (int round = 0; round < 200; round++) {
        if (check_rank == 1) {
            pthread_t late[2];
            _Atomic int sum = 0;
            int first = 0;
            MPI_Request request;
            atomic_store(&posted, 0);
            for (int t = 0; t < 2; t++)
                pthread_create(&late[t], NULL, receive_late, &sum);
            MPI_Irecv(&first, 1, MPI_INT, 0, FIRST, MPI_COMM_WORLD, &request);
            atomic_store(&posted, 1);
            MPI_Send(&round, 1, MPI_INT, 0, READY, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK_EQ(first, 1);
            for (int t = 0; t < 2; t++)
                pthread_join(late[t], NULL);
            CHECK_EQ(atomic_load(&sum), 2 + 3);
        } else {
            int word;
            MPI_Recv(&word, 1, MPI_INT, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (word = 1; word <= 3; word++)
                MPI_Send(&word, 1, MPI_INT, 1, FIRST, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    CHECK_EQ(provided, MPI_THREAD_MULTIPLE);
    RUN(each_message_goes_to_one_thread);
    RUN(a_posted_receive_keeps_its_turn);
    return check_end();
}
