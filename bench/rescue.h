/* Waiting without MPI, so that nothing advances there, in programs that are built with every MPI: one that advances only in its own calls is helped on after a while, and would hang otherwise. */
#ifndef BENCH_RESCUE_H
#define BENCH_RESCUE_H

#include "handoff.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sys/syscall.h>

/* A rank that waits so much longer than others compute lets its MPI advance. */
static const double RESCUE_NS = 50e6;
/* That, and what they compute at most: set once it is known. */
static double rescue_ns;

/* How long is computed beside a call: `word` says it, in milliseconds (20ms), or in a way of its program's (`ns` is 0 then). */
struct length {
    const char *word;
    double ns;
};

/* The lengths in a list with commas between, at most `most`, for which those who wait will wait; more than there is room for: -1. */
static inline int lengths_of(char *list, struct length *lengths, int most)
{
    int count = 0;
    rescue_ns = RESCUE_NS;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        if (count == most)
            return -1;
        double ns = strstr(word, "ms") ? atof(word) * 1e6 : 0;
        lengths[count++] = (struct length){word, ns};
        rescue_ns = RESCUE_NS + ns > rescue_ns ? RESCUE_NS + ns : rescue_ns;
    }
    return count;
}

static inline void rescue(void)
{
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

/* Wakes those who wait for a word to be this. */
static inline void rescue_tell(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps until a word is this, or has gone on. */
static inline void rescue_wait(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec limit = {.tv_sec = (time_t)(rescue_ns / 1e9), .tv_nsec = (long)rescue_ns % 1000000000};
    uint32_t seen;
    while ((int32_t)((seen = atomic_load(word)) - value) < 0)
        if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0) != 0 && errno == ETIMEDOUT)
            rescue();
}

#endif
