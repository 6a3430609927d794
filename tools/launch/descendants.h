/*
 * descendants.h - all processes that began below this one, also those that have left their parents.
 *
 * Linux lets a process adopt orphans, and lists processes in /proc; so daemons that a rank has started
 * are found. Elsewhere only process groups are known.
 */
#ifndef DDL_LAUNCH_DESCENDANTS_H
#define DDL_LAUNCH_DESCENDANTS_H

#include <stdbool.h>
#include <sys/types.h>

/* From now on descendants whose parents end become children of this process. False: not possible here. */
bool launch_descendants_adopt(void);

/*
 * Send signal (0: none) to every living descendant except the one given (0: none), and put the first `most`
 * of their numbers into pids. Returns how many there are; -1 if they cannot be listed.
 */
int launch_descendants_signal(int signal, pid_t except, pid_t *pids, int most);

/* Whether a child that has not been waited for is on its way out: the kernel takes down what it had. False
 * where that cannot be seen. */
bool launch_is_exiting(pid_t pid);

/* In a child: be killed when `parent` dies, and now if it has. Does nothing where that cannot be asked for.
 */
void launch_die_with(pid_t parent);

/* Show this process under another name in lists of processes, where that is possible. */
void launch_rename_process(const char *name);

#endif
