/* agreement.c - ballots on who is gone, held by the lowest rank that is left. See agreement.h. */
#include "protocol/agreement.h"

#include "base/assert.h"
#include "protocol/frame.h"

#include <string.h>

/*
 * A report. Offset 0: u8 what is said; 1: zero; 2: u16 the proposer of what was accepted, else zero; 4: u32
 * offer of the lowest rank left by a set that is proposed or decided, else zero; 8: a set, a bit per rank,
 * the lowest first.
 */
enum { FIXED_BYTES = 8, NOBODY = -1 };

typedef enum saying {
    LOST = 1, /* the set is whom the sender has lost */
    ACCEPTED, /* or proposed: who is gone */
    DECIDED,  /* who is gone */
    GIVEN_UP  /* whom it has lost */
} saying;

typedef struct proposal {
    int by; /* NOBODY: none is known */
    uint32_t offer;
    uint8_t *gone;
} proposal;

struct ddl_agreement {
    int rank, nranks, suspect;
    uint32_t offer;
    size_t set_bytes;
    uint8_t *lost; /* whom this rank has lost */
    uint8_t *said; /* by each rank that has entered, or given up: whom it has lost */
    uint8_t *has_entered;
    uint8_t *gave_up; /* who has said so: lost, but not because nobody hears it */
    int *accepted;    /* by each, this rank too: whose proposal last, or NOBODY */
    int *nconflicts;  /* while one is made: how many of the ranks left each has lost */
    proposal latest;  /* that of the highest rank that this one knows of; once decided, that */
    bool entered, is_decided, has_given_up;
    bool is_excluded; /* somebody has said so */
    bool is_missed;   /* the latest is what it does not go on with */
    bool tells_lost, tells_accepted, tells_end;
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
    a->suspect = NOBODY;
    a->offer = offer;
    a->set_bytes = ((size_t)nranks + 7) / 8;
    a->lost = ddl_alloc(a->set_bytes);
    a->said = ddl_alloc_array((size_t)nranks, a->set_bytes);
    a->has_entered = ddl_alloc((size_t)nranks);
    a->gave_up = ddl_alloc(a->set_bytes);
    a->accepted = ddl_alloc_array((size_t)nranks, sizeof *a->accepted);
    a->nconflicts = ddl_alloc_array((size_t)nranks, sizeof *a->nconflicts);
    a->latest = (proposal){ .by = NOBODY, .gone = ddl_alloc(a->set_bytes) };
    if (a->lost == NULL || a->said == NULL || a->has_entered == NULL || a->gave_up == NULL ||
        a->accepted == NULL || a->nconflicts == NULL || a->latest.gone == NULL) {
        ddl_agreement_destroy(a);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to agree on who is left");
    }
    for (int i = 0; i < nranks; i++)
        a->accepted[i] = NOBODY;
    *out = a;
    return DDL_OK;
}

void ddl_agreement_destroy(ddl_agreement *a)
{
    if (a == NULL)
        return;
    ddl_free(a->lost);
    ddl_free(a->said);
    ddl_free(a->has_entered);
    ddl_free(a->gave_up);
    ddl_free(a->accepted);
    ddl_free(a->nconflicts);
    ddl_free(a->latest.gone);
    ddl_free(a);
}

/* Not every rank is in the set. */
static int lowest_outside(const uint8_t *set)
{
    int rank = 0;
    while (has(set, rank))
        rank++;
    return rank;
}

/* Of two sets of ranks that have none in common at most one is enough. */
static bool is_enough(const ddl_agreement *a, int count, bool with_lowest)
{
    return 2 * count > a->nranks || (2 * count == a->nranks && with_lowest);
}

static bool leaves_enough(const ddl_agreement *a, const uint8_t *gone)
{
    int count = 0;
    for (int rank = 0; rank < a->nranks; rank++)
        count += !has(gone, rank);
    return is_enough(a, count, !has(gone, 0));
}

/* ---- what this rank does, as far as what is known allows ---- */

static bool has_ended(const ddl_agreement *a)
{
    return a->is_decided || a->has_given_up;
}

static void give_up(ddl_agreement *a)
{
    a->has_given_up = a->tells_end = true;
}

static bool follows(const ddl_agreement *a, int rank)
{
    return a->has_entered[rank] && lowest_outside(said_by(a, rank)) == a->rank;
}

