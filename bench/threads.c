/* Several threads in MPI, built with every MPI: `threads MAP SAMPLES NANOSECONDS WHAT:THREADS...`, on two ranks.
 *
 *     latency   THREADS threads of rank 1 receive and answer, one thread of rank 0 sends to all of them with one tag (PIOMan, section V.B)
 *     asleep    the same, each message so long after the one before that who receives it sleeps
 *     beside    THREADS threads of rank 1 are blocked in receives that nobody serves, one more answers rank 0
 *     probing   the same, blocked in probes
 *     choosing  the same, blocked in MPI_Waitany over two receives
 *     mixing    the same, blocked in MPI_Waitany over a barrier on a communicator of its own, a generalized request and a receive
 *     sending   THREADS threads of rank 0 are blocked so; what one MPI_Send of its main thread takes
 *     distinct  THREADS pairs of threads send messages of 8 bytes in windows, each pair on its own communicator
 *     shared    the same, all on one communicator, kept apart by tags
 *     hinted    the same with MPI 4's assertions (no wildcards, overtaking allowed)
 *     mixed     THREADS threads of each rank call collectives on communicators of their own
 *     alone     THREADS threads of rank 0, on all cores, send messages of 4 bytes to themselves, each on its own communicator; rank 1 sleeps
 *     gathered  the same, all on one communicator, kept apart by tags
 *
 * Rank 0 prints: sample WHAT THREADS NANOSECONDS HANDOFF_BEFORE HANDOFF_AFTER, where nanoseconds are those of one way, one
 * call of MPI_Send, one message (of all pairs together) or one collective (of all threads together). */
#include "work.h"

#include <mpi.h>
#include <pthread.h>

enum { ALONE_MAX = 16, ALONE_ROW = 64 };
enum { PING = 1, PONG = 2, NEVER = 3, READY = 4, NOTHING = 5, PAIR = 10, THREADS_MAX = 64, WINDOW = 64, SENDS_MAX = 2000, CALLS = 4 };
enum { GO = 1, STOP = 2 };
/* Between two sends whose length is taken: the receiver has time to keep up. */
static const double PACE_NS = 3000;
/* Before a message to who sleeps: no MPI spins for so long. */
static const int APART_US = 1000;
static const double WARM_LIMIT_NS = 3e9;

static int rank;
static uint64_t epoch;
static struct handoff *shared;
static MPI_Comm own_comm[THREADS_MAX], one_comm, hinted_comm, alone_comm[ALONE_MAX];
static double turns_per_ns;
/* Threads that have taken part once: those that answer have answered, those that stay blocked are about to be. */
static _Atomic int taking_part;

struct job {
    int thread;
    long times;
    MPI_Comm comm;
    pthread_barrier_t *together;
    double begin, end;
    long done;
};

