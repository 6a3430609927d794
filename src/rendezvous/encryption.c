/*
 * encryption.c - sessions by keys or by certificates.
 *
 * An identity is, little endian: 0 "ddl tls" NUL 8 | 8 version 2 | 10 channel 1 | 11 zero 1 | 12 run id 16 |
 * 28 nonce 16 | 44 client's rank 4 | 48 server's rank 4
 */
#include "rendezvous/encryption.h"

#include "base/assert.h"
#include "io/socket.h"

#include <stdio.h>
#include <string.h>

enum { IDENTITY_BYTES = 52, JOB_TEXT = 128, HANDSHAKE_RECORD = 0x16 };

static const uint8_t identity_label[8] = "ddl tls";

struct ddl_encryption {
    ddl_tls_group *group;
    const ddl_prover *prover;
    bool by_certificate;
    char job[JOB_TEXT];
};

_Static_assert((int)DDL_TLS_KEY_BYTES == (int)DDL_MAC_BYTES, "a prover's key is a session's");
_Static_assert((int)DDL_TLS_BINDING_BYTES == (int)DDL_HELLO_BINDING_BYTES, "a hello can be bound");

static bool given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static ddl_status check_options(const ddl_encryption_options *options, ddl_error *err)
{
    if (given(options->cert_file) != given(options->ca_file))
        return DDL_FAIL(err, DDL_ECONFIG, "%s is set, but %s is not; certificates need both, keys neither",
                        given(options->cert_file) ? "DDL_TLS_CERT" : "DDL_TLS_CA",
                        given(options->cert_file) ? "DDL_TLS_CA" : "DDL_TLS_CERT");
    if (given(options->key_file) && !given(options->cert_file))
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_TLS_KEY is set, but DDL_TLS_CERT is not");
    if (!given(options->job))
        return DDL_OK;
    if (!given(options->cert_file))
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_TLS_JOB is set, but DDL_TLS_CERT is not");
    if (strlen(options->job) >= JOB_TEXT || strpbrk(options->job, "/ ") != NULL)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_TLS_JOB=%.140s: a name of less than %d characters without / is "
                        "needed",
                        options->job, (int)JOB_TEXT);
    return DDL_OK;
}

