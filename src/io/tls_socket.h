/*
 * tls_socket.h - TLS 1.3 between two ranks, straight on a non-blocking socket that is connected.
 *
 * Those who trust each other are a group: by keys that both ends of a connection derive beforehand, with a
 * fresh Diffie-Hellman exchange (psk_dhe_ke), or by certificates of an authority that the job names, which
 * both ends show. There are no tickets, no resumption, no early data, no older version.
 *
 * A write encrypts records of 16 KiB from where the bytes lie, and is as good as sent: what the socket did
 * not take is kept and has to be flushed. A read decrypts one record at a time, so some of one may be left
 * inside, which no poll shows: has_unread tells. A writer changes its keys every 32 GiB. OpenSSL takes and
 * gives back a few bytes of memory for each record; nothing else here allocates after the handshake.
 *
 * Without OpenSSL (tls_socket_none.c) no group can be made, and says so.
 * Thread: any for a group; one at a time per session.
 */
#ifndef DDL_IO_TLS_SOCKET_H
#define DDL_IO_TLS_SOCKET_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    DDL_TLS_KEY_BYTES = 32,
    DDL_TLS_BINDING_BYTES = 32,
    DDL_TLS_PROTOCOL_BYTES = 7,
    DDL_TLS_RECORD_BYTES = 16 << 10,       /* of what is written; on the wire 22 more */
    DDL_TLS_KEYS_PREAUTH_BYTES = 4 << 10,  /* taken in from a peer that is not trusted yet */
    DDL_TLS_CERTS_PREAUTH_BYTES = 32 << 10 /* the same, where certificates come along */
};

/* What a client names in clear as what it wants to speak (ALPN), its length first: "ddl/10". */
extern const uint8_t ddl_tls_protocol[DDL_TLS_PROTOCOL_BYTES];

typedef struct ddl_tls_group_options { /* all NULL: trust is by keys */
    const char *ca_file;               /* the authorities of the job, PEM */
    const char *cert_file;             /* own certificate and chain, PEM, for both roles */
    const char *key_file;              /* its key, PEM; NULL: it is in cert_file too */
    bool openssl_aes;                  /* OpenSSL's own AES, also where another one is faster (tls_aes.h) */
    uint64_t rekey_bytes;              /* of one direction under one key; 0: as above. For tests of less */
} ddl_tls_group_options;

typedef struct ddl_tls_group ddl_tls_group;

/* DDL_ECONFIG: a file cannot be read or is not what it should be. DDL_EAUTH: the own certificate is out of
 * date. DDL_EUNSUPPORTED: a build without TLS. */
DDL_MUST_USE ddl_status ddl_tls_group_create(const ddl_tls_group_options *options, ddl_tls_group **group,
                                             ddl_error *err);
/* After its sessions. NULL is fine. */
void ddl_tls_group_destroy(ddl_tls_group *group);

typedef struct ddl_tls_socket ddl_tls_socket;

typedef struct ddl_tls_socket_options {
    int fd; /* stays the caller's, and open as long as the session */
    bool is_server;
    const char *where; /* the other end, for texts: "10.0.0.1:6379" */
    /* Trust by keys. A client calls by an identity, which travels in clear, and proves that it has its key.
     */
    ddl_view identity, key;
    /* A server finds the key of an identity. False: nobody may call by it. */
    bool (*find_key)(const void *arg, ddl_view identity, uint8_t key[DDL_TLS_KEY_BYTES]);
    const void *arg;
} ddl_tls_socket_options;

DDL_MUST_USE ddl_status ddl_tls_socket_create(const ddl_tls_group *group,
                                              const ddl_tls_socket_options *options, ddl_tls_socket **tls,
                                              ddl_error *err);
/* Says nothing to the peer: frames tell the end of a session. NULL is fine. */
void ddl_tls_socket_destroy(ddl_tls_socket *tls);

/*
 * Go on with the handshake as far as the socket allows; if it is not done, wait until the socket is readable,
 * or writable where something is unsent. DDL_ENETWORK: the connection ended or broke, for whatever reason.
 * DDL_EAUTH: the peer cannot be trusted, or does not trust this end. DDL_EPROTO: that is no TLS 1.3.
 */
DDL_MUST_USE ddl_status ddl_tls_socket_shake(ddl_tls_socket *tls, bool *done, ddl_error *err);

/* Whether the handshake failed as the two ends have different keys. */
bool ddl_tls_socket_other_key(const ddl_tls_socket *tls);

/* Whether it failed by the certificate that a peer showed which speaks ddl. */
bool ddl_tls_socket_bad_certificate(const ddl_tls_socket *tls);

/* The first bytes that came, for who wants to say what it is that answers without TLS. */
ddl_view ddl_tls_socket_first(const ddl_tls_socket *tls);

/* After the handshake: a value that both ends have, and no other two; for proofs that must hold here alone.
 */
DDL_MUST_USE ddl_status ddl_tls_socket_binding(ddl_tls_socket *tls, uint8_t binding[DDL_TLS_BINDING_BYTES],
                                               ddl_error *err);

/* After a handshake with certificates: the peer's must be for one of these names; NULLs are skipped.
 * DDL_EAUTH, with the names that it is for. */
DDL_MUST_USE ddl_status ddl_tls_socket_check_names(const ddl_tls_socket *tls, const char *const names[],
                                                   int count, ddl_error *err);

/* The peer is trusted: what it may send is not limited any more. */
void ddl_tls_socket_trust(ddl_tls_socket *tls);

/* From now on read and write several records at a time, as who moves much does. Whole records may then be
 * unread. False: no memory. */
DDL_MUST_USE bool ddl_tls_socket_hurry(ddl_tls_socket *tls);

/*
 * As ddl_socket_read and ddl_socket_write. errno EBADMSG: the session is broken, as ddl_tls_socket_problem
 * tells; that is so for ever. more: another write follows at once. A write of 0 bytes flushes: it returns 0,
 * or -1 with EAGAIN while something is unsent.
 */
ssize_t ddl_tls_socket_read(ddl_tls_socket *tls, void *data, size_t bytes);
ssize_t ddl_tls_socket_write(ddl_tls_socket *tls, const void *data, size_t bytes, bool more);
const char *ddl_tls_socket_problem(const ddl_tls_socket *tls);

/* Whether bytes wait to be flushed; whether a read would find some without the socket. */
bool ddl_tls_socket_has_unsent(const ddl_tls_socket *tls);
bool ddl_tls_socket_has_unread(const ddl_tls_socket *tls);

#endif
