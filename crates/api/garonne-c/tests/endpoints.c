/* Calls every function of garonne.h: two endpoints in one process, driven in turn, and what is refused. */
#include <errno.h>
#include <garonne.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, garonne_error_text());                                              \
            exit(1);                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

static garonne_endpoint *ends[2];
static const garonne_event *early[2];

/* The next event of either endpoint; both are looked at, so that both make progress. */
static const garonne_event *next(int which) {
    const garonne_event *event = early[which], *kept = NULL;
    early[which] = NULL;
    if (event != NULL)
        return event;
    for (int looks = 0; looks < 60000; looks++) {
        CHECK(garonne_next_event(ends[which], 1, &event) == 0);
        if (event != NULL)
            return event;
        /* The other endpoint makes progress, too; an event that comes there is kept. */
        if (early[!which] == NULL) {
            CHECK(garonne_next_event(ends[!which], 0, &kept) == 0);
            if (kept != NULL && kept->kind == GARONNE_SENT) {
                CHECK(kept->status == 0);
                garonne_event_release(kept);
            } else {
                early[!which] = kept;
            }
        }
    }
    fprintf(stderr, "nothing came\n");
    exit(1);
}

/* The next event of this kind; ends of sends are passed over. */
static const garonne_event *next_of(int which, int kind) {
    for (;;) {
        const garonne_event *event = next(which);
        if (event->kind == kind)
            return event;
        if (event->kind != GARONNE_SENT)
            fprintf(stderr, "kind %d instead of %d: %s\n", event->kind, kind, event->text);
        CHECK(event->kind == GARONNE_SENT && event->status == 0);
        garonne_event_release(event);
    }
}

