// Threads for a debugger: two wait, one sleeps, one computes, until the program is killed. Prints "up" when all do.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER, changed = PTHREAD_COND_INITIALIZER;
static int there;
static atomic_long turns;

static void come(void) {
    there++;
    pthread_cond_signal(&changed);
}

__attribute__((noinline)) static void waits_for_ever(void) {
    pthread_mutex_lock(&mutex);
    come();
    for (;;) pthread_cond_wait(&never, &mutex);
}

__attribute__((noinline)) static void sleeps_long(void) {
    pthread_mutex_lock(&mutex);
    come();
    pthread_mutex_unlock(&mutex);
    for (;;) sleep(1000);
}

__attribute__((noinline)) static void computes(void) {
    pthread_mutex_lock(&mutex);
    come();
    pthread_mutex_unlock(&mutex);
    for (;;) turns++;
}

static void *run(void *argument) {
    void (*body)(void) = *(void (**)(void))argument;
    body();
    return NULL;
}

int main(void) {
    void (*bodies[])(void) = {waits_for_ever, waits_for_ever, sleeps_long, computes};
    pthread_t thread;
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&thread, NULL, run, &bodies[i]) == 0);
    pthread_mutex_lock(&mutex);
    while (there < 4) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    puts("up");
    fflush(stdout);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
