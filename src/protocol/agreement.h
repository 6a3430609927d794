/*
 * agreement.h - how the ranks that are left of a communicator agree on who is gone.
 *
 * Pure: what this rank sees and what others report in, reports to be sent out. Each rank reports to everyone
 * whom it takes for gone. It takes over what others report, says so again whenever its own set has grown, and
 * listens to nobody in it. Once all others have reported the same set it locks that, for good, and says so;
 * who hears of a lock joins it. It decides once everyone who is left has locked the set, or been lost since,
 * if those who have are enough: more than half of all ranks, or half with the lowest; who hears of a decision
 * adopts it. Else it gives up. Who has given up, or takes this rank for gone, counts as lost.
 *
 * So no two sets are ever decided, whoever hears whom and whenever: of two sides that are enough one rank is
 * in both, and it locks one set. Ranks that do not hear each other take each other for gone, and end: one
 * side decides, or none. Where ranks die, and those that are left are enough, they all decide the
 * same. Sources: agreement by flooding sets under a failure detector: Chandra and Toueg, J. ACM 43(2), 1996,
 * section 6.1; locks in quorums: Lamport, ACM TOCS 16(2), 1998, section 2.2.
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

/* It has given the wait up, and locks nothing before it enters again. */
void ddl_agreement_leave(ddl_agreement *agreement);

/* This rank has lost rank `gone`. */
void ddl_agreement_lose(ddl_agreement *agreement, int gone);

/* A report came from peer. DDL_EPROTO: malformed; nothing changes. */
DDL_MUST_USE ddl_status ddl_agreement_hear(ddl_agreement *agreement, int peer, ddl_view report,
                                           ddl_error *err);

/* If a report is due: append it to *report, for all other ranks, and it no longer is. False: none is due, or
 * no memory (then it still is). */
bool ddl_agreement_report(ddl_agreement *agreement, ddl_bytes *report);

bool ddl_agreement_is_gone(const ddl_agreement *agreement, int rank);

/* Whether a rank that is not gone has yet to say something before this one can go on; and the lowest such
 * rank, or -1. */
bool ddl_agreement_awaits(const ddl_agreement *agreement, int rank);
int ddl_agreement_awaited(const ddl_agreement *agreement);

typedef enum ddl_agreement_state {
    DDL_AGREEMENT_OPEN,
    DDL_AGREEMENT_DECIDED,
    DDL_AGREEMENT_EXCLUDED, /* others take this rank for gone */
    DDL_AGREEMENT_MINORITY  /* too few are left */
} ddl_agreement_state;

ddl_agreement_state ddl_agreement_result(const ddl_agreement *agreement);

/* Once decided: the offer of the lowest rank that is left. */
uint32_t ddl_agreement_offer(const ddl_agreement *agreement);

#endif
