/* Every function of garonne_threads.h, in a program of C. Prints "all is well" at its end. */
#include "garonne_threads.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

enum { FIBERS = 64, ROUNDS = 200 };

static garonne_mutex_t mutex = GARONNE_MUTEX_INITIALIZER;
static garonne_cond_t condition = GARONNE_COND_INITIALIZER;
static garonne_once_t once = GARONNE_ONCE_INIT;
static garonne_barrier_t barrier;
static garonne_sem_t semaphore;
static garonne_key_t key;
static int counter, begun, serial, destroyed;

static void begin(void) { begun++; }

static void destroy(void *value) {
    garonne_mutex_lock(&mutex);
    destroyed += *(int *)value;
    garonne_mutex_unlock(&mutex);
}

static void *count(void *argument) {
    /* Destructors read it. */
    static int one = 1;
    CHECK(garonne_once(&once, begin) == 0 && begun == 1);
    CHECK(garonne_getspecific(key) == NULL && garonne_setspecific(key, &one) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(garonne_mutex_lock(&mutex) == 0);
        int before = counter;
        if (round % 16 == 0)
            garonne_thread_yield();
        counter = before + 1;
        CHECK(garonne_mutex_unlock(&mutex) == 0);
    }
    CHECK(garonne_getspecific(key) == &one);
    int result = garonne_barrier_wait(&barrier);
    CHECK(result == 0 || result == GARONNE_BARRIER_SERIAL_THREAD);
    if (result)
        serial++;
    if ((size_t)argument % 2)
        garonne_thread_exit(argument);
    return argument;
}

static void *wait_for_it(void *argument) {
    garonne_mutex_lock(&mutex);
    while (counter != -1)
        garonne_cond_wait(&condition, &mutex);
    garonne_mutex_unlock(&mutex);
    garonne_sem_post(&semaphore);
    return argument;
}

static void *read_byte(void *argument) {
    char byte;
    return read(*(int *)argument, &byte, 1) == 1 ? argument : NULL;
}

static void *read_marked(void *argument) { return garonne_thread_blocking(read_byte, argument); }

static struct timespec soon(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if ((now.tv_nsec += 1000000) >= 1000000000) {
        now.tv_nsec -= 1000000000;
        now.tv_sec++;
    }
    return now;
}

static void kinds_of_mutexes(void) {
    garonne_mutex_t recursive, checking, normal = GARONNE_MUTEX_INITIALIZER;
    CHECK(garonne_mutex_init(&recursive, GARONNE_MUTEX_RECURSIVE) == 0 && garonne_mutex_init(&checking, GARONNE_MUTEX_ERRORCHECK) == 0);
    CHECK(garonne_mutex_lock(&recursive) == 0 && garonne_mutex_lock(&recursive) == 0);
    CHECK(garonne_mutex_unlock(&recursive) == 0 && garonne_mutex_unlock(&recursive) == 0 && garonne_mutex_unlock(&recursive) == EPERM);
    CHECK(garonne_mutex_trylock(&checking) == 0 && garonne_mutex_lock(&checking) == EDEADLK && garonne_mutex_trylock(&checking) == EBUSY);
    CHECK(garonne_mutex_unlock(&checking) == 0 && garonne_mutex_unlock(&checking) == EPERM);
    struct timespec end = soon();
    CHECK(garonne_mutex_lock(&normal) == 0 && garonne_mutex_timedlock(&normal, &end) == ETIMEDOUT && garonne_mutex_unlock(&normal) == 0);
    CHECK(garonne_mutex_destroy(&normal) == 0 && garonne_mutex_destroy(&recursive) == 0 && garonne_mutex_destroy(&checking) == 0);
    CHECK(garonne_mutex_init(&normal, 7) == EINVAL && garonne_mutex_lock(NULL) == EINVAL);
}

