/* key_value serve URI KEYFILE [CLIENTS]: keeps values for names, until so many clients have left.
 * key_value put URI KEYFILE NAME VALUE
 * key_value get URI KEYFILE NAME: asks where the value lies, and reads it from the server's memory.
 *
 * Values lie in one region, which clients may read and nobody but the server writes. */
#include "common.h"

/* Tags of messages: the region's key, a name with a zero and a value, a name, a place, and that a value is kept or not. */
enum { KEY = 1, PUT = 2, FIND = 3, PLACE = 4, KEPT = 5, FULL = 6 };

#define REGION (1 << 20)
#define NAMES 1000

struct place {
    uint64_t offset, size;
};
static const uint64_t nowhere = UINT64_MAX;

static struct {
    char *name;
    struct place place;
} names[NAMES];
static int count;
static uint64_t end;

static struct place *find(const char *name, size_t size) {
    for (int i = 0; i < count; i++)
        if (strlen(names[i].name) == size && memcmp(names[i].name, name, size) == 0)
            return &names[i].place;
    return NULL;
}

/* Keeps a value behind all others: who reads the old one meanwhile gets the old one. */
static int keep(unsigned char *memory, const char *name, size_t name_size, const void *value, size_t size) {
    struct place *place = find(name, name_size);
    if (size > REGION - end || (place == NULL && count == NAMES))
        return 0;
    if (place == NULL) {
        names[count].name = strndup(name, name_size);
        place = &names[count++].place;
    }
    memcpy(memory + end, value, size);
    *place = (struct place){end, size};
    end += size;
    return 1;
}

static int serve(garonne_endpoint *endpoint, long clients) {
    garonne_region region;
    garonne_region_key key;
    unsigned char *memory;
    must(garonne_region_create(endpoint, REGION, &region, (void **)&memory), "region");
    while (clients > 0) {
        const garonne_event *event = next(endpoint);
        const char *text = event->data, *zero;
        int error = 0;
        switch (event->kind) {
        case GARONNE_CONNECT_REQUEST:
            error = garonne_accept(endpoint, event->connection, NULL, NULL, 0);
            break;
        case GARONNE_CONNECTED:
            error = garonne_expose(endpoint, event->connection, region, GARONNE_READ, &key);
            if (error == 0)
                error = garonne_send(endpoint, event->connection, KEY, key.bytes, key.size, 0);
            break;
        case GARONNE_MESSAGE:
            if (event->tag == PUT && (zero = memchr(text, 0, event->size)) != NULL) {
                size_t name = (size_t)(zero - text);
                int kept = keep(memory, text, name, zero + 1, event->size - name - 1);
                error = garonne_send(endpoint, event->connection, kept ? KEPT : FULL, NULL, 0, 0);
            } else if (event->tag == FIND) {
                struct place *found = find(text, event->size), answer = found ? *found : (struct place){nowhere, 0};
                error = garonne_send(endpoint, event->connection, PLACE, &answer, sizeof answer, 0);
            } else {
                error = garonne_disconnect(endpoint, event->connection);
            }
            break;
        case GARONNE_CLOSED:
            clients--;
            break;
        }
        /* A client that is gone is no reason to end. */
        if (error != 0)
            fprintf(stderr, "%s\n", garonne_error_text());
        garonne_event_release(event);
    }
    return 0;
}

/* The next event of this kind; a message has this tag, too. */
static const garonne_event *wait_for(garonne_endpoint *endpoint, int kind, uint32_t tag) {
    for (;;) {
        const garonne_event *event = next(endpoint);
        if (event->kind == kind && (kind != GARONNE_MESSAGE || event->tag == tag))
            return event;
        if (event->kind == GARONNE_CLOSED || event->kind == GARONNE_MESSAGE)
            die("key_value", event->kind == GARONNE_CLOSED ? event->text : "the server is full");
        garonne_event_release(event);
    }
}

static int put(garonne_endpoint *endpoint, garonne_connection connection, const char *name, const char *value) {
    size_t size = strlen(name) + 1 + strlen(value);
    char *both = malloc(size + 1);
    strcpy(both, name);
    strcpy(both + strlen(name) + 1, value);
    must(garonne_send(endpoint, connection, PUT, both, size, 0), "send");
    free(both);
    garonne_event_release(wait_for(endpoint, GARONNE_MESSAGE, KEPT));
    return 0;
}

static int get(garonne_endpoint *endpoint, garonne_connection connection, const garonne_region_key *key, const char *name) {
    struct place place = {nowhere, 0};
    must(garonne_send(endpoint, connection, FIND, name, strlen(name), 0), "send");
    const garonne_event *event = wait_for(endpoint, GARONNE_MESSAGE, PLACE);
    if (event->size == sizeof place)
        memcpy(&place, event->data, sizeof place);
    garonne_event_release(event);
    if (place.offset == nowhere) {
        printf("there is no %s\n", name);
        return 1;
    }
    must(garonne_get(endpoint, connection, key, place.offset, place.size, 0, NULL), "get");
    event = wait_for(endpoint, GARONNE_ACCESS_DONE, 0);
    if (event->status != 0)
        die("get", event->text);
    printf("%s = %.*s\n", name, (int)event->size, (const char *)event->data);
    garonne_event_release(event);
    return 0;
}

int main(int argc, char **argv) {
    garonne_endpoint *endpoint;
    int code, puts = argc == 6 && strcmp(argv[1], "put") == 0, gets = argc == 5 && strcmp(argv[1], "get") == 0;
    must(garonne_endpoint_create(&endpoint), "endpoint");
    if (argc >= 4 && strcmp(argv[1], "serve") == 0) {
        listen_at(endpoint, argv[2], argv[3]);
        code = serve(endpoint, argc > 4 ? atol(argv[4]) : 1);
    } else if (puts || gets) {
        garonne_connection connection = connect_to(endpoint, argv[2], argv[3]);
        garonne_region_key key = {0, {0}};
        const garonne_event *event = wait_for(endpoint, GARONNE_MESSAGE, KEY);
        if (event->size > sizeof key.bytes)
            die("key_value", "the server's key is too long");
        key.size = event->size;
        memcpy(key.bytes, event->data, event->size);
        garonne_event_release(event);
        code = puts ? put(endpoint, connection, argv[4], argv[5]) : get(endpoint, connection, &key, argv[4]);
    } else {
        fprintf(stderr, "usage: key_value serve URI KEYFILE [CLIENTS] | put URI KEYFILE NAME VALUE | get URI KEYFILE NAME\n");
        return 2;
    }
    must(garonne_endpoint_close(endpoint, 10000), "close");
    return code;
}
