/* agreement.c - sets of ranks that are gone, flooded until all say the same, then locked. See agreement.h. */
#include "protocol/agreement.h"

#include "base/assert.h"
#include "protocol/frame.h"

#include <string.h>

/*
 * A report. Offset 0: u8 stage of its sender, three zeros; 4: u32 offer (of the sender; once it has locked a
 * set, of the lowest rank left); 8: a bit per rank that is gone, the lowest first.
 */
enum { FIXED_BYTES = 8 };

typedef enum stage {
    SILENT, /* of who has reported nothing; not sent */
    GATHERING,
    LOCKED,
    DECIDED,
    GIVEN_UP
} stage;

struct ddl_agreement {
    int rank, nranks;
    stage stage;
    bool entered, due, excluded;
    uint32_t *offers;       /* of each rank that has reported */
    uint32_t decided_offer; /* once a set is locked */
    size_t set_bytes;
    uint8_t *gone;   /* a bit per rank; once it is locked it does not change */
    uint8_t *lost;   /* likewise: whom this rank hears no more */
    uint8_t *said;   /* of each rank, such a set: what it reported last */
    uint8_t *stages; /* of each rank: what it was in then */
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
    a->stage = GATHERING;
    a->set_bytes = ((size_t)nranks + 7) / 8;
    a->offers = ddl_alloc_array((size_t)nranks, sizeof *a->offers);
    a->gone = ddl_alloc(a->set_bytes);
    a->lost = ddl_alloc(a->set_bytes);
    a->said = ddl_alloc_array((size_t)nranks, a->set_bytes);
    a->stages = ddl_alloc((size_t)nranks);
    if (a->offers == NULL || a->gone == NULL || a->lost == NULL || a->said == NULL || a->stages == NULL) {
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
    ddl_free(a->lost);
    ddl_free(a->said);
    ddl_free(a->stages);
    ddl_free(a);
}

static int lowest_left(const ddl_agreement *a)
{
    int rank = 0;
    while (has(a->gone, rank))
        rank++;
    return rank;
}

static bool says_the_same(const ddl_agreement *a, int rank, stage at)
{
    return a->stages[rank] == at && memcmp(said_by(a, rank), a->gone, a->set_bytes) == 0;
}

/* Who counts: while ranks gather all that are left, then those of them that have locked the same set. */
static bool counts(const ddl_agreement *a, int rank)
{
    if (has(a->gone, rank))
        return false;
    return a->stage == GATHERING || rank == a->rank || says_the_same(a, rank, LOCKED);
}

/* Of two sets of ranks that have none in common at most one is enough. */
static bool are_enough(const ddl_agreement *a)
{
    int count = 0;
    for (int rank = 0; rank < a->nranks; rank++)
        count += counts(a, rank);
    return 2 * count > a->nranks || (2 * count == a->nranks && counts(a, 0));
}

bool ddl_agreement_awaits(const ddl_agreement *a, int rank)
{
    if (rank == a->rank || has(a->gone, rank) || has(a->lost, rank))
        return false;
    if (a->stage == LOCKED) /* who has locked another set does not lock this one */
        return a->stages[rank] != LOCKED;
    return a->stage == GATHERING && !says_the_same(a, rank, GATHERING);
}

int ddl_agreement_awaited(const ddl_agreement *a)
{
    for (int rank = 0; rank < a->nranks; rank++)
        if (ddl_agreement_awaits(a, rank))
            return rank;
    return -1;
}

static void enter_stage(ddl_agreement *a, stage next)
{
    a->stage = next;
    a->due = true;
}

/* From here on this rank takes part in no other decision than for this set. */
static void lock(ddl_agreement *a, uint32_t offer)
{
    a->decided_offer = offer;
    enter_stage(a, LOCKED);
}

/* Go on as far as what is known allows. What is not said is not decided. */
static void go_on(ddl_agreement *a)
{
    if (!a->entered || a->due || (a->stage != GATHERING && a->stage != LOCKED) ||
        ddl_agreement_awaited(a) >= 0)
        return;
    if (!are_enough(a))
        enter_stage(a, GIVEN_UP);
    else if (a->stage == LOCKED)
        enter_stage(a, DECIDED);
    else
        lock(a, a->offers[lowest_left(a)]);
}

/* Who has locked a set knows that all who are left of it have said so, this rank too. */
static void join_lock(ddl_agreement *a, int peer)
{
    if (!a->entered || a->stage != GATHERING || has(a->gone, peer))
        return;
    memcpy(a->gone, said_by(a, peer), a->set_bytes);
    lock(a, a->offers[peer]);
}

void ddl_agreement_enter(ddl_agreement *a)
{
    if (a->entered)
        return;
    a->entered = true;
    a->due = true;
    for (int rank = 0; rank < a->nranks; rank++)
        if (a->stages[rank] == LOCKED)
            join_lock(a, rank);
}

void ddl_agreement_leave(ddl_agreement *a)
{
    if (a->stage == GATHERING)
        a->entered = false;
}

void ddl_agreement_lose(ddl_agreement *a, int gone)
{
    DDL_ASSERT(gone != a->rank);
    add(a->lost, gone);
    if (a->stage == GATHERING && !has(a->gone, gone)) {
        add(a->gone, gone);
        a->due = a->entered;
    }
    go_on(a);
}

static bool is_sound(const ddl_agreement *a, int peer, ddl_view report)
{
    const uint8_t *fixed = report.data;
    if (report.bytes != FIXED_BYTES + a->set_bytes || fixed[0] < GATHERING || fixed[0] > GIVEN_UP ||
        fixed[1] != 0 || fixed[2] != 0 || fixed[3] != 0)
        return false;
    const uint8_t *set = fixed + FIXED_BYTES;
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
    const uint8_t *fixed = report.data;
    const uint8_t *set = fixed + FIXED_BYTES;
    const stage said = (stage)fixed[0];
    if (a->stage == DECIDED || a->stage == GIVEN_UP)
        return DDL_OK;
    const bool excludes = has(set, a->rank); /* it hears this rank no more, and is not to be waited for */
    a->excluded = a->excluded || excludes;
    if (said == GIVEN_UP || (excludes && said != DECIDED)) {
        ddl_agreement_lose(a, peer);
        return DDL_OK;
    }
    if (has(a->gone, peer) && said != DECIDED)
        return DDL_OK;
    a->offers[peer] = ddl_get_u32(fixed + 4);
    a->stages[peer] = (uint8_t)said;
    memcpy(said_by(a, peer), set, a->set_bytes);
    if (excludes) {
        enter_stage(a, GIVEN_UP);
    } else if (said == DECIDED) {
        memcpy(a->gone, set, a->set_bytes);
        a->decided_offer = a->offers[peer];
        enter_stage(a, DECIDED);
    } else if (said == LOCKED) {
        join_lock(a, peer);
    }
    for (size_t i = 0; said == GATHERING && a->stage == GATHERING && i < a->set_bytes; i++) {
        if ((set[i] & ~a->gone[i]) != 0)
            a->due = a->entered;
        a->gone[i] |= set[i];
    }
    go_on(a);
    return DDL_OK;
}

bool ddl_agreement_report(ddl_agreement *a, ddl_bytes *report)
{
    if (!a->due || !a->entered)
        return false;
    uint8_t fixed[FIXED_BYTES] = { (uint8_t)a->stage };
    ddl_put_u32(fixed + 4, a->stage == LOCKED || a->stage == DECIDED ? a->decided_offer : a->offers[a->rank]);
    size_t before = report->bytes;
    if (!ddl_bytes_append(report, fixed, sizeof fixed) || !ddl_bytes_append(report, a->gone, a->set_bytes)) {
        report->bytes = before;
        return false;
    }
    a->due = false;
    go_on(a); /* saying it may complete the agreement, and that is said too */
    return true;
}

bool ddl_agreement_is_gone(const ddl_agreement *a, int rank)
{
    return has(a->gone, rank);
}

ddl_agreement_state ddl_agreement_result(const ddl_agreement *a)
{
    if (!a->entered || a->due)
        return DDL_AGREEMENT_OPEN;
    if (a->stage == GIVEN_UP)
        return a->excluded ? DDL_AGREEMENT_EXCLUDED : DDL_AGREEMENT_MINORITY;
    return a->stage == DECIDED ? DDL_AGREEMENT_DECIDED : DDL_AGREEMENT_OPEN;
}

uint32_t ddl_agreement_offer(const ddl_agreement *a)
{
    DDL_ASSERT(a->stage == DECIDED);
    return a->decided_offer;
}
