/*
 * pair.h - two ranks joined by one socket, or also by lanes, both driven by one thread in turns, so that
 * every order of posting and arriving can be made on purpose.
 */
#ifndef DDL_TESTS_TRANSPORT_PAIR_H
#define DDL_TESTS_TRANSPORT_PAIR_H

#include "base/clock.h"
#include "transport/transport_mesh.h"

enum { PATIENCE_MS = 5000 };

typedef struct side {
    ddl_engine *engine;
    ddl_mesh *mesh;
    ddl_roster *roster;
    ddl_lanes *lanes; /* NULL: frames go over the socket */
    ddl_heap *heap;
    int heard, told, left, lost;
    void (*when_heard)(struct side *me); /* or NULL */
    int fed_by;                          /* for that */
    bool wants_nothing, cancels_nothing;
    bool is_busy;         /* for its engine */
    atomic_bool dozes;    /* since the last sweep */
    int asked_for_more;   /* further connections */
    ddl_status lost_code; /* of a link that carried nonsense, or ended where there are several connections */
    char lost_text[300];
    ddl_notice notice;
} side;

typedef struct message { /* an xfer with its buffer */
    ddl_xfer xfer;
    uint8_t *data;
    bool done;
} message;

/* Of every message here. */
extern const ddl_signature signature;

/* Whether open_pair joins the two by lanes. */
extern bool by_lanes;

/* Whether the two read each other's memory, where their messages may be. */
extern bool pulling;

/* How many further connections open_pair gives the two for stripes, and which these are on each side. */
enum { STREAMS_MOST = 4 };
extern int nstreams;
extern int streams[2][STREAMS_MOST];

/* Whether senders choose how many of them they use; then there is a power of two, and the two have them once
 * they are widened. */
extern bool by_choice;

void make_streams(void);
void widen(const side *me, int rank);

/* Join by lanes, before the sides are opened. */
void join_sides(side pair[2]);
void open_side(side *me, int rank, int socket);
void open_sides(side pair[2], const int sockets[2]);
void open_pair(side pair[2], int sockets[2]);
void close_side(side *me);
void close_pair(side pair[2]);

/* A TCP connection from 127.0.0.1 to this address of this machine. Who accepts has room for so many bytes
 * that are not read, or some more; 0: for as many as is usual. */
void connect_over_tcp(const char *address, int unread, int sockets[2]);

/* Drive both sides until *flag; nothing for PATIENCE_MS fails. */
void drive_until(side pair[2], const bool *flag);
void drive(side pair[2], int turns);

/* Byte i of the message of this sequence. */
uint8_t pattern(uint64_t sequence, size_t i);

/* A message with memory of its own, to be freed. */
void prepare(message *m, int peer, uint64_t sequence, size_t bytes, size_t first_part, bool filled);

/* Have the end of a message set its flag. */
void prepare_done(message *m);

/* A frame about the message of this sequence. */
ddl_frame frame_of(ddl_frame_type type, uint64_t sequence, uint32_t bytes);

/* Post a prepared message, or take it back. */
void post(side *me, message *m, bool sends);
void cancel(side *me, message *m);

/* From rank 0 to rank 1. */
void post_send(side *from, message *m, uint64_t sequence, size_t bytes, size_t first_part);
void post_recv(side *to, message *m, uint64_t sequence, size_t bytes, size_t first_part);
void assert_arrived(const message *m);

/* Drive both sides until a message has left the one and arrived at the other, as it was. */
void deliver(side pair[2], const message *out, const message *in);

#endif
