/*
 * seal.h - values that carry the proof of who wrote them: a rank of this run, under this name.
 *
 * Stores are places where others may be able to write. A sealed value is u32 rank, its proof (DDL_MAC_BYTES),
 * then the value; the proof covers the name too, so that nothing can be moved to another. Without a prover
 * (level off) a value is what it is.
 */
#ifndef DDL_RENDEZVOUS_SEAL_H
#define DDL_RENDEZVOUS_SEAL_H

#include "base/error.h"
#include "protocol/prover.h"

enum { DDL_SEAL_BYTES = 4 + DDL_MAC_BYTES };

/* For whom, and for what run, is sealed; the texts of errors name the place. */
typedef struct ddl_seal {
    const ddl_prover *prover;
    const uint8_t *run_id; /* DDL_RUN_ID_BYTES */
} ddl_seal;

/* Append value, sealed as rank's under this name, to *out; false when out of memory. */
bool ddl_seal_put(const ddl_seal *seal, int rank, const char *name, ddl_view value, ddl_bytes *out);

/* Find the value in sealed; false: no rank of this run wrote it under this name. */
bool ddl_seal_get(const ddl_seal *seal, const char *name, ddl_view sealed, ddl_view *value);

/* The error that such a value comes to. */
ddl_status ddl_seal_fail(const char *name, const char *place, ddl_error *err);

#endif
