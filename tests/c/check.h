/* What every conformance program shares. A program states in its first comment on how many ranks it runs
 * ("ranks: 1 2 5") and, if need be, its time limit in seconds ("limit: 60"). Each test is a function; RUN prints its
 * name on rank 0 first, so that the last name printed is the one that hangs. The exit code counts failures. */
#ifndef TESTS_C_CHECK_H
#define TESTS_C_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_failures, check_rank, check_size;
static const char *check_test = "";

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: rank %d of %d, %s: not so: %s\n", __FILE__, __LINE__, check_rank, check_size,      \
                    check_test, #condition);                                                                           \
        }                                                                                                              \
    } while (0)

/* For integers: shows both values. */
#define CHECK_EQ(got, wanted)                                                                                          \
    do {                                                                                                               \
        long long check_got = (long long)(got), check_wanted = (long long)(wanted);                                    \
        if (check_got != check_wanted) {                                                                               \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: rank %d of %d, %s: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, check_rank,   \
                    check_size, check_test, #got, check_got, check_wanted, #wanted);                                   \
        }                                                                                                              \
    } while (0)

/* The call must fail with this error class. */
#define CHECK_CLASS(call, wanted)                                                                                      \
    do {                                                                                                               \
        int check_code = (call), check_class = -1;                                                                     \
        MPI_Error_class(check_code, &check_class);                                                                     \
        if (check_class != (wanted)) {                                                                                 \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: rank %d of %d, %s: %s gives class %d, not %s\n", __FILE__, __LINE__, check_rank,   \
                    check_size, check_test, #call, check_class, #wanted);                                              \
        }                                                                                                              \
    } while (0)

#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        check_test = #test;                                                                                            \
        MPI_Barrier(MPI_COMM_WORLD);                                                                                   \
        if (check_rank == 0) {                                                                                         \
            printf("%s\n", #test);                                                                                     \
            fflush(stdout);                                                                                            \
        }                                                                                                              \
        test();                                                                                                        \
    } while (0)

static inline void check_begin(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check_size);
}

static inline int check_end(void)
{
    MPI_Finalize();
    return check_failures > 100 ? 100 : check_failures;
}

static inline void *check_alloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

/* A byte pattern that differs with the seed and the place. */
static inline unsigned char check_byte(size_t seed, size_t i)
{
    return (unsigned char)(seed * 131 + i * 7 + (i >> 8) * 13 + 1);
}

static inline void check_fill(void *memory, size_t len, size_t seed)
{
    unsigned char *bytes = (unsigned char *)memory;
    for (size_t i = 0; i < len; i++)
        bytes[i] = check_byte(seed, i);
}

static inline int check_same(const void *memory, size_t len, size_t seed)
{
    const unsigned char *bytes = (const unsigned char *)memory;
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != check_byte(seed, i))
            return 0;
    return 1;
}

#endif
