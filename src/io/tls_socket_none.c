/* tls_socket_none.c - a build without OpenSSL: every call but the first is never made. */
#include "io/tls_socket.h"

#include "base/assert.h"

#include <errno.h>

const uint8_t ddl_tls_protocol[DDL_TLS_PROTOCOL_BYTES] = { 6, 'd', 'd', 'l', '/', '1', '0' };

ddl_status ddl_tls_group_create(const ddl_tls_group_options *options, ddl_tls_group **group, ddl_error *err)
{
    (void)options;
    (void)group;
    return DDL_FAIL(
        err, DDL_EUNSUPPORTED,
        "DDL_SECURITY=tls: this ddl was built without TLS; install OpenSSL 3 (libssl-dev) and build "
        "it again, or use auth");
}

void ddl_tls_group_destroy(ddl_tls_group *group)
{
    DDL_ASSERT(group == NULL);
}

ddl_status ddl_tls_socket_create(const ddl_tls_group *group, const ddl_tls_socket_options *options,
                                 ddl_tls_socket **tls, ddl_error *err)
{
    (void)tls;
    DDL_ASSERT(group == NULL);
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "%s: no TLS in this build", options->where);
}

void ddl_tls_socket_destroy(ddl_tls_socket *tls)
{
    DDL_ASSERT(tls == NULL);
}

ddl_status ddl_tls_socket_shake(ddl_tls_socket *tls, bool *done, ddl_error *err)
{
    (void)tls;
    *done = false;
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "no TLS in this build");
}

bool ddl_tls_socket_other_key(const ddl_tls_socket *tls)
{
    (void)tls;
    return false;
}

bool ddl_tls_socket_bad_certificate(const ddl_tls_socket *tls)
{
    (void)tls;
    return false;
}

ddl_view ddl_tls_socket_first(const ddl_tls_socket *tls)
{
    (void)tls;
    return (ddl_view){ NULL, 0 };
}

ddl_status ddl_tls_socket_binding(ddl_tls_socket *tls, uint8_t binding[DDL_TLS_BINDING_BYTES], ddl_error *err)
{
    (void)tls;
    (void)binding;
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "no TLS in this build");
}

ddl_status ddl_tls_socket_check_names(const ddl_tls_socket *tls, const char *const names[], int count,
                                      ddl_error *err)
{
    (void)tls;
    (void)names;
    (void)count;
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "no TLS in this build");
}

void ddl_tls_socket_trust(ddl_tls_socket *tls)
{
    (void)tls;
}

bool ddl_tls_socket_hurry(ddl_tls_socket *tls)
{
    DDL_ASSERT(tls == NULL);
    return true;
}

ssize_t ddl_tls_socket_read(ddl_tls_socket *tls, void *data, size_t bytes)
{
    (void)tls;
    (void)data;
    (void)bytes;
    errno = EBADMSG;
    return -1;
}

ssize_t ddl_tls_socket_write(ddl_tls_socket *tls, const void *data, size_t bytes, bool more)
{
    (void)tls;
    (void)data;
    (void)bytes;
    (void)more;
    errno = EBADMSG;
    return -1;
}

const char *ddl_tls_socket_problem(const ddl_tls_socket *tls)
{
    (void)tls;
    return "no TLS in this build";
}

bool ddl_tls_socket_has_unsent(const ddl_tls_socket *tls)
{
    (void)tls;
    return false;
}

bool ddl_tls_socket_has_unread(const ddl_tls_socket *tls)
{
    (void)tls;
    return false;
}
