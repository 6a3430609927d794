/*
 * tls_key.h - the private key behind a certificate, from a file that nobody else can read.
 *
 * For tls.c and tls_group.c, who know OpenSSL. Thread: any.
 */
#ifndef DDL_IO_TLS_KEY_H
#define DDL_IO_TLS_KEY_H

#include "base/error.h"

#include <openssl/ssl.h>

/* Have inner take no key that is weaker than 112 bits (RSA of 2048, curves of 224), its own or another's,
 * whatever the system's settings are. */
void ddl_tls_refuse_weak_keys(SSL_CTX *inner);

/*
 * Give inner, which has the certificate from cert_file, the key in key_file; what: its name in texts. The
 * file belongs to this user or to root, and nobody else may read or write it, but that root's may be for a
 * group to read: so sites share one among services. DDL_ECONFIG: it is otherwise, or holds no key of this
 * certificate.
 */
DDL_MUST_USE ddl_status ddl_tls_key_load(SSL_CTX *inner, const char *what, const char *cert_file,
                                         const char *key_file, ddl_error *err);

#endif
