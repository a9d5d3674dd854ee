/* The thread that advances what a rank leaves open: it is there only while it is needed, takes no signals and no processor time while nothing is to be done, and is in
 * nobody's way: not in a child's, not where the system gives no thread, and not where the program ends without MPI_Finalize. Argument: `usual`, or what is done last. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            fflush(stdout); \
            MPI_Abort(MPI_COMM_WORLD, 1); \
        } \
    } while (0)

enum { LARGE = 1 << 20, SMALL_ONES = 500, GONE_AFTER_S = 30 };

static int rank, size;
static char *data, *got;

/* A line of one of this process's threads, other than the calling one; 0: there is no other. */
static int of_another_thread(const char *file, const char *start, char *line, int len)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int found = 0;
    CHECK(tasks);
    while (!found && (entry = readdir(tasks))) {
        if (!isdigit(entry->d_name[0]) || atoi(entry->d_name) == getpid())
            continue;
        char name[300];
        snprintf(name, sizeof name, "/proc/self/task/%s/%s", entry->d_name, file);
        FILE *lines = fopen(name, "r");
        while (lines && !found && fgets(line, len, lines))
            found = strncmp(line, start, strlen(start)) == 0;
        if (lines)
            fclose(lines);
    }
    closedir(tasks);
    return found;
}

static int threads(void)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    int count = 0;
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "Threads: %d", &count);
    fclose(status);
    return count;
}

static void small_ones(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1, sum;
    MPI_Request requests[2];
    for (int i = 0; i < SMALL_ONES; i++) {
        MPI_Sendrecv(&i, 1, MPI_INT, right, 1, &in, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(in == i);
        MPI_Irecv(&in, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&i, 1, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == i);
        MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == size * i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void post(MPI_Request *request) { MPI_Irecv(got, LARGE, MPI_CHAR, (rank + size - 1) % size, 3, MPI_COMM_WORLD, request); }

static void end(MPI_Request *request, int value)
{
    memset(data, value, LARGE);
    MPI_Send(data, LARGE, MPI_CHAR, (rank + 1) % size, 3, MPI_COMM_WORLD);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    CHECK(got[0] == (char)value && got[LARGE - 1] == (char)value);
}

static long long processor_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Processor time of the other thread. */
static long long its_ns(void)
{
    char line[256];
    CHECK(of_another_thread("schedstat", "", line, sizeof line));
    return atoll(line);
}

/* What it takes of a core in which its rank computes beside something that is open. */
static void takes_next_to_nothing(void)
{
    long long before = its_ns(), began = processor_ns(CLOCK_THREAD_CPUTIME_ID), computed;
    volatile double sum = 0;
    do {
        for (int i = 0; i < 100000; i++)
            sum += i;
        computed = processor_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    } while (computed < 300000000);
    long long its = its_ns() - before;
    printf("it took %lld ns of processor time while the program took %lld\n", its, computed);
    CHECK(its * 50 < computed);
}

static void is_there(void)
{
    char line[256];
    unsigned long long blocked = 0;
    CHECK(threads() == 2);
    /* It names itself when it begins. */
    for (int i = 0; i < 1000 && !of_another_thread("status", "Name:\tgaronne-hands", line, sizeof line); i++)
        usleep(10000);
    CHECK(of_another_thread("status", "Name:\tgaronne-hands", line, sizeof line));
    CHECK(of_another_thread("status", "SigBlk:", line, sizeof line) && sscanf(line, "SigBlk: %llx", &blocked) == 1);
    /* But for the two that nobody can block, and the C library's own two. */
    CHECK((~blocked & 0x7fffffff) == (1u << 8 | 1u << 18));
}

static int child_says(void (*leave)(int))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        int flag = threads() == 1 && !MPI_Finalized(&flag) && flag;
        leave(flag ? 42 : 1);
    }
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    MPI_Request request;
    const char *how = argc > 1 ? argv[1] : "usual";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    data = malloc(LARGE), got = malloc(LARGE);
    small_ones();
    CHECK(threads() == 1);
    if (!strcmp(how, "refused")) {
        struct rlimit none = {0, 0};
        CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
        for (int i = 0; i < 5; i++) {
            post(&request);
            CHECK(threads() == 1);
            end(&request, i + 1);
        }
    } else {
        post(&request);
        is_there();
        takes_next_to_nothing();
        CHECK(child_says(_exit) == 42);
        CHECK(child_says(exit) == 42);
        end(&request, 7);
        if (!strcmp(how, "exit")) {
            post(&request);
            is_there();
            printf("ok\n");
            exit(3);
        }
        /* It goes when nothing is open for a while, also where whoever waits finds that done, and comes again. */
        for (int i = 0; i < 100 * GONE_AFTER_S && threads() > 1; i++)
            usleep(10000);
        CHECK(threads() == 1);
        small_ones();
        CHECK(threads() == 1);
        post(&request);
        is_there();
        end(&request, 9);
    }
    MPI_Finalize();
    CHECK(threads() == 1);
    printf("ok\n");
    free(data), free(got);
    return 0;
}
