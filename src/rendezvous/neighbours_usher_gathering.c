/* neighbours_usher_gathering.c - see neighbours_usher_gathering.h. */
#include "rendezvous/neighbours_usher_gathering.h"

#include "base/bytes.h"
#include "rendezvous/neighbours_talk.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum {
    MARGIN_MS = 2000, /* the usher gives up so much before the first of the others would, */
    GRACE_MS = 500    /* and is heard so much after that, as it may have had to wait for a CPU */
};

const uint8_t ddl_usher_magic[4] = { 'd', 'd', 'l', 4 };

static bool has_memory(const ddl_gathering *all)
{
    return all->ranks != NULL && all->have != NULL && all->fds != NULL && all->polled != NULL;
}

void ddl_gathering_close(ddl_gathering *all)
{
    ddl_free(all->ranks);
    ddl_free(all->have);
    ddl_free(all->fds);
    ddl_free(all->polled);
}

ddl_status ddl_gathering_open(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                              ddl_gathering *all, ddl_error *err)
{
    size_t count = (size_t)roster->local_size_of[roster->rank];
    *all = (ddl_gathering){ .roster = roster,
                            .wires = wires,
                            .deadline = deadline,
                            .count = (int)count,
                            .self = roster->local_rank_of[roster->rank],
                            .ranks = ddl_alloc_array(count, sizeof(int)),
                            .have = ddl_alloc_array(count, sizeof(size_t)),
                            .fds = ddl_alloc_array(count + 1, sizeof(struct pollfd)),
                            .polled = ddl_alloc_array(count + 1, sizeof(int)) };
    if (!has_memory(all)) {
        ddl_gathering_close(all);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to meet %zu ranks", count);
    }
    for (int rank = 0; rank < roster->nranks; rank++)
        if (roster->node_of[rank] == roster->node_of[roster->rank])
            all->ranks[roster->local_rank_of[rank]] = rank;
    return DDL_OK;
}

/* ---- what the usher says to all ---- */

ddl_usher_word ddl_gathering_word(ddl_usher_kind kind)
{
    ddl_usher_word word = { .kind = (uint8_t)kind };
    memcpy(word.magic, ddl_usher_magic, sizeof ddl_usher_magic);
    return word;
}

void ddl_gathering_tell_of_failure(const ddl_gathering *all, const ddl_error *why)
{
    bool is_foreign = why->code == DDL_EPROTO && why->os_errno == 0; /* else its session is broken */
    ddl_usher_kind kind = is_foreign                   ? DDL_USHER_FOREIGN
                          : why->code == DDL_ETIMEDOUT ? DDL_USHER_LATE
                                                       : DDL_USHER_LOST;
    ddl_usher_word word = ddl_gathering_word(kind);
    ddl_error unwanted;
    if (why->culprit < 0)
        return;
    word.culprit = (uint32_t)why->culprit;
    for (int i = 1; i < all->count; i++) {
        ddl_status told =
            ddl_neighbour_tell(all->roster, all->wires, all->ranks[i], &word, sizeof word, &unwanted);
        (void)told;
    }
}

ddl_deadline ddl_gathering_patience(const ddl_gathering *all)
{
    const ddl_deadline grace = GRACE_MS * DDL_NS_PER_MS;
    return all->deadline < DDL_DEADLINE_NEVER - grace ? all->deadline + grace : DDL_DEADLINE_NEVER;
}

ddl_status ddl_gathering_hear(const ddl_gathering *all, void *data, size_t bytes, ddl_error *err)
{
    return ddl_neighbour_hear(all->roster, all->wires, all->ranks[0], data, bytes,
                              ddl_gathering_patience(all), err);
}

ddl_status ddl_gathering_hear_word(const ddl_gathering *all, ddl_usher_word *word, ddl_error *err)
{
    const ddl_roster *roster = all->roster;
    int usher = all->ranks[0];
    DDL_TRY(ddl_gathering_hear(all, word, sizeof *word, err));
    if (memcmp(word->magic, ddl_usher_magic, sizeof ddl_usher_magic) != 0 || word->kind < DDL_USHER_NO_DOOR ||
        word->kind > DDL_USHER_FOREIGN || word->culprit >= (uint32_t)roster->nranks)
        return ddl_neighbour_foreign(usher, err);
    if (word->kind == DDL_USHER_LOST)
        return ddl_neighbour_lost(roster, all->wires, (int)word->culprit, 0, err);
    if (word->kind == DDL_USHER_LATE)
        return ddl_neighbour_late(roster, (int)word->culprit, err);
    return word->kind == DDL_USHER_FOREIGN ? ddl_neighbour_foreign((int)word->culprit, err) : DDL_OK;
}

ddl_status ddl_gathering_tell(const ddl_gathering *all, const void *data, size_t bytes, ddl_error *err)
{
    const int usher = all->ranks[0];
    ddl_usher_word word;
    ddl_error said;
    ddl_status status = ddl_neighbour_tell(all->roster, all->wires, usher, data, bytes, err);
    if (status == DDL_OK || ddl_gathering_hear_word(all, &word, &said) == DDL_OK || said.culprit == usher)
        return status;
    *err = said;
    return said.code;
}

/* ---- what the usher hears from each ---- */

/* Others began earlier: none is to give up before the usher has told it whom all wait for. */
static void heed(ddl_gathering *all, const uint8_t *said)
{
    uint32_t their_ms;
    memcpy(&their_ms, said, sizeof their_ms);
    uint32_t margin_ms = their_ms / 8 < MARGIN_MS ? their_ms / 8 : MARGIN_MS;
    ddl_deadline theirs = ddl_deadline_in_ms((int64_t)their_ms - margin_ms);
    if (theirs < all->deadline)
        all->deadline = theirs;
}

static ddl_status hear_some(ddl_gathering *all, int local, uint8_t *said, size_t bytes, ddl_error *err)
{
    size_t *have = &all->have[local];
    ssize_t got = ddl_wire_read(ddl_gathering_wire(all, local), said + *have, bytes - *have);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
        return ddl_neighbour_lost(all->roster, all->wires, all->ranks[local], got < 0 ? errno : 0, err);
    *have += got > 0 ? (size_t)got : 0;
    if (*have == bytes)
        heed(all, said);
    return DDL_OK;
}

void ddl_gathering_poll_too(ddl_gathering *all, int *count, int fd, int local)
{
    all->polled[*count] = local;
    all->fds[(*count)++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

ddl_status ddl_gathering_collect(ddl_gathering *all, uint8_t *said, size_t bytes, ddl_error *err)
{
    memset(all->have, 0, (size_t)all->count * sizeof *all->have);
    for (int left = INT_MAX;;) {
        int count = 0;
        bool unread = false, late = ddl_deadline_passed(all->deadline);
        for (int i = 1; i < all->count; i++)
            if (all->have[i] < bytes) {
                ddl_gathering_poll_too(all, &count, ddl_gathering_wire(all, i)->fd, i);
                unread = unread || ddl_wire_has_unread(ddl_gathering_wire(all, i));
            }
        if (count == 0)
            return DDL_OK;
        if (late && count == left)
            return ddl_neighbour_late(all->roster, all->ranks[all->polled[0]], err);
        left = late ? count : INT_MAX;
        (void)poll(all->fds, (nfds_t)count, unread ? 0 : ddl_deadline_left_ms(all->deadline));
        for (int k = 0; k < count; k++) {
            int i = all->polled[k];
            if (all->fds[k].revents != 0 || ddl_wire_has_unread(ddl_gathering_wire(all, i)))
                DDL_TRY(hear_some(all, i, said + (size_t)i * bytes, bytes, err));
        }
    }
}