/* Whether one that is not lost has lost it and it does not say the same. It will, or is found to be lost. */
static bool is_lost_unawares(const ddl_agreement *a, int rank)
{
    for (int other = 0; other < a->nranks; other++)
        if (!has(a->lost, other) && has(said_by(a, other), rank) && !has(said_by(a, rank), other))
            return true;
    return false;
}

/* What most of those who are awaited are awaited for is seen first: thousands may report. */
static bool can_propose(const ddl_agreement *a)
{
    for (int rank = 0; rank < a->nranks; rank++)
        if (rank != a->rank && !has(a->lost, rank) && !follows(a, rank))
            return false;
    for (int rank = 0; rank < a->nranks; rank++)
        if (rank != a->rank && !has(a->lost, rank) && is_lost_unawares(a, rank))
            return false;
    return true;
}

static void leave_out(ddl_agreement *a, uint8_t *gone, int rank)
{
    add(gone, rank);
    for (int other = 0; other < a->nranks; other++)
        a->nconflicts[other] -= has(said_by(a, other), rank);
}

/* Leave out whom this rank has lost, then all that were lost by a rank which stays, first by the one that has
 * lost the fewest of those who are left. All that is said is mutual. */
static void part(ddl_agreement *a, uint8_t *gone)
{
    memcpy(gone, a->lost, a->set_bytes);
    for (int rank = 0; rank < a->nranks; rank++) {
        a->nconflicts[rank] = 0;
        for (int other = 0; other < a->nranks; other++)
            a->nconflicts[rank] += !has(gone, other) && has(said_by(a, rank), other);
    }
    for (;;) {
        int stays = NOBODY;
        for (int rank = 0; rank < a->nranks; rank++)
            if (!has(gone, rank) && a->nconflicts[rank] > 0 &&
                (stays == NOBODY || a->nconflicts[rank] < a->nconflicts[stays] ||
                 (a->nconflicts[rank] == a->nconflicts[stays] && stays == a->suspect)))
                stays = rank;
        if (stays == NOBODY)
            return;
        for (int rank = 0; rank < a->nranks; rank++)
            if (!has(gone, rank) && has(said_by(a, stays), rank))
                leave_out(a, gone, rank);
    }
}

static void propose(ddl_agreement *a)
{
    if (a->latest.by == NOBODY) {
        part(a, a->latest.gone);
        if (!leaves_enough(a, a->latest.gone)) {
            give_up(a);
            return;
        }
        a->latest.offer = a->offer; /* it has lost all below it */
    }
    a->latest.by = a->rank;
    a->tells_accepted = true;
}

static bool has_accepted(const ddl_agreement *a, int rank)
{
    return !has(a->latest.gone, rank) && a->accepted[rank] == a->latest.by;
}

/* This rank has proposed. */
static void decide(ddl_agreement *a)
{
    int count = 0;
    for (int rank = 0; rank < a->nranks; rank++) {
        count += has_accepted(a, rank);
        if (!has(a->latest.gone, rank) && !has(a->lost, rank) && !has_accepted(a, rank))
            return;
    }
    if (is_enough(a, count, has_accepted(a, 0)))
        a->is_decided = a->tells_end = true;
    else
        give_up(a);
}

static void go_on(ddl_agreement *a)
{
    if (!a->entered || has_ended(a))
        return;
    if (!leaves_enough(a, a->lost)) {
        give_up(a);
        return;
    }
    const int leader = lowest_outside(a->lost);
    if (leader == a->rank && a->latest.by < a->rank && can_propose(a))
        propose(a);
    if (a->latest.by == leader && a->accepted[a->rank] != leader && !has(a->latest.gone, a->rank)) {
        a->accepted[a->rank] = leader;
        a->tells_accepted = true;
    }
    if (a->latest.by == a->rank)
        decide(a);
}

void ddl_agreement_enter(ddl_agreement *a)
{
    if (a->entered)
        return;
    a->entered = a->tells_lost = true;
    go_on(a);
}

void ddl_agreement_leave(ddl_agreement *a)
{
    const bool has_accepted_any = a->accepted[a->rank] != NOBODY || a->latest.by == a->rank;
    if (!has_ended(a) && !has_accepted_any) /* else the others may go on with what it has said */
        a->entered = false;
}

void ddl_agreement_give_up(ddl_agreement *a)
{
    a->entered = true;
    if (!has_ended(a))
        give_up(a);
}

void ddl_agreement_suspect(ddl_agreement *a, int suspect)
{
    a->suspect = suspect;
}

