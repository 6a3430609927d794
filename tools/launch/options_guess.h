/* options_guess.h - which flag was perhaps meant by a word that is none. */
#ifndef DDL_LAUNCH_OPTIONS_GUESS_H
#define DDL_LAUNCH_OPTIONS_GUESS_H

/* Which of the names an argument misspells, or begins; -1: it comes near none. */
int launch_options_guess(const char *argument, const char *const names[], int nnames);

#endif
