/* first.h - what is the same for all ranks is told by one, also before they have met. */
#ifndef DDL_BENCH_FIRST_H
#define DDL_BENCH_FIRST_H

#include <stdbool.h>

/* Whether this may be rank 0, as far as the environment says, or has been started by hand and speaks for
 * itself. */
bool first_may_be_here(void);

/* Whatever goes to standard error is lost from now on, if this is another rank. Returns what ends that. */
int first_hush_others(void);
void first_end_hush(int hush);

#endif
