/* What OpenMP's constructs cost, built once and run with several libgomp.so.1: `openmp SAMPLES NANOSECONDS WHAT:OUTERxINNER...`.
 *
 *     parallel, for, barrier, single, critical, reduction   as EPCC's benchmarks define them, on OUTER threads (INNER is 1); 0.1 us of computing in each
 *     task      each of OUTER threads creates tasks; the time of one
 *     nested    a region of OUTER threads, each of which begins one of INNER threads; the time of it all
 *     zones     a step of a solver over zones of unequal size: OUTER threads share the zones, INNER threads the lines of a zone
 *
 * Prints: sample WHAT OUTER INNER NANOSECONDS, and for zones a line `check` with the sum of its result. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ZONES = 64, TASKS = 64 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void delay(void)
{
    for (int i = 0; i < 100; i++)
        __asm__ volatile("" ::: "memory");
}

static void parallel(int outer, int inner, int times)
{
    (void)inner;
    for (int t = 0; t < times; t++)
#pragma omp parallel num_threads(outer)
        delay();
}

static void loop(int outer, int inner, int times)
{
    (void)inner;
#pragma omp parallel num_threads(outer)
    for (int t = 0; t < times; t++)
#pragma omp for
        for (int i = 0; i < outer; i++)
            delay();
}

static void barrier(int outer, int inner, int times)
{
    (void)inner;
#pragma omp parallel num_threads(outer)
    for (int t = 0; t < times; t++) {
        delay();
#pragma omp barrier
    }
}

static void single(int outer, int inner, int times)
{
    (void)inner;
#pragma omp parallel num_threads(outer)
    for (int t = 0; t < times; t++)
#pragma omp single
        delay();
}

static void critical(int outer, int inner, int times)
{
    (void)inner;
#pragma omp parallel num_threads(outer)
    for (int t = omp_get_thread_num(); t < times; t += outer)
#pragma omp critical
        delay();
}

static void reduction(int outer, int inner, int times)
{
    long sum = 0;
    (void)inner;
    for (int t = 0; t < times; t++) {
#pragma omp parallel num_threads(outer) reduction(+ : sum)
        {
            delay();
            sum++;
        }
    }
    if (sum != (long)outer * times)
        fprintf(stderr, "a reduction of %d threads is %ld\n", outer, sum);
}

static void task(int outer, int inner, int times)
{
    (void)inner;
#pragma omp parallel num_threads(outer)
    for (int t = omp_get_thread_num(); t < times; t += outer) {
#pragma omp task
        delay();
        if (t % TASKS == 0) {
#pragma omp taskwait
        }
    }
}

static void nested(int outer, int inner, int times)
{
    for (int t = 0; t < times; t++)
#pragma omp parallel num_threads(outer)
#pragma omp parallel num_threads(inner)
        delay();
}

/* A zone: values on lines of points, which a step smooths along its lines and then across them by tridiagonal solves. */
struct zone {
    int side;
    double *values;
};

static struct zone zone[ZONES];

static void prepare(void)
{
    for (int z = 0; z < ZONES; z++) {
        /* Points of zones differ by up to 20 times, as in BT-MZ. */
        int side = zone[z].side = 16 + z * 56 / (ZONES - 1);
        free(zone[z].values);
        zone[z].values = malloc(sizeof(double) * side * side);
        for (int i = 0; i < side * side; i++)
            zone[z].values[i] = (i * 37 + z) % 101;
    }
}

static void solve(double *line, int points, int stride)
{
    double carry[128];
    carry[0] = 0.25;
    line[0] *= 0.5;
    for (int i = 1; i < points; i++) {
        double pivot = 1.0 / (4.0 - carry[i - 1]);
        carry[i] = pivot;
        line[i * stride] = (2.0 * line[i * stride] + line[(i - 1) * stride]) * pivot;
    }
    for (int i = points - 2; i >= 0; i--)
        line[i * stride] += carry[i] * line[(i + 1) * stride];
}

static void zones(int outer, int inner, int times)
{
    for (int t = 0; t < times; t++) {
#pragma omp parallel for num_threads(outer) schedule(dynamic, 1)
        for (int z = ZONES - 1; z >= 0; z--) {
            int side = zone[z].side;
            double *values = zone[z].values;
#pragma omp parallel num_threads(inner)
            {
#pragma omp for
                for (int line = 0; line < side; line++)
                    solve(values + line * side, side, 1);
#pragma omp for
                for (int line = 0; line < side; line++)
                    solve(values + line, side, side);
            }
        }
    }
}

static const struct { const char *name; void (*run)(int, int, int); } KIND[] = {
    {"parallel", parallel}, {"for", loop}, {"barrier", barrier}, {"single", single}, {"critical", critical},
    {"reduction", reduction}, {"task", task}, {"nested", nested}, {"zones", zones},
};

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "openmp SAMPLES NANOSECONDS WHAT:OUTERxINNER...\n");
        return 2;
    }
    int samples = atoi(argv[1]);
    double length = atof(argv[2]);
    omp_set_dynamic(0);
    omp_set_max_active_levels(2);
    for (int a = 3; a < argc; a++) {
        char name[32];
        int outer, inner, kind = -1;
        if (sscanf(argv[a], "%31[a-z]:%dx%d", name, &outer, &inner) != 3 || outer < 1 || inner < 1) {
            fprintf(stderr, "openmp: %s is not WHAT:OUTERxINNER\n", argv[a]);
            return 2;
        }
        for (size_t k = 0; k < sizeof KIND / sizeof *KIND; k++)
            if (!strcmp(KIND[k].name, name))
                kind = (int)k;
        if (kind < 0) {
            fprintf(stderr, "openmp: there is no %s\n", name);
            return 2;
        }
        prepare();
        /* The first turn starts threads. Then as many turns as fill a sample. */
        KIND[kind].run(outer, inner, 2);
        int times = outer;
        for (;;) {
            double begin = now();
            KIND[kind].run(outer, inner, times);
            double taken = now() - begin;
            if (taken >= length || times > 1 << 24)
                break;
            times = taken * 8 < length ? times * 4 : (int)(times * length / taken * 1.1) + 1;
        }
        for (int s = 0; s < samples; s++) {
            double begin = now();
            KIND[kind].run(outer, inner, times);
            printf("sample %s %d %d %.1f\n", name, outer, inner, (now() - begin) / times);
        }
        if (!strcmp(name, "zones")) {
            prepare();
            zones(outer, inner, 3);
            double sum = 0;
            for (int z = 0; z < ZONES; z++)
                for (int i = 0; i < zone[z].side * zone[z].side; i++)
                    sum += zone[z].values[i];
            printf("check %.17g\n", sum);
        }
    }
    return 0;
}
