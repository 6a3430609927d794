/*
 * hello.c - both sides of the handshake.
 *
 * Layout, little endian. The first 12 bytes of either side's first message mean the same in every version,
 * so that two versions can tell each other so.
 *
 *     client   0 magic 8 | 8 version 2 | 10 channel 1 | 11 zero 1 | 12 generator 4 | 16 run id 16 |
 *              32 nonce 16 | 48 rank 4 | 52 expected rank 4 | 56 world size 4 | 60 pid 4 | 64 host 64
 *     server   0 magic 8 | 8 version 2 | 10 verdict 1 | 11 reason bytes 1 | 12 generator 4 | 16 run id 16 |
 *              32 nonce 16 | 48 rank 4 | 52 world size 4 | 56 zero 8 | 64 MAC 32 | 96 reason
 *     finish   0 MAC 32 | 32 verdict 1 | 33 zero 3
 */
#include "protocol/hello.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX_BYTES = 12 };

/* The line ends show when a transfer has changed text, as in PNG's signature. */
static const uint8_t magic[8] = { 'd', 'd', 'l', '\r', '\n', 0x1a, '\n', 0x00 };

static const struct {
    ddl_status status;
    const char *meaning;
} verdicts[] = {
#define X(verdict, code, text) [verdict] = { code, text },
    DDL_HELLO_VERDICTS(X)
#undef X
};

/* What in_wanted is being waited for. */
enum stage { CLIENT_PREFIX, CLIENT_REST, CLIENT_FINISH, SERVER_PREFIX, SERVER_REST, SERVER_REASON, NOTHING };

ddl_status ddl_hello_verdict_status(ddl_hello_verdict verdict)
{
    DDL_ASSERT(verdict < DDL_HELLO_VERDICT_COUNT);
    return verdicts[verdict].status;
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
    hello->is_server = is_server;
}

void ddl_hello_start_client(ddl_hello *hello, const ddl_hello_party *self)
{
    start(hello, self, false);
    uint8_t *out = hello->out;
    memcpy(out, magic, sizeof magic);
    ddl_put_u16(out + 8, DDL_HELLO_VERSION);
    out[10] = (uint8_t)self->channel;
    ddl_put_u32(out + 12, self->generator);
    memcpy(out + 16, self->run_id, DDL_RUN_ID_BYTES);
    memcpy(out + 32, self->nonce, DDL_NONCE_BYTES);
    ddl_put_u32(out + 48, (uint32_t)self->rank);
    ddl_put_u32(out + 52, (uint32_t)self->peer);
    ddl_put_u32(out + 56, (uint32_t)self->nranks);
    ddl_put_u32(out + 60, (uint32_t)self->pid);
    snprintf((char *)out + 64, DDL_HOST_TEXT, "%s", self->host);
    hello->out_bytes = DDL_HELLO_CLIENT_BYTES;
    want(hello, SERVER_PREFIX, PREFIX_BYTES);
}

