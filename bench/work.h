/* Computing of a known length: a chain of dependent operations in registers, counted in turns and never interrupted by a
 * look at the clock. The length of a turn is measured once; what a number of turns takes is measured again, alone, in each sample. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "handoff.h"

/* Rows that find the length of a turn, and turns in each: about 0.1 ms. */
enum { WORK_ROWS = 15, WORK_ROW_TURNS = 100000 };

static _Thread_local volatile uint64_t work_result;

/* Never inlined, and each turn passes through an empty asm: it can neither be folded nor left out. */
__attribute__((noinline)) static void work_do(uint64_t turns)
{
    uint64_t x = work_result | 1;
    for (uint64_t i = 0; i < turns; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    work_result = x;
}

/* What two looks at the clock add to a time that they bound. */
static inline double work_clock_ns(void)
{
    double best = 1e18;
    for (int i = 0; i < 1000; i++) {
        double start = now_ns(), took = now_ns() - start;
        best = took < best ? took : best;
    }
    return best;
}

static inline double work_timed(uint64_t turns)
{
    double start = now_ns();
    work_do(turns);
    return now_ns() - start;
}

/* Turns in a nanosecond, by the quickest of several rows: the others were disturbed. */
static inline double work_turns_per_ns(void)
{
    double best = 1e18;
    for (int i = 0; i < WORK_ROWS; i++) {
        double took = work_timed(WORK_ROW_TURNS);
        best = took < best ? took : best;
    }
    return WORK_ROW_TURNS / best;
}

static inline int work_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, work_order);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