ddl_status ddl_encryption_create(const ddl_encryption_options *options, const ddl_prover *prover,
                                 ddl_encryption **out, ddl_error *err)
{
    DDL_ASSERT(ddl_prover_level(prover) == DDL_SECURITY_TLS);
    DDL_TRY(check_options(options, err));
    ddl_encryption *encryption = ddl_alloc(sizeof *encryption);
    if (encryption == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for TLS");
    encryption->prover = prover;
    encryption->by_certificate = given(options->cert_file);
    if (given(options->job))
        snprintf(encryption->job, sizeof encryption->job, "%s", options->job);
    ddl_tls_group_options group = { .openssl_aes = options->openssl_aes };
    if (encryption->by_certificate) {
        group.ca_file = options->ca_file;
        group.cert_file = options->cert_file;
        group.key_file = given(options->key_file) ? options->key_file : NULL;
    }
    ddl_status status = ddl_tls_group_create(&group, &encryption->group, err);
    if (status != DDL_OK) {
        ddl_encryption_destroy(encryption);
        return status;
    }
    *out = encryption;
    return DDL_OK;
}

void ddl_encryption_destroy(ddl_encryption *encryption)
{
    if (encryption == NULL)
        return;
    ddl_tls_group_destroy(encryption->group);
    ddl_free(encryption);
}

/* ---- keys ---- */

static void encode_identity(const ddl_hello_party *self, uint8_t identity[IDENTITY_BYTES])
{
    memcpy(identity, identity_label, sizeof identity_label);
    ddl_put_u16(identity + 8, DDL_HELLO_VERSION);
    identity[10] = (uint8_t)self->channel;
    identity[11] = 0;
    memcpy(identity + 12, self->run_id, DDL_RUN_ID_BYTES);
    memcpy(identity + 28, self->nonce, DDL_NONCE_BYTES);
    ddl_put_u32(identity + 44, (uint32_t)self->rank);
    ddl_put_u32(identity + 48, (uint32_t)self->peer);
}

/* Whom the identity calls is checked here, as the key is for that one; the rest the hello tells in detail. */
static bool find_key(const void *arg, ddl_view identity, uint8_t key[DDL_TLS_KEY_BYTES])
{
    const ddl_encryption_door *door = arg;
    const uint8_t *at = identity.data;
    if (identity.bytes != IDENTITY_BYTES || memcmp(at, identity_label, sizeof identity_label) != 0 ||
        ddl_get_u16(at + 8) != DDL_HELLO_VERSION || at[10] != (uint8_t)door->channel || at[11] != 0 ||
        ddl_get_u32(at + 48) != (uint32_t)door->rank)
        return false;
    door->encryption->prover->key(door->encryption->prover, identity, key);
    return true;
}

ddl_status ddl_encryption_call(const ddl_encryption *encryption, const ddl_hello_party *self,
                               const char *where, ddl_wire *wire, ddl_error *err)
{
    uint8_t identity[IDENTITY_BYTES], key[DDL_TLS_KEY_BYTES];
    ddl_tls_socket_options options = { .fd = wire->fd, .where = where };
    if (!encryption->by_certificate) {
        encode_identity(self, identity);
        options.identity = (ddl_view){ identity, sizeof identity };
        options.key = (ddl_view){ key, sizeof key };
        encryption->prover->key(encryption->prover, options.identity, key);
    }
    ddl_status status = ddl_tls_socket_create(encryption->group, &options, &wire->tls, err);
    ddl_clear(key, sizeof key);
    return status;
}

bool ddl_encryption_begins(uint8_t first)
{
    return first == HANDSHAKE_RECORD;
}

bool ddl_encryption_is_call(ddl_view first)
{
    const uint8_t *at = first.data;
    if (first.bytes == 0 || !ddl_encryption_begins(at[0]))
        return false;
    for (size_t i = 0; i + DDL_TLS_PROTOCOL_BYTES <= first.bytes; i++)
        if (memcmp(at + i, ddl_tls_protocol, DDL_TLS_PROTOCOL_BYTES) == 0)
            return true;
    return false;
}

bool ddl_encryption_answer(const ddl_encryption_door *door, const char *where, ddl_wire *wire)
{
    const ddl_tls_socket_options options = {
        .fd = wire->fd, .is_server = true, .where = where, .find_key = find_key, .arg = door
    };
    return ddl_tls_socket_create(door->encryption->group, &options, &wire->tls, NULL) == DDL_OK;
}

/* ---- the handshake ---- */

/* What answered without TLS may be a rank, at another level. */
static bool find_level(const ddl_wire *wire, ddl_security *level)
{
    uint8_t first[DDL_HELLO_PREFIX_BYTES];
    ddl_view seen = ddl_tls_socket_first(wire->tls);
    if (seen.bytes == 0 || seen.bytes > sizeof first)
        return false;
    memcpy(first, seen.data, seen.bytes);
    size_t left = sizeof first - seen.bytes;
    if (left > 0 && ddl_socket_read(wire->fd, first + seen.bytes, left) != (ssize_t)left)
        return false;
    return ddl_hello_tells_level((ddl_view){ first, sizeof first }, level);
}

static ddl_status explain(const ddl_encryption *encryption, int rank, bool is_server, const ddl_wire *wire,
                          ddl_status status, ddl_error *err)
{
    ddl_security level;
    const char *source = encryption->prover->source;
    if (ddl_tls_socket_other_key(wire->tls) && is_server)
        return DDL_FAIL(err, DDL_EAUTH, "what calls in TLS does not know this job's secret, which is here %s",
                        source);
    if (ddl_tls_socket_other_key(wire->tls))
        return DDL_FAIL(err, DDL_EAUTH,
                        "what answers there, in TLS, does not know the secret that rank %d has, "
                        "%s; " DDL_HELLO_SAME_SECRET,
                        rank, source);
    if (status == DDL_EPROTO && !is_server && find_level(wire, &level))
        return DDL_FAIL(
            err, DDL_EAUTH,
            "rank %d has security level tls, but what answers there has %s; start every rank with "
            "the same DDL_SECURITY (ddl-launch --security)",
            rank, ddl_security_name(level));
    if (status == DDL_EPROTO || status == DDL_EAUTH)
        return DDL_FAIL(err, status, "TLS failed: %s", ddl_wire_problem(wire));
    return status;
}

ddl_status ddl_encryption_shake(const ddl_encryption *encryption, int rank, bool is_server, ddl_wire *wire,
                                ddl_hello *hello, bool *done, ddl_error *err)
{
    uint8_t binding[DDL_TLS_BINDING_BYTES];
    ddl_status status = ddl_tls_socket_shake(wire->tls, done, err);
    if (status != DDL_OK)
        return explain(encryption, rank, is_server, wire, status, err);
    if (!*done)
        return DDL_OK;
    DDL_TRY(ddl_tls_socket_binding(wire->tls, binding, err));
    ddl_hello_bind(hello, binding);
    ddl_clear(binding, sizeof binding);
    return DDL_OK;
}

/* ---- certificates ---- */

bool ddl_encryption_bad_certificate(const ddl_wire *wire)
{
    return ddl_tls_socket_bad_certificate(wire->tls);
}

ddl_status ddl_encryption_check_peer(const ddl_encryption *encryption, const ddl_wire *wire, int rank,
                                     const char *host, const ddl_address *address, ddl_error *err)
{
    char uri[JOB_TEXT + 32], numeric[DDL_ADDRESS_HOST_TEXT] = "";
    if (encryption == NULL || !encryption->by_certificate || wire->tls == NULL)
        return DDL_OK;
    if (encryption->job[0] != '\0') {
        snprintf(uri, sizeof uri, "ddl://%s/%d", encryption->job, rank);
        const char *const names[] = { uri };
        return ddl_tls_socket_check_names(wire->tls, names, 1, err);
    }
    if (address != NULL)
        ddl_address_host(address, numeric);
    const char *const names[] = { host != NULL && strcmp(host, numeric) == 0 ? NULL : host, numeric };
    ddl_error why;
    ddl_status status = ddl_tls_socket_check_names(wire->tls, names, address != NULL ? 2 : 1, &why);
    if (status != DDL_OK)
        return DDL_FAIL(err, status, "%.300s; let MASTER_ADDR and hostname be names that certificates have",
                        why.text);
    return DDL_OK;
}

void ddl_encryption_trust(ddl_wire *wire)
{
    if (wire->tls != NULL)
        ddl_tls_socket_trust(wire->tls);
}
