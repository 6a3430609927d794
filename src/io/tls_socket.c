/* tls_socket.c - OpenSSL over a BIO of our own: one that keeps what a full socket does not take. */
#include "io/tls_socket.h"

#include "base/assert.h"
#include "base/copy.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/size.h"
#include "io/address.h"
#include "io/socket.h"
#include "io/tls_aes.h"
#include "io/tls_certificate.h"
#include "io/tls_key.h"
#include "io/tls_use.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    RECORD_HEADER = 5,
    MESSAGE_HEADER = 4,
    HANDSHAKE_RECORD = 22,
    /* One record as large as they get, and a change of keys or an alert before and behind it. */
    UNSENT_BYTES = DDL_TLS_RECORD_BYTES + 1024,
    BATCH_BYTES = 128 << 10,
    IDENTITY_LIMIT = 96,
    FIRST_BYTES = 12,
    CHAIN_BYTES = DDL_TLS_CERTS_PREAUTH_BYTES - 4096 /* the rest of a handshake is less than that */
};

/* AES-GCM is safe for 2^24.5 records under one key (RFC 8446, 5.5); 2^36 bytes is the house's limit. */
static const uint64_t rekey_bytes = UINT64_C(1) << 35;

/* AES is in hardware wherever speed matters; one suite leaves nothing to be chosen wrong. */
static const char cipher_name[] = "TLS_AES_128_GCM_SHA256";
static const unsigned char cipher_id[] = { 0x13, 0x01 };
const uint8_t ddl_tls_protocol[DDL_TLS_PROTOCOL_BYTES] = { 5, 'd', 'd', 'l', '/', '8' };
static const char binding_label[] = "EXPORTER-ddl-hello";

struct ddl_tls_group {
    SSL_CTX *inner;
    BIO_METHOD *bio;
    bool by_certificate;
    uint64_t rekey_bytes;
    char ca[200], certificate[200]; /* for texts */
};

/* Where in the records and handshake messages that come in clear a peer is that is not trusted. */
struct clear_text {
    uint8_t record[RECORD_HEADER], message[MESSAGE_HEADER];
    size_t record_have, message_have;
    size_t record_left, message_left; /* behind a header that is whole */
};

struct ddl_tls_socket {
    SSL *inner;
    const ddl_tls_group *group;
    int fd;
    bool is_server;
    bool done;  /* with the handshake */
    bool ended; /* the peer has closed */
    bool blocked;
    bool more; /* to be written at once: the kernel may wait for it to fill a segment */
    int read_errno, write_errno;
    bool other_key, bad_certificate;
    bool calls_by_key;        /* a client, where certificates are asked for */
    uint64_t taken_in, limit; /* bytes from the peer; limit: until it is trusted */
    struct clear_text clear;
    uint64_t under_key;         /* written */
    uint8_t first[FIRST_BYTES]; /* that came */
    bool stuck;                 /* the socket has not taken all that it was given */
    size_t ahead_from, ahead_to, ahead_room;
    uint8_t *ahead; /* of the next records, what came along with one */
    size_t unsent_from, unsent_to, unsent_room;
    uint8_t *unsent;                  /* what the socket has not taken, or is not given yet */
    uint8_t identity[IDENTITY_LIMIT]; /* of a client */
    size_t identity_bytes;
    uint8_t key[DDL_TLS_KEY_BYTES]; /* until the handshake is done */
    bool (*find_key)(const void *arg, ddl_view identity, uint8_t key[DDL_TLS_KEY_BYTES]);
    const void *arg;
    char where[DDL_ADDRESS_FULL_TEXT];
    char problem[DDL_CERTIFICATE_PROBLEM_TEXT]; /* with the peer, in words; "" if there is none */
    uint8_t first_ahead[RECORD_HEADER];
    uint8_t first_unsent[UNSENT_BYTES];
};

static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text != NULL ? text : "no reason given";
}

/* ---- the socket, as OpenSSL sees it ---- */

/*
 * OpenSSL takes memory for a message once its length is there, for a client's first up to 171 KiB. False:
 * this one is to be longer than all that is taken from this peer.
 */
