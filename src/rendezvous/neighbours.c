/*
 * neighbours.c - of a pair the lower rank is called by the higher one, as in the mesh.
 *
 * So where pairs of a host connect late. Where all are connected an usher (neighbours_usher.h) does it for
 * all of them.
 */
#include "rendezvous/neighbours.h"

#include "base/bytes.h"
#include "io/local.h"
#include "io/socket.h"
#include "rendezvous/neighbours_talk.h"
#include "rendezvous/neighbours_usher.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    NOTE_LIMIT_MS = 1000,  /* between a call that was taken and the note that its caller sends at once */
    ANSWER_LIMIT_MS = 5000 /* between a call and its answer, when all others have met */
};

/* The first thing that neighbours tell each other. */
struct offer {
    uint8_t magic[4];
    uint8_t has; /* shared memory to hand over */
    char door[DDL_LOCAL_NAME_BYTES];
};

static const uint8_t magic[4] = { 'd', 'd', 'l', 3 };

/* One meeting. */
struct meeting {
    const ddl_roster *roster;
    ddl_wire *wires;
    ddl_neighbour own, *others;
    ddl_apart *apart;
    ddl_deadline deadline;
    int door;           /* where higher ranks call; -1: nowhere */
    int *calls;         /* of lower ranks: the Unix socket; -1: none */
    bool *expected;     /* of higher ranks: will call */
    struct pollfd *fds; /* nranks + 1 */
};

/* Whether to meet this rank: one of this host, connected at the start. */
static bool meets(const ddl_roster *roster, const ddl_wire wires[], int rank)
{
    return wires[rank].fd >= 0 && ddl_roster_is_neighbour(roster, rank);
}

/* ---- calling, and being called ---- */

static void without(struct meeting *meeting, int rank, const ddl_error *why)
{
    ddl_apart_add(meeting->apart, rank, why);
    if (meeting->calls[rank] >= 0)
        close(meeting->calls[rank]);
    meeting->calls[rank] = -1;
    meeting->expected[rank] = false;
}

static ddl_status hand_over(const struct meeting *meeting, int fd, ddl_error *err)
{
    uint32_t note = (uint32_t)meeting->roster->rank;
    const int descriptors[] = { meeting->own.memory_fd, meeting->own.bell_fd };
    return ddl_local_send(fd, &note, sizeof note, descriptors, 2, err);
}

/* DDL_ETIMEDOUT after limit_ms, or at the end of the meeting. */
static ddl_status take_over(const struct meeting *meeting, int fd, int limit_ms, uint32_t *rank,
                            ddl_neighbour *other, ddl_error *err)
{
    ddl_deadline limit = ddl_deadline_in_ms(limit_ms);
    if (meeting->deadline < limit)
        limit = meeting->deadline;
    return ddl_neighbour_take(fd, rank, sizeof *rank, limit, other, err);
}

static void call(struct meeting *meeting, int rank, const char door[DDL_LOCAL_NAME_BYTES])
{
    ddl_error error;
    if (ddl_local_connect(door, &meeting->calls[rank], &error) != DDL_OK ||
        hand_over(meeting, meeting->calls[rank], &error) != DDL_OK)
        without(meeting, rank, &error);
}

static ddl_status exchange_offers(struct meeting *meeting, ddl_error *err)
{
    const ddl_roster *roster = meeting->roster;
    struct offer offer = { .has = meeting->own.memory_fd >= 0 };
    ddl_error error;
    memcpy(offer.magic, magic, sizeof magic);
    if (offer.has && ddl_local_listen(roster->nranks, offer.door, &meeting->door, &error) != DDL_OK) {
        ddl_apart_add_all(meeting->apart, &error);
        offer.has = 0;
    }
    for (int rank = 0; rank < roster->nranks; rank++)
        if (meets(roster, meeting->wires, rank))
            DDL_TRY(ddl_neighbour_tell(roster, meeting->wires, rank, &offer, sizeof offer, err));
    for (int rank = 0; rank < roster->nranks; rank++) {
        struct offer other;
        if (!meets(roster, meeting->wires, rank))
            continue;
        DDL_TRY(
            ddl_neighbour_hear(roster, meeting->wires, rank, &other, sizeof other, meeting->deadline, err));
        if (memcmp(other.magic, magic, sizeof magic) != 0 || other.has > 1)
            return ddl_neighbour_foreign(rank, err);
        if (!offer.has || !other.has)
            continue;
        if (rank < roster->rank)
            call(meeting, rank, other.door);
        else
            meeting->expected[rank] = true;
    }
    return DDL_OK;
}

