/*
 * usher.c - each rank tells the usher that it is there, hears of a door, and calls; the usher answers.
 *
 * What is told goes over the mesh's connections, whose ends have proved who they are: at the first a token
 * too, that is to be shown at the door. What ranks could map they tell the usher again, and hear from it what
 * both of each pair could. If a rank is lost, or late, the usher tells the others which: so all blame the
 * same one.
 */
#include "rendezvous/usher.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/crypto.h"
#include "io/host.h"
#include "io/local.h"
#include "io/socket.h"
#include "rendezvous/neighbour_talk.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH = DDL_LOCAL_FDS_MOST / 2, /* of ranks in one note */
    TOKEN_BYTES = 16,
    NOTE_LIMIT_MS = 1000, /* between a call that was taken and the note that its caller sends at once */
    ROOM_LIMIT_MS = 5000, /* in all, for others to take what is under way, or to take calls */
    ROOM_PAUSE_MS = 1,
    MARGIN_MS = 2000, /* the usher gives up so much before the first of the others would, */
    GRACE_MS = 500    /* and is heard so much after that, as it may have had to wait for a CPU */
};

/* What ranks of a host send each other is in the byte order of the host. */
struct arrival { /* a rank is there */
    uint32_t left_ms;
    uint8_t magic[4];
    uint8_t has; /* shared memory to hand over */
    uint8_t zero[3];
};

enum word_kind { NO_DOOR = 1, DOOR, AGREED, LOST, LATE, FOREIGN };

struct word { /* from the usher */
    uint8_t magic[4];
    uint8_t kind;
    uint8_t common; /* AGREED: what all pairs share; what those of this rank do follows, a byte for each */
    uint8_t zero[2];
    uint32_t culprit; /* LOST, LATE, FOREIGN */
    uint8_t token[TOKEN_BYTES];
    char door[DDL_LOCAL_NAME_BYTES];
};

struct note { /* with a rank's own memory and bell */
    uint32_t rank;
    uint8_t token[TOKEN_BYTES];
};

struct batch { /* with the memory and the bell of each of these ranks */
    uint32_t count, more;
    uint32_t ranks[BATCH];
};

static const uint8_t magic[4] = { 'd', 'd', 'l', 4 };

/* Ranks of this host are counted as ddl_roster.local_rank_of does, and so are the arrays here. */
struct gathering {
    const ddl_roster *roster;
    ddl_wire *wires;
    ddl_deadline deadline;
    int count, self, *ranks; /* the usher is 0 */
    size_t *have;            /* usher: bytes of what each rank is to say */
    struct pollfd *fds;      /* usher: count + 1 */
    int *polled;             /* whose these are */
};

/* Of a meeting. */
struct hall {
    struct gathering *all;
    ddl_neighbour own, *others; /* others: by rank of the world */
    ddl_apart *apart;
    int door;
    uint8_t token[TOKEN_BYTES];
    ddl_deadline room; /* for others to take calls, and descriptors */
    int *calls;        /* the Unix sockets of who has called; -1: none */
    bool *expected;    /* will call */
    ddl_error refused; /* why the first of the calls that came to nothing did; DDL_OK: there was none */
};

static bool has_memory(const struct gathering *all)
{
    return all->ranks != NULL && all->have != NULL && all->fds != NULL && all->polled != NULL;
}

static void close_gathering(struct gathering *all)
{
    ddl_free(all->ranks);
    ddl_free(all->have);
    ddl_free(all->fds);
    ddl_free(all->polled);
}

static ddl_status open_gathering(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                                 struct gathering *all, ddl_error *err)
{
    size_t count = (size_t)roster->local_size_of[roster->rank];
    *all = (struct gathering){ .roster = roster,
                               .wires = wires,
                               .deadline = deadline,
                               .count = (int)count,
                               .self = roster->local_rank_of[roster->rank],
                               .ranks = ddl_alloc_array(count, sizeof(int)),
                               .have = ddl_alloc_array(count, sizeof(size_t)),
                               .fds = ddl_alloc_array(count + 1, sizeof(struct pollfd)),
                               .polled = ddl_alloc_array(count + 1, sizeof(int)) };
    if (!has_memory(all)) {
        close_gathering(all);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to meet %zu ranks", count);
    }
    for (int rank = 0; rank < roster->nranks; rank++)
        if (roster->node_of[rank] == roster->node_of[roster->rank])
            all->ranks[roster->local_rank_of[rank]] = rank;
    return DDL_OK;
}

