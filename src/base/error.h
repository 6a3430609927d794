/*
 * error.h - how failures travel up: a status returned, details in a ddl_error passed last.
 *
 * The place that first knows fills in the details once, with DDL_FAIL. Layers above add what they alone
 * know (peer, operation, rank) and pass the status on. err may be NULL where nobody wants details.
 */
#ifndef DDL_BASE_ERROR_H
#define DDL_BASE_ERROR_H

#include <ddl/ddl.h>

#define DDL_MUST_USE __attribute__((warn_unused_result))

/* Start err anew with this code, rank and culprit unknown, and a printf-style text, in which a line
 * end becomes a space, and another control character '?'; returns code. */
__attribute__((format(printf, 3, 4))) ddl_status ddl_error_set(ddl_error *err, ddl_status code,
                                                               const char *format, ...);

/* Name the rank at fault; returns err->code, so that it can end a return statement. */
ddl_status ddl_error_blame(ddl_error *err, int culprit);

/* As ddl_error_set, with os_errno recorded and its text appended after ": ". */
__attribute__((format(printf, 4, 5))) ddl_status ddl_error_set_os(ddl_error *err, ddl_status code,
                                                                  int os_errno, const char *format, ...);

/* `return DDL_FAIL(err, DDL_EPROTO, "rank %d ...", rank);` */
#define DDL_FAIL(err, code, ...)              ddl_error_set((err), (code), __VA_ARGS__)
#define DDL_FAIL_OS(err, code, os_errno, ...) ddl_error_set_os((err), (code), (os_errno), __VA_ARGS__)

/* Return from the calling function on failure; the only macro with hidden control flow. */
#define DDL_TRY(call)                       \
    do {                                    \
        ddl_status ddl_try_status = (call); \
        if (ddl_try_status != DDL_OK)       \
            return ddl_try_status;          \
    } while (0)

#endif
