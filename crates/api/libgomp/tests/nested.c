/* Regions inside regions: their threads are no threads of the system, but for those that lend a control block and sleep.
 * Each thread of an inner team meets the others of it, with tasks and loops; the sums tell whether all ran. */
#include <dirent.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

enum { OUTER = 8, INNER = 8, ROUNDS = 12, LENT_MAX = OUTER - 1 + OUTER * (INNER - 1), REPLACED_MAX = OUTER * (INNER - 1) / 3 };

/* Threads of the system that lend a control block, or all others. */
static int threads(int lent) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    CHECK(tasks);
    while ((entry = readdir(tasks))) {
        char path[64 + sizeof entry->d_name], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file && fgets(name, sizeof name, file))
            count += (strncmp(name, "garonne-identi", 14) == 0) == lent;
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return count;
}

int main(void) {
    long sum = 0, tasks = 0;
    int most = 0, lent = 0;
    omp_set_max_active_levels(2);
    omp_set_dynamic(0);
    /* Starts the workers. */
#pragma omp parallel num_threads(OUTER)
    {
#pragma omp barrier
    }
    int before = threads(0);
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel num_threads(OUTER) reduction(+ : sum, tasks)
        {
            int outer = omp_get_thread_num();
#pragma omp parallel num_threads(INNER) reduction(+ : sum, tasks)
            {
                CHECK(omp_get_level() == 2 && omp_get_num_threads() == INNER && omp_get_ancestor_thread_num(1) == outer);
#pragma omp barrier
#pragma omp for schedule(dynamic, 3) nowait
                for (int i = 0; i < 100; i++)
                    sum += i;
#pragma omp single
                for (int i = 0; i < 10; i++)
#pragma omp task shared(tasks)
                {
#pragma omp atomic
                    tasks++;
                }
#pragma omp single
                if (outer == 0) {
                    int now = threads(0), lending = threads(1);
                    most = now > most ? now : most;
                    lent = lending > lent ? lending : lent;
                }
            }
        }
    }
    CHECK(sum == 4950L * OUTER * ROUNDS && tasks == 10L * OUTER * ROUNDS);
    /* The monitor replaces workers that others keep from their CPU, so a few threads more may have come. */
    if (getenv("CHECK_THREADS")) {
        CHECK(most <= before + REPLACED_MAX);
        CHECK(lent <= LENT_MAX);
    }
    puts("all is well");
    return 0;
}