static bool is_modest(struct clear_text *clear, uint64_t limit, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (clear->record_left == 0) {
            clear->record[clear->record_have++] = data[i];
            if (clear->record_have == RECORD_HEADER) {
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
        if (clear->message_have < MESSAGE_HEADER)
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
    ddl_tls_socket *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    tls->blocked = false;
    size_t wanted = (size_t)count, ahead = tls->ahead_to - tls->ahead_from;
    if (ahead > 0) {
        size_t part = ddl_size_min(ahead, wanted);
        ddl_copy(data, tls->ahead + tls->ahead_from, part, false);
        tls->ahead_from += part;
        return (int)part;
    }
    if (tls->limit > 0 && tls->taken_in >= tls->limit) {
        snprintf(tls->problem, sizeof tls->problem, "it sent more than %llu bytes before it proved anything",
                 (unsigned long long)tls->limit);
        return -1;
    }
    size_t room = wanted > RECORD_HEADER ? tls->ahead_room : 0;
    if (tls->limit > 0) {
        wanted = ddl_size_min(wanted, (size_t)(tls->limit - tls->taken_in));
        room = 0;
    }
    ssize_t got = ddl_socket_read_two(tls->fd, data, wanted, tls->ahead, room);
    if (got < 0 && errno == EAGAIN) {
        tls->blocked = true;
        BIO_set_retry_read(bio);
        return -1;
    }
    if (got <= 0) {
        tls->ended = got == 0;
        tls->read_errno = got == 0 ? 0 : errno;
        return (int)got;
    }
    if (tls->taken_in < FIRST_BYTES)
        memcpy(tls->first + tls->taken_in, data,
               ddl_size_min(ddl_size_min((size_t)got, wanted), FIRST_BYTES - (size_t)tls->taken_in));
    tls->taken_in += (uint64_t)got;
    if (tls->limit > 0 && !is_modest(&tls->clear, tls->limit, (const uint8_t *)data, (size_t)got)) {
        snprintf(tls->problem, sizeof tls->problem,
                 "it began a message of %zu bytes before it proved anything", tls->clear.message_left);
        return -1;
    }
    tls->ahead_from = 0;
    tls->ahead_to = (size_t)got > wanted ? (size_t)got - wanted : 0;
    return (int)ddl_size_min((size_t)got, wanted);
}

/* Send what is unsent, and then data, as far as the socket goes; a failure is kept for who writes. Returns
 * what was sent of data. */
static size_t send_all(ddl_tls_socket *tls, const char *data, size_t bytes)
{
    size_t sent = 0;
    while (tls->write_errno == 0) {
        size_t kept = tls->unsent_to - tls->unsent_from;
        if (kept == 0 && sent == bytes)
            break;
        ssize_t count =
            ddl_socket_write_two(tls->fd, tls->unsent + tls->unsent_from, kept, data + sent, bytes - sent);
        if (count < 0 && errno == EAGAIN) {
            tls->stuck = true;
            return sent;
        }
        if (count < 0) {
            tls->write_errno = errno;
            break;
        }
        size_t part = ddl_size_min((size_t)count, kept);
        tls->unsent_from += part;
        sent += (size_t)count - part;
    }
    tls->stuck = false;
    tls->unsent_from = tls->unsent_to = 0;
    return bytes; /* what cannot be sent is dropped: what the peer has said before can still be read */
}

static void send_unsent(ddl_tls_socket *tls)
{
    (void)send_all(tls, NULL, 0);
}

/*
 * Takes all there is room for, sent or not, so that OpenSSL never holds half a record that it would want to
 * be given again.
 */
static int bio_write(BIO *bio, const char *data, int count)
{
    ddl_tls_socket *tls = BIO_get_data(bio);
    size_t bytes = (size_t)count, taken = 0;
    BIO_clear_retry_flags(bio);
    if (tls->write_errno != 0)
        return count;
    if (tls->unsent_from > 0) {
        memmove(tls->unsent, tls->unsent + tls->unsent_from, tls->unsent_to - tls->unsent_from);
        tls->unsent_to -= tls->unsent_from;
        tls->unsent_from = 0;
    }
    bool waits = tls->more && tls->unsent_to + bytes + UNSENT_BYTES <= tls->unsent_room;
    if (!waits && !tls->stuck)
        taken = send_all(tls, data, bytes);
    size_t kept = ddl_size_min(bytes - taken, tls->unsent_room - tls->unsent_to);
    if (kept > 0) {
        if (tls->unsent_from > 0) {
            memmove(tls->unsent, tls->unsent + tls->unsent_from, tls->unsent_to - tls->unsent_from);
            tls->unsent_to -= tls->unsent_from;
            tls->unsent_from = 0;
            kept = ddl_size_min(bytes - taken, tls->unsent_room - tls->unsent_to);
        }
        ddl_copy(tls->unsent + tls->unsent_to, data + taken, kept, false);
        tls->unsent_to += kept;
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

static BIO_METHOD *make_bio_method(void)
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

/* ---- the group ---- */

/* Known before a certificate is shown. */
static bool speaks_ddl(const SSL *inner)
{
    const unsigned char *name;
    unsigned bytes;
    SSL_get0_alpn_selected(inner, &name, &bytes);
    return bytes == DDL_TLS_PROTOCOL_BYTES - 1 && memcmp(name, ddl_tls_protocol + 1, bytes) == 0;
}

/* The finding about a certificate: OpenSSL asks for each, and the first stands. */
static int judge(int good, X509_STORE_CTX *chain)
{
    SSL *inner = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    if (!tls->group->by_certificate) {
        snprintf(
            tls->problem, sizeof tls->problem,
            "it shows a certificate, which is for ranks with DDL_TLS_CERT; set that for all or for none");
        return 0;
    }
    if (!good && tls->problem[0] == '\0') {
        tls->bad_certificate = speaks_ddl(inner);
        ddl_certificate_explain(X509_STORE_CTX_get0_cert(chain), X509_STORE_CTX_get_current_cert(chain),
                                X509_STORE_CTX_get_error(chain), tls->where, tls->group->ca, tls->problem);
    }
    return good;
}

/* Every rank calls and is called, if only rank 0 its own store. */
static ddl_status check_usage(const ddl_tls_group *group, ddl_error *err)
{
    X509 *own = SSL_CTX_get0_certificate(group->inner);
    if (X509_check_purpose(own, X509_PURPOSE_SSL_CLIENT, 0) == 1 &&
        X509_check_purpose(own, X509_PURPOSE_SSL_SERVER, 0) == 1)
        return DDL_OK;
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "DDL_TLS_CERT: the certificate in %s is not for both ends of a connection, as ranks need it: "
        "have it issued with extendedKeyUsage serverAuth and clientAuth, and keyUsage digitalSignature, or "
        "without these",
        group->certificate);
}

/* Nobody would accept it, and who shows it is told only that. */
static ddl_status check_dates(const ddl_tls_group *group, ddl_error *err)
{
    char problem[DDL_CERTIFICATE_PROBLEM_TEXT];
    X509 *own = SSL_CTX_get0_certificate(group->inner);
    const int code = ddl_certificate_check_dates(own);
    if (code == X509_V_OK)
        return DDL_OK;
    ddl_certificate_explain(own, own, code, "", group->ca, problem);
    return DDL_FAIL(err, DDL_EAUTH, "DDL_TLS_CERT: %s, by this host's clock; it is this rank's own, in %s",
                    problem, group->certificate);
}

/* A peer reads only so much of who has not proved anything. */
static ddl_status check_chain(const ddl_tls_group *group, ddl_error *err)
{
    STACK_OF(X509) *chain = NULL;
    int bytes = i2d_X509(SSL_CTX_get0_certificate(group->inner), NULL);
    SSL_CTX_get0_chain_certs(group->inner, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++)
        bytes += i2d_X509(sk_X509_value(chain, i), NULL);
    if (bytes <= CHAIN_BYTES)
        return DDL_OK;
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "DDL_TLS_CERT: the certificates in %s have %d bytes, and peers take %d; only this rank's own "
        "and those between it and an authority in DDL_TLS_CA belong there",
        group->certificate, bytes, (int)CHAIN_BYTES);
}

static ddl_status load_files(ddl_tls_group *group, const ddl_tls_group_options *options, ddl_error *err)
{
    const char *key = options->key_file != NULL ? options->key_file : options->cert_file;
    snprintf(group->ca, sizeof group->ca, "%s", options->ca_file);
    snprintf(group->certificate, sizeof group->certificate, "%s", options->cert_file);
    if (SSL_CTX_load_verify_locations(group->inner, options->ca_file, NULL) != 1)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_TLS_CA: cannot read certificates of authorities from %s: %s",
                        options->ca_file, reason());
    if (SSL_CTX_use_certificate_chain_file(group->inner, options->cert_file) != 1)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_TLS_CERT: cannot read a certificate from %s: %s",
                        options->cert_file, reason());
    DDL_TRY(check_usage(group, err));
    DDL_TRY(check_dates(group, err));
    DDL_TRY(check_chain(group, err));
    return ddl_tls_key_load(group->inner, options->key_file != NULL ? "DDL_TLS_KEY" : "DDL_TLS_CERT",
                            options->cert_file, key, err);
}

