/* Two threads of each rank use communicators of their own, in turns: while one is in MPI the other waits outside of it. A store
 * to a place that is known (marks.h) says when a thread begins a round and when it ends, so that a tool that prints addresses, but
 * no threads, tells whose they are; tools/testing/false_sharing.py compares what both touched. Arguments: the file that says where
 * the process's objects and mappings lie (`-`: none), and the kinds of calls, of which each has some rounds.
 */
#define _GNU_SOURCE
#include "marks.h"
#include <mpi.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A round makes CALLS calls of a kind, or what counts as that many. The first thousand messages, and some rounds of each kind, open
 * what is opened at the first use: runs, lanes, tables. */
enum { THREADS = 2, WINDOW = 64, CALLS = 8, MANY = 2 * CALLS, WINDOWS = 4, FIRST = 16, UNTRACED = 2, LONGEST = 1 << 15, TAG = 10, ANSWER = 1 };

static int rank, peer;
static MPI_Comm comms[THREADS];
static int turns[THREADS][2];  /* pipes, so that who waits touches nothing but its own stack */
static volatile char *marks;
static struct { void *begin; size_t size; } stacks[THREADS];

struct hands {
    MPI_Comm comm;
    char *out, *in;
    MPI_Request kept[2];
    MPI_Datatype columns;
    double sum[2];
};

typedef void kind_of_calls(struct hands *at);

static void send(struct hands *at, int bytes)
{
    MPI_Send(at->out, bytes, MPI_BYTE, peer, TAG, at->comm);
}

static void receive(struct hands *at, int bytes)
{
    MPI_Status status;
    MPI_Recv(at->in, bytes, MPI_BYTE, peer, TAG, at->comm, &status);
}

static void there_and_back(struct hands *at, int bytes, int times)
{
    for (int i = 0; i < times; i++) {
        if (rank == 0)
            send(at, bytes);
        receive(at, bytes);
        if (rank != 0)
            send(at, bytes);
    }
}

static void pingpong(struct hands *at) { there_and_back(at, 8, CALLS); }
static void pingpong_1k(struct hands *at) { there_and_back(at, 1024, CALLS); }
static void pingpong_32k(struct hands *at) { there_and_back(at, LONGEST, CALLS); }

static void window(struct hands *at)
{
    MPI_Request all[WINDOW];
    char answer[8] = "";
    for (int i = 0; i < WINDOW; i++)
        if (rank == 0)
            MPI_Isend(at->out, 8, MPI_BYTE, peer, TAG, at->comm, &all[i]);
        else
            MPI_Irecv(at->in + 8 * i, 8, MPI_BYTE, peer, TAG, at->comm, &all[i]);
    MPI_Waitall(WINDOW, all, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(answer, 8, MPI_BYTE, peer, ANSWER, at->comm, MPI_STATUS_IGNORE);
    else
        MPI_Send(answer, 8, MPI_BYTE, peer, ANSWER, at->comm);
}

static void windows(struct hands *at)
{
    for (int i = 0; i < WINDOWS; i++)
        window(at);
}

static void sendrecv(struct hands *at)
{
    MPI_Status status;
    for (int i = 0; i < CALLS; i++)
        MPI_Sendrecv(at->out, 8, MPI_BYTE, peer, TAG, at->in, 8, MPI_BYTE, peer, TAG, at->comm, &status);
}

static void persistent(struct hands *at)
{
    MPI_Status statuses[2];
    for (int i = 0; i < CALLS; i++) {
        MPI_Startall(2, at->kept);
        MPI_Waitall(2, at->kept, statuses);
    }
}

static void ssend(struct hands *at)
{
    for (int i = 0; i < CALLS; i++) {
        if (rank == 0)
            MPI_Ssend(at->out, 8, MPI_BYTE, peer, TAG, at->comm);
        receive(at, 8);
        if (rank != 0)
            MPI_Ssend(at->out, 8, MPI_BYTE, peer, TAG, at->comm);
    }
}

/* What was sent before it lies there afterwards, so that who then asks without waiting finds it: looks in vain are at the other threads'
 * engines, too, each sixteenth time. */
static void all_is_there(struct hands *at)
{
    char word;
    MPI_Sendrecv("", 1, MPI_BYTE, peer, ANSWER, &word, 1, MPI_BYTE, peer, ANSWER, at->comm, MPI_STATUS_IGNORE);
}

static void find_by_probe(struct hands *at)
{
    MPI_Status status;
    MPI_Probe(peer, TAG, at->comm, &status);
    receive(at, 8);
}

static void find_by_iprobe(struct hands *at)
{
    MPI_Status status;
    int found = 0;
    all_is_there(at);
    while (!found)
        MPI_Iprobe(peer, TAG, at->comm, &found, &status);
    receive(at, 8);
}

static void find_by_improbe(struct hands *at)
{
    MPI_Status status;
    MPI_Message message;
    int found = 0;
    all_is_there(at);
    while (!found)
        MPI_Improbe(peer, TAG, at->comm, &found, &message, &status);
    MPI_Mrecv(at->in, 8, MPI_BYTE, &message, &status);
}

static void found(struct hands *at, kind_of_calls *find)
{
    for (int i = 0; i < CALLS; i++) {
        send(at, 8);
        find(at);
    }
}

static void probe(struct hands *at) { found(at, find_by_probe); }
static void iprobe(struct hands *at) { found(at, find_by_iprobe); }
static void improbe(struct hands *at) { found(at, find_by_improbe); }

static void begin_many(struct hands *at, MPI_Request *all)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Irecv(at->in + 8 * i, 8, MPI_BYTE, peer, TAG, at->comm, &all[i]);
    for (int i = CALLS; i < MANY; i++)
        MPI_Isend(at->out, 8, MPI_BYTE, peer, TAG, at->comm, &all[i]);
}