void ddl_agreement_lose(ddl_agreement *a, int gone)
{
    DDL_ASSERT(gone != a->rank);
    if (has(a->lost, gone))
        return;
    add(a->lost, gone);
    a->tells_lost = a->tells_lost || !has_ended(a);
    go_on(a);
}

/* ---- reports ---- */

static bool is_sound(const ddl_agreement *a, int peer, ddl_view report)
{
    const uint8_t *fixed = report.data;
    if (report.bytes != FIXED_BYTES + a->set_bytes || fixed[0] < LOST || fixed[0] > GIVEN_UP || fixed[1] != 0)
        return false;
    const uint8_t *set = fixed + FIXED_BYTES;
    for (int bit = a->nranks; bit < (int)a->set_bytes * 8; bit++)
        if (has(set, bit))
            return false;
    const int by = ddl_get_u16(fixed + 2);
    if (fixed[0] == ACCEPTED) {
        if (by >= a->nranks || (by != peer && has(set, peer)) || (by == a->rank && a->latest.by < a->rank))
            return false;
    } else if (by != 0) {
        return false;
    }
    return fixed[0] == LOST || fixed[0] == GIVEN_UP ? !has(set, peer) : leaves_enough(a, set);
}

static void take_over(ddl_agreement *a, int by, uint32_t offer, const uint8_t *gone)
{
    a->tells_accepted = false; /* what was not said counts for nobody */
    a->latest.by = by;
    a->latest.offer = offer;
    memcpy(a->latest.gone, gone, a->set_bytes);
    a->is_excluded = a->is_excluded || has(gone, a->rank);
}

static void note_lost(ddl_agreement *a, int peer, const uint8_t *set)
{
    for (size_t i = 0; i < a->set_bytes; i++)
        said_by(a, peer)[i] |= set[i];
}

ddl_status ddl_agreement_hear(ddl_agreement *a, int peer, ddl_view report, ddl_error *err)
{
    DDL_ASSERT(peer != a->rank);
    if (!is_sound(a, peer, report))
        return DDL_FAIL(err, DDL_EPROTO, "a malformed report of %zu bytes on who is left", report.bytes);
    const uint8_t *fixed = report.data;
    const uint8_t *set = fixed + FIXED_BYTES;
    if (has_ended(a)) {
        if (fixed[0] == DECIDED && !a->is_decided && !has(set, a->rank)) {
            take_over(a, a->latest.by, ddl_get_u32(fixed + 4), set);
            a->is_missed = true;
        }
        return DDL_OK;
    }
    const int by = ddl_get_u16(fixed + 2);
    const uint32_t offer = ddl_get_u32(fixed + 4);
    switch ((saying)fixed[0]) {
    case LOST:
        a->has_entered[peer] = 1;
        note_lost(a, peer, set);
        if (has(set, a->rank)) {
            a->is_excluded = true;
            ddl_agreement_lose(a, peer);
        }
        break;
    case ACCEPTED:
        a->accepted[peer] = by;
        if (by > a->latest.by)
            take_over(a, by, offer, set);
        break;
    case DECIDED:
        take_over(a, a->latest.by, offer, set);
        a->is_decided = a->tells_end = true;
        break;
    case GIVEN_UP:
        a->is_excluded = a->is_excluded || has(set, a->rank);
        add(a->gave_up, peer);
        note_lost(a, peer, set);
        ddl_agreement_lose(a, peer);
        break;
    }
    go_on(a);
    return DDL_OK;
}

static bool is_due(const ddl_agreement *a)
{
    return a->tells_lost || a->tells_accepted || a->tells_end;
}

/* What was accepted is said before the losses that make this rank follow another. */
bool ddl_agreement_report(ddl_agreement *a, ddl_bytes *report)
{
    if (!a->entered || !is_due(a))
        return false;
    const saying say = a->is_decided       ? DECIDED
                       : a->has_given_up   ? GIVEN_UP
                       : a->tells_accepted ? ACCEPTED
                                           : LOST;
    const bool is_proposal = say == ACCEPTED || say == DECIDED;
    uint8_t fixed[FIXED_BYTES] = { (uint8_t)say };
    if (say == ACCEPTED)
        ddl_put_u16(fixed + 2, (uint16_t)a->latest.by);
    ddl_put_u32(fixed + 4, is_proposal ? a->latest.offer : 0);
    size_t before = report->bytes;
    if (!ddl_bytes_append(report, fixed, sizeof fixed) ||
        !ddl_bytes_append(report, is_proposal ? a->latest.gone : a->lost, a->set_bytes)) {
        report->bytes = before;
        return false;
    }
    if (say != ACCEPTED)
        a->tells_lost = a->tells_end = false;
    if (say != LOST)
        a->tells_accepted = false;
    return true;
}

