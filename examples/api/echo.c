/* echo serve URI KEYFILE [CLIENTS]: listens, writes a new key to the file, and sends back what comes, until so many clients have left.
 * echo call URI KEYFILE WORD...: sends each word and prints what comes back. */
#include "common.h"

static int serve(garonne_endpoint *endpoint, long clients) {
    while (clients > 0) {
        const garonne_event *event = next(endpoint);
        switch (event->kind) {
        case GARONNE_CONNECT_REQUEST:
            /* A caller that is gone meanwhile is no reason to end. */
            if (garonne_accept(endpoint, event->connection, NULL, NULL, 0) != 0)
                fprintf(stderr, "%s\n", garonne_error_text());
            break;
        case GARONNE_MESSAGE:
            if (garonne_send(endpoint, event->connection, event->tag, event->data, event->size, 0) != 0)
                fprintf(stderr, "%s\n", garonne_error_text());
            break;
        case GARONNE_CLOSED:
            printf("a client %s\n", event->cause == GARONNE_PEER_LEFT ? "has left" : "was lost");
            fflush(stdout);
            clients--;
            break;
        }
        garonne_event_release(event);
    }
    return 0;
}

static int call(garonne_endpoint *endpoint, garonne_connection connection, char **words, int count) {
    for (int i = 0; i < count; i++)
        must(garonne_send(endpoint, connection, (uint32_t)i, words[i], strlen(words[i]), 0), "send");
    for (int came = 0; came < count;) {
        const garonne_event *event = next(endpoint);
        if (event->kind == GARONNE_CLOSED)
            die("call", event->text);
        if (event->kind == GARONNE_MESSAGE) {
            printf("%u: %.*s\n", event->tag, (int)event->size, (const char *)event->data);
            came++;
        }
        garonne_event_release(event);
    }
    must(garonne_disconnect(endpoint, connection), "disconnect");
    return 0;
}

int main(int argc, char **argv) {
    garonne_endpoint *endpoint;
    int code;
    must(garonne_endpoint_create(&endpoint), "endpoint");
    if (argc >= 4 && strcmp(argv[1], "serve") == 0) {
        listen_at(endpoint, argv[2], argv[3]);
        code = serve(endpoint, argc > 4 ? atol(argv[4]) : 1);
    } else if (argc >= 5 && strcmp(argv[1], "call") == 0) {
        code = call(endpoint, connect_to(endpoint, argv[2], argv[3]), argv + 4, argc - 4);
    } else {
        fprintf(stderr, "usage: echo serve URI KEYFILE [CLIENTS] | echo call URI KEYFILE WORD...\n");
        return 2;
    }
    must(garonne_endpoint_close(endpoint, 10000), "close");
    return code;
}
