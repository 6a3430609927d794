/*
 * prover.h - what a rank that knows the job's secret can do and nobody else: the handshake and the stores ask
 * it for proofs, and know neither the secret nor how it is used.
 *
 * A proof is a MAC under a key that follows from the secret, the run and the level of security. What it
 * covers begins with a label of DDL_LABEL_BYTES, a different one for each use and each direction.
 */
#ifndef DDL_PROTOCOL_PROVER_H
#define DDL_PROTOCOL_PROVER_H

#include "base/bytes.h"
#include "protocol/roster.h"

enum { DDL_MAC_BYTES = 32, DDL_LABEL_BYTES = 16 };

/* As they are written on the wire and in stores; the order means nothing. */
typedef enum ddl_security { DDL_SECURITY_OFF = 0, DDL_SECURITY_AUTH = 1, DDL_SECURITY_TLS = 2 } ddl_security;

/* Implementations embed it. Its functions take any number of threads, and do not block. */
typedef struct ddl_prover ddl_prover;
struct ddl_prover {
    /* Where the secret came from, for messages: "the file /home/x/.ddl/secret". */
    const char *source;
    ddl_security level; /* not DDL_SECURITY_OFF */
    /* The proof of these parts, one after the other, for this run. */
    void (*prove)(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, uint8_t mac[DDL_MAC_BYTES]);
    /* Whether mac is that; the time that it takes does not tell how far it is. */
    bool (*check)(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, const uint8_t mac[DDL_MAC_BYTES]);
    /* At level tls: the key of the session that this identity names. */
    void (*key)(const ddl_prover *prover, ddl_view identity, uint8_t key[DDL_MAC_BYTES]);
};

/* Without a prover there is no proof: level off. */
static inline ddl_security ddl_prover_level(const ddl_prover *prover)
{
    return prover != NULL ? prover->level : DDL_SECURITY_OFF;
}

#endif
