// What ill-behaved programs do, one per word: "many N" starts N threads, "overflow" uses up a stack, "last" ends the main thread first,
// "children" starts programs from threads. Prints "all is well".
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_there = PTHREAD_COND_INITIALIZER;
static long there, wanted;

static void *waits(void *argument) {
    pthread_mutex_lock(&mutex);
    there++;
    pthread_cond_broadcast(&all_there);
    while (there < wanted) pthread_cond_wait(&all_there, &mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

// Where the system starts no further thread, the program goes on with those that there are.
static void many(long count) {
    pthread_t *threads = calloc(count, sizeof *threads);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    wanted = count;
    long started = 0;
    for (; started < count; started++) {
        int error = pthread_create(&threads[started], &attr, waits, NULL);
        if (error) {
            CHECK(error == EAGAIN || error == ENOMEM);
            break;
        }
    }
    pthread_mutex_lock(&mutex);
    wanted = started;
    pthread_cond_broadcast(&all_there);
    pthread_mutex_unlock(&mutex);
    for (long i = 0; i < started; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(there == started);
    printf("%ld threads\n", started);
}

static int uses_up(volatile char *before) {
    volatile char frame[4096];
    frame[0] = before[0];
    return before[0] < 0 ? 0 : uses_up(frame) + frame[0];
}

static void *overflows(void *argument) {
    volatile char first[1] = {0};
    sched_yield();
    uses_up(first);
    return argument;
}

static void *says(void *argument) {
    usleep(1000);
    puts("all is well");
    fflush(stdout);
    return argument;
}

// A program that a thread starts takes signals, and may use all CPUs.
static void *starts(void *argument) {
    sigset_t blocked;
    cpu_set_t cpus, main_cpus = *(cpu_set_t *)argument;
    sched_yield();
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGTERM));
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_EQUAL(&cpus, &main_cpus));
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        execlp("sleep", "sleep", "1000", NULL);
        _exit(1);
    }
    int status;
    CHECK(kill(child, SIGTERM) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    char line[100] = "";
    FILE *stream = popen("grep SigBlk /proc/self/status", "r");
    CHECK(stream && fgets(line, sizeof line, stream) && pclose(stream) == 0);
    CHECK(strtoull(strchr(line, ':') + 1, NULL, 16) == 0);
    CHECK(system("exit 3") >> 8 == 3);
    return NULL;
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    pthread_t thread;
    if (!strcmp(word, "many")) {
        many(atol(words[2]));
    } else if (!strcmp(word, "overflow")) {
        CHECK(pthread_create(&thread, NULL, overflows, NULL) == 0);
        pthread_join(thread, NULL);
        return 1;
    } else if (!strcmp(word, "last")) {
        CHECK(pthread_create(&thread, NULL, says, NULL) == 0);
        pthread_exit(NULL);
    } else if (!strcmp(word, "children")) {
        cpu_set_t cpus;
        pthread_t threads[4];
        CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, starts, &cpus) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    } else {
        return 2;
    }
    puts("all is well");
    return 0;
}
