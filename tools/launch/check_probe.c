/* check_probe.c - all connections at a time, each tried until it stands or time is over. */
#include "check_probe.h"

#include "base/bytes.h"
#include "io/socket.h"
#include "rendezvous/network_own.h"

#include <errno.h>
#include <poll.h>

enum {
    PROBE_LIMIT_MS = 4000,
    TRY_LIMIT_MS = 2000, /* a lost first packet is repeated after one second */
    PAUSE_MS = 100       /* after a refusal */
};

struct probe {
    int rank, fd; /* fd -1: no try under way */
    ddl_address to;
    ddl_deadline next; /* when this try ends, or the next one begins */
};

static void note(uint32_t row[], const struct probe *probe, int os_errno)
{
    if (os_errno == 0 || row[probe->rank] != 0)
        row[probe->rank] = (uint32_t)os_errno;
}

static int list_all(const ddl_roster *roster, struct probe probes[], uint32_t row[])
{
    int count = 0;
    for (int rank = 0; rank < roster->nranks; rank++) {
        ddl_address addresses[DDL_NETWORK_CALL_MAX];
        row[rank] = 0;
        if (rank == roster->rank)
            continue;
        row[rank] = ENXIO; /* until something else is known */
        int ways = ddl_network_call(&roster->members[roster->rank], &roster->members[rank],
                                    ddl_roster_is_neighbour(roster, rank), addresses);
        for (int i = 0; i < ways; i++)
            probes[count++] = (struct probe){ .rank = rank, .fd = -1, .to = addresses[i], .next = 0 };
    }
    return count;
}

static void end_try(struct probe *probe, uint32_t row[], int os_errno, ddl_deadline next)
{
    note(row, probe, os_errno);
    ddl_socket_close(&probe->fd);
    probe->next = next;
}

/* What is due now. */
static void step(struct probe *probe, uint32_t row[])
{
    ddl_error why;
    if (probe->fd >= 0) {
        end_try(probe, row, ETIMEDOUT, 0);
    } else if (ddl_socket_connect(&probe->to, &probe->fd, &why) == DDL_OK) {
        probe->next = ddl_deadline_in_ms(TRY_LIMIT_MS);
    } else {
        note(row, probe, why.os_errno != 0 ? why.os_errno : EMFILE);
        probe->next = ddl_deadline_in_ms(PAUSE_MS);
    }
}

/* Begin and end what is due, and list what is under way in items; when the next is due. */
static ddl_deadline step_all(struct probe probes[], int count, uint32_t row[], struct pollfd items[],
                             int *open)
{
    ddl_deadline first = DDL_DEADLINE_NEVER;
    *open = 0;
    for (int i = 0; i < count; i++) {
        struct probe *probe = &probes[i];
        items[i].fd = -1;
        if (row[probe->rank] == 0)
            continue;
        ++*open;
        if (ddl_deadline_passed(probe->next))
            step(probe, row);
        items[i] = (struct pollfd){ .fd = probe->fd, .events = POLLOUT };
        first = probe->next < first ? probe->next : first;
    }
    return first;
}

static void run(struct probe probes[], int count, uint32_t row[], struct pollfd items[], ddl_deadline until)
{
    for (bool is_last = false; !is_last;) {
        int open;
        is_last = ddl_deadline_passed(until);
        ddl_deadline first = step_all(probes, count, row, items, &open);
        if (open == 0)
            return;
        if (poll(items, (nfds_t)count, ddl_deadline_left_ms(first < until ? first : until)) < 0)
            continue;
        for (int i = 0; i < count; i++)
            if (items[i].fd >= 0 && items[i].revents != 0)
                end_try(&probes[i], row, ddl_socket_error(probes[i].fd), ddl_deadline_in_ms(PAUSE_MS));
    }
}

ddl_status check_probe_all(const ddl_roster *roster, ddl_deadline deadline, uint32_t row[], ddl_error *err)
{
    const size_t most = (size_t)roster->nranks * DDL_NETWORK_CALL_MAX;
    const ddl_deadline limit = ddl_deadline_in_ms(PROBE_LIMIT_MS);
    ddl_status status = DDL_OK;
    struct probe *probes = ddl_alloc_array(most, sizeof *probes);
    struct pollfd *items = ddl_alloc_array(most, sizeof *items);
    if (probes == NULL || items == NULL) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to connect %d ranks", roster->nranks);
    } else {
        int count = list_all(roster, probes, row);
        run(probes, count, row, items, deadline < limit ? deadline : limit);
        for (int i = 0; i < count; i++) {
            if (probes[i].fd >= 0 && row[probes[i].rank] == ENXIO)
                note(row, &probes[i], ETIMEDOUT);
            ddl_socket_close(&probes[i].fd);
        }
    }
    ddl_free(probes);
    ddl_free(items);
    return status;
}
