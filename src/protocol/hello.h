/*
 * hello.h - the handshake that opens every connection of ddl, to the store and between ranks.
 *
 * Pure: bytes in, bytes out; the caller moves them and keeps the time. The client speaks first:
 *
 *     client -> server   who I am, whom I expect, which run             DDL_HELLO_CLIENT_BYTES
 *     server -> client   who I am, which run this is, what I think      DDL_HELLO_SERVER_BYTES
 *     client -> server   whether I stay                                 DDL_HELLO_FINISH_BYTES
 *
 * The second and third message prove that their senders know the job's secret: a MAC over everything that was
 * said before, whose label tells the directions apart. Fresh nonces of both sides make each one of its kind.
 * Whoever cannot prove it learns nothing but that; what else does not fit (size, version, rank) is told, and
 * acted on, only under the MAC. A side asks for exactly the bytes that it needs next, so nothing behind the
 * handshake is consumed.
 *
 * At level tls all of this goes through a TLS session, and the MACs also cover its binding, a value that only
 * its two ends have: who carries the hello of others into a session of his own gains nothing.
 */
#ifndef DDL_PROTOCOL_HELLO_H
#define DDL_PROTOCOL_HELLO_H

#include "base/bytes.h"
#include "base/error.h"
#include "protocol/prover.h"
#include "protocol/roster.h"

enum {
    DDL_HELLO_VERSION = 10,      /* raised with anything that ranks say to each other, or in stores */
    DDL_HELLO_PREFIX_BYTES = 12, /* of the same form in every version */
    DDL_NONCE_BYTES = 16,
    DDL_HELLO_CLIENT_BYTES = 132,
    DDL_HELLO_SERVER_BYTES = 164,
    DDL_HELLO_FINISH_BYTES = 36,
    DDL_HELLO_BINDING_BYTES = 32,
    DDL_HELLO_REASON_TEXT = 400,
    DDL_HELLO_LIBRARY_TEXT = 20
};

/* What who hears that secrets differ is to do. */
#define DDL_HELLO_SAME_SECRET                                                                     \
    "start all ranks by one ddl-launch (nodes with one --rdzv_id), or give all the same secret: " \
    "DDL_SECRET_FILE, or ~/.ddl/secret of rank 0's host carried to the others"

/* What a connection is for. */
typedef enum ddl_hello_channel { DDL_HELLO_FOR_STORE = 1, DDL_HELLO_FOR_MESH = 2 } ddl_hello_channel;

/* X(verdict, status, what it means): the one byte in which a side says why it refuses. */
#define DDL_HELLO_VERDICTS(X)                                                                             \
    X(DDL_HELLO_WELCOME, DDL_OK, "accepted")                                                              \
    X(DDL_HELLO_NOT_DDL, DDL_EPROTO, "these bytes are not ddl's")                                         \
    X(DDL_HELLO_OTHER_VERSION, DDL_EPROTO, "another version of the protocol")                             \
    X(DDL_HELLO_OTHER_GENERATOR, DDL_EPROTO, "another version of the algorithms")                         \
    X(DDL_HELLO_OTHER_CHANNEL, DDL_EPROTO, "this port serves something else")                             \
    X(DDL_HELLO_OTHER_RUN, DDL_EAUTH, "belongs to another run")                                           \
    X(DDL_HELLO_OTHER_SIZE, DDL_ECONFIG, "another world size")                                            \
    X(DDL_HELLO_BAD_RANK, DDL_ECONFIG, "no such rank")                                                    \
    X(DDL_HELLO_OTHER_RANK, DDL_EPROTO, "another rank is here")                                           \
    X(DDL_HELLO_TAKEN, DDL_ECONFIG, "that rank is here already")                                          \
    X(DDL_HELLO_OTHER_LEVEL, DDL_EAUTH, "another level of security")                                      \
    X(DDL_HELLO_NOT_PROVEN, DDL_EAUTH, "it could not prove that it belongs to this job")                  \
    X(DDL_HELLO_OTHER_NAME, DDL_EAUTH,                                                                    \
      "the certificate of this rank is for another host or rank: that of DDL_TLS_CERT has to name, as a " \
      "subject alternative name, this host or the address from which it calls, or with DDL_TLS_JOB "      \
      "ddl://JOB/RANK; the output of who refused it has both names")                                      \
    X(DDL_HELLO_BAD_STREAM, DDL_EPROTO, "no such connection between these ranks")

typedef enum ddl_hello_verdict {
#define X(verdict, status, meaning) verdict,
    DDL_HELLO_VERDICTS(X)
#undef X
        DDL_HELLO_VERDICT_COUNT
} ddl_hello_verdict;

