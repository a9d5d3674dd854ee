/* What TCP, or Ethernet frames, give between two hosts, with nothing above them: `sockets MAP SAMPLES NANOSECONDS RANK ADDRESS PORT WHAT:NUMBER:BYTES...`
 *
 * Rank 0 listens on ADDRESS, rank 1 calls it. An ADDRESS of the form INTERFACE/aa:bb:cc:dd:ee:ff names the own interface and the other one's address: then both send and take
 * frames as long as the interface's MTU by packet sockets (packets.h). Both look for data all the time and never sleep, as the MPIs' ranks do while they wait.
 * `pingpong` and `stream` are measured as by flows.c, and printed alike; `cpu` is what a message of such a stream takes of the sender's processor and of the receiver's,
 * where both sleep as long as they have nothing to do, printed as `put` and `get`. */
#include "handoff.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int rank, sock, flags = MSG_DONTWAIT, by_frames;
/* As in flows.c: what leaves and what comes lie apart, so that caches have as much to do. */
static char *out, *in;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

#include "packets.h"

static void put(size_t bytes)
{
    if (by_frames) {
        put_frames(out, bytes);
        return;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t sent = send(sock, out + done, bytes - done, MSG_NOSIGNAL | flags);
        if (sent < 0 && errno != EAGAIN)
            fail("send");
        done += sent > 0 ? (size_t)sent : 0;
    }
}

static void get_into(char *place, size_t bytes)
{
    if (by_frames) {
        get_frames(place, bytes);
        return;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t got = recv(sock, place + done, bytes - done, flags);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            fail("recv");
        done += got > 0 ? (size_t)got : 0;
    }
}

static void get(size_t bytes)
{
    get_into(in, bytes);
}

static double pingpong(int number, int bytes, long times)
{
    (void)number;
    double start = now_ns();
    for (long i = 0; i < times; i++) {
        if (rank == 0)
            put((size_t)bytes);
        get((size_t)bytes);
        if (rank == 1)
            put((size_t)bytes);
    }
    return (now_ns() - start) / (double)(2 * times);
}

static double stream(int number, int bytes, long times)
{
    double start = now_ns();
    for (long i = 0; i < times; i++) {
        for (int w = 0; w < number; w++)
            rank == 0 ? put((size_t)bytes) : get_into(in + (size_t)w * (size_t)bytes, (size_t)bytes);
        rank == 0 ? get(1) : put(1);
    }
    return (now_ns() - start) / (double)(number * times);
}

static double processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double cpu(int number, int bytes, long times)
{
    double own = processor_ns();
    flags = 0;
    stream(number, bytes, times);
    own = processor_ns() - own;
    flags = MSG_DONTWAIT;
    return own / (double)(number * times);
}

static void connect_both(const char *address, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, address, &at.sin_addr);
    if (rank == 0) {
        setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(door, (struct sockaddr *)&at, sizeof at) != 0 || listen(door, 1) != 0)
            fail("listen");
        sock = accept(door, NULL, NULL);
    } else {
        sock = door;
        for (int i = 0; connect(sock, (struct sockaddr *)&at, sizeof at) != 0; i++) {
            if (i == 1000)
                fail("connect");
            usleep(5000);
            close(sock);
            sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        }
    }
    if (sock < 0)
        fail("accept");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Both learn rank 0's number of rounds. */
static long agreed(long times)
{
    memcpy(out, &times, sizeof times);
    rank == 0 ? put(sizeof times) : get(sizeof times);
    if (rank != 0)
        memcpy(&times, in, sizeof times);
    return times;
}

int main(int argc, char **argv)
{
    static uint64_t epoch;
    if (argc < 8) {
        fprintf(stderr, "usage: sockets MAP SAMPLES NANOSECONDS RANK ADDRESS PORT WHAT:NUMBER:BYTES...\n");
        return 2;
    }
    rank = atoi(argv[4]);
    pin(rank);
    struct handoff *shared = handoff_map(argv[1]);
    by_frames = strchr(argv[5], '/') != NULL;
    if (by_frames)
        open_frames(argv[5]);
    else
        connect_both(argv[5], atoi(argv[6]));
    for (int i = 7; i < argc; i++) {
        char *name = strtok(argv[i], ":"), *numbers = strtok(NULL, ":"), *sizes = strtok(NULL, ":");
        if (!name || !numbers || !sizes)
            return 2;
        int number = atoi(numbers), bytes = atoi(sizes);
        double (*run)(int, int, long) = strcmp(name, "stream") == 0 ? stream : strcmp(name, "cpu") == 0 ? cpu : pingpong;
        size_t room = (size_t)bytes * (size_t)(run == pingpong || number < 1 ? 1 : number) + sizeof(long);
        out = calloc(1, room), in = calloc(1, room);
        if (!out || !in)
            fail("memory");
        memset(out, 1, room), memset(in, 1, room);
        long times = 1;
        for (;;) {
            double start = now_ns();
            run(number, bytes, times);
            double took = now_ns() - start;
            long next = agreed(took >= atof(argv[3]) / 2 ? 0 : times * (took < atof(argv[3]) / 10 ? 4 : 2));
            if (next == 0)
                break;
            times = next;
        }
        for (int s = 0; s < atoi(argv[2]); s++) {
            double before = handoff_measure(shared, rank, &epoch);
            double each = run(number, bytes, times);
            double after = handoff_measure(shared, rank, &epoch);
            if (rank == 0 || run == cpu)
                printf("sample %s %d %d %.2f %.2f %.2f\n", run != cpu ? name : rank == 0 ? "put" : "get", number, bytes, each, before, after);
        }
        free(out), free(in);
    }
    return 0;
}
