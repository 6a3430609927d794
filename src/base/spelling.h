/*
 * spelling.h - whether a word that nobody knows is another one, misspelt.
 *
 * For advice alone: what was meant is asked, not assumed.
 */
#ifndef DDL_BASE_SPELLING_H
#define DDL_BASE_SPELLING_H

#include <stdbool.h>

enum { DDL_SPELLING_BYTES = 40 }; /* of the longest word, with its end */

/* Letters to insert, leave out or change; case does not count. INT_MAX: one of them is too long. */
int ddl_spelling_distance(const char *one, const char *other);

/* Whether a word of so many letters at this distance may be meant: half of a short word is not near it. */
bool ddl_spelling_is_near(int distance, int letters);

#endif
