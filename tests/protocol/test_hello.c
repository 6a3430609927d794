/* test_hello.c - two hello machines, and what hostile bytes do to one. */
#include "protocol/hello.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ddl_hello_party party(ddl_channel channel, int rank, int peer, int nranks)
{
    ddl_hello_party self = { .channel = channel,
                             .generator = 7,
                             .run_id = { 0xaa, 1 },
                             .nonce = { 0x11, (uint8_t)rank },
                             .rank = rank,
                             .nranks = nranks,
                             .peer = peer,
                             .pid = 100 + rank };
    snprintf(self.host, sizeof self.host, "host%d", rank);
    return self;
}

/* Move bytes both ways, at most piece at a time, until neither side has any to move. */
static void talk(ddl_hello *client, ddl_hello *server, size_t piece, bool welcome)
{
    for (bool moved = true; moved;) {
        ddl_hello *sides[2] = { client, server };
        moved = false;
        for (int side = 0; side < 2; side++) {
            ddl_hello *from = sides[side], *to = sides[1 - side];
            ddl_view out = ddl_hello_output(from);
            size_t count = ddl_hello_wants(to) < out.bytes ? ddl_hello_wants(to) : out.bytes;
            count = count < piece ? count : piece;
            if (count > 0) {
                uint8_t data[512];
                memcpy(data, out.data, count);
                ddl_hello_sent(from, count);
                ddl_hello_feed(to, data, count);
                moved = true;
            }
            if (to->state == DDL_HELLO_JUDGING) {
                ddl_hello_judge(to, welcome ? DDL_HELLO_WELCOME : DDL_HELLO_TAKEN, "%s",
                                welcome ? "" : "rank 3 is here already");
                moved = true;
            }
        }
    }
}

static void both_sides_agree_however_the_bytes_arrive(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 200; piece += piece < 4 ? 1 : 49) {
        ddl_hello client, server;
        ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
        ddl_hello_start_client(&client, &a);
        ddl_hello_start_server(&server, &b);
        talk(&client, &server, piece, true);
        assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
        assert_int_equal(server.state, DDL_HELLO_ACCEPTED);
        assert_int_equal(server.peer.rank, 3);
        assert_int_equal(server.peer.pid, 103);
        assert_string_equal(server.peer.host, "host3");
        assert_int_equal(client.peer.rank, 1);
        assert_int_equal(ddl_hello_output(&client).bytes, 0);
        assert_int_equal(ddl_hello_output(&server).bytes, 0);
    }
}

static void a_client_of_a_store_learns_the_run(void **state)
{
    ddl_hello client, server;
    ddl_hello_party a = party(DDL_CHANNEL_STORE, 3, 0, 8), b = party(DDL_CHANNEL_STORE, 0, -1, 8);
    (void)state;
    memset(a.run_id, 0, sizeof a.run_id);
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 1000, true);
    assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
    assert_memory_equal(client.peer.run_id, b.run_id, sizeof b.run_id);
}

static void set_generator(ddl_hello_party *self)
{
    self->generator = 8;
}

static void set_run(ddl_hello_party *self)
{
    self->run_id[15] = 1;
}

static void clear_run(ddl_hello_party *self)
{
    memset(self->run_id, 0, sizeof self->run_id);
}

static void set_size(ddl_hello_party *self)
{
    self->nranks = 9;
}

static void set_channel(ddl_hello_party *self)
{
    self->channel = DDL_CHANNEL_STORE;
}

static void set_peer(ddl_hello_party *self)
{
    self->peer = 2;
}

static void reflect(ddl_hello_party *self)
{
    self->nonce[1] = 1; /* the server's */
}

