/*
 * encryption.h - TLS between the ranks of a job: by which key or certificate, and whose it has to be.
 *
 * Keys are the default. Each connection has one of its own, derived from the job's secret and the identity by
 * which its client calls: purpose, run (zero where a store's client does not know it yet), a fresh nonce, and
 * both ranks with their roles. So a key is used by one client and one server, who never swap roles (RFC
 * 9257), for one connection. With certificates both ends show one, which must name its host or, if the job
 * has a name, its rank. Either way the hello that follows inside proves the secret, and is bound to the
 * session. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_ENCRYPTION_H
#define DDL_RENDEZVOUS_ENCRYPTION_H

#include "io/address.h"
#include "io/wire.h"
#include "protocol/hello.h"

typedef struct ddl_encryption_options { /* "" or NULL: none */
    const char *ca_file, *cert_file, *key_file;
    const char *job; /* certificates are to name ranks, as ddl://JOB/RANK, instead of hosts */
    bool openssl_aes;
} ddl_encryption_options;

typedef struct ddl_encryption ddl_encryption;

/* The prover, at level tls, must outlive it. DDL_ECONFIG: files. DDL_EAUTH: the own certificate is out of
 * date. DDL_EUNSUPPORTED: a build without TLS. */
DDL_MUST_USE ddl_status ddl_encryption_create(const ddl_encryption_options *options, const ddl_prover *prover,
                                              ddl_encryption **encryption, ddl_error *err);
/* After all its sessions. NULL is fine. */
void ddl_encryption_destroy(ddl_encryption *encryption);

/* As the client self, who knows its peer, its channel and its nonce, begin a session on a connection. */
DDL_MUST_USE ddl_status ddl_encryption_call(const ddl_encryption *encryption, const ddl_hello_party *self,
                                            const char *where, ddl_wire *wire, ddl_error *err);

/* Where ranks are answered; has to stay while they shake hands. */
typedef struct ddl_encryption_door {
    const ddl_encryption *encryption; /* NULL: nothing is encrypted */
    ddl_hello_channel channel;
    int rank;
} ddl_encryption_door;

enum { DDL_ENCRYPTION_CALL_BYTES = 512 }; /* the first message of a rank is smaller */

/* Whether a connection that begins so is to be TLS; and whether it is a rank that calls, for doors that do
 * not encrypt. */
bool ddl_encryption_begins(uint8_t first);
bool ddl_encryption_is_call(ddl_view first);

/* As the server begin a session on a connection; false: no session can be had. */
DDL_MUST_USE bool ddl_encryption_answer(const ddl_encryption_door *door, const char *where, ddl_wire *wire);

/*
 * Go on with the handshake; once it is done, the hello may follow, and is bound. rank is the own one.
 * DDL_ENETWORK: the connection ended or broke, and another attempt may do. DDL_EAUTH, DDL_EPROTO: it would
 * not.
 */
DDL_MUST_USE ddl_status ddl_encryption_shake(const ddl_encryption *encryption, int rank, bool is_server,
                                             ddl_wire *wire, ddl_hello *hello, bool *done, ddl_error *err);

/* Whether the handshake failed as the peer, which is a rank of some job, showed a certificate that will not
 * do.
 */
bool ddl_encryption_bad_certificate(const ddl_wire *wire);

/* Whether the peer's certificate, if there are any, is that of this rank, or of its host, known by its name
 * and its address; either may be NULL. DDL_EAUTH. */
DDL_MUST_USE ddl_status ddl_encryption_check_peer(const ddl_encryption *encryption, const ddl_wire *wire,
                                                  int rank, const char *host, const ddl_address *address,
                                                  ddl_error *err);

/* The peer has proved what it had to. */
void ddl_encryption_trust(ddl_wire *wire);

#endif
