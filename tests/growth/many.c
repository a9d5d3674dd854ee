/* Operations of which a program may have many at a time, each kind in a function of its own: what one costs must not grow with their
 * number. tools/testing/suites/scaling.py counts the instructions of each function with fewer and with more of them.
 * Arguments: how many. Runs on one rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int many, value, in;
static char large[32768];
static MPI_Request *requests;

#define EACH for (int i = 0; i < many; i++)
#define KIND __attribute__((noinline)) static void

static void *room(size_t each)
{
    void *memory = calloc((size_t)many, each);
    if (!memory)
        abort();
    return memory;
}

static void receive_all(int source, int tags)
{
    EACH MPI_Irecv(&in, 1, MPI_INT, source, tags ? i : 0, MPI_COMM_SELF, &requests[i]);
}

static void send_all(int tags)
{
    EACH MPI_Send(&value, 1, MPI_INT, 0, tags ? i : 0, MPI_COMM_SELF);
}

static void wait_for_all(void)
{
    MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
}

static void cancel_all(int youngest_first)
{
    EACH MPI_Cancel(&requests[youngest_first ? many - 1 - i : i]);
    wait_for_all();
}

KIND cancel_oldest_first(void)
{
    receive_all(0, 0);
    cancel_all(0);
}

KIND cancel_youngest_first(void)
{
    receive_all(0, 0);
    cancel_all(1);
}

KIND cancel_wildcards(void)
{
    receive_all(MPI_ANY_SOURCE, 0);
    cancel_all(0);
}

KIND cancel_large(void)
{
    EACH MPI_Irecv(large, sizeof large, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[i]);
    cancel_all(0);
}

KIND cancel_persistent(void)
{
    EACH MPI_Recv_init(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[i]);
    MPI_Startall(many, requests);
    cancel_all(0);
    EACH MPI_Request_free(&requests[i]);
}

KIND persistent(void)
{
    MPI_Request *sends = room(sizeof *sends);
    EACH MPI_Recv_init(&in, 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
    EACH MPI_Send_init(&value, 1, MPI_INT, 0, i, MPI_COMM_SELF, &sends[i]);
    MPI_Startall(many, requests);
    MPI_Startall(many, sends);
    wait_for_all();
    MPI_Waitall(many, sends, MPI_STATUSES_IGNORE);
    EACH MPI_Request_free(&requests[i]);
    EACH MPI_Request_free(&sends[i]);
    free(sends);
}

KIND free_receives(void)
{
    receive_all(0, 0);
    EACH MPI_Request_free(&requests[i]);
    send_all(0);
}

KIND free_large_receives(void)
{
    MPI_Datatype columns;
    MPI_Type_vector(2, 1, 2, MPI_INT, &columns);
    MPI_Type_commit(&columns);
    EACH MPI_Irecv(large, 1, columns, 0, 0, MPI_COMM_SELF, &requests[i]);
    EACH MPI_Request_free(&requests[i]);
    EACH MPI_Send(large, 1, columns, 0, 0, MPI_COMM_SELF);
    MPI_Type_free(&columns);
}

KIND unexpected_by_tag(void)
{
    send_all(1);
    EACH MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, many - 1 - i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

KIND probe_unexpected(void)
{
    int flag;
    send_all(1);
    EACH MPI_Iprobe(0, i, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    EACH MPI_Iprobe(0, many + i, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    EACH MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    EACH MPI_Recv(&in, 1, MPI_INT, 0, i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

KIND matched_probes(void)
{
    MPI_Message *messages = room(sizeof *messages);
    send_all(1);
    EACH MPI_Mprobe(0, many - 1 - i, MPI_COMM_SELF, &messages[i], MPI_STATUS_IGNORE);
    EACH MPI_Mrecv(&in, 1, MPI_INT, &messages[i], MPI_STATUS_IGNORE);
    free(messages);
}

KIND posted_by_tag(void)
{
    receive_all(0, 1);
    EACH MPI_Send(&value, 1, MPI_INT, 0, many - 1 - i, MPI_COMM_SELF);
    wait_for_all();
}

KIND posted_with_wildcards(void)
{
    EACH MPI_Irecv(&in, 1, MPI_INT, i % 2 ? 0 : MPI_ANY_SOURCE, i % 3 ? 0 : MPI_ANY_TAG, MPI_COMM_SELF, &requests[i]);
    send_all(0);
    wait_for_all();
}

KIND wait_youngest_first(void)
{
    receive_all(0, 0);
    send_all(0);
    EACH MPI_Wait(&requests[many - 1 - i], MPI_STATUS_IGNORE);
}

KIND test_each(void)
{
    int flag;
    receive_all(0, 0);
    EACH MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
    send_all(0);
    EACH MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
    wait_for_all();
}

/* All but one are over: a receive of columns, which has an object. */
KIND any_of_those_that_are_over(void)
{
    MPI_Datatype columns;
    MPI_Type_vector(2, 1, 2, MPI_INT, &columns);
    MPI_Type_commit(&columns);
    receive_all(0, 0);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Irecv(large, 1, columns, 0, 1, MPI_COMM_SELF, &requests[0]);
    for (int i = 1; i < many; i++)
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    for (int i = 1; i < many; i++) {
        int at;
        MPI_Waitany(many, requests, &at, MPI_STATUS_IGNORE);
        if (at == 0)
            abort();
    }
    MPI_Send(large, 1, columns, 0, 1, MPI_COMM_SELF);
    wait_for_all();
    MPI_Type_free(&columns);
}