/* A client that wants to speak something else is at the wrong door. */
static int choose_protocol(SSL *inner, const unsigned char **chosen, unsigned char *chosen_bytes,
                           const unsigned char *offered, unsigned offered_bytes, void *arg)
{
    (void)inner, (void)arg;
    for (unsigned at = 0; at + DDL_TLS_PROTOCOL_BYTES <= offered_bytes; at += 1u + offered[at])
        if (memcmp(offered + at, ddl_tls_protocol, DDL_TLS_PROTOCOL_BYTES) == 0) {
            *chosen = offered + at + 1;
            *chosen_bytes = DDL_TLS_PROTOCOL_BYTES - 1;
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int find_for_server(SSL *inner, const unsigned char *identity, size_t identity_bytes,
                           SSL_SESSION **session);
static int use_as_client(SSL *inner, const EVP_MD *digest, const unsigned char **identity,
                         size_t *identity_bytes, SSL_SESSION **session);

/* Of certificates (OpenSSL 3.2 and later): a few bytes would stand for many, or be said to, and take as much
 * memory. */
static void refuse_compression(SSL_CTX *inner)
{
#ifdef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
    SSL_CTX_set_options(inner, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION | SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
#else
    (void)inner;
#endif
}

/* Where certificates are asked for, a client that calls by a key has none to show, and finds fault with ours.
 */
static int see_whether_by_key(SSL *inner, int *alert, void *arg)
{
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    const unsigned char *identities;
    size_t bytes;
    (void)alert, (void)arg;
    tls->calls_by_key = SSL_client_hello_get0_ext(inner, TLSEXT_TYPE_psk, &identities, &bytes) == 1;
    return SSL_CLIENT_HELLO_SUCCESS;
}

static ddl_status set_up(ddl_tls_group *group, const ddl_tls_group_options *options, ddl_error *err)
{
    if (group->inner == NULL || group->bio == NULL ||
        SSL_CTX_set_min_proto_version(group->inner, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(group->inner, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(group->inner, cipher_name) != 1 ||
        SSL_CTX_set1_groups_list(group->inner, "X25519:P-256") != 1 ||
        SSL_CTX_set_num_tickets(group->inner, 0) != 1 ||
        SSL_CTX_set_alpn_protos(group->inner, ddl_tls_protocol, DDL_TLS_PROTOCOL_BYTES) != 0)
        return DDL_FAIL(err, DDL_ENOMEM, "cannot set up TLS: %s", reason());
    SSL_CTX_clear_options(group->inner, SSL_OP_ALLOW_NO_DHE_KEX); /* whatever the system's settings are */
    SSL_CTX_set_options(group->inner, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    refuse_compression(group->inner);
    ddl_tls_refuse_weak_keys(group->inner);
    SSL_CTX_set_alpn_select_cb(group->inner, choose_protocol, NULL);
    SSL_CTX_set_session_cache_mode(group->inner, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(group->inner, DDL_TLS_CERTS_PREAUTH_BYTES);
    /* Also where trust is by keys: a server that shows a certificate instead is not to be believed. */
    SSL_CTX_set_verify(group->inner, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, judge);
    if (group->by_certificate) {
        SSL_CTX_set_client_hello_cb(group->inner, see_whether_by_key, NULL);
        return load_files(group, options, err);
    }
    SSL_CTX_set_psk_find_session_callback(group->inner, find_for_server);
    SSL_CTX_set_psk_use_session_callback(group->inner, use_as_client);
    return DDL_OK;
}

static SSL_CTX *make_context(bool openssl_aes)
{
    const ddl_tls_aes aes = openssl_aes ? (ddl_tls_aes){ NULL, NULL, "OpenSSL, as is wanted (DDL_TLS_AES)" }
                                        : ddl_tls_aes_choose();
    ddl_log(DDL_LOG_DEBUG, "TLS: AES is computed by %s", aes.why);
    return SSL_CTX_new_ex(aes.context, aes.properties, TLS_method());
}

ddl_status ddl_tls_group_create(const ddl_tls_group_options *options, ddl_tls_group **out, ddl_error *err)
{
    DDL_ASSERT((options->ca_file != NULL) == (options->cert_file != NULL));
    ddl_tls_group *group = ddl_alloc(sizeof *group);
    if (group == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for TLS");
    ddl_tls_use_begin();
    ERR_clear_error();
    group->by_certificate = options->cert_file != NULL;
    group->rekey_bytes = options->rekey_bytes > 0 ? options->rekey_bytes : rekey_bytes;
    group->bio = make_bio_method();
    if (!DDL_FAILPOINT("io.tls_group"))
        group->inner = make_context(options->openssl_aes);
    ddl_status status = set_up(group, options, err);
    ERR_clear_error();
    ddl_tls_use_end();
    if (status != DDL_OK) {
        ddl_tls_group_destroy(group);
        return status;
    }
    *out = group;
    return DDL_OK;
}

void ddl_tls_group_destroy(ddl_tls_group *group)
{
    if (group == NULL)
        return;
    ddl_tls_use_begin();
    SSL_CTX_free(group->inner);
    BIO_meth_free(group->bio);
    ddl_tls_use_end();
    ddl_free(group);
}

/* ---- keys ---- */

/* OpenSSL takes a key as a session that there never was. */
static SSL_SESSION *session_of(SSL *inner, const uint8_t key[DDL_TLS_KEY_BYTES])
{
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(inner, cipher_id);
    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, key, DDL_TLS_KEY_BYTES) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int find_for_server(SSL *inner, const unsigned char *identity, size_t identity_bytes,
                           SSL_SESSION **session)
{
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    uint8_t key[DDL_TLS_KEY_BYTES];
    *session = NULL;
    if (!tls->find_key(tls->arg, (ddl_view){ identity, identity_bytes }, key)) {
        snprintf(tls->problem, sizeof tls->problem, "it calls for another rank, or is of another version");
        return 0;
    }
    *session = session_of(inner, key);
    ddl_clear(key, sizeof key);
    return *session != NULL;
}

static int use_as_client(SSL *inner, const EVP_MD *digest, const unsigned char **identity,
                         size_t *identity_bytes, SSL_SESSION **session)
{
    ddl_tls_socket *tls = SSL_get_app_data(inner);
    (void)digest; /* of the one suite that there is */
    *identity = tls->identity;
    *identity_bytes = tls->identity_bytes;
    *session = session_of(inner, tls->key);
    return *session != NULL;
}

/* ---- the session ---- */

static bool connect_bio(ddl_tls_socket *tls)
{
    BIO *bio = BIO_new(tls->group->bio);
    if (bio == NULL)
        return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->inner, bio, bio);
    return true;
}

static ddl_status begin_session(ddl_tls_socket *tls, ddl_error *err)
{
    ERR_clear_error();
    if (!DDL_FAILPOINT("io.tls_socket"))
        tls->inner = SSL_new(tls->group->inner);
    if (tls->inner == NULL || !connect_bio(tls)) {
        ddl_status status =
            DDL_FAIL(err, DDL_ENOMEM, "cannot set up a TLS session with %s: %s", tls->where, reason());
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
    DDL_ASSERT(options->identity.bytes <= IDENTITY_LIMIT);
    ddl_tls_socket *tls = ddl_alloc(sizeof *tls);
    if (tls == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a TLS session");
    tls->ahead = tls->first_ahead;
    tls->ahead_room = sizeof tls->first_ahead;
    tls->unsent = tls->first_unsent;
    tls->unsent_room = sizeof tls->first_unsent;
    tls->group = group;
    tls->fd = options->fd;
    tls->is_server = options->is_server;
    tls->limit = group->by_certificate ? DDL_TLS_CERTS_PREAUTH_BYTES : DDL_TLS_KEYS_PREAUTH_BYTES;
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
    if (tls->ahead != tls->first_ahead)
        ddl_free(tls->ahead);
    if (tls->unsent != tls->first_unsent)
        ddl_free(tls->unsent);
    ddl_clear(tls, offsetof(ddl_tls_socket, first_ahead)); /* the rest is encrypted */
    ddl_free(tls);
}

/* ---- why it failed ---- */

static bool is_about_certificates(int code)
{
    switch (code) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        return true;
    default:
        return false;
    }
}

static bool is_no_tls(int code)
{
    return code == SSL_R_WRONG_VERSION_NUMBER || code == SSL_R_HTTP_REQUEST ||
           code == SSL_R_HTTPS_PROXY_REQUEST || code == SSL_R_PACKET_LENGTH_TOO_LONG ||
           code == SSL_R_BAD_RECORD_TYPE || code == SSL_R_RECORD_LENGTH_MISMATCH;
}

/* Keys differ: the server finds that its own does not fit; the client is told so by an alert. */
static bool is_about_keys(const ddl_tls_socket *tls, int code)
{
    return !tls->group->by_certificate &&
           (code == SSL_R_BINDER_DOES_NOT_VERIFY || code == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
            code == SSL_R_TLSV1_ALERT_DECRYPT_ERROR || code == SSL_R_TLSV1_ALERT_INTERNAL_ERROR);
}

static void explain_own_certificate(ddl_tls_socket *tls)
{
    char description[DDL_CERTIFICATE_DESCRIPTION_TEXT] = "of no use";
    const X509 *own = SSL_get_certificate(tls->inner);
    if (own != NULL)
        ddl_certificate_describe(own, description);
    snprintf(tls->problem, sizeof tls->problem,
             "it does not accept the certificate in %s: %s; that one is %s", tls->group->certificate,
             reason(), description);
}

/* The session is broken: put into words, once, what OpenSSL says of the call that has just failed. */
static ddl_status explain(ddl_tls_socket *tls)
{
    const int code = ERR_GET_REASON(ERR_peek_last_error());
    ddl_status status = DDL_EAUTH;
    char *text = tls->problem;
    if (text[0] != '\0')
        return DDL_EAUTH; /* found while OpenSSL asked for it */
    if (is_about_keys(tls, code)) {
        tls->other_key = true;
        snprintf(text, sizeof tls->problem, "the two ends have different keys");
    } else if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        snprintf(text, sizeof tls->problem, "it has shown no certificate");
    } else if (tls->calls_by_key && is_about_certificates(code)) {
        snprintf(
            text, sizeof tls->problem,
            "it has shown no certificate, and calls by a key; set DDL_TLS_CERT for all ranks or for none");
    } else if (code == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED) {
        snprintf(text, sizeof tls->problem,
                 "it wants a certificate, which this rank has not; set DDL_TLS_CERT");
    } else if (is_about_certificates(code)) {
        explain_own_certificate(tls);
    } else if (code == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE || code == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
               code == SSL_R_NO_SHARED_CIPHER || code == SSL_R_TLSV13_ALERT_MISSING_EXTENSION) {
        snprintf(
            text, sizeof tls->problem,
            "one end has a certificate (DDL_TLS_CERT), the other has none; set that for all or for none");
    } else if (code == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC) {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "what came was altered on its way (%s)", reason());
    } else if (code == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC) {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "what was sent to it was altered on its way (%s)", reason());
    } else if (is_no_tls(code) && !tls->done) {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "it does not speak TLS on that port");
    } else if (code == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || code == SSL_R_UNSUPPORTED_PROTOCOL) {
        snprintf(text, sizeof tls->problem, "it does not speak TLS 1.3");
    } else {
        status = DDL_EPROTO;
        snprintf(text, sizeof tls->problem, "what came is not as TLS 1.3 has it (%s)", reason());
    }
    return status;
}

/* ---- the handshake ---- */

static ddl_status broken(const ddl_tls_socket *tls, ddl_error *err)
{
    if (tls->ended)
        return DDL_FAIL(err, DDL_ENETWORK, "TLS with %s: it closed the connection in the handshake",
                        tls->where);
    int cause = tls->read_errno != 0 ? tls->read_errno : tls->write_errno;
    return DDL_FAIL_OS(err, DDL_ENETWORK, cause, "TLS with %s: the connection broke in the handshake",
                       tls->where);
}

static ddl_status shake(ddl_tls_socket *tls, bool *done, ddl_error *err)
{
    *done = false;
    send_unsent(tls);
    if (!tls->done) {
        tls->blocked = false;
        int result = SSL_do_handshake(tls->inner);
        if (result == 1 && !tls->group->by_certificate && !SSL_session_reused(tls->inner))
            return DDL_FAIL(err, DDL_EAUTH, "TLS with %s: it did not prove that it has our key", tls->where);
        if (result != 1) {
            bool waits = tls->blocked || SSL_want_write(tls->inner);
            if (waits && tls->problem[0] == '\0')
                return DDL_OK;
            if ((tls->ended || tls->read_errno != 0) && tls->problem[0] == '\0') {
                ERR_clear_error();
                return broken(tls, err);
            }
            ddl_status status = explain(tls);
            ERR_clear_error();
            return DDL_FAIL(err, status, "TLS with %s: %s", tls->where, tls->problem);
        }
        tls->done = true;
        ddl_clear(tls->key, sizeof tls->key);
    }
    *done = !ddl_tls_socket_has_unsent(tls);
    return tls->write_errno == 0 ? DDL_OK : broken(tls, err);
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
    return (ddl_view){ tls->first, tls->taken_in < FIRST_BYTES ? (size_t)tls->taken_in : FIRST_BYTES };
}

ddl_status ddl_tls_socket_binding(ddl_tls_socket *tls, uint8_t binding[DDL_TLS_BINDING_BYTES], ddl_error *err)
{
    DDL_ASSERT(tls->done);
    ddl_status status = DDL_OK;
    ddl_tls_use_begin();
    int good = SSL_export_keying_material(tls->inner, binding, DDL_TLS_BINDING_BYTES, binding_label,
                                          sizeof binding_label - 1, NULL, 0, 0);
    if (good != 1)
        status = DDL_FAIL(err, DDL_ENOMEM, "TLS with %s: no binding: %s", tls->where, reason());
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
    tls->limit = 0;
}

bool ddl_tls_socket_hurry(ddl_tls_socket *tls)
{
    DDL_ASSERT(tls->ahead == tls->first_ahead);
    uint8_t *ahead = ddl_alloc(BATCH_BYTES), *unsent = ddl_alloc(BATCH_BYTES);
    if (ahead == NULL || unsent == NULL) {
        ddl_free(ahead);
        ddl_free(unsent);
        return false;
    }
    memcpy(ahead, tls->ahead, tls->ahead_to);
    memcpy(unsent, tls->unsent, tls->unsent_to);
    tls->ahead = ahead;
    tls->unsent = unsent;
    tls->ahead_room = tls->unsent_room = BATCH_BYTES;
    return true;
}

/* ---- data ---- */

/* What a read comes to that got nothing. */
static ssize_t nothing_read(ddl_tls_socket *tls)
{
    bool is_silent = tls->problem[0] == '\0';
    if (is_silent && (tls->blocked || SSL_want_write(tls->inner))) {
        errno = EAGAIN;
        return -1;
    }
    if (is_silent && tls->read_errno == 0 && tls->ended) {
        ERR_clear_error();
        return 0;
    }
    if (is_silent && tls->read_errno != 0) {
        ERR_clear_error();
        errno = tls->read_errno;
        return -1;
    }
    if (is_silent && SSL_get_error(tls->inner, 0) == SSL_ERROR_ZERO_RETURN)
        return 0; /* it has closed its session, in order */
    (void)explain(tls);
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
    tls->blocked = false;
    if (tls->stuck) /* what reading has to answer needs room */
        send_unsent(tls);
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
    tls->more = more || part < bytes;
    if (SSL_write_ex(tls->inner, data, part, &taken) != 1)
        return 0;
    tls->under_key += taken;
    return taken;
}

static ssize_t write_records(ddl_tls_socket *tls, const void *data, size_t bytes, bool more)
{
    size_t written = 0;
    if (tls->stuck || bytes == 0) /* else it goes along with what comes now */
        send_unsent(tls);
    while (written < bytes && !tls->stuck && tls->write_errno == 0) {
        size_t taken = write_record(tls, (const uint8_t *)data + written, bytes - written, more);
        if (taken == 0) {
            if (tls->problem[0] == '\0')
                (void)explain(tls);
            ERR_clear_error();
            errno = EBADMSG;
            return -1;
        }
        written += taken;
    }
    tls->more = false;
    if (tls->write_errno != 0) {
        errno = tls->write_errno;
        return -1;
    }
    if (written == 0 && tls->unsent_from < tls->unsent_to) {
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
    return tls->unsent_from < tls->unsent_to;
}

bool ddl_tls_socket_has_unread(const ddl_tls_socket *tls)
{
    return tls->problem[0] != '\0' || /* which a read that had something to give has not told */
           tls->ahead_to - tls->ahead_from > RECORD_HEADER || SSL_pending(tls->inner) > 0;
}
