/* Strategies of Garonne's optimisation window as modules: when small messages leave, in which order, and how large data are split over networks.
 *
 * A module is a shared library that exports one object, garonne_strategy_v1, and is named by GARONNE_STRATEGY=/path/to/it.so. Every rank of the job loads it once and
 * never unloads it. `garonne strategy FILE` examines one; docs/user/networks.md explains.
 *
 * Functions are pure: the same question gets the same answer, on every rank and at any time. They keep nothing between calls, change nothing that they are shown, call no MPI, do not
 * block, and may be called by several threads at once; other threads of the rank may wait meanwhile, so an answer should take less than a microsecond or so. Pointers that they
 * are given are valid until they return. Answers are checked: those that are not allowed are counted (`garonne why gate RANK`) and the built-in strategy
 * decides instead. A bad strategy is slow, never wrong; one that crashes or does not return takes its rank along. */
#ifndef GARONNE_STRATEGY_H
#define GARONNE_STRATEGY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GARONNE_STRATEGY_VERSION 1u

/* What functions return. Anything else is not allowed. */
enum {
    GARONNE_YOURS = -1,  /* the built-in strategy may decide */
    GARONNE_DECIDED = 0, /* order, piece: the answer is written. may_wait: the message leaves now, with all that waits */
    GARONNE_WAIT = 1     /* may_wait: the message may wait. piece: nothing more before a piece that was asked for has come */
};

/* A message of at most 16384 bytes that is sent now to a rank of another host, and could wait for others to leave in one write. Not asked about: what is urgent, and what fills 64 KB of
 * waiting messages. What waits leaves when the rank looks at its connections, in every call that waits or tests, or after a millisecond at most. */
struct garonne_message {
    uint32_t peer;        /* to which rank, by its number in the job */
    uint32_t context;     /* its communicator: messages of one communicator and kind have one context */
    int32_t tag;
    uint32_t since_look;  /* messages to this peer since the rank looked at its connections, without this one */
    uint32_t last_series; /* how many there were between the two looks before */
    uint32_t alike;       /* how many series in a row had that length */
    uint32_t backoff;     /* messages that the built-in strategy would have leave at once, since some waited in vain */
    uint32_t reserved;    /* 0 */
    uint64_t bytes;       /* its length */
    uint64_t waiting;     /* bytes that wait for this peer, this message included */
};

/* A message that waits in the window of a peer. */
struct garonne_chunk {
    uint64_t bytes;   /* its length */
    uint32_t context; /* as above */
    int32_t tag;
};

/* The oldest messages for a peer that takes no more at the moment, on this host or another: 2 to 64 of them, of more than one context. */
struct garonne_window {
    const struct garonne_chunk *chunks; /* from the oldest on */
    uint32_t count;                     /* of chunks */
    uint32_t peer;                      /* for which rank */
    uint32_t envelopes;                 /* so many messages may leave now, at most */
    uint32_t reserved;                  /* 0 */
    uint64_t payload;                   /* bytes that may leave with them; what is longer is announced, and fetched by the peer */
};

/* A way of large data: a connection on one network. */
struct garonne_way {
    double rate;      /* bytes that it moves in a microsecond; above 0 */
    double latency;   /* microseconds from a request to its first byte */
    uint64_t backlog; /* bytes that it was asked for and has not brought */
    uint64_t most;    /* bytes of a piece on it at most; the least counts if it is more */
    uint32_t asked;   /* pieces that it was asked for and has not brought */
    uint32_t room;    /* pieces that it may be asked for now */
};

/* Large data (512 KB and more in all) that are to be read from a peer, where there is more than one network to it. */
struct garonne_flow {
    const struct garonne_way *ways;
    uint32_t count;  /* of ways, at most 4. At least one has room */
    uint32_t peer;   /* from which rank */
    uint64_t left;   /* bytes that nobody was asked for */
    uint64_t least;  /* bytes of a piece at least. Data that are not split have a least that is all of them */
};

/* The next piece of large data. A length outside its bounds is brought within them. */
struct garonne_piece {
    uint32_t way;      /* 0 to count - 1; it has room */
    uint32_t reserved; /* ignored */
    uint64_t bytes;
};

/* What a module exports. A function that is NULL is not asked: the built-in strategy decides. */
struct garonne_strategy {
    uint32_t version; /* GARONNE_STRATEGY_VERSION */
    uint32_t size;    /* sizeof(struct garonne_strategy) */
    const char *name; /* for people; may be NULL */

    /* Whether a message may wait: GARONNE_DECIDED, GARONNE_WAIT or GARONNE_YOURS. */
    int (*may_wait)(const struct garonne_message *message);

    /* Writes the places 0 to count - 1, each once, in the order in which the messages are to leave. Messages of one context keep their order. The oldest (place 0) must not
     * be put off for ever: the strategy is asked again each time that some have left. GARONNE_DECIDED or GARONNE_YOURS. */
    int (*order)(const struct garonne_window *window, uint32_t *places);

    /* Writes the next piece and its way: GARONNE_DECIDED, GARONNE_WAIT (only while some way has been asked for something) or GARONNE_YOURS. */
    int (*piece)(const struct garonne_flow *flow, struct garonne_piece *piece);
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct garonne_strategy garonne_strategy_v1;

#ifdef __cplusplus
}
#endif

#endif
