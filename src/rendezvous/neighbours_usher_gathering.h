/*
 * neighbours_usher_gathering.h - the ranks of a host, as they talk to the one of them that is their usher.
 *
 * For the files of neighbours.h. What is said goes over the mesh's connections, in the byte order of
 * the host. If a rank is lost, or late, the usher tells the others which: so all blame the same one.
 */
#ifndef DDL_RENDEZVOUS_NEIGHBOURS_USHER_GATHERING_H
#define DDL_RENDEZVOUS_NEIGHBOURS_USHER_GATHERING_H

#include "io/local.h"
#include "rendezvous/neighbours.h"

#include <poll.h>

enum { DDL_USHER_TOKEN_BYTES = 16 };

/* Ranks of this host are counted as ddl_roster.local_rank_of does, and so are the arrays here. */
typedef struct ddl_gathering {
    const ddl_roster *roster;
    ddl_wire *wires;
    ddl_deadline deadline;
    int count, self, *ranks; /* the usher is 0 */
    size_t *have;            /* usher: bytes of what each rank is to say */
    struct pollfd *fds;      /* usher: count + 1 */
    int *polled;             /* whose these are */
} ddl_gathering;

typedef enum ddl_usher_kind {
    DDL_USHER_NO_DOOR = 1,
    DDL_USHER_DOOR,
    DDL_USHER_AGREED,
    DDL_USHER_LOST,
    DDL_USHER_LATE,
    DDL_USHER_FOREIGN
} ddl_usher_kind;

typedef struct ddl_usher_word { /* from the usher */
    uint8_t magic[4];
    uint8_t kind;
    uint8_t common; /* DDL_USHER_AGREED: what all pairs share; what those of this rank do follows, a byte for
                       each */
    uint8_t zero[2];
    uint32_t culprit; /* DDL_USHER_LOST, _LATE, _FOREIGN */
    uint8_t token[DDL_USHER_TOKEN_BYTES];
    char door[DDL_LOCAL_NAME_BYTES];
} ddl_usher_word;

extern const uint8_t ddl_usher_magic[4];

/* DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_gathering_open(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                                           ddl_gathering *all, ddl_error *err);
void ddl_gathering_close(ddl_gathering *all);

static inline ddl_wire *ddl_gathering_wire(const ddl_gathering *all, int local)
{
    return &all->wires[all->ranks[local]];
}

static inline uint32_t ddl_gathering_left_ms(const ddl_gathering *all)
{
    return (uint32_t)ddl_deadline_left_ms(all->deadline);
}

/* ---- the usher ---- */

ddl_usher_word ddl_gathering_word(ddl_usher_kind kind);

/* Best effort: who does not hear it sees the usher end. */
void ddl_gathering_tell_of_failure(const ddl_gathering *all, const ddl_error *why);

/* One descriptor more among all->fds, of *count so far; local: whose it is. */
void ddl_gathering_poll_too(ddl_gathering *all, int *count, int fd, int local);

/* So many bytes from each of the others, which begin with the time that it has left. said: those of rank 0,
 * then of 1, and so on. What has come by the deadline is heard, however late the usher is. */
DDL_MUST_USE ddl_status ddl_gathering_collect(ddl_gathering *all, uint8_t *said, size_t bytes,
                                              ddl_error *err);

/* ---- the others ---- */

/* Whoever waits for the usher gives up then, and blames it: else all would not blame whom it blames. */
ddl_deadline ddl_gathering_patience(const ddl_gathering *all);

/* If the usher has ended it may have said why before: that is the error. */
DDL_MUST_USE ddl_status ddl_gathering_tell(const ddl_gathering *all, const void *data, size_t bytes,
                                           ddl_error *err);

DDL_MUST_USE ddl_status ddl_gathering_hear(const ddl_gathering *all, void *data, size_t bytes,
                                           ddl_error *err);

/* A word that is no failure; of one the error is what it tells. */
DDL_MUST_USE ddl_status ddl_gathering_hear_word(const ddl_gathering *all, ddl_usher_word *word,
                                                ddl_error *err);

#endif