static ddl_wire *wire_of(const struct gathering *all, int local)
{
    return &all->wires[all->ranks[local]];
}

static uint32_t left_ms(const struct gathering *all)
{
    return (uint32_t)ddl_deadline_left_ms(all->deadline);
}

/* ---- what the usher says to all ---- */

static struct word word_of(enum word_kind kind)
{
    struct word word = { .kind = (uint8_t)kind };
    memcpy(word.magic, magic, sizeof magic);
    return word;
}

/* Best effort: who does not hear it sees the usher end. */
static void tell_of_failure(const struct gathering *all, const ddl_error *why)
{
    bool is_foreign = why->code == DDL_EPROTO && why->os_errno == 0; /* else its session is broken */
    enum word_kind kind = is_foreign ? FOREIGN : why->code == DDL_ETIMEDOUT ? LATE : LOST;
    struct word word = word_of(kind);
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

/* Whoever waits for the usher gives up then, and blames it: else all would not blame whom it blames. */
static ddl_deadline patience(const struct gathering *all)
{
    const ddl_deadline grace = GRACE_MS * DDL_NS_PER_MS;
    return all->deadline < DDL_DEADLINE_NEVER - grace ? all->deadline + grace : DDL_DEADLINE_NEVER;
}

static ddl_status hear_usher(const struct gathering *all, void *data, size_t bytes, ddl_error *err)
{
    return ddl_neighbour_hear(all->roster, all->wires, all->ranks[0], data, bytes, patience(all), err);
}

static ddl_status hear_word(const struct gathering *all, struct word *word, ddl_error *err)
{
    const ddl_roster *roster = all->roster;
    int usher = all->ranks[0];
    DDL_TRY(hear_usher(all, word, sizeof *word, err));
    if (memcmp(word->magic, magic, sizeof magic) != 0 || word->kind < NO_DOOR || word->kind > FOREIGN ||
        word->culprit >= (uint32_t)roster->nranks)
        return ddl_neighbour_foreign(usher, err);
    if (word->kind == LOST)
        return ddl_neighbour_lost(roster, all->wires, (int)word->culprit, 0, err);
    if (word->kind == LATE)
        return ddl_neighbour_late(roster, (int)word->culprit, err);
    return word->kind == FOREIGN ? ddl_neighbour_foreign((int)word->culprit, err) : DDL_OK;
}

/* If the usher has ended it may have said why before. */
static ddl_status tell_usher(const struct gathering *all, const void *data, size_t bytes, ddl_error *err)
{
    const int usher = all->ranks[0];
    struct word word;
    ddl_error said;
    ddl_status status = ddl_neighbour_tell(all->roster, all->wires, usher, data, bytes, err);
    if (status == DDL_OK || hear_word(all, &word, &said) == DDL_OK || said.culprit == usher)
        return status;
    *err = said;
    return said.code;
}

/* ---- what the usher hears from each ---- */

/* Others began earlier: none is to give up before the usher has told it whom all wait for. */
static void heed(struct gathering *all, const uint8_t *said)
{
    uint32_t their_ms;
    memcpy(&their_ms, said, sizeof their_ms);
    uint32_t margin_ms = their_ms / 8 < MARGIN_MS ? their_ms / 8 : MARGIN_MS;
    ddl_deadline theirs = ddl_deadline_in_ms((int64_t)their_ms - margin_ms);
    if (theirs < all->deadline)
        all->deadline = theirs;
}

static ddl_status hear_some(struct gathering *all, int local, uint8_t *said, size_t bytes, ddl_error *err)
{
    size_t *have = &all->have[local];
    ssize_t got = ddl_wire_read(wire_of(all, local), said + *have, bytes - *have);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
        return ddl_neighbour_lost(all->roster, all->wires, all->ranks[local], got < 0 ? errno : 0, err);
    *have += got > 0 ? (size_t)got : 0;
    if (*have == bytes)
        heed(all, said);
    return DDL_OK;
}

static void poll_too(struct gathering *all, int *count, int fd, int local)
{
    all->polled[*count] = local;
    all->fds[(*count)++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

/* So many bytes from each of the others, which begin with the time that it has left. said: those of rank 0,
 * then of 1, and so on. What has come by the deadline is heard, however late the usher is. */
static ddl_status collect(struct gathering *all, uint8_t *said, size_t bytes, ddl_error *err)
{
    memset(all->have, 0, (size_t)all->count * sizeof *all->have);
    for (int left = INT_MAX;;) {
        int count = 0;
        bool unread = false, late = ddl_deadline_passed(all->deadline);
        for (int i = 1; i < all->count; i++)
            if (all->have[i] < bytes) {
                poll_too(all, &count, wire_of(all, i)->fd, i);
                unread = unread || ddl_wire_has_unread(wire_of(all, i));
            }
        if (count == 0)
            return DDL_OK;
        if (late && count == left)
            return ddl_neighbour_late(all->roster, all->ranks[all->polled[0]], err);
        left = late ? count : INT_MAX;
        (void)poll(all->fds, (nfds_t)count, unread ? 0 : ddl_deadline_left_ms(all->deadline));
        for (int k = 0; k < count; k++) {
            int i = all->polled[k];
            if (all->fds[k].revents != 0 || ddl_wire_has_unread(wire_of(all, i)))
                DDL_TRY(hear_some(all, i, said + (size_t)i * bytes, bytes, err));
        }
    }
}

/* ---- the door ---- */

static void close_neighbour(ddl_neighbour *neighbour)
{
    ddl_socket_close(&neighbour->memory_fd);
    ddl_socket_close(&neighbour->bell_fd);
}

static void drop_all(struct hall *hall)
{
    for (int i = 0; i < hall->all->count; i++)
        close_neighbour(&hall->others[hall->all->ranks[i]]);
}

/* DDL_ETIMEDOUT: others do not take what is under way to them. */
static ddl_status send_note(const struct hall *hall, int fd, const void *note, size_t bytes,
                            const int descriptors[], int count, ddl_error *err)
{
    ddl_status status;
    while ((status = ddl_local_send(fd, note, bytes, descriptors, count, err)) == DDL_ETIMEDOUT) {
        if (ddl_deadline_passed(hall->room))
            return status;
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(ROOM_PAUSE_MS));
    }
    return status;
}

/* A deadline of its own for what can be done without: half of the time that is left is for the rest. */
static ddl_deadline limit_of(const struct gathering *all, int most_ms)
{
    int half_ms = ddl_deadline_left_ms(all->deadline) / 2;
    return ddl_deadline_in_ms(half_ms < most_ms ? half_ms : most_ms);
}

static void refuse(struct hall *hall, const ddl_error *why)
{
    if (hall->refused.code == DDL_OK)
        hall->refused = *why;
}

/* Who has not called is not waited for at the door: it sees that there is none, and goes on to agreeing. */
static void close_door(struct hall *hall, const ddl_error *why)
{
    refuse(hall, why);
    ddl_socket_close(&hall->door);
}

/* Take a call; which rank it is, the note says, and the token that it belongs to the job. False: there was
 * none. */
static bool answer(struct hall *hall)
{
    const struct gathering *all = hall->all;
    const ddl_roster *roster = all->roster;
    ddl_neighbour other = { -1, -1 };
    struct note note = { 0 };
    ddl_error error;
    int fd;
    ddl_status status = ddl_local_accept(hall->door, &fd, &error);
    if (status == DDL_ERESOURCE)
        close_door(hall, &error);
    if (status != DDL_OK)
        return status == DDL_EAUTH; /* nobody any more, or a stranger */
    status = ddl_neighbour_take(fd, &note, sizeof note, limit_of(all, NOTE_LIMIT_MS), &other, &error);
    if (status == DDL_EPROTO || status == DDL_ERESOURCE ||
        status == DDL_EUNSUPPORTED) /* of its own descriptors this rank lacks, for one */
        refuse(hall, &error);
    bool wanted = status == DDL_OK && note.rank < (uint32_t)roster->nranks &&
                  ddl_roster_is_neighbour(roster, (int)note.rank) &&
                  ddl_same_secret(note.token, hall->token, TOKEN_BYTES);
    int local = wanted ? roster->local_rank_of[note.rank] : 0;
    if (wanted && hall->expected[local]) {
        hall->expected[local] = false;
        hall->calls[local] = fd;
        hall->others[note.rank] = other;
    } else {
        close_neighbour(&other);
        close(fd);
    }
    return true;
}

/* Something is on its connection, so it does not call any more; or nothing will ever be. */
static ddl_status look_at(struct hall *hall, int local, ddl_error *err)
{
    const struct gathering *all = hall->all;
    uint8_t byte;
    ssize_t got = ddl_socket_peek(wire_of(all, local)->fd, &byte, 1);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return ddl_neighbour_lost(all->roster, all->wires, all->ranks[local], got < 0 ? errno : 0, err);
    if (got > 0)
        hall->expected[local] = false;
    return DDL_OK;
}

/* Until everybody who has memory has called, or has gone on to agreeing without. */
static ddl_status take_calls(struct hall *hall, ddl_error *err)
{
    struct gathering *all = hall->all;
    for (int left = INT_MAX;;) {
        int count = 0;
        bool late = ddl_deadline_passed(all->deadline);
        poll_too(all, &count, hall->door, -1);
        for (int i = 1; i < all->count; i++) {
            if (hall->expected[i] && ddl_wire_has_unread(wire_of(all, i)))
                hall->expected[i] = false;
            if (hall->expected[i])
                poll_too(all, &count, wire_of(all, i)->fd, i);
        }
        if (count == 1)
            return DDL_OK;
        if (late && count == left)
            return ddl_neighbour_late(all->roster, all->ranks[all->polled[1]], err);
        left = late ? count : INT_MAX;
        (void)poll(all->fds, (nfds_t)count, ddl_deadline_left_ms(all->deadline));
        bool called = all->fds[0].revents != 0;
        for (int calls = 0; called && hall->door >= 0 && calls < all->count; calls++)
            called = answer(hall);
        for (int k = 1; k < count; k++)
            if (all->fds[k].revents != 0)
                DDL_TRY(look_at(hall, all->polled[k], err));
    }
}

/* To one that has called, what the others have. */
static ddl_status hand_over(struct hall *hall, int local, ddl_error *err)
{
    const struct gathering *all = hall->all;
    struct batch batch = { 0 };
    int descriptors[2 * BATCH];
    for (int i = 0; i < all->count; i++) {
        const ddl_neighbour *has = i == 0 ? &hall->own : &hall->others[all->ranks[i]];
        if (i == local || has->memory_fd < 0)
            continue;
        if (batch.count == BATCH) {
            batch.more = 1;
            DDL_TRY(send_note(hall, hall->calls[local], &batch, sizeof batch, descriptors, 2 * BATCH, err));
            batch = (struct batch){ 0 };
        }
        descriptors[2 * batch.count] = has->memory_fd;
        descriptors[2 * batch.count + 1] = has->bell_fd;
        batch.ranks[batch.count++] = (uint32_t)all->ranks[i];
    }
    return send_note(hall, hall->calls[local], &batch, sizeof batch, descriptors, 2 * (int)batch.count, err);
}

static void hand_out(struct hall *hall)
{
    hall->room = limit_of(hall->all, ROOM_LIMIT_MS);
    for (int i = 1; i < hall->all->count; i++) {
        ddl_error error;
        const ddl_status status = hall->calls[i] >= 0 ? hand_over(hall, i, &error) : DDL_OK;
        if (status != DDL_OK && status != DDL_EPEERLOST) /* who has left says why */
            ddl_apart_add(hall->apart, hall->all->ranks[i], &error);
    }
}

/* Is there anybody to call, there is a door. */
static struct word open_door(struct hall *hall, const struct arrival arrivals[])
{
    ddl_error error;
    struct word word = word_of(DOOR);
    int able = hall->own.memory_fd >= 0;
    for (int i = 1; i < hall->all->count; i++)
        able += hall->expected[i] = arrivals[i].has != 0;
    if (able > 1) {
        ddl_status status = ddl_host_random(hall->token, TOKEN_BYTES, &error);
        if (status == DDL_OK)
            status = ddl_local_listen(hall->all->count, word.door, &hall->door, &error);
        memcpy(word.token, hall->token, TOKEN_BYTES);
        if (status == DDL_OK)
            return word;
        ddl_apart_add_all(hall->apart, &error);
    }
    memset(hall->expected, 0, (size_t)hall->all->count * sizeof *hall->expected);
    return word_of(NO_DOOR);
}

/* Which rank it was whose call came to nothing shows when all have called who do. */
static void tell_refused(struct hall *hall, const struct arrival arrivals[])
{
    for (int i = 1; hall->refused.code != DDL_OK && i < hall->all->count; i++)
        if (arrivals[i].has != 0 && hall->calls[i] < 0)
            ddl_apart_add(hall->apart, hall->all->ranks[i], &hall->refused);
}

/* ---- meeting ---- */

static ddl_status usher_in(struct hall *hall, struct arrival arrivals[], ddl_error *err)
{
    struct gathering *all = hall->all;
    DDL_TRY(collect(all, (uint8_t *)arrivals, sizeof *arrivals, err));
    for (int i = 1; i < all->count; i++)
        if (memcmp(arrivals[i].magic, magic, sizeof magic) != 0 || arrivals[i].has > 1)
            return ddl_neighbour_foreign(all->ranks[i], err);
    struct word word = open_door(hall, arrivals);
    for (int i = 1; i < all->count; i++)
        DDL_TRY(ddl_neighbour_tell(all->roster, all->wires, all->ranks[i], &word, sizeof word, err));
    DDL_TRY(take_calls(hall, err));
    ddl_socket_close(&hall->door);
    if (hall->own.memory_fd >= 0)
        tell_refused(hall, arrivals);
    hand_out(hall);
    if (hall->own.memory_fd < 0) /* it shares with nobody, whatever it has handed on */
        drop_all(hall);
    return DDL_OK;
}

static ddl_status serve(struct hall *hall, ddl_error *err)
{
    size_t count = (size_t)hall->all->count;
    struct arrival *arrivals = ddl_alloc_array(count, sizeof *arrivals);
    hall->calls = ddl_alloc_array(count, sizeof *hall->calls);
    hall->expected = ddl_alloc_array(count, sizeof *hall->expected);
    ddl_status status;
    for (size_t i = 0; hall->calls != NULL && i < count; i++)
        hall->calls[i] = -1;
    if (arrivals == NULL || hall->calls == NULL || hall->expected == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to meet %zu ranks", count);
    else
        status = usher_in(hall, arrivals, err);
    for (size_t i = 0; hall->calls != NULL && i < count; i++)
        ddl_socket_close(&hall->calls[i]);
    ddl_socket_close(&hall->door);
    ddl_free(arrivals);
    ddl_free(hall->calls);
    ddl_free(hall->expected);
    return status;
}

/* DDL_ETIMEDOUT: nothing has come yet. */
static ddl_status take_batch(struct hall *hall, int fd, bool *more, ddl_error *err)
{
    const ddl_roster *roster = hall->all->roster;
    struct batch batch;
    int descriptors[2 * BATCH], found;
    DDL_TRY(ddl_local_receive(fd, &batch, sizeof batch, descriptors, 2 * BATCH, &found, err));
    bool fits = batch.count <= BATCH && found == 2 * (int)batch.count && (batch.count > 0 || batch.more == 0);
    for (int i = 0; i < found; i++) {
        uint32_t rank = i / 2 < BATCH ? batch.ranks[i / 2] : UINT32_MAX;
        bool known = rank < (uint32_t)roster->nranks && ddl_roster_is_neighbour(roster, (int)rank);
        int *place = !known ? NULL : i % 2 == 0 ? &hall->others[rank].memory_fd : &hall->others[rank].bell_fd;
        fits = fits && place != NULL && *place < 0;
        if (fits)
            *place = descriptors[i];
        else
            close(descriptors[i]);
    }
    if (!fits)
        return DDL_FAIL(err, DDL_EPROTO, "the usher, rank %d, handed over something else",
                        hall->all->ranks[0]);
    *more = batch.more != 0;
    return DDL_OK;
}

/* What the usher does next: a batch, or a word on the connection, as it has failed or has let this rank go.
 */
static ddl_status await_usher(const struct gathering *all, int fd, bool *has_spoken, ddl_error *err)
{
    uint8_t byte;
    struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = wire_of(all, 0)->fd, .events = POLLIN } };
    *has_spoken = ddl_wire_has_unread(wire_of(all, 0));
    if (*has_spoken)
        return DDL_OK;
    if (ddl_deadline_passed(patience(all)))
        return ddl_neighbour_late(all->roster, all->ranks[0], err);
    (void)poll(fds, 2, ddl_deadline_left_ms(patience(all)));
    if (fds[0].revents != 0 || fds[1].revents == 0)
        return DDL_OK;
    ssize_t got = ddl_socket_peek(fds[1].fd, &byte, 1);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return ddl_neighbour_lost(all->roster, all->wires, all->ranks[0], got < 0 ? errno : 0, err);
    *has_spoken = got > 0;
    return DDL_OK;
}

/* Others may stand before the door. */
static ddl_status call_door(struct hall *hall, const char door[DDL_LOCAL_NAME_BYTES], int *fd, ddl_error *err)
{
    ddl_status status;
    hall->room = limit_of(hall->all, ROOM_LIMIT_MS);
    while ((status = ddl_local_connect(door, fd, err)) != DDL_OK && err->os_errno == EAGAIN &&
           !ddl_deadline_passed(hall->room))
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(ROOM_PAUSE_MS));
    return status;
}

