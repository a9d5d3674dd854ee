/* The predefined handles of a program that owns copies of the objects, of a library that does not, and those that functions
 * return are the same.
 * ranks: 2
 */
#include "handles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            wrong++; \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what); \
        } \
    } while (0)

/* Handles of the program in a table that the linker or the loader fills in. */
static const struct handles table = {
    MPI_COMM_WORLD, MPI_COMM_NULL, { MPI_INT, MPI_DOUBLE, MPI_C_BOOL, MPI_2INT }, MPI_SUM, MPI_ERRORS_ARE_FATAL,
    MPI_GROUP_EMPTY, MPI_INFO_ENV, MPI_REQUEST_NULL, MPI_MESSAGE_NO_PROC,
};

static void returned(void)
{
    MPI_Comm parent;
    MPI_Datatype pair, part, match;
    MPI_Errhandler handler;
    MPI_Group world, none;
    MPI_Message message;
    MPI_Request request;
    int counts[3], combiner, place;
    MPI_Aint address;
    CHECK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler) == MPI_SUCCESS && handler == MPI_ERRORS_ARE_FATAL);
    CHECK(MPI_Errhandler_free(&handler) == MPI_SUCCESS && handler == MPI_ERRHANDLER_NULL);
    MPI_Type_contiguous(2, MPI_2INT, &pair);
    MPI_Type_get_envelope(pair, &counts[0], &counts[1], &counts[2], &combiner);
    CHECK(combiner == MPI_COMBINER_CONTIGUOUS && counts[2] == 1);
    MPI_Type_get_contents(pair, 1, 0, 1, &place, &address, &part);
    CHECK(part == MPI_2INT);
    /* A handle of an object that the program has made. */
    CHECK((intptr_t)pair < 0 && MPI_Type_f2c(MPI_Type_c2f(pair)) == pair);
    CHECK(MPI_Type_free(&pair) == MPI_SUCCESS && pair == MPI_DATATYPE_NULL);
    CHECK(MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 8, &match) == MPI_SUCCESS && match == MPI_INTEGER8);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 0, NULL, &none);
    CHECK(none == MPI_GROUP_EMPTY);
    CHECK(MPI_Group_free(&world) == MPI_SUCCESS && world == MPI_GROUP_NULL);
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &parent) == MPI_SUCCESS && parent == MPI_COMM_NULL);
    MPI_Mprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    CHECK((intptr_t)request < 0);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && request == MPI_REQUEST_NULL);
}

static void integers_of_fortran(void)
{
    CHECK(MPI_Comm_c2f(MPI_COMM_WORLD) == 0 && MPI_Comm_c2f(MPI_COMM_SELF) == 1 && MPI_Comm_c2f(MPI_COMM_NULL) == 2);
    CHECK(MPI_Type_c2f(MPI_INTEGER) == 7 && MPI_Type_c2f(MPI_DOUBLE_PRECISION) == 17 && MPI_Type_c2f(MPI_COUNT) == 72);
    CHECK(MPI_Op_c2f(MPI_SUM) == 3 && MPI_Request_c2f(MPI_REQUEST_NULL) == 0 && MPI_Errhandler_c2f(MPI_ERRORS_RETURN) == 2);
    CHECK(MPI_Comm_f2c(0) == MPI_COMM_WORLD && MPI_Op_f2c(11) == MPI_MAXLOC && MPI_Info_f2c(1) == MPI_INFO_ENV);
    CHECK(MPI_Group_f2c(1) == MPI_GROUP_EMPTY && MPI_Message_f2c(1) == MPI_MESSAGE_NO_PROC && MPI_File_f2c(0) == MPI_FILE_NULL);
    CHECK(MPI_Win_f2c(0) == MPI_WIN_NULL && MPI_Comm_f2c(-5) == NULL);
    for (int integer = 0; integer <= 72; integer++) {
        /* These have no counterpart in MPI 5. */
        int is_removed = integer == 3 || integer == 4 || integer == 26 || integer == 27;
        CHECK(is_removed || MPI_Type_c2f(MPI_Type_f2c(integer)) == integer);
    }
}

static void limits(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 8], text[MPI_MAX_ERROR_STRING + 8], name[MPI_MAX_OBJECT_NAME + 8];
    int length, key, flag, *number;
    MPI_Info info;
    memset(version, 'x', sizeof version);
    memset(text, 'x', sizeof text);
    memset(name, 'x', sizeof name);
    MPI_Get_library_version(version, &length);
    CHECK(length == (int)strlen(version) && length < 256 && version[256] == 'x');
    CHECK(strncmp(version, "Open MPI v4.1.4", 15) == 0 && strstr(version, "Garonne") != NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int code = MPI_Send(&length, 1, MPI_INT, 1000, 0, MPI_COMM_SELF);
    MPI_Error_string(code, text, &length);
    CHECK(length == (int)strlen(text) && length < 256 && text[256] == 'x' && strstr(text, "MPI_ERR_RANK") != NULL);
    char longest[100];
    memset(longest, 'n', 99);
    longest[99] = 0;
    MPI_Comm_set_name(MPI_COMM_SELF, longest);
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    CHECK(length == 63 && strlen(name) == 63 && name[64] == 'x');
    MPI_Info_create(&info);
    CHECK(MPI_Info_set(info, "key", "value") == MPI_SUCCESS);
    char longer_key[40], found[MPI_MAX_INFO_KEY + 8];
    memset(longer_key, 'k', sizeof longer_key);
    memset(found, 'x', sizeof found);
    longer_key[sizeof longer_key - 1] = 0;
    MPI_Info_set(info, longer_key, "value");
    MPI_Info_get_nkeys(info, &length);
    for (int i = 0; i < length; i++) {
        MPI_Info_get_nthkey(info, i, found);
        CHECK(strlen(found) < MPI_MAX_INFO_KEY && found[MPI_MAX_INFO_KEY] == 'x');
    }
    MPI_Info_free(&info);
    CHECK(info == MPI_INFO_NULL);
    MPI_Error_class(code, &flag);
    CHECK(flag == MPI_ERR_RANK && code > MPI_ERR_LASTCODE);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag);
    CHECK(flag && *number >= MPI_ERR_LASTCODE);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag);
    CHECK(flag && *number >= 32767);
    MPI_Abi_get_version(&key, &flag);
    CHECK(key == -1 && flag == -1);
}

