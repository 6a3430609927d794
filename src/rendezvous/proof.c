/*
 * proof.c - proofs by HMAC-SHA-256.
 *
 *     master key = HKDF-Extract("ddl job secret 1", secret)
 *     key of a run = HKDF-Expand(master key, "ddl 2 auth" run id)
 */
#include "rendezvous/proof.h"

#include "base/assert.h"
#include "base/list.h"
#include "io/crypto.h"
#include "io/guarded.h"
#include "rendezvous/secret.h"

#include <stdio.h>
#include <string.h>

enum { SOURCE_TEXT = 200 };

static const char extract_salt[] = "ddl job secret 1";
static const char run_purpose[] = "ddl 2 auth"; /* 2: DDL_HELLO_VERSION */

struct proof {
    ddl_prover prover;
    uint8_t key[DDL_HASH_BYTES];
    char source[SOURCE_TEXT];
};

static void prove(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES], const ddl_view parts[],
                  int nparts, uint8_t mac[DDL_MAC_BYTES])
{
    const struct proof *proof = DDL_CONTAINER(prover, const struct proof, prover);
    uint8_t purpose[sizeof run_purpose - 1 + DDL_RUN_ID_BYTES], key[DDL_HASH_BYTES];
    memcpy(purpose, run_purpose, sizeof run_purpose - 1);
    memcpy(purpose + sizeof run_purpose - 1, run_id, DDL_RUN_ID_BYTES);
    ddl_hkdf_expand(proof->key, (ddl_view){ purpose, sizeof purpose }, key, sizeof key);
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

ddl_status ddl_proof_create(ddl_view secret, const char *source, ddl_prover **out, ddl_error *err)
{
    /* A forked child finds its parent's secrets wiped: nothing may follow from that. */
    if (secret.bytes < DDL_SECRET_LEAST)
        return DDL_FAIL(err, DDL_ECONFIG, "a secret of %zu bytes proves nothing", secret.bytes);
    struct proof *proof = ddl_guarded_alloc(sizeof *proof);
    if (proof == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the key of a job");
    ddl_guarded_forget_in_child(proof, sizeof *proof);
    ddl_hkdf_extract((ddl_view){ extract_salt, sizeof extract_salt - 1 }, secret, proof->key);
    snprintf(proof->source, sizeof proof->source, "%s", source);
    proof->prover = (ddl_prover){ .source = proof->source, .prove = prove, .check = check };
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
