/* What the examples of garonne.h share: keys in files, and errors that end the program. */
#include <errno.h>
#include <fcntl.h>
#include <garonne.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void must(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, garonne_error_text());
        exit(1);
    }
}

static inline void die(const char *what, const char *text) {
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

/* Draws a key, and writes it to a new file that nobody else may read. */
static inline garonne_session_key new_key(const char *path) {
    garonne_session_key key;
    char text[GARONNE_KEY_TEXT];
    must(garonne_session_key_generate(&key), "a new key");
    must(garonne_session_key_to_text(&key, text), "a new key");
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0 || write(file, text, sizeof text - 1) != (ssize_t)(sizeof text - 1) || close(file) != 0)
        die(path, strerror(errno));
    return key;
}

static inline garonne_session_key read_key(const char *path) {
    garonne_session_key key;
    char text[GARONNE_KEY_TEXT] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        die(path, "no key");
    fclose(file);
    must(garonne_session_key_from_text(text, &key), path);
    return key;
}

/* Waits for an event. */
static inline const garonne_event *next(garonne_endpoint *endpoint) {
    const garonne_event *event;
    must(garonne_next_event(endpoint, GARONNE_FOREVER, &event), "next event");
    return event;
}

/* Connects, and returns when the connection stands. */
static inline garonne_connection connect_to(garonne_endpoint *endpoint, const char *uri, const char *key_file) {
    garonne_session_key key = read_key(key_file);
    garonne_connection connection;
    must(garonne_connect(endpoint, uri, &key, NULL, NULL, 0, &connection), "connect");
    const garonne_event *event = next(endpoint);
    if (event->kind != GARONNE_CONNECTED)
        die("connect", event->text);
    garonne_event_release(event);
    return connection;
}

/* Listens with a new key, and says where. */
static inline void listen_at(garonne_endpoint *endpoint, const char *uri, const char *key_file) {
    garonne_session_key key = new_key(key_file);
    char at[128];
    must(garonne_listen(endpoint, uri, &key, at, sizeof at), "listen");
    printf("listening at %s\n", at);
    fflush(stdout);
}
