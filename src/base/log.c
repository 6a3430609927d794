/* log.c - the log sink, one of the few mutable globals. */
#include "base/log.h"

#include <ddl/ddl.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards sink, and keeps lines whole */
static ddl_log_sink *current_sink;
static void *current_arg;
static atomic_int current_level = DDL_LOG_INFO;

static const char *const level_names[] = { "error", "warning", "info", "debug", "trace" };

void ddl_set_log(ddl_log_sink *sink, void *arg)
{
    pthread_mutex_lock(&lock);
    current_sink = sink;
    current_arg = arg;
    pthread_mutex_unlock(&lock);
}

void ddl_log_set_level(ddl_log_level level)
{
    atomic_store(&current_level, (int)level);
}

int ddl_log_parse_level(const char *name)
{
    for (int level = DDL_LOG_ERROR; level <= DDL_LOG_TRACE; level++)
        if (strcmp(name, level_names[level]) == 0)
            return level;
    return -1;
}

void ddl_log(ddl_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load(&current_level))
        return;
    char line[1024] = "ddl: ";
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof line - used, format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    if (current_sink != NULL)
        current_sink(current_arg, line);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&lock);
}
