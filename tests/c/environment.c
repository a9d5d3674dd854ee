/* Environment: versions, thread levels, clocks, info objects, predefined attributes, error classes and strings.
 * ranks: 1 3 */
#include "check.h"
#include <pthread.h>

/* A header without MPI_ABI_VERSION is one of another ABI, whose library has no version of the standard one. */
#ifdef MPI_ABI_VERSION
#define ABI_VERSION MPI_ABI_VERSION
#else
#define ABI_VERSION (-1)
#endif

static void versions_are_those_of_the_header(void)
{
    int version, subversion, len, major, minor;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Get_version(&version, &subversion);
    CHECK_EQ(version, 5);
    CHECK_EQ(subversion, 0);
    MPI_Get_library_version(text, &len);
    CHECK(len > 0 && len < MPI_MAX_LIBRARY_VERSION_STRING);
    CHECK_EQ(strlen(text), len);
    CHECK_EQ(MPI_Abi_get_version(&major, &minor), MPI_SUCCESS);
    CHECK_EQ(major, ABI_VERSION);
}

static void *is_main(void *flag)
{
    MPI_Is_thread_main(flag);
    return NULL;
}

static void state_and_thread_level_are_known(void)
{
    int flag, provided;
    pthread_t other;
    MPI_Initialized(&flag);
    CHECK(flag);
    MPI_Finalized(&flag);
    CHECK(!flag);
    MPI_Is_thread_main(&flag);
    CHECK(flag);
    CHECK_EQ(pthread_create(&other, NULL, is_main, &flag), 0);
    pthread_join(other, NULL);
    CHECK(!flag);
    MPI_Query_thread(&provided);
    CHECK_EQ(provided, MPI_THREAD_MULTIPLE);
}

static void clocks_go_forward(void)
{
    double start = MPI_Wtime();
    CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);
    for (int i = 0; i < 1000; i++) {
        double now = MPI_Wtime();
        CHECK(now >= start);
        start = now;
    }
}

static void processor_name_is_terminated(void)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int len = -1;
    MPI_Get_processor_name(name, &len);
    CHECK(len > 0 && len < MPI_MAX_PROCESSOR_NAME);
    CHECK_EQ(strlen(name), len);
}

static void predefined_attributes_are_there(void)
{
    int flag, *value;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    CHECK(flag && *value >= 32767);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag);
    CHECK(!flag || *value == 0 || *value == 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag);
    CHECK(flag);
}

/* MPI_Info_get_nthkey has room for so many bytes, so what is longer must be refused before. */
static void long_keys_are_refused_or_come_back_whole(void)
{
    MPI_Info info;
    char key[MPI_MAX_INFO_KEY + 2], found[MPI_MAX_INFO_KEY + 1];
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Info_create(&info);
    for (int length = MPI_MAX_INFO_KEY - 1; length <= MPI_MAX_INFO_KEY + 1; length++) {
        int nkeys = 0;
        memset(key, 'k', length);
        key[length] = '\0';
        int code = MPI_Info_set(info, key, "value");
        MPI_Info_get_nkeys(info, &nkeys);
        CHECK_EQ(code == MPI_SUCCESS, nkeys == 1);
        if (code == MPI_SUCCESS) {
            CHECK(length <= MPI_MAX_INFO_KEY);
            MPI_Info_get_nthkey(info, 0, found);
            CHECK(strcmp(found, key) == 0);
            MPI_Info_delete(info, key);
        } else {
            CHECK(length >= MPI_MAX_INFO_KEY);
            CHECK_CLASS(code, MPI_ERR_INFO_KEY);
        }
    }
    MPI_Info_free(&info);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void info_keeps_keys_in_order(void)
{
    MPI_Info info, copy;
    int nkeys, flag, len;
    char key[MPI_MAX_INFO_KEY + 1], value[64];
    MPI_Info_create(&info);
    MPI_Info_set(info, "first", "1");
    MPI_Info_set(info, "second", "two");
    MPI_Info_set(info, "first", "one");
    MPI_Info_get_nkeys(info, &nkeys);
    CHECK_EQ(nkeys, 2);
    MPI_Info_get_nthkey(info, 0, key);
    CHECK(strcmp(key, "first") == 0);
    len = sizeof value;
    MPI_Info_get_string(info, "first", &len, value, &flag);
    CHECK(flag && strcmp(value, "one") == 0);
    CHECK_EQ(len, 4);
    MPI_Info_dup(info, &copy);
    MPI_Info_delete(info, "first");
    MPI_Info_get_nkeys(info, &nkeys);
    CHECK_EQ(nkeys, 1);
    MPI_Info_get_nkeys(copy, &nkeys);
    CHECK_EQ(nkeys, 2);
    len = 2; /* room for one character */
    MPI_Info_get_string(copy, "second", &len, value, &flag);
    CHECK(flag && strcmp(value, "t") == 0);
    CHECK_EQ(len, 4);
    len = sizeof value;
    MPI_Info_get_string(copy, "absent", &len, value, &flag);
    CHECK(!flag);
    MPI_Info_free(&info);
    MPI_Info_free(&copy);
    CHECK(info == MPI_INFO_NULL);
}

static void deleting_an_absent_info_key_is_an_error(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Info_delete(info, "absent"), MPI_ERR_INFO_NOKEY);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Info_free(&info);
}

