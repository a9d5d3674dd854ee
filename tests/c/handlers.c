/* Whose error handler hears of a failure that is found later than its call, and of one that belongs to no communicator.
 * ranks: 1 2
 * limit: 60 */
#include "check.h"

static MPI_Comm comm, heard;
static int times;

static void hears(MPI_Comm *on, int *code, ...)
{
    int class = 0;
    MPI_Error_class(*code, &class);
    CHECK(class != MPI_SUCCESS);
    heard = *on, times++;
}

/* The call fails with this class, and `who` has heard of it. */
#define HEARD(who, class, ...)                                                                                         \
    do {                                                                                                               \
        heard = MPI_COMM_NULL, times = 0;                                                                              \
        CHECK_CLASS(__VA_ARGS__, class);                                                                               \
        CHECK(times == 1 && heard == (who));                                                                           \
    } while (0)

static int two[2] = {1, 2}, one;

/* Of each kind of request, one that receives two numbers where one has room. */
static void requests_tell_the_communicator_that_they_are_of(void)
{
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    int flag, index, count;
    for (int replaces = 0; replaces < 2; replaces++)
        for (int tests = 0; tests < 4; tests++) {
            if (replaces) {
                /* The message of a send to itself with another tag is longer than what is replaced. */
                MPI_Send(two, 2, MPI_INT, 0, 1, comm);
                CHECK_EQ(MPI_Isendrecv_replace(&one, 1, MPI_INT, 0, 2, 0, 1, comm, &request), MPI_SUCCESS);
            } else {
                CHECK_EQ(MPI_Isendrecv(two, 2, MPI_INT, 0, 0, &one, 1, MPI_INT, 0, 0, comm, &request), MPI_SUCCESS);
            }
            if (tests == 0) {
                HEARD(comm, MPI_ERR_TRUNCATE, MPI_Wait(&request, &status));
            } else if (tests == 1) {
                HEARD(comm, MPI_ERR_TRUNCATE, MPI_Test(&request, &flag, &status));
            } else if (tests == 2) {
                HEARD(comm, MPI_ERR_IN_STATUS, MPI_Waitall(1, &request, &status));
                CHECK_CLASS(status.MPI_ERROR, MPI_ERR_TRUNCATE);
            } else {
                HEARD(comm, MPI_ERR_TRUNCATE, MPI_Waitany(1, &request, &index, &status));
            }
            if (replaces)
                MPI_Recv(&one, 1, MPI_INT, 0, 2, comm, MPI_STATUS_IGNORE);
        }
    MPI_Irecv(&one, 1, MPI_INT, 0, 0, comm, &request);
    MPI_Send(two, 2, MPI_INT, 0, 0, comm);
    MPI_Request plain = request;
    HEARD(comm, MPI_ERR_TRUNCATE, MPI_Request_get_status(plain, &flag, &status));
    HEARD(comm, MPI_ERR_TRUNCATE, MPI_Request_get_status_any(1, &plain, &index, &flag, &status));
    HEARD(comm, MPI_ERR_IN_STATUS, MPI_Request_get_status_all(1, &plain, &flag, &status));
    HEARD(comm, MPI_ERR_IN_STATUS, MPI_Request_get_status_some(1, &plain, &count, &index, &status));
    HEARD(comm, MPI_ERR_TRUNCATE, MPI_Wait(&request, &status));
    MPI_Recv_init(&one, 1, MPI_INT, 0, 0, comm, &request);
    MPI_Send(two, 2, MPI_INT, 0, 0, comm);
    MPI_Start(&request);
    HEARD(comm, MPI_ERR_TRUNCATE, MPI_Wait(&request, &status));
    MPI_Start(&request);
    HEARD(comm, MPI_ERR_REQUEST, MPI_Start(&request));
    MPI_Send(two, 1, MPI_INT, 0, 0, comm);
    MPI_Wait(&request, &status);
    HEARD(comm, MPI_ERR_REQUEST, MPI_Cancel(&request));
    MPI_Request_free(&request);
    MPI_Send(two, 2, MPI_INT, 0, 0, comm);
    MPI_Mprobe(0, 0, comm, &message, &status);
    HEARD(comm, MPI_ERR_TRUNCATE, MPI_Mrecv(&one, 1, MPI_INT, &message, &status));
    MPI_Send(two, 2, MPI_INT, 0, 0, comm);
    MPI_Mprobe(0, 0, comm, &message, &status);
    HEARD(comm, MPI_ERR_COUNT, MPI_Mrecv(&one, -1, MPI_INT, &message, &status));
    HEARD(comm, MPI_ERR_TYPE, MPI_Imrecv(&one, 1, MPI_DATATYPE_NULL, &message, &request));
    MPI_Imrecv(&one, 1, MPI_INT, &message, &request);
    HEARD(comm, MPI_ERR_TRUNCATE, MPI_Wait(&request, &status));
}

/* Programs that set a handler on MPI_COMM_WORLD alone, as was enough before MPI 4. */
static void what_is_of_no_communicator_is_heard_by_the_world_where_it_alone_has_a_handler(void)
{
    MPI_Datatype type = MPI_CXX_BOOL;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(hears, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Type_free(&type), MPI_ERR_TYPE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    HEARD(MPI_COMM_WORLD, MPI_ERR_TYPE, MPI_Type_free(&type));
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    HEARD(MPI_COMM_SELF, MPI_ERR_TYPE, MPI_Type_free(&type));
    MPI_Errhandler_free(&handler);
}

/* What the constructors of sessions and of communicators of groups are given hears of their own failures. */
static void constructors_tell_the_handler_that_they_are_given(void)
{
    MPI_Errhandler handler;
    MPI_Session session, other;
    MPI_Group group;
    MPI_Comm made;
    MPI_Comm_create_errhandler(hears, &handler);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://SELF", &group);
    times = 0;
    CHECK_CLASS(MPI_Comm_create_from_group(MPI_GROUP_NULL, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made),
                MPI_ERR_GROUP);
    CHECK_CLASS(MPI_Intercomm_create_from_groups(group, 77, group, 0, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made),
                MPI_ERR_RANK);
    CHECK_CLASS(MPI_Session_init((MPI_Info)0x77777, MPI_ERRORS_RETURN, &other), MPI_ERR_INFO);
    CHECK_EQ(times, 0);
    HEARD(MPI_COMM_NULL, MPI_ERR_GROUP,
          MPI_Comm_create_from_group(MPI_GROUP_NULL, "tag", MPI_INFO_NULL, handler, &made));
    /* One that is not for sessions cannot hear of theirs. */
    HEARD(MPI_COMM_SELF, MPI_ERR_ARG, MPI_Session_init(MPI_INFO_NULL, handler, &other));
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
    MPI_Errhandler_free(&handler);
}

int main(int argc, char **argv)
{
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(what_is_of_no_communicator_is_heard_by_the_world_where_it_alone_has_a_handler);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_errhandler(hears, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    RUN(requests_tell_the_communicator_that_they_are_of);
    RUN(constructors_tell_the_handler_that_they_are_given);
    MPI_Comm_free(&comm);
    return check_end();
}