static void start(pthread_t *thread, int count, void *(*body)(void *), struct job *jobs)
{
    for (int t = 0; t < count; t++)
        if (pthread_create(&thread[t], NULL, body, &jobs[t]) != 0) {
            fprintf(stderr, "threads: the system refuses thread %d\n", t);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
}

static void join(pthread_t *thread, int count)
{
    for (int t = 0; t < count; t++)
        pthread_join(thread[t], NULL);
}

static void ping_once(void)
{
    int word = GO, answer;
    MPI_Send(&word, 1, MPI_INT, 1, PING, MPI_COMM_WORLD);
    MPI_Recv(&answer, 1, MPI_INT, 1, PONG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Until all threads of rank 1 take part. */
static void warm(void)
{
    int ready = 0;
    double begun = now_ns();
    while (!ready && now_ns() - begun < WARM_LIMIT_NS) {
        ping_once();
        MPI_Iprobe(1, READY, MPI_COMM_WORLD, &ready, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&ready, 1, MPI_INT, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 0's side of a ping-pong, for about as long as wanted; nanoseconds of one way. */
static double ping(double wanted_ns)
{
    long rounds = 0;
    double begun, took = 0;
    warm();
    for (begun = now_ns(); took < wanted_ns || rounds < 4; rounds++) {
        ping_once();
        /* The clock costs a tenth of a quick round: it is asked after each 16, or after each when they are slow. */
        if (rounds % 16 == 15 || rounds < 4 || took > 16e3 * (double)rounds)
            took = now_ns() - begun;
    }
    return (now_ns() - begun) / (double)rounds / 2;
}

/* The same with a pause before each message. */
static double ping_apart(double wanted_ns)
{
    long rounds = 0;
    double begun, took = 0;
    warm();
    for (; took < wanted_ns || rounds < 4; rounds++) {
        usleep(APART_US);
        begun = now_ns();
        ping_once();
        took += now_ns() - begun;
    }
    return took / (double)rounds / 2;
}

/* Rank 1 says that its threads take part; when they do not within a second, that they are late is part of what is measured. */
static void tell_ready(int threads)
{
    for (int i = 0; i < 1000 && atomic_load(&taking_part) < threads; i++)
        usleep(1000);
    usleep(2000);
    MPI_Send(&threads, 1, MPI_INT, 0, READY, MPI_COMM_WORLD);
}

static void tell(int count, int tag, int word)
{
    for (int i = 0; i < count; i++)
        MPI_Send(&word, 1, MPI_INT, 1 - rank, tag, MPI_COMM_WORLD);
}

static void *answer(void *unused)
{
    int word = GO;
    (void)unused;
    for (int i = 0;; i++) {
        MPI_Recv(&word, 1, MPI_INT, 0, PING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (word == STOP)
            return NULL;
        if (i == 0)
            atomic_fetch_add(&taking_part, 1);
        MPI_Send(&word, 1, MPI_INT, 0, PONG, MPI_COMM_WORLD);
    }
}

static void *blocked(void *unused)
{
    int word;
    (void)unused;
    atomic_fetch_add(&taking_part, 1);
    MPI_Recv(&word, 1, MPI_INT, 1 - rank, NEVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static void *probing(void *unused)
{
    int word;
    (void)unused;
    atomic_fetch_add(&taking_part, 1);
    MPI_Probe(1 - rank, NEVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(&word, 1, MPI_INT, 1 - rank, NEVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static void *choosing(void *unused)
{
    int words[2], which;
    MPI_Request both[2];
    (void)unused;
    atomic_fetch_add(&taking_part, 1);
    MPI_Irecv(&words[0], 1, MPI_INT, 1 - rank, NEVER, MPI_COMM_WORLD, &both[0]);
    MPI_Irecv(&words[1], 1, MPI_INT, 1 - rank, NOTHING, MPI_COMM_WORLD, &both[1]);
    MPI_Waitany(2, both, &which, MPI_STATUS_IGNORE);
    MPI_Cancel(&both[1 - which]);
    MPI_Wait(&both[1 - which], MPI_STATUS_IGNORE);
    return NULL;
}

static int query(void *unused, MPI_Status *status)
{
    (void)unused;
    MPI_Status_set_elements(status, MPI_INT, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int let_go(void *unused)
{
    (void)unused;
    return MPI_SUCCESS;
}

static int call_off(void *unused, int complete)
{
    (void)unused, (void)complete;
    return MPI_SUCCESS;
}

static void *mixing(void *argument)
{
    struct job *job = argument;
    int word, which;
    MPI_Request all[3];
    MPI_Ibarrier(job->comm, &all[0]);
    MPI_Irecv(&word, 1, MPI_INT, 1 - rank, NOTHING, MPI_COMM_WORLD, &all[1]);
    MPI_Grequest_start(query, let_go, call_off, NULL, &all[2]);
    MPI_Request own = all[2];
    atomic_fetch_add(&taking_part, 1);
    MPI_Waitany(3, all, &which, MPI_STATUS_IGNORE);
    MPI_Cancel(&all[1]);
    MPI_Grequest_complete(own);
    MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
    return NULL;
}

static double answered(double (*pings)(double), int threads, double wanted_ns)
{
    static struct job jobs[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    double took = 0;
    if (rank == 0) {
        took = pings(wanted_ns);
        tell(threads, PING, STOP);
    } else {
        start(thread, threads, answer, jobs);
        tell_ready(threads);
        join(thread, threads);
    }
    return took;
}

static double latency(int threads, double wanted_ns) { return answered(ping, threads, wanted_ns); }

static double asleep(int threads, double wanted_ns) { return answered(ping_apart, threads, wanted_ns); }

/* Comes to the barrier of a thread of the other rank. */
static void come(MPI_Comm comm)
{
    MPI_Request request;
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static double beside_those(void *(*body)(void *), int threads, double wanted_ns)
{
    static struct job jobs[THREADS_MAX];
    pthread_t thread[THREADS_MAX], answering;
    double took = 0;
    if (rank == 0) {
        took = ping(wanted_ns);
        tell(1, PING, STOP);
        if (body == mixing)
            for (int t = 0; t < threads; t++)
                come(own_comm[t]);
        else
            tell(threads, NEVER, STOP);
    } else {
        for (int t = 0; t < threads; t++)
            jobs[t].comm = own_comm[t];
        start(thread, threads, body, jobs);
        start(&answering, 1, answer, jobs);
        tell_ready(threads + 1);
        join(&answering, 1);
        join(thread, threads);
    }
    return took;
}

static double beside(int threads, double wanted_ns) { return beside_those(blocked, threads, wanted_ns); }

static double beside_probes(int threads, double wanted_ns) { return beside_those(probing, threads, wanted_ns); }

static double beside_choices(int threads, double wanted_ns) { return beside_those(choosing, threads, wanted_ns); }

static double beside_mixtures(int threads, double wanted_ns) { return beside_those(mixing, threads, wanted_ns); }

static double sending(int threads, double wanted_ns)
{
    static struct job jobs[THREADS_MAX];
    static double took[SENDS_MAX];
    pthread_t thread[THREADS_MAX];
    uint64_t turns = (uint64_t)(PACE_NS * turns_per_ns);
    int word = GO, sends = 0;
    double begun = now_ns();
    if (rank == 1) {
        do
            MPI_Recv(&word, 1, MPI_INT, 0, PING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        while (word != STOP);
        tell(threads, NEVER, STOP);
        return 0;
    }
    start(thread, threads, blocked, jobs);
    for (int i = 0; i < 1000 && atomic_load(&taking_part) < threads; i++)
        usleep(1000);
    usleep(2000); /* they sleep now, or spin if they never sleep */
    for (begun = now_ns(); sends < SENDS_MAX && (sends < 20 || now_ns() - begun < wanted_ns); sends++) {
        work_do(turns);
        double at = now_ns();
        MPI_Send(&word, 1, MPI_INT, 1, PING, MPI_COMM_WORLD);
        took[sends] = now_ns() - at;
    }
    tell(1, PING, STOP);
    join(thread, threads);
    return median(took, sends);
}

static void *pair(void *argument)
{
    struct job *job = argument;
    MPI_Request req[WINDOW];
    double words[WINDOW] = {0}, ack = 0;
    int tag = PAIR + 2 * job->thread;
    pthread_barrier_wait(job->together);
    job->begin = now_ns();
    for (long i = 0; i < job->times; i += WINDOW) {
        for (int w = 0; w < WINDOW; w++) {
            if (rank == 0)
                MPI_Isend(&words[w], 1, MPI_DOUBLE, 1, tag, job->comm, &req[w]);
            else
                MPI_Irecv(&words[w], 1, MPI_DOUBLE, 0, tag, job->comm, &req[w]);
        }
        MPI_Waitall(WINDOW, req, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(&ack, 1, MPI_DOUBLE, 1, tag + 1, job->comm, MPI_STATUS_IGNORE);
        else
            MPI_Send(&ack, 1, MPI_DOUBLE, 0, tag + 1, job->comm);
    }
    job->end = now_ns();
    return NULL;
}

static void *mixed(void *argument)
{
    struct job *job = argument;
    static const int BYTES = 1024;
    double value = 1, sum;
    char block[1024] = {0}, all[2 * 64];
    pthread_barrier_wait(job->together);
    job->begin = now_ns();
    for (long i = 0; i < job->times; i += CALLS) {
        MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, job->comm);
        MPI_Bcast(block, BYTES, MPI_BYTE, (int)(i / CALLS % 2), job->comm);
        MPI_Allgather(block, 64, MPI_BYTE, all, 64, MPI_BYTE, job->comm);
        MPI_Barrier(job->comm);
    }
    job->end = now_ns();
    return NULL;
}

/* `times` of each of `threads` threads on both ranks: from the first one's begin to the last one's end. */
static double together(void *(*body)(void *), int threads, long times, MPI_Comm comm)
{
    struct job jobs[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++)
        jobs[t] = (struct job){.thread = t, .times = times, .comm = comm == MPI_COMM_NULL ? own_comm[t] : comm, .together = &barrier};
    MPI_Barrier(MPI_COMM_WORLD);
    start(thread, threads, body, jobs);
    join(thread, threads);
    pthread_barrier_destroy(&barrier);
    double first = jobs[0].begin, last = jobs[0].end;
    for (int t = 1; t < threads; t++) {
        first = jobs[t].begin < first ? jobs[t].begin : first;
        last = jobs[t].end > last ? jobs[t].end : last;
    }
    return last - first;
}

static void measure_together(const char *what, int threads, int samples, double wanted_ns)
{
    int is_mixed = strcmp(what, "mixed") == 0;
    MPI_Comm comm = strcmp(what, "shared") == 0 ? one_comm : strcmp(what, "hinted") == 0 ? hinted_comm : MPI_COMM_NULL;
    void *(*body)(void *) = is_mixed ? mixed : pair;
    long times = is_mixed ? CALLS : WINDOW;
    for (;;) {
        double took = together(body, threads, times, comm);
        long next = took >= wanted_ns / 2 ? 0 : times * (took < wanted_ns / 10 ? 4 : 2);
        MPI_Bcast(&next, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (next == 0)
            break;
        times = next;
    }
    for (int i = 0; i < samples; i++) {
        double before = handoff_measure(shared, rank, &epoch), took = together(body, threads, times, comm);
        double after = handoff_measure(shared, rank, &epoch);
        if (rank == 0)
            printf("sample %s %d %.2f %.2f %.2f\n", what, threads, took / (double)times / threads, before, after);
    }
}

static cpu_set_t all_cores(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        CPU_SET(cpu, &all);
    return all;
}

static void *with_itself(void *argument)
{
    struct job *job = argument;
    MPI_Request req;
    int out = job->thread, in, tag = PAIR + job->thread;
    pthread_barrier_wait(job->together);
    job->begin = job->end = now_ns();
    for (long times = job->times; job->end - job->begin < (double)times; job->end = now_ns())
        for (int i = 0; i < ALONE_ROW; i++, job->done++) {
            MPI_Irecv(&in, 1, MPI_INT, 0, tag, job->comm, &req);
            MPI_Send(&out, 1, MPI_INT, 0, tag, job->comm);
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        }
    return NULL;
}

/* Nanoseconds of a message of all threads together, from the first one's begin to the last one's end; on this communicator, or on one for each. */
static double with_themselves(MPI_Comm comm, int threads, double wanted_ns)
{
    struct job jobs[ALONE_MAX];
    pthread_t thread[ALONE_MAX];
    pthread_barrier_t barrier;
    cpu_set_t own, all = all_cores();
    uint64_t seen = atomic_load(&shared->turns);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) {
        while (atomic_load(&shared->turns) == seen)
            usleep(200);
        return 0;
    }
    sched_getaffinity(0, sizeof own, &own);
    sched_setaffinity(0, sizeof all, &all);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++)
        jobs[t] = (struct job){.thread = t, .times = (long)wanted_ns, .comm = comm == MPI_COMM_NULL ? alone_comm[t] : comm, .together = &barrier};
    start(thread, threads, with_itself, jobs);
    join(thread, threads);
    pthread_barrier_destroy(&barrier);
    sched_setaffinity(0, sizeof own, &own);
    atomic_fetch_add(&shared->turns, 1);
    double first = jobs[0].begin, last = jobs[0].end;
    long done = 0;
    for (int t = 0; t < threads; t++) {
        first = jobs[t].begin < first ? jobs[t].begin : first;
        last = jobs[t].end > last ? jobs[t].end : last;
        done += jobs[t].done;
    }
    return (last - first) / (double)done;
}

static double alone(int threads, double wanted_ns) { return with_themselves(MPI_COMM_NULL, threads, wanted_ns); }

static double gathered(int threads, double wanted_ns) { return with_themselves(alone_comm[0], threads, wanted_ns); }

static void measure(const char *what, int threads, int samples, double wanted_ns)
{
    double (*one)(int, double) = strcmp(what, "latency") == 0 ? latency : strcmp(what, "asleep") == 0 ? asleep : strcmp(what, "beside") == 0 ? beside : strcmp(what, "probing") == 0 ? beside_probes : strcmp(what, "choosing") == 0 ? beside_choices : strcmp(what, "mixing") == 0 ? beside_mixtures : strcmp(what, "sending") == 0 ? sending : strcmp(what, "alone") == 0 ? alone : strcmp(what, "gathered") == 0 ? gathered : NULL;
    if (!one)
        return measure_together(what, threads, samples, wanted_ns);
    for (int i = 0; i < samples; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        atomic_store(&taking_part, 0);
        double before = handoff_measure(shared, rank, &epoch), took = one(threads, wanted_ns);
        MPI_Barrier(MPI_COMM_WORLD);
        double after = handoff_measure(shared, rank, &epoch);
        if (rank == 0)
            printf("sample %s %d %.2f %.2f %.2f\n", what, threads, took, before, after);
    }
}

/* Each process has its share of the cores, so that threads of one may run beside each other where there are enough. */
static void pin_to_share(void)
{
    cpu_set_t all = all_cores(), own;
    CPU_ZERO(&own);
    sched_setaffinity(0, sizeof all, &all);
    sched_getaffinity(0, sizeof all, &all);
    int count = CPU_COUNT(&all), half = count > 1 ? count / 2 : 1, first = count > 1 ? rank * half : 0, seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ >= first && seen <= first + half)
            CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static void make_comms(void)
{
    MPI_Info info;
    for (int t = 0; t < THREADS_MAX; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own_comm[t]);
    for (int t = 0; t < ALONE_MAX; t++)
        MPI_Comm_dup(MPI_COMM_SELF, &alone_comm[t]);
    MPI_Comm_dup(MPI_COMM_WORLD, &one_comm);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_source", "true");
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Info_set(info, "mpi_assert_allow_overtaking", "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &hinted_comm);
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    int provided, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5 || size != 2 || provided != MPI_THREAD_MULTIPLE) {
        fprintf(stderr, provided != MPI_THREAD_MULTIPLE ? "threads: this MPI has no MPI_THREAD_MULTIPLE\n" : "usage: threads MAP SAMPLES NANOSECONDS WHAT:THREADS..., on two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin_to_share();
    shared = handoff_map(argv[1]);
    turns_per_ns = work_turns_per_ns();
    make_comms();
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        int threads = colon ? atoi(colon + 1) : 1;
        if (colon)
            *colon = 0;
        if (threads < 0 || threads > (strcmp(argv[i], "alone") == 0 || strcmp(argv[i], "gathered") == 0 ? ALONE_MAX : THREADS_MAX))
            MPI_Abort(MPI_COMM_WORLD, 2);
        measure(argv[i], threads, atoi(argv[2]), atof(argv[3]));
        if (rank == 0)
            fflush(stdout);
    }
    for (int t = 0; t < THREADS_MAX; t++)
        MPI_Comm_free(&own_comm[t]);
    for (int t = 0; t < ALONE_MAX; t++)
        MPI_Comm_free(&alone_comm[t]);
    MPI_Comm_free(&one_comm), MPI_Comm_free(&hinted_comm);
    return MPI_Finalize();
}