static void every_error_class_has_a_text(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int classes[] = {MPI_SUCCESS,  MPI_ERR_BUFFER, MPI_ERR_COUNT,    MPI_ERR_TYPE, MPI_ERR_TAG,
                     MPI_ERR_COMM, MPI_ERR_RANK,   MPI_ERR_TRUNCATE, MPI_ERR_ROOT, MPI_ERR_UNSUPPORTED_OPERATION};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        int len = 0, class = -1;
        CHECK_EQ(MPI_Error_string(classes[i], text, &len), MPI_SUCCESS);
        CHECK(len > 0 && (size_t)len == strlen(text));
        MPI_Error_class(classes[i], &class);
        CHECK_EQ(class, classes[i]);
    }
}

static void user_error_codes_belong_to_their_class(void)
{
    int class, code, back, len;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&class);
    CHECK(class > MPI_ERR_LASTCODE);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "the river is too low");
    MPI_Error_class(code, &back);
    CHECK_EQ(back, class);
    MPI_Error_string(code, text, &len);
    CHECK(strcmp(text, "the river is too low") == 0);
    int *last, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    CHECK(flag && *last >= class);
}

static int handled_code;
static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handled_code = *code;
}

static void error_handlers_are_called_and_reported(void)
{
    MPI_Errhandler own, found;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    MPI_Comm_get_errhandler(comm, &found);
    MPI_Comm_set_errhandler(comm, found); /* another handle, perhaps, of the same handler */
    MPI_Errhandler_free(&found);
    int value = 0, class, code = MPI_Send(&value, 1, MPI_INT, 77, 0, comm);
    CHECK(code != MPI_SUCCESS);
    CHECK_EQ(handled_code, code);
    MPI_Error_class(code, &class);
    CHECK_EQ(class, MPI_ERR_RANK);
    handled_code = 0;
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    CHECK_EQ(handled_code, MPI_ERR_OTHER);
    MPI_Errhandler_free(&own);
    CHECK(own == MPI_ERRHANDLER_NULL);
    MPI_Comm_free(&comm);
}

static void a_returned_code_tells_what_happened_and_keeps_its_class(void)
{
    MPI_Comm comm;
    char text[MPI_MAX_ERROR_STRING];
    int value = 0, class, len;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_name(comm, "halo_x");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int code = MPI_Send(&value, 1, MPI_INT, 77, 0, comm);
    /* Open MPI's ABI has no room for codes below its last one. */
    CHECK(code > MPI_SUCCESS && (code <= MPI_ERR_LASTCODE || MPI_ERR_LASTCODE < 100));
    MPI_Error_string(code, text, &len);
    CHECK_EQ((int)strlen(text), len);
    CHECK(strstr(text, "MPI_ERR_RANK: ") == text && strstr(text, "77") && strstr(text, "halo_x") && strstr(text, "MPI_Send"));
    MPI_Send(&value, 1, MPI_INT, 0, -5, comm);
    char again[MPI_MAX_ERROR_STRING];
    MPI_Error_string(code, again, &len);
    CHECK(strcmp(text, again) == 0);
    for (int i = 0; i < 1000; i++) CHECK_CLASS(MPI_Send(&value, -1, MPI_INT, 0, 0, comm), MPI_ERR_COUNT);
    MPI_Error_class(code, &class);
    CHECK_EQ(class, MPI_ERR_RANK);
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, "MPI_ERR_RANK: ") == text);

    /* Both sides of a truncated message, in the code of its status, too. */
    int in[4], out[8] = {0};
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(in, 4, MPI_INT, 0, 3, comm, &requests[0]);
    MPI_Isend(out, 8, MPI_INT, 0, 3, comm, &requests[1]);
    CHECK_EQ(MPI_Waitall(2, requests, statuses), MPI_ERR_IN_STATUS);
    CHECK_CLASS(statuses[0].MPI_ERROR, MPI_ERR_TRUNCATE);
    CHECK_EQ(statuses[0].MPI_SOURCE, 0);
    CHECK_EQ(statuses[0].MPI_TAG, 3);
    MPI_Error_string(statuses[0].MPI_ERROR, text, &len);
    CHECK(strstr(text, "4 MPI_INT = 16 B") && strstr(text, "32 B") && strstr(text, "G0107"));
    /* Who ignores statuses has only the code of the call. */
    MPI_Error_string(MPI_ERR_IN_STATUS, text, &len);
    CHECK(strstr(text, "MPI_ERR_IN_STATUS: ") == text && strstr(text, "4 MPI_INT = 16 B"));
    MPI_Comm_free(&comm);
}

static void memory_can_be_had_from_mpi(void)
{
    void *memory = NULL;
    CHECK_EQ(MPI_Alloc_mem(100000, MPI_INFO_NULL, &memory), MPI_SUCCESS);
    check_fill(memory, 100000, 3);
    CHECK(check_same(memory, 100000, 3));
    CHECK_EQ(MPI_Free_mem(memory), MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    RUN(versions_are_those_of_the_header);
    RUN(state_and_thread_level_are_known);
    RUN(clocks_go_forward);
    RUN(processor_name_is_terminated);
    RUN(predefined_attributes_are_there);
    RUN(info_keeps_keys_in_order);
    RUN(long_keys_are_refused_or_come_back_whole);
    RUN(deleting_an_absent_info_key_is_an_error);
    RUN(every_error_class_has_a_text);
    RUN(user_error_codes_belong_to_their_class);
    RUN(error_handlers_are_called_and_reported);
    RUN(a_returned_code_tells_what_happened_and_keeps_its_class);
    RUN(memory_can_be_had_from_mpi);
    MPI_Pcontrol(1);
    return check_end();
}
