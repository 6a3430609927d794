/* introducer.c - who has come, and what each is still to be handed. */
#include "rendezvous/introducer.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/local.h"
#include "io/socket.h"
#include "io/watch.h"

#include <string.h>

enum {
    BLOCK = 8,       /* guests that are introduced to as many others at a time: the usher holds their ends */
    GATHER_MS = 200, /* for more to come, as nobody can go on before all have; then all hear something */
    AGAIN_MS = 1     /* others have to take first what is under way to them */
};

/* In the byte order of the host; the descriptors come with it, in this order. */
struct note {
    uint8_t magic[4];
    uint32_t count;
    struct {
        uint32_t rank, has; /* has: a descriptor */
    } others[DDL_INTRODUCTIONS];
};

static const uint8_t magic[4] = { 'd', 'd', 'l', 5 };

struct introduction {
    int rank, fd; /* fd: -1 for none */
};

/* A rank of this host, as ddl_roster.local_rank_of counts them. */
struct guest {
    int rank, fd;             /* fd: -1 if it has not come, or another way, or has gone */
    bool has_come, is_new;    /* is_new: it was introduced to nobody yet */
    struct introduction *due; /* it is still to be told of these */
    int ndue;
};

struct ddl_introducer {
    const ddl_roster *roster;
    ddl_alarm *alarm; /* to introduce who has come */
    struct guest *guests;
    struct introduction *room; /* of all guests */
    int count, missing;        /* missing: guests that have not come */
    void (*told)(void *arg, int left);
    void *arg;
};

bool ddl_introduces(const ddl_roster *roster)
{
    return roster->local_size_of[roster->rank] > 2 && ddl_roster_connects_hosts(roster);
}

int ddl_usher_of(const ddl_roster *roster)
{
    int rank = 0;
    while (roster->node_of[rank] != roster->node_of[roster->rank])
        rank++;
    return rank;
}

static void owe(const ddl_introducer *introducer, struct guest *guest, int rank, int fd)
{
    DDL_ASSERT(guest->ndue < introducer->count);
    guest->due[guest->ndue++] = (struct introduction){ rank, fd };
}

static void introduce(const ddl_introducer *introducer, struct guest *one, struct guest *other)
{
    int ends[] = { -1, -1 };
    if (one->fd >= 0 && other->fd >= 0 && ddl_local_pair(ends, NULL) != DDL_OK)
        ends[0] = ends[1] = -1; /* so they call */
    if (one->fd >= 0)
        owe(introducer, one, other->rank, ends[0]);
    if (other->fd >= 0)
        owe(introducer, other, one->rank, ends[1]);
}

static void forget_due(struct guest *guest, int count)
{
    for (int i = 0; i < count; i++)
        ddl_socket_close(&guest->due[i].fd);
    guest->ndue -= count;
    memmove(guest->due, guest->due + count, (size_t)guest->ndue * sizeof *guest->due);
}

/* These of what is due, and if that is nothing that the usher is still there. */
static ddl_status tell_some(const struct guest *guest, uint32_t count)
{
    struct note note = { .count = count };
    int descriptors[DDL_INTRODUCTIONS] = { -1 }, ndescriptors = 0;
    memcpy(note.magic, magic, sizeof magic);
    for (uint32_t i = 0; i < count; i++) {
        const struct introduction *due = &guest->due[i];
        note.others[i].rank = (uint32_t)due->rank;
        note.others[i].has = due->fd >= 0;
        if (due->fd >= 0)
            descriptors[ndescriptors++] = due->fd;
    }
    return ddl_local_send(guest->fd, &note, sizeof note, descriptors, ndescriptors, NULL);
}

/* False: later. */
static bool tell(struct guest *guest)
{
    while (guest->ndue > 0) {
        const int count = guest->ndue < DDL_INTRODUCTIONS ? guest->ndue : DDL_INTRODUCTIONS;
        ddl_status status = tell_some(guest, (uint32_t)count);
        if (status == DDL_ETIMEDOUT)
            return false;
        forget_due(guest, status == DDL_OK ? count : guest->ndue);
        if (status != DDL_OK) /* it has gone, as the others will see by their ends, or by its absence */
            guest->fd = -1;
    }
    return true;
}

static bool are_due(const struct guest *one, const struct guest *other)
{
    return one->has_come && other->has_come && (one->is_new || other->is_new);
}

static int block_end(const ddl_introducer *introducer, int first)
{
    return first + BLOCK < introducer->count ? first + BLOCK : introducer->count;
}

/* Those of two blocks, which may be one and the same, to each other. */
static void introduce_blocks(ddl_introducer *introducer, int first, int second)
{
    const int first_end = block_end(introducer, first);
    const int second_end = block_end(introducer, second);
    for (int i = first; i < first_end; i++)
        for (int k = first == second ? i + 1 : second; k < second_end; k++)
            if (are_due(&introducer->guests[i], &introducer->guests[k]))
                introduce(introducer, &introducer->guests[i], &introducer->guests[k]);
    for (int i = first; i < first_end; i++)
        (void)tell(&introducer->guests[i]);
    for (int k = second; k < second_end; k++)
        (void)tell(&introducer->guests[k]);
}

