/*
 * agreement.h - how the ranks that are left of a communicator agree on who is gone.
 *
 * Pure: what this rank sees and what others report in, reports to be sent out. Each rank reports to all whom
 * it has lost, and again whenever there are more; who has lost this rank is lost to it in turn, and so is who
 * has given up. It follows the lowest rank that it has not lost, itself perhaps. Once all whom that one has
 * not lost follow it, and have lost each other mutually or not at all, it proposes, once, who is gone: whom
 * it has lost, and so many more that nobody who is left has lost another; or, where ranks below have proposed
 * something, the same as the highest of them. Who is left by a proposal accepts it, as long as it follows the
 * proposer. That one decides once all who are left have, or been lost since, if those who have are enough:
 * more than half of all ranks, or half with the lowest; who hears of a decision adopts it. Who has lost so
 * many that those who are left are not enough gives up.
 *
 * So no two sets are ever decided, whoever hears whom and whenever: who proposes is followed by enough ranks,
 * and one of them is among those who were enough for any set that was decided before. It has told what it
 * accepted then, and whom it follows only rises. Where ranks only die, and those that are left are enough,
 * they all decide the same. Where they have lost each other, some go on if enough of them have not. (Who
 * those are is found by taking the rank with the fewest conflicts first, which is nearly always enough.)
 *
 * Sources: ballots: Lamport, ACM TOCS 16(2), 1998, section 2; that ranks hold them in turn, each when those
 * before it are lost: Chandra and Toueg, J. ACM 43(2), 1996, section 6.2.
 */
#ifndef DDL_PROTOCOL_AGREEMENT_H
#define DDL_PROTOCOL_AGREEMENT_H

#include "base/bytes.h"
#include "base/error.h"

typedef struct ddl_agreement ddl_agreement;

/* DDL_EUNSUPPORTED: too many ranks. offer: a number of this rank's that the decision passes on, if it is the
 * lowest of those that are left. */
DDL_MUST_USE ddl_status ddl_agreement_create(int rank, int nranks, uint32_t offer, ddl_agreement **agreement,
                                             ddl_error *err);
void ddl_agreement_destroy(ddl_agreement *agreement);

/* This rank takes part from now on: the first report is due. */
void ddl_agreement_enter(ddl_agreement *agreement);

/* It has given the wait up, and accepts and proposes nothing before it enters again. */
void ddl_agreement_leave(ddl_agreement *agreement);

/* It never does again: the others go on without it, but where they have decided already. */
void ddl_agreement_give_up(ddl_agreement *agreement);

/* What a rank that has no part in it any more answers to a report: that it has given up. False: nothing, or
 * no memory. */
bool ddl_agreement_answer_apart(ddl_view report, ddl_bytes *answer);

/* Of two ranks that have lost each other, and as few others each, rather the other one stays; -1: nobody's.
 */
void ddl_agreement_suspect(ddl_agreement *agreement, int suspect);

/* This rank has lost rank `gone`. */
void ddl_agreement_lose(ddl_agreement *agreement, int gone);

/* A report came from peer. DDL_EPROTO: malformed; nothing changes. */
DDL_MUST_USE ddl_status ddl_agreement_hear(ddl_agreement *agreement, int peer, ddl_view report,
                                           ddl_error *err);

/* If a report is due: append it to *report, for all other ranks, and it no longer is. False: none is due, or
 * no memory (then it still is). */
bool ddl_agreement_report(ddl_agreement *agreement, ddl_bytes *report);

/* Whether this rank has lost it, or it is left out by what was decided, or missed. */
bool ddl_agreement_is_gone(const ddl_agreement *agreement, int rank);

/* Whether this rank has to find out if it has lost another before it can go on, as that has yet to say
 * something to it or to a third; and for which of them it goes on least, the lowest of those that have not
 * entered, if there are any; -1: none. */
bool ddl_agreement_awaits(const ddl_agreement *agreement, int rank);
int ddl_agreement_awaited(const ddl_agreement *agreement);

/* Whether this rank has heard that another has entered. */
bool ddl_agreement_has_entered(const ddl_agreement *agreement, int rank);

typedef enum ddl_agreement_state {
    DDL_AGREEMENT_OPEN,
    DDL_AGREEMENT_DECIDED,
    DDL_AGREEMENT_EXCLUDED, /* others go on without this rank, or have lost it */
    DDL_AGREEMENT_MINORITY  /* too few are left */
} ddl_agreement_state;

ddl_agreement_state ddl_agreement_result(const ddl_agreement *agreement);

/* Where too few are left only as others have given the wait up: the lowest rank that is not lost and has not
 * entered, for which they waited; -1: there is none, or it is not so. */
int ddl_agreement_given_up_for(const ddl_agreement *agreement);

/* Whether this rank has heard that another has given up, which may have been counted in before. */
bool ddl_agreement_has_given_up(const ddl_agreement *agreement, int rank);

/* This rank has no part in what comes of it, whatever that is: whether it is counted in by what was proposed,
 * or decided; then it is missed. */
bool ddl_agreement_forgo(ddl_agreement *agreement);

/* Whether it has forgone that, or others have decided that it is left after it had given up, and told it so.
 */
bool ddl_agreement_is_missed(const ddl_agreement *agreement);

/* Once decided, or missed: the offer of the lowest rank that is left. */
uint32_t ddl_agreement_offer(const ddl_agreement *agreement);

#endif
