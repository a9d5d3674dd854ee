/* Crashes as its argument says, and stands still in a signal handler: first it prints its thread and where the registers
   before the signal lie, then it waits for the end of its input. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*volatile nothing)(int);
static int *volatile nowhere;

static void stand(int signal, siginfo_t *info, void *context)
{
    char byte;
    printf("%d %ju %ju\n", (int)gettid(), (uintmax_t)(uintptr_t)context, (uintmax_t)(uintptr_t)info->si_addr);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    _exit(signal);
}

/* Of the program itself, on the stack that crashed. */
static void of_program(int signal)
{
    (void)signal;
    abort(); /* of_program */
}

__attribute__((noinline)) static void store(int *where)
{
    *where = 7; /* store */
}

__attribute__((noinline)) static int solve(int *where)
{
    store(where); /* solve */
    return *where;
}

__attribute__((noinline)) static int call(int number)
{
    nothing(number); /* call */
    return number;
}

__attribute__((noinline)) static int recurse(volatile int depth)
{
    volatile char room[512];
    room[0] = (char)depth;
    return recurse(depth + 1) + room[0]; /* recurse */
}

static void catch(int signal, void *handler, int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
    action.sa_flags = flags;
    sigaction(signal, &action, NULL);
}

int main(int argc, char **argv)
{
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    const char *how = argc > 1 ? argv[1] : "";
    sigaltstack(&stack, NULL);
    catch(SIGABRT, stand, SA_SIGINFO | SA_ONSTACK);
    if (strcmp(how, "nested") == 0)
        catch(SIGSEGV, of_program, 0);
    else
        catch(SIGSEGV, stand, SA_SIGINFO | SA_ONSTACK);
    if (strcmp(how, "call") == 0)
        return call(1); /* main calls */
    if (strcmp(how, "recurse") == 0)
        return recurse(0);
    return solve(nowhere); /* main solves */
}
