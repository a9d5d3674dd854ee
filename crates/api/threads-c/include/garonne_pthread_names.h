/* Names of POSIX for threads of Garonne. Included after everything else, or by the compiler's option -include, it makes a source that uses
 * pthread_create and its kin a program of fibers. What is not named here stays POSIX's, and must not be mixed with what is. */
#ifndef GARONNE_PTHREAD_NAMES_H
#define GARONNE_PTHREAD_NAMES_H

#include <pthread.h>
#include <semaphore.h>
#include "garonne_threads.h"

#define pthread_t garonne_thread_t
#define pthread_attr_t garonne_attr_t
#define pthread_attr_init garonne_attr_init
#define pthread_attr_destroy garonne_attr_destroy
#define pthread_attr_setstacksize garonne_attr_setstacksize
#define pthread_attr_getstacksize garonne_attr_getstacksize
#define pthread_attr_setdetachstate garonne_attr_setdetachstate
#define pthread_attr_getdetachstate garonne_attr_getdetachstate
#define pthread_create garonne_thread_create
#define pthread_join garonne_thread_join
#define pthread_detach garonne_thread_detach
#define pthread_self garonne_thread_self
#define pthread_equal garonne_thread_equal
#define pthread_exit garonne_thread_exit
#define sched_yield garonne_thread_yield

#define pthread_mutex_t garonne_mutex_t
#undef PTHREAD_MUTEX_INITIALIZER
#define PTHREAD_MUTEX_INITIALIZER GARONNE_MUTEX_INITIALIZER
/* Attributes of objects are none. */
#define pthread_mutex_init(mutex, attr) garonne_mutex_init(mutex, GARONNE_MUTEX_NORMAL)
#define pthread_mutex_destroy garonne_mutex_destroy
#define pthread_mutex_lock garonne_mutex_lock
#define pthread_mutex_trylock garonne_mutex_trylock
#define pthread_mutex_timedlock garonne_mutex_timedlock
#define pthread_mutex_unlock garonne_mutex_unlock

#define pthread_cond_t garonne_cond_t
#undef PTHREAD_COND_INITIALIZER
#define PTHREAD_COND_INITIALIZER GARONNE_COND_INITIALIZER
#define pthread_cond_init(condition, attr) garonne_cond_init(condition)
#define pthread_cond_destroy garonne_cond_destroy
#define pthread_cond_wait garonne_cond_wait
#define pthread_cond_timedwait garonne_cond_timedwait
#define pthread_cond_signal garonne_cond_signal
#define pthread_cond_broadcast garonne_cond_broadcast

#define pthread_barrier_t garonne_barrier_t
#undef PTHREAD_BARRIER_SERIAL_THREAD
#define PTHREAD_BARRIER_SERIAL_THREAD GARONNE_BARRIER_SERIAL_THREAD
#define pthread_barrier_init(barrier, attr, count) garonne_barrier_init(barrier, count)
#define pthread_barrier_destroy garonne_barrier_destroy
#define pthread_barrier_wait garonne_barrier_wait

#define pthread_once_t garonne_once_t
#undef PTHREAD_ONCE_INIT
#define PTHREAD_ONCE_INIT GARONNE_ONCE_INIT
#define pthread_once garonne_once

#define pthread_key_t garonne_key_t
#define pthread_key_create garonne_key_create
#define pthread_key_delete garonne_key_delete
#define pthread_getspecific garonne_getspecific
#define pthread_setspecific garonne_setspecific

#endif
