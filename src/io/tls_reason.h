/*
 * tls_reason.h - what OpenSSL says of the call that has just failed, in this thread.
 */
#ifndef DDL_IO_TLS_REASON_H
#define DDL_IO_TLS_REASON_H

#include <stdbool.h>

/* In its words. */
const char *ddl_tls_reason(void);

/* By its code (SSL_R_): what came is nothing that TLS would begin with; it is a version before 1.3. */
bool ddl_tls_is_none(int code);
bool ddl_tls_is_old(int code);

#endif
