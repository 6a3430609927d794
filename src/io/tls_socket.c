/* tls_socket.c - the life of a TLS session, from its handshake to its last record. */
#include "io/tls_session.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/size.h"
#include "io/tls_reason.h"
#include "io/tls_use.h"

#include <openssl/err.h>
#include <stdio.h>
#include <string.h>

static const char binding_label[] = "EXPORTER-ddl-hello";

static ddl_status begin_session(ddl_tls_socket *tls, ddl_error *err)
{
    ERR_clear_error();
    if (!DDL_FAILPOINT("io.tls_socket"))
        tls->inner = SSL_new(tls->group->inner);
    if (tls->inner == NULL || !ddl_tls_pipe_connect(&tls->pipe, tls->group->bio, tls->inner)) {
        ddl_status status = DDL_FAIL(err, DDL_ENOMEM, "cannot set up a TLS session with %s: %s", tls->where,
                                     ddl_tls_reason());
        ERR_clear_error();
        return status;
    }
    SSL_set_app_data(tls->inner, tls);
    if (tls->is_server && !tls->group->by_certificate) /* a client of a key shows nothing */
        SSL_set_verify(tls->inner, SSL_VERIFY_NONE, NULL);
    if (tls->is_server)
        SSL_set_accept_state(tls->inner);
    else
        SSL_set_connect_state(tls->inner);
    return DDL_OK;
}

