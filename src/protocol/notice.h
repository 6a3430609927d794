/*
 * notice.h - why a communicator failed: one cause, its wire form, and which of two causes is the root.
 *
 * Pure. Every rank that detects a failure tells all others its cause; each gathers causes for a short
 * settling time and keeps the best by ddl_notice_precedes, so that all ranks report the same one.
 */
#ifndef DDL_PROTOCOL_NOTICE_H
#define DDL_PROTOCOL_NOTICE_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>

typedef struct ddl_notice {
    ddl_status code;
    int culprit; /* -1: nobody in particular */
    int witness; /* mismatch: the lower rank of the disagreeing pair; else the rank that saw it, or -1 */
    uint64_t sequence; /* of the operation concerned; 0: none, or that of a send or receive */
    char operation[32];
    char text[512];
    bool broke;    /* a lost peer: the connection was reset, rather than closed by a process that ends */
    bool is_final; /* whoever tells it has had it as its own end: in the frame */
} ddl_notice;

/*
 * Whether a is the root rather than b: a mismatch before bytes that cannot be before a lost peer before the
 * rest before a silent process before a time-out; within mismatches the earliest operation, of that the
 * lowest pair, within others the lowest culprit, nobody in particular last, and first what that says of
 * itself. Who hears what cannot be hangs up, and so looks lost to who said it. Within time-outs the earliest
 * operation: who waits there has not come to later ones, for which others wait.
 */
bool ddl_notice_precedes(const ddl_notice *a, const ddl_notice *b);

/* At most DDL_FRAME_NOTICE_LIMIT bytes; returns how many were written. */
size_t ddl_notice_encode(const ddl_notice *notice, uint8_t *bytes);

/* DDL_EPROTO: malformed. nranks bounds culprit and witness. */
DDL_MUST_USE ddl_status ddl_notice_decode(ddl_view bytes, int nranks, ddl_notice *notice, ddl_error *err);

#endif
