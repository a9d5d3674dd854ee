/* Messages between processes, without MPI and without a launcher: endpoints with event queues.
 *
 * Functions return 0 or an error number of errno.h; garonne_error_text says then in words what went wrong in the calling thread. An endpoint
 * may be used by several threads at once. Messages move while some thread is inside a call. docs/user/api.md explains, with programs.
 * Link with `pkg-config --cflags --libs libgaronne`. */
#ifndef GARONNE_H
#define GARONNE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that a connect request or its answer may carry. */
#define GARONNE_CONNECT_DATA_MAX 1024
/* Bytes of a key as text, with the zero at its end. */
#define GARONNE_KEY_TEXT 65
/* Bytes of a region's key, at most. */
#define GARONNE_REGION_KEY_MAX 128
/* A wait without end. */
#define GARONNE_FOREVER (-1)

typedef struct garonne_endpoint garonne_endpoint;
/* Name of a connection of one endpoint. Names are never used again; 0 is none. */
typedef uint64_t garonne_connection;
/* What the two ends of a connection both know. Not for arguments or the environment, which others may read. */
typedef struct garonne_session_key { unsigned char bytes[32]; } garonne_session_key;

enum garonne_delivery {
    GARONNE_RELIABLE_ORDERED = 0,
    GARONNE_RELIABLE = 1,
    /* Not there yet: refused with EINVAL. */
    GARONNE_DATAGRAM = 2
};

typedef struct garonne_attributes {
    int delivery;
    /* Longest message that this side takes; 0: 256 MB. */
    uint64_t message_max;
} garonne_attributes;

enum garonne_event_kind {
    /* A process that knows the key asks for a connection; data: its bytes. Answer with garonne_accept or garonne_reject. */
    GARONNE_CONNECT_REQUEST = 1,
    /* A connection stands; data: bytes of the side that accepted. */
    GARONNE_CONNECTED = 2,
    /* A connection that this side asked for did not come to be: status, text. */
    GARONNE_CONNECT_FAILED = 3,
    /* A message: tag, data. */
    GARONNE_MESSAGE = 4,
    /* A send is over: context, status, text. */
    GARONNE_SENT = 5,
    /* A connection is over: cause, status, text. Nothing of it follows. */
    GARONNE_CLOSED = 6,
    /* A put, get, fetch-add or fence is over: context, status, text; data: what was read, or the 8 bytes of the old value. */
    GARONNE_ACCESS_DONE = 7,
    /* The peer has done an access to this side's memory and wants it known; number. */
    GARONNE_NOTIFIED = 8,
    /* A region is closed to a peer: nothing of the peer's touches it any more; number: the region. */
    GARONNE_WITHDRAWN = 9
};

enum garonne_close_cause {
    /* This side closed it, and all that it sent has arrived. */
    GARONNE_CLOSED_HERE = 1,
    /* The other side closed it. All that it sent before was delivered. */
    GARONNE_PEER_LEFT = 2,
    /* The other process died, cannot be reached any more, or broke the rules. */
    GARONNE_PEER_LOST = 3
};

/* An event. All it points to is lent to the program until garonne_event_release: a message may be kept as long as it is needed. */
typedef struct garonne_event {
    int kind;
    garonne_connection connection;
    uint32_t tag;
    /* Of a send, as it was given. */
    uint64_t context;
    /* 0, or an error number. */
    int status;
    /* Of GARONNE_CONNECT_REQUEST: enum garonne_delivery. */
    int delivery;
    /* Of GARONNE_CLOSED: enum garonne_close_cause. */
    int cause;
    /* Of GARONNE_NOTIFIED and GARONNE_WITHDRAWN. */
    uint64_t number;
    const void *data;
    size_t size;
    /* What went wrong, or "". */
    const char *text;
} garonne_event;

int garonne_endpoint_create(garonne_endpoint **endpoint);
/* An endpoint of the rank that this process is in a job of `garonne run`. A process joins once, and not beside MPI. */
int garonne_endpoint_join(garonne_endpoint **endpoint);
int garonne_rank(garonne_endpoint *endpoint, uint32_t *rank, uint32_t *size);
/* The connection to a rank of the job, which stands at once; GARONNE_CONNECTED comes as well, at the other rank with the first message. */
int garonne_connect_rank(garonne_endpoint *endpoint, uint32_t rank, garonne_connection *connection);
/* Closes all connections and waits until what was sent has arrived, at most so many milliseconds. The endpoint is gone in any case; events
 * that were not taken are lost. ETIMEDOUT: something had not arrived. No other thread uses the endpoint meanwhile or afterwards. */
