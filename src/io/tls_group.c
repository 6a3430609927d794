/* tls_group.c - whom the sessions of a group trust, as OpenSSL asks for it. */
#include "io/tls_session.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "io/tls_aes.h"
#include "io/tls_key.h"
#include "io/tls_reason.h"
#include "io/tls_use.h"

#include <openssl/err.h>
#include <stdio.h>
#include <string.h>

enum { CHAIN_BYTES = DDL_TLS_CERTS_PREAUTH_BYTES - 4096 /* the rest of a handshake is less than that */ };

/* AES-GCM is safe for 2^24.5 records under one key (RFC 8446, 5.5); 2^36 bytes is the house's limit. */
static const uint64_t rekey_bytes = UINT64_C(1) << 35;

/* AES is in hardware wherever speed matters; one suite leaves nothing to be chosen wrong. */
static const char cipher_name[] = "TLS_AES_128_GCM_SHA256";
static const unsigned char cipher_id[] = { 0x13, 0x01 };
const uint8_t ddl_tls_protocol[DDL_TLS_PROTOCOL_BYTES] = { 6, 'd', 'd', 'l', '/', '1', '0' };

/* ---- certificates ---- */

/* Known before a certificate is shown. */
static bool speaks_ddl(const SSL *inner)
{
    const unsigned char *name;
    unsigned bytes;
    SSL_get0_alpn_selected(inner, &name, &bytes);
    return bytes == DDL_TLS_PROTOCOL_BYTES - 1 && memcmp(name, ddl_tls_protocol + 1, bytes) == 0;
}

/* The finding about a certificate: OpenSSL asks for each, and the first stands. */
static int judge(int good, X509_STORE_CTX *chain)
{
    SSL *inner = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    if (!tls->group->by_certificate) {
        snprintf(
            tls->problem, sizeof tls->problem,
            "it shows a certificate, which is for ranks with DDL_TLS_CERT; set that for all or for none");
        return 0;
    }
    if (!good && tls->problem[0] == '\0') {
        tls->bad_certificate = speaks_ddl(inner);
        ddl_certificate_explain(X509_STORE_CTX_get0_cert(chain), X509_STORE_CTX_get_current_cert(chain),
                                X509_STORE_CTX_get_error(chain), tls->where, tls->group->ca, tls->problem);
    }
    return good;
}

/* Every rank calls and is called, if only rank 0 its own store. */
static ddl_status check_usage(const ddl_tls_group *group, ddl_error *err)
{
    X509 *own = SSL_CTX_get0_certificate(group->inner);
    if (X509_check_purpose(own, X509_PURPOSE_SSL_CLIENT, 0) == 1 &&
        X509_check_purpose(own, X509_PURPOSE_SSL_SERVER, 0) == 1)
        return DDL_OK;
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "DDL_TLS_CERT: the certificate in %s is not for both ends of a connection, as ranks need it: "
        "have it issued with extendedKeyUsage serverAuth and clientAuth, and keyUsage digitalSignature, or "
        "without these",
        group->certificate);
}

/* Nobody would accept it, and who shows it is told only that. */
static ddl_status check_dates(const ddl_tls_group *group, ddl_error *err)
{
    char problem[DDL_CERTIFICATE_PROBLEM_TEXT];
    X509 *own = SSL_CTX_get0_certificate(group->inner);
    const int code = ddl_certificate_check_dates(own);
    if (code == X509_V_OK)
        return DDL_OK;
    ddl_certificate_explain(own, own, code, "", group->ca, problem);
    return DDL_FAIL(err, DDL_EAUTH, "DDL_TLS_CERT: %s, by this host's clock; it is this rank's own, in %s",
                    problem, group->certificate);
}

