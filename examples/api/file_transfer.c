/* file_transfer receive DIRECTORY URI KEYFILE: listens, takes one file and writes it to the directory.
 * file_transfer send FILE URI KEYFILE: sends the file, and ends when the other side has all of it.
 *
 * The receiver writes to a file that is renamed when all has come: a sender that dies leaves nothing under the file's name. */
#include "common.h"
#include <sys/stat.h>

/* Tags of messages. */
enum { NAME = 1, DATA = 2, END = 3, DONE = 4 };

#define CHUNK (1 << 20)
/* Chunks under way at once. */
#define WINDOW 8

static uint64_t checksum(uint64_t sum, const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    return sum;
}

/* A name within the directory, and nothing else. */
static int is_plain(const char *name, size_t size) {
    return size > 0 && size < 200 && memchr(name, '/', size) == NULL && memchr(name, 0, size) == NULL && name[0] != '.';
}

static void receive_file(garonne_endpoint *endpoint, const char *directory) {
    char path[4096] = "", part[4200] = "";
    FILE *file = NULL;
    uint64_t sum = 0xcbf29ce484222325, sender_sum;
    for (int over = 0; !over;) {
        const garonne_event *event = next(endpoint);
        if (event->kind == GARONNE_CONNECT_REQUEST) {
            must(garonne_accept(endpoint, event->connection, NULL, NULL, 0), "accept");
        } else if (event->kind == GARONNE_CLOSED) {
            if (part[0] != 0)
                remove(part);
            die("receive", "the sender ended before the end of the file");
        } else if (event->kind == GARONNE_MESSAGE && event->tag == NAME && file == NULL) {
            if (!is_plain(event->data, event->size))
                die("receive", "the sender's name of the file is not a plain one");
            snprintf(path, sizeof path, "%s/%.*s", directory, (int)event->size, (const char *)event->data);
            snprintf(part, sizeof part, "%s.part", path);
            if ((file = fopen(part, "wb")) == NULL)
                die(part, strerror(errno));
        } else if (event->kind == GARONNE_MESSAGE && event->tag == DATA && file != NULL) {
            sum = checksum(sum, event->data, event->size);
            if (fwrite(event->data, 1, event->size, file) != event->size)
                die(part, strerror(errno));
        } else if (event->kind == GARONNE_MESSAGE && event->tag == END && file != NULL && event->size == sizeof sender_sum) {
            memcpy(&sender_sum, event->data, sizeof sender_sum);
            if (sender_sum != sum)
                die("receive", "the file was damaged on its way");
            if (fclose(file) != 0 || rename(part, path) != 0)
                die(path, strerror(errno));
            must(garonne_send(endpoint, event->connection, DONE, NULL, 0, 0), "send");
            over = 1;
        }
        garonne_event_release(event);
    }
    printf("received %s\n", path);
}

static void send_file(garonne_endpoint *endpoint, garonne_connection connection, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    static unsigned char chunk[CHUNK];
    uint64_t sum = 0xcbf29ce484222325;
    int under_way = 0, at_end = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        die(path, strerror(errno));
    must(garonne_send(endpoint, connection, NAME, name, strlen(name), 0), "send");
    under_way++;
    for (int done = 0; !done;) {
        while (!at_end && under_way < WINDOW) {
            size_t size = fread(chunk, 1, sizeof chunk, file);
            if (ferror(file))
                die(path, strerror(errno));
            if (size > 0) {
                sum = checksum(sum, chunk, size);
                must(garonne_send(endpoint, connection, DATA, chunk, size, 0), "send");
            } else {
                must(garonne_send(endpoint, connection, END, &sum, sizeof sum, 0), "send");
                at_end = 1;
            }
            under_way++;
        }
        const garonne_event *event = next(endpoint);
        if (event->kind == GARONNE_SENT && event->status == 0)
            under_way--;
        else if (event->kind == GARONNE_MESSAGE && event->tag == DONE)
            done = 1;
        else
            die("send", event->text);
        garonne_event_release(event);
    }
    fclose(file);
    must(garonne_disconnect(endpoint, connection), "disconnect");
    printf("sent %s\n", path);
}

int main(int argc, char **argv) {
    garonne_endpoint *endpoint;
    must(garonne_endpoint_create(&endpoint), "endpoint");
    if (argc == 5 && strcmp(argv[1], "receive") == 0) {
        listen_at(endpoint, argv[3], argv[4]);
        receive_file(endpoint, argv[2]);
    } else if (argc == 5 && strcmp(argv[1], "send") == 0) {
        send_file(endpoint, connect_to(endpoint, argv[3], argv[4]), argv[2]);
    } else {
        fprintf(stderr, "usage: file_transfer receive DIRECTORY URI KEYFILE | file_transfer send FILE URI KEYFILE\n");
        return 2;
    }
    must(garonne_endpoint_close(endpoint, 10000), "close");
    return 0;
}