int garonne_endpoint_close(garonne_endpoint *endpoint, int milliseconds);
/* A descriptor that is readable when garonne_next_event may have something. Call garonne_next_event with 0 until it gives none, then poll.
 * The descriptor belongs to the endpoint: it is neither read nor closed. */
int garonne_endpoint_descriptor(garonne_endpoint *endpoint, int *descriptor);

int garonne_session_key_generate(garonne_session_key *key);
/* 64 hexadecimal digits. */
int garonne_session_key_from_text(const char *text, garonne_session_key *key);
int garonne_session_key_to_text(const garonne_session_key *key, char text[GARONNE_KEY_TEXT]);

/* Listens at garonne://HOST:PORT for processes with this key; port 0: the system chooses one. The URI with the port goes to `actual`, of
 * `size` bytes (NULL: it is not wanted); ERANGE: it does not fit, and nothing listens. */
int garonne_listen(garonne_endpoint *endpoint, const char *uri, const garonne_session_key *key, char *actual, size_t size);
/* Begins to connect. Ends with GARONNE_CONNECTED or GARONNE_CONNECT_FAILED. attributes may be NULL: reliable and ordered. */
int garonne_connect(garonne_endpoint *endpoint, const char *uri, const garonne_session_key *key, const garonne_attributes *attributes,
                    const void *data, size_t size, garonne_connection *connection);
int garonne_accept(garonne_endpoint *endpoint, garonne_connection connection, const garonne_attributes *attributes, const void *data,
                   size_t size);
int garonne_reject(garonne_endpoint *endpoint, garonne_connection connection);

/* Starts to send a message, whose bytes are copied. Tags go to 2147483647. Ends with GARONNE_SENT. */
int garonne_send(garonne_endpoint *endpoint, garonne_connection connection, uint32_t tag, const void *data, size_t size, uint64_t context);
/* Closes a connection: what was sent still leaves. Ends with GARONNE_CLOSED. */
int garonne_disconnect(garonne_endpoint *endpoint, garonne_connection connection);

/* Remote memory. A region is memory of this endpoint, all zeros in the beginning, that peers with a key read and write. The key goes to the peer
 * in a message: `size` bytes of `bytes`. */
typedef uint64_t garonne_region;
typedef struct garonne_region_key {
    size_t size;
    unsigned char bytes[GARONNE_REGION_KEY_MAX];
} garonne_region_key;
enum garonne_rights { GARONNE_READ = 1, GARONNE_WRITE = 2, GARONNE_ALL = 3 };
/* With `notify` the peer gets GARONNE_NOTIFIED with this number when the access is done. */
typedef struct garonne_notice { uint64_t number; } garonne_notice;

int garonne_region_create(garonne_endpoint *endpoint, size_t size, garonne_region *region, void **memory);
/* EINVAL: a peer has a key of it. */
int garonne_region_remove(garonne_endpoint *endpoint, garonne_region region);
int garonne_expose(garonne_endpoint *endpoint, garonne_connection connection, garonne_region region, int rights, garonne_region_key *key);
/* Ends with GARONNE_WITHDRAWN. The end of the connection withdraws, too. */
int garonne_withdraw(garonne_endpoint *endpoint, garonne_connection connection, garonne_region region);
/* Each ends with GARONNE_ACCESS_DONE when it is done at the peer. Written bytes are copied. `notify` may be NULL. */
int garonne_put(garonne_endpoint *endpoint, garonne_connection connection, const garonne_region_key *key, uint64_t offset, const void *data,
                size_t size, uint64_t context, const garonne_notice *notify);
int garonne_get(garonne_endpoint *endpoint, garonne_connection connection, const garonne_region_key *key, uint64_t offset, size_t size,
                uint64_t context, const garonne_notice *notify);
/* Adds to the word of 64 bits at an offset that is a multiple of 8, in one atomic step. */
int garonne_fetch_add(garonne_endpoint *endpoint, garonne_connection connection, const garonne_region_key *key, uint64_t offset,
                      uint64_t value, uint64_t context, const garonne_notice *notify);
/* Over when all accesses that were started before on the connection are. */
int garonne_fence(garonne_endpoint *endpoint, garonne_connection connection, uint64_t context);

/* The next event; waits for it at most so many milliseconds. *event is NULL if none came in time. */
int garonne_next_event(garonne_endpoint *endpoint, int milliseconds, const garonne_event **event);
/* Gives an event and its memory back. NULL is allowed. */
void garonne_event_release(const garonne_event *event);

/* Words for the last error of the calling thread, with a code for `garonne explain`. Valid until the thread's next call. */
const char *garonne_error_text(void);

#ifdef __cplusplus
}
#endif
#endif
