/* tls_reason.c - from OpenSSL's queue of errors. */
#include "io/tls_reason.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stddef.h>

const char *ddl_tls_reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text != NULL ? text : "no reason given";
}

bool ddl_tls_is_none(int code)
{
    return code == SSL_R_WRONG_VERSION_NUMBER || code == SSL_R_HTTP_REQUEST ||
           code == SSL_R_HTTPS_PROXY_REQUEST || code == SSL_R_PACKET_LENGTH_TOO_LONG ||
           code == SSL_R_BAD_RECORD_TYPE || code == SSL_R_RECORD_LENGTH_MISMATCH;
}

bool ddl_tls_is_old(int code)
{
    return code == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || code == SSL_R_UNSUPPORTED_PROTOCOL;
}
