/* Groups, communicators, attributes, names, intercommunicators.
 * ranks: 1 2 3 5 */
#include "check.h"

static void group_algebra_follows_its_rules(void)
{
    MPI_Group world, evens, odds, all, none;
    int *ranks = check_alloc((size_t)check_size * sizeof(int)), n = 0, result, rank, size;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int r = 0; r < check_size; r += 2)
        ranks[n++] = r;
    MPI_Group_incl(world, n, ranks, &evens);
    MPI_Group_excl(world, n, ranks, &odds);
    MPI_Group_size(odds, &size);
    CHECK_EQ(size, check_size - n);
    MPI_Group_rank(evens, &rank);
    CHECK_EQ(rank, check_rank % 2 ? MPI_UNDEFINED : check_rank / 2);
    MPI_Group_union(evens, odds, &all);
    MPI_Group_compare(all, world, &result);
    CHECK_EQ(result, check_size <= 2 ? MPI_IDENT : MPI_SIMILAR);
    MPI_Group_intersection(evens, odds, &none);
    CHECK(none == MPI_GROUP_EMPTY);
    MPI_Group_compare(none, MPI_GROUP_EMPTY, &result);
    CHECK_EQ(result, MPI_IDENT);
    int zero = 0, there;
    MPI_Group_translate_ranks(evens, 1, &zero, world, &there);
    CHECK_EQ(there, 0);
    int range[1][3] = {{check_size - 1, 0, -1}};
    MPI_Group reversed;
    MPI_Group_range_incl(world, 1, range, &reversed);
    MPI_Group_rank(reversed, &rank);
    CHECK_EQ(rank, check_size - 1 - check_rank);
    MPI_Group_difference(world, evens, &none);
    MPI_Group_compare(none, odds, &result);
    CHECK_EQ(result, MPI_IDENT);
    if (none != MPI_GROUP_EMPTY)
        MPI_Group_free(&none);
    if (odds != MPI_GROUP_EMPTY)
        MPI_Group_free(&odds);
    MPI_Group_free(&evens);
    MPI_Group_free(&all);
    MPI_Group_free(&reversed);
    MPI_Group_free(&world);
    free(ranks);
}

static void split_orders_by_key_then_rank(void)
{
    MPI_Comm comm;
    int rank, size, others, sum;
    MPI_Comm_split(MPI_COMM_WORLD, check_rank % 2, -check_rank, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    others = (check_size + 1 - check_rank % 2) / 2;
    CHECK_EQ(size, others);
    CHECK_EQ(rank, others - 1 - check_rank / 2);
    MPI_Allreduce(&check_rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    int wanted = 0;
    for (int r = check_rank % 2; r < check_size; r += 2)
        wanted += r;
    CHECK_EQ(sum, wanted);
    MPI_Comm_free(&comm);
    CHECK(comm == MPI_COMM_NULL);
    MPI_Comm_split(MPI_COMM_WORLD, check_rank == 0 ? MPI_UNDEFINED : 3, 0, &comm);
    CHECK_EQ(comm == MPI_COMM_NULL, check_rank == 0);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
}

static void split_type_finds_those_who_share_memory(void)
{
    MPI_Comm comm;
    int size, result, len, here = 0;
    char name[MPI_MAX_PROCESSOR_NAME] = "", *names = calloc(check_size, sizeof name);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    MPI_Comm_size(comm, &size);
    MPI_Get_processor_name(name, &len);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, MPI_COMM_WORLD);
    for (int r = 0; r < check_size; r++)
        here += strcmp(names + r * sizeof name, name) == 0;
    CHECK_EQ(size, here);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
    CHECK_EQ(result, here == check_size ? MPI_CONGRUENT : MPI_UNEQUAL);
    MPI_Comm_free(&comm);
    free(names);
}

/* A message never crosses into another communicator, also with wildcards. */
static void contexts_keep_messages_apart(void)
{
    MPI_Comm other;
    MPI_Request req;
    int right = (check_rank + 1) % check_size, one = 1, two = 2, got = 0, result;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_compare(other, MPI_COMM_WORLD, &result);
    CHECK_EQ(result, MPI_CONGRUENT);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &req);
    MPI_Sendrecv(&one, 1, MPI_INT, right, 0, &two, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    /* The neighbour may be further on and its 2 may be here, but never the 1. */
    CHECK(got != 1);
    CHECK_EQ(two, 1);
    two = 2;
    MPI_Send(&two, 1, MPI_INT, right, 0, other);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    CHECK_EQ(got, 2);
    MPI_Comm_free(&other);
}

static int copies, deletes;
static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval;
    copies++;
    *(void **)out = (char *)in + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}
