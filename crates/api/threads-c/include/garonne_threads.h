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
typedef const struct garonne_bubble *garonne_bubble_t;
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
/* Threads are created in the bubble, and wait there until it is submitted. NULL: in none. */
int garonne_attr_setbubble(garonne_attr_t *attr, garonne_bubble_t bubble);

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

/* Bubbles: nested sets of threads, which a bubble scheduler moves over the machine (docs/user/bubbles.md). A bubble is created in another one,
 * or in none (NULL). Attributes are set before anything is created in it (EBUSY afterwards). Submitted, it is the scheduler's, with all in it;
 * more threads may be created in it until somebody joins it. It ends with the last of them: ESRCH then. */
enum { GARONNE_BUBBLE_GROUP = 0, GARONNE_BUBBLE_SHARE = 1, GARONNE_BUBBLE_GANG = 2 };
enum { GARONNE_MEMORY_READ = 1, GARONNE_MEMORY_WRITE = 2, GARONNE_MEMORY_READWRITE = 3 };

struct garonne_bubble_statistics {
    uint64_t threads, ready, running, blocked, ended; /* the first counts those that have not ended */
    uint64_t bubbles;                                 /* inside it, that have not ended */
    uint64_t work_left;                               /* ns */
    uint64_t bytes, bytes_untouched;                  /* memory that it uses, and of that what nobody touched */
};

int garonne_bubble_create(garonne_bubble_t *bubble, garonne_bubble_t parent);
int garonne_bubble_destroy(garonne_bubble_t bubble);
int garonne_bubble_setname(garonne_bubble_t bubble, const char *name);
int garonne_bubble_setaffinity(garonne_bubble_t bubble, int kind);
int garonne_bubble_setpriority(garonne_bubble_t bubble, int priority);
int garonne_bubble_setplace(garonne_bubble_t bubble, const char *place);
int garonne_bubble_submit(garonne_bubble_t bubble);
/* Submits the bubble if nobody has, and waits until all in it has ended. EDEADLK for a thread in it. */
int garonne_bubble_join(garonne_bubble_t bubble);
/* All in the bubble uses this memory. The kernel is asked at once where its pages are. */
int garonne_bubble_memory(garonne_bubble_t bubble, const void *memory, size_t bytes, int access);
int garonne_bubble_getstatistics(garonne_bubble_t bubble, struct garonne_bubble_statistics *statistics);
/* "spread", "steal", "gang", "affinity", "memory", "flat", or the file of a module, with a slash. GARONNE_BUBBLES names the first one. */
int garonne_bubbles_setscheduler(const char *name);
int garonne_bubbles_getscheduler(char *name, size_t room);
/* Moves of bubbles and threads as yet that were done, and that were refused. */
int garonne_bubbles_getmoves(uint64_t *done, uint64_t *refused);
/* How much work the calling thread has left, in ns, for schedulers that weigh it. ESRCH: it is in no bubble. */
int garonne_thread_setwork(uint64_t ns);

/* The calling thread goes through this memory so many times from now on. Its pages move to the thread's NUMA node, or the thread to theirs, where
 * that takes less time than far accesses would, by costs that are measured at the first call. Only a thread of this library that is in no bubble
 * goes anywhere. Values stay. On a machine of one node nothing moves. EFAULT: the memory is not the program's. */
enum { GARONNE_ATTACH_PAGES = 1, GARONNE_ATTACH_THREAD = 2, GARONNE_ATTACH_EITHER = 3 };
int garonne_memory_attach(const void *memory, size_t bytes, int mode, uint64_t passes);

#ifdef __cplusplus
}
#endif
#endif
