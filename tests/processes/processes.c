/* Processes that start while a program runs: one mode a run, named by the first argument.
   A started process gets the same argument, and plays its own part in the mode. */

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <dirent.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);                \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                        \
        }                                                                                        \
    } while (0)

static char large[1 << 20];

static int is(const char *mode, const char *name) { return strcmp(mode, name) == 0; }

static MPI_Comm start(char *program, char *mode, int processes)
{
    char *arguments[] = {mode, NULL};
    int codes[16];
    MPI_Comm inter;
    memset(codes, -1, sizeof codes);
    MPI_Comm_spawn(program, arguments, processes, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    for (int i = 0; i < processes; i++)
        CHECK(codes[i] == MPI_SUCCESS);
    return inter;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

/* Both sides exchange small and large messages, then sum in the merged communicator. */
static void talk(MPI_Comm inter, int is_parent)
{
    int rank, others, sum, size, one = 1;
    MPI_Comm merged;
    MPI_Comm_rank(inter, &rank);
    MPI_Comm_remote_size(inter, &others);
    if (is_parent && rank == 0) {
        memset(large, 5, sizeof large);
        for (int to = 0; to < others; to++)
            MPI_Send(large, sizeof large, MPI_CHAR, to, 1, inter);
    } else if (!is_parent) {
        MPI_Recv(large, sizeof large, MPI_CHAR, 0, 1, inter, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < sizeof large; i++)
            CHECK(large[i] == 5);
    }
    MPI_Intercomm_merge(inter, !is_parent, &merged);
    MPI_Comm_size(merged, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
    CHECK(sum == size);
    MPI_Comm_disconnect(&merged);
}

static void missing(void)
{
    MPI_Comm inter;
    int codes[3] = {-1, -1, -1}, class;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_spawn("/no/such/program", MPI_ARGV_NULL, 3, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_SPAWN && inter == MPI_COMM_NULL);
    for (int i = 0; i < 3; i++) {
        MPI_Error_class(codes[i], &class);
        CHECK(class == MPI_ERR_SPAWN);
    }
    code = MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_SPAWN);
    code = MPI_Comm_connect("no port", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_PORT);
}

static void repeat(char *program, char *mode, int times)
{
    int before = 0;
    for (int i = 0; i < times; i++) {
        MPI_Comm inter = start(program, mode, 1);
        MPI_Comm_disconnect(&inter);
        if (i == times / 4)
            before = open_descriptors();
    }
    /* The thread that watches sockets may have started since, with three of its own. */
    CHECK(open_descriptors() <= before + 3);
}

/* Even and odd ranks connect to each other again and again. */
static void ports(int rank, int times)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("a service of this test", MPI_INFO_NULL, port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Lookup_name("a service of this test", MPI_INFO_NULL, port);
    for (int i = 0; i < times; i++) {
        if (rank % 2)
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
        else
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
        MPI_Barrier(inter);
        MPI_Comm_disconnect(&inter);
    }
    if (rank == 0) {
        MPI_Unpublish_name("a service of this test", MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
    MPI_Comm_free(&half);
}

/* Ranks 0 and 1 join over a socket; descriptors that are none, or whose other side says something else, are errors. */
static void join(int rank)
{
    MPI_Comm inter;
    int fd = socket(AF_INET, SOCK_STREAM, 0), class, other = -1, pair[2];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (rank == 0) {
        CHECK(bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 1) == 0);
        CHECK(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    }
    MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        int listener = fd;
        fd = accept(listener, NULL, NULL);
        close(listener);
    } else {
        CHECK(connect(fd, (struct sockaddr *)&address, len) == 0);
    }
    MPI_Comm_join(fd, &inter);
    MPI_Sendrecv(&rank, 1, MPI_INT, 0, 0, &other, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
    CHECK(other == 1 - rank);
    MPI_Comm_disconnect(&inter);
    /* The socket is the program's own again. */
    CHECK(write(fd, &rank, sizeof rank) == sizeof rank && read(fd, &other, sizeof other) == sizeof other);
    CHECK(other == 1 - rank);
    close(fd);

    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[1], "not what MPI says", 17) == 17);
    int bad[] = {-1, 999, pair[0]};
    for (int i = 0; i < 3; i++) {
        MPI_Error_class(MPI_Comm_join(bad[i], &inter), &class);
        CHECK(class == MPI_ERR_OTHER && inter == MPI_COMM_NULL);
    }
    close(pair[1]);
    CHECK(MPI_Comm_join(pair[0], &inter) != MPI_SUCCESS);
}

static void as_parent(char *program, char *mode, int rank)
{
    if (is(mode, "missing"))
        return missing();
    if (is(mode, "repeat"))
        return repeat(program, mode, 20);
    if (is(mode, "repeat-long"))
        return repeat(program, mode, 200);
    if (is(mode, "ports"))
        return ports(rank, 50);
    if (is(mode, "join"))
        return join(rank);
    MPI_Comm inter = start(program, mode, is(mode, "talk") ? 4 : 1);
    if (is(mode, "talk"))
        talk(inter, 1);
    if (is(mode, "parent-killed"))
        raise(SIGKILL);
    if (is(mode, "child-killed")) {
        int word, class;
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        int code = MPI_Recv(&word, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_PROC_ABORTED);
        MPI_Comm_free(&inter);
        return;
    }
    MPI_Comm_disconnect(&inter);
}

static void as_child(MPI_Comm parent, char *mode)
{
    int word;
    if (is(mode, "talk"))
        talk(parent, 0);
    if (is(mode, "child-killed"))
        raise(SIGKILL);
    if (is(mode, "parent-killed"))
        MPI_Recv(&word, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE);
    MPI_Comm_disconnect(&parent);
    if (is(mode, "late")) {
        sleep(1);
        puts("the started process ends last");
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    char *mode = argv[argc - 1];
    if (parent == MPI_COMM_NULL)
        as_parent(argv[0], mode, rank);
    else
        as_child(parent, mode);
    MPI_Finalize();
    if (parent == MPI_COMM_NULL && rank == 0)
        puts("the first world is done");
    return 0;
}
