/*
 * tls_pipe.h - the socket under a TLS session, as OpenSSL reads and writes it.
 *
 * A BIO of our own: it keeps what a full socket does not take, reads ahead, and takes only so much of a peer
 * that is not trusted yet. For the files of tls_socket.h. One thread at a time per session.
 */
#ifndef DDL_IO_TLS_PIPE_H
#define DDL_IO_TLS_PIPE_H

#include "io/tls_certificate.h"
#include "io/tls_socket.h"

#include <openssl/ssl.h>

enum {
    DDL_TLS_RECORD_HEADER = 5,
    DDL_TLS_MESSAGE_HEADER = 4,
    DDL_TLS_FIRST_BYTES = 12,
    /* One record as large as they get, and a change of keys or an alert before and behind it. */
    DDL_TLS_UNSENT_BYTES = DDL_TLS_RECORD_BYTES + 1024
};

/* Where in the records and handshake messages that come in clear a peer is that is not trusted. */
struct ddl_tls_clear_text {
    uint8_t record[DDL_TLS_RECORD_HEADER], message[DDL_TLS_MESSAGE_HEADER];
    size_t record_have, message_have;
    size_t record_left, message_left; /* behind a header that is whole */
};

typedef struct ddl_tls_pipe {
    int fd;
    bool ended;   /* the peer has closed */
    bool blocked; /* the last read found nothing */
    bool more;    /* to be written at once: the kernel may wait for it to fill a segment */
    bool stuck;   /* the socket has not taken all that it was given */
    int read_errno, write_errno;
    uint64_t taken_in, limit; /* bytes from the peer; limit: until it is trusted, then 0 */
    struct ddl_tls_clear_text clear;
    uint8_t first[DDL_TLS_FIRST_BYTES]; /* that came */
    size_t ahead_from, ahead_to, ahead_room;
    uint8_t *ahead; /* of the next records, what came along with one */
    size_t unsent_from, unsent_to, unsent_room;
    uint8_t *unsent;                            /* what the socket has not taken, or is not given yet */
    char *problem;                              /* of the session: what is wrong with who sends too much */
    uint8_t first_ahead[DDL_TLS_RECORD_HEADER]; /* from here on all is encrypted */
    uint8_t first_unsent[DDL_TLS_UNSENT_BYTES];
} ddl_tls_pipe;

/* problem has room for DDL_CERTIFICATE_PROBLEM_TEXT and stays where it is, as does pipe. */
void ddl_tls_pipe_init(ddl_tls_pipe *pipe, int fd, uint64_t limit, char *problem);
void ddl_tls_pipe_fini(ddl_tls_pipe *pipe);

/* What sessions of a group have in common of their pipes. NULL: no memory. */
BIO_METHOD *ddl_tls_pipe_method(void);

/* Let inner read and write by it. False: no memory. */
bool ddl_tls_pipe_connect(ddl_tls_pipe *pipe, const BIO_METHOD *method, SSL *inner);

/* Send what is unsent, as far as the socket goes. */
void ddl_tls_pipe_flush(ddl_tls_pipe *pipe);

/* From now on read and write several records at a time. False: no memory. */
bool ddl_tls_pipe_hurry(ddl_tls_pipe *pipe);

static inline bool ddl_tls_pipe_has_unsent(const ddl_tls_pipe *pipe)
{
    return pipe->unsent_from < pipe->unsent_to;
}

/* More of a record was read ahead than its header. */
static inline bool ddl_tls_pipe_has_unread(const ddl_tls_pipe *pipe)
{
    return pipe->ahead_to - pipe->ahead_from > DDL_TLS_RECORD_HEADER;
}

#endif
