/*
 * store_redis_url.h - redis://[user[:password-file]@]host:port[/db][?prefix=P], taken apart.
 *
 * A URL is seen by others (in environments, logs, process lists), so it names a file that holds the password,
 * never the password; and nothing here puts a password into a text.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_URL_H
#define DDL_RENDEZVOUS_STORE_REDIS_URL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DDL_REDIS_WORD_TEXT = 128,
    DDL_REDIS_PATH_TEXT = 512,
    DDL_REDIS_PREFIX_TEXT = 64,
    DDL_REDIS_PASSWORD_BYTES = 512
};

typedef struct ddl_redis_url {
    bool is_tls;
    bool must_be_private; /* the caller's: without TLS, only where it does not leave this host */
    char host[256];
    uint16_t port;
    int db;
    char user[DDL_REDIS_WORD_TEXT];          /* "": the default user */
    char password_file[DDL_REDIS_PATH_TEXT]; /* "": no password */
    char prefix[DDL_REDIS_PREFIX_TEXT];      /* of all keys; "ddl" unless given */
    char ca_file[DDL_REDIS_PATH_TEXT];       /* authorities; "": the system's */
    char cert_file[DDL_REDIS_PATH_TEXT];     /* own certificate; "": none */
    char key_file[DDL_REDIS_PATH_TEXT];      /* "": in cert_file */
} ddl_redis_url;

/*
 * rest is what follows "redis://", or "rediss://" with is_tls. Parts may be written %XX. What cacert, cert
 * and key do not say is taken from DDL_REDIS_CACERT, DDL_REDIS_CERT and DDL_REDIS_KEY.
 * DDL_ECONFIG: not of that form; the text does not repeat what may be a password.
 */
DDL_MUST_USE ddl_status ddl_redis_url_parse(const char *rest, bool is_tls, ddl_redis_url *url,
                                            ddl_error *err);

/*
 * Read the first line of a password file into password, of DDL_REDIS_PASSWORD_BYTES, cleared by the caller.
 * DDL_ECONFIG: it is no regular file of the user's own, others may read it, it is a link, empty, or too long.
 */
DDL_MUST_USE ddl_status ddl_redis_password_read(const char *path, char password[DDL_REDIS_PASSWORD_BYTES],
                                                ddl_error *err);

#endif
