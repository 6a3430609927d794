/*
 * signals.h - signals as bytes in a descriptor, and their names.
 *
 * The handler is the one place of the launcher with mutable state of its own: the descriptor to write to, and
 * which signals have come.
 */
#ifndef DDL_LAUNCH_SIGNALS_H
#define DDL_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* How the launcher found its signals, so that ranks start with the same. */
typedef struct launch_signals {
    sigset_t ignored; /* of those that are forwarded */
    sigset_t blocked;
} launch_signals;

/* Note how they are; also gives SIGCHLD its default action, without which nobody can wait for children. */
void launch_signals_note(launch_signals *found);

/*
 * From now on write the number of each signal that is to be forwarded into descriptor `to` as one byte.
 * SIGHUP, SIGINT and the like that were ignored stay ignored (nohup, background jobs). SIGTSTP also stops
 * this process; where the kernel does not stop it SIGCONT follows at once. SIGPIPE is ignored.
 */
void launch_signals_forward(const launch_signals *found, int to);

/* Whether this signal has come, and was forwarded. */
bool launch_signals_came(int signal);

/* End this process by the signal, without a core. Returns where the kernel discards that, as for the first
 * process of a container. */
void launch_signals_end_by(int signal);

/* Ignore what is forwarded, as it comes by another way, and SIGPIPE; write SIGCHLD's number into `to`.
 * SIGXFSZ (ulimit -f) is blocked, so that a write to a log fails with EFBIG. */
void launch_signals_children(int to);

/* In a child before execve: all as they were found. Async-signal-safe. */
void launch_signals_restore(const launch_signals *found);

/* "SIGTERM"; "signal 77" where it has no name. name holds at least 32 bytes. */
const char *launch_signal_name(int signal, char *name, size_t bytes);

#endif
