/* assert.c - the end of a process whose invariants do not hold. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void ddl_assert_fail(const char *file, int line, const char *text)
{
    fprintf(stderr, "ddl: DDL_EINTERNAL %s:%d: assertion failed: %s; please report this\n", file, line, text);
    abort();
}