static void attributes(void) {
    garonne_attr_t attr;
    garonne_thread_t thread;
    size_t bytes;
    int state;
    CHECK(garonne_attr_init(&attr) == 0 && garonne_attr_setstacksize(&attr, 1 << 20) == 0);
    CHECK(garonne_attr_getstacksize(&attr, &bytes) == 0 && bytes == 1 << 20);
    CHECK(garonne_attr_setname(&attr, "worker") == 0 && garonne_attr_setpriority(&attr, GARONNE_PRIORITY_HIGH) == 0);
    CHECK(garonne_attr_setpriority(&attr, 9) == EINVAL && garonne_attr_setplace(&attr, "sofa") == EINVAL);
    CHECK(garonne_attr_setplace(&attr, "core:99999") == 0 && garonne_thread_create(&thread, &attr, wait_for_it, NULL) == ENODEV);
    CHECK(garonne_attr_setplace(&attr, "core:0") == 0);
    CHECK(garonne_attr_setdetachstate(&attr, GARONNE_CREATE_DETACHED) == 0);
    CHECK(garonne_attr_getdetachstate(&attr, &state) == 0 && state == GARONNE_CREATE_DETACHED);
    CHECK(garonne_thread_create(&thread, &attr, wait_for_it, NULL) == 0);
    CHECK(garonne_attr_destroy(&attr) == 0);
}

static void *in_bubble(void *argument) {
    CHECK(garonne_thread_setwork(1000) == 0);
    garonne_thread_yield();
    garonne_sem_post(&semaphore);
    if (argument)
        CHECK(garonne_bubble_join(*(garonne_bubble_t *)argument) == EDEADLK);
    return argument;
}

