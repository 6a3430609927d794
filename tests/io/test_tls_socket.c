/* test_tls_socket.c - two ranks' sessions over a real pair of sockets: exactness, changes of keys, what is
 * altered. */
#include "io/tls_aes.h"
#include "io/tls_socket.h"
#include "io/wire.h"
#include "vaes.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { DATA_BYTES = 3 << 20, TURNS = 1000 };

static bool openssl_aes; /* as an argument says: not another library's */

static const char right_name[] = "0 calls 1";

static bool find_key(const void *arg, ddl_view identity, uint8_t key[DDL_TLS_KEY_BYTES])
{
    memset(key, *(const uint8_t *)arg, DDL_TLS_KEY_BYTES);
    return identity.bytes == sizeof right_name && memcmp(identity.data, right_name, sizeof right_name) == 0;
}

/* A client and a server, and between them a wire that a test may hold up: two pairs of sockets. */
struct pair {
    ddl_tls_group *group;
    ddl_wire client, server;
    int inner[2]; /* the other ends of theirs; -1: they are joined directly */
    uint8_t key;
    size_t records, small_records; /* from client to server, and those of a change of keys */
    ddl_error error;
};

static void nonblocking_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
}

static void pair_open(struct pair *pair, bool carried, const char *name, uint8_t client_key,
                      uint64_t rekey_bytes)
{
    int left[2], right[2];
    uint8_t key[DDL_TLS_KEY_BYTES];
    const ddl_tls_group_options options = { .openssl_aes = openssl_aes, .rekey_bytes = rekey_bytes };
    memset(pair, 0, sizeof *pair);
    pair->key = 7;
    assert_int_equal(ddl_tls_group_create(&options, &pair->group, &pair->error), DDL_OK);
    nonblocking_pair(left);
    pair->inner[0] = pair->inner[1] = -1;
    pair->client.fd = left[0];
    pair->server.fd = left[1];
    if (carried) {
        nonblocking_pair(right);
        pair->inner[0] = left[1];
        pair->inner[1] = right[0];
        pair->server.fd = right[1];
    }
    memset(key, client_key, sizeof key);
    const ddl_tls_socket_options client = { .fd = pair->client.fd,
                                            .where = "the server",
                                            .identity = { name, strlen(name) + 1 },
                                            .key = { key, sizeof key } };
    const ddl_tls_socket_options server = { .fd = pair->server.fd,
                                            .is_server = true,
                                            .where = "the client",
                                            .find_key = find_key,
                                            .arg = &pair->key };
    assert_int_equal(ddl_tls_socket_create(pair->group, &client, &pair->client.tls, NULL), DDL_OK);
    assert_int_equal(ddl_tls_socket_create(pair->group, &server, &pair->server.tls, NULL), DDL_OK);
}

static void pair_close(struct pair *pair)
{
    ddl_wire_close(&pair->client);
    ddl_wire_close(&pair->server);
    for (int i = 0; i < 2; i++)
        if (pair->inner[i] >= 0)
            close(pair->inner[i]);
    ddl_tls_group_destroy(pair->group);
}

/* Until both are done, or one has failed; the status of each. */
static void shake(struct pair *pair, ddl_status statuses[2])
{
    bool done[2] = { false, false };
    statuses[0] = statuses[1] = DDL_OK;
    for (int i = 0; i < TURNS && !(done[0] && done[1]); i++) {
        if (!done[0] && statuses[0] == DDL_OK)
            statuses[0] = ddl_tls_socket_shake(pair->client.tls, &done[0], &pair->error);
        if (!done[1] && statuses[1] == DDL_OK)
            statuses[1] = ddl_tls_socket_shake(pair->server.tls, &done[1], &pair->error);
    }
    assert_true((done[0] && done[1]) || statuses[0] != DDL_OK || statuses[1] != DDL_OK);
}

static void assert_shaken(struct pair *pair)
{
    ddl_status statuses[2];
    uint8_t ours[DDL_TLS_BINDING_BYTES], theirs[DDL_TLS_BINDING_BYTES];
    shake(pair, statuses);
    assert_int_equal(statuses[0], DDL_OK);
    assert_int_equal(statuses[1], DDL_OK);
    assert_int_equal(ddl_tls_socket_binding(pair->client.tls, ours, NULL), DDL_OK);
    assert_int_equal(ddl_tls_socket_binding(pair->server.tls, theirs, NULL), DDL_OK);
    assert_memory_equal(ours, theirs, sizeof ours);
    ddl_tls_socket_trust(pair->client.tls);
    ddl_tls_socket_trust(pair->server.tls);
}

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 31 + i / 251);
}

