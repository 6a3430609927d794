/*
 * settings.h - the names of all variables that ddl reads, and which others look as if they were meant to be.
 *
 * A variable that no one reads does nothing, and nothing else would say so.
 */
#ifndef DDL_API_SETTINGS_H
#define DDL_API_SETTINGS_H

#include "algorithms/catalogue.h"

#include <stdbool.h>
#include <stddef.h>

enum { DDL_SETTING_NAME = 40 }; /* bytes of the longest name */

/* "DDL_ALLREDUCE": what forces an algorithm of this collective. */
void ddl_setting_of(ddl_collective collective, char name[DDL_SETTING_NAME]);

/* Whether ddl, a launcher for it, or a test reads this one. */
bool ddl_setting_is_known(const char *name);

/* Variables that begin with DDL_ and are not known, as "DDL_ALL_REDUCE (DDL_ALLREDUCE?), DDL_FOO"; "" if
 * there are none. Empty ones do not count. environment: "NAME=value", the last one NULL. */
void ddl_settings_unknown(char *const environment[], char *text, size_t text_bytes);

#endif
