/*
 * repeat.h - a small blocking call that is like the one before.
 *
 * What a call over the board costs beside its bytes is most of its time. So it is described once, and started
 * again as long as calls of that collective are the same and nothing else is under way. If the others do not
 * come at once, it goes on as any other call.
 */
#ifndef DDL_API_REPEAT_H
#define DDL_API_REPEAT_H

#include "api/issue.h"

/* Whether the call is like the one that is kept: it is_repeated then, and its extent is known, so that
 * nothing but its buffers can be wrong. True: nor can they, as they are those of the one that is kept, in
 * host memory. */
bool ddl_repeat_recall(const ddl_comm *comm, ddl_call *call);

/* Start again what is kept for such a call, if it is_repeated, and wait for its end: *status. False: there is
 * nothing of that kind or something else is under way; the call has to be issued. */
bool ddl_repeat_call(ddl_comm *comm, const ddl_call *call, ddl_status *status);

/* Holder: a blocking call has ended, and went by this plan over the board. True: its request is kept. */
bool ddl_repeat_keep(ddl_comm *comm, const ddl_call *call, ddl_request *request, ddl_plan *plan);

/* Give the baton back after a call that has waited for nothing but the board; now and then the engine is
 * driven first. */
void ddl_repeat_leave(ddl_comm *comm);

/* Holder: nothing is kept any more. */
void ddl_repeat_forget(ddl_comm *comm);

#endif