/* They wait for others who have not come, and are to know that it is not for the usher. */
static void give_sign(struct guest *guest)
{
    ddl_status status = guest->fd >= 0 && guest->ndue == 0 ? tell_some(guest, 0) : DDL_OK;
    (void)status; /* who does not take what is under way to it will hear of it, and of one that has gone all
                     do */
}

static void introduce_all(void *arg)
{
    ddl_introducer *introducer = arg;
    int left = -1;
    for (int first = 1; first < introducer->count; first += BLOCK)
        for (int second = first; second < introducer->count; second += BLOCK)
            introduce_blocks(introducer, first, second);
    for (int i = introducer->count - 1; i > 0; i--) {
        struct guest *guest = &introducer->guests[i];
        guest->is_new = guest->is_new && !guest->has_come;
        if (!tell(guest))
            left = guest->rank;
        if (introducer->missing > 0)
            give_sign(guest);
    }
    if (left >= 0)
        ddl_alarm_set(introducer->alarm, AGAIN_MS);
    else if (introducer->missing > 0)
        ddl_alarm_set(introducer->alarm, GATHER_MS);
    if (introducer->missing == 0)
        introducer->told(introducer->arg, left);
}

void ddl_introducer_welcome(ddl_introducer *introducer, int rank, int fd)
{
    struct guest *guest = &introducer->guests[introducer->roster->local_rank_of[rank]];
    DDL_ASSERT(ddl_roster_is_neighbour(introducer->roster, rank));
    DDL_ASSERT(!guest->has_come);
    guest->has_come = true;
    guest->fd = fd;
    if (--introducer->missing == 0)
        ddl_alarm_set(introducer->alarm, 0);
}

ddl_status ddl_introducer_open(ddl_service *service, const ddl_roster *roster,
                               void (*told)(void *arg, int left), void *arg, ddl_introducer **out,
                               ddl_error *err)
{
    const size_t count = (size_t)roster->local_size_of[roster->rank];
    DDL_ASSERT(roster->local_rank_of[roster->rank] == 0);
    ddl_introducer *introducer = ddl_alloc(sizeof *introducer);
    if (introducer == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to introduce %zu ranks", count);
    introducer->roster = roster;
    introducer->guests = ddl_alloc_array(count, sizeof *introducer->guests);
    introducer->room = ddl_alloc_array(count * count, sizeof *introducer->room);
    ddl_status status = DDL_OK;
    if (introducer->guests == NULL || introducer->room == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to introduce %zu ranks", count);
    if (status == DDL_OK)
        status = ddl_alarm_open(service, introduce_all, introducer, &introducer->alarm, err);
    if (status != DDL_OK) {
        ddl_introducer_close(introducer);
        return status;
    }
    for (int rank = 0; rank < roster->nranks; rank++)
        if (ddl_roster_is_neighbour(roster, rank)) {
            const int local = roster->local_rank_of[rank];
            introducer->guests[local] = (struct guest){
                .rank = rank, .fd = -1, .is_new = true, .due = introducer->room + (size_t)local * count
            };
        }
    introducer->count = (int)count;
    introducer->missing = (int)count - 1;
    introducer->told = told;
    introducer->arg = arg;
    ddl_alarm_set(introducer->alarm, GATHER_MS);
    *out = introducer;
    return DDL_OK;
}

void ddl_introducer_close(ddl_introducer *introducer)
{
    if (introducer == NULL)
        return;
    for (int i = 1; i < introducer->count; i++)
        forget_due(&introducer->guests[i], introducer->guests[i].ndue);
    ddl_alarm_close(introducer->alarm);
    ddl_free(introducer->guests);
    ddl_free(introducer->room);
    ddl_free(introducer);
}

/* ---- at the others ---- */

/* What it names are ranks to be connected here, and it has as many descriptors as it says. */
static bool is_sound(const ddl_roster *roster, const struct note *note, int found)
{
    int has = 0;
    if (memcmp(note->magic, magic, sizeof magic) != 0 || note->count > DDL_INTRODUCTIONS)
        return false;
    for (uint32_t i = 0; i < note->count; i++) {
        const uint32_t rank = note->others[i].rank;
        if (rank >= (uint32_t)roster->nranks || !ddl_roster_is_neighbour(roster, (int)rank) ||
            roster->local_rank_of[rank] == 0 || note->others[i].has > 1)
            return false;
        has += (int)note->others[i].has;
    }
    return has == found;
}

ddl_status ddl_introductions_take(const ddl_roster *roster, int fd, ddl_introductions *introductions,
                                  ddl_error *err)
{
    struct note note;
    int descriptors[DDL_INTRODUCTIONS], found;
    DDL_TRY(ddl_local_receive(fd, &note, sizeof note, descriptors, DDL_INTRODUCTIONS, &found, err));
    if (!is_sound(roster, &note, found)) {
        for (int i = 0; i < found; i++)
            ddl_socket_close(&descriptors[i]);
        return DDL_FAIL(err, DDL_EPROTO, "it introduces others that are not of this host");
    }
    introductions->count = (int)note.count;
    for (int i = 0, k = 0; i < introductions->count; i++) {
        introductions->ranks[i] = (int)note.others[i].rank;
        introductions->fds[i] = note.others[i].has != 0 ? descriptors[k++] : -1;
    }
    return DDL_OK;
}