void ddl_hello_start_server(ddl_hello *hello, const ddl_hello_party *self)
{
    start(hello, self, true);
    want(hello, CLIENT_PREFIX, PREFIX_BYTES);
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

static void server_reply(ddl_hello *hello, ddl_hello_verdict verdict)
{
    uint8_t out[DDL_HELLO_SERVER_BYTES + DDL_HELLO_REASON_TEXT] = { 0 };
    size_t reason_bytes = strlen(hello->reason);
    memcpy(out, magic, sizeof magic);
    ddl_put_u16(out + 8, DDL_HELLO_VERSION);
    out[10] = (uint8_t)verdict;
    out[11] = (uint8_t)reason_bytes;
    ddl_put_u32(out + 12, hello->self.generator);
    /* A stranger does not learn the run's id from a refusal. */
    if (verdict == DDL_HELLO_WELCOME)
        memcpy(out + 16, hello->self.run_id, DDL_RUN_ID_BYTES);
    memcpy(out + 32, hello->self.nonce, DDL_NONCE_BYTES);
    ddl_put_u32(out + 48, (uint32_t)hello->self.rank);
    ddl_put_u32(out + 52, (uint32_t)hello->self.nranks);
    memcpy(out + DDL_HELLO_SERVER_BYTES, hello->reason, reason_bytes);
    send(hello, out, DDL_HELLO_SERVER_BYTES + reason_bytes);
    if (verdict == DDL_HELLO_WELCOME) {
        hello->state = DDL_HELLO_TALKING;
        hello->in_bytes = 0;
        want(hello, CLIENT_FINISH, DDL_HELLO_FINISH_BYTES);
    } else {
        end(hello, verdict);
    }
}

void ddl_hello_judge(ddl_hello *hello, ddl_hello_verdict verdict, const char *reason, ...)
{
    DDL_ASSERT(hello->state == DDL_HELLO_JUDGING);
    va_list args;
    va_start(args, reason);
    vsnprintf(hello->reason, sizeof hello->reason, reason, args);
    va_end(args);
    server_reply(hello, verdict);
}

static void take_client(ddl_hello *hello)
{
    const uint8_t *in = hello->in;
    ddl_hello_party *peer = &hello->peer;
    peer->channel = (ddl_channel)in[10];
    peer->generator = ddl_get_u32(in + 12);
    memcpy(peer->run_id, in + 16, DDL_RUN_ID_BYTES);
    memcpy(peer->nonce, in + 32, DDL_NONCE_BYTES);
    peer->rank = (int)(int32_t)ddl_get_u32(in + 48);
    peer->peer = (int)(int32_t)ddl_get_u32(in + 52);
    peer->nranks = (int)(int32_t)ddl_get_u32(in + 56);
    peer->pid = (int32_t)ddl_get_u32(in + 60);
    memcpy(peer->host, in + 64, DDL_HOST_TEXT);
    peer->host[DDL_HOST_TEXT - 1] = '\0';
    ddl_hello_clean(peer->host);
}

static bool same_run(const ddl_hello_party *self, const ddl_hello_party *peer)
{
    static const uint8_t unknown[DDL_RUN_ID_BYTES];
    if (memcmp(self->run_id, peer->run_id, DDL_RUN_ID_BYTES) == 0)
        return true;
    return self->channel == DDL_CHANNEL_STORE && memcmp(peer->run_id, unknown, DDL_RUN_ID_BYTES) == 0;
}

ddl_hello_verdict ddl_hello_check(const ddl_hello_party *peer, const ddl_hello_party *self,
                                  char reason[DDL_HELLO_REASON_TEXT])
{
    const size_t room = DDL_HELLO_REASON_TEXT;
    reason[0] = '\0';
    if (peer->channel != self->channel) {
        snprintf(reason, room, "this port serves channel %d, not %d; is it the right one?",
                 (int)self->channel, (int)peer->channel);
        return DDL_HELLO_OTHER_CHANNEL;
    }
    if (!same_run(self, peer) || memcmp(self->nonce, peer->nonce, DDL_NONCE_BYTES) == 0) {
        snprintf(reason, room,
                 "rank %d on %s[%d] belongs to another run than rank %d here; do two jobs share a "
                 "port or store?",
                 peer->rank, peer->host, peer->pid, self->rank);
        return DDL_HELLO_OTHER_RUN;
    }
    if (peer->nranks != self->nranks) {
        snprintf(reason, room,
                 "rank %d on %s[%d] has world size %d, but rank %d on %s[%d] has world size %d; start "
                 "every rank with the same WORLD_SIZE",
                 peer->rank, peer->host, peer->pid, peer->nranks, self->rank, self->host, self->pid,
                 self->nranks);
        return DDL_HELLO_OTHER_SIZE;
    }
    if (peer->generator != self->generator) {
        snprintf(reason, room,
                 "rank %d on %s[%d] has version %u of ddl's algorithms, rank %d has version %u; install "
                 "the same ddl everywhere",
                 peer->rank, peer->host, peer->pid, (unsigned)peer->generator, self->rank,
                 (unsigned)self->generator);
        return DDL_HELLO_OTHER_GENERATOR;
    }
    if (peer->rank < 0 || peer->rank >= self->nranks) {
        snprintf(reason, room, "rank %d on %s[%d] is not in 0..%d", peer->rank, peer->host, peer->pid,
                 self->nranks - 1);
        return DDL_HELLO_BAD_RANK;
    }
    if (peer->peer != self->rank) {
        snprintf(reason, room,
                 "rank %d answers here, rank %d was expected; do two jobs share a port or store?", self->rank,
                 peer->peer);
        return DDL_HELLO_OTHER_RANK;
    }
    return DDL_HELLO_WELCOME;
}

static void client_finish(ddl_hello *hello, ddl_hello_verdict verdict)
{
    uint8_t out[DDL_HELLO_FINISH_BYTES] = { 0 };
    out[DDL_MAC_BYTES] = (uint8_t)verdict;
    send(hello, out, sizeof out);
    end(hello, verdict);
}

static void take_server(ddl_hello *hello)
{
    const uint8_t *in = hello->in;
    ddl_hello_party *peer = &hello->peer;
    const ddl_hello_party *self = &hello->self;
    peer->channel = self->channel;
    peer->generator = ddl_get_u32(in + 12);
    memcpy(peer->run_id, in + 16, DDL_RUN_ID_BYTES);
    memcpy(peer->nonce, in + 32, DDL_NONCE_BYTES);
    peer->rank = (int)(int32_t)ddl_get_u32(in + 48);
    peer->nranks = (int)(int32_t)ddl_get_u32(in + 52);
    unsigned verdict = in[10];
    if (verdict != DDL_HELLO_WELCOME) {
        memcpy(hello->reason, in + DDL_HELLO_SERVER_BYTES, in[11]);
        hello->reason[in[11]] = '\0';
        ddl_hello_clean(hello->reason);
        end(hello, verdict < DDL_HELLO_VERDICT_COUNT ? (ddl_hello_verdict)verdict : DDL_HELLO_NOT_DDL);
        return;
    }
    if (!same_run(peer, self) || memcmp(self->nonce, peer->nonce, DDL_NONCE_BYTES) == 0) {
        snprintf(hello->reason, sizeof hello->reason,
                 "rank %d there belongs to another run; do two jobs share a port "
                 "or store?",
                 peer->rank);
        client_finish(hello, DDL_HELLO_OTHER_RUN);
    } else if (peer->nranks != self->nranks) {
        snprintf(hello->reason, sizeof hello->reason,
                 "rank %d has world size %d, but rank %d has world size %d; "
                 "start every rank with the same WORLD_SIZE",
                 self->rank, self->nranks, peer->rank, peer->nranks);
        client_finish(hello, DDL_HELLO_OTHER_SIZE);
    } else if (peer->rank != self->peer) {
        snprintf(hello->reason, sizeof hello->reason,
                 "rank %d answers there, rank %d was expected; do two jobs share "
                 "a port or store?",
                 peer->rank, self->peer);
        client_finish(hello, DDL_HELLO_OTHER_RANK);
    } else {
        client_finish(hello, DDL_HELLO_WELCOME);
    }
}

static bool is_magic(const ddl_hello *hello)
{
    return memcmp(hello->in, magic, sizeof magic) == 0;
}

static void take_client_prefix(ddl_hello *hello)
{
    unsigned version = ddl_get_u16(hello->in + 8);
    if (!is_magic(hello)) {
        snprintf(hello->reason, sizeof hello->reason, "the other end does not speak ddl");
        end(hello, DDL_HELLO_NOT_DDL); /* and not a word to a stranger */
    } else if (version != DDL_HELLO_VERSION) {
        snprintf(hello->reason, sizeof hello->reason,
                 "version %u of the protocol met version %d; install the same "
                 "ddl everywhere",
                 version, DDL_HELLO_VERSION);
        server_reply(hello, DDL_HELLO_OTHER_VERSION);
    } else {
        want(hello, CLIENT_REST, DDL_HELLO_CLIENT_BYTES);
    }
}

static void take_server_prefix(ddl_hello *hello)
{
    unsigned version = ddl_get_u16(hello->in + 8);
    if (!is_magic(hello)) {
        snprintf(hello->reason, sizeof hello->reason,
                 "what listens there does not speak ddl; is another program on "
                 "this port?");
        end(hello, DDL_HELLO_NOT_DDL);
    } else if (version != DDL_HELLO_VERSION) {
        snprintf(hello->reason, sizeof hello->reason,
                 "version %d of the protocol met version %u; install the same "
                 "ddl everywhere",
                 DDL_HELLO_VERSION, version);
        end(hello, DDL_HELLO_OTHER_VERSION);
    } else {
        want(hello, SERVER_REST, DDL_HELLO_SERVER_BYTES);
    }
}

static void take_finish(ddl_hello *hello)
{
    unsigned verdict = hello->in[DDL_MAC_BYTES];
    if (verdict != DDL_HELLO_WELCOME)
        snprintf(hello->reason, sizeof hello->reason, "rank %d turned away: %s", hello->peer.rank,
                 verdict < DDL_HELLO_VERDICT_COUNT ? verdicts[verdict].meaning
                                                   : "no reason that is known here");
    end(hello, verdict < DDL_HELLO_VERDICT_COUNT ? (ddl_hello_verdict)verdict : DDL_HELLO_NOT_DDL);
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
    case SERVER_REST:
        if (hello->in[11] > 0)
            want(hello, SERVER_REASON, DDL_HELLO_SERVER_BYTES + hello->in[11]);
        else
            take_server(hello);
        break;
    case SERVER_REASON:
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
    if (verdicts[hello->verdict].status == DDL_ECONFIG)
        (void)ddl_error_blame(err, hello->is_server ? hello->peer.rank : hello->self.rank);
    return verdicts[hello->verdict].status;
}
