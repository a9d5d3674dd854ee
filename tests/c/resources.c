/* Hardware resources: which a rank is restricted to, and communicators of those that share one.
 * ranks: 1 2 3 4 */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>

static cpu_set_t allowed;

/* The `n`-th CPU that ranks may use, counted round. */
static int cpu_of(int n)
{
    n %= CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && n-- == 0)
            return cpu;
    abort();
}

static void bind_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

static void unbind(void)
{
    CHECK_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

/* 1: restricted to one instance, 0: not, -1: the machine has no such resource. */
static int restricted_to(const char *resource)
{
    MPI_Info info;
    char value[16];
    int len = sizeof value, flag;
    CHECK_EQ(MPI_Get_hw_resource_info(&info), MPI_SUCCESS);
    MPI_Info_get_string(info, resource, &len, value, &flag);
    MPI_Info_free(&info);
    CHECK(!flag || !strcmp(value, "true") || !strcmp(value, "false"));
    return flag ? !strcmp(value, "true") : -1;
}

/* The size of this rank's part, 0 for none. */
static int part(int type, const char *resource)
{
    MPI_Comm comm;
    MPI_Info info;
    int size = 0;
    MPI_Info_create(&info);
    if (resource)
        MPI_Info_set(info, "mpi_hw_resource_type", resource);
    CHECK_EQ(MPI_Comm_split_type(MPI_COMM_WORLD, type, -check_rank, info, &comm), MPI_SUCCESS);
    if (comm != MPI_COMM_NULL) {
        int rank, highest;
        MPI_Comm_size(comm, &size);
        MPI_Comm_rank(comm, &rank);
        MPI_Allreduce(&check_rank, &highest, 1, MPI_INT, MPI_MAX, comm);
        /* The key orders ranks downwards. */
        CHECK(rank != 0 || highest == check_rank);
        MPI_Comm_free(&comm);
    }
    MPI_Info_free(&info);
    return size;
}

static int sharers(int cpu)
{
    int count = 0;
    for (int r = 0; r < check_size; r++)
        count += cpu_of(r) == cpu;
    return count;
}

static void a_bound_rank_is_restricted_to_its_cpu_and_an_unbound_one_is_not(void)
{
    bind_to(cpu_of(check_rank));
    CHECK_EQ(restricted_to("hwloc://Machine"), 1);
    CHECK_EQ(restricted_to("hwloc://Core"), 1);
    CHECK_EQ(restricted_to("hwloc://PU"), 1);
    CHECK_EQ(restricted_to("hwloc://Planet"), -1);
    unbind();
    CHECK_EQ(restricted_to("hwloc://Machine"), 1);
    CHECK_EQ(restricted_to("hwloc://PU"), CPU_COUNT(&allowed) == 1);
}

static void *wait_for_the_end(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

static void a_process_is_restricted_where_all_its_threads_are(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t other;
    unbind();
    pthread_mutex_lock(&lock);
    CHECK_EQ(pthread_create(&other, NULL, wait_for_the_end, &lock), 0);
    bind_to(cpu_of(check_rank));
    CHECK_EQ(restricted_to("hwloc://PU"), CPU_COUNT(&allowed) == 1);
    pthread_mutex_unlock(&lock);
    pthread_join(other, NULL);
    CHECK_EQ(restricted_to("hwloc://PU"), 1);
    unbind();
}

static void guided_splits_bring_those_together_that_share_an_instance(void)
{
    const int types[] = {MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED};
    int cpu = cpu_of(check_rank);
    bind_to(cpu);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(part(types[i], "mpi_shared_memory"), check_size);
        CHECK_EQ(part(types[i], "hwloc://Machine"), check_size);
        CHECK_EQ(part(types[i], "hwloc://PU"), sharers(cpu));
        CHECK_EQ(part(types[i], "hwloc://Planet"), 0);
    }
    CHECK_EQ(part(MPI_COMM_TYPE_HW_GUIDED, NULL), 0);
    unbind();
    CHECK_EQ(part(MPI_COMM_TYPE_HW_GUIDED, "hwloc://PU"), CPU_COUNT(&allowed) == 1 ? check_size : 0);
    /* Rank 0 alone is bound. */
    if (check_rank == 0)
        bind_to(cpu);
    CHECK_EQ(part(MPI_COMM_TYPE_HW_GUIDED, "hwloc://PU"), CPU_COUNT(&allowed) == 1 ? check_size : check_rank == 0);
    unbind();
}

static void every_resource_that_is_told_can_be_split_by(void)
{
    MPI_Info info;
    int keys;
    bind_to(cpu_of(0));
    MPI_Get_hw_resource_info(&info);
    MPI_Info_get_nkeys(info, &keys);
    CHECK(keys >= 4);
    for (int i = 0; i < keys; i++) {
        char key[MPI_MAX_INFO_KEY + 1];
        MPI_Info_get_nthkey(info, i, key);
        CHECK(strstr(key, "://"));
        CHECK_EQ(part(MPI_COMM_TYPE_RESOURCE_GUIDED, key), check_size);
    }
    MPI_Info_free(&info);
    unbind();
}

static void a_resource_and_a_process_set_cannot_both_be_asked_for(void)
{
    MPI_Comm comm;
    MPI_Info info;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_pset_name", "mpi://SELF");
    CHECK_EQ(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &comm), MPI_SUCCESS);
    int size;
    MPI_Comm_size(comm, &size);
    CHECK_EQ(size, 1);
    MPI_Comm_free(&comm);
    MPI_Info_set(info, "mpi_hw_resource_type", "hwloc://Core");
    CHECK_CLASS(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &comm), MPI_ERR_INFO);
    MPI_Info_free(&info);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* As programs walk down the machine: each part is smaller than that before. */
