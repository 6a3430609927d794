/* error.c - filling in the details of a failure. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void start(ddl_error *err, ddl_status code, int os_errno)
{
    memset(err, 0, sizeof *err);
    err->code = code;
    err->rank = -1;
    err->culprit = -1;
    err->os_errno = os_errno;
}

/* The text is one line, whatever there is in the names and settings that it repeats. */
static void write_text(ddl_error *err, const char *format, va_list args)
{
    vsnprintf(err->text, sizeof err->text, format, args);
    for (char *at = err->text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == '\x7f')
            *at = *at == '\n' ? ' ' : '?';
}

ddl_status ddl_error_set(ddl_error *err, ddl_status code, const char *format, ...)
{
    if (err == NULL)
        return code;
    start(err, code, 0);
    va_list args;
    va_start(args, format);
    write_text(err, format, args);
    va_end(args);
    return code;
}

ddl_status ddl_error_set_os(ddl_error *err, ddl_status code, int os_errno, const char *format, ...)
{
    if (err == NULL)
        return code;
    start(err, code, os_errno);
    va_list args;
    va_start(args, format);
    write_text(err, format, args);
    va_end(args);
    if (os_errno == 0) /* as at the end of a stream: there is no more to say */
        return code;
    char reason[128];
    /* The XSI form returns int, the GNU form a pointer; both are settled here by the build's feature macros.
     */
    const char *text = strerror_r(os_errno, reason, sizeof reason) == 0 ? reason : "unknown system error";
    /* Of what is too long the end of the rest is lost, never why. */
    const size_t most = sizeof err->text - sizeof ": " - strlen(text);
    const size_t used = strlen(err->text) < most ? strlen(err->text) : most;
    snprintf(err->text + used, sizeof err->text - used, ": %s", text);
    return code;
}

ddl_status ddl_error_blame(ddl_error *err, int culprit)
{
    if (err == NULL)
        return DDL_EINTERNAL;
    err->culprit = culprit;
    return err->code;
}