/* *why: why this rank stays without shared memory, DDL_OK if it does not; the result: why there is no world.
 */
static ddl_status call(struct hall *hall, const struct word *word, int *fd, ddl_error *why, ddl_error *err)
{
    const int descriptors[] = { hall->own.memory_fd, hall->own.bell_fd };
    struct note note = { .rank = (uint32_t)hall->all->roster->rank };
    memcpy(note.token, word->token, TOKEN_BYTES);
    ddl_status status = call_door(hall, word->door, fd, why);
    if (status == DDL_OK)
        status = send_note(hall, *fd, &note, sizeof note, descriptors, 2, why);
    for (bool more = true; status == DDL_OK && more;) {
        bool has_spoken = false;
        status = take_batch(hall, *fd, &more, why);
        if (status != DDL_ETIMEDOUT)
            continue;
        DDL_TRY(await_usher(hall->all, *fd, &has_spoken, err));
        if (has_spoken)
            return DDL_FAIL(why, DDL_EPEERLOST, "the usher has given up"), DDL_OK;
        status = DDL_OK;
    }
    why->code = status;
    return DDL_OK;
}

static ddl_status attend(struct hall *hall, ddl_error *err)
{
    const struct gathering *all = hall->all;
    struct arrival arrival = { .left_ms = left_ms(all), .has = hall->own.memory_fd >= 0 };
    struct word word;
    ddl_error why;
    int fd = -1;
    memcpy(arrival.magic, magic, sizeof magic);
    DDL_TRY(tell_usher(all, &arrival, sizeof arrival, err));
    DDL_TRY(hear_word(all, &word, err));
    if (word.kind == AGREED)
        return ddl_neighbour_foreign(all->ranks[0], err);
    if (word.kind != DOOR || !arrival.has)
        return DDL_OK;
    ddl_status status = call(hall, &word, &fd, &why, err);
    ddl_socket_close(&fd);
    if (status == DDL_OK && why.code != DDL_OK) {
        ddl_apart_add_all(hall->apart, &why);
        drop_all(hall);
    }
    return status;
}