static int erase(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void attributes_are_copied_and_deleted_by_callbacks(void)
{
    static char base[8];
    MPI_Comm a, b;
    int keyval, flag, step = 3;
    void *value;
    MPI_Comm_create_keyval(copy, erase, &keyval, &step);
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_set_attr(a, keyval, base);
    MPI_Comm_dup(a, &b);
    CHECK_EQ(copies, 1);
    MPI_Comm_get_attr(b, keyval, &value, &flag);
    CHECK(flag && value == base + 3);
    MPI_Comm_set_attr(b, keyval, base); /* replacing deletes the old value */
    CHECK_EQ(deletes, 1);
    MPI_Comm_free(&b);
    CHECK_EQ(deletes, 2);
    MPI_Comm_delete_attr(a, keyval);
    CHECK_EQ(deletes, 3);
    MPI_Comm_get_attr(a, keyval, &value, &flag);
    CHECK(!flag);
    MPI_Comm_free_keyval(&keyval);
    MPI_Comm_free(&a);
    CHECK_EQ(deletes, 3);
}

static void a_freed_key_serves_its_attributes_until_they_are_deleted(void)
{
    static char base[8];
    MPI_Comm a, b, on[2];
    int keyval, key, flag, step = 1;
    void *value;
    copies = deletes = 0;
    MPI_Comm_create_keyval(copy, erase, &keyval, &step);
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_set_attr(a, keyval, base);
    key = keyval;
    MPI_Comm_free_keyval(&keyval);
    CHECK_EQ(keyval, MPI_KEYVAL_INVALID);
    MPI_Comm_dup(a, &b);
    CHECK_EQ(copies, 1);
    on[0] = a, on[1] = b;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(MPI_Comm_get_attr(on[i], key, &value, &flag), MPI_SUCCESS);
        CHECK(flag && value == base + i);
    }
    CHECK_EQ(MPI_Comm_delete_attr(a, key), MPI_SUCCESS);
    CHECK_EQ(deletes, 1);
    CHECK_EQ(MPI_Comm_get_attr(a, key, &value, &flag), MPI_SUCCESS);
    CHECK(!flag);
    MPI_Comm_free(&b);
    CHECK_EQ(deletes, 2);
    MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Comm_get_attr(a, key, &value, &flag), MPI_ERR_KEYVAL);
    MPI_Comm_free(&a);
}

static void communicators_have_names_and_hints(void)
{
    char name[MPI_MAX_OBJECT_NAME], value[16];
    int len, flag;
    MPI_Comm comm;
    MPI_Info info, hints;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &len);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Comm_set_name(comm, "halo");
    MPI_Comm_get_name(comm, name, &len);
    CHECK(strcmp(name, "halo") == 0 && len == 4);
    MPI_Comm_get_info(comm, &hints);
    CHECK(hints != MPI_INFO_NULL);
    len = sizeof value;
    MPI_Info_get_string(hints, "mpi_assert_no_any_tag", &len, value, &flag);
    CHECK(!flag || strcmp(value, "true") == 0);
    MPI_Info_free(&hints);
    MPI_Info_free(&info);
    MPI_Comm_free(&comm);
}

