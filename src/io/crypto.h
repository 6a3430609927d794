/*
 * crypto.h - the few primitives by which ranks prove that they know their job's secret.
 *
 * Nothing here allocates, fails or keeps anything. Thread: any.
 */
#ifndef DDL_IO_CRYPTO_H
#define DDL_IO_CRYPTO_H

#include "base/bytes.h"

enum { DDL_HASH_BYTES = 32 };

/* HMAC-SHA-256 (RFC 2104) of these parts, one after the other. */
void ddl_hmac(ddl_view key, const ddl_view parts[], int nparts, uint8_t mac[DDL_HASH_BYTES]);

/* HKDF-SHA-256 (RFC 5869): its two steps. bytes is at most 255 times DDL_HASH_BYTES. */
void ddl_hkdf_extract(ddl_view salt, ddl_view secret, uint8_t key[DDL_HASH_BYTES]);
void ddl_hkdf_expand(const uint8_t key[DDL_HASH_BYTES], ddl_view purpose, uint8_t *out, size_t bytes);

/* Whether they are equal, in a time that does not tell where they differ. */
bool ddl_same_secret(const void *a, const void *b, size_t bytes);

#endif
