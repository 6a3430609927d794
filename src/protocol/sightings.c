/*
 * sightings.c - sightings to and from bytes.
 *
 * 0 ranks 4 | 4 has first 1 | 5 collective 1 | 6 dtype 1 | 7 op 1 | 8 algorithm 1 | 9 zero 3 | 12 root 4 |
 * 16 count 8 | 24 bits, rank 0 in the lowest of the first byte.
 */
#include "protocol/sightings.h"

#include "base/assert.h"

#include <string.h>

static size_t bits_bytes(int nranks)
{
    return ((size_t)nranks + 7) / 8;
}

size_t ddl_sightings_encode(const ddl_sightings *sightings, const uint64_t entered[], uint64_t sequence,
                            uint8_t *bytes)
{
    size_t total = DDL_SIGHTINGS_HEAD_BYTES + bits_bytes(sightings->nranks);
    DDL_ASSERT(sightings->nranks <= DDL_SIGHTINGS_RANKS);
    memset(bytes, 0, total);
    ddl_put_u32(bytes, (uint32_t)sightings->nranks);
    if (sightings->has_first) {
        bytes[4] = 1;
        bytes[5] = sightings->first.collective;
        bytes[6] = sightings->first.dtype;
        bytes[7] = sightings->first.op;
        bytes[8] = sightings->first.algorithm;
        ddl_put_u32(bytes + 12, (uint32_t)sightings->first.root);
        ddl_put_u64(bytes + 16, sightings->first.count);
    }
    for (int rank = 0; rank < sightings->nranks; rank++)
        if (entered[rank] >= sequence)
            bytes[DDL_SIGHTINGS_HEAD_BYTES + rank / 8] |= (uint8_t)(1 << rank % 8);
    return total;
}

ddl_status ddl_sightings_decode(ddl_view view, int nranks, ddl_sightings *sightings, ddl_error *err)
{
    const uint8_t *bytes = view.data;
    if (view.bytes < DDL_SIGHTINGS_HEAD_BYTES || ddl_get_u32(bytes) != (uint32_t)nranks ||
        view.bytes != DDL_SIGHTINGS_HEAD_BYTES + bits_bytes(nranks))
        return DDL_FAIL(err, DDL_EPROTO, "%zu bytes that do not say who of %d ranks is in an operation",
                        view.bytes, nranks);
    *sightings = (ddl_sightings){ .nranks = nranks,
                                  .has_first = bytes[4] == 1,
                                  .first.collective = bytes[5],
                                  .first.dtype = bytes[6],
                                  .first.op = bytes[7],
                                  .first.algorithm = bytes[8],
                                  .first.root = (int32_t)ddl_get_u32(bytes + 12),
                                  .first.count = ddl_get_u64(bytes + 16),
                                  .bits = bytes + DDL_SIGHTINGS_HEAD_BYTES };
    return DDL_OK;
}