static void waitany(struct hands *at)
{
    MPI_Request all[MANY];
    MPI_Status status;
    begin_many(at, all);
    for (int i = 0, which; i < MANY; i++)
        MPI_Waitany(MANY, all, &which, &status);
}

static void waitsome(struct hands *at)
{
    MPI_Request all[MANY];
    MPI_Status statuses[MANY];
    begin_many(at, all);
    for (int left = MANY, ended, which[MANY]; left > 0; left -= ended)
        MPI_Waitsome(MANY, all, &ended, which, statuses);
}

static void testall(struct hands *at)
{
    MPI_Request all[MANY];
    MPI_Status statuses[MANY];
    begin_many(at, all);
    all_is_there(at);
    for (int over = 0; !over;)
        MPI_Testall(MANY, all, &over, statuses);
}

static void test(struct hands *at)
{
    MPI_Request in, out;
    MPI_Status status;
    for (int i = 0; i < CALLS; i++) {
        MPI_Irecv(at->in, 8, MPI_BYTE, peer, TAG, at->comm, &in);
        MPI_Isend(at->out, 8, MPI_BYTE, peer, TAG, at->comm, &out);
        all_is_there(at);
        for (int over = 0; !over;)
            MPI_Test(&in, &over, &status);
        MPI_Wait(&out, &status);
    }
}

static void columns(struct hands *at)
{
    MPI_Status status;
    int count;
    for (int i = 0; i < CALLS; i++) {
        if (rank == 0)
            MPI_Send(at->out, 1, at->columns, peer, TAG, at->comm);
        MPI_Recv(at->in, 1, at->columns, peer, TAG, at->comm, &status);
        MPI_Get_count(&status, at->columns, &count);
        if (rank != 0)
            MPI_Send(at->out, 1, at->columns, peer, TAG, at->comm);
    }
}

static void asking(struct hands *at)
{
    int number;
    for (int i = 0; i < CALLS; i++) {
        MPI_Comm_rank(at->comm, &number);
        MPI_Comm_size(at->comm, &number);
        MPI_Type_size(MPI_DOUBLE, &number);
        MPI_Wtime();
    }
}

static void allreduce(struct hands *at)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Allreduce(&at->sum[0], &at->sum[1], 1, MPI_DOUBLE, MPI_SUM, at->comm);
}

static void barrier(struct hands *at)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Barrier(at->comm);
}

static void bcast_1k(struct hands *at)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Bcast(at->in, 1024, MPI_BYTE, i % 2, at->comm);
}

static void reduce(struct hands *at)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Reduce(&at->sum[0], &at->sum[1], 1, MPI_DOUBLE, MPI_SUM, i % 2, at->comm);
}

static void alltoall(struct hands *at)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Alltoall(at->out, 8, MPI_BYTE, at->in, 8, MPI_BYTE, at->comm);
}

