/* Tasks and events of Garonne for other libraries: small pieces of work that idle cores do while programs compute.
 *
 * A task lies in memory of its owner; submitting it allocates nothing. It runs on a thread of Garonne, or in a call of garonne_task_wait or
 * garonne_tasks_schedule, never on two at once. It must not block: what blocks belongs into garonne_blocking. Functions may be called from any
 * thread, before, between and after MPI_Init and MPI_Finalize. In a forked child all of it is refused (GARONNE_MISUSE; garonne_watch_end does nothing there, and
 * garonne_task_wait returns at once), and what the parent submitted goes on in the parent. docs/user/tasks.md explains. Link with -lmpi_abi, which mpicc does. */
#ifndef GARONNE_TASKS_H
#define GARONNE_TASKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return: 0, or one of these. garonne_tasks_error puts it into words. */
enum {
    GARONNE_OK = 0,
    GARONNE_MISUSE = -1,   /* the caller asked for what cannot be */
    GARONNE_RESOURCE = -2, /* a bound was reached: try later, or do it yourself */
    GARONNE_SYSTEM = -3    /* the system refused; errno says why */
};

/* Queues and workers. One for all libraries of the process. */
typedef struct garonne_tasks garonne_tasks;

/* Where and why a task runs at this moment. */
typedef struct {
    int core;     /* as Garonne numbers them, from 0 */
    int keypoint; /* GARONNE_IDLE ... */
} garonne_at;

enum {
    GARONNE_IDLE = 0,   /* a worker has nothing else to do */
    GARONNE_WAIT = 1,   /* a thread waits */
    GARONNE_TIMER = 2,  /* nobody came for a while: all cores compute */
    GARONNE_SWITCH = 3, /* a user-level scheduler switches between its threads */
    GARONNE_FORCED = 4  /* somebody asked */
};

/* Where a task may run. */
enum {
    GARONNE_MACHINE = 0,        /* anywhere */
    GARONNE_CORE = 1,           /* the core of CPU `cpu`; GARONNE_MISUSE if the process may not use that */
    GARONNE_CACHE = 2,          /* the last-level cache around `cpu`, which the process need not be allowed to use itself if it may use another CPU of that area; likewise: */
    GARONNE_NUMA = 3,
    GARONNE_PACKAGE = 4,
    GARONNE_CPUS = 5,           /* any of the CPUs in `name`, a list as the kernel writes it: "0-3,8" */
    GARONNE_DEVICE = 6,         /* near the device `name`: "eth0", "mlx5_0", "0000:3b:00.0"; anywhere if it is nowhere in particular, as "lo" */
    GARONNE_NEAR_CALLER = 7,    /* the cores that share a cache with whoever submits it: for polling */
    GARONNE_NEAREST_IDLE = 8,   /* the nearest core that is idle at submission: for small submissions */
    GARONNE_CALLER_CORE = 9,    /* the core of whoever submits it, at each submission; likewise its last-level cache, NUMA node and package: */
    GARONNE_CALLER_CACHE = 10,
    GARONNE_CALLER_NUMA = 11,
    GARONNE_CALLER_PACKAGE = 12
};

/* How soon. */
enum {
    GARONNE_WHEN_IDLE = 0, /* when a core is idle; if none is for a millisecond or two, a thread of the ordinary class asks for a core, for which it waits where all compute: docs/user/tasks.md says how long */
    GARONNE_NOW = 1        /* at once, even where a thread computes, and by a thread of the ordinary class */
};

/* All zero is a good default: anywhere, when idle. */
typedef struct {
    int place;
    int urgency;
    unsigned cpu;
    unsigned patience_us; /* a task that repeats: longest time between two fruitless runs; 0: up to 50 ms */
    const char *name;
} garonne_how;

/* What a run says. It returns: a function of a task, an event or a blocking call that leaves in another way (pthread_exit, longjmp, a C++ exception) is not allowed, and ends the process or worse. */
enum { GARONNE_DONE = 0, GARONNE_AGAIN = 1 };

typedef int (*garonne_task_function)(void *state, const garonne_at *at);

/* A task. Its bytes are Garonne's between garonne_task_init and garonne_task_destroy; it stays where it is meanwhile. */
typedef struct {
    uint64_t opaque[20];
} garonne_task;

/* Where a task is in its life. */
enum { GARONNE_NEW = 0, GARONNE_PENDING = 1, GARONNE_FINISHED = 2, GARONNE_WITHDRAWN = 3 };

/* Each call gives a handle of its own, of the same queues. */
int garonne_tasks_open(garonne_tasks **tasks);
/* The last one that closes ends the workers. Tasks and watches are to be ended before. A handle is closed once: it is gone then, and a second time, or any other use of it, is undefined, as of
 * memory that was freed. Null is let be. */
void garonne_tasks_close(garonne_tasks *tasks);
/* A keypoint: runs what waits on the way from this core to the machine, each task once, and advances what MPI calls left open here. Returns how many are finished. For user-level schedulers:
 * call it with GARONNE_SWITCH at context switches; it costs a load per level when there is nothing to do. */
int garonne_tasks_schedule(garonne_tasks *tasks, int keypoint);
const char *garonne_tasks_error(int code);

