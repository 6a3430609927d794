/* tls_key.c - a key's file, checked through the descriptor that is read, and the key in it. */
#include "io/tls_key.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

void ddl_tls_refuse_weak_keys(SSL_CTX *inner)
{
    enum { OF_112_BITS = 2 };
    if (SSL_CTX_get_security_level(inner) < OF_112_BITS)
        SSL_CTX_set_security_level(inner, OF_112_BITS);
}

/* Who may write the key can pretend to be us. That others may read it is warned of: so containers are given
 * theirs, on file systems where nobody can change that. Root's may be for a group to read. */
static ddl_status check_owner(const struct stat *facts, const char *what, const char *path, ddl_error *err)
{
    const unsigned mode = (unsigned)facts->st_mode & 07777;
    const bool is_ours = facts->st_uid == geteuid(), is_roots = facts->st_uid == 0;
    if ((mode & 022) != 0)
        return DDL_FAIL(err, DDL_ECONFIG, "%s: others may write the key in %s (mode %04o): chmod 0600 %s",
                        what, path, mode, path);
    if (!is_ours && !is_roots)
        ddl_log(DDL_LOG_WARNING, "%s: the key in %s belongs to user %ld, neither to you (%ld) nor to root",
                what, path, (long)facts->st_uid, (long)geteuid());
    else if ((mode & (is_roots ? 007 : 077)) != 0)
        ddl_log(DDL_LOG_WARNING, "%s: others may read the key in %s (mode %04o): chmod 0600 %s", what, path,
                mode, path);
    return DDL_OK;
}

/* Nobody is asked for the password of a key. */
static int no_password(char *buffer, int size, int writing, void *arg)
{
    (void)buffer, (void)size, (void)writing;
    *(bool *)arg = true;
    return -1;
}

static ddl_status no_key(bool has_password, const char *what, const char *cert_file, const char *key_file,
                         ddl_error *err)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (has_password)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "%s: the key in %s has a password, which nobody is asked for; take it off: openssl "
                        "pkey -in %s",
                        what, key_file, key_file);
    return DDL_FAIL(err, DDL_ECONFIG, "%s: there is no key of %s in %s, or none that can be read: %s", what,
                    cert_file, key_file, reason != NULL ? reason : "no reason given");
}

/* A file without a key may be anybody's to read, so whose it is matters only then. */
static ddl_status use_file(int fd, SSL_CTX *inner, const char *what, const char *cert_file,
                           const char *key_file, ddl_error *err)
{
    struct stat facts;
    bool has_password = false;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))
        return DDL_FAIL(err, DDL_ECONFIG, "%s: the key %s is no regular file", what, key_file);
    BIO *file = BIO_new_fd(fd, BIO_NOCLOSE);
    EVP_PKEY *key = file != NULL ? PEM_read_bio_PrivateKey(file, NULL, no_password, &has_password) : NULL;
    ddl_status status = key != NULL ? check_owner(&facts, what, key_file, err) : DDL_OK;
    if (key == NULL) {
        status = no_key(has_password, what, cert_file, key_file, err);
    } else if (status == DDL_OK &&
               (SSL_CTX_use_PrivateKey(inner, key) != 1 || SSL_CTX_check_private_key(inner) != 1)) {
        status = DDL_FAIL(err, DDL_ECONFIG,
                          "%s: the key in %s is not that of the certificate in %s (the first one there)",
                          what, key_file, cert_file);
    }
    EVP_PKEY_free(key);
    BIO_free(file);
    return status;
}

ddl_status ddl_tls_key_load(SSL_CTX *inner, const char *what, const char *cert_file, const char *key_file,
                            ddl_error *err)
{
    /* O_NONBLOCK: a pipe planted there must not hold us. Links are followed, as renewed keys come by them. */
    const int fd = open(key_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "%s: cannot open the key of %s in %s", what, cert_file,
                           key_file);
    ddl_status status = use_file(fd, inner, what, cert_file, key_file, err);
    close(fd);
    return status;
}
