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

/* Codes of all processes are the same on all ranks, of which only rank 0 gives numbers, programs and infos. */
static void check_codes(int code, const int *codes, int processes, int started)
{
    int class;
    for (int i = 0; i < processes; i++) {
        MPI_Error_class(codes[i], &class);
        CHECK(class == (i < started ? MPI_SUCCESS : MPI_ERR_SPAWN));
    }
    CHECK(codes[processes] == -1);
    MPI_Error_class(code, &class);
    CHECK(class == (started > 0 ? MPI_SUCCESS : MPI_ERR_SPAWN));
}

static void missing(int rank)
{
    MPI_Comm inter;
    char *commands[] = {"/bin/true", "/no/such/program"};
    int codes[6] = {-1, -1, -1, -1, -1, -1}, class, counts[] = {2, 3}, is_root = rank == 0;
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_spawn("/no/such/program", MPI_ARGV_NULL, is_root ? 3 : -7, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    CHECK(inter == MPI_COMM_NULL);
    check_codes(code, codes, 3, 0);
    code = MPI_Comm_spawn_multiple(is_root ? 2 : -7, is_root ? commands : NULL, MPI_ARGVS_NULL, is_root ? counts : NULL, is_root ? infos : NULL, 0, MPI_COMM_WORLD, &inter, codes);
    CHECK(inter == MPI_COMM_NULL);
    check_codes(code, codes, 5, 0);
    code = MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_SPAWN);
    code = MPI_Comm_connect("no port", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_PORT);
    /* Ports at which nobody accepts: of a process that does other things, and of one that is gone. */
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", "1");
    if (is_root)
        MPI_Open_port(MPI_INFO_NULL, port);
    for (int is_open = 1; is_open >= 0; is_open--) {
        code = MPI_Comm_connect(port, is_open ? info : MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_PORT);
        if (is_open && is_root)
            MPI_Close_port(port);
    }
    MPI_Info_free(&info);
}

/* Fewer processes than asked for are enough, and the codes of the others say that they are not there. */
static void soft(char *program, char *mode, int rank)
{
    char *arguments[] = {mode, NULL};
    int codes[5] = {-1, -1, -1, -1, -1}, others;
    MPI_Comm inter;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "soft", "0:3:2,9");
    MPI_Info_set(info, "arch", "any");
    MPI_Info_set(info, "a key that nobody knows", "is ignored");
    int code = MPI_Comm_spawn(program, arguments, rank == 0 ? 4 : 0, info, 0, MPI_COMM_WORLD, &inter, codes);
    check_codes(code, codes, 4, 2);
    MPI_Comm_remote_size(inter, &others);
    CHECK(others == 2);
    MPI_Info_free(&info);
    MPI_Comm_disconnect(&inter);
}

/* Two jobs meet: the name of the port stands in the file PORT_FILE. SERVICE: a name under which it is published. */
static void meet(const char *mode, int rank)
{
    char port[MPI_MAX_PORT_NAME] = "", text[MPI_MAX_ERROR_STRING];
    const char *file = getenv("PORT_FILE"), *service = getenv("SERVICE");
    int accepts = strncmp(mode, "accept", 6) == 0, class, word = rank, others, sum, size, len;
    MPI_Comm inter;
    CHECK(file);
    if (accepts && rank == 0) {
        char unready[4096];
        MPI_Open_port(MPI_INFO_NULL, port);
        if (service)
            MPI_Publish_name(service, MPI_INFO_NULL, port);
        snprintf(unready, sizeof unready, "%s.unready", file);
        FILE *out = fopen(unready, "w");
        CHECK(out && fputs(port, out) >= 0 && fclose(out) == 0 && rename(unready, file) == 0);
    } else if (rank == 0) {
        FILE *in;
        while (!(in = fopen(file, "r")))
            usleep(20000);
        CHECK(fgets(port, sizeof port, in));
        fclose(in);
    }
    if (!accepts && rank == 0 && service) {
        char found[MPI_MAX_PORT_NAME];
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int code = MPI_Lookup_name(service, MPI_INFO_NULL, found);
        MPI_Error_class(code, &class);
        CHECK(class == MPI_SUCCESS || class == MPI_ERR_NAME);
        MPI_Error_string(code, text, &len);
        CHECK(class == MPI_ERR_NAME || strcmp(found, port) == 0);
        puts(class == MPI_SUCCESS ? "the name is found" : text);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    }
    if (accepts)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    talk(inter, accepts);
    MPI_Comm_remote_size(inter, &others);
    MPI_Barrier(inter);
    if (is(mode, "accept-killed") && rank == 0)
        raise(SIGKILL);
    if (is(mode, "accept-left")) {
        MPI_Comm_free(&inter);
    } else if (is(mode, "connect-killed") || is(mode, "connect-left")) {
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        MPI_Error_class(MPI_Recv(&word, 1, MPI_INT, 0, 9, inter, MPI_STATUS_IGNORE), &class);
        CHECK(class == MPI_ERR_PROC_ABORTED);
        MPI_Comm_free(&inter);
    } else if (is(mode, "accept-killed") || is(mode, "connect-fatal")) {
        MPI_Recv(&word, 1, MPI_INT, 0, 9, is(mode, "accept-killed") ? MPI_COMM_WORLD : inter, MPI_STATUS_IGNORE);
    } else {
        MPI_Comm_disconnect(&inter);
    }
    if (is(mode, "accept-gone") && rank == 0)
        raise(SIGKILL);
    if (is(mode, "connect-gone"))
        sleep(1);
    word = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size);
    if (accepts && rank == 0 && service)
        MPI_Unpublish_name(service, MPI_INFO_NULL, port);
}

/* Started where the environment says, and with its other keys. */
static void placed(char *program, char *mode, int rank)
{
    char *arguments[] = {mode, NULL}, *slash = strrchr(program, '/');
    const char *hosts = getenv("SPAWN_HOSTS");
    int codes[4];
    MPI_Comm inter;
    MPI_Info info;
    CHECK(slash);
    *slash = 0;
    MPI_Info_create(&info);
    if (hosts)
        MPI_Info_set(info, "host", hosts);
    MPI_Info_set(info, "wdir", "/");
    MPI_Info_set(info, "path", program);
    MPI_Comm_spawn(slash + 1, arguments, rank == 0 ? 4 : 0, info, 0, MPI_COMM_WORLD, &inter, codes);
    *slash = '/';
    MPI_Info_free(&info);
    talk(inter, 1);
    MPI_Comm_disconnect(&inter);
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
        return missing(rank);
    if (is(mode, "soft"))
        return soft(program, mode, rank);
    if (is(mode, "placed"))
        return placed(program, mode, rank);
    if (strncmp(mode, "accept", 6) == 0 || strncmp(mode, "connect", 7) == 0)
        return meet(mode, rank);
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
    if (is(mode, "talk") || is(mode, "placed"))
        talk(parent, 0);
    if (is(mode, "placed")) {
        char name[MPI_MAX_PROCESSOR_NAME], place[4096];
        int len;
        MPI_Get_processor_name(name, &len);
        printf("started on %s in %s\n", name, getcwd(place, sizeof place));
    }
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