static void whoever_does_not_fit_is_told_why_on_both_sides(void **state)
{
    static const struct {
        const char *name;
        void (*spoil)(ddl_hello_party *client);
        ddl_hello_verdict verdict;
        ddl_status status;
        const char *first, *second;
    } cases[] = {
        { "generator", set_generator, DDL_HELLO_OTHER_GENERATOR, DDL_EPROTO, "version 8", "version 7" },
        { "run", set_run, DDL_HELLO_OTHER_RUN, DDL_EAUTH, "rank 3 on host3[103]", "belongs to another run" },
        { "no run, on the mesh", clear_run, DDL_HELLO_OTHER_RUN, DDL_EAUTH, "rank 3", "another run" },
        { "size", set_size, DDL_HELLO_OTHER_SIZE, DDL_ECONFIG, "rank 3 on host3[103] has world size 9",
          "rank 1 on host1[101] has world size 8" },
        { "channel", set_channel, DDL_HELLO_OTHER_CHANNEL, DDL_EPROTO, "serves channel 2", "not 1" },
        { "peer", set_peer, DDL_HELLO_OTHER_RANK, DDL_EPROTO, "rank 1 answers", "rank 2 was expected" },
        { "reflection", reflect, DDL_HELLO_OTHER_RUN, DDL_EAUTH, "rank 3", "another run" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_hello client, server;
        ddl_error error;
        ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
        cases[i].spoil(&a);
        ddl_hello_start_client(&client, &a);
        ddl_hello_start_server(&server, &b);
        talk(&client, &server, 1000, true);
        ddl_hello *sides[2] = { &client, &server };
        for (int side = 0; side < 2; side++) {
            if (sides[side]->state != DDL_HELLO_REFUSED || sides[side]->verdict != cases[i].verdict)
                fail_msg("%s: state %d, verdict %d", cases[i].name, (int)sides[side]->state,
                         (int)sides[side]->verdict);
            assert_int_equal(ddl_hello_fail(sides[side], "10.0.0.1:7", &error), cases[i].status);
            if (strstr(error.text, cases[i].first) == NULL || strstr(error.text, cases[i].second) == NULL)
                fail_msg("%s: %s", cases[i].name, error.text);
            assert_memory_equal(error.text, "10.0.0.1:7: ", 12);
        }
    }
}

static void a_rank_beyond_the_world_is_refused(void **state)
{
    static const int32_t ranks[] = { 8, -1, INT32_MAX, INT32_MIN };
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        ddl_hello client, server;
        ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
        uint8_t data[DDL_HELLO_CLIENT_BYTES];
        ddl_hello_start_client(&client, &a);
        ddl_hello_start_server(&server, &b);
        memcpy(data, ddl_hello_output(&client).data, sizeof data);
        ddl_put_u32(data + 48, (uint32_t)ranks[i]);
        ddl_hello_feed(&server, data, ddl_hello_wants(&server));
        ddl_hello_feed(&server, data + 12, ddl_hello_wants(&server));
        assert_int_equal(server.state, DDL_HELLO_REFUSED);
        assert_int_equal(server.verdict, DDL_HELLO_BAD_RANK);
    }
}

static void the_owner_of_a_server_has_the_last_word(void **state)
{
    ddl_hello client, server;
    ddl_error error;
    ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 7, false);
    assert_int_equal(client.state, DDL_HELLO_REFUSED);
    assert_int_equal(server.state, DDL_HELLO_REFUSED);
    assert_int_equal(ddl_hello_fail(&client, "x", &error), DDL_ECONFIG);
    assert_string_equal(error.text, "x: rank 3 is here already");
    assert_int_equal(error.culprit, 3);
}

/* The client's first message, or the server's answer to it, with some bytes changed. */
static void feed_all(ddl_hello *hello, const uint8_t *data, size_t bytes)
{
    while (bytes > 0 && ddl_hello_wants(hello) > 0) {
        size_t count = ddl_hello_wants(hello) < bytes ? ddl_hello_wants(hello) : bytes;
        ddl_hello_feed(hello, data, count);
        data += count;
        bytes -= count;
    }
}

static void strangers_hear_nothing(void **state)
{
    static const char *const openings[] = { "GET / HTTP/1.1\r\n", "SSH-2.0-OpenSSH",
                                            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x03",
                                            "*1\r\n$4\r\nPING\r\n", "ddl\n\x1a\nxxxxxxx" };
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        ddl_hello server;
        ddl_hello_party b = party(DDL_CHANNEL_MESH, 1, -1, 8);
        ddl_hello_start_server(&server, &b);
        feed_all(&server, (const uint8_t *)openings[i], 12);
        assert_int_equal(server.state, DDL_HELLO_REFUSED);
        assert_int_equal(server.verdict, DDL_HELLO_NOT_DDL);
        assert_int_equal(ddl_hello_output(&server).bytes, 0);
        assert_int_equal(ddl_hello_wants(&server), 0);
    }
}

static void another_version_is_told_both_numbers(void **state)
{
    ddl_hello client, server;
    ddl_error error;
    uint8_t data[512];
    ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    memcpy(data, ddl_hello_output(&client).data, DDL_HELLO_CLIENT_BYTES);
    ddl_put_u16(data + 8, 77);
    feed_all(&server, data, DDL_HELLO_CLIENT_BYTES);
    assert_int_equal(ddl_hello_fail(&server, "x", &error), DDL_EPROTO);
    assert_non_null(strstr(error.text, "version 77"));
    assert_non_null(strstr(error.text, "version 1"));
    ddl_view reply = ddl_hello_output(&server);
    memcpy(data, reply.data, reply.bytes);
    ddl_put_u16(data + 8, 77); /* as a server of that version would answer */
    feed_all(&client, data, reply.bytes);
    assert_int_equal(ddl_hello_fail(&client, "x", &error), DDL_EPROTO);
    assert_non_null(strstr(error.text, "version 77"));
}

