// Every construct that GCC compiles into calls of the library, with teams larger than the machine.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    do { if (!(condition)) { fprintf(stderr, "line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)

static int own;
#pragma omp threadprivate(own)

static long fibonacci(int n)
{
    long a, b;
    if (n < 2)
        return n;
#pragma omp task shared(a) if (n > 10)
    a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 10)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

static void loops(void)
{
    long sum = 0;
    unsigned long long big = 0;
    int hits[1000] = {0};
#pragma omp parallel
    {
#pragma omp for schedule(static) reduction(+ : sum)
        for (int i = 0; i < 1000; i++)
            sum += i;
#pragma omp for schedule(static, 7) reduction(+ : sum)
        for (int i = 1000; i > 0; i -= 3)
            sum += i;
#pragma omp for schedule(dynamic, 3)
        for (int i = 0; i < 1000; i++)
            hits[i]++;
#pragma omp for schedule(guided, 2) nowait
        for (int i = 0; i < 1000; i++)
#pragma omp atomic
            hits[i]++;
#pragma omp for schedule(runtime)
        for (int i = 0; i < 1000; i++) {
#pragma omp atomic
            hits[i]++;
        }
#pragma omp for schedule(dynamic) reduction(+ : big)
        for (unsigned long long i = UINT64_MAX - 10; i < UINT64_MAX; i++)
            big += UINT64_MAX - i;
    }
    CHECK(sum == 499500 + 167167 && big == 55);
    for (int i = 0; i < 1000; i++)
        CHECK(hits[i] == 3);
    int next = 0;
#pragma omp parallel for ordered schedule(dynamic, 2)
    for (int i = 0; i < 100; i++) {
#pragma omp ordered
        {
            CHECK(next == i);
            next++;
        }
    }
    int grid[20][20] = {{0}};
#pragma omp parallel for ordered(2) schedule(static, 2)
    for (int i = 1; i < 20; i++)
        for (int j = 1; j < 20; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
            grid[i][j] = grid[i - 1][j] + grid[i][j - 1] + 1;
#pragma omp ordered depend(source)
        }
    CHECK(grid[1][19] == 19 && grid[2][2] == 5);
}

static void regions(void)
{
    int inside = 0, single = 0, section = 0, copied = 0;
    omp_lock_t lock;
    omp_nest_lock_t nest;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nest);
    int count = 0, nested = 0, critical = 0;
#pragma omp parallel
    {
        int value = 0;
#pragma omp atomic
        inside++;
        own = omp_get_thread_num() + 1;
#pragma omp single nowait
        single++;
#pragma omp single copyprivate(value)
        value = 42;
#pragma omp atomic
        copied += value == 42;
#pragma omp sections
        {
#pragma omp section
            { _Pragma("omp atomic") section++; }
#pragma omp section
            { _Pragma("omp atomic") section++; }
#pragma omp section
            { _Pragma("omp atomic") section++; }
        }
        for (int i = 0; i < 50; i++) {
            omp_set_lock(&lock);
            count++;
            omp_unset_lock(&lock);
            omp_set_nest_lock(&nest);
            omp_set_nest_lock(&nest);
            nested++;
            omp_unset_nest_lock(&nest);
            omp_unset_nest_lock(&nest);
#pragma omp critical(name)
            critical++;
        }
#pragma omp barrier
        CHECK(own == omp_get_thread_num() + 1);
    }
    CHECK(inside == omp_get_max_threads() && single == 1 && copied == inside && section == 3);
    CHECK(count == 50 * inside && nested == count && critical == count);
#pragma omp parallel
    CHECK(own == omp_get_thread_num() + 1);
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nest);
    omp_set_max_active_levels(3);
    int inner = 0;
#pragma omp parallel num_threads(3) reduction(+ : inner)
#pragma omp parallel num_threads(4) reduction(+ : inner)
    {
        CHECK(omp_get_level() == 2 && omp_get_ancestor_thread_num(1) < 3);
        inner++;
#pragma omp barrier
        inner++;
    }
    CHECK(inner == 24);
}

static void tasks(void)
{
    long result = 0;
    int order[3] = {0}, chain = 0, total = 0, reduced = 0, in_group = 0;
    omp_event_handle_t event;
#pragma omp parallel
#pragma omp single
    {
        result = fibonacci(18);
#pragma omp task depend(out : chain)
        order[0] = ++chain;
#pragma omp task depend(inout : chain)
        order[1] = ++chain;
#pragma omp task depend(in : chain)
        order[2] = chain;
#pragma omp taskwait
#pragma omp taskloop grainsize(5)
        for (int i = 0; i < 100; i++)
#pragma omp atomic
            total += i;
#pragma omp taskgroup task_reduction(+ : reduced)
        for (int i = 0; i < 20; i++)
#pragma omp task in_reduction(+ : reduced)
            reduced += i;
#pragma omp task detach(event)
        omp_fulfill_event(event);
#pragma omp taskwait
#pragma omp taskgroup
        {
            for (int i = 0; i < 200; i++)
#pragma omp task
            {
#pragma omp atomic
                in_group++;
            }
        }
        CHECK(in_group == 200);
    }
    CHECK(result == 2584 && total == 4950 && reduced == 190);
    CHECK(order[0] == 1 && order[1] == 2 && order[2] == 2);
    int sum = 0;
#pragma omp parallel reduction(task, + : sum)
#pragma omp single
    for (int i = 0; i < 10; i++)
#pragma omp task in_reduction(+ : sum)
        sum += i;
    CHECK(sum == 45);
}

static void cancellation(void)
{
    int found = 0;
    CHECK(omp_get_cancellation());
#pragma omp parallel
#pragma omp for schedule(dynamic)
    for (int i = 0; i < 100000; i++) {
        if (i == 10) {
#pragma omp atomic write
            found = 1;
#pragma omp cancel for
        }
#pragma omp cancellation point for
    }
#pragma omp parallel
    {
#pragma omp cancel parallel
        found = 2;
    }
    CHECK(found == 1);
}

static void memory_and_devices(void)
{
    omp_alloctrait_t traits[] = {{omp_atk_alignment, 256}, {omp_atk_pool_size, 4096}, {omp_atk_fallback, omp_atv_null_fb}};
    omp_allocator_handle_t allocator = omp_init_allocator(omp_default_mem_space, 3, traits);
    char *memory = omp_alloc(1000, allocator);
    CHECK(memory && (uintptr_t)memory % 256 == 0 && omp_alloc(4000, allocator) == NULL);
    memory = omp_realloc(memory, 2000, allocator, allocator);
    CHECK(memory);
    omp_free(memory, allocator);
    omp_destroy_allocator(allocator);
    int x = 1, team = 0;
#pragma omp target map(tofrom : x)
    x += omp_is_initial_device();
    CHECK(x == 2);
#pragma omp teams num_teams(3) reduction(+ : team)
    team += omp_get_num_teams();
    CHECK(team == 9 && omp_get_wtime() > 0);
}

int main(void)
{
    for (int round = 0; round < 5; round++) {
        loops();
        regions();
        tasks();
        cancellation();
        memory_and_devices();
    }
    puts("all is well");
    return 0;
}