/* Whose messages go first is a hint that may be given at any time; messages come whole and in order all the same. */
static void priorities_are_hints(void)
{
    static const char *NAMES[] = {"high", "low", "normal"};
    MPI_Comm comms[3];
    MPI_Info info, kept;
    char value[8];
    int len, flag, right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    enum { MESSAGES = 200, LONG = 20000 };
    static int out[3][LONG], in[3][LONG];
    MPI_Request reqs[3 * MESSAGES];
    for (int c = 0; c < 3; c++) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "garonne_priority", NAMES[c]);
        MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comms[c]);
        MPI_Info_free(&info);
        MPI_Comm_get_info(comms[c], &kept);
        len = sizeof value;
        MPI_Info_get_string(kept, "garonne_priority", &len, value, &flag);
        CHECK(flag && strcmp(value, NAMES[c]) == 0);
        MPI_Info_free(&kept);
        for (int i = 0; i < LONG; i++)
            out[c][i] = check_rank * 7 + c * 100000 + i;
    }
    /* More than a peer grants room for, so that messages wait for each other. */
    for (int m = 0; m < MESSAGES; m++)
        for (int c = 0; c < 3; c++)
            MPI_Isend(out[c] + m, m % 20 ? 100 : LONG - MESSAGES, MPI_INT, right, m, comms[c], &reqs[3 * m + c]);
    for (int c = 2; c >= 0; c--)
        for (int m = 0; m < MESSAGES; m++) {
            MPI_Status status;
            int count, n = m % 20 ? 100 : LONG - MESSAGES;
            MPI_Recv(in[c], LONG, MPI_INT, left, MPI_ANY_TAG, comms[c], &status);
            MPI_Get_count(&status, MPI_INT, &count);
            CHECK_EQ(status.MPI_TAG, m);
            CHECK_EQ(count, n);
            CHECK_EQ(in[c][0], left * 7 + c * 100000 + m);
            CHECK_EQ(in[c][n - 1], left * 7 + c * 100000 + m + n - 1);
        }
    MPI_Waitall(3 * MESSAGES, reqs, MPI_STATUSES_IGNORE);
    /* What is no priority is not kept. */
    MPI_Info_create(&info);
    MPI_Info_set(info, "garonne_priority", "urgent");
    MPI_Comm_set_info(comms[0], info);
    MPI_Info_set(info, "garonne_priority", "normal");
    MPI_Comm_set_info(comms[1], info);
    MPI_Info_free(&info);
    for (int c = 0; c < 3; c++) {
        MPI_Comm_get_info(comms[c], &kept);
        len = sizeof value;
        MPI_Info_get_string(kept, "garonne_priority", &len, value, &flag);
        CHECK(flag && strcmp(value, c == 0 ? "high" : "normal") == 0);
        MPI_Info_free(&kept);
        MPI_Comm_free(&comms[c]);
    }
}

static void create_and_create_group_give_members_only(void)
{
    MPI_Group world, part;
    MPI_Comm comm, again;
    int n = (check_size + 1) / 2, range[1][3] = {{0, n - 1, 1}}, size, sum, one = 1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &part);
    MPI_Comm_create(MPI_COMM_WORLD, part, &comm);
    CHECK_EQ(comm != MPI_COMM_NULL, check_rank < n);
    if (check_rank < n) { /* only the members call this one */
        MPI_Comm_create_group(MPI_COMM_WORLD, part, 17, &again);
        MPI_Comm_size(again, &size);
        CHECK_EQ(size, n);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, again);
        CHECK_EQ(sum, n);
        MPI_Comm_free(&again);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&part);
    MPI_Group_free(&world);
}

static int refuse(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_ERR_OTHER;
}

