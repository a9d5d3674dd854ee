/* A rank that has left MPI looks into its inbox no more: who receives its last messages afterwards owes it credits that
 * find no room there, and leaves MPI all the same.
 * ranks: 4 6
 * limit: 120 */
#include "check.h"

enum { FLOOD = 40000, BYTES = 200, TAG_FLOOD = 1, TAG_LAST = 2 };

/* The last message of each sender is received before its flood, so that most of the flood is held back at the senders, and
 * each message that is received later returns a credit of its own. */
static void credits_for_those_who_left_are_not_waited_for(void)
{
    char message[BYTES] = {0};
    int last = 4711;
    if (check_rank) {
        MPI_Request *req = check_alloc(FLOOD * sizeof *req);
        for (int i = 0; i < FLOOD; i++)
            MPI_Isend(message, BYTES, MPI_BYTE, 0, TAG_FLOOD, MPI_COMM_WORLD, &req[i]);
        MPI_Send(&last, 1, MPI_INT, 0, TAG_LAST, MPI_COMM_WORLD);
        MPI_Waitall(FLOOD, req, MPI_STATUSES_IGNORE);
        free(req);
        return;
    }
    for (int i = 1; i < check_size; i++) {
        MPI_Status status;
        MPI_Probe(MPI_ANY_SOURCE, TAG_LAST, MPI_COMM_WORLD, &status);
        last = 0;
        MPI_Recv(&last, 1, MPI_INT, status.MPI_SOURCE, TAG_LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK_EQ(last, 4711);
    }
    for (int i = 0; i < FLOOD * (check_size - 1); i++)
        MPI_Recv(message, BYTES, MPI_BYTE, MPI_ANY_SOURCE, i % 2 ? TAG_FLOOD : MPI_ANY_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(credits_for_those_who_left_are_not_waited_for);
    return check_end();
}
