/*
 * fuzz_roster.c - decoders of a member's record and of the roster. What they accept encodes to the same
 * bytes. Input: 0 which of the two, and the own rank | 1 the record.
 */
#include "protocol/roster.h"

#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddl_bytes back = { 0 };
    if (bytes < 1)
        return 0;
    ddl_view view = { data + 1, bytes - 1 };
    if (data[0] & 1) {
        ddl_member member;
        if (ddl_member_decode(view, &member, NULL) != DDL_OK)
            return 0;
        DDL_ASSERT(ddl_member_encode(&member, &back));
    } else {
        ddl_roster *roster = NULL;
        if (ddl_roster_decode(view, data[0] >> 1, &roster, NULL) != DDL_OK)
            return 0;
        DDL_ASSERT(roster->node_count >= 1);
        DDL_ASSERT(roster->node_count <= roster->nranks);
        DDL_ASSERT(ddl_roster_encode(roster, &back));
        ddl_roster_destroy(roster);
    }
    DDL_ASSERT(back.bytes == view.bytes);
    DDL_ASSERT(memcmp(back.data, view.data, view.bytes) == 0);
    ddl_bytes_fini(&back);
    return 0;
}
