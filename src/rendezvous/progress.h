/*
 * progress.h - one line every 5 s while ranks wait for each other, and how sets of ranks are written.
 */
#ifndef DDL_RENDEZVOUS_PROGRESS_H
#define DDL_RENDEZVOUS_PROGRESS_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>

#define DDL_PROGRESS_INTERVAL_NS (5 * DDL_NS_PER_S)

typedef struct ddl_progress {
    int64_t start_ns;
    ddl_deadline next;     /* when the next line is due */
    ddl_deadline deadline; /* of the whole start-up, for "35 s left" */
} ddl_progress;

void ddl_progress_start(ddl_progress *progress, ddl_deadline deadline);

/* If a line is due, log "waiting for WHAT, N s left". NULL is fine. */
__attribute__((format(printf, 2, 3))) void ddl_progress_tell(ddl_progress *progress, const char *what, ...);

/* "0-1, 3, 5-7": the ranks of which in[rank] equals wanted; ends in "..." where text is too short. */
void ddl_progress_ranks(const bool in[], int nranks, bool wanted, char *text, size_t text_bytes);

#endif
