/* test_tls.c - two sessions whose bytes the test carries: who is let in, who is not, and what is said. */
#include "io/tls.h"

#include "../support/folder.h"
#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Where make_certificates has made them. */
static char folder[128];

static const char *path_of(const char *name, const char *suffix, char path[256])
{
    if (name == NULL)
        return NULL;
    snprintf(path, 256, "%s/%s%s", folder, name, suffix);
    return path;
}

/* One end. */
struct end {
    ddl_tls_party *party;
    ddl_tls *tls;
    ddl_status status;
    ddl_error error;
    bool done;
};

static void end_open(struct end *end, bool is_server, const char *ca, const char *certificate,
                     const char *peer)
{
    char ca_path[256], cert_path[256], key_path[256];
    const ddl_tls_options options = { .is_server = is_server,
                                      .asks_peer = peer != NULL,
                                      .ca_file = path_of(ca, ".pem", ca_path),
                                      .cert_file = path_of(certificate, ".pem", cert_path),
                                      .key_file = path_of(certificate, ".key", key_path) };
    memset(end, 0, sizeof *end);
    assert_int_equal(ddl_tls_party_create(&options, &end->party, &end->error), DDL_OK);
    assert_int_equal(
        ddl_tls_create(end->party, peer, is_server ? "client:1" : "server:2", &end->tls, &end->error),
        DDL_OK);
}

static void end_close(struct end *end)
{
    ddl_tls_destroy(end->tls);
    ddl_tls_party_destroy(end->party);
}

/* Carry what one end has for the other, in pieces; the bytes carried. */
static size_t carry(struct end *from, struct end *to, size_t piece_bytes)
{
    uint8_t piece[4096];
    size_t bytes, all = 0;
    while ((bytes = ddl_tls_output(from->tls, piece, piece_bytes)) > 0) {
        assert_int_equal(ddl_tls_feed(to->tls, piece, bytes, NULL), DDL_OK);
        all += bytes;
    }
    return all;
}

static void shake(struct end *end)
{
    if (end->status == DDL_OK && !end->done)
        end->status = ddl_tls_shake(end->tls, &end->done, &end->error);
}

static void shake_hands(struct end *client, struct end *server, size_t piece_bytes)
{
    for (int i = 0; i < 10; i++) {
        shake(client);
        carry(client, server, piece_bytes);
        shake(server);
        carry(server, client, piece_bytes);
    }
}

static void send_one_way(struct end *from, struct end *to)
{
    static uint8_t data[200000], got[sizeof data];
    size_t taken = 0, count = 1;
    bool ended;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 + i / 256);
    assert_int_equal(ddl_tls_write(from->tls, data, sizeof data, NULL), DDL_OK);
    carry(from, to, 4096);
    while (taken < sizeof got && count > 0) {
        assert_int_equal(ddl_tls_read(to->tls, got + taken, sizeof got - taken, &count, &ended, NULL),
                         DDL_OK);
        taken += count;
    }
    assert_int_equal(taken, sizeof data);
    assert_memory_equal(got, data, sizeof data);
    assert_int_equal(ddl_tls_read(to->tls, got, sizeof got, &count, &ended, NULL), DDL_OK);
    assert_int_equal(count, 0);
    assert_false(ended);
}

static void bytes_go_both_ways_and_the_end_is_told(void **state)
{
    static const size_t pieces[] = { 4096, 7, 1 };
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct end client, server;
        uint8_t byte;
        size_t count;
        bool ended = false;
        end_open(&client, false, "ca", "client", "localhost");
        end_open(&server, true, "ca", "good", "client.test");
        shake_hands(&client, &server, pieces[i]);
        assert_true(client.done);
        assert_true(server.done);
        send_one_way(&client, &server);
        send_one_way(&server, &client);
        ddl_tls_end(client.tls);
        carry(&client, &server, 4096);
        assert_int_equal(ddl_tls_read(server.tls, &byte, 1, &count, &ended, NULL), DDL_OK);
        assert_int_equal(count, 0);
        assert_true(ended);
        end_close(&client);
        end_close(&server);
    }
}

