/*
 * neighbours_usher.c - ranks of a host hand each other their memory, by way of their usher.
 *
 * Each rank tells the usher that it is there, hears of a door, and calls; the usher answers. What is told
 * goes over the mesh's connections, whose ends have proved who they are: at the first a token too, that is to
 * be shown at the door.
 */
#include "rendezvous/neighbours_usher_gathering.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/crypto.h"
#include "io/host.h"
#include "io/socket.h"
#include "rendezvous/neighbours_talk.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH = DDL_LOCAL_FDS_MOST / 2, /* of ranks in one note */
    NOTE_LIMIT_MS = 1000, /* between a call that was taken and the note that its caller sends at once */
    ROOM_LIMIT_MS = 5000, /* in all, for others to take what is under way, or to take calls */
    ROOM_PAUSE_MS = 1
};

/* What ranks of a host send each other is in the byte order of the host. */
struct arrival { /* a rank is there */
    uint32_t left_ms;
    uint8_t magic[4];
    uint8_t has; /* shared memory to hand over */
    uint8_t zero[3];
};

struct note { /* with a rank's own memory and bell */
    uint32_t rank;
    uint8_t token[DDL_USHER_TOKEN_BYTES];
};

struct batch { /* with the memory and the bell of each of these ranks */
    uint32_t count, more;
    uint32_t ranks[BATCH];
};

/* Of a meeting. */
struct hall {
    ddl_gathering *all;
    ddl_neighbour own, *others; /* others: by rank of the world */
    ddl_apart *apart;
    int door;
    uint8_t token[DDL_USHER_TOKEN_BYTES];
    ddl_deadline room; /* for others to take calls, and descriptors */
    int *calls;        /* the Unix sockets of who has called; -1: none */
    bool *expected;    /* will call */
    ddl_error refused; /* why the first of the calls that came to nothing did; DDL_OK: there was none */
};

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
static ddl_deadline limit_of(const ddl_gathering *all, int most_ms)
{
    int half_ms = ddl_deadline_left_ms(all->deadline) / 2;
    return ddl_deadline_in_ms(half_ms < most_ms ? half_ms : most_ms);
}

/* ---- the usher, at the door ---- */

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
    const ddl_gathering *all = hall->all;
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
                  ddl_same_secret(note.token, hall->token, DDL_USHER_TOKEN_BYTES);
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
    const ddl_gathering *all = hall->all;
    uint8_t byte;
    ssize_t got = ddl_socket_peek(ddl_gathering_wire(all, local)->fd, &byte, 1);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return ddl_neighbour_lost(all->roster, all->wires, all->ranks[local], got < 0 ? errno : 0, err);
    if (got > 0)
        hall->expected[local] = false;
    return DDL_OK;
}

