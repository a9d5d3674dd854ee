// How threads and processes end: exits, cancellation wherever a thread waits, detached threads, new processes. Prints "all is well".
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t none;
static pthread_t forever;
static int pipe_ends[2];
static long cleaned;

static void count(void *argument) {
    cleaned += (long)argument;
}

static void unlock(void *argument) {
    cleaned++;
    CHECK(pthread_mutex_unlock(argument) == 0);
}

// Exits.

static void (*volatile leave)(void *) = pthread_exit;

static void deep(int depth) {
    if (depth < 0) return;
    pthread_cleanup_push(count, (void *)1);
    if (depth == 0) leave((void *)77);
    deep(depth - 1);
    pthread_cleanup_pop(0);
}

static void *exits(void *argument) {
    (void)argument;
    sched_yield();
    deep(5);
    return NULL;
}

// Waits that end by cancellation.

static void *in_condition(void *argument) {
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, &mutex);
    for (;;) pthread_cond_wait(&never, &mutex);
    pthread_cleanup_pop(0);
    return argument;
}

static void *in_semaphore(void *argument) {
    pthread_cleanup_push(count, (void *)1);
    for (;;) sem_wait(&none);
    pthread_cleanup_pop(0);
    return argument;
}

static void *in_sleep(void *argument) {
    pthread_cleanup_push(count, (void *)1);
    for (;;) sleep(1000);
    pthread_cleanup_pop(0);
    return argument;
}

static void *in_read(void *argument) {
    char byte;
    pthread_cleanup_push(count, (void *)1);
    for (;;) CHECK(read(pipe_ends[0], &byte, 1) == 1);
    pthread_cleanup_pop(0);
    return argument;
}

static void *in_join(void *argument) {
    pthread_cleanup_push(count, (void *)1);
    pthread_join(forever, NULL);
    pthread_cleanup_pop(0);
    return argument;
}

static void *in_loop(void *argument) {
    pthread_cleanup_push(count, (void *)1);
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
    pthread_cleanup_pop(0);
    return argument;
}

static int may_go_on;

static void *not_now(void *argument) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    while (!__atomic_load_n(&may_go_on, __ATOMIC_SEQ_CST)) usleep(500);
    cleaned++;
    pthread_setcancelstate(before, NULL);
    pthread_testcancel();
    abort();
    return argument;
}

static void cancel(void *(*start)(void *)) {
    pthread_t thread;
    void *result;
    long before = cleaned;
    may_go_on = 0;
    CHECK(pthread_create(&thread, NULL, start, NULL) == 0);
    usleep(2000);
    CHECK(pthread_cancel(thread) == 0);
    __atomic_store_n(&may_go_on, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(cleaned == before + 1);
}

static void *wait_for_units(void *argument) {
    CHECK(sem_wait(argument) == 0);
    return argument;
}

static void *posts(void *argument) {
    CHECK(pthread_detach(pthread_self()) == 0);
    sched_yield();
    sem_post(argument);
    return NULL;
}

static void *adds(void *argument) {
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&mutex);
        ++*(long *)argument;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

// A process that a thread makes has that thread alone, and may start threads.
static void *forks(void *argument) {
    sched_yield();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        long sum = 0;
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, adds, &sum) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        usleep(100);
        _exit(sum == 400 ? 42 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
    return argument;
}

int main(void) {
    pthread_t thread, threads[8];
    void *result;
    CHECK(pipe(pipe_ends) == 0 && sem_init(&none, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == (void *)77 && cleaned == 6);

    sem_t end, posted;
    CHECK(sem_init(&end, 0, 0) == 0 && sem_init(&posted, 0, 0) == 0);
    CHECK(pthread_create(&forever, NULL, wait_for_units, &end) == 0);
    cancel(in_condition);
    CHECK(pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    cancel(in_semaphore);
    cancel(in_sleep);
    cancel(in_read);
    cancel(in_join);
    cancel(in_loop);
    cancel(not_now);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    CHECK(pthread_timedjoin_np(forever, NULL, &soon) == ETIMEDOUT);
    sem_post(&end);
    CHECK(pthread_join(forever, &result) == 0 && result == &end);

    for (int i = 0; i < 8; i++) CHECK(pthread_create(&thread, NULL, posts, &posted) == 0);
    for (int i = 0; i < 8; i++) CHECK(sem_wait(&posted) == 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, forks, NULL) == 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("all is well");
    fflush(stdout);
    // The process ends while threads wait and run.
    for (int i = 0; i < 8; i++) pthread_create(&thread, NULL, i % 2 ? in_semaphore : in_loop, NULL);
    exit(0);
}