/* A peer reads only so much of who has not proved anything. */
static ddl_status check_chain(const ddl_tls_group *group, ddl_error *err)
{
    STACK_OF(X509) *chain = NULL;
    int bytes = i2d_X509(SSL_CTX_get0_certificate(group->inner), NULL);
    SSL_CTX_get0_chain_certs(group->inner, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++)
        bytes += i2d_X509(sk_X509_value(chain, i), NULL);
    if (bytes <= CHAIN_BYTES)
        return DDL_OK;
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "DDL_TLS_CERT: the certificates in %s have %d bytes, and peers take %d; only this rank's own "
        "and those between it and an authority in DDL_TLS_CA belong there",
        group->certificate, bytes, (int)CHAIN_BYTES);
}

static ddl_status load_files(ddl_tls_group *group, const ddl_tls_group_options *options, ddl_error *err)
{
    const char *key = options->key_file != NULL ? options->key_file : options->cert_file;
    snprintf(group->ca, sizeof group->ca, "%s", options->ca_file);
    snprintf(group->certificate, sizeof group->certificate, "%s", options->cert_file);
    if (SSL_CTX_load_verify_locations(group->inner, options->ca_file, NULL) != 1)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_TLS_CA: cannot read certificates of authorities from %s: %s",
                        options->ca_file, ddl_tls_reason());
    if (SSL_CTX_use_certificate_chain_file(group->inner, options->cert_file) != 1)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_TLS_CERT: cannot read a certificate from %s: %s",
                        options->cert_file, ddl_tls_reason());
    DDL_TRY(check_usage(group, err));
    DDL_TRY(check_dates(group, err));
    DDL_TRY(check_chain(group, err));
    return ddl_tls_key_load(group->inner, options->key_file != NULL ? "DDL_TLS_KEY" : "DDL_TLS_CERT",
                            options->cert_file, key, err);
}

/* Where certificates are asked for, a client that calls by a key has none to show, and finds fault with ours.
 */
static int see_whether_by_key(SSL *inner, int *alert, void *arg)
{
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    const unsigned char *identities;
    size_t bytes;
    (void)alert, (void)arg;
    tls->calls_by_key = SSL_client_hello_get0_ext(inner, TLSEXT_TYPE_psk, &identities, &bytes) == 1;
    return SSL_CLIENT_HELLO_SUCCESS;
}

/* ---- keys ---- */

/* OpenSSL takes a key as a session that there never was. */
static SSL_SESSION *session_of(SSL *inner, const uint8_t key[DDL_TLS_KEY_BYTES])
{
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(inner, cipher_id);
    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, key, DDL_TLS_KEY_BYTES) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int find_for_server(SSL *inner, const unsigned char *identity, size_t identity_bytes,
                           SSL_SESSION **session)
{
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    uint8_t key[DDL_TLS_KEY_BYTES];
    *session = NULL;
    if (!tls->find_key(tls->arg, (ddl_view){ identity, identity_bytes }, key)) {
        snprintf(tls->problem, sizeof tls->problem, "it calls for another rank, or is of another version");
        return 0;
    }
    *session = session_of(inner, key);
    ddl_clear(key, sizeof key);
    return *session != NULL;
}

static int use_as_client(SSL *inner, const EVP_MD *digest, const unsigned char **identity,
                         size_t *identity_bytes, SSL_SESSION **session)
{
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    (void)digest; /* of the one suite that there is */
    *identity = tls->identity;
    *identity_bytes = tls->identity_bytes;
    *session = session_of(inner, tls->key);
    return *session != NULL;
}

/* ---- the group ---- */

