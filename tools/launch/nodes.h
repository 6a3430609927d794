/* nodes.h - tells whoever has started a job of one node that the environment speaks of several. */
#ifndef DDL_LAUNCH_NODES_H
#define DDL_LAUNCH_NODES_H

#include "options.h"

/* In one line on standard error, where options say nothing of nodes, and a scheduler or a script does: each
 * node would be a job of its own, and train by itself. */
void launch_nodes_warn(const launch_options *options);

#endif
