/* Threads of Garonne: fibers over one worker per CPU, named as in POSIX where they mean the same.
 *
 * Functions return 0 or an error number of errno.h, those on semaphores too. What waits suspends its fiber; a thread of the system that
 * calls the same functions sleeps. A fiber may go on in another thread of the system after any wait: addresses of thread-local variables
 * must not be kept across one, and nor must that of errno. docs/user/threads.md explains. Link with -lgaronne_threads. */
#ifndef GARONNE_THREADS_H
#define GARONNE_THREADS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct garonne_thread *garonne_thread_t;
typedef uint64_t garonne_key_t;
/* Their memory is the program's. All zeros is what the initialisers say. */
typedef struct { void *object; } garonne_attr_t;
typedef struct { void *object; } garonne_mutex_t;
typedef struct { void *object; } garonne_cond_t;
typedef struct { void *object; } garonne_sem_t;
typedef struct { void *object; } garonne_barrier_t;
typedef struct { void *object; } garonne_once_t;

#define GARONNE_MUTEX_INITIALIZER { 0 }
#define GARONNE_COND_INITIALIZER { 0 }
#define GARONNE_ONCE_INIT { 0 }
#define GARONNE_BARRIER_SERIAL_THREAD (-1)

enum { GARONNE_MUTEX_NORMAL = 0, GARONNE_MUTEX_RECURSIVE = 1, GARONNE_MUTEX_ERRORCHECK = 2 };
enum { GARONNE_CREATE_JOINABLE = 0, GARONNE_CREATE_DETACHED = 1 };
enum { GARONNE_PRIORITY_HIGH = 0, GARONNE_PRIORITY_NORMAL = 1, GARONNE_PRIORITY_LOW = 2 };

/* Attributes. A place is "machine", "core:3", "L3:0", "numa:1", "package:0" or "cpus:0-3"; one that the machine lacks is refused (ENODEV)
 * when a thread is created. */
int garonne_attr_init(garonne_attr_t *attr);
int garonne_attr_destroy(garonne_attr_t *attr);
int garonne_attr_setstacksize(garonne_attr_t *attr, size_t bytes);
int garonne_attr_getstacksize(const garonne_attr_t *attr, size_t *bytes);
int garonne_attr_setdetachstate(garonne_attr_t *attr, int state);
int garonne_attr_getdetachstate(const garonne_attr_t *attr, int *state);
int garonne_attr_setname(garonne_attr_t *attr, const char *name);
int garonne_attr_setplace(garonne_attr_t *attr, const char *place);
int garonne_attr_setpriority(garonne_attr_t *attr, int priority);

int garonne_thread_create(garonne_thread_t *thread, const garonne_attr_t *attr, void *(*start)(void *), void *argument);
int garonne_thread_join(garonne_thread_t thread, void **result);
int garonne_thread_detach(garonne_thread_t thread);
garonne_thread_t garonne_thread_self(void);
int garonne_thread_equal(garonne_thread_t one, garonne_thread_t other);
/* Ends the calling fiber. On a thread of the system that runs none it ends that thread. */
void garonne_thread_exit(void *result) __attribute__((noreturn));
int garonne_thread_yield(void);
int garonne_thread_sleep(const struct timespec *time);
int garonne_thread_setname(garonne_thread_t thread, const char *name);
/* Number of workers: the CPUs that the process may use. */
int garonne_thread_workers(void);

/* Calls `function`, which may block in the kernel, while another thread of the system runs the other fibers of this CPU. */
void *garonne_thread_blocking(void *(*function)(void *), void *argument);

int garonne_mutex_init(garonne_mutex_t *mutex, int kind);
int garonne_mutex_destroy(garonne_mutex_t *mutex);
int garonne_mutex_lock(garonne_mutex_t *mutex);
int garonne_mutex_trylock(garonne_mutex_t *mutex);
/* Times of waits with an end are those of CLOCK_REALTIME, as in POSIX; ETIMEDOUT where they are over. */
int garonne_mutex_timedlock(garonne_mutex_t *mutex, const struct timespec *end);
int garonne_mutex_unlock(garonne_mutex_t *mutex);

int garonne_cond_init(garonne_cond_t *condition);
int garonne_cond_destroy(garonne_cond_t *condition);
int garonne_cond_wait(garonne_cond_t *condition, garonne_mutex_t *mutex);
int garonne_cond_timedwait(garonne_cond_t *condition, garonne_mutex_t *mutex, const struct timespec *end);
int garonne_cond_signal(garonne_cond_t *condition);
int garonne_cond_broadcast(garonne_cond_t *condition);

int garonne_sem_init(garonne_sem_t *semaphore, unsigned units);
int garonne_sem_destroy(garonne_sem_t *semaphore);
int garonne_sem_wait(garonne_sem_t *semaphore);
int garonne_sem_trywait(garonne_sem_t *semaphore);
int garonne_sem_timedwait(garonne_sem_t *semaphore, const struct timespec *end);
int garonne_sem_post(garonne_sem_t *semaphore);
int garonne_sem_getvalue(garonne_sem_t *semaphore, int *units);

int garonne_barrier_init(garonne_barrier_t *barrier, unsigned participants);
int garonne_barrier_destroy(garonne_barrier_t *barrier);
/* GARONNE_BARRIER_SERIAL_THREAD for one of the participants. */
int garonne_barrier_wait(garonne_barrier_t *barrier);

int garonne_once(garonne_once_t *once, void (*function)(void));

int garonne_key_create(garonne_key_t *key, void (*destructor)(void *));
int garonne_key_delete(garonne_key_t key);
void *garonne_getspecific(garonne_key_t key);
int garonne_setspecific(garonne_key_t key, const void *value);

#ifdef __cplusplus
}
#endif
#endif
