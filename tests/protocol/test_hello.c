/* test_hello.c - two hello machines, and what hostile bytes do to one. */
#include "protocol/hello.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A prover that shows what it was asked for: the sum of everything, mixed with its secret. */
struct toy {
    ddl_prover prover;
    uint8_t secret;
};

static void toy_prove(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES],
                      const ddl_view parts[], int nparts, uint8_t mac[DDL_MAC_BYTES])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ ((const struct toy *)(const void *)prover)->secret;
    for (int i = 0; i < DDL_RUN_ID_BYTES; i++)
        hash = (hash ^ run_id[i]) * UINT64_C(0x100000001b3);
    for (int part = 0; part < nparts; part++)
        for (size_t i = 0; i < parts[part].bytes; i++)
            hash = (hash ^ ((const uint8_t *)parts[part].data)[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < DDL_MAC_BYTES; i += 8)
        ddl_put_u64(mac + i, hash += UINT64_C(0x9e3779b97f4a7c15));
}

static bool toy_check(const ddl_prover *prover, const uint8_t run_id[DDL_RUN_ID_BYTES],
                      const ddl_view parts[], int nparts, const uint8_t mac[DDL_MAC_BYTES])
{
    uint8_t expected[DDL_MAC_BYTES];
    toy_prove(prover, run_id, parts, nparts, expected);
    return memcmp(mac, expected, sizeof expected) == 0;
}

static const struct toy ours = { { "the file a", DDL_SECURITY_AUTH, toy_prove, toy_check, NULL }, 1 };
static const struct toy theirs = { { "the file b", DDL_SECURITY_AUTH, toy_prove, toy_check, NULL }, 2 };

static ddl_hello_party party(ddl_hello_channel channel, int rank, int peer, int nranks)
{
    ddl_hello_party self = { .channel = channel,
                             .generator = 7,
                             .library = ddl_hello_library(1, 2, rank),
                             .run_id = { 0xaa, 1 },
                             .nonce = { 0x11, (uint8_t)rank },
                             .rank = rank,
                             .nranks = nranks,
                             .peer = peer,
                             .pid = 100 + rank,
                             .level = DDL_SECURITY_AUTH,
                             .prover = &ours.prover };
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
                ddl_hello_judge(to, welcome ? DDL_HELLO_WELCOME : DDL_HELLO_TAKEN);
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
        ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
        a.stream = (int)piece % 17;
        ddl_hello_start_client(&client, &a);
        ddl_hello_start_server(&server, &b);
        talk(&client, &server, piece, true);
        assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
        assert_int_equal(server.state, DDL_HELLO_ACCEPTED);
        assert_int_equal(server.peer.rank, 3);
        assert_int_equal(server.peer.pid, 103);
        assert_int_equal(server.peer.stream, a.stream);
        assert_string_equal(server.peer.host, "host3");
        assert_int_equal(client.peer.rank, 1);
        assert_int_equal(ddl_hello_output(&client).bytes, 0);
        assert_int_equal(ddl_hello_output(&server).bytes, 0);
    }
}

/* It is where the last byte of a host's name would be. */
static void the_number_of_a_connection_fits_beside_the_longest_name(void **state)
{
    (void)state;
    ddl_hello client, server;
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    memset(a.host, 'h', sizeof a.host - 1);
    a.stream = 16;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 1000, true);
    assert_int_equal(server.state, DDL_HELLO_ACCEPTED);
    assert_int_equal(server.peer.stream, 16);
    assert_string_equal(server.peer.host, a.host);
}

static void a_client_of_a_store_learns_the_run(void **state)
{
    ddl_hello client, server;
    ddl_hello_party a = party(DDL_HELLO_FOR_STORE, 3, 0, 8), b = party(DDL_HELLO_FOR_STORE, 0, -1, 8);
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
    self->channel = DDL_HELLO_FOR_STORE;
}

static void set_peer(ddl_hello_party *self)
{
    self->peer = 2;
}

static void reflect(ddl_hello_party *self)
{
    self->nonce[1] = 1; /* the server's */
}

static void set_off(ddl_hello_party *self)
{
    self->prover = NULL;
}

static void set_secret(ddl_hello_party *self)
{
    self->prover = &theirs.prover;
}

static void set_secret_and_size(ddl_hello_party *self)
{
    self->prover = &theirs.prover;
    self->nranks = 9;
}

