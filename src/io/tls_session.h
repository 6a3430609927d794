/*
 * tls_session.h - groups and sessions of tls_socket.h, as its files share them.
 *
 * A group does not change once it is made. Thread: any for a group; one at a time per session.
 */
#ifndef DDL_IO_TLS_SESSION_H
#define DDL_IO_TLS_SESSION_H

#include "io/address.h"
#include "io/tls_pipe.h"

enum { DDL_TLS_IDENTITY_LIMIT = 96 };

struct ddl_tls_group {
    SSL_CTX *inner;
    BIO_METHOD *bio;
    bool by_certificate;
    uint64_t rekey_bytes;
    char ca[200], certificate[200]; /* for texts */
};

struct ddl_tls_socket {
    SSL *inner;
    const ddl_tls_group *group;
    bool is_server;
    bool done; /* with the handshake */
    bool other_key, bad_certificate;
    bool calls_by_key;                        /* a client, where certificates are asked for */
    uint64_t under_key;                       /* written */
    uint8_t identity[DDL_TLS_IDENTITY_LIMIT]; /* of a client */
    size_t identity_bytes;
    uint8_t key[DDL_TLS_KEY_BYTES]; /* until the handshake is done */
    bool (*find_key)(const void *arg, ddl_view identity, uint8_t key[DDL_TLS_KEY_BYTES]);
    const void *arg;
    char where[DDL_ADDRESS_FULL_TEXT];
    char problem[DDL_CERTIFICATE_PROBLEM_TEXT]; /* with the peer, in words; "" if there is none */
    ddl_tls_pipe pipe;                          /* the last: what is behind its first_ahead holds no secret */
};

/* ---- tls_explain.c: what went wrong ---- */

/* The session is broken: put into words, once, what OpenSSL says of the call that has just failed. */
ddl_status ddl_tls_explain(ddl_tls_socket *tls);

#endif
