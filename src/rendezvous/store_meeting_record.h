/*
 * store_meeting_record.h - the record that names the run at a meeting place, for stores without a server of
 * ours.
 *
 * Rank 0 leaves it; a run that was killed leaves it behind. So it says whom to ask, and its answer to a fresh
 * token, the echo, shows that it lives. With a prover both are sealed, for a job that has the same secret.
 */
#ifndef DDL_RENDEZVOUS_STORE_MEETING_RECORD_H
#define DDL_RENDEZVOUS_STORE_MEETING_RECORD_H

#include "base/bytes.h"
#include "base/error.h"
#include "protocol/hello.h"
#include "rendezvous/seal.h"

enum {
    DDL_MEET_BYTES = 120 + DDL_SEAL_BYTES, /* at most */
    DDL_MEET_ROOM = 4096,                  /* for one of another version */
    DDL_TOKEN_BYTES = 16,
    DDL_TOKEN_TEXT = 2 * DDL_TOKEN_BYTES + 1,
    DDL_RUN_TEXT = 2 * DDL_RUN_ID_BYTES + 1
};

typedef struct ddl_meet {
    ddl_hello_party host;           /* rank 0, its run id included */
    uint8_t token[DDL_TOKEN_BYTES]; /* tells this start of rank 0 from every other process */
    bool is_proved;                 /* a process with this job's secret wrote it */
} ddl_meet;

/* Append the record, sealed by its host's prover, to *out; false when out of memory. */
DDL_MUST_USE bool ddl_meet_encode(const ddl_meet *meet, ddl_bytes *out);

/*
 * Also of a record that another job's rank 0 wrote: whether that one is alive is still to be found out.
 * DDL_EPROTO: of another version of ddl; *meet is then set as well, but with a world size of 0. DDL_ESTORE:
 * no meeting record. self and where, "PATH" or "KEY in SERVER", are for the text.
 */
DDL_MUST_USE ddl_status ddl_meet_decode(const ddl_hello_party *self, ddl_view view, const char *where,
                                        ddl_meet *meet, ddl_error *err);

/* Append rank 0's answer to whoever asks with this token to *out; false when out of memory. */
DDL_MUST_USE bool ddl_meet_echo(const ddl_seal *seal, const char *token, ddl_bytes *out);

/*
 * What an answer to self's token comes to, where meet names the run that was asked. DDL_EAUTH: somebody lives
 * there, of another job; place names the meeting place.
 */
DDL_MUST_USE ddl_status ddl_meet_hear_echo(const ddl_meet *meet, const ddl_hello_party *self,
                                           const ddl_seal *seal, const char *token, ddl_view echo,
                                           const char *place, ddl_error *err);

/* Age of a record, from how long ago it was written by the clock of its store: when that was by ours, or
 * DDL_DEADLINE_NEVER for an age below 0, which is unknown. */
int64_t ddl_meet_written_ns(int64_t age_ms);

/* Log that rank 0 puts its record in the place of one that was left there; where is "PATH" or "KEY in
 * SERVER". */
void ddl_meet_tell_replaced(const char *where, int64_t written_ns);

/* Of one that has not answered yet: "; WHERE (31 s old) names a run that does not answer". */
enum { DDL_MEET_SILENT_TEXT = 1200 };
const char *ddl_meet_tell_silent(const char *where, int64_t written_ns, char text[DDL_MEET_SILENT_TEXT]);

/* Of one that was passed over, as odd tells: "; rank 1 on ... has version 2 ..."; "" if there is none. */
const char *ddl_meet_tell_odd(const ddl_error *odd, char text[DDL_MEET_SILENT_TEXT]);

/* count bytes as 2 count hexadecimal digits and a zero. */
void ddl_meet_hex(const uint8_t *bytes, size_t count, char *text);

/* Whether text is a token, or a run id, in hex. */
DDL_MUST_USE bool ddl_meet_is_token(const char *text);

/* The verdict of rank 0's record on who has come: DDL_HELLO_WELCOME, or why not, with the error to tell. */
DDL_MUST_USE ddl_hello_verdict ddl_meet_check(const ddl_meet *meet, const ddl_hello_party *self,
                                              ddl_error *refusal);

#endif
