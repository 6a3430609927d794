/*
 * store_meeting_record.c - the record, little endian: 0 version 4 | 4 level 4 | 8 the rest, at level auth
 * sealed: 0 generator 4 | 4 world size 4 | 8 pid 4 | 12 run id 16 | 28 token 16 | 44 host 64 | 108 library 4.
 * Another version may have something else behind the host, but leaves the rest where it is: so ranks of two
 * versions can tell who is there.
 */
#include "rendezvous/store_meeting_record.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 8, COMMON_BYTES = 108, BODY_BYTES = 112, ECHO_NAME = DDL_TOKEN_TEXT + 8, AGE_TEXT = 40 };

_Static_assert(HEAD_BYTES + BODY_BYTES + (int)DDL_SEAL_BYTES == (int)DDL_MEET_BYTES, "a sealed record");

bool ddl_meet_encode(const ddl_meet *meet, ddl_bytes *out)
{
    const ddl_hello_party *host = &meet->host;
    const ddl_seal seal = { host->prover, host->run_id };
    uint8_t head[HEAD_BYTES], bytes[BODY_BYTES] = { 0 };
    ddl_put_u32(head, DDL_HELLO_VERSION);
    ddl_put_u32(head + 4, (uint32_t)ddl_prover_level(host->prover));
    ddl_put_u32(bytes, host->generator);
    ddl_put_u32(bytes + 4, (uint32_t)host->nranks);
    ddl_put_u32(bytes + 8, (uint32_t)host->pid);
    memcpy(bytes + 12, host->run_id, DDL_RUN_ID_BYTES);
    memcpy(bytes + 28, meet->token, DDL_TOKEN_BYTES);
    snprintf((char *)bytes + 44, DDL_HOST_TEXT, "%s", host->host);
    ddl_put_u32(bytes + COMMON_BYTES, host->library);
    return ddl_bytes_append(out, head, sizeof head) &&
           ddl_seal_put(&seal, 0, "meet", (ddl_view){ bytes, sizeof bytes }, out);
}

/* Nothing that it says is proved: the key of a proof follows from the version, too. */
static ddl_status fail_version(const ddl_hello_party *self, const ddl_meet *meet, unsigned version,
                               const char *where, ddl_error *err)
{
    char host[DDL_HOST_TEXT + 48] = "what was there", library[DDL_HELLO_LIBRARY_TEXT];
    if (meet->host.host[0] != '\0')
        snprintf(host, sizeof host, "what says it is rank 0 on %s[%d]", meet->host.host, (int)meet->host.pid);
    return DDL_FAIL(
        err, DDL_EPROTO,
        "rank %d on %s[%d] has version %d of the protocol (%s), but %s has version %u; install the "
        "same ddl everywhere (%s)",
        self->rank, self->host, (int)self->pid, DDL_HELLO_VERSION,
        ddl_hello_library_text(self->library, library), host, version, where);
}

ddl_status ddl_meet_decode(const ddl_hello_party *self, ddl_view view, const char *where, ddl_meet *meet,
                           ddl_error *err)
{
    const uint8_t *head = view.data;
    *meet = (ddl_meet){ .host = { .channel = DDL_HELLO_FOR_STORE, .rank = 0 } };
    const uint32_t version = view.bytes >= 4 ? ddl_get_u32(head) : DDL_HELLO_VERSION;
    const bool is_ours = version == DDL_HELLO_VERSION;
    ddl_security level = view.bytes >= HEAD_BYTES ? (ddl_security)ddl_get_u32(head + 4) : 0;
    const size_t body_at = HEAD_BYTES + (level == DDL_SECURITY_OFF ? 0 : DDL_SEAL_BYTES);
    if (is_ours ? view.bytes == body_at + BODY_BYTES : view.bytes >= body_at + COMMON_BYTES) {
        const uint8_t *bytes = head + body_at;
        uint32_t nranks = ddl_get_u32(bytes + 4);
        meet->host.level = level;
        meet->host.generator = ddl_get_u32(bytes);
        meet->host.library = is_ours ? ddl_get_u32(bytes + COMMON_BYTES) : 0;
        meet->host.nranks = is_ours && nranks <= INT32_MAX ? (int)nranks : 0;
        meet->host.pid = (int32_t)ddl_get_u32(bytes + 8);
        memcpy(meet->host.run_id, bytes + 12, DDL_RUN_ID_BYTES);
        memcpy(meet->token, bytes + 28, DDL_TOKEN_BYTES);
        memcpy(meet->host.host, bytes + 44, DDL_HOST_TEXT);
        meet->host.host[DDL_HOST_TEXT - 1] = '\0';
        ddl_hello_clean(meet->host.host);
    }
    if (!is_ours)
        return fail_version(self, meet, version, where, err);
    if (meet->host.nranks == 0)
        return DDL_FAIL(err, DDL_ESTORE, "%s is a malformed meeting record, of %zu bytes", where, view.bytes);
    const ddl_seal seal = { self->prover, meet->host.run_id };
    ddl_view inner;
    meet->is_proved =
        level == ddl_prover_level(self->prover) &&
        ddl_seal_get(&seal, "meet", (ddl_view){ head + HEAD_BYTES, view.bytes - HEAD_BYTES }, &inner);
    return DDL_OK;
}

