/*
 * sink.h - where output goes: a descriptor that may block, and a thread that writes to it.
 *
 * The launcher's own loop must not block on a terminal or a pipe whose reader is slow, and the descriptor,
 * which is shared with others, must not be made non-blocking. So a thread writes, while the loop fills the
 * next buffer. Both buffers are bounded if the loop stops filling once launch_sink_full says so.
 * All calls belong to the loop's thread.
 */
#ifndef DDL_LAUNCH_SINK_H
#define DDL_LAUNCH_SINK_H

#include "base/bytes.h"
#include "base/error.h"

typedef struct launch_sink launch_sink;

/* Write to fd, which stays the caller's. Each change that the loop waits for is told by a byte in wake_fd. */
ddl_status launch_sink_create(int fd, int wake_fd, launch_sink **sink, ddl_error *err);

/*
 * Append what author wrote; nothing of it is torn by others that use this sink. If another's text ended in
 * the middle of a line, that line is ended first. author only has to differ; NULL is the launcher itself.
 */
void launch_sink_put(launch_sink *sink, const void *author, ddl_view text);

/* Whether the last text was author's and ended in the middle of a line, with which he can go on. */
bool launch_sink_awaits(const launch_sink *sink, const void *author);

/* Whether so much is waiting that no more should be put; the wake byte follows when there is room. */
bool launch_sink_full(launch_sink *sink);

/* Whether all has been written or, after an error, dropped; if not, the wake byte follows. */
bool launch_sink_idle(launch_sink *sink);

/* The errno of the first write that failed; 0 if none did. What is put after it is dropped. */
int launch_sink_error(launch_sink *sink);

/* Only when idle. Accepts NULL. */
void launch_sink_destroy(launch_sink *sink);

#endif
