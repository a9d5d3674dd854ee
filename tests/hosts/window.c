/* Fills windows: rank 0 sends many messages, short and long, on several communicators to a rank that does not look for a while; then that one receives them by communicator and
 * checks what they hold, and sends large data back. As many rounds as asked for (0: until SIGUSR1 comes). */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 2400, COMMS = 3, SHORT = 200, LONG = 9000, LARGE = 3000000, URGENT = 10000 };

static volatile sig_atomic_t enough;

static void stop(int number)
{
    (void)number;
    enough = 1;
}

static void fail(const char *what, int round, int at)
{
    fprintf(stderr, "wrong in round %d: %s %d\n", round, what, at);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static int length(int number)
{
    return number % 16 == 5 ? LONG : 1 + number * 7 % SHORT;
}

static unsigned char byte_of(int round, int number, int at)
{
    return (unsigned char)(number * 31 + round * 7 + at);
}

/* Of one communicator all have one tag, so that their order counts. */
static int tag_of(int comm)
{
    return comm == 2 ? URGENT : comm;
}

static void send_all(MPI_Comm *comms, unsigned char *bytes, MPI_Request *requests, int round)
{
    for (int i = 0; i < COUNT; i++) {
        unsigned char *mine = bytes + (size_t)i * LONG;
        for (int at = 0; at < length(i); at++)
            mine[at] = byte_of(round, i, at);
        MPI_Isend(mine, length(i), MPI_BYTE, 1, tag_of(i % COMMS), comms[i % COMMS], &requests[i]);
    }
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
}

static void receive_all(MPI_Comm *comms, unsigned char *bytes, MPI_Request *requests, int round)
{
    usleep(20000);
    int posted = 0;
    for (int comm = COMMS - 1; comm >= 0; comm--)
        for (int i = comm; i < COUNT; i += COMMS)
            MPI_Irecv(bytes + (size_t)i * LONG, LONG, MPI_BYTE, 0, comm == 1 ? MPI_ANY_TAG : tag_of(comm), comms[comm], &requests[posted++]);
    MPI_Status *statuses = malloc(COUNT * sizeof *statuses);
    MPI_Waitall(COUNT, requests, statuses);
    posted = 0;
    for (int comm = COMMS - 1; comm >= 0; comm--)
        for (int i = comm; i < COUNT; i += COMMS) {
            int len;
            MPI_Get_count(&statuses[posted++], MPI_BYTE, &len);
            if (len != length(i))
                fail("the length of message", round, i);
            for (int at = 0; at < len; at++)
                if (bytes[(size_t)i * LONG + at] != byte_of(round, i, at))
                    fail("a byte of message", round, i);
        }
    free(statuses);
}

int main(int argc, char **argv)
{
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 1, all_enough = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        fprintf(stderr, "on 2 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    signal(SIGUSR1, stop);
    MPI_Comm comms[COMMS];
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    unsigned char *bytes = malloc((size_t)COUNT * LONG), *large = malloc(LARGE);
    MPI_Request *requests = malloc(COUNT * sizeof *requests);
    int done = 0;
    for (int round = 0; rounds == 0 ? !all_enough : round < rounds; round++, done++) {
        if (rank == 0)
            send_all(comms, bytes, requests, round);
        else
            receive_all(comms, bytes, requests, round);
        for (int at = 0; at < LARGE && rank == 1; at++)
            large[at] = byte_of(round, 1, at);
        if (rank == 1)
            MPI_Send(large, LARGE, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(large, LARGE, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 0; at < LARGE; at++)
            if (large[at] != byte_of(round, 1, at))
                fail("a byte of large data", round, at);
        int mine = enough;
        MPI_Allreduce(&mine, &all_enough, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
    free(bytes), free(large), free(requests);
    if (rank == 0)
        printf("%d rounds, all is well\n", done);
    MPI_Finalize();
    return 0;
}
