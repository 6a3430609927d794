/* spelling.c - the distance of Levenshtein, a row at a time. */
#include "base/spelling.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

enum { NEAR = 2 };

int ddl_spelling_distance(const char *one, const char *other)
{
    int row[DDL_SPELLING_BYTES]; /* from what is before *at to each beginning of other */
    if (strlen(one) >= DDL_SPELLING_BYTES || strlen(other) >= DDL_SPELLING_BYTES)
        return INT_MAX;
    const int bytes = (int)strlen(other);
    for (int i = 0; i <= bytes; i++)
        row[i] = i;
    for (const char *at = one; *at != '\0'; at++) {
        int diagonal = row[0]++;
        for (int i = 1; i <= bytes; i++) {
            int change = diagonal + (toupper((unsigned char)*at) != toupper((unsigned char)other[i - 1]));
            int skip = (row[i - 1] < row[i] ? row[i - 1] : row[i]) + 1;
            diagonal = row[i];
            row[i] = change < skip ? change : skip;
        }
    }
    return row[bytes];
}

bool ddl_spelling_is_near(int distance, int letters)
{
    return distance <= NEAR && 2 * distance < letters;
}
