/*
 * tls_certificate.h - whose a certificate is, and what is wrong with it, in words.
 *
 * For tls.c and the files of tls_socket.h, who know OpenSSL. Pure. Thread: any.
 */
#ifndef DDL_IO_TLS_CERTIFICATE_H
#define DDL_IO_TLS_CERTIFICATE_H

#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    DDL_CERTIFICATE_NAMES_TEXT = 200,
    DDL_CERTIFICATE_DESCRIPTION_TEXT = DDL_CERTIFICATE_NAMES_TEXT + 100,
    DDL_CERTIFICATE_PROBLEM_TEXT = 800
};

/* "db1, 10.0.0.1": what its subject alternative names say whose it is; "nobody" if it has none. */
void ddl_certificate_names(const X509 *certificate, char text[DDL_CERTIFICATE_NAMES_TEXT]);

/* "for db1, 10.0.0.1, valid from Jan  1 00:00:00 2026 GMT to Jan  2 00:00:00 2026 GMT". */
void ddl_certificate_describe(const X509 *certificate, char text[DDL_CERTIFICATE_DESCRIPTION_TEXT]);

/* Today's finding about its dates alone: X509_V_OK, X509_V_ERR_CERT_HAS_EXPIRED or ..._NOT_YET_VALID. */
int ddl_certificate_check_dates(const X509 *certificate);

/* Whether its subject alternative names have this one: a numeric address, a URI, or else a host's name. */
bool ddl_certificate_is_for(X509 *certificate, const char *name);

/*
 * Say what an X509_V_ERR is about. peer is the certificate of the other side, certificate the one of its
 * chain that was found wanting; wanted: whose it was to be; ca: where the authorities are.
 */
void ddl_certificate_explain(const X509 *peer, const X509 *certificate, int code, const char *wanted,
                             const char *ca, char text[DDL_CERTIFICATE_PROBLEM_TEXT]);

#endif
