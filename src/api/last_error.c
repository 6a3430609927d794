/* last_error.c - thread-local storage for ddl_last_error. */
#include "api/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local ddl_error last = { .rank = -1, .culprit = -1 };

const ddl_error *ddl_last_error(void)
{
    return &last;
}

ddl_status ddl_last_error_keep(const ddl_error *err)
{
    last = *err;
    return last.code;
}

ddl_status ddl_last_error_set(ddl_status code, int rank, const char *operation, const char *format, ...)
{
    memset(&last, 0, sizeof last);
    last.code = code;
    last.rank = rank;
    last.culprit = -1;
    snprintf(last.operation, sizeof last.operation, "%s", operation);
    int used = rank < 0 ? snprintf(last.text, sizeof last.text, "%s: ", operation)
                        : snprintf(last.text, sizeof last.text, "%s rank %d: ", operation, rank);
    va_list args;
    va_start(args, format);
    vsnprintf(last.text + used, sizeof last.text - (size_t)used, format, args);
    va_end(args);
    return code;
}
