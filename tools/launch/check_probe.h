/*
 * check_probe.h - whether a rank can connect to each of the others, at the addresses that a job would call.
 *
 * A connection counts when it stands: nothing is said on it. What fails is tried again for some seconds, as
 * one packet may be lost, and a rank is reached if any of its addresses is.
 */
#ifndef DDL_LAUNCH_CHECK_PROBE_H
#define DDL_LAUNCH_CHECK_PROBE_H

#include "base/clock.h"
#include "base/error.h"
#include "protocol/roster.h"

#include <stdint.h>

/* row[rank]: 0, or why that rank could not be reached, an errno; 0 for the own one. */
DDL_MUST_USE ddl_status check_probe_all(const ddl_roster *roster, ddl_deadline deadline, uint32_t row[],
                                        ddl_error *err);

#endif