static void peers_are_taken_by_their_certificates(void **state)
{
    static const struct {
        const char *ca, *certificate,
            *peer; /* whom the client trusts, what the server has, whom it is to be */
        ddl_status status;
        const char *text, *more;
    } cases[] = {
        { "ca", "good", "localhost", DDL_OK, "", "" },
        { "ca", "good", "127.0.0.1", DDL_OK, "", "" },
        { "ca", "good", "::1", DDL_OK, "", "" },
        { "other_ca", "good", "localhost", DDL_EAUTH, "not signed by an authority in", "other_ca.pem" },
        { "ca", "elsewhere", "localhost", DDL_EAUTH, "is for example.org, 192.0.2.1, not for localhost",
          "server:2" },
        { "ca", "elsewhere", "127.0.0.1", DDL_EAUTH, "is for example.org, 192.0.2.1, not for 127.0.0.1", "" },
        { "ca", "good", "127.0.0.2", DDL_EAUTH, "is for localhost, 127.0.0.1, ::1, not for 127.0.0.2", "" },
        { "ca", "nameless", "localhost", DDL_EAUTH, "is for nobody, not for localhost",
          "subject alternative names" },
        { "ca", "expired", "localhost", DDL_EAUTH, "of localhost, 127.0.0.1 expired on",
          "Jan  1 00:00:00 2020 GMT" },
        { "ca", "early", "localhost", DDL_EAUTH, "of localhost, 127.0.0.1 is not valid before",
          "Jan  1 00:00:00 2090 GMT" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct end client, server;
        end_open(&client, false, cases[i].ca, NULL, cases[i].peer);
        end_open(&server, true, NULL, cases[i].certificate, NULL);
        shake_hands(&client, &server, 4096);
        if (client.status != cases[i].status || client.done != (client.status == DDL_OK) ||
            strstr(client.error.text, cases[i].text) == NULL ||
            strstr(client.error.text, cases[i].more) == NULL)
            fail_msg("%s, %s, %s: %s", cases[i].ca, cases[i].certificate, cases[i].peer, client.error.text);
        assert_int_equal(server.done, client.done); /* and the server hears why */
        end_close(&client);
        end_close(&server);
    }
}

static void a_client_has_to_show_who_it_is(void **state)
{
    static const struct {
        const char *certificate, *text;
    } cases[] = { { NULL, "has shown no certificate" },
                  { "good", "is for localhost, 127.0.0.1, ::1, not for client" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct end client, server;
        uint8_t byte;
        size_t count;
        bool ended;
        end_open(&client, false, "ca", cases[i].certificate, "localhost");
        end_open(&server, true, "ca", "good", "client.test");
        shake_hands(&client, &server, 4096);
        assert_int_equal(server.status, DDL_EAUTH);
        assert_non_null(strstr(server.error.text, cases[i].text));
        /* The client's part of the handshake was over before; it is told at its next read. */
        assert_int_not_equal(ddl_tls_read(client.tls, &byte, 1, &count, &ended, &client.error), DDL_OK);
        end_close(&client);
        end_close(&server);
    }
}

static void what_is_not_tls_is_told(void **state)
{
    static const char *const said[] = { "-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
                                        "\0\0\0\0\0\0" };
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct end client;
        end_open(&client, false, "ca", NULL, "localhost");
        shake(&client);
        assert_int_equal(ddl_tls_feed(client.tls, said[i], i < 2 ? strlen(said[i]) : 6, NULL), DDL_OK);
        shake(&client);
        assert_int_equal(client.status, DDL_EPROTO);
        assert_non_null(strstr(client.error.text, "server:2"));
        end_close(&client);
    }
}

static void a_changed_byte_ends_the_session(void **state)
{
    struct end client, server;
    uint8_t wire[256], got[64];
    size_t count;
    bool ended;
    (void)state;
    end_open(&client, false, "ca", NULL, "localhost");
    end_open(&server, true, NULL, "good", NULL);
    shake_hands(&client, &server, 4096);
    assert_int_equal(ddl_tls_write(client.tls, "tensor", 6, NULL), DDL_OK);
    size_t bytes = ddl_tls_output(client.tls, wire, sizeof wire);
    for (size_t i = 0; i + 6 <= bytes; i++)
        assert_memory_not_equal(wire + i, "tensor", 6);
    wire[bytes - 1] ^= 1;
    assert_int_equal(ddl_tls_feed(server.tls, wire, bytes, NULL), DDL_OK);
    assert_int_equal(ddl_tls_read(server.tls, got, sizeof got, &count, &ended, &server.error), DDL_EPROTO);
    end_close(&client);
    end_close(&server);
}

static void bad_files_are_named(void **state)
{
    char ca[256], good[256], weak[256], keys[4][256];
    const struct {
        ddl_tls_options options;
        const char *text;
    } cases[] = {
        { { .ca_file = "/no/such/file" }, "/no/such/file" },
        { { .ca_file = path_of("good", ".key", ca) }, "good.key" },
        { { .is_server = true, .cert_file = path_of("good", ".pem", good) }, "there is no key of" },
        { { .is_server = true, .cert_file = "/no/such/file" }, "a certificate from /no/such/file" },
        { { .is_server = true, .cert_file = good, .key_file = path_of("open", ".key", keys[0]) },
          "open.key (mode 0666): chmod 0600" },
        { { .is_server = true, .cert_file = good, .key_file = path_of("client", ".key", keys[1]) },
          "client.key is not that of the certificate in" },
        { { .is_server = true, .cert_file = good, .key_file = path_of("other_kind", ".key", keys[2]) },
          "other_kind.key is not that of the certificate in" },
        { { .is_server = true, .cert_file = good, .key_file = path_of("locked", ".key", keys[3]) },
          "locked.key has a password" },
        { { .is_server = true, .cert_file = path_of("weak", ".pem", weak) }, "key too small" }
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_tls_party *party = NULL;
        ddl_error error;
        assert_int_equal(ddl_tls_party_create(&cases[i].options, &party, &error), DDL_ECONFIG);
        if (strstr(error.text, cases[i].text) == NULL)
            fail_msg("%s", error.text);
    }
}

static int make_certificates(void **state)
{
    char command[512];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ddl-tls-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(command, sizeof command, "'%s' '%s'", MAKE_CERTIFICATES, folder);
    return system(command);
}

static int remove_certificates(void **state)
{
    (void)state;
    return remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways_and_the_end_is_told),
        cmocka_unit_test(peers_are_taken_by_their_certificates),
        cmocka_unit_test(a_client_has_to_show_who_it_is),
        cmocka_unit_test(what_is_not_tls_is_told),
        cmocka_unit_test(a_changed_byte_ends_the_session),
        cmocka_unit_test(bad_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
