/* neighbours_talk.c - small messages over the mesh's connections, and descriptors with a note. */
#include "rendezvous/neighbours_talk.h"

#include "io/local.h"
#include "io/socket.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

ddl_status ddl_neighbour_lost(const ddl_roster *roster, const ddl_wire wires[], int rank, int os_errno,
                              ddl_error *err)
{
    ddl_status status;
    if (os_errno == EBADMSG) {
        status =
            DDL_FAIL(err, DDL_EPROTO, "rank %d on %s[%d]: TLS failed: %s", rank, roster->members[rank].host,
                     (int)roster->members[rank].pid, ddl_wire_problem(&wires[rank]));
        err->os_errno = os_errno;
    } else {
        status = DDL_FAIL_OS(err, DDL_EPEERLOST, os_errno,
                             "rank %d on %s[%d] ended while its neighbours met (see its output)", rank,
                             roster->members[rank].host, (int)roster->members[rank].pid);
    }
    err->culprit = rank;
    return status;
}

ddl_status ddl_neighbour_late(const ddl_roster *roster, int rank, ddl_error *err)
{
    ddl_status status = DDL_FAIL(err, DDL_ETIMEDOUT, "rank %d on %s[%d] has not met its neighbours in time",
                                 rank, roster->members[rank].host, (int)roster->members[rank].pid);
    err->culprit = rank;
    return status;
}

ddl_status ddl_neighbour_foreign(int rank, ddl_error *err)
{
    ddl_status status =
        DDL_FAIL(err, DDL_EPROTO, "rank %d does not speak as ranks of this version of ddl do", rank);
    err->culprit = rank;
    return status;
}

ddl_status ddl_neighbour_tell(const ddl_roster *roster, ddl_wire wires[], int rank, const void *data,
                              size_t bytes, ddl_error *err)
{
    ssize_t sent = ddl_wire_write(&wires[rank], data, bytes);
    bool whole = sent == (ssize_t)bytes && !ddl_wire_has_unsent(&wires[rank]);
    return whole ? DDL_OK : ddl_neighbour_lost(roster, wires, rank, sent < 0 ? errno : 0, err);
}

ddl_status ddl_neighbour_hear(const ddl_roster *roster, ddl_wire wires[], int rank, void *data, size_t bytes,
                              ddl_deadline deadline, ddl_error *err)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t got = ddl_wire_read(&wires[rank], (uint8_t *)data + have, bytes - have);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            return ddl_neighbour_lost(roster, wires, rank, got < 0 ? errno : 0, err);
        if (got < 0 && !ddl_socket_wait(wires[rank].fd, POLLIN, deadline))
            return ddl_neighbour_late(roster, rank, err);
        have += got > 0 ? (size_t)got : 0;
    }
    return DDL_OK;
}

ddl_status ddl_neighbour_take(int fd, void *note, size_t bytes, ddl_deadline deadline, ddl_neighbour *other,
                              ddl_error *err)
{
    int descriptors[2], count;
    ddl_status status;
    while ((status = ddl_local_receive(fd, note, bytes, descriptors, 2, &count, err)) == DDL_ETIMEDOUT)
        if (!ddl_socket_wait(fd, POLLIN, deadline))
            return status;
    if (status != DDL_OK)
        return status;
    if (count != 2) {
        if (count == 1)
            close(descriptors[0]);
        return DDL_FAIL(err, DDL_EPROTO, "a note with %d descriptors, not 2", count);
    }
    *other = (ddl_neighbour){ descriptors[0], descriptors[1] };
    return DDL_OK;
}