/* A program that looks at its variable instead of the code must not take up what it held before. */
static void a_duplicate_that_an_attribute_refuses_is_none(void)
{
    MPI_Comm a, b = MPI_COMM_WORLD;
    int keyval;
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(refuse, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(a, keyval, &keyval);
    CHECK_CLASS(MPI_Comm_dup(a, &b), MPI_ERR_OTHER);
    CHECK(b == MPI_COMM_NULL);
    MPI_Comm_free(&a);
    MPI_Comm_free_keyval(&keyval);
}

static void idup_can_overlap_with_messages(void)
{
    MPI_Comm comm[3];
    MPI_Request req[3];
    int right = (check_rank + 1) % check_size, got, sum, one = 1;
    for (int i = 0; i < 3; i++)
        MPI_Comm_idup(MPI_COMM_WORLD, &comm[i], &req[i]);
    MPI_Sendrecv(&check_rank, 1, MPI_INT, right, 0, &got, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(3, req, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; i++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm[i]);
        CHECK_EQ(sum, check_size);
        MPI_Comm_free(&comm[i]);
    }
}

static void many_communicators_can_be_made_and_freed(void)
{
    for (int i = 0; i < 300; i++) {
        MPI_Comm comm;
        int sum, one = 1;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (i % 50 == 0) {
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
            CHECK_EQ(sum, check_size);
        }
        MPI_Comm_free(&comm);
    }
}

static void intercommunicators_join_two_groups(void)
{
    MPI_Comm half, inter, merged;
    int flag, remote, local, rank, upper = check_rank % 2, value, size;
    if (check_size < 2)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, upper, check_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - upper, 5, &inter);
    MPI_Comm_test_inter(inter, &flag);
    CHECK(flag);
    MPI_Comm_remote_size(inter, &remote);
    MPI_Comm_size(inter, &local);
    MPI_Comm_rank(inter, &rank);
    CHECK_EQ(remote, (check_size + upper) / 2);
    CHECK_EQ(local, (check_size + 1 - upper) / 2);
    if (rank == 0) { /* the leaders talk: ranks are those of the other group */
        MPI_Sendrecv(&check_rank, 1, MPI_INT, 0, 1, &value, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE);
        CHECK_EQ(value, 1 - upper);
    }
    MPI_Barrier(inter);
    int sum = 0, wanted = 0;
    MPI_Allreduce(&check_rank, &sum, 1, MPI_INT, MPI_SUM, inter); /* the other group's sum */
    for (int r = 1 - upper; r < check_size; r += 2)
        wanted += r;
    CHECK_EQ(sum, wanted);
    value = check_rank == 0 ? 4711 : 0;
    MPI_Bcast(&value, 1, MPI_INT, upper ? 0 : (rank == 0 ? MPI_ROOT : MPI_PROC_NULL), inter);
    CHECK_EQ(value, upper || check_rank == 0 ? 4711 : 0);
    int *all = check_alloc((size_t)remote * sizeof(int));
    MPI_Allgather(&check_rank, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int r = 0; r < remote; r++)
        CHECK_EQ(all[r], 2 * r + 1 - upper);
    free(all);
    MPI_Intercomm_merge(inter, upper, &merged);
    MPI_Comm_size(merged, &size);
    CHECK_EQ(size, check_size);
    MPI_Comm_rank(merged, &rank);
    CHECK_EQ(rank, check_rank / 2 + (upper ? remote : 0));
    MPI_Comm_free(&merged);
    MPI_Comm dup;
    MPI_Comm_dup(inter, &dup);
    MPI_Barrier(dup);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* The error handler of MPI_COMM_SELF, which ends the job, must not hear of it. */
static void freeing_a_predefined_communicator_is_told_to_its_own_handler(void)
{
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Comm_free(&world), MPI_ERR_COMM);
    CHECK_CLASS(MPI_Comm_disconnect(&world), MPI_ERR_COMM);
    CHECK(world == MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void self_is_a_world_of_one(void)
{
    int size, rank, sum, one = 5;
    MPI_Comm_size(MPI_COMM_SELF, &size);
    MPI_Comm_rank(MPI_COMM_SELF, &rank);
    CHECK_EQ(size, 1);
    CHECK_EQ(rank, 0);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    CHECK_EQ(sum, 5);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(self_is_a_world_of_one);
    RUN(group_algebra_follows_its_rules);
    RUN(split_orders_by_key_then_rank);
    RUN(split_type_finds_those_who_share_memory);
    RUN(contexts_keep_messages_apart);
    RUN(attributes_are_copied_and_deleted_by_callbacks);
    RUN(a_freed_key_serves_its_attributes_until_they_are_deleted);
    RUN(communicators_have_names_and_hints);
    RUN(priorities_are_hints);
    RUN(create_and_create_group_give_members_only);
    RUN(a_duplicate_that_an_attribute_refuses_is_none);
    RUN(idup_can_overlap_with_messages);
    RUN(many_communicators_can_be_made_and_freed);
    RUN(intercommunicators_join_two_groups);
    RUN(freeing_a_predefined_communicator_is_told_to_its_own_handler);
    return check_end();
}