static void whoever_does_not_fit_is_told_why_on_both_sides(void **state)
{
    static const struct {
        const char *name;
        void (*spoil)(ddl_hello_party *client);
        ddl_hello_verdict verdict;
        ddl_status status;
        const char *first, *second; /* said on both sides */
    } cases[] = {
        { "generator", set_generator, DDL_HELLO_OTHER_GENERATOR, DDL_EPROTO,
          "rank 3 on host3[103] has version 8 of ddl's algorithms (ddl 1.2.3), ",
          "but rank 1 on host1[101] has version 7 (ddl 1.2.1); " },
        { "run", set_run, DDL_HELLO_OTHER_RUN, DDL_EAUTH, "rank 3 on host3[103]",
          "belongs to another run than rank 1 on host1[101] there" },
        { "no run, on the mesh", clear_run, DDL_HELLO_OTHER_RUN, DDL_EAUTH, "rank 3", "another run" },
        { "size", set_size, DDL_HELLO_OTHER_SIZE, DDL_ECONFIG, "rank 3 on host3[103] has world size 9",
          "but rank 1 on host1[101] has world size 8" },
        { "channel", set_channel, DDL_HELLO_OTHER_CHANNEL, DDL_EPROTO, "serves channel 2", "not 1" },
        { "peer", set_peer, DDL_HELLO_OTHER_RANK, DDL_EPROTO, "rank 1 answers", "rank 2 was expected" },
        { "reflection", reflect, DDL_HELLO_OTHER_RUN, DDL_EAUTH, "rank 3", "another run" },
        { "level", set_off, DDL_HELLO_OTHER_LEVEL, DDL_EAUTH, "rank 3 on host3[103] has security level off",
          "rank 1" },
        { "secret", set_secret, DDL_HELLO_NOT_PROVEN, DDL_EAUTH, "does not know", "secret" },
        { "secret and size", set_secret_and_size, DDL_HELLO_NOT_PROVEN, DDL_EAUTH, "does not know",
          "secret" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_hello client, server;
        ddl_error error;
        ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
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
        ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
        ddl_hello_start_client(&client, &a);
        ddl_hello_start_server(&server, &b);
        /* It has the secret, and says so itself. */
        ddl_put_u32(client.out + 48, (uint32_t)ranks[i]);
        ddl_put_u32(client.said + 48, (uint32_t)ranks[i]);
        talk(&client, &server, 1000, true);
        assert_int_equal(server.state, DDL_HELLO_REFUSED);
        assert_int_equal(server.verdict, DDL_HELLO_BAD_RANK);
        assert_int_equal(client.state, DDL_HELLO_REFUSED);
        assert_int_equal(client.verdict, DDL_HELLO_BAD_RANK);
    }
}

static void the_owner_of_a_server_has_the_last_word(void **state)
{
    ddl_hello client, server;
    ddl_error error;
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 7, false);
    assert_int_equal(client.state, DDL_HELLO_REFUSED);
    assert_int_equal(server.state, DDL_HELLO_REFUSED);
    assert_int_equal(ddl_hello_fail(&client, "x", &error), DDL_ECONFIG);
    assert_string_equal(error.text, "x: rank 3 is connected to rank 1 already");
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
        ddl_hello_party b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
        ddl_hello_start_server(&server, &b);
        feed_all(&server, (const uint8_t *)openings[i], 12);
        assert_int_equal(server.state, DDL_HELLO_REFUSED);
        assert_int_equal(server.verdict, DDL_HELLO_NOT_DDL);
        assert_int_equal(ddl_hello_output(&server).bytes, 0);
        assert_int_equal(ddl_hello_wants(&server), 0);
    }
}

static void what_gives_back_what_it_is_told_is_no_server(void **state)
{
    static const ddl_hello_channel channels[] = { DDL_HELLO_FOR_STORE, DDL_HELLO_FOR_MESH };
    (void)state;
    for (int i = 0; i < 2; i++) {
        ddl_hello client;
        uint8_t said[DDL_HELLO_CLIENT_BYTES];
        ddl_hello_party a = party(channels[i], 3, 1, 8);
        ddl_hello_start_client(&client, &a);
        memcpy(said, ddl_hello_output(&client).data, sizeof said);
        feed_all(&client, said, sizeof said);
        assert_int_equal(client.state, DDL_HELLO_REFUSED);
        assert_int_equal(client.verdict, DDL_HELLO_NOT_DDL);
    }
}

