/* tls_pipe.c - see tls_pipe.h. */
#include "io/tls_pipe.h"

#include "base/assert.h"
#include "base/copy.h"
#include "base/size.h"
#include "io/socket.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { HANDSHAKE_RECORD = 22, BATCH_BYTES = 128 << 10 };

/*
 * OpenSSL takes memory for a message once its length is there, for a client's first up to 171 KiB. False:
 * this one is to be longer than all that is taken from this peer.
 */
static bool is_modest(struct ddl_tls_clear_text *clear, uint64_t limit, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (clear->record_left == 0) {
            clear->record[clear->record_have++] = data[i];
            if (clear->record_have == DDL_TLS_RECORD_HEADER) {
                clear->record_left = (size_t)clear->record[3] << 8 | clear->record[4];
                clear->record_have = 0;
            }
            continue;
        }
        clear->record_left--;
        if (clear->record[0] != HANDSHAKE_RECORD)
            continue;
        if (clear->message_left > 0) {
            clear->message_left--;
            continue;
        }
        clear->message[clear->message_have++] = data[i];
        if (clear->message_have < DDL_TLS_MESSAGE_HEADER)
            continue;
        clear->message_have = 0;
        clear->message_left =
            (size_t)clear->message[1] << 16 | (size_t)clear->message[2] << 8 | clear->message[3];
        if (clear->message_left > limit)
            return false;
    }
    return true;
}

/*
 * Behind a record's body the header of the next is read along, so that a record takes one call. Nothing is
 * hidden by that: a record has a body, which poll shows. In a session that hurries whole records are.
 */
static int bio_read(BIO *bio, char *data, int count)
{
    ddl_tls_pipe *pipe = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    pipe->blocked = false;
    size_t wanted = (size_t)count, ahead = pipe->ahead_to - pipe->ahead_from;
    if (ahead > 0) {
        size_t part = ddl_size_min(ahead, wanted);
        ddl_copy(data, pipe->ahead + pipe->ahead_from, part, false);
        pipe->ahead_from += part;
        return (int)part;
    }
    if (pipe->limit > 0 && pipe->taken_in >= pipe->limit) {
        snprintf(pipe->problem, DDL_CERTIFICATE_PROBLEM_TEXT,
                 "it sent more than %llu bytes before it proved anything", (unsigned long long)pipe->limit);
        return -1;
    }
    size_t room = wanted > DDL_TLS_RECORD_HEADER ? pipe->ahead_room : 0;
    if (pipe->limit > 0) {
        wanted = ddl_size_min(wanted, (size_t)(pipe->limit - pipe->taken_in));
        room = 0;
    }
    /* The system says but once that a connection was reset, and then that it has ended. */
    if (pipe->read_errno != 0)
        return -1;
    ssize_t got = ddl_socket_read_two(pipe->fd, data, wanted, pipe->ahead, room);
    if (got < 0 && errno == EAGAIN) {
        pipe->blocked = true;
        BIO_set_retry_read(bio);
        return -1;
    }
    if (got <= 0) {
        pipe->ended = got == 0;
        pipe->read_errno = got == 0 ? 0 : errno;
        return (int)got;
    }
    if (pipe->taken_in < DDL_TLS_FIRST_BYTES)
        memcpy(pipe->first + pipe->taken_in, data,
               ddl_size_min(ddl_size_min((size_t)got, wanted), DDL_TLS_FIRST_BYTES - (size_t)pipe->taken_in));
    pipe->taken_in += (uint64_t)got;
    if (pipe->limit > 0 && !is_modest(&pipe->clear, pipe->limit, (const uint8_t *)data, (size_t)got)) {
        snprintf(pipe->problem, DDL_CERTIFICATE_PROBLEM_TEXT,
                 "it began a message of %zu bytes before it proved anything", pipe->clear.message_left);
        return -1;
    }
    pipe->ahead_from = 0;
    pipe->ahead_to = (size_t)got > wanted ? (size_t)got - wanted : 0;
    return (int)ddl_size_min((size_t)got, wanted);
}

/* Send what is unsent, and then data, as far as the socket goes; a failure is kept for who writes. Returns
 * what was sent of data. */
static size_t send_all(ddl_tls_pipe *pipe, const char *data, size_t bytes)
{
    size_t sent = 0;
    while (pipe->write_errno == 0) {
        size_t kept = pipe->unsent_to - pipe->unsent_from;
        if (kept == 0 && sent == bytes)
            break;
        ssize_t count =
            ddl_socket_write_two(pipe->fd, pipe->unsent + pipe->unsent_from, kept, data + sent, bytes - sent);
        if (count < 0 && errno == EAGAIN) {
            pipe->stuck = true;
            return sent;
        }
        if (count < 0) {
            pipe->write_errno = errno;
            break;
        }
        size_t part = ddl_size_min((size_t)count, kept);
        pipe->unsent_from += part;
        sent += (size_t)count - part;
    }
    pipe->stuck = false;
    pipe->unsent_from = pipe->unsent_to = 0;
    return bytes; /* what cannot be sent is dropped: what the peer has said before can still be read */
}

