/*
 * tls.h - TLS 1.3: bytes in, bytes out. No socket and no clock in here; the caller moves the bytes.
 *
 * A party is what one side brings: whom it trusts and, if it has to show one, its certificate. A session is
 * one connection of that party. The peer's certificate must be signed by an authority that the party trusts,
 * be valid today, and name the peer in its subject alternative names; the common name never counts. There
 * are no tickets, no resumption, no early data, no older version.
 * Without OpenSSL (tls_none.c) no party can be made, and says so.
 * Thread: any for a party; one at a time per session.
 */
#ifndef DDL_IO_TLS_H
#define DDL_IO_TLS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ddl_tls_options {
    bool is_server;
    bool asks_peer;        /* a server: the client has to show a certificate too; a client always asks */
    const char *ca_file;   /* authorities, PEM; NULL: those of the system */
    const char *cert_file; /* own certificate and chain, PEM; NULL: none, which is for clients only */
    const char *key_file;  /* its key, PEM; NULL: it is in cert_file too */
} ddl_tls_options;

typedef struct ddl_tls_party ddl_tls_party;

/* DDL_ECONFIG: a file cannot be read or is not what it should be. DDL_EUNSUPPORTED: a build without TLS. */
DDL_MUST_USE ddl_status ddl_tls_party_create(const ddl_tls_options *options, ddl_tls_party **party,
                                             ddl_error *err);
void ddl_tls_party_destroy(ddl_tls_party *party);

typedef struct ddl_tls ddl_tls;

/*
 * Begin a session. peer_name is the host name or numeric address that the peer's certificate has to hold;
 * NULL only for a server that does not ask. where names the peer in texts: "10.0.0.1:6379".
 */
DDL_MUST_USE ddl_status ddl_tls_create(ddl_tls_party *party, const char *peer_name, const char *where,
                                       ddl_tls **tls, ddl_error *err);
void ddl_tls_destroy(ddl_tls *tls);

/* Take in bytes from the peer. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_tls_feed(ddl_tls *tls, const void *data, size_t bytes, ddl_error *err);

/* Take out up to bytes for the peer; 0: there are none. Call after each of the calls below, also one that
 * failed: the peer is told why. */
size_t ddl_tls_output(ddl_tls *tls, void *data, size_t bytes);

/*
 * Go on with the handshake, as far as what was fed allows. DDL_EAUTH: the peer's certificate does not do, as
 * the text tells with the wanted and the seen name or date. DDL_EPROTO: that is no TLS 1.3, or the peer
 * refuses.
 */
DDL_MUST_USE ddl_status ddl_tls_shake(ddl_tls *tls, bool *done, ddl_error *err);

/* After the handshake. Encrypt all of it. */
DDL_MUST_USE ddl_status ddl_tls_write(ddl_tls *tls, const void *data, size_t bytes, ddl_error *err);

/* Decrypt up to bytes of what was fed; *count is 0 while there is no whole record. *ended: no more will come.
 */
DDL_MUST_USE ddl_status ddl_tls_read(ddl_tls *tls, void *data, size_t bytes, size_t *count, bool *ended,
                                     ddl_error *err);

/* Say goodbye. */
void ddl_tls_end(ddl_tls *tls);

#endif