ddl_status ddl_usher_meet(const ddl_roster *roster, ddl_wire wires[], ddl_neighbour own,
                          ddl_deadline deadline, ddl_neighbour others[], ddl_apart *apart, ddl_error *err)
{
    struct gathering all;
    DDL_ASSERT(ddl_roster_connects_hosts(roster));
    DDL_TRY(open_gathering(roster, wires, deadline, &all, err));
    struct hall hall = { .all = &all, .own = own, .others = others, .apart = apart, .door = -1 };
    for (int rank = 0; rank < roster->nranks; rank++)
        others[rank] = (ddl_neighbour){ -1, -1 };
    ddl_status status = all.self == 0 ? serve(&hall, err) : attend(&hall, err);
    if (status != DDL_OK) {
        drop_all(&hall);
        if (all.self == 0)
            tell_of_failure(&all, err);
    }
    close_gathering(&all);
    return status;
}

/* ---- agreeing ---- */

/* said: of each rank its report, the time that it has left and a byte for each rank. */
static ddl_status compare(struct gathering *all, uint8_t *said, size_t report_bytes, uint8_t shares[],
                          uint8_t *common, uint8_t *answer, ddl_error *err)
{
    const size_t count = (size_t)all->count;
    uint8_t *report = said + sizeof(uint32_t); /* the first */
    struct word word = word_of(AGREED);
    DDL_TRY(collect(all, said, report_bytes, err));
    word.common = DDL_SHARES_LANES | DDL_SHARES_HEAPS;
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) {
            uint8_t *one = &report[i * report_bytes + j], *other = &report[j * report_bytes + i];
            *one = *other = *one & *other;
            word.common &= *one;
        }
    for (size_t i = 1; i < count; i++) {
        ddl_error unwanted;
        memcpy(answer, &word, sizeof word);
        memcpy(answer + sizeof word, report + i * report_bytes, count);
        /* Others go on once they have heard it: a rank that cannot be told has gone, which the mesh sees. */
        ddl_status told = ddl_neighbour_tell(all->roster, all->wires, all->ranks[i], answer,
                                             sizeof word + count, &unwanted);
        (void)told;
        shares[all->ranks[i]] = report[i];
    }
    *common = word.common;
    return DDL_OK;
}