void ddl_tls_pipe_flush(ddl_tls_pipe *pipe)
{
    (void)send_all(pipe, NULL, 0);
}

/*
 * Takes all there is room for, sent or not, so that OpenSSL never holds half a record that it would want to
 * be given again.
 */
static int bio_write(BIO *bio, const char *data, int count)
{
    ddl_tls_pipe *pipe = BIO_get_data(bio);
    size_t bytes = (size_t)count, taken = 0;
    BIO_clear_retry_flags(bio);
    if (pipe->write_errno != 0)
        return count;
    if (pipe->unsent_from > 0) {
        memmove(pipe->unsent, pipe->unsent + pipe->unsent_from, pipe->unsent_to - pipe->unsent_from);
        pipe->unsent_to -= pipe->unsent_from;
        pipe->unsent_from = 0;
    }
    bool waits = pipe->more && pipe->unsent_to + bytes + DDL_TLS_UNSENT_BYTES <= pipe->unsent_room;
    if (!waits && !pipe->stuck)
        taken = send_all(pipe, data, bytes);
    size_t kept = ddl_size_min(bytes - taken, pipe->unsent_room - pipe->unsent_to);
    if (kept > 0) {
        if (pipe->unsent_from > 0) {
            memmove(pipe->unsent, pipe->unsent + pipe->unsent_from, pipe->unsent_to - pipe->unsent_from);
            pipe->unsent_to -= pipe->unsent_from;
            pipe->unsent_from = 0;
            kept = ddl_size_min(bytes - taken, pipe->unsent_room - pipe->unsent_to);
        }
        ddl_copy(pipe->unsent + pipe->unsent_to, data + taken, kept, false);
        pipe->unsent_to += kept;
        taken += kept;
    }
    if (taken == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    return (int)taken;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* OpenSSL has few of these for a process, and takes none back. */
static pthread_once_t kind_once = PTHREAD_ONCE_INIT;
static int kind;

static void find_kind(void)
{
    kind = BIO_get_new_index();
}

BIO_METHOD *ddl_tls_pipe_method(void)
{
    (void)pthread_once(&kind_once, find_kind);
    BIO_METHOD *method = kind > 0 ? BIO_meth_new(kind | BIO_TYPE_SOURCE_SINK, "ddl socket") : NULL;
    if (method == NULL || BIO_meth_set_read(method, bio_read) != 1 ||
        BIO_meth_set_write(method, bio_write) != 1 || BIO_meth_set_ctrl(method, bio_control) != 1) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

bool ddl_tls_pipe_connect(ddl_tls_pipe *pipe, const BIO_METHOD *method, SSL *inner)
{
    BIO *bio = BIO_new(method);
    if (bio == NULL)
        return false;
    BIO_set_data(bio, pipe);
    BIO_set_init(bio, 1);
    SSL_set_bio(inner, bio, bio);
    return true;
}

void ddl_tls_pipe_init(ddl_tls_pipe *pipe, int fd, uint64_t limit, char *problem)
{
    pipe->fd = fd;
    pipe->limit = limit;
    pipe->problem = problem;
    pipe->ahead = pipe->first_ahead;
    pipe->ahead_room = sizeof pipe->first_ahead;
    pipe->unsent = pipe->first_unsent;
    pipe->unsent_room = sizeof pipe->first_unsent;
}

bool ddl_tls_pipe_hurry(ddl_tls_pipe *pipe)
{
    DDL_ASSERT(pipe->ahead == pipe->first_ahead);
    uint8_t *ahead = ddl_alloc(BATCH_BYTES), *unsent = ddl_alloc(BATCH_BYTES);
    if (ahead == NULL || unsent == NULL) {
        ddl_free(ahead);
        ddl_free(unsent);
        return false;
    }
    memcpy(ahead, pipe->ahead, pipe->ahead_to);
    memcpy(unsent, pipe->unsent, pipe->unsent_to);
    pipe->ahead = ahead;
    pipe->unsent = unsent;
    pipe->ahead_room = pipe->unsent_room = BATCH_BYTES;
    return true;
}

void ddl_tls_pipe_fini(ddl_tls_pipe *pipe)
{
    if (pipe->ahead != pipe->first_ahead)
        ddl_free(pipe->ahead);
    if (pipe->unsent != pipe->first_unsent)
        ddl_free(pipe->unsent);
}
