/* Programs whose traces are known beforehand: `stories STORY DIRECTORY`. What must not depend on time is ordered by files in DIRECTORY, which a rank that
 * computes outside MPI looks at. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <garonne_tasks.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 4 << 20, ROUNDS = 5, TASKS = 20 };

static int rank, size;
static const char *directory;
static char *buffer;

static void say(const char *what, int round) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", directory, what, round);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    if (file < 0) {
        perror(path);
        exit(9);
    }
    close(file);
}

/* Computes, outside MPI, until another rank has said something. */
static void compute_until(const char *what, int round) {
    char path[4096];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s.%d", directory, what, round);
    while (stat(path, &about) != 0) {
        struct timespec moment = {0, 200000};
        nanosleep(&moment, NULL);
    }
}

static void compute_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Rank 0 computes until rank 1 has all: all of the send was hidden. */
static void sender(void) {
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0) {
            MPI_Request request;
            MPI_Isend(buffer, LARGE, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request); /* line: isend of sender */
            compute_until("received", round);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, LARGE, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            say("received", round);
        }
    }
}

/* Both wait as soon as they have started. */
static void wait_at_once(void) {
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        if (rank == 0)
            MPI_Isend(buffer, LARGE, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request); /* line: isend of wait */
        else
            MPI_Irecv(buffer, LARGE, MPI_BYTE, 0, 7, MPI_COMM_WORLD, &request); /* line: irecv of wait */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Rank 1 posts its receive long after the send. */
static void late(void) {
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        if (rank == 0) {
            MPI_Isend(buffer, LARGE, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request);
            say("sent", round);
        } else {
            compute_until("sent", round);
            compute_ms(100);
            MPI_Irecv(buffer, LARGE, MPI_BYTE, 0, 7, MPI_COMM_WORLD, &request); /* line: irecv of late */
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Collectives of both kinds. */
static void collectives(void) {
    int sum = 0, one = 1;
    for (int round = 0; round < ROUNDS; round++)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        MPI_Ibcast(buffer, LARGE, MPI_BYTE, 0, MPI_COMM_WORLD, &request); /* line: ibcast */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Collectives of communicators with a name of the program's, one for each half of the ranks. */
static void named(void) {
    MPI_Comm half;
    int one = 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_set_name(half, rank % 2 ? "the odd ranks, who have a longer name" : "even");
    for (int round = 0; round < ROUNDS; round++)
        MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, half);
    MPI_Request request;
    MPI_Ibcast(buffer, LARGE, MPI_BYTE, 0, half, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&half);
}

/* Rank 1 comes late to blocking calls in which rank 0 waits for it. */
static void late_blocking(void) {
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD); /* line: barrier in time */
        if (rank == 0) {
            MPI_Recv(buffer, 8, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* line: recv of late_blocking */
        } else {
            compute_ms(100);
            MPI_Send(buffer, 8, MPI_BYTE, 0, 7, MPI_COMM_WORLD); /* line: send of late_blocking */
            compute_ms(100);
        }
        MPI_Barrier(MPI_COMM_WORLD); /* line: barrier of late_blocking */
    }
}

/* Rank 0 sends small messages, each answered, and is killed behind the last answer. */
static void killed_sender(void) {
    for (int tag = 0; tag < 2000; tag++) {
        if (rank == 0) {
            MPI_Send(buffer, 4, MPI_BYTE, 1, tag, MPI_COMM_WORLD); /* line: small send */
            MPI_Recv(buffer, 4, MPI_BYTE, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, 4, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, 4, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
        }
    }
    if (rank == 0)
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All but rank 0 wait for it in a barrier, and rank 0 receives what nobody sends. */
static void hung(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    say("running", rank);
    if (rank == 0)
        MPI_Recv(buffer, 8, MPI_BYTE, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* line: recv of hung */
    MPI_Barrier(MPI_COMM_WORLD); /* line: barrier of hung */
}

/* Nonblocking ones that are short enough to meet in shared memory; the first finds its communicator without a place for that. */
static void rounds(void) {
    enum { BLOCK = 8192 };
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        MPI_Ibarrier(MPI_COMM_WORLD, &request); /* line: ibarrier */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iallgather(buffer, BLOCK, MPI_BYTE, buffer + LARGE / 2, BLOCK, MPI_BYTE, MPI_COMM_WORLD, &request); /* line: iallgather */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* A ring of small and medium messages, so that all ranks send and receive. */
static void ring(int rounds) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[2];
        int count = round % 2 ? 8 : 20000;
        MPI_Irecv(buffer, count, MPI_BYTE, before, round, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(buffer + LARGE / 2, count, MPI_BYTE, next, round, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 1 is killed in the middle of it. */
static void killed(void) {
    ring(20);
    if (rank == 1) {
        MPI_Request request;
        MPI_Irecv(buffer, 8, MPI_BYTE, 0, 99, MPI_COMM_WORLD, &request); /* line: last call */
        raise(SIGKILL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

enum { THREADS = 3 };

/* A ring of this thread and its likes of the other ranks: messages of one piece, of a few, and large ones. */
static void *ring_of_thread(void *which) {
    int thread = *(int *)which, next = (rank + 1) % size, before = (rank + size - 1) % size;
    char *out = buffer + (size_t)thread * LARGE / THREADS, *in = out + LARGE / THREADS / 2;
    for (int round = 0; round < 20; round++) {
        static const int counts[] = {8, 20000, 300000};
        MPI_Request requests[2];
        MPI_Irecv(in, counts[round % 3], MPI_BYTE, before, thread, MPI_COMM_WORLD, &requests[0]); /* line: irecv of threads */
        MPI_Isend(out, counts[round % 3], MPI_BYTE, next, thread, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        compute_ms(1); /* Events that come faster than they are read are lost. */
    }
    return NULL;
}

static void ring_of_threads(void) {
    pthread_t threads[THREADS];
    int which[THREADS];
    for (int t = 0; t < THREADS; t++) {
        which[t] = t;
        if (pthread_create(&threads[t], NULL, ring_of_thread, &which[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 4);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}

/* Goes on until DIRECTORY/stop.0 is there. */
static void endless(int threads) {
    char path[4096];
    struct stat about;
    snprintf(path, sizeof path, "%s/stop.0", directory);
    say("running", rank);
    for (int over = 0; !over;) {
        if (threads)
            ring_of_threads();
        else
            ring(20);
        over = rank == 0 && stat(path, &about) == 0;
        MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}
static int once_more(void *state, const garonne_at *at) {
    (void)at;
    compute_ms(1);
    return ++*(int *)state % 2 ? GARONNE_AGAIN : GARONNE_DONE;
}

/* Tasks of which each runs twice, beside messages and collectives. */
static void tasks(void) {
    garonne_tasks *queues;
    garonne_task task;
    int runs = 0, wrong = garonne_tasks_open(&queues) | garonne_task_init(&task, queues, NULL, once_more, &runs);
    for (int round = 0; round < TASKS; round++) {
        MPI_Request requests[2];
        wrong |= garonne_task_submit(&task);
        MPI_Iallreduce(MPI_IN_PLACE, buffer, 100, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[0]); /* line: iallreduce of tasks */
        if (rank == 0)
            MPI_Isend(buffer, 8, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &requests[1]);
        else
            MPI_Irecv(buffer + LARGE - 8, 8, MPI_BYTE, 0, 7, MPI_COMM_WORLD, &requests[1]);
        wrong |= garonne_task_wait(&task) != GARONNE_FINISHED;
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    wrong |= garonne_task_destroy(&task) | runs != 2 * TASKS;
    garonne_tasks_close(queues);
    if (wrong) MPI_Abort(MPI_COMM_WORLD, 4);
}

int main(int argc, char **argv) {
    int level;
    if (argc > 1 && !strcmp(argv[1], "threads"))
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3) {
        fprintf(stderr, "stories STORY DIRECTORY\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    directory = argv[2];
    buffer = malloc(LARGE);
    memset(buffer, 1, LARGE);
    if (!strcmp(argv[1], "sender"))
        sender();
    else if (!strcmp(argv[1], "wait"))
        wait_at_once();
    else if (!strcmp(argv[1], "late"))
        late();
    else if (!strcmp(argv[1], "collectives"))
        collectives();
    else if (!strcmp(argv[1], "rounds"))
        rounds();
    else if (!strcmp(argv[1], "tasks"))
        tasks();
    else if (!strcmp(argv[1], "ring"))
        ring(50);
    else if (!strcmp(argv[1], "killed"))
        killed();
    else if (!strcmp(argv[1], "named"))
        named();
    else if (!strcmp(argv[1], "late_blocking"))
        late_blocking();
    else if (!strcmp(argv[1], "killed_sender"))
        killed_sender();
    else if (!strcmp(argv[1], "hung"))
        hung();
    else if (!strcmp(argv[1], "endless"))
        endless(0);
    else if (!strcmp(argv[1], "threads"))
        endless(1);
    else
        MPI_Abort(MPI_COMM_WORLD, 3);
    free(buffer);
    MPI_Finalize();
    return 0;
}