static void iallreduce(struct hands *at)
{
    MPI_Request request;
    for (int i = 0; i < CALLS; i++) {
        MPI_Iallreduce(&at->sum[0], &at->sum[1], 1, MPI_DOUBLE, MPI_SUM, at->comm, &request);
        all_is_there(at);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void ibarrier(struct hands *at)
{
    MPI_Request request;
    for (int i = 0; i < CALLS; i++) {
        MPI_Ibarrier(at->comm, &request);
        all_is_there(at);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

#define KIND(name) { #name, name }
static const struct { const char *name; kind_of_calls *make; } kinds[] = {
    KIND(windows), KIND(pingpong), KIND(pingpong_1k), KIND(pingpong_32k), KIND(sendrecv),
    KIND(persistent), KIND(ssend), KIND(probe), KIND(iprobe), KIND(improbe), KIND(waitany), KIND(waitsome), KIND(testall),
    KIND(test), KIND(columns), KIND(asking), KIND(allreduce), KIND(barrier), KIND(bcast_1k), KIND(reduce), KIND(alltoall),
    KIND(iallreduce), KIND(ibarrier),
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int chosen[KINDS], some;

static void await_turn(int mine)
{
    char word;
    if (read(turns[mine][0], &word, 1) != 1)
        abort();
}

static void give_turn(int mine)
{
    if (write(turns[(mine + 1) % THREADS][1], "", 1) != 1)
        abort();
}

static void *body(void *argument)
{
    int mine = (int)(long)argument;
    struct hands at = { .comm = comms[mine], .out = calloc(1, LONGEST), .in = calloc(1, LONGEST), .sum = { 1 } };
    pthread_attr_t about;
    pthread_getattr_np(pthread_self(), &about);
    pthread_attr_getstack(&about, &stacks[mine].begin, &stacks[mine].size);
    pthread_attr_destroy(&about);
    MPI_Send_init(at.out, 8, MPI_BYTE, peer, TAG, at.comm, &at.kept[0]);
    MPI_Recv_init(at.in, 8, MPI_BYTE, peer, TAG, at.comm, &at.kept[1]);
    MPI_Type_vector(8, 1, 4, MPI_DOUBLE, &at.columns);
    MPI_Type_commit(&at.columns);
    for (int i = 0; i < FIRST; i++)
        window(&at);
    for (int which = 0; which < some; which++)
        for (int round = -UNTRACED; round < ROUNDS; round++) {
            await_turn(mine);
            if (round >= 0)
                marks[MARK(which, mine)] = 1;
            kinds[chosen[which]].make(&at);
            marks[ASIDE] = 1;
            give_turn(mine);
        }
    MPI_Request_free(&at.kept[0]);
    MPI_Request_free(&at.kept[1]);
    MPI_Type_free(&at.columns);
    return NULL;
}

static int tell_object(struct dl_phdr_info *info, size_t size, void *file)
{
    (void)size;
    fprintf(file, "object %lx %s\n", (long)info->dlpi_addr, info->dlpi_name);
    return 0;
}

/* Where things lie: the objects' beginnings, then the kernel's list of mappings. */
static void tell_places(const char *name)
{
    FILE *file = fopen(name, "w"), *maps = fopen("/proc/self/maps", "r");
    if (file == NULL || maps == NULL) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    dl_iterate_phdr(tell_object, file);
    for (char line[4096]; fgets(line, sizeof line, maps) != NULL;)
        fprintf(file, "mapping %s", line);
    for (int t = 0; t < THREADS; t++)
        fprintf(file, "stack %p %zx\n", stacks[t].begin, stacks[t].size);
    fclose(maps);
    fclose(file);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    for (some = 0; some < argc - 2 && some < KINDS; some++) {
        int at = 0;
        while (at < KINDS && strcmp(kinds[at].name, argv[some + 2]) != 0)
            at++;
        if (at == KINDS || level != MPI_THREAD_MULTIPLE) {
            fprintf(stderr, "usage: apart FILE KIND..., with MPI_THREAD_MULTIPLE\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        chosen[some] = at;
    }
    marks = mmap((void *)MARKS, MARKS_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (marks != (void *)MARKS) {
        perror("the place of the marks");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++)
        if (MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]) != MPI_SUCCESS || pipe(turns[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
    give_turn(THREADS - 1);
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, body, (void *)t);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    if (strcmp(argv[1], "-") != 0)
        tell_places(argv[1]);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comms[t]);
    MPI_Finalize();
    return 0;
}