/* A client that wants to speak something else is at the wrong door. */
static int choose_protocol(SSL *inner, const unsigned char **chosen, unsigned char *chosen_bytes,
                           const unsigned char *offered, unsigned offered_bytes, void *arg)
{
    (void)inner, (void)arg;
    for (unsigned at = 0; at + DDL_TLS_PROTOCOL_BYTES <= offered_bytes; at += 1u + offered[at])
        if (memcmp(offered + at, ddl_tls_protocol, DDL_TLS_PROTOCOL_BYTES) == 0) {
            *chosen = offered + at + 1;
            *chosen_bytes = DDL_TLS_PROTOCOL_BYTES - 1;
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Of certificates (OpenSSL 3.2 and later): a few bytes would stand for many, or be said to, and take as much
 * memory. */
static void refuse_compression(SSL_CTX *inner)
{
#ifdef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
    SSL_CTX_set_options(inner, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION | SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
#else
    (void)inner;
#endif
}

static ddl_status set_up(ddl_tls_group *group, const ddl_tls_group_options *options, ddl_error *err)
{
    if (group->inner == NULL || group->bio == NULL ||
        SSL_CTX_set_min_proto_version(group->inner, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(group->inner, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(group->inner, cipher_name) != 1 ||
        SSL_CTX_set1_groups_list(group->inner, "X25519:P-256") != 1 ||
        SSL_CTX_set_num_tickets(group->inner, 0) != 1 ||
        SSL_CTX_set_alpn_protos(group->inner, ddl_tls_protocol, DDL_TLS_PROTOCOL_BYTES) != 0)
        return DDL_FAIL(err, DDL_ENOMEM, "cannot set up TLS: %s", ddl_tls_reason());
    SSL_CTX_clear_options(group->inner, SSL_OP_ALLOW_NO_DHE_KEX); /* whatever the system's settings are */
    SSL_CTX_set_options(group->inner, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    refuse_compression(group->inner);
    ddl_tls_refuse_weak_keys(group->inner);
    SSL_CTX_set_alpn_select_cb(group->inner, choose_protocol, NULL);
    SSL_CTX_set_session_cache_mode(group->inner, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(group->inner, DDL_TLS_CERTS_PREAUTH_BYTES);
    /* Also where trust is by keys: a server that shows a certificate instead is not to be believed. */
    SSL_CTX_set_verify(group->inner, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, judge);
    if (group->by_certificate) {
        SSL_CTX_set_client_hello_cb(group->inner, see_whether_by_key, NULL);
        return load_files(group, options, err);
    }
    SSL_CTX_set_psk_find_session_callback(group->inner, find_for_server);
    SSL_CTX_set_psk_use_session_callback(group->inner, use_as_client);
    return DDL_OK;
}

static SSL_CTX *make_context(bool openssl_aes)
{
    const ddl_tls_aes aes = openssl_aes ? (ddl_tls_aes){ NULL, NULL, "OpenSSL, as is wanted (DDL_TLS_AES)" }
                                        : ddl_tls_aes_choose();
    ddl_log(DDL_LOG_DEBUG, "TLS: AES is computed by %s", aes.why);
    return SSL_CTX_new_ex(aes.context, aes.properties, TLS_method());
}

ddl_status ddl_tls_group_create(const ddl_tls_group_options *options, ddl_tls_group **out, ddl_error *err)
{
    DDL_ASSERT((options->ca_file != NULL) == (options->cert_file != NULL));
    ddl_tls_group *group = ddl_alloc(sizeof *group);
    if (group == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for TLS");
    ddl_tls_use_begin();
    ERR_clear_error();
    group->by_certificate = options->cert_file != NULL;
    group->rekey_bytes = options->rekey_bytes > 0 ? options->rekey_bytes : rekey_bytes;
    group->bio = ddl_tls_pipe_method();
    if (!DDL_FAILPOINT("io.tls_group"))
        group->inner = make_context(options->openssl_aes);
    ddl_status status = set_up(group, options, err);
    ERR_clear_error();
    ddl_tls_use_end();
    if (status != DDL_OK) {
        ddl_tls_group_destroy(group);
        return status;
    }
    *out = group;
    return DDL_OK;
}

void ddl_tls_group_destroy(ddl_tls_group *group)
{
    if (group == NULL)
        return;
    ddl_tls_use_begin();
    SSL_CTX_free(group->inner);
    BIO_meth_free(group->bio);
    ddl_tls_use_end();
    ddl_free(group);
}
