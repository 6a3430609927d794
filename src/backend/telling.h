/*
 * telling.h - pieces of which a rank posts where they are, as all others reach its buffers, and not what is
 * in them.
 *
 * Of the two rounds of such a piece the first says where it is. Each rank then makes its part from that part
 * of all buffers, and writes it to all of them; with the second round all know that theirs are complete. If
 * all tell, as many pieces go together as they all have told, so ranks wait for each other twice in 4 MiB. A
 * rank whose buffers nobody else reaches says what is in them, and the others read and write their parts of
 * that on sheets, as ever.
 *
 * Everything here is for the holder of the engine's baton only.
 */
#ifndef DDL_BACKEND_TELLING_H
#define DDL_BACKEND_TELLING_H

#include "backend/posting.h"

enum { DDL_LEAST_TOLD_BYTES = 32 * 1024 /* less is posted as fast */ };

/* Whether ranks may do so with the piece that is next; the same on all of them. */
static inline bool ddl_post_may_tell(const ddl_post *post)
{
    return ddl_oneshot_common_bytes(post->oneshot) >= DDL_LEAST_TOLD_BYTES;
}

/* What is to be posted of it in its round, returning how many bytes: *from, *parts and *nparts are what would
 * be said, and may become something else. place: room that has to last until it is posted. */
size_t ddl_telling_choose(const ddl_posting *posting, ddl_post *next, ddl_board_place *place,
                          const void **from, const ddl_slice **parts, int *nparts);

/* All have posted in its round: the rest of that. False: it can never be finished, as somebody has given up,
 * or is not reached. */
bool ddl_telling_finish(ddl_posting *posting, ddl_post *post);

/* Nobody is to write any more where this rank has told that it is, if it has. */
void ddl_telling_withdraw(const ddl_posting *posting, ddl_post *post);

#endif
