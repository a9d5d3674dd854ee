/* What conformance programs of several threads share. */
#ifndef TESTS_C_THREADS_H
#define TESTS_C_THREADS_H

#include <pthread.h>

enum { THREADS = 6 };

/* All threads at once, each with its number as argument. */
static inline void each(void *(*body)(void *))
{
    pthread_t thread[THREADS];
    for (long t = 0; t < THREADS; t++)
        pthread_create(&thread[t], NULL, body, (void *)t);
    for (long t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
}

#endif
