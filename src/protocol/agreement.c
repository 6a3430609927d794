/* agreement.c - sets of ranks that are gone, flooded until all say the same. See agreement.h. */
#include "protocol/agreement.h"

#include "base/assert.h"
#include "protocol/frame.h"

#include <string.h>

/*
 * A report. Offset 0: u8 decided, three zeros; 4: u32 offer (of the sender; once decided, of the lowest rank
 * left); 8: a bit per rank that is gone, the lowest first.
 */
enum { FIXED_BYTES = 8 };

struct ddl_agreement {
    int rank, nranks;
    bool entered, due, decided, excluded;
    uint32_t *offers; /* of each rank that has reported */
    uint32_t decided_offer;
    size_t set_bytes;
    uint8_t *gone; /* a bit per rank */
    uint8_t *said; /* of each rank, such a set: what it reported last */
    bool *heard;   /* of each rank: it has reported */
};

static bool has(const uint8_t *set, int rank)
{
    return (set[rank / 8] >> (rank % 8) & 1) != 0;
}

static void add(uint8_t *set, int rank)
{
    set[rank / 8] = (uint8_t)(set[rank / 8] | 1 << (rank % 8));
}

static uint8_t *said_by(const ddl_agreement *a, int rank)
{
    return a->said + (size_t)rank * a->set_bytes;
}

ddl_status ddl_agreement_create(int rank, int nranks, uint32_t offer, ddl_agreement **out, ddl_error *err)
{
    if (FIXED_BYTES + (nranks + 7) / 8 > DDL_FRAME_NOTICE_LIMIT)
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "%d ranks are too many to agree on who is left", nranks);
    ddl_agreement *a = ddl_alloc(sizeof *a);
    if (a == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to agree on who is left");
    a->rank = rank;
    a->nranks = nranks;
    a->set_bytes = ((size_t)nranks + 7) / 8;
    a->offers = ddl_alloc_array((size_t)nranks, sizeof *a->offers);
    a->gone = ddl_alloc(a->set_bytes);
    a->said = ddl_alloc_array((size_t)nranks, a->set_bytes);
    a->heard = ddl_alloc_array((size_t)nranks, sizeof *a->heard);
    if (a->offers == NULL || a->gone == NULL || a->said == NULL || a->heard == NULL) {
        ddl_agreement_destroy(a);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to agree on who is left");
    }
    a->offers[rank] = offer;
    *out = a;
    return DDL_OK;
}

void ddl_agreement_destroy(ddl_agreement *a)
{
    if (a == NULL)
        return;
    ddl_free(a->offers);
    ddl_free(a->gone);
    ddl_free(a->said);
    ddl_free(a->heard);
    ddl_free(a);
}

static int lowest_left(const ddl_agreement *a)
{
    int rank = 0;
    while (has(a->gone, rank))
        rank++;
    return rank;
}

static bool agrees(const ddl_agreement *a, int rank)
{
    return rank == a->rank || (a->heard[rank] && memcmp(said_by(a, rank), a->gone, a->set_bytes) == 0);
}

bool ddl_agreement_awaits(const ddl_agreement *a, int rank)
{
    return !has(a->gone, rank) && !agrees(a, rank);
}

int ddl_agreement_awaited(const ddl_agreement *a)
{
    for (int rank = 0; rank < a->nranks; rank++)
        if (ddl_agreement_awaits(a, rank))
            return rank;
    return -1;
}

static void try_to_decide(ddl_agreement *a)
{
    if (!a->entered || a->decided || a->excluded || a->due || ddl_agreement_awaited(a) >= 0)
        return;
    a->decided = true;
    a->decided_offer = a->offers[lowest_left(a)];
    a->due = true;
}

void ddl_agreement_enter(ddl_agreement *a)
{
    if (a->entered)
        return;
    a->entered = true;
    a->due = true;
}

void ddl_agreement_lose(ddl_agreement *a, int gone)
{
    DDL_ASSERT(gone != a->rank);
    if (a->decided || a->excluded || has(a->gone, gone))
        return;
    add(a->gone, gone);
    a->due = a->entered;
}

