/* meshing_introducer.c - who has come, and what each is still to be handed. */
#include "rendezvous/meshing_introducer.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "io/local.h"
#include "io/socket.h"
#include "io/watch.h"

#include <errno.h>
#include <string.h>

enum {
    BLOCK = 8,        /* guests that are introduced to as many others at a time: the usher holds their ends */
    GATHER_MS = 200,  /* for more to come, as nobody can go on before all have; and between two signs */
    AGAIN_MS = 1,     /* others have to take first what is under way to them */
    REFUSED_MS = 2000 /* for that; from then on those of whom nobody has an end yet are to call each other */
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
    int rank, fd; /* fd: -1 if it has not come, or another way, or has gone */
    bool has_come;
    bool *knows;              /* other guests, of whom it was told or is about to be */
    struct introduction *due; /* it is still to be told of these */
    int ndue, ntold;          /* ntold: it was told of so many */
    bool is_denied;           /* what was last under way to it, by the system */
};

struct ddl_introducer {
    ddl_service *service;
    const ddl_roster *roster;
    ddl_alarm *alarm; /* to introduce who has come */
    struct guest *guests;
    struct introduction *dues; /* of all guests */
    bool *known;               /* likewise */
    int count, missing;        /* missing: guests that have not come */
    ddl_deadline sign_next;    /* to those who wait */
    ddl_deadline patience;     /* with a system that takes no descriptors */
    bool is_refused, gives_up; /* it takes none now; or did not for so long that there will be no more */
    bool is_denied;            /* the system lets nobody hand over any: */
    ddl_error denial;
    ddl_introducer_told *told;
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

/* ---- ends ---- */

static void drop_end(const ddl_introducer *introducer, int *fd)
{
    if (*fd >= 0)
        ddl_service_release(introducer->service, *fd);
    ddl_socket_close(fd);
}

/* Of which children of this process have none. */
static void make_ends(const ddl_introducer *introducer, int ends[2])
{
    if (ddl_local_pair(ends, NULL) != DDL_OK) {
        ends[0] = ends[1] = -1;
        return;
    }
    const bool holds = ddl_service_hold(introducer->service, ends[0]);
    if (holds && ddl_service_hold(introducer->service, ends[1]))
        return;
    if (holds)
        ddl_service_release(introducer->service, ends[0]);
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

static void owe(const ddl_introducer *introducer, struct guest *guest, int rank, int fd)
{
    DDL_ASSERT(guest->ndue < introducer->count);
    guest->due[guest->ndue++] = (struct introduction){ rank, fd };
}

/* Without ends they are to call each other. */
static void introduce(ddl_introducer *introducer, int first, int second)
{
    struct guest *one = &introducer->guests[first], *other = &introducer->guests[second];
    int ends[] = { -1, -1 };
    one->knows[second] = other->knows[first] = true;
    if (one->fd >= 0 && other->fd >= 0 && !introducer->gives_up)
        make_ends(introducer, ends);
    if (one->fd >= 0)
        owe(introducer, one, other->rank, ends[0]);
    if (other->fd >= 0)
        owe(introducer, other, one->rank, ends[1]);
}

static void forget_due(const ddl_introducer *introducer, struct guest *guest, int count)
{
    for (int i = 0; i < count; i++)
        drop_end(introducer, &guest->due[i].fd);
    guest->ndue -= count;
    memmove(guest->due, guest->due + count, (size_t)guest->ndue * sizeof *guest->due);
}

/* What this guest is owed of that one, with an end; NULL: nothing. */
static struct introduction *find_due(const struct guest *guest, int rank)
{
    for (int i = 0; i < guest->ndue; i++)
        if (guest->due[i].rank == rank && guest->due[i].fd >= 0)
            return &guest->due[i];
    return NULL;
}

/* No ends any more, and none of those of which both are still here. Where one has gone out already the other
 * one has to follow: who has it would take a closed one for the end of a rank. */
static void give_up(ddl_introducer *introducer)
{
    introducer->gives_up = true;
    for (int i = 1; i < introducer->count; i++)
        for (int k = i + 1; k < introducer->count; k++) {
            struct introduction *one = find_due(&introducer->guests[i], introducer->guests[k].rank);
            struct introduction *other = find_due(&introducer->guests[k], introducer->guests[i].rank);
            if (one != NULL && other != NULL) {
                drop_end(introducer, &one->fd);
                drop_end(introducer, &other->fd);
            }
        }
}

/* ---- telling ---- */

/* The first of what is due; of nothing, that the usher is still there. */
static ddl_status send_note(const struct guest *guest, int count, ddl_error *err)
{
    struct note note = { .count = (uint32_t)count };
    int descriptors[DDL_INTRODUCTIONS] = { -1 }, ndescriptors = 0;
    memcpy(note.magic, magic, sizeof magic);
    for (int i = 0; i < count; i++) {
        const struct introduction *due = &guest->due[i];
        note.others[i].rank = (uint32_t)due->rank;
        note.others[i].has = due->fd >= 0;
        if (due->fd >= 0)
            descriptors[ndescriptors++] = due->fd;
    }
    return ddl_local_send(guest->fd, &note, sizeof note, descriptors, ndescriptors, err);
}

/* False: later. */
static bool tell(ddl_introducer *introducer, struct guest *guest)
{
    while (guest->ndue > 0) {
        const int count = guest->ndue < DDL_INTRODUCTIONS ? guest->ndue : DDL_INTRODUCTIONS;
        ddl_error why;
        const ddl_status status = send_note(guest, count, &why);
        const bool has_gone = status != DDL_OK && (why.os_errno == EPIPE || why.os_errno == ECONNRESET);
        guest->is_denied = status == DDL_EUNSUPPORTED;
        if (guest->is_denied) {
            introducer->is_denied = true;
            introducer->denial = why;
        }
        if (status != DDL_OK && !has_gone)
            return false;
        forget_due(introducer, guest, has_gone ? guest->ndue : count);
        guest->ntold += count;
        if (has_gone) /* as the others see by their ends, or by its absence */
            guest->fd = -1;
    }
    return true;
}

static int block_end(const ddl_introducer *introducer, int first)
{
    return first + BLOCK < introducer->count ? first + BLOCK : introducer->count;
}

/* Those of two blocks, which may be one and the same, to each other. False: some are to be told later. */
static bool introduce_blocks(ddl_introducer *introducer, int first, int second)
{
    const int first_end = block_end(introducer, first), second_end = block_end(introducer, second);
    struct guest *guests = introducer->guests;
    bool all = true;
    for (int i = first; i < first_end; i++)
        for (int k = first == second ? i + 1 : second; k < second_end; k++)
            if (guests[i].has_come && guests[k].has_come && !guests[i].knows[k])
                introduce(introducer, i, k);
    for (int i = first; i < first_end; i++)
        all = tell(introducer, &guests[i]) && all;
    for (int k = second; k < second_end; k++)
        all = tell(introducer, &guests[k]) && all;
    return all;
}

/* False: others have to take first what is under way to them, and no more ends are made until then. */
static bool introduce_all(ddl_introducer *introducer)
{
    for (int first = 1; first < introducer->count; first += BLOCK)
        for (int second = first; second < introducer->count; second += BLOCK)
            if (!introduce_blocks(introducer, first, second))
                return false;
    return true;
}

/* Who was told of all others hears no more on this connection, which is its owner's. */
static bool expects_more(const ddl_introducer *introducer, const struct guest *guest)
{
    return guest->fd >= 0 && guest->ntold < introducer->count - 2;
}

/* Who waits is to know that it is not for the usher; if what is under way to it is not taken, it does. */
static void give_signs(ddl_introducer *introducer)
{
    if (!ddl_deadline_passed(introducer->sign_next))
        return;
    introducer->sign_next = ddl_deadline_in_ms(GATHER_MS);
    for (int i = 1; i < introducer->count; i++)
        if (expects_more(introducer, &introducer->guests[i]))
            (void)!send_note(&introducer->guests[i], 0, NULL);
}

/* Of those to whom the system lets nothing be handed, if that is so; else of all. */
static int first_untold(const ddl_introducer *introducer, bool denied)
{
    for (int i = 1; i < introducer->count; i++)
        if (introducer->guests[i].ndue > 0 && (!denied || introducer->guests[i].is_denied))
            return introducer->guests[i].rank;
    return -1;
}

static void on_alarm(void *arg)
{
    ddl_introducer *introducer = arg;
    bool all = introduce_all(introducer);
    if (!all && !introducer->is_refused)
        introducer->patience = ddl_deadline_in_ms(introducer->is_denied ? 0 : REFUSED_MS);
    if (!all && !introducer->gives_up && ddl_deadline_passed(introducer->patience)) {
        give_up(introducer);
        all = introduce_all(introducer);
    }
    introducer->is_refused = !all;
    if (!all || introducer->missing > 0) {
        give_signs(introducer);
        ddl_alarm_set(introducer->alarm, all ? GATHER_MS : AGAIN_MS);
    }
    const int left = all ? -1 : first_untold(introducer, false);
    const int denied = all || !introducer->gives_up ? -1 : first_untold(introducer, true);
    if (introducer->missing == 0 && denied >= 0)
        introducer->told(introducer->arg, denied, &introducer->denial);
    else if (introducer->missing == 0 && (all || left >= 0))
        introducer->told(introducer->arg, left, NULL);
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

/* ---- life ---- */

ddl_status ddl_introducer_open(ddl_service *service, const ddl_roster *roster, ddl_introducer_told *told,
                               void *arg, ddl_introducer **out, ddl_error *err)
{
    const size_t count = (size_t)roster->local_size_of[roster->rank];
    DDL_ASSERT(roster->local_rank_of[roster->rank] == 0);
    ddl_introducer *introducer = ddl_alloc(sizeof *introducer);
    if (introducer == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to introduce %zu ranks", count);
    introducer->service = service;
    introducer->roster = roster;
    introducer->guests = ddl_alloc_array(count, sizeof *introducer->guests);
    introducer->dues = ddl_alloc_array(count * count, sizeof *introducer->dues);
    introducer->known = ddl_alloc_array(count * count, sizeof *introducer->known);
    ddl_status status = DDL_OK;
    if (introducer->guests == NULL || introducer->dues == NULL || introducer->known == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to introduce %zu ranks", count);
    if (status == DDL_OK)
        status = ddl_alarm_open(service, on_alarm, introducer, &introducer->alarm, err);
    if (status != DDL_OK) {
        ddl_introducer_close(introducer);
        return status;
    }
    for (int rank = 0; rank < roster->nranks; rank++)
        if (ddl_roster_is_neighbour(roster, rank)) {
            const size_t local = (size_t)roster->local_rank_of[rank];
            introducer->guests[local] = (struct guest){ .rank = rank,
                                                        .fd = -1,
                                                        .knows = introducer->known + local * count,
                                                        .due = introducer->dues + local * count };
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
        forget_due(introducer, &introducer->guests[i], introducer->guests[i].ndue);
    ddl_alarm_close(introducer->alarm);
    ddl_free(introducer->guests);
    ddl_free(introducer->dues);
    ddl_free(introducer->known);
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
