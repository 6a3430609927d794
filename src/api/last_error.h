/* last_error.h - the calling thread's last failure, one of the few mutable globals. */
#ifndef DDL_API_LAST_ERROR_H
#define DDL_API_LAST_ERROR_H

#include "base/error.h"

/* Keep err for ddl_last_error on this thread; returns err->code. */
ddl_status ddl_last_error_keep(const ddl_error *err);

/* Keep a failure of the public call `operation` on this rank (-1: unknown); returns code. */
__attribute__((format(printf, 4, 5))) ddl_status ddl_last_error_set(ddl_status code, int rank,
                                                                    const char *operation, const char *format,
                                                                    ...);

#endif
