/*
 * proof.h - the prover that has the job's secret: a key derived from it, in memory that is not dumped.
 *
 * Of the secret itself nothing is kept. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_PROOF_H
#define DDL_RENDEZVOUS_PROOF_H

#include "base/error.h"
#include "protocol/prover.h"

/* source says where the secret came from, for messages; it is copied. level: auth or tls. */
DDL_MUST_USE ddl_status ddl_proof_create(ddl_view secret, const char *source, ddl_security level,
                                         ddl_prover **prover, ddl_error *err);

/* Clears the key. NULL is fine. */
void ddl_proof_destroy(ddl_prover *prover);

#endif