KIND some_at_a_time(void)
{
    int *indices = room(sizeof *indices), done, left = many;
    receive_all(0, 0);
    MPI_Testsome(many, requests, &done, indices, MPI_STATUSES_IGNORE);
    send_all(0);
    while (left > 0) {
        MPI_Waitsome(many, requests, &done, indices, MPI_STATUSES_IGNORE);
        left -= done;
    }
    free(indices);
}

KIND large_sends(void)
{
    EACH MPI_Isend(large, sizeof large, MPI_BYTE, 0, i, MPI_COMM_SELF, &requests[i]);
    EACH MPI_Recv(large, sizeof large, MPI_BYTE, 0, many - 1 - i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    wait_for_all();
}

KIND synchronous_sends(void)
{
    EACH MPI_Issend(&value, 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
    EACH MPI_Recv(&in, 1, MPI_INT, 0, many - 1 - i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    wait_for_all();
}

KIND freed_synchronous_sends(void)
{
    EACH {
        MPI_Issend(&value, 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
        MPI_Request_free(&requests[i]);
    }
    EACH MPI_Recv(&in, 1, MPI_INT, 0, many - 1 - i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

KIND buffered_sends(void)
{
    int each, size;
    MPI_Pack_size(1, MPI_INT, MPI_COMM_SELF, &each);
    each += MPI_BSEND_OVERHEAD;
    void *buffer = room((size_t)each);
    MPI_Buffer_attach(buffer, many * each);
    EACH MPI_Bsend(&value, 1, MPI_INT, 0, i, MPI_COMM_SELF);
    EACH MPI_Recv(&in, 1, MPI_INT, 0, many - 1 - i, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &size);
    free(buffer);
}

static int nothing_to_say(void *extra, MPI_Status *status)
{
    (void)extra;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int nothing_to_free(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}

static int nothing_to_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

KIND generalised_requests(void)
{
    EACH MPI_Grequest_start(nothing_to_say, nothing_to_free, nothing_to_cancel, NULL, &requests[i]);
    EACH MPI_Grequest_complete(requests[many - 1 - i]);
    EACH MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

KIND collectives_under_way(void)
{
    int *out = room(sizeof *out);
    EACH MPI_Iallreduce(&value, &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    EACH MPI_Wait(&requests[many - 1 - i], MPI_STATUS_IGNORE);
    free(out);
}

/* On communicators with a receive each that is still there when they are freed. */
KIND communicators(void)
{
    MPI_Comm *comms = room(sizeof *comms);
    EACH MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
    EACH MPI_Irecv(&in, 1, MPI_INT, 0, 0, comms[i], &requests[i]);
    EACH MPI_Comm_free(&comms[i]);
    cancel_all(0);
    EACH MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
    EACH MPI_Comm_free(&comms[many - 1 - i]);
    free(comms);
}

KIND communicators_and_receives_elsewhere(void)
{
    MPI_Comm *comms = room(sizeof *comms);
    receive_all(0, 0);
    EACH MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
    EACH MPI_Comm_free(&comms[i]);
    cancel_all(0);
    free(comms);
}

KIND datatypes(void)
{
    MPI_Datatype *types = room(sizeof *types);
    EACH MPI_Type_vector(3, 1, 2 + i % 5, MPI_INT, &types[i]);
    EACH MPI_Type_commit(&types[i]);
    EACH MPI_Type_free(&types[i]);
    free(types);
}

KIND blocks_of_a_datatype(void)
{
    int *lengths = room(sizeof *lengths), *displacements = room(sizeof *displacements), *values = room(4 * sizeof *values), at = 0;
    char *packed = room(2 * sizeof *values);
    MPI_Datatype type;
    EACH {
        lengths[i] = 1 + i % 2;
        displacements[i] = i % 2 ? 3 * (many - 1 - i) : 3 * i;
    }
    MPI_Type_indexed(many, lengths, displacements, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Pack(values, 1, type, packed, (int)(2 * sizeof *values) * many, &at, MPI_COMM_SELF);
    at = 0;
    EACH MPI_Pack(values, 1, MPI_INT, packed, (int)sizeof *values * many, &at, MPI_COMM_SELF);
    MPI_Type_free(&type);
    free(lengths);
    free(displacements);
    free(values);
    free(packed);
}

KIND attributes_of_a_communicator(void)
{
    int *keys = room(sizeof *keys), found;
    void *got;
    MPI_Comm comm, copy;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    EACH MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keys[i], NULL);
    EACH MPI_Comm_set_attr(comm, keys[i], &value);
    EACH MPI_Comm_set_attr(comm, keys[i], &in);
    EACH MPI_Comm_get_attr(comm, keys[i], &got, &found);
    MPI_Comm_dup(comm, &copy);
    EACH MPI_Comm_delete_attr(comm, keys[i]);
    EACH MPI_Comm_free_keyval(&keys[i]);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
    free(keys);
}

KIND attributes_of_a_datatype(void)
{
    int *keys = room(sizeof *keys);
    MPI_Datatype type, copy;
    MPI_Type_dup(MPI_INT, &type);
    EACH MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keys[i], NULL);
    EACH MPI_Type_set_attr(type, keys[i], &value);
    MPI_Type_dup(type, &copy);
    EACH MPI_Type_free_keyval(&keys[many - 1 - i]);
    MPI_Type_free(&copy);
    MPI_Type_free(&type);
    free(keys);
}

KIND keys_of_an_info_object(void)
{
    char key[32], text[8];
    int size, found;
    MPI_Info info, copy;
    MPI_Info_create(&info);
    EACH {
        snprintf(key, sizeof key, "key %d", i);
        MPI_Info_set(info, key, "value");
        MPI_Info_set(info, key, "other");
    }
    EACH {
        snprintf(key, sizeof key, "key %d", i);
        size = sizeof text;
        MPI_Info_get_string(info, key, &size, text, &found);
    }
    EACH MPI_Info_get_nthkey(info, i, key);
    MPI_Info_dup(info, &copy);
    EACH {
        MPI_Info_get_nthkey(info, 0, key);
        MPI_Info_delete(info, key);
    }
    EACH {
        snprintf(key, sizeof key, "key %d", (int)(i * 7919LL % many));
        MPI_Info_delete(copy, key);
    }
    MPI_Info_free(&info);
    MPI_Info_free(&copy);
}

KIND info_objects(void)
{
    MPI_Info *infos = room(sizeof *infos);
    EACH MPI_Info_create(&infos[i]);
    EACH MPI_Info_free(&infos[i]);
    free(infos);
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
}

static void operation(void *a, void *b, int *len, MPI_Datatype *type)
{
    (void)a;
    (void)b;
    (void)len;
    (void)type;
}

KIND handlers_and_operations(void)
{
    MPI_Errhandler *handlers = room(sizeof *handlers);
    MPI_Op *operations = room(sizeof *operations);
    EACH MPI_Comm_create_errhandler(handler, &handlers[i]);
    EACH MPI_Op_create(operation, 1, &operations[i]);
    EACH MPI_Errhandler_free(&handlers[i]);
    EACH MPI_Op_free(&operations[i]);
    free(handlers);
    free(operations);
}

KIND error_codes(void)
{
    int *codes = room(sizeof *codes), class, got, len;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&class);
    EACH MPI_Add_error_code(class, &codes[i]);
    EACH MPI_Add_error_string(codes[i], "text");
    EACH MPI_Error_string(codes[i], text, &len);
    EACH MPI_Error_class(codes[i], &got);
    EACH MPI_Remove_error_string(codes[i]);
    EACH MPI_Remove_error_code(codes[i]);
    MPI_Remove_error_class(class);
    EACH MPI_Add_error_class(&codes[i]);
    EACH MPI_Remove_error_class(codes[i]);
    free(codes);
}

KIND groups(void)
{
    MPI_Group world, *groups = room(sizeof *groups);
    int *ranks = room(sizeof *ranks), *there = room(sizeof *there), rank = 0;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    EACH MPI_Group_incl(world, 1, &rank, &groups[i]);
    MPI_Group_translate_ranks(world, many, ranks, groups[0], there);
    EACH MPI_Group_free(&groups[i]);
    MPI_Group_free(&world);
    free(groups);
    free(ranks);
    free(there);
}

KIND neighbors(void)
{
    int *nodes = room(sizeof *nodes), *out = room(sizeof *out), *got = room(sizeof *got), degree = many, self = 0;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Dist_graph_create(MPI_COMM_SELF, 1, &self, &degree, nodes, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    MPI_Comm_free(&comm);
    MPI_Graph_create(MPI_COMM_SELF, 1, &degree, nodes, 0, &comm);
    MPI_Graph_neighbors(comm, 0, many, got);
    MPI_Comm_free(&comm);
    MPI_Dist_graph_create_adjacent(MPI_COMM_SELF, many, nodes, MPI_UNWEIGHTED, many, nodes, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    MPI_Neighbor_alltoall(out, 1, MPI_INT, got, 1, MPI_INT, comm);
    MPI_Ineighbor_alltoall(out, 1, MPI_INT, got, 1, MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    free(nodes);
    free(out);
    free(got);
}

KIND sessions(void)
{
    MPI_Session *sessions = room(sizeof *sessions);
    EACH MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &sessions[i]);
    EACH MPI_Session_finalize(&sessions[i]);
    free(sessions);
}

int main(int argc, char **argv)
{
    void (*kinds[])(void) = {
        cancel_oldest_first, cancel_youngest_first, cancel_wildcards, cancel_large, cancel_persistent, persistent, free_receives,
        free_large_receives, unexpected_by_tag, probe_unexpected, matched_probes, posted_by_tag, posted_with_wildcards,
        wait_youngest_first, test_each, any_of_those_that_are_over, some_at_a_time, large_sends, synchronous_sends, freed_synchronous_sends, buffered_sends,
        generalised_requests, collectives_under_way, communicators, communicators_and_receives_elsewhere, datatypes,
        blocks_of_a_datatype, attributes_of_a_communicator, attributes_of_a_datatype, keys_of_an_info_object, info_objects,
        handlers_and_operations, error_codes, groups, neighbors, sessions,
    };
    MPI_Init(&argc, &argv);
    many = argc > 1 ? atoi(argv[1]) : 1000;
    requests = room(sizeof *requests);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        kinds[kind]();
    MPI_Finalize();
    return 0;
}
