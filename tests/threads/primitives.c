// Functions of POSIX threads, each in threads that must take turns. Prints "all is well".
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "check.h"

#define THREADS 16
#define ROUNDS 200

static struct timespec after(clockid_t clock, long ms) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += ms * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void all(void *(*start)(void *)) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, start, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0);
        CHECK((long)result == i);
    }
}

// Identity: thread-local variables, errno, names, bounds of the stack.

static __thread long own = -1;
static pthread_key_t key;
static int destroyed;

static void destroy(void *value) {
    __atomic_fetch_add(&destroyed, (long)value > 0, __ATOMIC_RELAXED);
}

static void *identity(void *argument) {
    long me = (long)argument;
    pthread_t self = pthread_self();
    pid_t tid = gettid();
    CHECK(own == -1);
    own = me;
    CHECK(pthread_setspecific(key, (void *)(me + 1)) == 0);
    char name[16];
    snprintf(name, sizeof name, "thread %ld", me);
    CHECK(pthread_setname_np(self, name) == 0);
    pthread_attr_t attr;
    void *low;
    size_t size;
    CHECK(pthread_getattr_np(self, &attr) == 0 && pthread_attr_getstack(&attr, &low, &size) == 0);
    CHECK((char *)&attr > (char *)low && (char *)&attr < (char *)low + size);
    pthread_attr_destroy(&attr);
    for (int i = 0; i < ROUNDS; i++) {
        errno = (int)me + 1;
        i % 20 ? (void)sched_yield() : (void)usleep(100);
        CHECK(errno == me + 1 && own == me && pthread_equal(self, pthread_self()));
        CHECK(pthread_getspecific(key) == (void *)(me + 1));
        CHECK(gettid() == tid && syscall(SYS_gettid) == tid);
    }
    char found[16];
    CHECK(pthread_getname_np(self, found, sizeof found) == 0 && strcmp(name, found) == 0);
    return argument;
}

// Mutexes of each type.

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive, checking;
static long counts[3];

static void *mutexes(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&plain) == 0);
        long before = counts[0];
        if (i % 10 == 0) sched_yield();
        counts[0] = before + 1;
        CHECK(pthread_mutex_unlock(&plain) == 0);
        CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0);
        counts[1]++;
        CHECK(pthread_mutex_unlock(&recursive) == 0);
        if (i % 10 == 0) sched_yield();
        CHECK(pthread_mutex_unlock(&recursive) == 0);
        CHECK(pthread_mutex_lock(&checking) == 0);
        CHECK(pthread_mutex_lock(&checking) == EDEADLK);
        counts[2]++;
        if (i % 10 == 0) sched_yield();
        CHECK(pthread_mutex_unlock(&checking) == 0);
        CHECK(pthread_mutex_unlock(&checking) == EPERM);
    }
    return argument;
}

static void *timed(void *argument) {
    struct timespec soon = after(CLOCK_REALTIME, 5), soon_monotonic = after(CLOCK_MONOTONIC, 5);
    CHECK(pthread_mutex_timedlock(&plain, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_clocklock(&plain, CLOCK_MONOTONIC, &soon_monotonic) == ETIMEDOUT);
    CHECK(pthread_mutex_trylock(&plain) == EBUSY);
    return argument;
}

// Conditions: turns, and clocks.

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, monotonic;
static long turn;

static void *turns(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&plain);
        while (turn % THREADS != me) CHECK(pthread_cond_wait(&changed, &plain) == 0);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&plain);
    }
    struct timespec soon = after(CLOCK_REALTIME, 3), soon_monotonic = after(CLOCK_MONOTONIC, 3);
    pthread_mutex_lock(&checking);
    CHECK(pthread_cond_timedwait(&monotonic, &checking, &soon_monotonic) == ETIMEDOUT);
    CHECK(pthread_cond_clockwait(&monotonic, &checking, CLOCK_REALTIME, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&checking) == 0);
    return argument;
}

// Readers and writers, barriers, semaphores, once, spinning locks.

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t units;
static long pair[2], serial, inside, begun, spun;

static void begin(void) {
    usleep(1000);
    begun++;
}

static void *others(void *argument) {
    long me = (long)argument;
    CHECK(pthread_once(&once, begin) == 0 && begun == 1);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % THREADS == me) {
            CHECK(pthread_rwlock_wrlock(&lock) == 0);
            CHECK(pthread_rwlock_wrlock(&lock) == EDEADLK);
            pair[0]++;
            sched_yield();
            pair[1]++;
        } else {
            CHECK(pthread_rwlock_rdlock(&lock) == 0);
            CHECK(pair[0] == pair[1]);
        }
        CHECK(pthread_rwlock_unlock(&lock) == 0);
        CHECK(sem_wait(&units) == 0);
        CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) <= 3);
        sched_yield();
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        CHECK(sem_post(&units) == 0);
        pthread_spin_lock(&spin);
        spun++;
        pthread_spin_unlock(&spin);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        if (result) serial++;
    }
    return argument;
}

int main(void) {
    pthread_mutexattr_t type;
    pthread_mutexattr_init(&type);
    pthread_mutexattr_settype(&type, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &type);
    pthread_mutexattr_settype(&type, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &type);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&monotonic, &clock);
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    sem_init(&units, 0, 3);

    all(identity);
    CHECK(destroyed == THREADS && own == -1);
    all(mutexes);
    for (int i = 0; i < 3; i++) CHECK(counts[i] == THREADS * ROUNDS);
    pthread_mutex_lock(&plain);
    all(timed);
    pthread_mutex_unlock(&plain);
    all(turns);
    CHECK(turn == THREADS * ROUNDS);
    all(others);
    CHECK(pair[0] == ROUNDS && spun == THREADS * ROUNDS && serial == ROUNDS);
    int left;
    CHECK(sem_getvalue(&units, &left) == 0 && left == 3);
    CHECK(pthread_barrier_destroy(&barrier) == 0 && pthread_rwlock_destroy(&lock) == 0);
    puts("all is well");
    return 0;
}
