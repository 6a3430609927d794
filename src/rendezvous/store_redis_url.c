/* store_redis_url.c - the address of a Redis server, and the file with its password. */
#include "rendezvous/store_redis_url.h"

#include "base/bytes.h"
#include "io/address.h"
#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORM "redis://[user[:password-file]@]host:port[/db][?prefix=P]"

enum { DB_MAX = 1 << 20 };

/* ---- pieces of text ---- */

static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = digit != '\0' ? strchr(digits, digit) : NULL;
    return at != NULL ? (int)(at - digits) % 16 : -1;
}

/* Copy text up to end into room bytes, %XX made into what it stands for; false if it does not fit or is
 * malformed. */
static bool take(const char *text, const char *end, char *to, size_t room)
{
    size_t used = 0;
    while (text < end) {
        char byte = *text++;
        if (byte == '%') {
            if (end - text < 2 || hex_digit(text[0]) < 0 || hex_digit(text[1]) < 0)
                return false;
            byte = (char)(hex_digit(text[0]) << 4 | hex_digit(text[1]));
            text += 2;
        }
        if (byte == '\0' || used + 1 >= room)
            return false;
        to[used++] = byte;
    }
    to[used] = '\0';
    return true;
}

static const char *last_of(const char *text, const char *end, char wanted)
{
    const char *found = NULL;
    for (; text < end; text++)
        found = *text == wanted ? text : found;
    return found;
}

/* ---- parts ---- */

static ddl_status parse_user(const char *at, const char *end, ddl_redis_url *url, ddl_error *err)
{
    const char *colon = memchr(at, ':', (size_t)(end - at));
    if (!take(at, colon != NULL ? colon : end, url->user, sizeof url->user))
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE: the Redis user is too long or malformed; write " FORM);
    if (colon == NULL)
        return DDL_OK;
    if (!take(colon + 1, end, url->password_file, sizeof url->password_file) ||
        url->password_file[0] != '/') {
        url->password_file[0] = '\0';
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "DDL_STORE: what stands between the Redis user and @ must be the whole path of a file "
            "with the password, never the password itself");
    }
    return DDL_OK;
}

static ddl_status parse_db(const char *at, const char *end, ddl_redis_url *url, ddl_error *err)
{
    long db = 0;
    for (; at < end && db < DB_MAX; at++) {
        if (*at < '0' || *at > '9')
            break;
        db = 10 * db + (*at - '0');
    }
    if (at < end)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE: the Redis database is no number; write " FORM);
    url->db = (int)db;
    return DDL_OK;
}

/* What keys begin with is shown, and stands in rules of access. */
static bool is_good_prefix(const char *prefix)
{
    return prefix[0] != '\0' && strspn(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                               "0123456789._-:") == strlen(prefix);
}

static ddl_status parse_options(const char *at, ddl_redis_url *url, ddl_error *err)
{
    const struct {
        const char *name;
        char *to;
        size_t room;
    } known[] = { { "prefix=", url->prefix, sizeof url->prefix },
                  { "cacert=", url->ca_file, sizeof url->ca_file },
                  { "cert=", url->cert_file, sizeof url->cert_file },
                  { "key=", url->key_file, sizeof url->key_file } };
    while (*at != '\0') {
        const char *end = at + strcspn(at, "&");
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++) {
            size_t bytes = strlen(known[i].name);
            found = strncmp(at, known[i].name, bytes) == 0;
            if (found && !take(at + bytes, end, known[i].to, known[i].room))
                return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE: the value of %.*s is too long or malformed",
                                (int)bytes - 1, known[i].name);
        }
        if (!found)
            return DDL_FAIL(
                err, DDL_ECONFIG,
                "DDL_STORE: of what follows ? in a Redis URL, prefix=, cacert=, cert= and key= are "
                "known, and there is something else");
        at = *end == '&' ? end + 1 : end;
    }
    if (!is_good_prefix(url->prefix))
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_STORE: the prefix of Redis keys is of letters, digits and ._-: only");
    return DDL_OK;
}

static void take_from_environment(const char *name, char *to, size_t room)
{
    const char *value = getenv(name);
    if (to[0] == '\0' && value != NULL && strlen(value) < room)
        snprintf(to, room, "%s", value);
}

ddl_status ddl_redis_url_parse(const char *rest, bool is_tls, ddl_redis_url *url, ddl_error *err)
{
    char place[sizeof url->host + 8];
    const char *options = strchr(rest, '?');
    const char *end = options != NULL ? options : rest + strlen(rest);
    const char *at = last_of(rest, end, '@');
    ddl_error why;
    *url = (ddl_redis_url){ .is_tls = is_tls, .prefix = "ddl" };
    if (at != NULL)
        DDL_TRY(parse_user(rest, at, url, err));
    const char *host = at != NULL ? at + 1 : rest;
    const char *slash = memchr(host, '/', (size_t)(end - host));
    if (!take(host, slash != NULL ? slash : end, place, sizeof place))
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE: the Redis host is too long or malformed; write " FORM);
    /* Its own words repeat the address, which may be a part of a password that was written here. */
    if (ddl_address_split("", place, url->host, sizeof url->host, &url->port, &why) != DDL_OK)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_STORE: the Redis address is not host:port with a port from 1 to 65535 (an IPv6 "
                        "address in brackets); write " FORM);
    if (slash != NULL)
        DDL_TRY(parse_db(slash + 1, end, url, err));
    DDL_TRY(parse_options(options != NULL ? options + 1 : "", url, err));
    if (is_tls) {
        take_from_environment("DDL_REDIS_CACERT", url->ca_file, sizeof url->ca_file);
        take_from_environment("DDL_REDIS_CERT", url->cert_file, sizeof url->cert_file);
        take_from_environment("DDL_REDIS_KEY", url->key_file, sizeof url->key_file);
    }
    return DDL_OK;
}

/* ---- the password ---- */

static ddl_status read_line(int fd, const char *path, char password[DDL_REDIS_PASSWORD_BYTES], ddl_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "the password file %s must be a regular file that belongs to you and that nobody else "
            "can read or write: chmod 600",
            path);
    size_t used = 0;
    ssize_t count = 0;
    while (used < DDL_REDIS_PASSWORD_BYTES - 1 &&
           ((count = read(fd, password + used, DDL_REDIS_PASSWORD_BYTES - 1 - used)) > 0 ||
            (count < 0 && errno == EINTR)))
        used += count > 0 ? (size_t)count : 0;
    password[used] = '\0';
    if (count < 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "reading the password file %s failed", path);
    size_t bytes = strcspn(password, "\r\n");
    if (bytes == 0 || (bytes == used && used == DDL_REDIS_PASSWORD_BYTES - 1))
        return DDL_FAIL(err, DDL_ECONFIG, "the first line of the password file %s is %s", path,
                        bytes == 0 ? "empty" : "too long");
    password[bytes] = '\0';
    return DDL_OK;
}

ddl_status ddl_redis_password_read(const char *path, char password[DDL_REDIS_PASSWORD_BYTES], ddl_error *err)
{
    /* A fifo must not hold us, hence O_NONBLOCK. */
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return DDL_FAIL(err, DDL_ECONFIG, "the password file %s is a link; name the file itself", path);
    if (fd < 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "opening the password file %s failed", path);
    ddl_status status = read_line(fd, path, password, err);
    ddl_socket_close(&fd);
    if (status != DDL_OK)
        ddl_clear(password, DDL_REDIS_PASSWORD_BYTES);
    return status;
}
