/*
 * neighbours_usher_agreeing.c - ranks of a host find out which memory all of them share.
 *
 * What ranks could map they tell the usher, and hear from it what both of each pair could.
 */
#include "rendezvous/neighbours_usher_gathering.h"

#include "base/bytes.h"
#include "rendezvous/neighbours_talk.h"

#include <string.h>

/* said: of each rank its report, the time that it has left and a byte for each rank. */
static ddl_status compare(ddl_gathering *all, uint8_t *said, size_t report_bytes, uint8_t shares[],
                          uint8_t *common, uint8_t *answer, ddl_error *err)
{
    const size_t count = (size_t)all->count;
    uint8_t *report = said + sizeof(uint32_t); /* the first */
    ddl_usher_word word = ddl_gathering_word(DDL_USHER_AGREED);
    DDL_TRY(ddl_gathering_collect(all, said, report_bytes, err));
    word.common = DDL_SHARES_LANES | DDL_SHARES_HEAPS;
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) {
            uint8_t *one = &report[i * report_bytes + j], *other = &report[j * report_bytes + i];
            *one = *other = *one & *other;
            word.common &= *one;
        }
    for (size_t i = 1; i < count; i++) {
        ddl_error unwanted;
        memcpy(answer, &word, sizeof word);
        memcpy(answer + sizeof word, report + i * report_bytes, count);
        /* Others go on once they have heard it: a rank that cannot be told has gone, which the mesh sees. */
        ddl_status told = ddl_neighbour_tell(all->roster, all->wires, all->ranks[i], answer,
                                             sizeof word + count, &unwanted);
        (void)told;
        shares[all->ranks[i]] = report[i];
    }
    *common = word.common;
    return DDL_OK;
}

static ddl_status report(ddl_gathering *all, uint8_t *said, size_t report_bytes, uint8_t shares[],
                         uint8_t *common, ddl_error *err)
{
    ddl_usher_word word;
    DDL_TRY(ddl_gathering_tell(all, said, report_bytes, err));
    DDL_TRY(ddl_gathering_hear_word(all, &word, err));
    if (word.kind != DDL_USHER_AGREED)
        return ddl_neighbour_foreign(all->ranks[0], err);
    DDL_TRY(ddl_gathering_hear(all, said, (size_t)all->count, err));
    for (int i = 0; i < all->count; i++)
        shares[all->ranks[i]] &= said[i];
    *common = word.common;
    return DDL_OK;
}

ddl_status ddl_neighbours_agree(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                                uint8_t shares[], uint8_t *common, ddl_error *err)
{
    ddl_gathering all;
    DDL_TRY(ddl_gathering_open(roster, wires, deadline, &all, err));
    const size_t count = (size_t)all.count, report_bytes = sizeof(uint32_t) + count;
    uint8_t *said = ddl_alloc_array(all.self == 0 ? count : 1, report_bytes);
    uint8_t *answer = ddl_alloc(sizeof(ddl_usher_word) + count);
    ddl_status status;
    if (said == NULL || answer == NULL) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to agree with %zu ranks", count);
    } else {
        uint32_t left = ddl_gathering_left_ms(&all);
        memcpy(said, &left, sizeof left);
        for (size_t i = 0; i < count; i++)
            said[sizeof left + i] = shares[all.ranks[i]];
        if (all.self != 0)
            status = report(&all, said, report_bytes, shares, common, err);
        else if ((status = compare(&all, said, report_bytes, shares, common, answer, err)) != DDL_OK)
            ddl_gathering_tell_of_failure(&all, err);
    }
    ddl_free(said);
    ddl_free(answer);
    ddl_gathering_close(&all);
    return status;
}