static void adopt(ddl_agreement *a, const uint8_t *set, uint32_t offer)
{
    memcpy(a->gone, set, a->set_bytes);
    a->decided = true;
    a->decided_offer = offer;
    a->due = true;
}

static bool is_sound(const ddl_agreement *a, int peer, ddl_view report)
{
    const uint8_t *fixed = report.data;
    if (report.bytes != FIXED_BYTES + a->set_bytes || fixed[0] > 1 || fixed[1] != 0 || fixed[2] != 0 ||
        fixed[3] != 0)
        return false;
    const uint8_t *set = (const uint8_t *)report.data + FIXED_BYTES;
    for (int bit = a->nranks; bit < (int)a->set_bytes * 8; bit++)
        if (has(set, bit))
            return false;
    return !has(set, peer);
}

ddl_status ddl_agreement_hear(ddl_agreement *a, int peer, ddl_view report, ddl_error *err)
{
    DDL_ASSERT(peer != a->rank);
    if (!is_sound(a, peer, report))
        return DDL_FAIL(err, DDL_EPROTO, "a malformed report of %zu bytes on who is left", report.bytes);
    if (a->decided || a->excluded || has(a->gone, peer))
        return DDL_OK;
    const uint8_t *set = (const uint8_t *)report.data + FIXED_BYTES;
    if (has(set, a->rank)) {
        a->excluded = true;
        return DDL_OK;
    }
    const uint8_t *fixed = report.data;
    uint32_t offer = ddl_get_u32(fixed + 4);
    if (fixed[0] == 1) {
        adopt(a, set, offer);
        return DDL_OK;
    }
    a->offers[peer] = offer;
    a->heard[peer] = true;
    memcpy(said_by(a, peer), set, a->set_bytes);
    for (size_t i = 0; i < a->set_bytes; i++) {
        if ((set[i] & ~a->gone[i]) != 0)
            a->due = a->entered;
        a->gone[i] |= set[i];
    }
    try_to_decide(a);
    return DDL_OK;
}

bool ddl_agreement_report(ddl_agreement *a, ddl_bytes *report)
{
    /* What is not said is not decided; saying it may complete the agreement, and that is said too. */
    if (!a->due || !a->entered || a->excluded)
        return false;
    uint8_t fixed[FIXED_BYTES] = { a->decided };
    ddl_put_u32(fixed + 4, a->decided ? a->decided_offer : a->offers[a->rank]);
    size_t before = report->bytes;
    if (!ddl_bytes_append(report, fixed, sizeof fixed) || !ddl_bytes_append(report, a->gone, a->set_bytes)) {
        report->bytes = before;
        return false;
    }
    a->due = false;
    try_to_decide(a);
    return true;
}

bool ddl_agreement_is_for(const ddl_agreement *a, ddl_view report, int rank)
{
    const bool is_decision = ((const uint8_t *)report.data)[0] == 1;
    return rank != a->rank &&
           (!has(a->gone, rank) || (is_decision && ddl_agreement_result(a) == DDL_AGREEMENT_DECIDED));
}

bool ddl_agreement_is_gone(const ddl_agreement *a, int rank)
{
    return has(a->gone, rank);
}

ddl_agreement_state ddl_agreement_result(const ddl_agreement *a)
{
    if (a->excluded)
        return DDL_AGREEMENT_EXCLUDED;
    if (!a->decided || !a->entered || a->due)
        return DDL_AGREEMENT_OPEN;
    int left = 0;
    for (int rank = 0; rank < a->nranks; rank++)
        left += !has(a->gone, rank);
    if (2 * left > a->nranks || (2 * left == a->nranks && !has(a->gone, 0)))
        return DDL_AGREEMENT_DECIDED;
    return DDL_AGREEMENT_MINORITY;
}

uint32_t ddl_agreement_offer(const ddl_agreement *a)
{
    DDL_ASSERT(a->decided);
    return a->decided_offer;
}
