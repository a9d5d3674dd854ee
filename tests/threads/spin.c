// Threads, more than CPUs, that wait for each other by spinning: "pause", "yield" or "lock" says how. The main thread, which is the
// kernel's, is one of them. Prints "all is well".
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include "check.h"

enum { MOST = 64 };

static atomic_int come, round_now;
static int threads, rounds, yields, locks;
static pthread_spinlock_t lock;
static long count;

static void *meet(void *argument) {
    for (int r = 0; r < rounds; r++) {
        if (locks) {
            pthread_spin_lock(&lock);
            count++;
            pthread_spin_unlock(&lock);
        }
        int own = atomic_load(&round_now);
        if (atomic_fetch_add(&come, 1) + 1 == threads) {
            atomic_store(&come, 0);
            atomic_fetch_add(&round_now, 1);
        }
        while (atomic_load(&round_now) == own)
            if (yields) sched_yield();
    }
    return argument;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    threads = atoi(argv[2]);
    rounds = atoi(argv[3]);
    CHECK(threads >= 1 && threads <= MOST);
    locks = !strcmp(argv[1], "lock");
    yields = locks || !strcmp(argv[1], "yield");
    CHECK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE) == 0);
    pthread_t others[MOST];
    for (int i = 1; i < threads; i++) CHECK(pthread_create(&others[i], NULL, meet, NULL) == 0);
    meet(NULL);
    for (int i = 1; i < threads; i++) CHECK(pthread_join(others[i], NULL) == 0);
    CHECK(round_now == rounds && count == (locks ? (long)threads * rounds : 0));
    puts("all is well");
    return 0;
}