/* Those who still call hear of it at once. */
static void close_door(struct meeting *meeting, const ddl_error *why)
{
    for (int rank = 0; rank < meeting->roster->nranks; rank++)
        if (meeting->expected[rank])
            without(meeting, rank, why);
    ddl_socket_close(&meeting->door);
}

/* Somebody calls; who it is, the note says. */
static void answer(struct meeting *meeting)
{
    const ddl_roster *roster = meeting->roster;
    ddl_error error;
    ddl_neighbour other = { -1, -1 };
    uint32_t rank = 0;
    int fd;
    ddl_status status = ddl_local_accept(meeting->door, &fd, &error);
    if (status == DDL_ERESOURCE) {
        close_door(meeting, &error);
        return;
    }
    if (status != DDL_OK)
        return; /* nobody any more, or a stranger */
    status = take_over(meeting, fd, NOTE_LIMIT_MS, &rank, &other, &error);
    bool wanted = status == DDL_OK && rank < (uint32_t)roster->nranks && meeting->expected[rank];
    if (wanted && hand_over(meeting, fd, &error) != DDL_OK) {
        without(meeting, (int)rank, &error);
        wanted = false;
    }
    close(fd);
    if (wanted) {
        meeting->expected[rank] = false;
        meeting->others[rank] = other;
    } else if (status == DDL_OK) {
        close(other.memory_fd);
        close(other.bell_fd);
    }
}

/* Until every higher neighbour has called, or said over its connection that it will not. */
static ddl_status take_calls(struct meeting *meeting, ddl_error *err)
{
    const ddl_roster *roster = meeting->roster;
    for (;;) {
        int first = -1;
        nfds_t count = 0;
        meeting->fds[count++] = (struct pollfd){ .fd = meeting->door, .events = POLLIN };
        for (int rank = 0; rank < roster->nranks; rank++)
            if (meeting->expected[rank]) {
                first = first < 0 ? rank : first;
                meeting->fds[count++] = (struct pollfd){ .fd = meeting->wires[rank].fd, .events = POLLIN };
            }
        if (first < 0)
            return DDL_OK;
        int64_t left_ms = ddl_deadline_left_ms(meeting->deadline);
        if (left_ms <= 0)
            return ddl_neighbour_late(roster, first, err);
        poll(meeting->fds, count, left_ms < 1000 ? (int)left_ms : 1000);
        if ((meeting->fds[0].revents & POLLIN) != 0)
            answer(meeting);
        for (int rank = 0; rank < roster->nranks; rank++) {
            uint8_t byte;
            if (!meeting->expected[rank])
                continue;
            ssize_t got = ddl_socket_peek(meeting->wires[rank].fd, &byte, 1);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
                return ddl_neighbour_lost(roster, meeting->wires, rank, got < 0 ? errno : 0, err);
            if (got > 0 || ddl_wire_has_unread(&meeting->wires[rank])) /* it has come to agreeing already */
                meeting->expected[rank] = false;
        }
    }
}

static ddl_status hold(struct meeting *meeting, ddl_error *err)
{
    DDL_TRY(exchange_offers(meeting, err));
    DDL_TRY(take_calls(meeting, err));
    for (int rank = 0; rank < meeting->roster->rank; rank++) {
        ddl_error error;
        uint32_t answered; /* by the owner of the door that this rank's connection named */
        if (meeting->calls[rank] >= 0 && take_over(meeting, meeting->calls[rank], ANSWER_LIMIT_MS, &answered,
                                                   &meeting->others[rank], &error) != DDL_OK)
            without(meeting, rank, &error);
    }
    return DDL_OK;
}

