/*
 * agreement.h - how the ranks that are left of a communicator agree on who is gone.
 *
 * Pure: what this rank sees and what others report in, reports to be sent out. Each rank reports whom it
 * takes for gone to everyone it does not. It takes over what others report, says so again whenever its own
 * set has grown, and listens to nobody in it. It decides once all others have reported the same set; who
 * decides reports the decision, also to who is gone and may yet hear it, and who hears of one adopts it.
 * Ranks that are left decide the same as long as who is taken for gone is; a rank whose connection broke
 * while it lives may decide before it learns that the others go on without it. Of two sides that do not hear
 * each other at most one is a majority. Source: the idea of agreement by flooding sets under a failure
 * detector: Chandra and Toueg, J. ACM 43(2), 1996, section 6.1.
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

/* This rank has lost rank `gone`. */
void ddl_agreement_lose(ddl_agreement *agreement, int gone);

/* A report came from peer. DDL_EPROTO: malformed; nothing changes. */
DDL_MUST_USE ddl_status ddl_agreement_hear(ddl_agreement *agreement, int peer, ddl_view report,
                                           ddl_error *err);

/* If a report is due: append it to *report, and it no longer is. False: none is due, or no memory (then it
 * still is). */
bool ddl_agreement_report(ddl_agreement *agreement, ddl_bytes *report);

/* Whether that report is for this other rank: who is gone hears what those have decided who go on. */
bool ddl_agreement_is_for(const ddl_agreement *agreement, ddl_view report, int rank);

bool ddl_agreement_is_gone(const ddl_agreement *agreement, int rank);

/* Whether a rank is neither gone nor has reported what this one takes for true; and the lowest such rank, or
 * -1. */
bool ddl_agreement_awaits(const ddl_agreement *agreement, int rank);
int ddl_agreement_awaited(const ddl_agreement *agreement);

typedef enum ddl_agreement_state {
    DDL_AGREEMENT_OPEN,
    DDL_AGREEMENT_DECIDED,
    DDL_AGREEMENT_EXCLUDED, /* the others take this rank for gone */
    DDL_AGREEMENT_MINORITY  /* decided, but too few are left */
} ddl_agreement_state;

ddl_agreement_state ddl_agreement_result(const ddl_agreement *agreement);

/* Once decided: the offer of the lowest rank that is left. */
uint32_t ddl_agreement_offer(const ddl_agreement *agreement);

#endif
