/*
 * log.h - one line at a time to a sink. Library code returns errors and does not log them; api and
 * rendezvous progress do, once. Never on stdout. Thread: any.
 */
#ifndef DDL_BASE_LOG_H
#define DDL_BASE_LOG_H

typedef enum ddl_log_level {
    DDL_LOG_ERROR,
    DDL_LOG_WARNING,
    DDL_LOG_INFO,
    DDL_LOG_DEBUG,
    DDL_LOG_TRACE
} ddl_log_level;

/* Lines above this level are dropped. DDL_LOG_INFO unless set. */
void ddl_log_set_level(ddl_log_level level);

/* Parse "error", "warning", "info", "debug" or "trace"; -1 if it is none of them. */
int ddl_log_parse_level(const char *name);

/* A line without its line end; "ddl: " is put before it. */
__attribute__((format(printf, 2, 3))) void ddl_log(ddl_log_level level, const char *format, ...);

#endif
