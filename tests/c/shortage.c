/* A process without addresses left for the inbox of another: what needs it fails and says why, on both sides, and nobody waits or counts as dead.
 * ranks: 2 3
 * limit: 60 */
#include "check.h"
#include <sys/resource.h>
#include <unistd.h>

/* Less than any inbox. */
enum { SPARE = 256 << 10 };

static struct rlimit before;

static void leave_little(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    if (file)
        fclose(file);
    getrlimit(RLIMIT_AS, &before);
    struct rlimit little = before;
    little.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + SPARE;
    CHECK_EQ(setrlimit(RLIMIT_AS, &little), 0);
}

static void says(int code, const char *words)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, words));
    CHECK(strstr(text, "Cannot allocate memory"));
    CHECK(!strstr(text, "died"));
}

static void a_send_fails_on_both_sides(void)
{
    int x = 7, code;
    if (check_rank == 0) {
        leave_little();
        code = MPI_Send(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        setrlimit(RLIMIT_AS, &before);
        says(code, "the inbox of process 1");
        says(code, "ulimit -v");
    } else if (check_rank == 1) {
        code = MPI_Recv(&x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        says(code, "nothing can come from process 0");
    } else {
        return;
    }
    CHECK_CLASS(code, MPI_ERR_NO_MEM);
}

static void others_go_on(void)
{
    int x = check_rank;
    if (check_size < 3)
        return;
    if (check_rank == 2) {
        for (int from = 0; from < 2; from++) {
            CHECK_EQ(MPI_Recv(&x, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
            CHECK_EQ(x, from);
            CHECK_EQ(MPI_Send(&x, 1, MPI_INT, from, 0, MPI_COMM_WORLD), MPI_SUCCESS);
        }
    } else {
        CHECK_EQ(MPI_Send(&x, 1, MPI_INT, 2, 0, MPI_COMM_WORLD), MPI_SUCCESS);
        CHECK_EQ(MPI_Recv(&x, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
}

/* Without barriers between the tests: those are messages. */
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check_size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check_test = "a_send_fails_on_both_sides";
    a_send_fails_on_both_sides();
    check_test = "others_go_on";
    others_go_on();
    MPI_Finalize();
    return check_failures != 0;
}