/*
 * Send DATA_BYTES through the client in writes and reads of changing sizes, and check each byte. What is read
 * is taken only when poll would show it or has_unread says so.
 */
static void send_all(struct pair *pair)
{
    static uint8_t data[DATA_BYTES], got[DATA_BYTES];
    static const size_t sizes[] = { 1, 64, 16384, 16383, 16448, 524352, 70, 100000, 5 };
    size_t sent = 0, taken = 0;
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = pattern(i);
    for (unsigned turn = 0; taken < DATA_BYTES; turn++) {
        size_t part = sizes[turn % 9] < DATA_BYTES - sent ? sizes[turn % 9] : DATA_BYTES - sent;
        ssize_t count = part > 0 ? ddl_tls_socket_write(pair->client.tls, data + sent, part, false) : 0;
        assert_true(count >= 0 || errno == EAGAIN);
        sent += count > 0 ? (size_t)count : 0;
        if (part == 0)
            (void)ddl_wire_flush(&pair->client);
        uint8_t byte;
        size_t room = sizes[(turn + 4) % 9];
        while (taken < DATA_BYTES && (ddl_wire_has_unread(&pair->server) ||
                                      recv(pair->server.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1)) {
            count = ddl_wire_read(&pair->server, got + taken,
                                  room < DATA_BYTES - taken ? room : DATA_BYTES - taken);
            assert_true(count > 0 || (count < 0 && errno == EAGAIN));
            taken += count > 0 ? (size_t)count : 0;
        }
        assert_true(turn < 1000000);
    }
    assert_memory_equal(data, got, DATA_BYTES);
    assert_false(ddl_wire_has_unsent(&pair->client));
}

/* By OpenSSL where that is wanted, or nothing better is there; both ends, in and out. */
static void aes_is_computed_by_whom_it_is_to_be(void **state)
{
    (void)state;
    struct pair pair;
    const bool others = !openssl_aes && ddl_tls_aes_choose().context != NULL;
    const unsigned before = ddl_tls_aes_uses();
    if (HAS_IPSEC_MB && !openssl_aes)
        assert_int_equal(others, another_aes_is_better());
    pair_open(&pair, false, right_name, 7, 0);
    assert_shaken(&pair);
    assert_int_equal(ddl_tls_aes_uses() - before >= 4, others);
    assert_int_equal(ddl_tls_aes_uses() > before, others);
    pair_close(&pair);
}

static void what_more_follows_is_kept_until_that_or_a_flush(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t said[300], got[sizeof said], byte;
    for (size_t i = 0; i < sizeof said; i++)
        said[i] = pattern(i);
    pair_open(&pair, false, right_name, 7, 0);
    assert_shaken(&pair);
    assert_true(ddl_tls_socket_hurry(pair.client.tls) && ddl_tls_socket_hurry(pair.server.tls));
    for (int last = 0; last < 2; last++) { /* by a flush, or by a write that nothing follows */
        size_t have = 0;
        for (size_t at = 0; at < 200; at += 100) {
            assert_int_equal(ddl_tls_socket_write(pair.client.tls, said + at, 100, true), 100);
            assert_int_equal(recv(pair.server.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
        }
        if (last == 0)
            assert_int_equal(ddl_tls_socket_write(pair.client.tls, NULL, 0, false), 0);
        else
            assert_int_equal(ddl_tls_socket_write(pair.client.tls, said + 200, 100, false), 100);
        for (ssize_t part; (part = ddl_wire_read(&pair.server, got + have, sizeof got - have)) > 0;)
            if ((have += (size_t)part) == sizeof got)
                break;
        assert_int_equal(have, last == 0 ? 200 : 300);
        assert_memory_equal(got, said, have);
        assert_false(ddl_wire_has_unsent(&pair.client));
    }
    pair_close(&pair);
}

static void bytes_arrive_whatever_their_pieces(void **state)
{
    (void)state;
    for (int hurry = 0; hurry < 2; hurry++) {
        struct pair pair;
        int small = 8192;
        pair_open(&pair, false, right_name, 7, 0);
        setsockopt(pair.client.fd, SOL_SOCKET, SO_SNDBUF, &small,
                   sizeof small); /* so that it is often full */
        assert_shaken(&pair);
        if (hurry) {
            assert_true(ddl_tls_socket_hurry(pair.client.tls));
            assert_true(ddl_tls_socket_hurry(pair.server.tls));
        }
        send_all(&pair);
        pair_close(&pair);
    }
}

/* What it has encrypted and the socket has not taken goes first, then the end; what comes is read meanwhile.
 */
static void who_parts_takes_nothing_along(void **state)
{
    (void)state;
    static uint8_t data[64 * 1024], room[4096];
    struct pair pair;
    int small = 8192;
    size_t sent = 0, got = 0;
    short events = 0;
    bool waited_to_write = false, ended = false;
    pair_open(&pair, false, right_name, 7, 0);
    setsockopt(pair.client.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    assert_shaken(&pair);
    for (ssize_t part; (part = ddl_wire_write(&pair.client, data, sizeof data)) > 0;)
        sent += (size_t)part;
    assert_true(ddl_wire_has_unsent(&pair.client));
    assert_true(ddl_wire_write(&pair.server, data, 100) == 100);
    for (int turn = 0; !ddl_wire_part(&pair.client, true, room, sizeof room, &events); turn++) {
        assert_true(turn < TURNS);
        waited_to_write = waited_to_write || events == POLLOUT;
        ssize_t part = ddl_wire_read(&pair.server, data, 5000);
        got += part > 0 ? (size_t)part : 0;
    }
    assert_true(waited_to_write);
    assert_int_equal(recv(pair.client.fd, room, sizeof room, MSG_DONTWAIT), -1); /* it was read */
    while (!ended) {
        ssize_t part = ddl_wire_read(&pair.server, data, sizeof data);
        ended = part == 0;
        assert_true(part >= 0);
        got += (size_t)part;
    }
    assert_int_equal(got, sent);
    pair_close(&pair);
}

/* Move what came from the client on, count its records, and change a bit of byte flip of it. */
static void carry(struct pair *pair, size_t flip)
{
    static uint8_t piece[1 << 20];
    static size_t left, moved; /* of the record under way, and of all */
    static uint8_t header[5];
    static size_t header_bytes;
    ssize_t count;
    if (flip == 0)
        left = moved = header_bytes = 0;
    for (int i = 0; i < 2; i++)
        while ((count = recv(pair->inner[i], piece, sizeof piece, 0)) > 0) {
            for (ssize_t at = 0; i == 0 && at < count; at++, moved++) {
                if (moved == flip && flip > 0)
                    piece[at] ^= 4;
                if (left > 0) {
                    left--;
                    continue;
                }
                header[header_bytes++] = piece[at];
                if (header_bytes < sizeof header)
                    continue;
                header_bytes = 0;
                left = (size_t)(header[3] << 8 | header[4]);
                pair->records++;
                pair->small_records += left == 22; /* a KeyUpdate: 5 bytes, its kind, a tag of 16 */
            }
            assert_int_equal(send(pair->inner[1 - i], piece, (size_t)count, MSG_NOSIGNAL), count);
        }
}

static void shake_carried(struct pair *pair)
{
    bool done[2] = { false, false };
    carry(pair, 0);
    for (int i = 0; i < TURNS && !(done[0] && done[1]); i++) {
        assert_int_equal(ddl_tls_socket_shake(pair->client.tls, &done[0], NULL), DDL_OK);
        assert_int_equal(ddl_tls_socket_shake(pair->server.tls, &done[1], NULL), DDL_OK);
        carry(pair, SIZE_MAX);
    }
    assert_true(done[0] && done[1]);
    ddl_tls_socket_trust(pair->client.tls);
    ddl_tls_socket_trust(pair->server.tls);
}

static void keys_change_before_they_are_worn(void **state)
{
    static uint8_t data[50000], got[sizeof data];
    (void)state;
    for (int hurry = 0; hurry < 2; hurry++) {
        struct pair pair;
        pair_open(&pair, true, right_name, 7, 100000);
        shake_carried(&pair);
        if (hurry)
            assert_true(ddl_tls_socket_hurry(pair.client.tls) && ddl_tls_socket_hurry(pair.server.tls));
        pair.records = pair.small_records = 0;
        for (int round = 0; round < 20; round++) {
            memset(data, round, sizeof data);
            assert_int_equal(ddl_tls_socket_write(pair.client.tls, data, sizeof data, false), sizeof data);
            carry(&pair, SIZE_MAX);
            for (size_t taken = 0; taken < sizeof got;) {
                ssize_t count = ddl_wire_read(&pair.server, got + taken, sizeof got - taken);
                assert_true(count > 0);
                taken += (size_t)count;
            }
            assert_memory_equal(data, got, sizeof got);
        }
        /* Of 1,000,000 bytes no more than 100,000 go under one key; a record is never cut for that. */
        assert_in_range(pair.small_records, 9, 12);
        assert_int_equal(pair.records - pair.small_records, 20 * 4);
        pair_close(&pair);
    }
}

static void what_is_altered_is_never_taken(void **state)
{
    static uint8_t data[40000], got[sizeof data];
    static const size_t places[] = { 1, 3, 4, 5, 100, 16405, 16406, 16410, 20000, 32812, 40065 };
    (void)state;
    memset(data, 'x', sizeof data);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct pair pair;
        pair_open(&pair, true, right_name, 7, 0);
        shake_carried(&pair);
        carry(&pair, 0);
        assert_int_equal(ddl_tls_socket_write(pair.client.tls, data, sizeof data, false), sizeof data);
        carry(&pair, places[i]);
        size_t taken = 0;
        ssize_t count;
        while ((count = ddl_wire_read(&pair.server, got + taken, sizeof got - taken)) > 0)
            taken += (size_t)count;
        /* Whole records before it, and nothing of its own; a length that was made greater waits for more. */
        assert_int_equal(count, -1);
        assert_int_equal(taken, places[i] / 16406 * 16384);
        assert_memory_equal(got, data, taken);
        if (errno == EBADMSG) {
            assert_true(ddl_wire_problem(&pair.server)[0] != '\0');
            assert_int_equal(ddl_wire_read(&pair.server, got, sizeof got), -1); /* and so it stays */
            assert_int_equal(errno, EBADMSG);
        } else {
            assert_int_equal(errno, EAGAIN);
            assert_true(places[i] % 16406 == 3 || places[i] % 16406 == 4);
        }
        pair_close(&pair);
    }
}

static void other_keys_and_names_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    ddl_status statuses[2];
    pair_open(&pair, false, right_name, 8, 0);
    shake(&pair, statuses);
    for (int i = 0; i < TURNS && statuses[0] == DDL_OK; i++) {
        bool done;
        statuses[0] = ddl_tls_socket_shake(pair.client.tls, &done, &pair.error);
    }
    assert_int_equal(statuses[0], DDL_EAUTH);
    assert_int_equal(statuses[1], DDL_EAUTH);
    assert_true(ddl_tls_socket_other_key(pair.client.tls));
    assert_true(ddl_tls_socket_other_key(pair.server.tls));
    pair_close(&pair);
    pair_open(&pair, false, "2 calls 1", 7, 0);
    shake(&pair, statuses);
    assert_int_equal(statuses[1], DDL_EAUTH);
    assert_non_null(strstr(ddl_wire_problem(&pair.server), "calls for another rank"));
    pair_close(&pair);
}

static void the_end_of_a_connection_is_told_behind_what_came_before(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t data[3000] = { 9 }, got[5000];
    pair_open(&pair, false, right_name, 7, 0);
    assert_shaken(&pair);
    assert_int_equal(ddl_wire_write(&pair.client, data, sizeof data), sizeof data);
    ddl_wire_close(&pair.client);
    assert_int_equal(ddl_wire_read(&pair.server, got, sizeof got), sizeof data);
    assert_memory_equal(got, data, sizeof data);
    assert_int_equal(ddl_wire_read(&pair.server, got, sizeof got), 0);
    assert_int_equal(ddl_wire_write(&pair.server, data, sizeof data), -1);
    assert_true(errno == EPIPE || errno == ECONNRESET);
    pair_close(&pair);
}

/* One that closes before it has read all resets the connection; the system says so once. */
static void a_reset_is_told_behind_what_came_before_and_again(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t data[3000] = { 9 }, got[5000];
    pair_open(&pair, false, right_name, 7, 0);
    assert_shaken(&pair);
    assert_int_equal(ddl_wire_write(&pair.server, data, sizeof data), sizeof data);
    assert_int_equal(ddl_wire_write(&pair.client, data, sizeof data), sizeof data);
    ddl_wire_close(&pair.client);
    struct iovec place = { got, sizeof got };
    assert_int_equal(ddl_wire_read_parts(&pair.server, &place, 1), sizeof data);
    assert_memory_equal(got, data, sizeof data);
    for (int i = 0; i < 3; i++) {
        errno = 0;
        assert_int_equal(ddl_wire_read_parts(&pair.server, &place, 1), -1);
        assert_int_equal(errno, ECONNRESET);
    }
    pair_close(&pair);
}

static void strangers_are_heard_only_so_far(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t endless[6000] = { 0x16, 3, 1, 0x40, 0, 1, 0, 0x10, 0, 3, 3 };
    bool done = false;
    pair_open(&pair, false, right_name, 7, 0);
    assert_int_equal(send(pair.client.fd, endless, 3000, 0), 3000);
    assert_int_equal(ddl_tls_socket_shake(pair.server.tls, &done, &pair.error), DDL_OK); /* waits for more */
    assert_int_equal(send(pair.client.fd, endless + 3000, 3000, 0), 3000);
    assert_int_equal(ddl_tls_socket_shake(pair.server.tls, &done, &pair.error), DDL_EAUTH);
    assert_non_null(strstr(pair.error.text, "before it proved anything"));
    /* Of what it sent the rest is still in the socket. */
    assert_int_equal(recv(pair.server.fd, endless, sizeof endless, 0), 6000 - DDL_TLS_KEYS_PREAUTH_BYTES);
    pair_close(&pair);
}

/* OpenSSL has some 120 kinds of its own to give in the life of a process. */
static void worlds_that_come_and_go_use_nothing_up(void **state)
{
    const ddl_tls_group_options options = { .openssl_aes = openssl_aes };
    ddl_error error;
    (void)state;
    for (int i = 0; i < 200; i++) {
        ddl_tls_group *group;
        assert_int_equal(ddl_tls_group_create(&options, &group, &error), DDL_OK);
        ddl_tls_group_destroy(group);
    }
    assert_true(BIO_get_new_index() < 200);
}

static atomic_int uses;

static void *use_without_end(void *arg)
{
    const ddl_tls_group_options options = { .openssl_aes = openssl_aes };
    for (;;) {
        ddl_tls_group *group = NULL;
        ddl_error error;
        if (ddl_tls_group_create(&options, &group, &error) == DDL_OK)
            ddl_tls_group_destroy(group);
        atomic_fetch_add(&uses, 1);
    }
    return arg;
}

/* The last of the exit handlers, as it is registered first: OpenSSL's has run. */
static void look_whether_it_is_used(void)
{
    const int most = atomic_load(&uses) + 1; /* one may have ended and not been counted yet */
    for (int looks = 0; looks < 20 && atomic_load(&uses) <= most; looks++)
        (void)poll(NULL, 0, 1);
    _exit(atomic_load(&uses) <= most ? 0 : 2);
}

/* A child, whose end it is. */
static void no_thread_uses_openssl_once_exit_handlers_run(void **state)
{
    int status = -1;
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        if (atexit(look_whether_it_is_used) != 0 || OPENSSL_init_ssl(0, NULL) != 1 ||
            pthread_create(&thread, NULL, use_without_end, NULL) != 0)
            _exit(1);
        while (atomic_load(&uses) < 3)
            (void)poll(NULL, 0, 1);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_uses_openssl_once_exit_handlers_run), /* first: nothing has used it yet */
        cmocka_unit_test(worlds_that_come_and_go_use_nothing_up),
        cmocka_unit_test(who_parts_takes_nothing_along),
        cmocka_unit_test(bytes_arrive_whatever_their_pieces),
        cmocka_unit_test(aes_is_computed_by_whom_it_is_to_be),
        cmocka_unit_test(what_more_follows_is_kept_until_that_or_a_flush),
        cmocka_unit_test(keys_change_before_they_are_worn),
        cmocka_unit_test(what_is_altered_is_never_taken),
        cmocka_unit_test(other_keys_and_names_are_refused),
        cmocka_unit_test(the_end_of_a_connection_is_told_behind_what_came_before),
        cmocka_unit_test(a_reset_is_told_behind_what_came_before_and_again),
        cmocka_unit_test(strangers_are_heard_only_so_far),
    };
    openssl_aes = argc > 1 && strcmp(argv[1], "openssl") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
