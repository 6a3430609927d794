/*
 * decimal.h - decimal numbers and times in text.
 *
 * Not by strtod, which reads what the program's locale says: in some a point ends the number. Thread: any.
 */
#ifndef DDL_BASE_DECIMAL_H
#define DDL_BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Digits with at most one point, at the start of text. How many characters that are; 0: there is no number.
 */
size_t ddl_decimal_parse(const char *text, size_t bytes, double *number);

/* "300", "0.5", "500ms", "30s", "5min", "2h": seconds, if no unit is named, to the nearest millisecond.
 * False: it is none of these, or longer than a century. */
bool ddl_duration_parse(const char *text, int64_t *ms);

#endif