ddl_status ddl_neighbours_meet(const ddl_roster *roster, ddl_wire wires[], ddl_neighbour own,
                               ddl_deadline deadline, ddl_neighbour others[], ddl_apart *apart,
                               ddl_error *err)
{
    if (ddl_roster_connects_hosts(roster))
        return ddl_usher_meet(roster, wires, own, deadline, others, apart, err);
    size_t nranks = (size_t)roster->nranks;
    struct meeting meeting = {
        .roster = roster,
        .wires = wires,
        .own = own,
        .others = others,
        .apart = apart,
        .deadline = deadline,
        .door = -1,
        .calls = ddl_alloc_array(nranks, sizeof(int)),
        .expected = ddl_alloc_array(nranks, sizeof(bool)),
        .fds = ddl_alloc_array(nranks + 1, sizeof(struct pollfd)),
    };
    ddl_status status = DDL_OK;
    if (meeting.calls == NULL || meeting.expected == NULL || meeting.fds == NULL) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to meet %d ranks", roster->nranks);
    } else {
        for (int rank = 0; rank < roster->nranks; rank++) {
            meeting.calls[rank] = -1;
            others[rank] = (ddl_neighbour){ -1, -1 };
        }
        status = hold(&meeting, err);
        for (int rank = 0; rank < roster->nranks; rank++) {
            ddl_socket_close(&meeting.calls[rank]);
            if (status != DDL_OK) {
                ddl_socket_close(&others[rank].memory_fd);
                ddl_socket_close(&others[rank].bell_fd);
            }
        }
        ddl_socket_close(&meeting.door);
    }
    ddl_free(meeting.calls);
    ddl_free(meeting.expected);
    ddl_free(meeting.fds);
    return status;
}

/* said[rank]: the bits that this rank says to each; becomes those that both say. */
static ddl_status exchange(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline, uint8_t said[],
                           ddl_error *err)
{
    for (int rank = 0; rank < roster->nranks; rank++) {
        if (meets(roster, wires, rank))
            DDL_TRY(ddl_neighbour_tell(roster, wires, rank, &said[rank], sizeof said[rank], err));
    }
    for (int rank = 0; rank < roster->nranks; rank++) {
        uint8_t byte;
        if (!meets(roster, wires, rank))
            continue;
        DDL_TRY(ddl_neighbour_hear(roster, wires, rank, &byte, sizeof byte, deadline, err));
        said[rank] &= byte;
    }
    return DDL_OK;
}

/* What is said to all. */
static uint8_t common_of(const ddl_roster *roster, const uint8_t said[])
{
    uint8_t common = DDL_SHARES_LANES | DDL_SHARES_HEAPS;
    for (int rank = 0; rank < roster->nranks; rank++)
        if (ddl_roster_is_neighbour(roster, rank))
            common &= said[rank];
    return common;
}

ddl_status ddl_neighbours_agree(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                                uint8_t shares[], uint8_t *common, ddl_error *err)
{
    if (ddl_roster_connects_hosts(roster))
        return ddl_usher_agree(roster, wires, deadline, shares, common, err);
    DDL_TRY(exchange(roster, wires, deadline, shares, err));
    uint8_t *reach_all = ddl_alloc_array((size_t)roster->nranks, sizeof *reach_all);
    if (reach_all == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d neighbours", roster->nranks);
    const uint8_t own = common_of(roster, shares);
    for (int rank = 0; rank < roster->nranks; rank++)
        reach_all[rank] = own;
    ddl_status status = exchange(roster, wires, deadline, reach_all, err);
    *common = status == DDL_OK ? own & common_of(roster, reach_all) : 0;
    ddl_free(reach_all);
    return status;
}
