/* port.h - a port for rank 0 that nobody else gets until the job has ended. */
#ifndef DDL_LAUNCH_PORT_H
#define DDL_LAUNCH_PORT_H

#include "base/error.h"

/*
 * Choose a free TCP port. *fd holds it while open: a socket bound with SO_REUSEADDR that does not listen.
 * On Linux rank 0, who also sets SO_REUSEADDR, can bind and listen beside it, and nobody is given the port
 * by chance. Elsewhere a second bind fails, so *fd is -1, and until rank 0 listens the port is nobody's; it
 * is one that most systems do not give by themselves, and that launchers choose by their pids, so that those
 * which see each other choose different ones. DDL_ENETWORK.
 */
ddl_status launch_port_reserve(int *fd, int *port, ddl_error *err);

#endif
