/* Waits for a byte in load_input, beside a thread that computes in spin and one that waits for events; ends with 9 if a wait was cut short. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static volatile long sink;

__attribute__((noinline)) static void spin(long n)
{
    for (;;)
        for (long i = 0; i < n; i++)
            sink += i;
}

static void *work(void *n)
{
    spin((long)n);
    return NULL;
}

static void *events(void *unused)
{
    struct epoll_event event;
    int set = epoll_create1(0);
    (void)unused;
    if (epoll_wait(set, &event, 1, -1) < 0 && errno == EINTR)
        _exit(9);
    return NULL;
}

__attribute__((noinline)) static long load_input(int fd)
{
    char bytes[100];
    long got = read(fd, bytes, sizeof bytes);
    if (got < 0)
        _exit(9);
    sink += bytes[0];
    return got + 1;
}

int main(void)
{
    pthread_t one, two;
    pthread_create(&one, NULL, work, (void *)1000);
    pthread_create(&two, NULL, events, NULL);
    puts("ready");
    fflush(stdout);
    printf("%ld\n", load_input(0) - 1);
    return 0;
}
