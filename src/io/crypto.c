/*
 * crypto.c - HMAC and HKDF over SHA-256 of OpenSSL's libcrypto.
 *
 * SHA-256 by its plain functions, which OpenSSL 3 would rather see called through EVP: those load providers
 * and configuration first, 1 ms and 2 MiB for each process, and take 1.2 us per HMAC instead of 0.3.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "io/crypto.h"

#include "base/assert.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

enum { BLOCK_BYTES = 64 };

_Static_assert((int)DDL_HASH_BYTES == SHA256_DIGEST_LENGTH, "a SHA-256");

/* Begin a hash with the key, whose bytes are combined with pad. */
static void begin(SHA256_CTX *hash, const uint8_t key[BLOCK_BYTES], uint8_t pad)
{
    uint8_t block[BLOCK_BYTES];
    for (int i = 0; i < BLOCK_BYTES; i++)
        block[i] = key[i] ^ pad;
    SHA256_Init(hash);
    SHA256_Update(hash, block, sizeof block);
    ddl_clear(block, sizeof block);
}

void ddl_hmac(ddl_view key, const ddl_view parts[], int nparts, uint8_t mac[DDL_HASH_BYTES])
{
    SHA256_CTX hash;
    uint8_t whole_key[BLOCK_BYTES] = { 0 };
    if (key.bytes > BLOCK_BYTES)
        SHA256(key.data, key.bytes, whole_key);
    else if (key.bytes > 0)
        memcpy(whole_key, key.data, key.bytes);
    begin(&hash, whole_key, 0x36);
    for (int i = 0; i < nparts; i++)
        SHA256_Update(&hash, parts[i].data, parts[i].bytes);
    SHA256_Final(mac, &hash);
    begin(&hash, whole_key, 0x5c);
    SHA256_Update(&hash, mac, DDL_HASH_BYTES);
    SHA256_Final(mac, &hash);
    ddl_clear(whole_key, sizeof whole_key);
    ddl_clear(&hash, sizeof hash);
}

void ddl_hkdf_extract(ddl_view salt, ddl_view secret, uint8_t key[DDL_HASH_BYTES])
{
    ddl_hmac(salt, &secret, 1, key);
}

void ddl_hkdf_expand(const uint8_t key[DDL_HASH_BYTES], ddl_view purpose, uint8_t *out, size_t bytes)
{
    uint8_t block[DDL_HASH_BYTES], counter = 0;
    DDL_ASSERT(bytes <= 255 * (size_t)DDL_HASH_BYTES);
    while (bytes > 0) {
        size_t count = bytes < sizeof block ? bytes : sizeof block;
        ddl_view parts[] = { { block, counter > 0 ? sizeof block : 0 }, purpose, { &counter, 1 } };
        counter++;
        ddl_hmac((ddl_view){ key, DDL_HASH_BYTES }, parts, 3, block);
        memcpy(out, block, count);
        out += count;
        bytes -= count;
    }
    ddl_clear(block, sizeof block);
}

bool ddl_same_secret(const void *a, const void *b, size_t bytes)
{
    return CRYPTO_memcmp(a, b, bytes) == 0;
}
