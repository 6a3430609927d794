/* tls.c - OpenSSL with memory BIOs. */
#include "io/tls.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "io/address.h"
#include "io/tls_certificate.h"
#include "io/tls_key.h"
#include "io/tls_reason.h"
#include "io/tls_use.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

struct ddl_tls_party {
    SSL_CTX *inner;
    bool is_server, asks_peer;
    char ca[200]; /* for texts */
};

struct ddl_tls {
    SSL *inner;
    BIO *in, *out; /* inner's */
    const ddl_tls_party *party;
    char peer_name[256], where[DDL_ADDRESS_FULL_TEXT];
    char problem[DDL_CERTIFICATE_PROBLEM_TEXT]; /* with the peer's certificate, in words; "" if there is none
                                                 */
};

/* ---- the party ---- */

static int judge(int good, X509_STORE_CTX *chain);

static ddl_status load_trust(ddl_tls_party *party, const char *ca_file, ddl_error *err)
{
    snprintf(party->ca, sizeof party->ca, "%s", ca_file != NULL ? ca_file : "the system's authorities");
    int good = ca_file != NULL ? SSL_CTX_load_verify_locations(party->inner, ca_file, NULL)
                               : SSL_CTX_set_default_verify_paths(party->inner);
    if (good == 1)
        return DDL_OK;
    return DDL_FAIL(err, DDL_ECONFIG, "TLS: cannot read certificates of authorities from %s: %s", party->ca,
                    ddl_tls_reason());
}

static ddl_status load_certificate(ddl_tls_party *party, const ddl_tls_options *options, ddl_error *err)
{
    const char *key = options->key_file != NULL ? options->key_file : options->cert_file;
    if (SSL_CTX_use_certificate_chain_file(party->inner, options->cert_file) != 1)
        return DDL_FAIL(err, DDL_ECONFIG, "TLS: cannot read a certificate from %s: %s", options->cert_file,
                        ddl_tls_reason());
    return ddl_tls_key_load(party->inner, "TLS", options->cert_file, key, err);
}

static ddl_status set_up(ddl_tls_party *party, const ddl_tls_options *options, ddl_error *err)
{
    if (party->inner == NULL || SSL_CTX_set_min_proto_version(party->inner, TLS1_3_VERSION) != 1)
        return DDL_FAIL(err, DDL_ENOMEM, "cannot set up TLS: %s", ddl_tls_reason());
    SSL_CTX_set_options(party->inner, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    ddl_tls_refuse_weak_keys(party->inner);
    SSL_CTX_set_num_tickets(party->inner, 0);
    SSL_CTX_set_session_cache_mode(party->inner, SSL_SESS_CACHE_OFF);
    if (party->asks_peer) {
        DDL_TRY(load_trust(party, options->ca_file, err));
        SSL_CTX_set_verify(party->inner, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, judge);
    }
    return options->cert_file != NULL ? load_certificate(party, options, err) : DDL_OK;
}

ddl_status ddl_tls_party_create(const ddl_tls_options *options, ddl_tls_party **out, ddl_error *err)
{
    DDL_ASSERT(!options->is_server || options->cert_file != NULL);
    ddl_tls_party *party = ddl_alloc(sizeof *party);
    if (party == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for TLS");
    ddl_tls_use_begin();
    ERR_clear_error();
    party->is_server = options->is_server;
    party->asks_peer = !options->is_server || options->asks_peer;
    if (!DDL_FAILPOINT("io.tls_party"))
        party->inner = SSL_CTX_new(options->is_server ? TLS_server_method() : TLS_client_method());
    ddl_status status = set_up(party, options, err);
    ERR_clear_error();
    ddl_tls_use_end();
    if (status != DDL_OK) {
        ddl_tls_party_destroy(party);
        return status;
    }
    *out = party;
    return DDL_OK;
}

void ddl_tls_party_destroy(ddl_tls_party *party)
{
    if (party == NULL)
        return;
    ddl_tls_use_begin();
    SSL_CTX_free(party->inner);
    ddl_tls_use_end();
    ddl_free(party);
}

/* ---- what is wrong with a certificate ---- */

/* OpenSSL asks for each finding; the first stands. */
static int judge(int good, X509_STORE_CTX *chain)
{
    SSL *inner = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
    ddl_tls *tls = SSL_get_app_data(inner);
    if (!good && tls->problem[0] == '\0')
        ddl_certificate_explain(X509_STORE_CTX_get0_cert(chain), X509_STORE_CTX_get_current_cert(chain),
                                X509_STORE_CTX_get_error(chain), tls->peer_name, tls->party->ca,
                                tls->problem);
    return good;
}

/* ---- the session ---- */

static bool expect_name(const ddl_tls *tls)
{
    X509_VERIFY_PARAM *wanted = SSL_get0_param(tls->inner);
    ddl_address numeric;
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                                X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (ddl_address_parse(tls->peer_name, 0, &numeric))
        return X509_VERIFY_PARAM_set1_ip_asc(wanted, tls->peer_name) == 1;
    return X509_VERIFY_PARAM_set1_host(wanted, tls->peer_name, 0) == 1 &&
           (tls->party->is_server || SSL_set_tlsext_host_name(tls->inner, tls->peer_name) == 1);
}

static bool connect_bios(ddl_tls *tls)
{
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->in == NULL || tls->out == NULL) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        return false;
    }
    BIO_set_mem_eof_return(tls->in, -1);
    BIO_set_mem_eof_return(tls->out, -1);
    SSL_set_bio(tls->inner, tls->in, tls->out);
    return true;
}

