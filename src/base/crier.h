/*
 * crier.h - lines for a function of the program's, called by a thread that does nothing else: a function that
 * does not return keeps no operation from its deadline.
 *
 * The thread begins with the first line, and ends once there is no such function. Where none can be started
 * whoever has a line calls the function. A forked child has no such thread, and begins anew. Thread: any.
 */
#ifndef DDL_BASE_CRIER_H
#define DDL_BASE_CRIER_H

#include <ddl/ddl.h>
#include <stdbool.h>

enum { DDL_CRIER_LINE = 1024 /* bytes, with the last zero */ };

/* NULL: there is none. Returns once the one before is in no call any more. */
void ddl_crier_set(ddl_log_sink *sink, void *arg);

/*
 * Returns once the line has been told, or half a second after that was to begin; it is told later then, or,
 * with 16 lines before it, lost. False: there is no function to tell it to.
 */
bool ddl_crier_tell(const char *line);

/* At the exit of the process: there is no function any more, and one that is in a call has half a second. */
void ddl_crier_end(void);

#endif
