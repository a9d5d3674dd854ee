/* The bare hand-off of a cache line between two processes, through a file that both map. It is the floor under every
 * small message, and it tells how far apart the two cores are at this moment; samples are labelled by it. Bytes of a
 * shared mapping are touched only through atomics. */
#ifndef BENCH_HANDOFF_H
#define BENCH_HANDOFF_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Round trips of one measurement: about 0.1 ms near, 0.5 ms far. */
enum { HANDOFF_ROUNDS = 1000 };

struct handoff {
    _Alignas(128) _Atomic uint64_t word;  /* the line that goes back and forth */
    _Alignas(128) _Atomic uint64_t epoch; /* measurements finished: ranks that take no part wait for it asleep */
    _Alignas(128) _Atomic uint64_t nanos; /* the result, in hundredths of a nanosecond */
    _Alignas(128) _Atomic uint64_t turns; /* things that one rank did while others waited for it asleep */
};

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Pins the caller to the rank-th of the cores it may use, going round. */
static inline void pin(int rank)
{
    cpu_set_t allowed, own;
    CPU_ZERO(&own);
    /* A launcher may have bound us already: all cores of the machine are the right base. */
    CPU_ZERO(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        CPU_SET(cpu, &allowed);
    sched_setaffinity(0, sizeof allowed, &allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    int skip = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            CPU_SET(cpu, &own);
            sched_setaffinity(0, sizeof own, &own);
            return;
        }
    }
}

/* The first `bytes` of a file, shared by all that map it; the file grows to hold them. */
static inline void *shared_map(const char *path, size_t bytes)
{
    int file = open(path, O_RDWR);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        perror(path);
        exit(2);
    }
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return shared;
}

static inline struct handoff *handoff_map(const char *path) { return shared_map(path, sizeof(struct handoff)); }

/* One way, in ns. Called by all ranks together; 0 and 1 hand over, the others sleep until it is done.
 * `epoch` counts the caller's measurements. The word goes on counting, so that nothing needs to be reset. */
static inline double handoff_measure(struct handoff *shared, int rank, uint64_t *epoch)
{
    uint64_t base = *epoch * 2 * (HANDOFF_ROUNDS + 1);
    ++*epoch;
    if (rank > 1) {
        while (atomic_load_explicit(&shared->epoch, memory_order_acquire) < *epoch)
            usleep(100);
    } else {
        double start = 0;
        for (uint64_t i = 0; i <= HANDOFF_ROUNDS; i++) {
            uint64_t mine = base + 2 * i + (rank == 0 ? 1 : 2);
            if (rank == 1)
                while (atomic_load_explicit(&shared->word, memory_order_acquire) != mine - 1)
                    ;
            atomic_store_explicit(&shared->word, mine, memory_order_release);
            if (rank == 0)
                while (atomic_load_explicit(&shared->word, memory_order_acquire) != mine + 1)
                    ;
            if (i == 0)
                start = now_ns(); /* the first round only waits for the other to arrive */
        }
        if (rank == 0) {
            double nanos = (now_ns() - start) / HANDOFF_ROUNDS / 2;
            atomic_store_explicit(&shared->nanos, (uint64_t)(nanos * 100), memory_order_relaxed);
            atomic_store_explicit(&shared->epoch, *epoch, memory_order_release);
        } else {
            while (atomic_load_explicit(&shared->epoch, memory_order_acquire) < *epoch)
                ;
        }
    }
    return (double)atomic_load_explicit(&shared->nanos, memory_order_relaxed) / 100;
}

#endif
