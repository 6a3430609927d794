/* notice.c - causes of failure: order, and wire form. */
#include "protocol/notice.h"

#include "base/assert.h"
#include "protocol/frame.h"

#include <string.h>

enum {
    FIXED_BYTES = 21,
    BROKE = 1, /* a bit of the byte behind the sequence */
    TEXT_MAX = sizeof((ddl_notice *)0)->text,
    OPERATION_MAX = sizeof((ddl_notice *)0)->operation
};

static int severity(ddl_status code)
{
    switch (code) {
    case DDL_EMISMATCH:
        return 0;
    case DDL_EPROTO:
        return 1;
    case DDL_EPEERLOST:
        return 2;
    case DDL_EUNRESPONSIVE:
        return 4;
    case DDL_ETIMEDOUT:
        return 5;
    default:
        return 3;
    }
}

/* Nobody in particular comes last. */
static unsigned rank_order(int rank)
{
    return (unsigned)rank;
}

bool ddl_notice_precedes(const ddl_notice *a, const ddl_notice *b)
{
    if (severity(a->code) != severity(b->code))
        return severity(a->code) < severity(b->code);
    if (a->code == DDL_EMISMATCH && a->sequence != b->sequence)
        return a->sequence - 1 < b->sequence - 1; /* of a message: last, as it has another's numbers */
    if (a->code == DDL_EMISMATCH && a->witness != b->witness)
        return rank_order(a->witness) < rank_order(b->witness);
    if (a->code == DDL_ETIMEDOUT && (a->culprit < 0) == (b->culprit < 0) && a->sequence != b->sequence)
        return a->sequence - 1 < b->sequence - 1; /* of no operation: last */
    if (a->culprit != b->culprit)
        return rank_order(a->culprit) < rank_order(b->culprit);
    return a->witness == a->culprit && b->witness != b->culprit;
}

size_t ddl_notice_encode(const ddl_notice *notice, uint8_t *bytes)
{
    size_t operation_bytes = strlen(notice->operation), text_bytes = strlen(notice->text);
    DDL_ASSERT(operation_bytes < OPERATION_MAX);
    DDL_ASSERT(text_bytes < TEXT_MAX);
    ddl_put_u32(bytes, (uint32_t)notice->code);
    ddl_put_u32(bytes + 4, (uint32_t)notice->culprit);
    ddl_put_u32(bytes + 8, (uint32_t)notice->witness);
    ddl_put_u64(bytes + 12, notice->sequence);
    bytes[20] = notice->broke ? BROKE : 0;
    bytes[FIXED_BYTES] = (uint8_t)operation_bytes;
    memcpy(bytes + FIXED_BYTES + 1, notice->operation, operation_bytes);
    memcpy(bytes + FIXED_BYTES + 1 + operation_bytes, notice->text, text_bytes);
    size_t total = FIXED_BYTES + 1 + operation_bytes + text_bytes;
    DDL_ASSERT(total <= DDL_FRAME_NOTICE_LIMIT);
    return total;
}

static void copy_printable(char *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] < 0x20 || from[i] == 0x7f ? '?' : (char)from[i];
    to[count] = '\0';
}

ddl_status ddl_notice_decode(ddl_view view, int nranks, ddl_notice *notice, ddl_error *err)
{
    const uint8_t *bytes = view.data;
    if (view.bytes < FIXED_BYTES + 1)
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice of only %zu bytes", view.bytes);
    size_t operation_bytes = bytes[FIXED_BYTES];
    if (operation_bytes >= OPERATION_MAX || operation_bytes > view.bytes - FIXED_BYTES - 1)
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice with an operation name of %zu bytes",
                        operation_bytes);
    size_t text_bytes = view.bytes - FIXED_BYTES - 1 - operation_bytes;
    if (text_bytes >= TEXT_MAX)
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice with a text of %zu bytes", text_bytes);
    int32_t code = (int32_t)ddl_get_u32(bytes);
    int32_t culprit = (int32_t)ddl_get_u32(bytes + 4), witness = (int32_t)ddl_get_u32(bytes + 8);
    if (code >= DDL_OK || code < DDL_EINTERNAL)
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice with the unknown code %d", (int)code);
    if (culprit < -1 || culprit >= nranks || witness < -1 || witness >= nranks)
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice about ranks %d and %d of %d", (int)culprit,
                        (int)witness, nranks);
    const uint64_t sequence = ddl_get_u64(bytes + 12);
    if (sequence >= DDL_FRAME_SEQUENCE_LIMIT) /* whoever adopts it tells it in a frame */
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice about operation %llu; the limit is %llu",
                        (unsigned long long)sequence, (unsigned long long)DDL_FRAME_SEQUENCE_LIMIT);
    if ((bytes[20] & ~BROKE) != 0)
        return DDL_FAIL(err, DDL_EPROTO, "an abort notice with the unknown bits 0x%02x", bytes[20]);
    notice->code = (ddl_status)code;
    notice->culprit = culprit;
    notice->witness = witness;
    notice->sequence = sequence;
    notice->broke = bytes[20] == BROKE;
    copy_printable(notice->operation, bytes + FIXED_BYTES + 1, operation_bytes);
    copy_printable(notice->text, bytes + FIXED_BYTES + 1 + operation_bytes, text_bytes);
    return DDL_OK;
}