/* Only who waits is answered, so that answers get none. */
bool ddl_agreement_answer_apart(ddl_view report, ddl_bytes *answer)
{
    static const uint8_t nobody[DDL_FRAME_NOTICE_LIMIT];
    const uint8_t *fixed = report.data;
    if (report.bytes < FIXED_BYTES || report.bytes > DDL_FRAME_NOTICE_LIMIT || fixed[0] != LOST)
        return false;
    const uint8_t says = GIVEN_UP;
    const size_t before = answer->bytes;
    if (ddl_bytes_append(answer, &says, 1) && ddl_bytes_append(answer, nobody, report.bytes - 1))
        return true;
    answer->bytes = before;
    return false;
}

/* ---- what has come of it ---- */

bool ddl_agreement_is_gone(const ddl_agreement *a, int rank)
{
    return has(a->is_decided || a->is_missed ? a->latest.gone : a->lost, rank);
}

bool ddl_agreement_has_entered(const ddl_agreement *a, int rank)
{
    return a->has_entered[rank] != 0;
}

static bool has_proposed(const ddl_agreement *a)
{
    return a->latest.by == a->rank;
}

bool ddl_agreement_awaits(const ddl_agreement *a, int rank)
{
    if (rank == a->rank || has(a->lost, rank) || has_ended(a))
        return false;
    const int leader = lowest_outside(a->lost);
    if (leader == a->rank)
        return !has_proposed(a) || (!has(a->latest.gone, rank) && !has_accepted(a, rank));
    return a->accepted[a->rank] != leader || rank == leader;
}

/* Of those that are awaited: how much it is this one. */
static int lateness(const ddl_agreement *a, int rank)
{
    const int leader = lowest_outside(a->lost);
    if (!a->has_entered[rank])
        return 2;
    if (leader != a->rank)
        return rank == leader;
    return has_proposed(a) || !follows(a, rank) || is_lost_unawares(a, rank);
}

int ddl_agreement_awaited(const ddl_agreement *a)
{
    int awaited = -1;
    for (int rank = a->nranks - 1; rank >= 0; rank--)
        if (ddl_agreement_awaits(a, rank) && (awaited < 0 || lateness(a, rank) >= lateness(a, awaited)))
            awaited = rank;
    return awaited;
}

ddl_agreement_state ddl_agreement_result(const ddl_agreement *a)
{
    if (is_due(a) || !has_ended(a))
        return DDL_AGREEMENT_OPEN;
    if (a->is_decided && !has(a->latest.gone, a->rank))
        return DDL_AGREEMENT_DECIDED;
    return a->is_excluded ? DDL_AGREEMENT_EXCLUDED : DDL_AGREEMENT_MINORITY;
}

bool ddl_agreement_has_given_up(const ddl_agreement *a, int rank)
{
    return has(a->gave_up, rank);
}

static int lowest_absent(const ddl_agreement *a)
{
    for (int rank = 0; rank < a->nranks; rank++)
        if (!has(a->lost, rank) && rank != a->rank && !a->has_entered[rank])
            return rank;
    return -1;
}

/* Who has lost it gave up for another reason. */
int ddl_agreement_given_up_for(const ddl_agreement *a)
{
    const int absent = lowest_absent(a);
    int count = 0;
    bool could_go_on = false; /* at last: rank 0 */
    if (absent < 0)
        return -1;
    for (int rank = a->nranks - 1; rank >= 0; rank--) {
        const bool has_waited = has(a->gave_up, rank) && !has(said_by(a, rank), absent);
        could_go_on = !has(a->lost, rank) || has_waited;
        count += could_go_on;
    }
    return is_enough(a, count, could_go_on) ? absent : -1;
}

bool ddl_agreement_forgo(ddl_agreement *a)
{
    a->is_missed = (a->is_decided || a->latest.by != NOBODY) && !has(a->latest.gone, a->rank);
    return a->is_missed;
}

bool ddl_agreement_is_missed(const ddl_agreement *a)
{
    return a->is_missed;
}

uint32_t ddl_agreement_offer(const ddl_agreement *a)
{
    DDL_ASSERT(a->is_decided || a->is_missed);
    return a->latest.offer;
}