/* `how` may be null. */
int garonne_task_init(garonne_task *task, garonne_tasks *tasks, const garonne_how *how, garonne_task_function function, void *state);
/* May be called from a signal handler, as garonne_task_life may and nothing else here, once the library's own thread for events runs or is just being started: by the first descriptor,
 * alarm or signal that is watched, or the first submission of a task that is GARONNE_NOW. A task that is being submitted or pending is GARONNE_MISUSE then, too. Saves no errno. */
int garonne_task_submit(garonne_task *task);
/* Runs tasks while it waits, then sleeps. Returns the task's life. In the task's own run, whose end cannot be waited for there: GARONNE_PENDING, at once. */
int garonne_task_wait(garonne_task *task);
int garonne_task_life(const garonne_task *task);
/* To be called in a run of a task or an event that is about to take longer than some microseconds: for the rest of the run its thread does not count as one that polls, and what waits
 * behind it is handed to others; if it is the library's thread for events, so are events, the timer and tasks that are GARONNE_NOW. `at` is the pointer that the run was given, not one to a
 * copy. Calling it again in the same run does nothing. */
int garonne_lengthy(garonne_tasks *tasks, const garonne_at *at);
/* Takes it back: afterwards nobody runs it. Waits for a run that goes on; called from that run, it only keeps it from being run again. Returns its life. */
int garonne_task_withdraw(garonne_task *task);
/* Withdraws it and gives its memory back. Not from its own run, which ends the process. A task that is destroyed already, or a copy of one, is GARONNE_MISUSE here and to the functions
 * above, as long as its bytes are left as they are, and so is one of its parent's in a forked child; once they are used for something else, it is the caller who has to know. */
int garonne_task_destroy(garonne_task *task);

/* Events. A function returns GARONNE_KEEP to be called at the next event, or GARONNE_STOP. A watch is ended by garonne_watch_end in any case; after that its function
 * does not run. */
enum { GARONNE_KEEP = 0, GARONNE_STOP = 1 };
enum { GARONNE_READABLE = 1, GARONNE_WRITABLE = 2 };

typedef struct garonne_watch garonne_watch;
/* `value`: the descriptor, 0 for alarms, the signal, the word's new value, 0 for the end of a call. */
typedef int (*garonne_event_function)(void *state, uint32_t value, const garonne_at *at);

/* A duplicate of the descriptor is watched, for as long as it is as asked: a function that answers GARONNE_KEEP and has left something to read, or room to write, is called again at once, and again, which
 * keeps a core busy. So read until there is no more (EAGAIN), at the end of a file or with nothing left to write answer GARONNE_STOP. */
int garonne_on_descriptor(garonne_tasks *tasks, int fd, int interest, const garonne_how *how, garonne_event_function function, void *state, garonne_watch **watch);
/* After `first_ns`, and then every `period_ns` unless that is 0. */
int garonne_on_alarm(garonne_tasks *tasks, uint64_t first_ns, uint64_t period_ns, const garonne_how *how, garonne_event_function function, void *state, garonne_watch **watch);
/* The signal is blocked in the calling thread; it is to be blocked in all others, too. No handler is installed. All watches of a signal in the process hear of it, and one may end
 * without the others. After the last one it stays blocked wherever it was, since only the program knows which threads may have it unblocked again: what comes then stays pending, and the next
 * watch hears of it. What is no signal, what cannot be blocked (SIGKILL, SIGSTOP) and what the C library keeps for itself (32, 33) is GARONNE_MISUSE. */
int garonne_on_signal(garonne_tasks *tasks, int signal, const garonne_how *how, garonne_event_function function, void *state, garonne_watch **watch);
/* When *word is not `expected`; the word stays where it is until the watch ends. Whoever changes it wakes its sleepers (FUTEX_WAKE, not private). 1024 at most;
 * GARONNE_RESOURCE for more, or where the system gives no thread. */
int garonne_on_word(garonne_tasks *tasks, uint32_t *word, uint32_t expected, const garonne_how *how, garonne_event_function function, void *state, garonne_watch **watch);
/* Once for each watch, which is gone then, also where its function has answered GARONNE_STOP: a second time is undefined, as of memory that was freed. Null is let be. */
void garonne_watch_end(garonne_watch *watch);

/* A call that may block, on a thread of its own. */
typedef struct garonne_call garonne_call;
int garonne_blocking(garonne_tasks *tasks, void *(*function)(void *), void *argument, garonne_call **call);
/* 1 if it is over. Not after garonne_call_wait. */
int garonne_call_over(const garonne_call *call);
/* Once, when the call is over; at once if it is. What the function answers does not matter. The watch does not need the call, which may be given back before the watch is ended; where the
 * function does that, garonne_call_wait does not block in it. */
int garonne_on_completion(garonne_tasks *tasks, const garonne_call *call, const garonne_how *how, garonne_event_function function, void *state, garonne_watch **watch);
/* Waits for its end, gives it back, and stores what it returned (`result` may be null). Once for each call, which is gone then: a second time is undefined, as of memory that was freed. */
int garonne_call_wait(garonne_call *call, void **result);

#ifdef __cplusplus
}
#endif
#endif