static void another_version_is_told_both_numbers(void **state)
{
    ddl_hello client, server;
    ddl_error error;
    uint8_t data[512];
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    memcpy(data, ddl_hello_output(&client).data, DDL_HELLO_CLIENT_BYTES);
    ddl_put_u16(data + 8, 77);
    feed_all(&server, data, DDL_HELLO_CLIENT_BYTES);
    assert_int_equal(ddl_hello_fail(&server, "x", &error), DDL_EPROTO);
    assert_string_equal(
        error.text, "x: rank 1 on host1[101] has version 10 of the protocol (ddl 1.2.1), but what calls has "
                    "version 77; install the same ddl everywhere");
    assert_int_equal(server.peer_version, 77);
    ddl_view reply = ddl_hello_output(&server);
    memcpy(data, reply.data, reply.bytes);
    ddl_put_u16(data + 8, 77); /* as a server of that version would answer */
    feed_all(&client, data, reply.bytes);
    assert_int_equal(ddl_hello_fail(&client, "x", &error), DDL_EPROTO);
    assert_string_equal(
        error.text, "x: rank 3 on host3[103] has version 10 of the protocol (ddl 1.2.3), but what answers "
                    "there has version 77; install the same ddl everywhere");
}

static void text_from_outside_is_made_printable(void **state)
{
    ddl_hello client, server;
    uint8_t data[DDL_HELLO_CLIENT_BYTES];
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    memcpy(data, ddl_hello_output(&client).data, sizeof data);
    memset(data + 64, 0x1b, DDL_HOST_TEXT); /* no end either */
    feed_all(&server, data, sizeof data);
    assert_int_equal(server.state, DDL_HELLO_JUDGING);
    assert_int_equal(strlen(server.peer.host), DDL_HOST_TEXT - 1);
    assert_int_equal(strspn(server.peer.host, "?"), DDL_HOST_TEXT - 1);
    memset(b.host, 0x1b, sizeof b.host - 1);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 1000, true);
    assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
    assert_int_equal(strspn(client.peer.host, "?"), DDL_HOST_TEXT - 1);
}

/* What a server says of its process is taken from it only with its proof, and not told to who has none. */
static void a_server_that_proves_nothing_has_no_name(void **state)
{
    void (*const spoils[])(ddl_hello_party * client) = { set_off, set_secret, set_secret_and_size };
    (void)state;
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        ddl_hello client, server;
        ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
        spoils[i](&a);
        ddl_hello_start_client(&client, &a);
        ddl_hello_start_server(&server, &b);
        talk(&client, &server, 1000, true);
        assert_int_equal(client.state, DDL_HELLO_REFUSED);
        assert_string_equal(client.peer.host, "");
        assert_null(strstr(client.reason, "host1"));
    }
}

/* ---- proofs ---- */

enum { MESSAGES = 3, MESSAGE_BYTES = DDL_HELLO_SERVER_BYTES };

/* What went over a connection. */
struct recording {
    uint8_t data[MESSAGES][MESSAGE_BYTES];
    size_t bytes[MESSAGES];
};

/*
 * A whole handshake message by message, recorded; of message number spoilt, the bits of mask are changed at
 * this place.
 */
static void converse(ddl_hello *client, ddl_hello *server, int spoilt, size_t at, uint8_t mask,
                     struct recording *recording)
{
    for (int i = 0; i < MESSAGES; i++) {
        ddl_hello *from = i == 1 ? server : client, *to = i == 1 ? client : server;
        ddl_view out = ddl_hello_output(from);
        assert_true(out.bytes <= MESSAGE_BYTES);
        recording->bytes[i] = out.bytes;
        if (out.bytes > 0)
            memcpy(recording->data[i], out.data, out.bytes);
        ddl_hello_sent(from, out.bytes);
        if (i == spoilt && at < out.bytes)
            recording->data[i][at] ^= mask;
        feed_all(to, recording->data[i], out.bytes);
        if (server->state == DDL_HELLO_JUDGING)
            ddl_hello_judge(server, DDL_HELLO_WELCOME);
    }
}

static void start_pair(ddl_hello *client, ddl_hello *server, ddl_hello_channel channel)
{
    ddl_hello_party a = party(channel, 3, channel == DDL_HELLO_FOR_MESH ? 1 : 0, 8);
    ddl_hello_party b = party(channel, channel == DDL_HELLO_FOR_MESH ? 1 : 0, -1, 8);
    if (channel == DDL_HELLO_FOR_STORE)
        memset(a.run_id, 0, sizeof a.run_id);
    ddl_hello_start_client(client, &a);
    ddl_hello_start_server(server, &b);
}