int main(void) {
    garonne_session_key key, again;
    char text[GARONNE_KEY_TEXT], uri[128];
    garonne_connection called, rejected;
    const garonne_event *event, *kept;
    garonne_attributes attributes = {GARONNE_RELIABLE, 2000};
    char bytes[2001] = "what was said";
    int descriptor = -1;

    CHECK(garonne_endpoint_create(&ends[0]) == 0 && garonne_endpoint_create(&ends[1]) == 0);
    CHECK(garonne_session_key_generate(&key) == 0);
    CHECK(garonne_session_key_to_text(&key, text) == 0 && strlen(text) == 64);
    CHECK(garonne_session_key_from_text(text, &again) == 0 && memcmp(&key, &again, sizeof key) == 0);
    CHECK(garonne_endpoint_descriptor(ends[0], &descriptor) == 0 && descriptor >= 0);
    CHECK(poll(&(struct pollfd){descriptor, POLLIN, 0}, 1, 0) == 0);

    /* What is refused. */
    CHECK(garonne_session_key_from_text("12", &again) == EINVAL && strstr(garonne_error_text(), "G0401") != NULL);
    CHECK(garonne_listen(NULL, "garonne://127.0.0.1:0", &key, NULL, 0) == EINVAL);
    CHECK(garonne_listen(ends[0], NULL, &key, NULL, 0) == EINVAL);
    CHECK(garonne_listen(ends[0], "http://127.0.0.1:0", &key, NULL, 0) == EINVAL);
    CHECK(garonne_listen(ends[0], "garonne://127.0.0.1:0", &key, uri, 4) == ERANGE);
    CHECK(garonne_send(ends[0], 77, 0, "x", 1, 0) == EINVAL && garonne_send(ends[0], 77, 0, NULL, 1, 0) == EINVAL);
    CHECK(garonne_next_event(ends[0], 0, NULL) == EINVAL && garonne_disconnect(ends[0], 1) == EINVAL);
    CHECK(garonne_accept(ends[0], 1, NULL, NULL, 0) == EINVAL && garonne_reject(ends[0], 1) == EINVAL);
    CHECK(garonne_endpoint_create(NULL) == EINVAL && garonne_endpoint_close(NULL, 0) == EINVAL);
    garonne_event_release(NULL);

    CHECK(garonne_listen(ends[0], "garonne://127.0.0.1:0", &key, uri, sizeof uri) == 0);
    garonne_attributes lossy = {GARONNE_DATAGRAM, 0}, none = {9, 0};
    CHECK(garonne_connect(ends[1], uri, &key, &lossy, NULL, 0, &called) == EINVAL && strstr(garonne_error_text(), "Datagram") != NULL);
    CHECK(garonne_connect(ends[1], uri, &key, &none, NULL, 0, &called) == EINVAL);

    /* One caller is sent away, one is taken. */
    CHECK(garonne_connect(ends[1], uri, &key, NULL, "first", 5, &rejected) == 0);
    event = next_of(0, GARONNE_CONNECT_REQUEST);
    CHECK(event->size == 5 && memcmp(event->data, "first", 5) == 0 && event->delivery == GARONNE_RELIABLE_ORDERED);
    CHECK(garonne_reject(ends[0], event->connection) == 0);
    garonne_event_release(event);
    event = next_of(1, GARONNE_CONNECT_FAILED);
    CHECK(event->connection == rejected && event->status == ECONNRESET && strstr(event->text, "rejected") != NULL);
    garonne_event_release(event);

    CHECK(garonne_connect(ends[1], uri, &key, &attributes, NULL, 0, &called) == 0);
    event = next_of(0, GARONNE_CONNECT_REQUEST);
    CHECK(event->delivery == GARONNE_RELIABLE);
    garonne_connection taken = event->connection;
    CHECK(garonne_accept(ends[0], taken, &attributes, "come in", 7) == 0);
    garonne_event_release(event);
    event = next_of(1, GARONNE_CONNECTED);
    CHECK(event->connection == called && event->size == 7 && memcmp(event->data, "come in", 7) == 0);
    garonne_event_release(event);

    CHECK(garonne_send(ends[1], called, 5, bytes, sizeof bytes, 1) == EINVAL);
    CHECK(garonne_send(ends[1], called, 0x80000000, bytes, 1, 1) == EINVAL);
    CHECK(garonne_send(ends[1], called, 5, bytes, 2000, 11) == 0 && garonne_send(ends[1], called, 6, NULL, 0, 12) == 0);
    garonne_event_release(next_of(0, GARONNE_CONNECTED));
    kept = next_of(0, GARONNE_MESSAGE);
    event = next_of(0, GARONNE_MESSAGE);
    CHECK(event->tag == 6 && event->size == 0);
    garonne_event_release(event);

    /* Remote memory: the side that accepted offers it. */
    garonne_region region;
    garonne_region_key region_key, none_key = {1000, {0}};
    garonne_notice notice = {99};
    unsigned char *memory;
    CHECK(garonne_region_create(ends[0], 0, &region, (void **)&memory) == EINVAL);
    CHECK(garonne_region_create(ends[0], 4096, &region, (void **)&memory) == 0 && memory[4095] == 0);
    CHECK(garonne_expose(ends[0], taken, region, 7, &region_key) == EINVAL && garonne_expose(ends[0], taken, 12345, GARONNE_ALL, &region_key) == EINVAL);
    CHECK(garonne_expose(ends[0], taken, region, GARONNE_ALL, &region_key) == 0 && region_key.size <= GARONNE_REGION_KEY_MAX);
    CHECK(garonne_region_remove(ends[0], region) == EINVAL);
    CHECK(garonne_put(ends[1], called, &none_key, 0, "x", 1, 1, NULL) == EINVAL);
    CHECK(garonne_put(ends[1], called, &region_key, 4090, "too long", 8, 1, NULL) == EINVAL);
    CHECK(garonne_put(ends[1], called, &region_key, 100, "from afar", 9, 21, &notice) == 0 && garonne_fence(ends[1], called, 22) == 0);
    event = next_of(0, GARONNE_NOTIFIED);
    CHECK(event->connection == taken && event->number == 99 && memcmp(memory + 100, "from afar", 9) == 0);
    garonne_event_release(event);
    for (uint64_t context = 21; context <= 22; context++) {
        event = next_of(1, GARONNE_ACCESS_DONE);
        CHECK(event->context == context && event->status == 0);
        garonne_event_release(event);
    }
    CHECK(garonne_get(ends[1], called, &region_key, 105, 4, 23, NULL) == 0);
    event = next_of(1, GARONNE_ACCESS_DONE);
    CHECK(event->context == 23 && event->size == 4 && memcmp(event->data, "afar", 4) == 0);
    garonne_event_release(event);
    CHECK(garonne_fetch_add(ends[1], called, &region_key, 0, 5, 24, NULL) == 0);
    event = next_of(1, GARONNE_ACCESS_DONE);
    CHECK(event->context == 24 && event->size == 8 && *(uint64_t *)memory == 5);
    garonne_event_release(event);
    CHECK(garonne_withdraw(ends[0], taken, region) == 0);
    event = next_of(0, GARONNE_WITHDRAWN);
    CHECK(event->number == region);
    garonne_event_release(event);
    CHECK(garonne_region_remove(ends[0], region) == 0 && garonne_withdraw(ends[0], taken, region) == EINVAL);

    CHECK(garonne_disconnect(ends[1], called) == 0 && garonne_disconnect(ends[1], called) == 0);
    event = next_of(0, GARONNE_CLOSED);
    CHECK(event->connection == taken && event->cause == GARONNE_PEER_LEFT && event->status == 0);
    garonne_event_release(event);
    event = next_of(1, GARONNE_CLOSED);
    CHECK(event->connection == called && event->cause == GARONNE_CLOSED_HERE);
    garonne_event_release(event);

    CHECK(garonne_endpoint_close(ends[0], 1000) == 0 && garonne_endpoint_close(ends[1], 1000) == 0);
    /* A message is kept as long as the program likes. */
    CHECK(kept->tag == 5 && kept->size == 2000 && memcmp(kept->data, bytes, 2000) == 0);
    garonne_event_release(kept);

    /* Nobody launched this process: a job of one. */
    garonne_endpoint *alone;
    uint32_t rank = 9, size = 9;
    CHECK(garonne_endpoint_create(&alone) == 0 && garonne_rank(alone, &rank, &size) == EINVAL && garonne_endpoint_close(alone, 0) == 0);
    CHECK(garonne_endpoint_join(&alone) == 0 && garonne_rank(alone, &rank, &size) == 0 && rank == 0 && size == 1);
    CHECK(garonne_connect_rank(alone, 0, &called) == EINVAL && garonne_connect_rank(alone, 1, &called) == EINVAL);
    CHECK(garonne_endpoint_join(&ends[0]) == EINVAL && garonne_endpoint_close(alone, 1000) == 0);
    printf("all is well\n");
    return 0;
}
