/* connect.c - attempts side by side, the first to succeed wins. */
#include "io/connect.h"

#include "base/assert.h"
#include "io/socket.h"

#include <errno.h>
#include <poll.h>

enum { HEAD_START_MS = 250 };

struct race {
    const ddl_address *to;
    int count, begun, open;      /* attempts: possible, begun, and not yet over */
    int fds[DDL_CONNECT_MAX];    /* -1: over or not begun */
    int failed_at, failed_errno; /* the most telling failure so far; 0: none */
};

bool ddl_connect_lacks_route(int os_errno)
{
    return os_errno == ENETUNREACH || os_errno == EHOSTUNREACH || os_errno == EADDRNOTAVAIL ||
           os_errno == EACCES || os_errno == EPERM || os_errno == EINVAL || os_errno == EAFNOSUPPORT;
}

static void note_failure(struct race *race, int which, int os_errno)
{
    if (race->failed_errno != 0 &&
        (!ddl_connect_lacks_route(race->failed_errno) || ddl_connect_lacks_route(os_errno)))
        return;
    race->failed_at = which;
    race->failed_errno = os_errno;
}

static ddl_status begin(struct race *race, ddl_error *err)
{
    int which = race->begun++;
    ddl_error why;
    ddl_status status = ddl_socket_connect(&race->to[which], &race->fds[which], &why);
    if (status == DDL_OK) {
        race->open++;
        return DDL_OK;
    }
    if (status == DDL_ENETWORK) {
        note_failure(race, which, why.os_errno);
        return DDL_OK;
    }
    if (err != NULL)
        *err = why;
    return status;
}

/* Wait for the attempts that are open; the index of one that succeeded, or -1. */
static int watch(struct race *race, ddl_deadline until)
{
    struct pollfd items[DDL_CONNECT_MAX];
    int index[DDL_CONNECT_MAX], count = 0;
    for (int i = 0; i < race->begun; i++) {
        if (race->fds[i] < 0)
            continue;
        items[count] = (struct pollfd){ .fd = race->fds[i], .events = POLLOUT };
        index[count++] = i;
    }
    if (poll(items, (nfds_t)count, ddl_deadline_left_ms(until)) <= 0)
        return -1;
    for (int i = 0; i < count; i++) {
        if (items[i].revents == 0)
            continue;
        int error = ddl_socket_error(items[i].fd);
        if (error == 0)
            return index[i];
        note_failure(race, index[i], error);
        ddl_socket_close(&race->fds[index[i]]);
        race->open--;
    }
    return -1;
}

static ddl_status run(struct race *race, ddl_deadline deadline, int *winner, ddl_error *err)
{
    ddl_deadline next = 0;
    while (*winner < 0) {
        if (race->begun < race->count && (race->open == 0 || ddl_deadline_passed(next))) {
            DDL_TRY(begin(race, err));
            next = ddl_deadline_in_ms(HEAD_START_MS);
            continue;
        }
        if (race->open == 0)
            break;
        *winner = watch(race, race->begun < race->count && next < deadline ? next : deadline);
        if (*winner >= 0 || !ddl_deadline_passed(deadline))
            continue;
        for (int i = 0; i < race->begun; i++)
            if (race->fds[i] >= 0)
                note_failure(race, i, ETIMEDOUT);
        break;
    }
    if (*winner >= 0)
        return DDL_OK;
    char where[DDL_ADDRESS_FULL_TEXT];
    ddl_address_text(&race->to[race->failed_at], where);
    return DDL_FAIL_OS(err, DDL_ENETWORK, race->failed_errno, "cannot connect to %s", where);
}

ddl_status ddl_connect_any(const ddl_address to[], int count, ddl_deadline deadline, int *fd, int *which,
                           ddl_error *err)
{
    struct race race = { .to = to, .count = count };
    int winner = -1;
    DDL_ASSERT(count > 0);
    DDL_ASSERT(count <= DDL_CONNECT_MAX);
    for (int i = 0; i < count; i++)
        race.fds[i] = -1;
    ddl_status status = run(&race, deadline, &winner, err);
    if (status == DDL_OK) {
        *fd = race.fds[winner];
        *which = winner;
        race.fds[winner] = -1;
    }
    for (int i = 0; i < count; i++)
        ddl_socket_close(&race.fds[i]);
    return status;
}
