/*
 * tls_aes.h - AES-128-GCM for OpenSSL's TLS by another library, where that one is faster.
 *
 * OpenSSL before 3.1 does without the instructions that processors have for AES on several blocks at a time
 * (VAES), with which it is two to three times as fast. libIPSec_MB (Intel's Multi-Buffer Crypto for IPsec,
 * Debian's libipsec-mb1) uses them. Where both are so, its AES-128-GCM is one cipher more for OpenSSL, in a
 * library context that is ddl's alone: nothing changes for what else the program does with OpenSSL.
 *
 * A build without the header of that library has tls_aes_none.c. Thread: any, within a use (tls_use.h).
 */
#ifndef DDL_IO_TLS_AES_H
#define DDL_IO_TLS_AES_H

#include <openssl/types.h>

typedef struct ddl_tls_aes {
    OSSL_LIB_CTX *context;  /* never freed; NULL: OpenSSL's own, as another AES is not there, or no better */
    const char *properties; /* of the ciphers to fetch in it */
    const char *why;        /* for texts: who computes AES, and why if that is OpenSSL */
} ddl_tls_aes;

/* Finds and loads the library the first time. */
ddl_tls_aes ddl_tls_aes_choose(void);

/* For how many keys the other library was used in this process; for tests. */
unsigned ddl_tls_aes_uses(void);

#endif
