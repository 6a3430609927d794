/*
 * exits.h - in which order processes ended.
 *
 * When one rank fails the others soon do, and wait() does not say who was first. On Linux a descriptor per
 * process and the queue of epoll do; elsewhere the order is not known.
 */
#ifndef DDL_LAUNCH_EXITS_H
#define DDL_LAUNCH_EXITS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct launch_exits launch_exits;

/* NULL: not possible here. The calls below accept that. */
launch_exits *launch_exits_create(void);

/* Watch a child that has not been waited for, under a number from 0. False: it cannot be watched. */
bool launch_exits_watch(launch_exits *exits, pid_t pid, int number);

/* The number of the next process, in the order of their ends; -1: none has ended since. */
int launch_exits_next(launch_exits *exits);

void launch_exits_destroy(launch_exits *exits);

#endif