/* Until everybody who has memory has called, or has gone on to agreeing without. */
static ddl_status take_calls(struct hall *hall, ddl_error *err)
{
    ddl_gathering *all = hall->all;
    for (int left = INT_MAX;;) {
        int count = 0;
        bool late = ddl_deadline_passed(all->deadline);
        ddl_gathering_poll_too(all, &count, hall->door, -1);
        for (int i = 1; i < all->count; i++) {
            if (hall->expected[i] && ddl_wire_has_unread(ddl_gathering_wire(all, i)))
                hall->expected[i] = false;
            if (hall->expected[i])
                ddl_gathering_poll_too(all, &count, ddl_gathering_wire(all, i)->fd, i);
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

/* To one that has called, what those have that are connected to it. */
static ddl_status hand_over(struct hall *hall, int local, ddl_error *err)
{
    const ddl_gathering *all = hall->all;
    struct batch batch = { 0 };
    int descriptors[2 * BATCH];
    for (int i = 0; i < all->count; i++) {
        const ddl_neighbour *has = i == 0 ? &hall->own : &hall->others[all->ranks[i]];
        if (has->memory_fd < 0 || !ddl_roster_connects_pair(all->roster, all->ranks[i], all->ranks[local]))
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
static ddl_usher_word open_door(struct hall *hall, const struct arrival arrivals[])
{
    ddl_error error;
    ddl_usher_word word = ddl_gathering_word(DDL_USHER_DOOR);
    int able = hall->own.memory_fd >= 0;
    for (int i = 1; i < hall->all->count; i++)
        able += hall->expected[i] = arrivals[i].has != 0;
    if (able > 1) {
        ddl_status status = ddl_host_random(hall->token, DDL_USHER_TOKEN_BYTES, &error);
        if (status == DDL_OK)
            status = ddl_local_listen(hall->all->count, word.door, &hall->door, &error);
        memcpy(word.token, hall->token, DDL_USHER_TOKEN_BYTES);
        if (status == DDL_OK)
            return word;
        ddl_apart_add_all(hall->apart, &error);
    }
    memset(hall->expected, 0, (size_t)hall->all->count * sizeof *hall->expected);
    return ddl_gathering_word(DDL_USHER_NO_DOOR);
}

/* Which rank it was whose call came to nothing shows when all have called who do. */
static void tell_refused(struct hall *hall, const struct arrival arrivals[])
{
    for (int i = 1; hall->refused.code != DDL_OK && i < hall->all->count; i++)
        if (arrivals[i].has != 0 && hall->calls[i] < 0)
            ddl_apart_add(hall->apart, hall->all->ranks[i], &hall->refused);
}

static ddl_status usher_in(struct hall *hall, struct arrival arrivals[], ddl_error *err)
{
    ddl_gathering *all = hall->all;
    DDL_TRY(ddl_gathering_collect(all, (uint8_t *)arrivals, sizeof *arrivals, err));
    for (int i = 1; i < all->count; i++)
        if (memcmp(arrivals[i].magic, ddl_usher_magic, sizeof ddl_usher_magic) != 0 || arrivals[i].has > 1)
            return ddl_neighbour_foreign(all->ranks[i], err);
    ddl_usher_word word = open_door(hall, arrivals);
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

/* ---- the others, who call ---- */

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
        bool known = rank < (uint32_t)roster->nranks && ddl_roster_is_neighbour(roster, (int)rank) &&
                     ddl_roster_connects(roster, (int)rank);
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
static ddl_status await_usher(const ddl_gathering *all, int fd, bool *has_spoken, ddl_error *err)
{
    uint8_t byte;
    struct pollfd fds[] = { { .fd = fd, .events = POLLIN },
                            { .fd = ddl_gathering_wire(all, 0)->fd, .events = POLLIN } };
    *has_spoken = ddl_wire_has_unread(ddl_gathering_wire(all, 0));
    if (*has_spoken)
        return DDL_OK;
    if (ddl_deadline_passed(ddl_gathering_patience(all)))
        return ddl_neighbour_late(all->roster, all->ranks[0], err);
    (void)poll(fds, 2, ddl_deadline_left_ms(ddl_gathering_patience(all)));
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
static ddl_status call(struct hall *hall, const ddl_usher_word *word, int *fd, ddl_error *why, ddl_error *err)
{
    const int descriptors[] = { hall->own.memory_fd, hall->own.bell_fd };
    struct note note = { .rank = (uint32_t)hall->all->roster->rank };
    memcpy(note.token, word->token, DDL_USHER_TOKEN_BYTES);
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
    const ddl_gathering *all = hall->all;
    struct arrival arrival = { .left_ms = ddl_gathering_left_ms(all), .has = hall->own.memory_fd >= 0 };
    ddl_usher_word word;
    ddl_error why;
    int fd = -1;
    memcpy(arrival.magic, ddl_usher_magic, sizeof ddl_usher_magic);
    DDL_TRY(ddl_gathering_tell(all, &arrival, sizeof arrival, err));
    DDL_TRY(ddl_gathering_hear_word(all, &word, err));
    if (word.kind == DDL_USHER_AGREED)
        return ddl_neighbour_foreign(all->ranks[0], err);
    if (word.kind != DDL_USHER_DOOR || !arrival.has)
        return DDL_OK;
    ddl_status status = call(hall, &word, &fd, &why, err);
    ddl_socket_close(&fd);
    if (status == DDL_OK && why.code != DDL_OK) {
        ddl_apart_add_all(hall->apart, &why);
        drop_all(hall);
    }
    return status;
}

ddl_status ddl_neighbours_meet(const ddl_roster *roster, ddl_wire wires[], ddl_neighbour own,
                               ddl_deadline deadline, ddl_neighbour others[], ddl_apart *apart,
                               ddl_error *err)
{
    ddl_gathering all;
    DDL_TRY(ddl_gathering_open(roster, wires, deadline, &all, err));
    struct hall hall = { .all = &all, .own = own, .others = others, .apart = apart, .door = -1 };
    for (int rank = 0; rank < roster->nranks; rank++)
        others[rank] = (ddl_neighbour){ -1, -1 };
    ddl_status status = all.self == 0 ? serve(&hall, err) : attend(&hall, err);
    if (status != DDL_OK) {
        drop_all(&hall);
        if (all.self == 0)
            ddl_gathering_tell_of_failure(&all, err);
    }
    ddl_gathering_close(&all);
    return status;
}