static const char *echo_name(const char *token, char name[ECHO_NAME])
{
    snprintf(name, ECHO_NAME, "echo/%s", token);
    return name;
}

bool ddl_meet_echo(const ddl_seal *seal, const char *token, ddl_bytes *out)
{
    char name[ECHO_NAME];
    return ddl_seal_put(seal, 0, echo_name(token, name), (ddl_view){ NULL, 0 }, out);
}

static ddl_status report_other_job(const ddl_meet *meet, const ddl_hello_party *self, const char *place,
                                   ddl_error *err)
{
    if (meet->host.level != self->level)
        return DDL_FAIL(
            err, DDL_EAUTH,
            "rank %d on %s[%d] has security level %s, but rank 0 on %s[%d] at %s has %s; start every "
            "rank with the same DDL_SECURITY (ddl-launch --security)",
            self->rank, self->host, (int)self->pid, ddl_security_name(self->level), meet->host.host,
            (int)meet->host.pid, place, ddl_security_name(meet->host.level));
    return DDL_FAIL(
        err, DDL_EAUTH,
        "rank 0 on %s[%d] at %s does not know the secret that rank %d has, %s; " DDL_HELLO_SAME_SECRET,
        meet->host.host, (int)meet->host.pid, place, self->rank, self->prover->source);
}

/* Somebody who answers lives: from here on another secret is no leftover. */
ddl_status ddl_meet_hear_echo(const ddl_meet *meet, const ddl_hello_party *self, const ddl_seal *seal,
                              const char *token, ddl_view echo, const char *place, ddl_error *err)
{
    char name[ECHO_NAME];
    ddl_view nothing;
    return meet->is_proved && ddl_seal_get(seal, echo_name(token, name), echo, &nothing)
               ? DDL_OK
               : report_other_job(meet, self, place, err);
}

int64_t ddl_meet_written_ns(int64_t age_ms)
{
    return age_ms >= 0 && age_ms < INT64_MAX / DDL_NS_PER_MS / 2 ? ddl_now_ns() - age_ms * DDL_NS_PER_MS
                                                                 : DDL_DEADLINE_NEVER;
}

/* " (31 s old)" */
static const char *age_text(int64_t written_ns, char text[AGE_TEXT])
{
    text[0] = '\0';
    if (written_ns != DDL_DEADLINE_NEVER)
        snprintf(text, AGE_TEXT, " (%lld s old)", (long long)((ddl_now_ns() - written_ns) / DDL_NS_PER_S));
    return text;
}

void ddl_meet_tell_replaced(const char *where, int64_t written_ns)
{
    char age[AGE_TEXT];
    ddl_log(DDL_LOG_INFO,
            "rank 0 replaces %s%s, left there by an earlier run; what else that left is removed or expires",
            where, age_text(written_ns, age));
}

const char *ddl_meet_tell_silent(const char *where, int64_t written_ns, char text[DDL_MEET_SILENT_TEXT])
{
    char age[AGE_TEXT];
    snprintf(text, DDL_MEET_SILENT_TEXT, "; %s%s names a run that does not answer", where,
             age_text(written_ns, age));
    return text;
}

const char *ddl_meet_tell_odd(const ddl_error *odd, char text[DDL_MEET_SILENT_TEXT])
{
    text[0] = '\0';
    if (odd->code != DDL_OK)
        snprintf(text, DDL_MEET_SILENT_TEXT, "; %s", odd->text);
    return text;
}

void ddl_meet_hex(const uint8_t *bytes, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool ddl_meet_is_token(const char *text)
{
    return strlen(text) == DDL_TOKEN_TEXT - 1 && strspn(text, "0123456789abcdef") == DDL_TOKEN_TEXT - 1;
}

ddl_hello_verdict ddl_meet_check(const ddl_meet *meet, const ddl_hello_party *self, ddl_error *refusal)
{
    char reason[DDL_HELLO_REASON_TEXT];
    ddl_hello_party host = meet->host, who = *self;
    host.channel = who.channel = DDL_HELLO_FOR_STORE;
    ddl_hello_verdict verdict = ddl_hello_check(&who, &host, reason);
    if (verdict != DDL_HELLO_WELCOME) {
        (void)ddl_error_set(refusal, ddl_hello_verdict_status(verdict), "%s", reason);
        refusal->culprit = self->rank;
    }
    return verdict;
}