static void unguided_splits_of_parts_end(void)
{
    MPI_Comm comm = MPI_COMM_WORLD, next;
    int size = check_size, smaller, levels = 0;
    bind_to(cpu_of(check_rank));
    for (;; comm = next, size = smaller) {
        CHECK_EQ(MPI_Comm_split_type(comm, MPI_COMM_TYPE_HW_UNGUIDED, check_rank, MPI_INFO_NULL, &next), MPI_SUCCESS);
        if (comm != MPI_COMM_WORLD)
            MPI_Comm_free(&comm);
        if (next == MPI_COMM_NULL)
            break;
        MPI_Comm_size(next, &smaller);
        CHECK(smaller < size);
        levels++;
    }
    CHECK_EQ(size, CPU_COUNT(&allowed) > 1 ? sharers(cpu_of(check_rank)) : check_size);
    CHECK(levels < check_size);
    unbind();
}

/* The rest are fewer than the whole: they share the node, and are a part of it. */
static void who_keeps_out_of_an_unguided_split_takes_part_in_the_call(void)
{
    int last = check_rank == check_size - 1;
    CHECK_EQ(part(last ? MPI_UNDEFINED : MPI_COMM_TYPE_HW_UNGUIDED, NULL), last ? 0 : check_size - 1);
}

static void an_unguided_split_parts_the_ranks_and_tells_by_what(void)
{
    MPI_Comm comm;
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1];
    int len = sizeof value, flag, size;
    bind_to(cpu_of(0));
    CHECK_EQ(part(MPI_COMM_TYPE_HW_UNGUIDED, NULL), 0);
    bind_to(cpu_of(check_rank));
    int parted = CPU_COUNT(&allowed) > 1 && check_size > 1;
    MPI_Info_create(&info);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &comm);
    CHECK_EQ(comm != MPI_COMM_NULL, parted);
    MPI_Info_get_string(info, "mpi_hw_resource_type", &len, value, &flag);
    CHECK_EQ(flag, parted);
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_size(comm, &size);
        CHECK(size < check_size && !strncmp(value, "hwloc://", 8));
        CHECK_EQ(part(MPI_COMM_TYPE_HW_GUIDED, value), size);
        MPI_Comm_free(&comm);
    }
    MPI_Info_free(&info);
    unbind();
}

int main(int argc, char **argv)
{
    CHECK_EQ(restricted_to("hwloc://Machine"), 1);
    MPI_Init(&argc, &argv);
    check_begin();
    /* Ranks may be bound: they part themselves among the CPUs of all. */
    cpu_set_t all;
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    MPI_Allreduce(&all, &allowed, sizeof all / sizeof(unsigned long), MPI_UNSIGNED_LONG, MPI_BOR, MPI_COMM_WORLD);
    RUN(a_bound_rank_is_restricted_to_its_cpu_and_an_unbound_one_is_not);
    RUN(a_process_is_restricted_where_all_its_threads_are);
    RUN(guided_splits_bring_those_together_that_share_an_instance);
    RUN(every_resource_that_is_told_can_be_split_by);
    RUN(a_resource_and_a_process_set_cannot_both_be_asked_for);
    RUN(an_unguided_split_parts_the_ranks_and_tells_by_what);
    RUN(unguided_splits_of_parts_end);
    RUN(who_keeps_out_of_an_unguided_split_takes_part_in_the_call);
    return check_end();
}