static void no_bit_can_be_changed_on_the_way(void **state)
{
    static const ddl_hello_channel channels[] = { DDL_HELLO_FOR_STORE, DDL_HELLO_FOR_MESH };
    (void)state;
    for (int which = 0; which < 2; which++) {
        ddl_hello client, server;
        struct recording whole, spoilt;
        start_pair(&client, &server, channels[which]);
        converse(&client, &server, -1, 0, 0, &whole);
        assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
        assert_int_equal(server.state, DDL_HELLO_ACCEPTED);
        for (int message = 0; message < MESSAGES; message++) {
            for (size_t bit = 0; bit < 8 * whole.bytes[message]; bit++) {
                start_pair(&client, &server, channels[which]);
                converse(&client, &server, message, bit / 8, (uint8_t)(1 << bit % 8), &spoilt);
                if (server.state != DDL_HELLO_REFUSED && server.state != DDL_HELLO_TALKING)
                    fail_msg("message %d, bit %zu: the server is in state %d", message, bit,
                             (int)server.state);
                if (message < 2 && client.state != DDL_HELLO_REFUSED && client.state != DDL_HELLO_TALKING)
                    fail_msg("message %d, bit %zu: the client is in state %d", message, bit,
                             (int)client.state);
            }
        }
    }
}

static void what_was_recorded_does_not_open_another_connection(void **state)
{
    ddl_hello client, server;
    struct recording recorded;
    (void)state;
    start_pair(&client, &server, DDL_HELLO_FOR_MESH);
    converse(&client, &server, -1, 0, 0, &recorded);
    /* To a server that has made a nonce of its own since. */
    ddl_hello_party b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    b.nonce[5] ^= 1;
    ddl_hello_start_server(&server, &b);
    feed_all(&server, recorded.data[0], recorded.bytes[0]);
    ddl_hello_judge(&server, DDL_HELLO_WELCOME);
    feed_all(&server, recorded.data[2], recorded.bytes[2]);
    assert_int_equal(server.state, DDL_HELLO_REFUSED);
    assert_int_equal(server.verdict, DDL_HELLO_NOT_PROVEN);
    /* To a client that has. */
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8);
    a.nonce[5] ^= 1;
    ddl_hello_start_client(&client, &a);
    feed_all(&client, recorded.data[1], recorded.bytes[1]);
    assert_int_equal(client.state, DDL_HELLO_REFUSED);
    assert_int_equal(client.verdict, DDL_HELLO_NOT_PROVEN);
    /* To a server of another run that knows the same secret: a proof is for one run. */
    b = party(DDL_HELLO_FOR_STORE, 0, -1, 8);
    start_pair(&client, &server, DDL_HELLO_FOR_STORE);
    converse(&client, &server, -1, 0, 0, &recorded);
    b.run_id[3] ^= 1;
    ddl_hello_start_server(&server, &b);
    feed_all(&server, recorded.data[0], recorded.bytes[0]);
    ddl_hello_judge(&server, DDL_HELLO_WELCOME);
    feed_all(&server, recorded.data[2], recorded.bytes[2]);
    assert_int_equal(server.verdict, DDL_HELLO_NOT_PROVEN);
}

/* Who stands between two sessions of TLS can pass on every byte, and is noticed by both ends. */
static void a_proof_holds_for_one_session_only(void **state)
{
    static const ddl_hello_channel channels[] = { DDL_HELLO_FOR_STORE, DDL_HELLO_FOR_MESH };
    const uint8_t one[DDL_HELLO_BINDING_BYTES] = { 1, 2, 3 };
    (void)state;
    for (int which = 0; which < 2; which++) {
        ddl_hello client, server;
        struct recording recorded, answer;
        start_pair(&client, &server, channels[which]);
        ddl_hello_bind(&client, one);
        ddl_hello_bind(&server, one);
        converse(&client, &server, -1, 0, 0, &recorded);
        assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
        assert_int_equal(server.state, DDL_HELLO_ACCEPTED);
        /* The recorded finish is right but for the session: each byte of its binding counts. */
        for (int at = 0; at <= DDL_HELLO_BINDING_BYTES; at++) {
            uint8_t other[DDL_HELLO_BINDING_BYTES];
            memcpy(other, one, sizeof other);
            start_pair(&client, &server, channels[which]);
            ddl_hello_bind(&client, one);
            if (at < DDL_HELLO_BINDING_BYTES) { /* the last time it is bound to none */
                other[at] ^= 1;
                ddl_hello_bind(&server, other);
            }
            converse(&client, &server, -1, 0, 0, &answer);
            assert_int_equal(client.verdict, DDL_HELLO_NOT_PROVEN);
            if (server.state == DDL_HELLO_TALKING)
                feed_all(&server, recorded.data[2], recorded.bytes[2]);
            assert_int_equal(server.verdict, DDL_HELLO_NOT_PROVEN);
        }
    }
}