static ddl_status report(struct gathering *all, uint8_t *said, size_t report_bytes, uint8_t shares[],
                         uint8_t *common, ddl_error *err)
{
    struct word word;
    DDL_TRY(tell_usher(all, said, report_bytes, err));
    DDL_TRY(hear_word(all, &word, err));
    if (word.kind != AGREED)
        return ddl_neighbour_foreign(all->ranks[0], err);
    DDL_TRY(hear_usher(all, said, (size_t)all->count, err));
    for (int i = 0; i < all->count; i++)
        shares[all->ranks[i]] &= said[i];
    *common = word.common;
    return DDL_OK;
}

ddl_status ddl_usher_agree(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                           uint8_t shares[], uint8_t *common, ddl_error *err)
{
    struct gathering all;
    DDL_TRY(open_gathering(roster, wires, deadline, &all, err));
    const size_t count = (size_t)all.count, report_bytes = sizeof(uint32_t) + count;
    uint8_t *said = ddl_alloc_array(all.self == 0 ? count : 1, report_bytes);
    uint8_t *answer = ddl_alloc(sizeof(struct word) + count);
    ddl_status status;
    if (said == NULL || answer == NULL) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to agree with %zu ranks", count);
    } else {
        uint32_t left = left_ms(&all);
        memcpy(said, &left, sizeof left);
        for (size_t i = 0; i < count; i++)
            said[sizeof left + i] = shares[all.ranks[i]];
        if (all.self != 0)
            status = report(&all, said, report_bytes, shares, common, err);
        else if ((status = compare(&all, said, report_bytes, shares, common, answer, err)) != DDL_OK)
            tell_of_failure(&all, err);
    }
    ddl_free(said);
    ddl_free(answer);
    close_gathering(&all);
    return status;
}
