/*
 * proof.c - proofs by HMAC-SHA-256.
 *
 *     master key = HKDF-Extract("ddl job secret 1", secret)
 *     key of a run = HKDF-Expand(master key, "ddl 10 auth" run id), or "ddl 10 tls" at that level
 *     key of a session = HKDF-Expand(master key, "ddl 10 tls session" identity)
 */
#include "rendezvous/proof.h"

#include "base/assert.h"
#include "base/list.h"
#include "io/crypto.h"
#include "io/guarded.h"
#include "protocol/hello.h"
#include "rendezvous/secret.h"

#include <stdio.h>
#include <string.h>

enum { SOURCE_TEXT = 200 };

static const char extract_salt[] = "ddl job secret 1";
_Static_assert(DDL_HELLO_VERSION == 10, "named here, and in ddl_tls_protocol");
static const char *const run_purposes[] = { NULL, "ddl 10 auth", "ddl 10 tls" };
static const char session_purpose[] = "ddl 10 tls session";

enum { PURPOSE_TEXT = 16, SESSION_LIMIT = 96 };

struct proof {
    ddl_prover prover;
    uint8_t key[DDL_HASH_BYTES];
    char source[SOURCE_TEXT];
};

static void prove(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, uint8_t mac[DDL_MAC_BYTES])
{
    const struct proof *proof = DDL_CONTAINER(prover, const struct proof, prover);
    uint8_t purpose[PURPOSE_TEXT + DDL_RUN_ID_BYTES], key[DDL_HASH_BYTES];
    size_t words = strlen(run_purposes[prover->level]);
    memcpy(purpose, run_purposes[prover->level], words);
    memcpy(purpose + words, run_id, DDL_RUN_ID_BYTES);
    ddl_hkdf_expand(proof->key, (ddl_view){ purpose, words + DDL_RUN_ID_BYTES }, key, sizeof key);
    ddl_hmac((ddl_view){ key, sizeof key }, parts, nparts, mac);
    ddl_clear(key, sizeof key);
}

static bool check(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, const uint8_t mac[DDL_MAC_BYTES])
{
    uint8_t expected[DDL_MAC_BYTES];
    prove(prover, run_id, parts, nparts, expected);
    bool same = ddl_same_secret(mac, expected, sizeof expected);
    ddl_clear(expected, sizeof expected); /* what a stranger would have to have sent */
    return same;
}

static void session_key(const ddl_prover *prover, ddl_view identity, uint8_t key[DDL_MAC_BYTES])
{
    const struct proof *proof = DDL_CONTAINER(prover, const struct proof, prover);
    uint8_t purpose[sizeof session_purpose - 1 + SESSION_LIMIT];
    const size_t words = sizeof session_purpose - 1;
    DDL_ASSERT(identity.bytes <= SESSION_LIMIT);
    memcpy(purpose, session_purpose, words);
    memcpy(purpose + words, identity.data, identity.bytes);
    ddl_hkdf_expand(proof->key, (ddl_view){ purpose, words + identity.bytes }, key, DDL_MAC_BYTES);
}

ddl_status ddl_proof_create(ddl_view secret, const char *source, ddl_security level, ddl_prover **out,
                            ddl_error *err)
{
    DDL_ASSERT(level == DDL_SECURITY_AUTH || level == DDL_SECURITY_TLS);
    /* A forked child finds its parent's secrets wiped: nothing may follow from that. */
    if (secret.bytes < DDL_SECRET_LEAST)
        return DDL_FAIL(err, DDL_ECONFIG, "a secret of %zu bytes proves nothing", secret.bytes);
    struct proof *proof = ddl_guarded_alloc(sizeof *proof);
    if (proof == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the key of a job");
    ddl_guarded_forget_in_child(proof, sizeof *proof);
    ddl_hkdf_extract((ddl_view){ extract_salt, sizeof extract_salt - 1 }, secret, proof->key);
    snprintf(proof->source, sizeof proof->source, "%s", source);
    proof->prover = (ddl_prover){
        .source = proof->source, .level = level, .prove = prove, .check = check, .key = session_key
    };
    *out = &proof->prover;
    return DDL_OK;
}

void ddl_proof_destroy(ddl_prover *prover)
{
    if (prover == NULL)
        return;
    DDL_ASSERT(prover->prove == prove);
    ddl_guarded_free(DDL_CONTAINER(prover, struct proof, prover), sizeof(struct proof));
}