static void what_one_says_does_not_serve_as_an_answer_to_it(void **state)
{
    ddl_hello client, server;
    uint8_t mirrored[DDL_HELLO_FINISH_BYTES] = { 0 };
    struct recording recording;
    (void)state;
    /* The server's own proof, sent back as the client's. */
    start_pair(&client, &server, DDL_HELLO_FOR_MESH);
    feed_all(&server, ddl_hello_output(&client).data, DDL_HELLO_CLIENT_BYTES);
    ddl_hello_judge(&server, DDL_HELLO_WELCOME);
    memcpy(mirrored, (const uint8_t *)ddl_hello_output(&server).data + DDL_HELLO_SERVER_BYTES - DDL_MAC_BYTES,
           DDL_MAC_BYTES);
    feed_all(&server, mirrored, sizeof mirrored);
    assert_int_equal(server.state, DDL_HELLO_REFUSED);
    assert_int_equal(server.verdict, DDL_HELLO_NOT_PROVEN);
    /* A rank's own hello, led back to its own door. */
    ddl_hello_party self = party(DDL_HELLO_FOR_MESH, 3, -1, 8);
    start_pair(&client, &server, DDL_HELLO_FOR_MESH);
    self.nonce[7] = 1;
    ddl_hello_start_server(&server, &self);
    converse(&client, &server, -1, 0, 0, &recording);
    assert_int_equal(server.state, DDL_HELLO_REFUSED);
    assert_int_equal(client.state, DDL_HELLO_REFUSED);
}

/* Whatever is wrong with a proof, whoever made it hears the same. */
static void every_refused_proof_is_answered_alike(void **state)
{
    ddl_hello client, server;
    uint8_t finish[DDL_HELLO_FINISH_BYTES];
    (void)state;
    for (int i = 0; i < 3; i++) {
        start_pair(&client, &server, DDL_HELLO_FOR_MESH);
        feed_all(&server, ddl_hello_output(&client).data, DDL_HELLO_CLIENT_BYTES);
        ddl_hello_judge(&server, i == 2 ? DDL_HELLO_TAKEN : DDL_HELLO_WELCOME);
        ddl_hello_sent(&server, ddl_hello_output(&server).bytes);
        memset(finish, 0, sizeof finish);
        finish[i] = 1;
        finish[DDL_MAC_BYTES] = (uint8_t)(i == 1 ? DDL_HELLO_OTHER_SIZE : DDL_HELLO_WELCOME);
        feed_all(&server, finish, sizeof finish);
        assert_int_equal(server.verdict, DDL_HELLO_NOT_PROVEN);
        assert_int_equal(ddl_hello_output(&server).bytes, 0);
    }
    /* A client whose server cannot prove it sends zeros, whatever its own proof would be. */
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    struct recording recording;
    b.prover = &theirs.prover;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    converse(&client, &server, -1, 0, 0, &recording);
    for (int i = 0; i < DDL_MAC_BYTES; i++)
        assert_int_equal(recording.data[2][i], 0);
    assert_int_equal(recording.data[2][DDL_MAC_BYTES], DDL_HELLO_NOT_PROVEN);
}

/* A size or rank that does not fit concerns the others only when it comes from the job. */
static void what_does_not_fit_counts_only_with_a_proof(void **state)
{
    ddl_hello client, server;
    uint8_t nothing[DDL_HELLO_FINISH_BYTES] = { 0 };
    ddl_hello_party a = party(DDL_HELLO_FOR_STORE, 3, 0, 9), b = party(DDL_HELLO_FOR_STORE, 0, -1, 8);
    (void)state;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    feed_all(&server, ddl_hello_output(&client).data, DDL_HELLO_CLIENT_BYTES);
    assert_int_equal(server.state, DDL_HELLO_TALKING);
    feed_all(&server, nothing, sizeof nothing);
    assert_int_equal(server.verdict, DDL_HELLO_NOT_PROVEN);
}

