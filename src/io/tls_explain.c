/* tls_explain.c - puts into words why a TLS session is broken. */
#include "io/tls_reason.h"
#include "io/tls_session.h"

#include <openssl/err.h>
#include <stdio.h>

static bool is_about_certificates(int code)
{
    switch (code) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        return true;
    default:
        return false;
    }
}

/* Keys differ: the server finds that its own does not fit; the client is told so by an alert. */
static bool is_about_keys(const ddl_tls_socket *tls, int code)
{
    return !tls->group->by_certificate &&
           (code == SSL_R_BINDER_DOES_NOT_VERIFY || code == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
            code == SSL_R_TLSV1_ALERT_DECRYPT_ERROR || code == SSL_R_TLSV1_ALERT_INTERNAL_ERROR);
}

static void explain_own_certificate(ddl_tls_socket *tls)
{
    char description[DDL_CERTIFICATE_DESCRIPTION_TEXT] = "of no use";
    const X509 *own = SSL_get_certificate(tls->inner);
    if (own != NULL)
        ddl_certificate_describe(own, description);
    snprintf(tls->problem, sizeof tls->problem,
             "it does not accept the certificate in %s: %s; that one is %s", tls->group->certificate,
             ddl_tls_reason(), description);
}

ddl_status ddl_tls_explain(ddl_tls_socket *tls)
{
    const int code = ERR_GET_REASON(ERR_peek_last_error());
    ddl_status status = DDL_EAUTH;
    char *text = tls->problem;
    if (text[0] != '\0')
        return DDL_EAUTH; /* found while OpenSSL asked for it */
    if (is_about_keys(tls, code)) {
        tls->other_key = true;
        snprintf(text, sizeof tls->problem, "the two ends have different keys");
    } else if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        snprintf(text, sizeof tls->problem, "it has shown no certificate");
    } else if (tls->calls_by_key && is_about_certificates(code)) {
        snprintf(
            text, sizeof tls->problem,
            "it has shown no certificate, and calls by a key; set DDL_TLS_CERT for all ranks or for none");
    } else if (code == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED) {
        snprintf(text, sizeof tls->problem,
                 "it wants a certificate, which this rank has not; set DDL_TLS_CERT");
    } else if (is_about_certificates(code)) {
        explain_own_certificate(tls);
    } else if (code == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE || code == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
               code == SSL_R_NO_SHARED_CIPHER || code == SSL_R_TLSV13_ALERT_MISSING_EXTENSION) {
        snprintf(
            text, sizeof tls->problem,
            "one end has a certificate (DDL_TLS_CERT), the other has none; set that for all or for none");
    } else if (code == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC) {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "what came was altered on its way (%s)", ddl_tls_reason());
    } else if (code == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC) {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "what was sent to it was altered on its way (%s)",
                 ddl_tls_reason());
    } else if (ddl_tls_is_none(code) && !tls->done) {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "it does not speak TLS on that port");
    } else if (ddl_tls_is_old(code)) {
        snprintf(text, sizeof tls->problem, "it does not speak TLS 1.3");
    } else {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "what came is not as TLS 1.3 has it (%s)", ddl_tls_reason());
    }
    return status;
}
