/* Sessions: process sets, groups and communicators from them, together with and without the world model.
 * ranks: 1 2 3 */
#include "check.h"

static MPI_Comm from_session(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, set, &group);
    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    return comm;
}

static void use(MPI_Comm comm, int size)
{
    int rank, n, sum, one = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    CHECK_EQ(n, size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK_EQ(sum, size);
}

int main(void)
{
    MPI_Session session, second;
    int sets = 0, len = 0, found = 0, again;
    check_test = "sessions work without MPI_Init";
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets);
    CHECK(sets >= 2);
    for (int i = 0; i < sets; i++) {
        char name[MPI_MAX_PSET_NAME_LEN];
        len = 0;
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &len, NULL);
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &len, name);
        found += strcmp(name, "mpi://WORLD") == 0 || strcmp(name, "mpi://SELF") == 0;
    }
    CHECK_EQ(found, 2);
    MPI_Comm world = from_session(session, "mpi://WORLD", "tests.sessions.world");
    MPI_Comm self = from_session(session, "mpi://SELF", "tests.sessions.self");
    MPI_Comm_size(world, &check_size);
    MPI_Comm_rank(world, &check_rank);
    use(world, check_size);
    use(self, 1);
    MPI_Comm_free(&self);
    MPI_Comm_free(&world);
    MPI_Session_finalize(&session);
    CHECK(session == MPI_SESSION_NULL);

    check_test = "the world model can follow, beside another session";
    MPI_Init(NULL, NULL);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &second);
    MPI_Comm_size(MPI_COMM_WORLD, &again);
    CHECK_EQ(again, check_size);
    use(MPI_COMM_WORLD, check_size);
    world = from_session(second, "mpi://WORLD", "tests.sessions.again");
    use(world, check_size);
    MPI_Comm_free(&world);
    MPI_Finalize();
    MPI_Session_finalize(&second);
    return check_failures;
}
