/*
 * hello.c - both sides of the handshake.
 *
 * Layout, little endian. The first 12 bytes of either side's first message are of the same form in every
 * version, so that two versions can tell each other so.
 *
 *     client   0 magic 8 | 8 version 2 | 10 channel 1 | 11 level 1 | 12 generator 4 | 16 run id 16 |
 *              32 nonce 16 | 48 rank 4 | 52 expected rank 4 | 56 world size 4 | 60 pid 4 | 64 host 63 |
 *              127 stream 1 | 128 library 4
 *
 *     server   0 magic 8 | 8 version 2 | 10 verdict 1 | 11 level 1 | 12 generator 4 | 16 run id 16 |
 *              32 nonce 16 | 48 rank 4 | 52 world size 4 | 56 channel 1 | 57 zero 3 | 60 pid 4 |
 *              64 host 64 | 128 library 4 | 132 MAC 32
 *
 *     finish   0 MAC 32 | 32 verdict 1 | 33 zero 3
 *
 * The server's MAC covers its label, the client's message, and its own up to the MAC; the client's covers its
 * label, both messages, and the last four bytes of its finish; at level tls both end with the binding of the
 * TLS session. At level off both are zero.
 */
#include "protocol/hello.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

enum { PID_AT = 60, HOST_AT = 64, STREAM_AT = 127, LIBRARY_AT = 128, SERVER_MAC_AT = 132 };

/* The line ends show when a transfer has changed text, as in PNG's signature. */
static const uint8_t magic[8] = { 'd', 'd', 'l', '\r', '\n', 0x1a, '\n', 0x00 };

static const uint8_t server_label[DDL_LABEL_BYTES] = "ddl hello server";
static const uint8_t client_label[DDL_LABEL_BYTES] = "ddl hello client";

static const struct {
    ddl_status status;
    const char *meaning;
} verdicts[] = {
#define X(verdict, code, text) [verdict] = { code, text },
    DDL_HELLO_VERDICTS(X)
#undef X
};

/* What in_wanted is being waited for. */
enum stage { CLIENT_PREFIX, CLIENT_REST, CLIENT_FINISH, SERVER_PREFIX, SERVER_NONCE, SERVER_REST, NOTHING };

enum { NONCE_END = 32 + DDL_NONCE_BYTES }; /* of either message */

ddl_status ddl_hello_verdict_status(ddl_hello_verdict verdict)
{
    DDL_ASSERT(verdict < DDL_HELLO_VERDICT_COUNT);
    return verdicts[verdict].status;
}

bool ddl_hello_ends_run(ddl_hello_verdict verdict)
{
    return verdict == DDL_HELLO_OTHER_SIZE || verdict == DDL_HELLO_OTHER_GENERATOR;
}

const char *ddl_security_name(ddl_security level)
{
    static const char *const names[] = { "off", "auth", "tls" };
    return (unsigned)level < sizeof names / sizeof names[0] ? names[level] : "unknown";
}

