/*
 * failpoint.h - places where a test can make a fallible call fail.
 *
 * Every call that can fail for a reason outside ddl (memory, descriptors, sockets, threads, files) asks
 * its failpoint first:
 *
 *     if (DDL_FAILPOINT_OS("io.socket", EMFILE) || (fd = socket(...)) < 0)
 *         return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a socket");
 *
 * Without -Dfailpoints=true the macros are the constant false, or nothing, and leave no code behind.
 * In test builds the environment chooses: DDL_FAILPOINTS=site[:nth[+]] makes the nth hit of a site fail,
 * with + all after it too (every hit when nth is left out; "*:n" counts the hits of all sites together).
 * Thread: any.
 */
#ifndef DDL_BASE_FAILPOINT_H
#define DDL_BASE_FAILPOINT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef DDL_FAILPOINTS

/* Count a hit of site; true if this hit is to fail. */
bool ddl_failpoint_hit(const char *site);

/* Arm from a test: as the variable; NULL disarms. Counters start anew. */
void ddl_failpoint_arm(const char *setting);

/* Hits of all sites since the last arm. */
uint64_t ddl_failpoint_hits(void);

/* The hit that is to fail takes five seconds instead, as if the thread had been stopped. "*" is not for
 * these. */
void ddl_failpoint_stall(const char *site);

/* True if this hit is to fail, where a failure is something that is not done, over and over, rather than a
 * call that fails. "*" is not for these either. */
bool ddl_failpoint_skip(const char *site);

#define DDL_FAILPOINT(site)          ddl_failpoint_hit(site)
#define DDL_FAILPOINT_STALL(site)    ddl_failpoint_stall(site)
#define DDL_FAILPOINT_SKIP(site)     ddl_failpoint_skip(site)
#define DDL_FAILPOINT_OS(site, code) (ddl_failpoint_hit(site) && ((errno = (code)), true))

#else

#define DDL_FAILPOINT(site)          false
#define DDL_FAILPOINT_STALL(site)    ((void)0)
#define DDL_FAILPOINT_SKIP(site)     false
#define DDL_FAILPOINT_OS(site, code) false

#endif
#endif
