/* One TCP connection between two processes of a host: `virtual_sockets KIND MILLISECONDS`, on plain TCP or with garonne sockets run.
 *
 * `pingpong`: 64 bytes there and back, both sides wait in recv; prints microseconds for a round. `spinning`: the same, both sides look all the time.
 * `slow`: the same with 200 microseconds of computing between rounds, so that both sides sleep; prints microseconds without the computing.
 * `stream`: writes of 128 KB, read as they come; prints gigabytes per second. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 64, LARGE = 128 << 10, PAUSE_NS = 200000 };

static char data[LARGE];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int all(int sock, int flags)
{
    size_t done = 0;
    while (done < SMALL) {
        ssize_t count = recv(sock, data + done, SMALL - done, flags);
        if (count == 0)
            return 0;
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            fail("recv");
        if (count > 0)
            done += count;
    }
    return 1;
}

static void put(int sock)
{
    if (send(sock, data, SMALL, MSG_NOSIGNAL) != SMALL)
        fail("send");
}

static void serve(int sock, const char *kind, int flags)
{
    if (strcmp(kind, "stream") == 0) {
        while (recv(sock, data, LARGE, 0) > 0)
            ;
        return;
    }
    while (all(sock, flags))
        put(sock);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fprintf(stderr, "virtual_sockets KIND MILLISECONDS\n"), 2;
    const char *kind = argv[1];
    const double limit = atof(argv[2]) * 1e6;
    const int flags = strcmp(kind, "spinning") == 0 ? MSG_DONTWAIT : 0, one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), sock;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0)
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    pid_t child = fork();
    if (child == 0) {
        sock = accept(listener, NULL, NULL);
        if (sock < 0)
            fail("accept");
        setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        serve(sock, kind, flags);
        return 0;
    }
    sock = socket(AF_INET, SOCK_STREAM, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *)&address, length) != 0)
        fail("connect");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const int is_slow = strcmp(kind, "slow") == 0;
    double begun = now(), spent = 0, rounds = 0, paused;
    if (strcmp(kind, "stream") == 0) {
        for (; (spent = now() - begun) < limit; rounds++)
            for (size_t done = 0; done < LARGE;) {
                ssize_t count = send(sock, data + done, LARGE - done, MSG_NOSIGNAL);
                if (count < 0)
                    fail("send");
                done += count;
            }
        printf("%.3f\n", rounds * LARGE / spent);
    } else {
        while (now() - begun < limit) {
            if (is_slow)
                for (paused = now(); now() - paused < PAUSE_NS;)
                    ;
            double start = now();
            put(sock);
            if (!all(sock, flags))
                fail("the other side ended");
            spent += now() - start;
            rounds++;
        }
        printf("%.3f\n", spent / rounds / 1e3);
    }
    close(sock);
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