static void bubbles(const char *scheduler) {
    garonne_bubble_t outer, inner;
    garonne_attr_t attr;
    garonne_thread_t threads[8];
    struct garonne_bubble_statistics statistics;
    char name[32];
    uint64_t done, refused;
    CHECK(garonne_bubbles_setscheduler(scheduler) == 0);
    CHECK(garonne_bubbles_getscheduler(name, sizeof name) == 0 && strcmp(name, scheduler) == 0 && garonne_bubbles_getscheduler(name, 2) == ERANGE);
    CHECK(garonne_bubble_create(&outer, NULL) == 0 && garonne_bubble_create(&inner, outer) == 0 && garonne_bubble_create(NULL, NULL) == EINVAL);
    CHECK(garonne_bubble_setname(outer, "outer") == 0 && garonne_bubble_setaffinity(inner, GARONNE_BUBBLE_SHARE) == 0);
    CHECK(garonne_bubble_setaffinity(inner, 7) == EINVAL && garonne_bubble_setpriority(inner, 2) == 0);
    CHECK(garonne_bubble_setplace(inner, "core:0") == 0 && garonne_bubble_setplace(inner, "core:9999") == ENODEV);
    CHECK(garonne_bubble_memory(inner, threads, sizeof threads, GARONNE_MEMORY_READ) == 0);
    CHECK(garonne_memory_attach(threads, sizeof threads, GARONNE_ATTACH_PAGES, 1000) == 0);
    CHECK(garonne_memory_attach(threads, sizeof threads, GARONNE_ATTACH_EITHER, 1) == 0);
    CHECK(garonne_memory_attach(threads, sizeof threads, 0, 1) == EINVAL && garonne_memory_attach((void *)4096, 1 << 16, GARONNE_ATTACH_PAGES, 1) == EFAULT);
    CHECK(garonne_bubble_memory(inner, threads, sizeof threads, 0) == EINVAL && garonne_bubble_setpriority(inner, 3) == EBUSY);
    CHECK(garonne_attr_init(&attr) == 0);
    for (int i = 0; i < 8; i++) {
        CHECK(garonne_attr_setbubble(&attr, i % 2 ? inner : outer) == 0);
        CHECK(garonne_thread_create(&threads[i], &attr, in_bubble, i == 4 ? &outer : NULL) == 0);
    }
    CHECK(garonne_bubble_getstatistics(outer, &statistics) == 0 && statistics.threads == 8 && statistics.ready == 8 && statistics.bubbles == 1);
    CHECK(statistics.bytes == sizeof threads);
    CHECK(garonne_bubble_submit(outer) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(garonne_sem_wait(&semaphore) == 0 && garonne_thread_join(threads[i], NULL) == 0);
    CHECK(garonne_bubble_join(inner) == 0 && garonne_bubble_join(outer) == 0);
    CHECK(garonne_bubble_getstatistics(outer, &statistics) == 0 && statistics.threads == 0 && statistics.ended == 8);
    CHECK(garonne_thread_create(&threads[0], &attr, in_bubble, NULL) == ESRCH);
    CHECK(garonne_bubbles_getmoves(&done, &refused) == 0 && garonne_thread_setwork(1) == ESRCH);
    CHECK(garonne_attr_destroy(&attr) == 0 && garonne_bubble_destroy(inner) == 0 && garonne_bubble_destroy(outer) == 0);
}

int main(void) {
    garonne_thread_t threads[FIBERS], waiter;
    CHECK(garonne_thread_workers() >= 1 && garonne_key_create(&key, destroy) == 0);
    CHECK(garonne_barrier_init(&barrier, FIBERS) == 0 && garonne_barrier_init(&barrier, 0) == EINVAL && garonne_sem_init(&semaphore, 0) == 0);
    for (size_t i = 0; i < FIBERS; i++)
        CHECK(garonne_thread_create(&threads[i], NULL, count, (void *)i) == 0);
    for (size_t i = 0; i < FIBERS; i++) {
        void *result;
        CHECK(garonne_thread_join(threads[i], &result) == 0 && result == (void *)i);
    }
    CHECK(counter == FIBERS * ROUNDS && serial == 1 && destroyed == FIBERS);

    attributes();
    garonne_cond_t other;
    CHECK(garonne_cond_init(&other) == 0 && garonne_cond_destroy(&other) == 0 && garonne_cond_init(NULL) == EINVAL);
    CHECK(garonne_thread_create(&waiter, NULL, wait_for_it, NULL) == 0 && garonne_thread_setname(waiter, "waiter") == 0);
    CHECK(garonne_thread_detach(waiter) == 0);
    struct timespec end = soon(), moment = {0, 1000000};
    CHECK(garonne_mutex_lock(&mutex) == 0 && garonne_cond_timedwait(&condition, &mutex, &end) == ETIMEDOUT);
    counter = -1;
    CHECK(garonne_mutex_unlock(&mutex) == 0 && garonne_cond_broadcast(&condition) == 0 && garonne_cond_signal(&condition) == 0);
    CHECK(garonne_sem_wait(&semaphore) == 0 && garonne_sem_wait(&semaphore) == 0);
    end = soon();
    CHECK(garonne_sem_trywait(&semaphore) == EAGAIN && garonne_sem_timedwait(&semaphore, &end) == ETIMEDOUT);
    int units;
    CHECK(garonne_sem_post(&semaphore) == 0 && garonne_sem_getvalue(&semaphore, &units) == 0 && units == 1);
    CHECK(garonne_thread_sleep(&moment) == 0);
    moment.tv_nsec = -1;
    CHECK(garonne_thread_sleep(&moment) == EINVAL);

    /* More readers than workers, of a pipe into which somebody writes later. */
    int ends[2], readers = garonne_thread_workers() + 2;
    CHECK(pipe(ends) == 0 && readers < FIBERS);
    for (int i = 0; i < readers; i++)
        CHECK(garonne_thread_create(&threads[i], NULL, i % 2 ? read_marked : read_byte, &ends[0]) == 0);
    for (int i = 0; i < readers; i++)
        CHECK(write(ends[1], "x", 1) == 1);
    for (int i = 0; i < readers; i++) {
        void *result;
        CHECK(garonne_thread_join(threads[i], &result) == 0 && result == &ends[0]);
    }

    static const char *const schedulers[] = {"spread", "steal", "gang", "affinity", "memory", "flat"};
    for (int i = 0; i < 6; i++)
        bubbles(schedulers[i]);
    CHECK(garonne_sem_post(&semaphore) == 0);
    kinds_of_mutexes();
    CHECK(garonne_thread_equal(garonne_thread_self(), garonne_thread_self()));
    CHECK(garonne_thread_join(garonne_thread_self(), NULL) == EDEADLK && garonne_thread_join(NULL, NULL) == ESRCH);
    CHECK(garonne_thread_create(&waiter, NULL, NULL, NULL) == EINVAL);
    CHECK(garonne_key_delete(key) == 0 && garonne_key_delete(key) == EINVAL && garonne_setspecific(key, &key) == EINVAL);
    CHECK(garonne_sem_destroy(&semaphore) == 0 && garonne_barrier_destroy(&barrier) == 0);
    CHECK(garonne_mutex_destroy(&mutex) == 0 && garonne_cond_destroy(&condition) == 0);
    puts("all is well");
    return 0;
}