static ddl_status begin_session(ddl_tls *tls, ddl_error *err)
{
    const ddl_tls_party *party = tls->party;
    ERR_clear_error();
    if (!DDL_FAILPOINT("io.tls"))
        tls->inner = SSL_new(party->inner);
    if (tls->inner == NULL || !connect_bios(tls) || (party->asks_peer && !expect_name(tls)))
        return DDL_FAIL(err, DDL_ENOMEM, "cannot set up a TLS session with %s: %s", tls->where,
                        ddl_tls_reason());
    SSL_set_app_data(tls->inner, tls);
    if (party->is_server)
        SSL_set_accept_state(tls->inner);
    else
        SSL_set_connect_state(tls->inner);
    return DDL_OK;
}

ddl_status ddl_tls_create(ddl_tls_party *party, const char *peer_name, const char *where, ddl_tls **out,
                          ddl_error *err)
{
    DDL_ASSERT(peer_name != NULL || !party->asks_peer);
    ddl_tls *tls = ddl_alloc(sizeof *tls);
    if (tls == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a TLS session");
    tls->party = party;
    snprintf(tls->peer_name, sizeof tls->peer_name, "%s", peer_name != NULL ? peer_name : "");
    snprintf(tls->where, sizeof tls->where, "%s", where);
    ddl_tls_use_begin();
    ddl_status status = begin_session(tls, err);
    ddl_tls_use_end();
    if (status != DDL_OK) {
        ddl_tls_destroy(tls);
        return status;
    }
    *out = tls;
    return DDL_OK;
}

void ddl_tls_destroy(ddl_tls *tls)
{
    if (tls == NULL)
        return;
    ddl_tls_use_begin();
    SSL_free(tls->inner);
    ddl_tls_use_end();
    ddl_free(tls);
}

ddl_status ddl_tls_feed(ddl_tls *tls, const void *data, size_t bytes, ddl_error *err)
{
    DDL_ASSERT(bytes <= INT32_MAX);
    ddl_tls_use_begin();
    bool taken = bytes == 0 || BIO_write(tls->in, data, (int)bytes) == (int)bytes;
    ddl_tls_use_end();
    if (!taken)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for what came from %s", tls->where);
    return DDL_OK;
}

size_t ddl_tls_output(ddl_tls *tls, void *data, size_t bytes)
{
    ddl_tls_use_begin();
    int count = BIO_read(tls->out, data, bytes < INT32_MAX ? (int)bytes : INT32_MAX);
    ddl_tls_use_end();
    return count > 0 ? (size_t)count : 0;
}

/* Why a call failed; err is not touched if it has only to wait for more. */
static ddl_status failure(const ddl_tls *tls, int result, ddl_error *err)
{
    int kind = SSL_get_error(tls->inner, result);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE || kind == SSL_ERROR_ZERO_RETURN)
        return DDL_OK;
    const int code = ERR_GET_REASON(ERR_peek_last_error());
    if (tls->problem[0] != '\0')
        return DDL_FAIL(err, DDL_EAUTH, "TLS with %s: %s", tls->where, tls->problem);
    if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return DDL_FAIL(err, DDL_EAUTH, "TLS with %s: it has shown no certificate", tls->where);
    if (code == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED)
        return DDL_FAIL(err, DDL_EAUTH, "TLS with %s: it wants a certificate of ours", tls->where);
    if (ddl_tls_is_none(code) && !SSL_is_init_finished(tls->inner))
        return DDL_FAIL(err, DDL_EPROTO, "TLS with %s: it does not speak TLS on that port", tls->where);
    if (ddl_tls_is_old(code))
        return DDL_FAIL(err, DDL_EAUTH, "TLS with %s: it does not speak TLS 1.3", tls->where);
    return DDL_FAIL(err, DDL_EPROTO, "TLS with %s: %s", tls->where, ddl_tls_reason());
}

