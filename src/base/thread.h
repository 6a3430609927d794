/*
 * thread.h - threads that get no signals: those are for the program's own threads.
 *
 * A thread inherits the mask of whoever starts it, so what such a thread starts in turn gets none either.
 * Thread: any.
 */
#ifndef DDL_BASE_THREAD_H
#define DDL_BASE_THREAD_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>

/* What keeps a process from having one more, for texts. */
#define DDL_THREAD_LIMITS "see ulimit -u, -v, -d and -s, and pids.max of its cgroup"

/* To be joined. 0, or an errno. */
DDL_MUST_USE int ddl_thread_start(void *(*run)(void *), void *arg, pthread_t *thread);

/* One that nobody joins. 0, or an errno. */
DDL_MUST_USE int ddl_thread_start_detached(void *(*run)(void *), void *arg);

/* Called by threads that drive, as they begin: whether this is one of the library's, and not of the program.
 */
void ddl_thread_be_own(void);
bool ddl_thread_is_own(void);

#endif