static void levels_that_differ_are_told_without_a_proof(void **state)
{
    ddl_hello client, server;
    ddl_error error;
    ddl_hello_party a = party(DDL_HELLO_FOR_MESH, 3, 1, 8), b = party(DDL_HELLO_FOR_MESH, 1, -1, 8);
    (void)state;
    b.prover = NULL;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 1000, true);
    assert_int_equal(server.verdict, DDL_HELLO_OTHER_LEVEL);
    assert_int_equal(client.verdict, DDL_HELLO_OTHER_LEVEL);
    assert_int_equal(ddl_hello_fail(&client, "x", &error), DDL_EAUTH);
    assert_non_null(strstr(error.text, "rank 3 on host3[103] has security level auth, but rank 1 has off"));
    /* And at level off nobody has to prove anything. */
    a.prover = NULL;
    ddl_hello_start_client(&client, &a);
    ddl_hello_start_server(&server, &b);
    talk(&client, &server, 1000, true);
    assert_int_equal(server.state, DDL_HELLO_ACCEPTED);
    assert_int_equal(client.state, DDL_HELLO_ACCEPTED);
}

static void a_cut_message_waits_for_the_rest(void **state)
{
    ddl_hello client, server;
    struct recording whole;
    (void)state;
    start_pair(&client, &server, DDL_HELLO_FOR_MESH);
    converse(&client, &server, -1, 0, 0, &whole);
    for (int message = 0; message < MESSAGES; message++) {
        for (size_t bytes = 0; bytes < whole.bytes[message]; bytes++) {
            start_pair(&client, &server, DDL_HELLO_FOR_MESH);
            ddl_hello *reader = message == 1 ? &client : &server;
            ddl_hello_sent(&client, DDL_HELLO_CLIENT_BYTES);
            if (message == 2) {
                feed_all(&server, whole.data[0], whole.bytes[0]);
                ddl_hello_judge(&server, DDL_HELLO_WELCOME);
                ddl_hello_sent(&server, DDL_HELLO_SERVER_BYTES);
            }
            feed_all(reader, whole.data[message], bytes);
            assert_int_equal(reader->state, DDL_HELLO_TALKING);
            assert_true(ddl_hello_wants(reader) > 0);
            assert_int_equal(ddl_hello_output(reader).bytes, 0);
        }
    }
}

static void a_handshake_fits_its_bounds(void **state)
{
    (void)state;
    assert_true(sizeof(ddl_hello) <= 4096);
    assert_true(DDL_HELLO_CLIENT_BYTES + DDL_HELLO_FINISH_BYTES <= 512);
    assert_true(DDL_HELLO_SERVER_BYTES <= 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_agree_however_the_bytes_arrive),
        cmocka_unit_test(the_number_of_a_connection_fits_beside_the_longest_name),
        cmocka_unit_test(a_client_of_a_store_learns_the_run),
        cmocka_unit_test(whoever_does_not_fit_is_told_why_on_both_sides),
        cmocka_unit_test(a_rank_beyond_the_world_is_refused),
        cmocka_unit_test(the_owner_of_a_server_has_the_last_word),
        cmocka_unit_test(strangers_hear_nothing),
        cmocka_unit_test(what_gives_back_what_it_is_told_is_no_server),
        cmocka_unit_test(another_version_is_told_both_numbers),
        cmocka_unit_test(text_from_outside_is_made_printable),
        cmocka_unit_test(a_server_that_proves_nothing_has_no_name),
        cmocka_unit_test(no_bit_can_be_changed_on_the_way),
        cmocka_unit_test(what_was_recorded_does_not_open_another_connection),
        cmocka_unit_test(a_proof_holds_for_one_session_only),
        cmocka_unit_test(what_one_says_does_not_serve_as_an_answer_to_it),
        cmocka_unit_test(every_refused_proof_is_answered_alike),
        cmocka_unit_test(what_does_not_fit_counts_only_with_a_proof),
        cmocka_unit_test(levels_that_differ_are_told_without_a_proof),
        cmocka_unit_test(a_cut_message_waits_for_the_rest),
        cmocka_unit_test(a_handshake_fits_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
