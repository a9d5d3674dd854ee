/* Messages of the endpoints of garonne.h: `api MAP SAMPLES NANOSECONDS WHAT:BYTES...`
 *
 *     pingpong, rate            between ranks 0 and 1 of a job of `garonne run`
 *     pair_pingpong, pair_rate  between this process and one that it makes and that connects by URI
 * A job measures one of the two kinds. A ping-pong counts half round trips; a rate counts messages in windows of 64,
 * each window acknowledged. Prints: sample WHAT BYTES NANOSECONDS HANDOFF_BEFORE HANDOFF_AFTER */
#include "handoff.h"

#include <garonne.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { WINDOW = 64, TAG = 1, CLOSE_MS = 10000 };

static garonne_endpoint *endpoint;
static garonne_connection other;
static uint32_t rank;
static char *out;
/* Messages that have come and were not waited for yet, and the word in the last one. */
static long arrived;
static long word;

static void must(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "api: %s: %s: %s\n", what, strerror(error), garonne_error_text());
        exit(3);
    }
}

static void fail(const char *why)
{
    fprintf(stderr, "api: %s\n", why);
    exit(3);
}

/* Takes one event. Returns whether it is of this kind. */
static int take(int kind)
{
    const garonne_event *event;
    must(garonne_next_event(endpoint, GARONNE_FOREVER, &event), "next event");
    int found = event->kind == kind;
    switch (event->kind) {
    case GARONNE_MESSAGE:
        arrived++;
        if (event->size >= sizeof word)
            memcpy(&word, event->data, sizeof word);
        break;
    case GARONNE_CONNECT_REQUEST:
        must(garonne_accept(endpoint, event->connection, NULL, NULL, 0), "accept");
        break;
    case GARONNE_CONNECTED:
        other = event->connection;
        break;
    case GARONNE_SENT:
        if (event->status)
            fail(event->text);
        break;
    default:
        fail(event->text);
    }
    garonne_event_release(event);
    return found;
}

static void send_one(size_t bytes) { must(garonne_send(endpoint, other, TAG, out, bytes, 0), "send"); }

static void receive(long messages)
{
    for (; messages > 0; messages -= arrived, arrived = 0)
        while (arrived == 0)
            take(GARONNE_MESSAGE);
    arrived = -messages;
}

static void pingpong(size_t bytes, long times)
{
    for (long i = 0; i < times; i += 2) {
        if (rank == 0)
            send_one(bytes);
        receive(1);
        if (rank == 1)
            send_one(bytes);
    }
}

static void rate(size_t bytes, long times)
{
    for (long i = 0; i < times; i += WINDOW) {
        if (rank == 0) {
            for (int w = 0; w < WINDOW; w++)
                send_one(bytes);
            receive(1);
        } else {
            receive(WINDOW);
            send_one(1);
        }
    }
}

/* Both know rank 0's number afterwards. */
static long agreed(long number)
{
    if (rank == 0) {
        must(garonne_send(endpoint, other, TAG, &number, sizeof number, 0), "send");
        receive(1);
        return number;
    }
    receive(1);
    number = word;
    send_one(1);
    return number;
}

static double timed(void (*run)(size_t, long), size_t bytes, long times)
{
    agreed(0);
    double start = now_ns();
    run(bytes, times);
    return now_ns() - start;
}

static void measure(const char *name, size_t bytes, int samples, double wanted_ns, struct handoff *shared)
{
    static uint64_t epoch;
    int is_rate = strstr(name, "rate") != NULL;
    void (*run)(size_t, long) = is_rate ? rate : pingpong;
    long times = is_rate ? WINDOW : 2;
    for (;;) { /* until a sample is long enough; the lesser of two, since the first one warms up */
        double first = timed(run, bytes, times), again = timed(run, bytes, times), took = again < first ? again : first;
        long next = agreed(took >= wanted_ns / 2 ? 0 : times * (took < wanted_ns / 10 ? 4 : 2));
        if (next == 0)
            break;
        times = next;
    }
    for (int i = 0; i < samples; i++) {
        double before = handoff_measure(shared, (int)rank, &epoch);
        double took = timed(run, bytes, times);
        double after = handoff_measure(shared, (int)rank, &epoch);
        if (rank == 0)
            printf("sample %s %zu %.2f %.2f %.2f\n", name, bytes, took / (double)times, before, after);
    }
    fflush(stdout);
}

/* The two ends of a connection by URI: this process listens, and its child connects. */
static pid_t connect_pair(void)
{
    int pipes[2];
    garonne_session_key key;
    char uri[128];
    must(garonne_session_key_generate(&key), "key");
    if (pipe(pipes) != 0)
        fail("no pipe");
    pid_t child = fork();
    if (child < 0)
        fail("no process");
    must(garonne_endpoint_create(&endpoint), "endpoint");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rank = 1;
        if (read(pipes[0], uri, sizeof uri) != sizeof uri)
            exit(3); /* the parent says why */
        must(garonne_connect(endpoint, uri, &key, NULL, NULL, 0, &other), "connect");
    } else {
        must(garonne_listen(endpoint, "garonne://127.0.0.1:0", &key, uri, sizeof uri), "listen");
        if (write(pipes[1], uri, sizeof uri) != sizeof uri)
            fail("the URI could not be told");
    }
    while (!take(GARONNE_CONNECTED))
        ;
    return child;
}

static void connect_ranks(void)
{
    uint32_t size;
    must(garonne_endpoint_join(&endpoint), "join");
    must(garonne_rank(endpoint, &rank, &size), "rank");
    if (size != 2)
        fail("two ranks are needed");
    must(garonne_connect_rank(endpoint, 1 - rank, &other), "connect");
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: api MAP SAMPLES NANOSECONDS WHAT:BYTES...\n");
        return 2;
    }
    size_t largest = sizeof(long);
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        size_t bytes = colon ? strtoull(colon + 1, NULL, 10) : 0;
        if (bytes == 0) {
            fprintf(stderr, "api: '%s' is not WHAT:BYTES\n", argv[i]);
            return 2;
        }
        largest = bytes > largest ? bytes : largest;
    }
    out = calloc(1, largest);
    if (!out)
        fail("no memory");
    pid_t child = -1;
    if (strncmp(argv[4], "pair_", 5) == 0)
        child = connect_pair();
    else
        connect_ranks();
    pin((int)rank);
    struct handoff *shared = handoff_map(argv[1]);
    for (int i = 4; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        *colon = 0;
        measure(argv[i], strtoull(colon + 1, NULL, 10), atoi(argv[2]), atof(argv[3]), shared);
    }
    must(garonne_endpoint_close(endpoint, CLOSE_MS), "close");
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        fail("the other process failed");
    return 0;
}
