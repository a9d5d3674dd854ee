// What the kernel's thread does for a thread that is a fiber otherwise: signals, robust and shared mutexes, CPUs. Prints "all is well".
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

// A signal to one thread runs its handler in that thread, whether it waits or runs.

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end = PTHREAD_COND_INITIALIZER;
static __thread int is_meant;
static int handled, may_end;
static sem_t begun, seen;

static void handler(int number) {
    CHECK(number == SIGUSR1 && is_meant);
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
    sem_post(&seen);
}

static void *waits(void *argument) {
    is_meant = 1;
    pthread_mutex_lock(&mutex);
    sem_post(&begun);
    while (!may_end) pthread_cond_wait(&end, &mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static void *runs(void *argument) {
    is_meant = 1;
    sem_post(&begun);
    while (!__atomic_load_n(&may_end, __ATOMIC_SEQ_CST)) usleep(100);
    return argument;
}

static void signals(void *(*start)(void *)) {
    pthread_t thread;
    may_end = handled = 0;
    CHECK(pthread_create(&thread, NULL, start, NULL) == 0);
    CHECK(sem_wait(&begun) == 0 && pthread_kill(thread, 0) == 0);
    for (int i = 1; i <= 3; i++) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0 && sem_wait(&seen) == 0);
        CHECK(handled == i);
    }
    pthread_mutex_lock(&mutex);
    __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&end);
    pthread_mutex_unlock(&mutex);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *takes_signals(void *argument) {
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sem_post(&begun);
    CHECK(sigwait(&set, &number) == 0 && number == SIGUSR2);
    return argument;
}

// The owner of a robust mutex ends with it.

static pthread_mutex_t robust;

static void *ends_as_owner(void *argument) {
    sched_yield();
    CHECK(pthread_mutex_lock(&robust) == 0);
    return argument;
}

// Two processes count with a mutex and wait with a condition.

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    long turn;
};

static void *counts(void *argument) {
    struct shared *shared = argument;
    for (int i = 0; i < 50; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        shared->turn++;
        pthread_cond_broadcast(&shared->changed);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    while (shared->turn < 200) CHECK(pthread_cond_wait(&shared->changed, &shared->mutex) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return NULL;
}

static void two_threads(struct shared *shared) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, counts, shared) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void *on_one_cpu(void *argument) {
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
    sched_yield();
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_EQUAL(&all, &one));
    CHECK(CPU_ISSET(sched_getcpu(), &one));
    return argument;
}

int main(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = handler};
    sem_init(&begun, 0, 0);
    sem_init(&seen, 0, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    signals(waits);
    signals(runs);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, takes_signals, NULL) == 0 && sem_wait(&begun) == 0);
    CHECK(kill(getpid(), SIGUSR2) == 0 && pthread_join(thread, NULL) == 0);

    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&robust, &attr) == 0);
    CHECK(pthread_create(&thread, NULL, ends_as_owner, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&robust) == 0 && pthread_mutex_unlock(&robust) == 0);

    struct shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &attr);
    pthread_condattr_t condition;
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->changed, &condition);
    pid_t child = fork();
    CHECK(child >= 0);
    two_threads(shared);
    if (child == 0) _exit(42);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);

    CHECK(pthread_create(&thread, NULL, on_one_cpu, NULL) == 0 && pthread_join(thread, NULL) == 0);
    puts("all is well");
    return 0;
}
