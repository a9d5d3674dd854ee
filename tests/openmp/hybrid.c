/* Two ranks whose OpenMP threads call MPI, more of them than the machine has CPUs. Threads wait in MPI for threads of the other rank that come later;
 * tasks wait in MPI while others compute. Whoever blocked a worker in the kernel would block those for whom it waits, or need a thread for each. */
#include <dirent.h>
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #what); MPI_Abort(MPI_COMM_WORLD, 1); exit(1); } } while (0)

enum { THREADS = 24, ROUNDS = 10, LARGE = 30000 };

static int rank, other;
/* Most threads of the system that were seen while others waited in MPI. */
static int most_threads;

/* Threads that may run: those that only lend their identity sleep for ever. */
static int running_threads(void) {
    int count = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    while ((entry = readdir(tasks))) {
        char path[64 + sizeof entry->d_name], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && strncmp(name, "garonne-identi", 14))
            count++;
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return count;
}

/* A chain over both ranks: each thread but the last waits for the one after it. */
static void chain(void) {
    int met = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : met)
    {
        int self = omp_get_thread_num(), next = (self + THREADS - 1) % THREADS;
        int *data = malloc(LARGE * sizeof *data);
        for (int round = 0; round < ROUNDS; round++) {
            int count = round % 5 == 4 ? LARGE : 1;
            if (self == THREADS - 1)
                for (int i = 0; i < count; i++)
                    data[i] = round + i;
            else
                CHECK(MPI_Recv(data, count, MPI_INT, other, self, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
            CHECK(data[0] == round && data[count - 1] == round + count - 1);
            if (self > 0)
                CHECK(MPI_Ssend(data, count, MPI_INT, other, next, MPI_COMM_WORLD) == MPI_SUCCESS);
            if (round % 4 == 3) {
#pragma omp barrier
            }
        }
        free(data);
        met++;
    }
    CHECK(met == THREADS);
}

/* Each thread of a nested team has a communicator of its own, in which it meets that of the other rank. */
static void nested(MPI_Comm *communicators) {
    int sum = 0;
#pragma omp parallel num_threads(4) reduction(+ : sum)
    {
        int outer = omp_get_thread_num();
#pragma omp parallel num_threads(3) reduction(+ : sum)
        {
            int one = 1, both;
            CHECK(MPI_Allreduce(&one, &both, 1, MPI_INT, MPI_SUM, communicators[outer * 3 + omp_get_thread_num()]) == MPI_SUCCESS);
            sum += both;
        }
    }
    CHECK(sum == 24);
}

/* All threads but one wait in MPI, in tasks, for messages that the other rank sends once the remaining thread has computed. */
static void tasks(void) {
    enum { WAITING = THREADS - 1, PARTS = 64, DONE = 1000 };
    long sum = 0;
    int got = 0;
#pragma omp parallel num_threads(THREADS)
#pragma omp single
    {
        for (int i = 0; i < WAITING; i++)
#pragma omp task shared(got)
        {
            int data = -1;
            CHECK(MPI_Recv(&data, 1, MPI_INT, other, DONE + 1 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && data == i);
            /* Most others still wait. */
            if (i == 0)
                most_threads = running_threads();
#pragma omp atomic
            got++;
        }
#pragma omp task shared(sum)
        {
            long parts[PARTS] = {0};
            for (int part = 0; part < PARTS; part++)
                for (int i = 0; i < 1000; i++)
                    parts[part] += i;
            for (int part = 0; part < PARTS; part++)
                sum += parts[part];
            CHECK(MPI_Sendrecv(&sum, 1, MPI_LONG, other, DONE, &parts[0], 1, MPI_LONG, other, DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
            CHECK(parts[0] == sum);
            for (int i = 0; i < WAITING; i++)
                CHECK(MPI_Send(&i, 1, MPI_INT, other, DONE + 1 + i, MPI_COMM_WORLD) == MPI_SUCCESS);
        }
    }
    CHECK(got == WAITING && sum == PARTS * 499500L);
}

int main(int argc, char **argv) {
    int level, most = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Comm communicators[12];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    CHECK(level == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < 12; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]);
    omp_set_max_active_levels(2);
    for (int round = 0; round < 3; round++) {
        chain();
        nested(communicators);
        tasks();
    }
    if (most && most_threads > most) {
        fprintf(stderr, "rank %d has %d threads\n", rank, most_threads);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < 12; i++)
        MPI_Comm_free(&communicators[i]);
    MPI_Finalize();
    printf("all is well: %d threads of the system\n", most_threads);
    return 0;
}