/* Addresses of no object are refused: a handle of MPICH, one of the standard ABI, null, and an address beside an object. */
static void garbage(void)
{
    MPI_Comm handles[] = { (MPI_Comm)0x44000000, (MPI_Comm)0x101, NULL, (MPI_Comm)((char *)MPI_COMM_WORLD + 8) };
    MPI_T_pvar_session session;
    int provided;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 4; i++) {
        int class;
        MPI_Error_class(MPI_Barrier(handles[i]), &class);
        CHECK(class == MPI_ERR_COMM);
    }
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
}

extern struct garonne_openmpi_abi_object ompi_mpi_lb, ompi_mpi_ub;
#define REMOVED(object) ((MPI_Datatype)(void *)&object)

/* MPI_LB and MPI_UB, which MPI 3.0 removed, and which programs still have: markers win over data, and remain in types made of it. */
static void markers(void)
{
    MPI_Datatype lower = REMOVED(ompi_mpi_lb), upper = REMOVED(ompi_mpi_ub), types[] = { lower, MPI_INT, upper }, marked, both, plain;
    int lengths[] = { 1, 2, 1 }, ones[] = { 1, 1 };
    MPI_Aint places[] = { -4, 8, 40 }, beside[] = { 0, 100 }, lb, extent;
    CHECK(MPI_SUCCESS == MPI_Type_create_struct(3, lengths, places, types, &marked));
    MPI_Type_get_extent(marked, &lb, &extent);
    CHECK(lb == -4 && extent == 44);
    MPI_Type_get_true_extent(marked, &lb, &extent);
    CHECK(lb == 8 && extent == 8);
    MPI_Datatype parts[] = { marked, MPI_INT };
    CHECK(MPI_SUCCESS == MPI_Type_create_struct(2, ones, beside, parts, &both));
    MPI_Type_get_extent(both, &lb, &extent);
    CHECK(lb == -4 && extent == 44);
    MPI_Type_free(&both);
    parts[1] = upper;
    CHECK(MPI_SUCCESS == MPI_Type_create_struct(2, ones, beside, parts, &both));
    MPI_Type_get_extent(both, &lb, &extent);
    CHECK(lb == -4 && extent == 104);
    MPI_Type_free(&both);
    MPI_Type_free(&marked);
    /* One alone, and of length 0. */
    CHECK(MPI_SUCCESS == MPI_Type_create_struct(2, lengths + 1, places + 1, types + 1, &plain));
    MPI_Type_get_extent(plain, &lb, &extent);
    CHECK(lb == 8 && extent == 32);
    MPI_Type_free(&plain);
    lengths[0] = lengths[2] = 0;
    CHECK(MPI_SUCCESS == MPI_Type_create_struct(3, lengths, places, types, &plain));
    MPI_Type_get_extent(plain, &lb, &extent);
    CHECK(lb == 8 && extent == 8);
    /* Two elements of it arrive as two of the plain type. */
    lengths[0] = lengths[2] = 1;
    MPI_Type_create_struct(3, lengths, places, types, &marked);
    MPI_Type_commit(&marked);
    int from[25], to[4] = { 0 };
    for (int i = 0; i < 25; i++)
        from[i] = i;
    MPI_Sendrecv(from + 1, 2, marked, 0, 0, to, 4, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    CHECK(to[0] == 3 && to[1] == 4 && to[2] == 14 && to[3] == 15);
    MPI_Type_free(&marked);
    MPI_Type_free(&plain);
}

int main(int argc, char **argv)
{
    struct handles own, library;
    int rank, out, in = -1, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    own = table;
    library_handles(&library);
    CHECK(memcmp(&own, &library, sizeof own) == 0);
    CHECK(memcmp(&own, library_table(), sizeof own) == 0);
    out = 100 + rank;
    CHECK(library_exchange(MPI_COMM_WORLD, MPI_INT, 1 - rank, &out, &in) == MPI_SUCCESS && in == 101 - rank);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, &in, 1, library.types[0], library.sum, library.world) == MPI_SUCCESS && in == 201);
    returned();
    integers_of_fortran();
    limits();
    markers();
    garbage();
    MPI_Finalize();
    return wrong != 0;
}