static void text_from_outside_is_made_printable(void **state)
{
    ddl_hello client, server;
    uint8_t data[DDL_HELLO_CLIENT_BYTES];
    ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    memcpy(data, ddl_hello_output(&client).data, sizeof data);
    memset(data + 64, 0x1b, DDL_HOST_TEXT); /* no end either */
    feed_all(&server, data, sizeof data);
    assert_int_equal(server.state, DDL_HELLO_JUDGING);
    assert_int_equal(strlen(server.peer.host), DDL_HOST_TEXT - 1);
    assert_int_equal(strspn(server.peer.host, "?"), DDL_HOST_TEXT - 1);
}

static void any_change_of_a_byte_leads_to_a_clean_end(void **state)
{
    uint8_t hello_bytes[DDL_HELLO_CLIENT_BYTES], reply_bytes[512];
    ddl_hello client, server;
    ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    memcpy(hello_bytes, ddl_hello_output(&client).data, sizeof hello_bytes);
    feed_all(&server, hello_bytes, sizeof hello_bytes);
    ddl_hello_judge(&server, DDL_HELLO_WELCOME, "%s", "");
    size_t reply_count = ddl_hello_output(&server).bytes;
    memcpy(reply_bytes, ddl_hello_output(&server).data, reply_count);
    memset(reply_bytes + reply_count, 'x', sizeof reply_bytes - reply_count);
    for (size_t at = 0; at < DDL_HELLO_CLIENT_BYTES; at++) {
        for (int bit = 0; bit < 8; bit++) {
            hello_bytes[at] ^= (uint8_t)(1 << bit);
            ddl_hello_start_server(&server, &b);
            feed_all(&server, hello_bytes, sizeof hello_bytes);
            assert_true(server.state == DDL_HELLO_REFUSED || server.state == DDL_HELLO_JUDGING);
            hello_bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t at = 0; at < reply_count; at++) {
        for (int bit = 0; bit < 8; bit++) {
            reply_bytes[at] ^= (uint8_t)(1 << bit);
            ddl_hello_start_client(&client, &a);
            ddl_hello_sent(&client, DDL_HELLO_CLIENT_BYTES);
            feed_all(&client, reply_bytes, sizeof reply_bytes);
            assert_true(client.state == DDL_HELLO_REFUSED || client.state == DDL_HELLO_ACCEPTED);
            reply_bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
}

static void a_cut_hello_waits_for_the_rest(void **state)
{
    ddl_hello client, server;
    ddl_hello_party a = party(DDL_CHANNEL_MESH, 3, 1, 8), b = party(DDL_CHANNEL_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    for (size_t bytes = 0; bytes < DDL_HELLO_CLIENT_BYTES; bytes++) {
        ddl_hello_start_server(&server, &b);
        feed_all(&server, ddl_hello_output(&client).data, bytes);
        assert_int_equal(server.state, DDL_HELLO_TALKING);
        assert_true(ddl_hello_wants(&server) > 0);
        assert_int_equal(ddl_hello_output(&server).bytes, 0);
    }
}

static void a_handshake_fits_its_bounds(void **state)
{
    (void)state;
    assert_true(sizeof(ddl_hello) <= 4096);
    assert_true(DDL_HELLO_CLIENT_BYTES + DDL_HELLO_FINISH_BYTES <= 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_agree_however_the_bytes_arrive),
        cmocka_unit_test(a_client_of_a_store_learns_the_run),
        cmocka_unit_test(whoever_does_not_fit_is_told_why_on_both_sides),
        cmocka_unit_test(a_rank_beyond_the_world_is_refused),
        cmocka_unit_test(the_owner_of_a_server_has_the_last_word),
        cmocka_unit_test(strangers_hear_nothing),
        cmocka_unit_test(another_version_is_told_both_numbers),
        cmocka_unit_test(text_from_outside_is_made_printable),
        cmocka_unit_test(any_change_of_a_byte_leads_to_a_clean_end),
        cmocka_unit_test(a_cut_hello_waits_for_the_rest),
        cmocka_unit_test(a_handshake_fits_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