void ddl_hello_clean(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

static void want(ddl_hello *hello, enum stage stage, size_t total)
{
    DDL_ASSERT(total <= sizeof hello->in);
    hello->stage = (int)stage;
    hello->in_wanted = total;
}

static void start(ddl_hello *hello, const ddl_hello_party *self, bool is_server)
{
    DDL_ASSERT(self->rank >= 0);
    DDL_ASSERT(self->rank < self->nranks);
    memset(hello, 0, sizeof *hello);
    hello->self = *self;
    hello->self.level = ddl_prover_level(self->prover);
    hello->is_server = is_server;
}

/* The process, in the same place for both sides. */
static void put_process(const ddl_hello_party *self, uint8_t *out)
{
    ddl_put_u32(out + PID_AT, (uint32_t)self->pid);
    snprintf((char *)out + HOST_AT, DDL_HOST_TEXT, "%s", self->host);
    ddl_put_u32(out + LIBRARY_AT, self->library);
}

static void take_process(ddl_hello_party *peer, const uint8_t *in)
{
    peer->pid = (int32_t)ddl_get_u32(in + PID_AT);
    memcpy(peer->host, in + HOST_AT, DDL_HOST_TEXT);
    peer->host[DDL_HOST_TEXT - 1] = '\0';
    ddl_hello_clean(peer->host);
    peer->library = ddl_get_u32(in + LIBRARY_AT);
}

uint32_t ddl_hello_library(int major, int minor, int patch)
{
    return (uint32_t)major << 16 | (uint32_t)minor << 8 | (uint32_t)patch;
}

const char *ddl_hello_library_text(uint32_t library, char text[DDL_HELLO_LIBRARY_TEXT])
{
    snprintf(text, DDL_HELLO_LIBRARY_TEXT, "ddl %u.%u.%u", library >> 16 & 0xff, library >> 8 & 0xff,
             library & 0xff);
    return text;
}

void ddl_hello_start_client(ddl_hello *hello, const ddl_hello_party *self)
{
    start(hello, self, false);
    uint8_t *out = hello->out;
    memcpy(out, magic, sizeof magic);
    ddl_put_u16(out + 8, DDL_HELLO_VERSION);
    out[10] = (uint8_t)self->channel;
    out[11] = (uint8_t)hello->self.level;
    ddl_put_u32(out + 12, self->generator);
    memcpy(out + 16, self->run_id, DDL_RUN_ID_BYTES);
    memcpy(out + 32, self->nonce, DDL_NONCE_BYTES);
    ddl_put_u32(out + 48, (uint32_t)self->rank);
    ddl_put_u32(out + 52, (uint32_t)self->peer);
    ddl_put_u32(out + 56, (uint32_t)self->nranks);
    put_process(self, out);
    out[STREAM_AT] = (uint8_t)self->stream; /* where a text's last zero would be */
    hello->out_bytes = DDL_HELLO_CLIENT_BYTES;
    memcpy(hello->said, out, DDL_HELLO_CLIENT_BYTES);
    want(hello, SERVER_PREFIX, DDL_HELLO_PREFIX_BYTES);
}

void ddl_hello_start_server(ddl_hello *hello, const ddl_hello_party *self)
{
    start(hello, self, true);
    want(hello, CLIENT_PREFIX, DDL_HELLO_PREFIX_BYTES);
}

void ddl_hello_bind(ddl_hello *hello, const uint8_t binding[DDL_HELLO_BINDING_BYTES])
{
    DDL_ASSERT(hello->state == DDL_HELLO_TALKING);
    memcpy(hello->binding, binding, sizeof hello->binding);
    hello->is_bound = true;
}

size_t ddl_hello_wants(const ddl_hello *hello)
{
    return hello->state == DDL_HELLO_TALKING ? hello->in_wanted - hello->in_bytes : 0;
}

ddl_view ddl_hello_output(const ddl_hello *hello)
{
    return (ddl_view){ hello->out + hello->out_sent, hello->out_bytes - hello->out_sent };
}

void ddl_hello_sent(ddl_hello *hello, size_t count)
{
    DDL_ASSERT(count <= hello->out_bytes - hello->out_sent);
    hello->out_sent += count;
}

/* Append to what has to be sent; what was sent already makes room. */
static void send(ddl_hello *hello, const uint8_t *data, size_t bytes)
{
    memmove(hello->out, hello->out + hello->out_sent, hello->out_bytes - hello->out_sent);
    hello->out_bytes -= hello->out_sent;
    hello->out_sent = 0;
    DDL_ASSERT(bytes <= sizeof hello->out - hello->out_bytes);
    memcpy(hello->out + hello->out_bytes, data, bytes);
    hello->out_bytes += bytes;
}

static void end(ddl_hello *hello, ddl_hello_verdict verdict)
{
    hello->verdict = verdict;
    hello->state = verdict == DDL_HELLO_WELCOME ? DDL_HELLO_ACCEPTED : DDL_HELLO_REFUSED;
    want(hello, NOTHING, hello->in_bytes);
}

/* ---- proofs ---- */

/* The run is the server's in either case: a store's client learns it here. */
static const uint8_t *run_of(const ddl_hello *hello)
{
    return hello->is_server ? hello->self.run_id : hello->peer.run_id;
}

static ddl_view binding_of(const ddl_hello *hello)
{
    return (ddl_view){ hello->binding, hello->is_bound ? sizeof hello->binding : 0 };
}

static int server_parts(const ddl_hello *hello, ddl_view parts[3])
{
    parts[0] = (ddl_view){ server_label, sizeof server_label };
    parts[1] = (ddl_view){ hello->said, DDL_HELLO_CLIENT_BYTES + SERVER_MAC_AT };
    parts[2] = binding_of(hello);
    return 3;
}

static int client_parts(const ddl_hello *hello, const uint8_t finish[DDL_HELLO_FINISH_BYTES],
                        ddl_view parts[4])
{
    parts[0] = (ddl_view){ client_label, sizeof client_label };
    parts[1] = (ddl_view){ hello->said, sizeof hello->said };
    parts[2] = (ddl_view){ finish + DDL_MAC_BYTES, DDL_HELLO_FINISH_BYTES - DDL_MAC_BYTES };
    parts[3] = binding_of(hello);
    return 4;
}

static void prove(const ddl_hello *hello, const ddl_view parts[], int nparts, uint8_t *mac)
{
    const ddl_prover *prover = hello->self.prover;
    if (prover != NULL)
        prover->prove(prover, run_of(hello), parts, nparts, mac);
}

static bool is_proved(const ddl_hello *hello, const ddl_view parts[], int nparts, const uint8_t *mac)
{
    const ddl_prover *prover = hello->self.prover;
    return prover == NULL || prover->check(prover, run_of(hello), parts, nparts, mac);
}

static void explain_no_proof(ddl_hello *hello)
{
    const ddl_hello_party *peer = &hello->peer;
    const char *source = hello->self.prover->source;
    if (hello->is_server)
        snprintf(hello->reason, sizeof hello->reason,
                 "what says it is rank %d on %s[%d] does not know this job's secret, which is here %s",
                 peer->rank, peer->host, peer->pid, source);
    else
        snprintf(hello->reason, sizeof hello->reason,
                 "what answers there does not know the secret that rank %d has, %s; " DDL_HELLO_SAME_SECRET,
                 hello->self.rank, source);
}

/* ---- the server's answer ---- */

static void server_reply(ddl_hello *hello, ddl_hello_verdict verdict)
{
    uint8_t *out = hello->said + DDL_HELLO_CLIENT_BYTES;
    ddl_view parts[3];
    memcpy(out, magic, sizeof magic);
    ddl_put_u16(out + 8, DDL_HELLO_VERSION);
    out[10] = (uint8_t)verdict;
    out[11] = (uint8_t)hello->self.level;
    ddl_put_u32(out + 12, hello->self.generator);
    memcpy(out + 16, hello->self.run_id, DDL_RUN_ID_BYTES);
    memcpy(out + 32, hello->self.nonce, DDL_NONCE_BYTES);
    ddl_put_u32(out + 48, (uint32_t)hello->self.rank);
    ddl_put_u32(out + 52, (uint32_t)hello->self.nranks);
    out[56] = (uint8_t)hello->self.channel;
    /* Whom no proof can be expected from gets none, and neither run nor host. */
    bool goes_on = verdict != DDL_HELLO_OTHER_VERSION && verdict != DDL_HELLO_OTHER_LEVEL;
    if (goes_on) {
        put_process(&hello->self, out);
        prove(hello, parts, server_parts(hello, parts), out + SERVER_MAC_AT);
    } else {
        memset(out + 16, 0, DDL_RUN_ID_BYTES);
    }
    send(hello, out, DDL_HELLO_SERVER_BYTES);
    if (!goes_on) {
        end(hello, verdict);
        return;
    }
    hello->verdict = verdict;
    hello->state = DDL_HELLO_TALKING;
    hello->in_bytes = 0;
    want(hello, CLIENT_FINISH, DDL_HELLO_FINISH_BYTES);
}

static void take_client(ddl_hello *hello)
{
    const uint8_t *in = hello->in;
    ddl_hello_party *peer = &hello->peer;
    memcpy(hello->said, in, DDL_HELLO_CLIENT_BYTES);
    peer->channel = (ddl_hello_channel)in[10];
    peer->level = (ddl_security)in[11];
    peer->generator = ddl_get_u32(in + 12);
    memcpy(peer->run_id, in + 16, DDL_RUN_ID_BYTES);
    memcpy(peer->nonce, in + 32, DDL_NONCE_BYTES);
    peer->rank = (int)(int32_t)ddl_get_u32(in + 48);
    peer->peer = (int)(int32_t)ddl_get_u32(in + 52);
    peer->nranks = (int)(int32_t)ddl_get_u32(in + 56);
    take_process(peer, in);
    peer->stream = in[STREAM_AT];
}

static bool same_run(const ddl_hello_party *self, const ddl_hello_party *peer)
{
    static const uint8_t unknown[DDL_RUN_ID_BYTES];
    if (memcmp(self->run_id, peer->run_id, DDL_RUN_ID_BYTES) == 0)
        return true;
    return self->channel == DDL_HELLO_FOR_STORE && memcmp(peer->run_id, unknown, DDL_RUN_ID_BYTES) == 0;
}

/* ---- what does not fit ---- */

enum { PARTY_TEXT = DDL_HOST_TEXT + 48 };

/* "rank 3 on nodeA[4711]"; a server that has proved nothing is "rank 0". */
static const char *name(const ddl_hello_party *party, char text[PARTY_TEXT])
{
    if (party->host[0] != '\0')
        snprintf(text, PARTY_TEXT, "rank %d on %s[%d]", party->rank, party->host, (int)party->pid);
    else
        snprintf(text, PARTY_TEXT, "rank %d", party->rank);
    return text;
}

static void explain(ddl_hello_verdict verdict, const ddl_hello_party *client, const ddl_hello_party *server,
                    char reason[DDL_HELLO_REASON_TEXT])
{
    const size_t room = DDL_HELLO_REASON_TEXT;
    char who[PARTY_TEXT], whom[PARTY_TEXT], with[DDL_HELLO_LIBRARY_TEXT], against[DDL_HELLO_LIBRARY_TEXT];
    name(client, who);
    name(server, whom);
    switch (verdict) {
    case DDL_HELLO_OTHER_CHANNEL:
        snprintf(reason, room, "this port serves channel %d, not %d; is it the right one?",
                 (int)server->channel, (int)client->channel);
        break;
    case DDL_HELLO_OTHER_LEVEL:
        snprintf(reason, room,
                 "%s has security level %s, but %s has %s; start every rank with the same DDL_SECURITY "
                 "(ddl-launch --security)",
                 who, ddl_security_name(client->level), whom, ddl_security_name(server->level));
        break;
    case DDL_HELLO_OTHER_RUN:
        snprintf(reason, room, "%s belongs to another run than %s there; do two jobs share a port or store?",
                 who, whom);
        break;
    case DDL_HELLO_OTHER_SIZE:
        snprintf(reason, room,
                 "%s has world size %d, but %s has world size %d; start every rank with the same WORLD_SIZE "
                 "(ddl-launch: every node with the same --nnodes and --nproc_per_node)",
                 who, client->nranks, whom, server->nranks);
        break;
    case DDL_HELLO_OTHER_GENERATOR:
        snprintf(
            reason, room,
            "%s has version %u of ddl's algorithms (%s), but %s has version %u (%s); install the same ddl "
            "everywhere",
            who, (unsigned)client->generator, ddl_hello_library_text(client->library, with), whom,
            (unsigned)server->generator, ddl_hello_library_text(server->library, against));
        break;
    case DDL_HELLO_BAD_RANK:
        if (client->rank < 0 || client->rank >= server->nranks)
            snprintf(reason, room, "%s is not in 0..%lld", who, (long long)server->nranks - 1);
        else
            snprintf(reason, room, "rank %d is called by higher ranks, not by rank %d", server->rank,
                     client->rank);
        break;
    case DDL_HELLO_OTHER_RANK:
        snprintf(reason, room,
                 "rank %d answers there, rank %d was expected; do two jobs share a port or store?",
                 server->rank, client->peer);
        break;
    case DDL_HELLO_BAD_STREAM:
        snprintf(reason, room, "%s calls with connection %d, which it is not to have with rank %d", who,
                 client->stream, server->rank);
        break;
    case DDL_HELLO_TAKEN:
        if (server->channel == DDL_HELLO_FOR_STORE)
            snprintf(reason, room, "the store of rank %d has as many clients as it takes", server->rank);
        else
            snprintf(reason, room, "rank %d is connected to rank %d already", client->rank, server->rank);
        break;
    default:
        snprintf(reason, room, "%s", verdicts[verdict].meaning);
    }
}

static ddl_hello_verdict compare(const ddl_hello_party *client, const ddl_hello_party *server)
{
    if (client->channel != server->channel)
        return DDL_HELLO_OTHER_CHANNEL;
    if (client->level != server->level)
        return DDL_HELLO_OTHER_LEVEL;
    if (!same_run(server, client) || memcmp(server->nonce, client->nonce, DDL_NONCE_BYTES) == 0)
        return DDL_HELLO_OTHER_RUN;
    if (client->nranks != server->nranks)
        return DDL_HELLO_OTHER_SIZE;
    if (client->generator != server->generator)
        return DDL_HELLO_OTHER_GENERATOR;
    if (client->rank < 0 || client->rank >= server->nranks)
        return DDL_HELLO_BAD_RANK;
    if (client->peer != server->rank)
        return DDL_HELLO_OTHER_RANK;
    return DDL_HELLO_WELCOME;
}

ddl_hello_verdict ddl_hello_check(const ddl_hello_party *client, const ddl_hello_party *server,
                                  char reason[DDL_HELLO_REASON_TEXT])
{
    ddl_hello_verdict verdict = compare(client, server);
    reason[0] = '\0';
    if (verdict != DDL_HELLO_WELCOME)
        explain(verdict, client, server, reason);
    return verdict;
}

void ddl_hello_judge(ddl_hello *hello, ddl_hello_verdict verdict)
{
    DDL_ASSERT(hello->state == DDL_HELLO_JUDGING);
    if (verdict != DDL_HELLO_WELCOME)
        explain(verdict, &hello->peer, &hello->self, hello->reason);
    server_reply(hello, verdict);
}

/* ---- the client's last word ---- */

static void client_finish(ddl_hello *hello, ddl_hello_verdict verdict)
{
    uint8_t out[DDL_HELLO_FINISH_BYTES] = { 0 };
    ddl_view parts[4];
    out[DDL_MAC_BYTES] = (uint8_t)verdict;
    if (verdict != DDL_HELLO_NOT_PROVEN) /* to whom that is said hears nothing else */
        prove(hello, parts, client_parts(hello, out, parts), out);
    send(hello, out, sizeof out);
    end(hello, verdict);
}

static void take_server(ddl_hello *hello)
{
    const uint8_t *in = hello->in;
    ddl_hello_party *peer = &hello->peer;
    const ddl_hello_party *self = &hello->self;
    ddl_view parts[3];
    memcpy(hello->said + DDL_HELLO_CLIENT_BYTES, in, DDL_HELLO_SERVER_BYTES);
    peer->channel = (ddl_hello_channel)in[56];
    peer->level = (ddl_security)in[11];
    peer->generator = ddl_get_u32(in + 12);
    memcpy(peer->run_id, in + 16, DDL_RUN_ID_BYTES);
    memcpy(peer->nonce, in + 32, DDL_NONCE_BYTES);
    peer->rank = (int)(int32_t)ddl_get_u32(in + 48);
    peer->nranks = (int)(int32_t)ddl_get_u32(in + 52);
    unsigned said = in[10];
    if (peer->level != self->level) {
        explain(DDL_HELLO_OTHER_LEVEL, self, peer, hello->reason);
        end(hello, DDL_HELLO_OTHER_LEVEL);
        return;
    }
    if (!is_proved(hello, parts, server_parts(hello, parts), in + SERVER_MAC_AT)) {
        explain_no_proof(hello);
        client_finish(hello, DDL_HELLO_NOT_PROVEN);
        return;
    }
    take_process(peer, in);
    ddl_hello_verdict verdict = compare(self, peer);
    if (said >= DDL_HELLO_VERDICT_COUNT)
        verdict = DDL_HELLO_NOT_DDL;
    else if (said != DDL_HELLO_WELCOME)
        verdict = (ddl_hello_verdict)said;
    if (verdict != DDL_HELLO_WELCOME)
        explain(verdict, self, peer, hello->reason);
    client_finish(hello, verdict);
}

static bool is_magic(const ddl_hello *hello)
{
    return memcmp(hello->in, magic, sizeof magic) == 0;
}

void ddl_hello_question(uint8_t question[DDL_HELLO_PREFIX_BYTES])
{
    memset(question, 0, DDL_HELLO_PREFIX_BYTES);
    memcpy(question, magic, sizeof magic);
}

bool ddl_hello_tells_level(ddl_view first, ddl_security *level)
{
    if (first.bytes < DDL_HELLO_PREFIX_BYTES || memcmp(first.data, magic, sizeof magic) != 0)
        return false;
    *level = (ddl_security)((const uint8_t *)first.data)[11];
    return true;
}

void ddl_hello_refuse_tls(ddl_hello *hello)
{
    DDL_ASSERT(hello->is_server);
    DDL_ASSERT(hello->state == DDL_HELLO_TALKING);
    snprintf(
        hello->reason, sizeof hello->reason,
        "it calls in TLS, but rank %d has security level %s; start every rank with the same DDL_SECURITY "
        "(ddl-launch --security)",
        hello->self.rank, ddl_security_name(hello->self.level));
    server_reply(hello, DDL_HELLO_OTHER_LEVEL);
}

/* Who the other end is would be told in the form of its version. */
static void explain_version(ddl_hello *hello)
{
    char who[PARTY_TEXT], with[DDL_HELLO_LIBRARY_TEXT];
    snprintf(hello->reason, sizeof hello->reason,
             "%s has version %d of the protocol (%s), but %s has version %u; install the same ddl everywhere",
             name(&hello->self, who), DDL_HELLO_VERSION, ddl_hello_library_text(hello->self.library, with),
             hello->is_server ? "what calls" : "what answers there", hello->peer_version);
}

static void take_client_prefix(ddl_hello *hello)
{
    if (!is_magic(hello)) {
        snprintf(hello->reason, sizeof hello->reason, "the other end does not speak ddl");
        end(hello, DDL_HELLO_NOT_DDL); /* and not a word to a stranger */
        return;
    }
    hello->peer_version = ddl_get_u16(hello->in + 8);
    if (hello->peer_version != DDL_HELLO_VERSION) {
        explain_version(hello);
        server_reply(hello, DDL_HELLO_OTHER_VERSION);
    } else {
        want(hello, CLIENT_REST, DDL_HELLO_CLIENT_BYTES);
    }
}

/* As far as the server's message has come. */
static bool is_echo(const ddl_hello *hello, size_t bytes)
{
    return memcmp(hello->in, hello->said, bytes) == 0;
}

static void end_with_no_server(ddl_hello *hello)
{
    snprintf(hello->reason, sizeof hello->reason,
             "what listens there does not speak ddl; is another program on this port?");
    end(hello, DDL_HELLO_NOT_DDL);
}

/* What gives back all that it is told would be waited for, as a server has more to say. A server may begin
 * so; but its nonce is its own. */
static void take_server_nonce(ddl_hello *hello)
{
    if (is_echo(hello, NONCE_END))
        end_with_no_server(hello);
    else
        want(hello, SERVER_REST, DDL_HELLO_SERVER_BYTES);
}

static void take_server_prefix(ddl_hello *hello)
{
    if (!is_magic(hello)) {
        end_with_no_server(hello);
        return;
    }
    hello->peer_version = ddl_get_u16(hello->in + 8);
    if (hello->peer_version != DDL_HELLO_VERSION) {
        explain_version(hello);
        end(hello, DDL_HELLO_OTHER_VERSION);
    } else if (is_echo(hello, DDL_HELLO_PREFIX_BYTES)) {
        want(hello, SERVER_NONCE, NONCE_END);
    } else {
        want(hello, SERVER_REST, DDL_HELLO_SERVER_BYTES);
    }
}

/* What was found to be wrong counts only now that it is sure to come from the job. */
static void take_finish(ddl_hello *hello)
{
    unsigned said = hello->in[DDL_MAC_BYTES];
    ddl_view parts[4];
    if (!is_proved(hello, parts, client_parts(hello, hello->in, parts), hello->in)) {
        explain_no_proof(hello);
        end(hello, DDL_HELLO_NOT_PROVEN);
    } else if (hello->verdict != DDL_HELLO_WELCOME || said == DDL_HELLO_WELCOME) {
        end(hello, hello->verdict);
    } else {
        bool known = said < DDL_HELLO_VERDICT_COUNT;
        snprintf(hello->reason, sizeof hello->reason, "rank %d turned away: %s", hello->peer.rank,
                 known ? verdicts[said].meaning : "no reason that is known here");
        end(hello, known ? (ddl_hello_verdict)said : DDL_HELLO_NOT_DDL);
    }
}

static void step(ddl_hello *hello)
{
    switch ((enum stage)hello->stage) {
    case CLIENT_PREFIX:
        take_client_prefix(hello);
        break;
    case CLIENT_REST:
        take_client(hello);
        ddl_hello_verdict verdict = ddl_hello_check(&hello->peer, &hello->self, hello->reason);
        if (hello->self.level == DDL_SECURITY_TLS && !hello->is_bound) {
            verdict = DDL_HELLO_OTHER_LEVEL; /* whatever it says: it does not encrypt */
            explain(verdict, &hello->peer, &hello->self, hello->reason);
        }
        if (verdict == DDL_HELLO_WELCOME)
            hello->state = DDL_HELLO_JUDGING;
        else
            server_reply(hello, verdict);
        break;
    case CLIENT_FINISH:
        take_finish(hello);
        break;
    case SERVER_PREFIX:
        take_server_prefix(hello);
        break;
    case SERVER_NONCE:
        take_server_nonce(hello);
        break;
    case SERVER_REST:
        take_server(hello);
        break;
    case NOTHING:
        break;
    }
}

void ddl_hello_feed(ddl_hello *hello, const void *data, size_t count)
{
    DDL_ASSERT(count <= ddl_hello_wants(hello));
    memcpy(hello->in + hello->in_bytes, data, count);
    hello->in_bytes += count;
    if (count > 0 && hello->in_bytes == hello->in_wanted)
        step(hello);
}

ddl_status ddl_hello_fail(const ddl_hello *hello, const char *where, ddl_error *err)
{
    DDL_ASSERT(hello->state == DDL_HELLO_REFUSED);
    DDL_ASSERT(hello->verdict != DDL_HELLO_WELCOME);
    const char *reason = hello->reason[0] != '\0' ? hello->reason : verdicts[hello->verdict].meaning;
    (void)DDL_FAIL(err, verdicts[hello->verdict].status, "%s: %s", where, reason);
    /* A client that does not fit in with the others is the odd one out. */
    if (verdicts[hello->verdict].status == DDL_ECONFIG || ddl_hello_ends_run(hello->verdict))
        (void)ddl_error_blame(err, hello->is_server ? hello->peer.rank : hello->self.rank);
    return verdicts[hello->verdict].status;
}