ddl_status ddl_tls_shake(ddl_tls *tls, bool *done, ddl_error *err)
{
    ddl_tls_use_begin();
    ERR_clear_error();
    int result = SSL_do_handshake(tls->inner);
    *done = result == 1;
    ddl_status status = *done ? DDL_OK : failure(tls, result, err);
    if (!*done && status == DDL_OK && (SSL_get_shutdown(tls->inner) & SSL_RECEIVED_SHUTDOWN) != 0)
        status =
            DDL_FAIL(err, DDL_ENETWORK, "TLS with %s: it ended the session in the handshake", tls->where);
    ERR_clear_error();
    ddl_tls_use_end();
    return status;
}

ddl_status ddl_tls_write(ddl_tls *tls, const void *data, size_t bytes, ddl_error *err)
{
    size_t taken = 0;
    ddl_status status = DDL_OK;
    ddl_tls_use_begin();
    ERR_clear_error();
    /* Memory has room for all of it, so only a broken session takes less. */
    if (bytes > 0 && (SSL_write_ex(tls->inner, data, bytes, &taken) != 1 || taken != bytes))
        if ((status = failure(tls, 0, err)) == DDL_OK)
            status = DDL_FAIL(err, DDL_EPROTO, "TLS with %s: it takes no more", tls->where);
    ERR_clear_error();
    ddl_tls_use_end();
    return status;
}

ddl_status ddl_tls_read(ddl_tls *tls, void *data, size_t bytes, size_t *count, bool *ended, ddl_error *err)
{
    size_t got = 0;
    ddl_status status = DDL_OK;
    ddl_tls_use_begin();
    ERR_clear_error();
    if (SSL_read_ex(tls->inner, data, bytes, &got) != 1) {
        got = 0;
        status = failure(tls, 0, err);
    }
    *count = got;
    *ended = (SSL_get_shutdown(tls->inner) & SSL_RECEIVED_SHUTDOWN) != 0;
    ERR_clear_error();
    ddl_tls_use_end();
    return status;
}

void ddl_tls_end(ddl_tls *tls)
{
    ddl_tls_use_begin();
    ERR_clear_error();
    (void)SSL_shutdown(tls->inner);
    ERR_clear_error();
    ddl_tls_use_end();
}
