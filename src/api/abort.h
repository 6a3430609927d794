/*
 * abort.h - what is left of ddl_comm_abort for others to do or to hear.
 *
 * Any thread may abort. Where there are other ranks the holder of the baton raises that as a failure. A rank
 * alone has no engine: whoever waits there looks whether it goes on.
 */
#ifndef DDL_API_ABORT_H
#define DDL_API_ABORT_H

#include "api/comm.h"

/* Holder: do what was left to it, if it was. */
void ddl_abort_do_pending(ddl_comm *comm);

/* ---- a rank alone; but for the last one, for the thread that issues ---- */

/* Whether its communicator has been aborted, or its process exits: it waits no longer. */
static inline bool ddl_abort_of_alone(const ddl_comm *comm)
{
    return atomic_load(&comm->abort.alone);
}

/* DDL_EABORTED then. */
ddl_status ddl_abort_check_alone(const ddl_comm *comm, ddl_error *err);

/* The same; then the communicator is one that has failed from here on. */
bool ddl_abort_hear(ddl_comm *comm);

/* The process exits: what ranks alone in this world have at NCCL ends, and what they
 * call after that does not go there.
 * Thread: any, which has no lock. */
void ddl_abort_alone_at_exit(ddl_world *world);
/* Blocks until other threads have ended that, but not for longer than that. */
void ddl_abort_await_alone_at_exit(ddl_world *world, ddl_deadline deadline);

#endif
