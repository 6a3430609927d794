/* options_guess.c - a flag that nobody knows is compared with those there are. */
#include "options_guess.h"

#include "base/spelling.h"

#include <stdio.h>
#include <string.h>

enum { TELLING = 4 }; /* letters at the beginning, from which on the rest may be anything */

/* How far a word is from a name, or from as much of its beginning as was written. */
static int misspelt(const char *word, const char *name)
{
    char begun[DDL_SPELLING_BYTES];
    snprintf(begun, sizeof begun, "%.*s", (int)strlen(word), name);
    int of_all = ddl_spelling_distance(word, name), of_beginning = ddl_spelling_distance(word, begun);
    return of_all < of_beginning ? of_all : of_beginning;
}

/* -1: no name is near. */
static int nearest_by_spelling(const char *word, const char *const names[], int nnames)
{
    int nearest = 0, least = misspelt(word, names[0]);
    for (int i = 1; i < nnames; i++) {
        int distance = misspelt(word, names[i]);
        if (distance < least) {
            nearest = i;
            least = distance;
        }
    }
    return ddl_spelling_is_near(least, (int)strlen(word)) ? nearest : -1;
}

static size_t common_beginning(const char *one, const char *other)
{
    size_t bytes = 0;
    while (one[bytes] != '\0' && one[bytes] == other[bytes])
        bytes++;
    return bytes;
}

/* -1: no name has a beginning that tells something in common with the word. */
static int longest_common_beginning(const char *word, const char *const names[], int nnames)
{
    int longest = 0;
    for (int i = 1; i < nnames; i++)
        if (common_beginning(word, names[i]) > common_beginning(word, names[longest]))
            longest = i;
    size_t bytes = common_beginning(word, names[longest]);
    return bytes >= TELLING || (bytes > 1 && word[bytes] == '\0') ? longest : -1;
}

int launch_options_guess(const char *argument, const char *const names[], int nnames)
{
    char word[DDL_SPELLING_BYTES];
    const char *name = argument + strspn(argument, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "="), name);
    for (char *at = word; *at != '\0'; at++)
        if (*at == '-')
            *at = '_';
    if (strlen(word) == 1) /* too little to go by */
        return -1;
    int nearest = nearest_by_spelling(word, names, nnames);
    return nearest >= 0 ? nearest : longest_common_beginning(word, names, nnames);
}
