/*
 * tls_use.h - uses of OpenSSL's TLS, and the end of them as the process exits.
 *
 * OpenSSL takes itself down in an exit handler if the program has begun to use it before ddl did, while
 * threads still run: in a service, in ddl_init, or in a call. So each use stands between begin and end, and
 * before OpenSSL frees anything nobody is let in any more. Goodbyes are said before that (api/contexts.h).
 * Thread: any.
 */
#ifndef DDL_IO_TLS_USE_H
#define DDL_IO_TLS_USE_H

#include <stdbool.h>

/*
 * Around calls into OpenSSL; not nested. Once OpenSSL is being taken down, begin does not return, for
 * ever; but to the thread that takes it down, which can be kept out by nobody.
 */
void ddl_tls_use_begin(void);
void ddl_tls_use_end(void);

/* Whether ddl has used OpenSSL in this process: if it takes itself down at exit, it has registered that. */
bool ddl_tls_used(void);

#endif