/* What one side says of itself. */
typedef struct ddl_hello_party {
    ddl_hello_channel channel;
    uint32_t generator;               /* version of the schedule generator */
    uint32_t library;                 /* version of the library, by ddl_hello_library: for messages alone */
    uint8_t run_id[DDL_RUN_ID_BYTES]; /* all zero on a store's client that does not know it yet */
    uint8_t nonce[DDL_NONCE_BYTES];
    int rank, nranks;
    int peer;    /* rank that a client expects to meet */
    int stream;  /* of a mesh's client: which of its connections to that rank this is, from 0 */
    int32_t pid; /* pid and host: for messages, and to know a caller again, whose rank is its alone by then;
                    those of a server are known once it has proved itself */
    char host[DDL_HOST_TEXT];
    ddl_security level;       /* of a peer, as it says; the own one follows from prover */
    const ddl_prover *prover; /* of this side; NULL: level off */
} ddl_hello_party;

typedef enum ddl_hello_state {
    DDL_HELLO_TALKING,  /* move bytes */
    DDL_HELLO_JUDGING,  /* server: what the client says fits, though it is not proved; the owner calls
                           ddl_hello_judge */
    DDL_HELLO_ACCEPTED, /* both agree, once the output is sent */
    DDL_HELLO_REFUSED   /* verdict and reason say why; send the output, then close */
} ddl_hello_state;

/* Embedded by its owner; under 4 KiB. */
typedef struct ddl_hello {
    ddl_hello_state state;
    bool is_server;
    int stage;
    ddl_hello_party self, peer; /* peer: valid from DDL_HELLO_JUDGING on */
    ddl_hello_verdict verdict;
    unsigned peer_version; /* of the protocol; 0: not known yet, or it only asks */
    unsigned mark;         /* server: its owner's, to find again what it saw when it judged */
    char reason[DDL_HELLO_REASON_TEXT];
    size_t in_bytes, in_wanted, out_bytes, out_sent;
    uint8_t in[DDL_HELLO_SERVER_BYTES];
    uint8_t out[DDL_HELLO_CLIENT_BYTES + DDL_HELLO_FINISH_BYTES];
    uint8_t said[DDL_HELLO_CLIENT_BYTES + DDL_HELLO_SERVER_BYTES]; /* the first two messages */
    bool is_bound;                                                 /* to a TLS session */
    uint8_t binding[DDL_HELLO_BINDING_BYTES];
} ddl_hello;

/* major.minor.patch, each at most 255, as a party tells it. */
uint32_t ddl_hello_library(int major, int minor, int patch);
const char *ddl_hello_library_text(uint32_t library, char text[DDL_HELLO_LIBRARY_TEXT]);

void ddl_hello_start_client(ddl_hello *hello, const ddl_hello_party *self);
void ddl_hello_start_server(ddl_hello *hello, const ddl_hello_party *self);

/* Before the first byte is fed: the hello goes through this TLS session. At level tls a server refuses one
 * that does not. */
void ddl_hello_bind(ddl_hello *hello, const uint8_t binding[DDL_HELLO_BINDING_BYTES]);

/* Bytes to be read now, at most; 0 while there are none to wait for. */
size_t ddl_hello_wants(const ddl_hello *hello);

/* Take in bytes read; count is at most what was wanted. */
void ddl_hello_feed(ddl_hello *hello, const void *data, size_t count);

/* Bytes to be sent now, and that count of them were. */
ddl_view ddl_hello_output(const ddl_hello *hello);
void ddl_hello_sent(ddl_hello *hello, size_t count);

/*
 * Server, in DDL_HELLO_JUDGING: let the client in, or say why not. It may turn out not to belong to the job,
 * so nobody may be any worse off for it yet.
 */
void ddl_hello_judge(ddl_hello *hello, ddl_hello_verdict verdict);

/* Server, before anything is fed: a rank calls in TLS, at a door that does not encrypt; it is told so. */
void ddl_hello_refuse_tls(ddl_hello *hello);

/* The server's checks alone, for stores without connections: DDL_HELLO_WELCOME, or why not, with a reason. */
ddl_hello_verdict ddl_hello_check(const ddl_hello_party *client, const ddl_hello_party *server,
                                  char reason[DDL_HELLO_REASON_TEXT]);

/* The error that a refused handshake comes to. where names the other end's address. */
ddl_status ddl_hello_fail(const ddl_hello *hello, const char *where, ddl_error *err);

ddl_status ddl_hello_verdict_status(ddl_hello_verdict verdict);

/* Whether nobody can go on once a rank of this job was refused for that: it will not come in any other way.
 */
bool ddl_hello_ends_run(ddl_hello_verdict verdict);

/* What a stranger may ask without alarming anybody: a hello of version 0, which no server takes, and each
 * answers with one whose first bytes tell its level. */
void ddl_hello_question(uint8_t question[DDL_HELLO_PREFIX_BYTES]);

/* Whether these are the first bytes of a hello, and then the level of security that they tell; needs
 * DDL_HELLO_PREFIX_BYTES. */
bool ddl_hello_tells_level(ddl_view first, ddl_security *level);

/* "auth"; of a level that is not known here "unknown". */
const char *ddl_security_name(ddl_security level);

/* Make text from outside fit to be logged: anything but printable ASCII becomes '?'. */
void ddl_hello_clean(char *text);

#endif