ddl_status ddl_tls_socket_create(const ddl_tls_group *group, const ddl_tls_socket_options *options,
                                 ddl_tls_socket **out, ddl_error *err)
{
    DDL_ASSERT(options->identity.bytes <= DDL_TLS_IDENTITY_LIMIT);
    ddl_tls_socket *tls = ddl_alloc(sizeof *tls);
    if (tls == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a TLS session");
    tls->group = group;
    tls->is_server = options->is_server;
    const uint64_t limit = group->by_certificate ? DDL_TLS_CERTS_PREAUTH_BYTES : DDL_TLS_KEYS_PREAUTH_BYTES;
    ddl_tls_pipe_init(&tls->pipe, options->fd, limit, tls->problem);
    tls->find_key = options->find_key;
    tls->arg = options->arg;
    snprintf(tls->where, sizeof tls->where, "%s", options->where);
    if (options->key.bytes > 0) {
        DDL_ASSERT(options->key.bytes == sizeof tls->key);
        memcpy(tls->key, options->key.data, sizeof tls->key);
        memcpy(tls->identity, options->identity.data, options->identity.bytes);
        tls->identity_bytes = options->identity.bytes;
    }
    ddl_tls_use_begin();
    ddl_status status = begin_session(tls, err);
    ddl_tls_use_end();
    if (status != DDL_OK) {
        ddl_tls_socket_destroy(tls);
        return status;
    }
    *out = tls;
    return DDL_OK;
}

void ddl_tls_socket_destroy(ddl_tls_socket *tls)
{
    if (tls == NULL)
        return;
    ddl_tls_use_begin();
    SSL_free(tls->inner);
    ddl_tls_use_end();
    ddl_tls_pipe_fini(&tls->pipe);
    ddl_clear(tls, offsetof(ddl_tls_socket, pipe.first_ahead)); /* the rest is encrypted */
    ddl_free(tls);
}

/* ---- the handshake ---- */

static ddl_status broken(const ddl_tls_socket *tls, ddl_error *err)
{
    if (tls->pipe.ended)
        return DDL_FAIL(err, DDL_ENETWORK, "TLS with %s: it closed the connection in the handshake",
                        tls->where);
    int cause = tls->pipe.read_errno != 0 ? tls->pipe.read_errno : tls->pipe.write_errno;
    return DDL_FAIL_OS(err, DDL_ENETWORK, cause, "TLS with %s: the connection broke in the handshake",
                       tls->where);
}

static ddl_status shake(ddl_tls_socket *tls, bool *done, ddl_error *err)
{
    *done = false;
    ddl_tls_pipe_flush(&tls->pipe);
    if (!tls->done) {
        tls->pipe.blocked = false;
        int result = SSL_do_handshake(tls->inner);
        if (result == 1 && !tls->group->by_certificate && !SSL_session_reused(tls->inner))
            return DDL_FAIL(err, DDL_EAUTH, "TLS with %s: it did not prove that it has our key", tls->where);
        if (result != 1) {
            bool waits = tls->pipe.blocked || SSL_want_write(tls->inner);
            if (waits && tls->problem[0] == '\0')
                return DDL_OK;
            if ((tls->pipe.ended || tls->pipe.read_errno != 0) && tls->problem[0] == '\0') {
                ERR_clear_error();
                return broken(tls, err);
            }
            ddl_status status = ddl_tls_explain(tls);
            ERR_clear_error();
            return DDL_FAIL(err, status, "TLS with %s: %s", tls->where, tls->problem);
        }
        tls->done = true;
        ddl_clear(tls->key, sizeof tls->key);
    }
    *done = !ddl_tls_socket_has_unsent(tls);
    return tls->pipe.write_errno == 0 ? DDL_OK : broken(tls, err);
}

ddl_status ddl_tls_socket_shake(ddl_tls_socket *tls, bool *done, ddl_error *err)
{
    ddl_tls_use_begin();
    ddl_status status = shake(tls, done, err);
    ddl_tls_use_end();
    return status;
}

bool ddl_tls_socket_other_key(const ddl_tls_socket *tls)
{
    return tls->other_key;
}

bool ddl_tls_socket_bad_certificate(const ddl_tls_socket *tls)
{
    return tls->bad_certificate;
}

ddl_view ddl_tls_socket_first(const ddl_tls_socket *tls)
{
    return (ddl_view){ tls->pipe.first, tls->pipe.taken_in < DDL_TLS_FIRST_BYTES ? (size_t)tls->pipe.taken_in
                                                                                 : DDL_TLS_FIRST_BYTES };
}

ddl_status ddl_tls_socket_binding(ddl_tls_socket *tls, uint8_t binding[DDL_TLS_BINDING_BYTES], ddl_error *err)
{
    DDL_ASSERT(tls->done);
    ddl_status status = DDL_OK;
    ddl_tls_use_begin();
    int good = SSL_export_keying_material(tls->inner, binding, DDL_TLS_BINDING_BYTES, binding_label,
                                          sizeof binding_label - 1, NULL, 0, 0);
    if (good != 1)
        status = DDL_FAIL(err, DDL_ENOMEM, "TLS with %s: no binding: %s", tls->where, ddl_tls_reason());
    ERR_clear_error();
    ddl_tls_use_end();
    return status;
}

static ddl_status check_names(const ddl_tls_socket *tls, const char *const names[], int count, ddl_error *err)
{
    char wanted[300] = "", seen[DDL_CERTIFICATE_NAMES_TEXT] = "nobody";
    X509 *certificate = SSL_get0_peer_certificate(tls->inner);
    for (int i = 0; i < count; i++) {
        if (names[i] == NULL || names[i][0] == '\0')
            continue;
        if (certificate != NULL && ddl_certificate_is_for(certificate, names[i]))
            return DDL_OK;
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s%s", used > 0 ? " or " : "", names[i]);
    }
    if (certificate != NULL)
        ddl_certificate_names(certificate, seen);
    return DDL_FAIL(err, DDL_EAUTH,
                    "TLS with %s: its certificate is for %s, not for %s; names count only where they are "
                    "subject alternative names",
                    tls->where, seen, wanted);
}

ddl_status ddl_tls_socket_check_names(const ddl_tls_socket *tls, const char *const names[], int count,
                                      ddl_error *err)
{
    ddl_tls_use_begin();
    ddl_status status = check_names(tls, names, count, err);
    ddl_tls_use_end();
    return status;
}

void ddl_tls_socket_trust(ddl_tls_socket *tls)
{
    tls->pipe.limit = 0;
}

bool ddl_tls_socket_hurry(ddl_tls_socket *tls)
{
    return ddl_tls_pipe_hurry(&tls->pipe);
}

/* ---- data ---- */

/* What a read comes to that got nothing. */
static ssize_t nothing_read(ddl_tls_socket *tls)
{
    bool is_silent = tls->problem[0] == '\0';
    if (is_silent && (tls->pipe.blocked || SSL_want_write(tls->inner))) {
        errno = EAGAIN;
        return -1;
    }
    if (is_silent && tls->pipe.read_errno == 0 && tls->pipe.ended) {
        ERR_clear_error();
        return 0;
    }
    if (is_silent && tls->pipe.read_errno != 0) {
        ERR_clear_error();
        errno = tls->pipe.read_errno;
        return -1;
    }
    if (is_silent && SSL_get_error(tls->inner, 0) == SSL_ERROR_ZERO_RETURN)
        return 0; /* it has closed its session, in order */
    (void)ddl_tls_explain(tls);
    ERR_clear_error();
    errno = EBADMSG;
    return -1;
}

ssize_t ddl_tls_socket_read(ddl_tls_socket *tls, void *data, size_t bytes)
{
    size_t got = 0;
    DDL_ASSERT(bytes > 0);
    if (tls->problem[0] != '\0') {
        errno = EBADMSG;
        return -1;
    }
    ddl_tls_use_begin();
    tls->pipe.blocked = false;
    if (tls->pipe.stuck) /* what reading has to answer needs room */
        ddl_tls_pipe_flush(&tls->pipe);
    ssize_t count = SSL_read_ex(tls->inner, data, bytes, &got) == 1 ? (ssize_t)got : nothing_read(tls);
    ddl_tls_use_end();
    return count;
}

/* Encrypt at most one record; what it took. */
static size_t write_record(ddl_tls_socket *tls, const uint8_t *data, size_t bytes, bool more)
{
    size_t part = ddl_size_min(bytes, DDL_TLS_RECORD_BYTES), taken = 0;
    if (tls->under_key + part > tls->group->rekey_bytes) {
        if (SSL_key_update(tls->inner, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            return 0;
        tls->under_key = 0;
    }
    tls->pipe.more = more || part < bytes;
    if (SSL_write_ex(tls->inner, data, part, &taken) != 1)
        return 0;
    tls->under_key += taken;
    return taken;
}

static ssize_t write_records(ddl_tls_socket *tls, const void *data, size_t bytes, bool more)
{
    size_t written = 0;
    if (tls->pipe.stuck || bytes == 0) /* else it goes along with what comes now */
        ddl_tls_pipe_flush(&tls->pipe);
    while (written < bytes && !tls->pipe.stuck && tls->pipe.write_errno == 0) {
        size_t taken = write_record(tls, (const uint8_t *)data + written, bytes - written, more);
        if (taken == 0) {
            if (tls->problem[0] == '\0')
                (void)ddl_tls_explain(tls);
            ERR_clear_error();
            errno = EBADMSG;
            return -1;
        }
        written += taken;
    }
    tls->pipe.more = false;
    if (tls->pipe.write_errno != 0) {
        errno = tls->pipe.write_errno;
        return -1;
    }
    if (written == 0 && ddl_tls_pipe_has_unsent(&tls->pipe)) {
        errno = EAGAIN;
        return -1;
    }
    return (ssize_t)written;
}

ssize_t ddl_tls_socket_write(ddl_tls_socket *tls, const void *data, size_t bytes, bool more)
{
    ddl_tls_use_begin();
    ssize_t count = write_records(tls, data, bytes, more);
    ddl_tls_use_end();
    return count;
}

const char *ddl_tls_socket_problem(const ddl_tls_socket *tls)
{
    return tls->problem;
}

bool ddl_tls_socket_has_unsent(const ddl_tls_socket *tls)
{
    return ddl_tls_pipe_has_unsent(&tls->pipe);
}

bool ddl_tls_socket_has_unread(const ddl_tls_socket *tls)
{
    return tls->problem[0] != '\0' || /* which a read that had something to give has not told */
           ddl_tls_pipe_has_unread(&tls->pipe) || SSL_pending(tls->inner) > 0;
}
