/* Windows of messages of all sizes between all pairs, sent and received by every mixture of calls, completed by every kind of wait
 * and test, some posted before and some after their messages come. Each receive must get the next message of its sender and
 * tag. Sender and receiver draw the same numbers, so they need no agreement.
 * ranks: 1 2 4
 * limit: 100 */
#include "check.h"

enum { ROUNDS = 60, WINDOW = 24, TAGS = 3, LARGEST = 70000 };
/* Around the ways of the library: in a slot, beside it, in pieces, announced. */
static const int SIZES[] = {0, 1, 8, 31, 33, 64, 200, 256, 257, 1000, 5000, 7000, 15000, 17000, 40000, LARGEST};
enum { NSIZES = sizeof SIZES / sizeof *SIZES };

struct message {
    int size, tag, how, when;
};

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* The window of this round from one rank to another. Mostly small ones, in series. */
static void draw(struct message *messages, int round, int from, int to)
{
    unsigned state = (unsigned)(round * 7919 + from * 104729 + to * 1299709 + 1);
    unsigned largest = next(&state) % 3 == 0 ? NSIZES : 6;
    for (int i = 0; i < WINDOW; i++) {
        messages[i].size = SIZES[next(&state) % largest];
        messages[i].tag = (int)(next(&state) % TAGS);
        messages[i].how = (int)(next(&state) % 8);
        messages[i].when = (int)(next(&state) % 2);
    }
}

static size_t seed(int round, int from, int to, int i) { return (size_t)(round * 131 + from * 17 + to * 5 + i); }

/* Completes all requests by one of the kinds of calls; statuses in the order of the requests. */
static void complete(int kind, int n, MPI_Request *requests, MPI_Status *statuses)
{
    int left = n, flag = 0, index, found, indices[4 * WINDOW];
    MPI_Status some[4 * WINDOW];
    switch (kind % 6) {
    case 0:
        MPI_Waitall(n, requests, statuses);
        return;
    case 1:
        for (int i = n - 1; i >= 0; i--)
            MPI_Wait(&requests[i], &statuses[i]);
        return;
    case 2:
        while (!flag)
            MPI_Testall(n, requests, &flag, statuses);
        return;
    case 3:
        for (; left > 0; left--) {
            MPI_Status status;
            MPI_Waitany(n, requests, &index, &status);
            CHECK(index >= 0 && index < n);
            statuses[index] = status;
        }
        return;
    case 4:
        while (left > 0) {
            MPI_Waitsome(n, requests, &found, indices, some);
            for (int i = 0; i < found; i++)
                statuses[indices[i]] = some[i];
            left -= found;
        }
        return;
    default:
        for (int i = 0; left > 0; i = (i + 1) % n) {
            if (requests[i] == MPI_REQUEST_NULL)
                continue;
            MPI_Test(&requests[i], &flag, &statuses[i]);
            left -= flag;
        }
    }
}

static unsigned char *outs[WINDOW], *ins[WINDOW];

static void send_window(const struct message *messages, int round, int to, MPI_Request *requests)
{
    for (int i = 0; i < WINDOW; i++) {
        const struct message *m = &messages[i];
        check_fill(outs[i], (size_t)m->size, seed(round, check_rank, to, i));
        if (m->how == 0)
            MPI_Issend(outs[i], m->size, MPI_BYTE, to, m->tag, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Isend(outs[i], m->size, MPI_BYTE, to, m->tag, MPI_COMM_WORLD, &requests[i]);
    }
}

/* A derived type now and then. */
static void receive(const struct message *m, int i, int from, MPI_Request *request)
{
    if (m->how == 1) {
        MPI_Datatype bytes;
        MPI_Type_contiguous(m->size, MPI_BYTE, &bytes);
        MPI_Type_commit(&bytes);
        MPI_Irecv(ins[i], 1, bytes, from, m->tag, MPI_COMM_WORLD, request);
        MPI_Type_free(&bytes);
    } else {
        MPI_Irecv(ins[i], LARGEST, MPI_BYTE, from, m->tag, MPI_COMM_WORLD, request);
    }
}

static void verify(const struct message *m, int i, int round, int from, const MPI_Status *status)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    CHECK_EQ(count, m->size);
    CHECK_EQ(status->MPI_SOURCE, from);
    CHECK_EQ(status->MPI_TAG, m->tag);
    CHECK(check_same(ins[i], (size_t)m->size, seed(round, from, check_rank, i)));
}

/* Round by round everybody sends to the rank `distance` further on, and receives from the one as far behind. */
static void every_receive_gets_the_next_message_of_its_sender_and_tag(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int distance = round % check_size, to = (check_rank + distance) % check_size;
        int from = (check_rank + check_size - distance) % check_size;
        struct message mine[WINDOW], theirs[WINDOW];
        MPI_Request requests[2 * WINDOW];
        MPI_Status statuses[2 * WINDOW];
        draw(mine, round, check_rank, to);
        draw(theirs, round, from, check_rank);
        int early = theirs[0].when;
        for (int i = 0; early && i < WINDOW; i++)
            receive(&theirs[i], i, from, &requests[i]);
        send_window(mine, round, to, &requests[WINDOW]);
        for (int i = 0; !early && i < WINDOW; i++) {
            if (theirs[i].when == 0 && theirs[i].how >= 4) {
                /* A look makes progress: what came so far is kept, or matches, between two posts. */
                int flag = 0;
                MPI_Iprobe(from, theirs[i].tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            }
            receive(&theirs[i], i, from, &requests[i]);
        }
        complete(mine[1].how + round, 2 * WINDOW, requests, statuses);
        for (int i = 0; i < WINDOW; i++)
            verify(&theirs[i], i, round, from, &statuses[i]);
    }
}

/* The same with blocking receives, which take what comes in the order of sending. */
static void blocking_receives_take_what_nonblocking_sends_sent(void)
{
    for (int round = ROUNDS; round < 2 * ROUNDS; round++) {
        int distance = round % check_size, to = (check_rank + distance) % check_size;
        int from = (check_rank + check_size - distance) % check_size;
        struct message mine[WINDOW], theirs[WINDOW];
        MPI_Request requests[WINDOW];
        MPI_Status statuses[WINDOW], status;
        draw(mine, round, check_rank, to);
        draw(theirs, round, from, check_rank);
        send_window(mine, round, to, requests);
        for (int i = 0; i < WINDOW; i++) {
            MPI_Recv(ins[i], LARGEST, MPI_BYTE, theirs[i].when ? from : MPI_ANY_SOURCE, theirs[i].tag, MPI_COMM_WORLD, &status);
            verify(&theirs[i], i, round, from, &status);
        }
        complete(mine[1].how + round, WINDOW, requests, statuses);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    for (int i = 0; i < WINDOW; i++) {
        outs[i] = check_alloc(LARGEST);
        ins[i] = check_alloc(LARGEST);
    }
    RUN(every_receive_gets_the_next_message_of_its_sender_and_tag);
    RUN(blocking_receives_take_what_nonblocking_sends_sent);
    for (int i = 0; i < WINDOW; i++) {
        free(outs[i]);
        free(ins[i]);
    }
    return check_end();
}
