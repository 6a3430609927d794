/* bootstrap_connecting.c - the descriptors that connections take, then the wait for them. */
#include "rendezvous/bootstrap_parts.h"

#include "io/host.h"
#include "protocol/overlay.h"
#include "rendezvous/listener.h"
#include "rendezvous/network_own.h"
#include "rendezvous/store_server.h"

#include <stdio.h>

enum {
    DESCRIPTORS_MARGIN = 64, /* for loops, files and a few strangers */
    OF_ONESELF = 32,      /* of it, for loops and files; and to come to the place and say what is lacking */
    PER_NEIGHBOUR = 3,    /* its memory, its bell, and a socket by which these come */
    STRANGERS_FEWEST = 4, /* at a door, whatever there is, beside the ranks */
    TO_USHER = 1
};

/* ---- descriptors ---- */

static int links_at_start(int nranks, ddl_connect connect)
{
    return connect == DDL_CONNECT_EAGER ? nranks : ddl_overlay_degree(nranks) + TO_USHER;
}

/* A link to every rank that is connected at the start, but for those of an usher, which is counted when it is
 * known who is one; rank 0 has each of all as a client of the store, too. */
ddl_status ddl_bootstrap_need_descriptors(int rank, int nranks, ddl_connect connect, ddl_error *err)
{
    const int clients = rank == 0 ? nranks : 0;
    const char *how = "";
    char what[96];
    ddl_error unwanted;
    int links = links_at_start(nranks, connect);
    if (connect == DDL_CONNECT_EAGER && !ddl_overlay_is_complete(nranks))
        how = ", connected all to all (DDL_CONNECT=lazy takes fewer),";
    snprintf(what, sizeof what, "%d ranks%s", nranks, how);
    /* While neighbours meet they have some more; without these there is TCP instead of shared memory. And
     * where others connect late it is well to have as many as for all, if they are allowed. */
    if (ddl_host_need_descriptors(nranks * (1 + PER_NEIGHBOUR) + clients + DESCRIPTORS_MARGIN, what,
                                  &unwanted) != DDL_OK)
        DDL_TRY(ddl_host_need_descriptors(links + clients + DESCRIPTORS_MARGIN, what, err));
    if (rank == 0) /* the usher of its host, which may have all of them */
        links = nranks;
    ddl_host_expect_descriptors(links * (1 + PER_NEIGHBOUR) + clients);
    return DDL_OK;
}

bool ddl_bootstrap_may_tell(void)
{
    ddl_error unwanted;
    return ddl_host_need_descriptors(OF_ONESELF, "a rank that cannot take part", &unwanted) == DDL_OK;
}

static int most_streams(int nranks)
{
    const int of_all = (nranks - 1) * DDL_STREAMS_OF_HOSTS;
    return of_all < DDL_STREAMS_OF_RANK ? of_all : DDL_STREAMS_OF_RANK;
}

bool ddl_bootstrap_may_have_streams(int rank, int nranks)
{
    const int clients = rank == 0 ? nranks : 0;
    ddl_error unwanted;
    return ddl_host_need_descriptors(nranks * (1 + PER_NEIGHBOUR) + most_streams(nranks) + clients +
                                         DESCRIPTORS_MARGIN,
                                     "further connections", &unwanted) == DDL_OK;
}

/* Whoever is at a door has one of these, so that what ranks need stays for them. Doors: of the store, of the
 * mesh, and the one that has no port. */
int ddl_bootstrap_strangers(int rank, int nranks, ddl_connect connect)
{
    const int clients = rank == 0 ? nranks : 0, links = rank == 0 ? nranks : links_at_start(nranks, connect);
    const int doors = (rank == 0 ? DDL_STORE_SERVER_DOORS : 0) + DDL_NETWORK_LISTEN_MAX + 1;
    const int places = ddl_listener_places(nranks);
    /* All ranks may come at once, from an address that may have three quarters of the places. */
    const int fewest = nranks * 3 / 2 + STRANGERS_FEWEST;
    int needed = nranks * (1 + PER_NEIGHBOUR) + most_streams(nranks) + clients + OF_ONESELF;
    const int found = ddl_host_free_descriptors(needed + doors * places);
    if (found < needed + doors * fewest) /* not as many as is well, but as have to be */
        needed = links + clients + OF_ONESELF;
    const int each = (found - needed) / doors;
    return each >= places ? places : each > fewest ? each : fewest;
}

static int count_links(const ddl_roster *roster)
{
    int links = 0;
    for (int rank = 0; rank < roster->nranks; rank++)
        links += ddl_roster_connects(roster, rank);
    return links;
}

/* Those of an usher, and further connections, once it is known who is on which host; the same for those that
 * connect late. */
static ddl_status need_more_descriptors(const ddl_roster *roster, ddl_error *err)
{
    const int others = roster->nranks - roster->local_size_of[roster->rank];
    int remote = others;
    const int degree = ddl_overlay_degree(roster->nranks), links = count_links(roster);
    char what[128];
    if (roster->nstreams == 0 || roster->chooses_streams) { /* ddl_bootstrap_may_have_streams has looked */
        if (!ddl_roster_is_sparse(roster) || links <= degree + TO_USHER)
            return DDL_OK;
        snprintf(what, sizeof what, "%d ranks, %d of them on this host,", roster->nranks,
                 roster->local_size_of[roster->rank]);
        return ddl_host_need_descriptors(links + DESCRIPTORS_MARGIN, what, err);
    }
    if (ddl_roster_is_sparse(roster) && remote > degree)
        remote = degree;
    snprintf(what, sizeof what, "%d ranks, with %d more connections to each on another host (DDL_STREAMS),",
             roster->nranks, roster->nstreams);
    int clients = roster->rank == 0 ? roster->nranks : 0;
    /* As many as all may come to have, if they are allowed; see ddl_bootstrap_need_descriptors. */
    ddl_error unwanted;
    if (ddl_host_need_descriptors(roster->nranks * (1 + PER_NEIGHBOUR) + others * roster->nstreams + clients +
                                      DESCRIPTORS_MARGIN,
                                  what, &unwanted) == DDL_OK)
        return DDL_OK;
    return ddl_host_need_descriptors(links + remote * roster->nstreams + clients + DESCRIPTORS_MARGIN, what,
                                     err);
}

/* ---- connecting ---- */

static ddl_status make_room_for_streams(ddl_joining *joining, ddl_error *err)
{
    const size_t count = (size_t)joining->roster->nranks * (size_t)joining->roster->nstreams;
    if (count == 0 || joining->roster->chooses_streams) /* these are made late */
        return DDL_OK;
    joining->streams = ddl_alloc_array(count, sizeof *joining->streams);
    if (joining->streams == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu connections", count);
    for (size_t i = 0; i < count; i++)
        joining->streams[i] = ddl_no_wire;
    return DDL_OK;
}

/* The deadline has passed. If nobody is missing here, others of this host are what this rank has to connect.
 */
static ddl_status report_unconnected(const ddl_joining *joining, const char *missing, ddl_error *err)
{
    const int first = ddl_joining_first_missing(joining), rank = joining->self.rank;
    const double waited_s = (double)(ddl_now_ns() - joining->progress.start_ns) / 1e9;
    if (first < 0)
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "rank %d, at %s, port %u, has not connected all others of its host to each other within "
            "%.1f s; is it short of CPU time? Or raise DDL_START_TIMEOUT",
            rank, joining->own.address, joining->own.port, waited_s);
    else
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "%s and rank %d, at %s, port %u, were not connected to each other within %.1f s; are "
            "they stopped, or short of descriptors, or is there a firewall between them (DDL_PORT_RANGE, "
            "DDL_IFACE)? Or raise DDL_START_TIMEOUT",
            missing, rank, joining->own.address, joining->own.port, waited_s);
    (void)ddl_error_blame(err, first < 0 ? rank : first);
    return DDL_ETIMEDOUT;
}

ddl_status ddl_joining_connect_all(ddl_joining *joining, ddl_error *err)
{
    const ddl_deadline deadline = joining->options->deadline;
    if (joining->roster->connect != joining->options->connect) /* rank 0 says otherwise */
        DDL_TRY(ddl_bootstrap_need_descriptors(joining->self.rank, joining->self.nranks,
                                               joining->roster->connect, err));
    DDL_TRY(need_more_descriptors(joining->roster, err));
    DDL_TRY(make_room_for_streams(joining, err));
    DDL_TRY(ddl_meshing_start(joining->meshing, joining->roster, joining->options->late_ms, deadline, err));
    for (;;) {
        ddl_deadline slice = ddl_deadline_in_ms(DDL_JOINING_CHECK_INTERVAL_MS);
        ddl_status status = ddl_meshing_wait(joining->meshing, slice < deadline ? slice : deadline, err);
        if (status != DDL_ETIMEDOUT)
            return status;
        DDL_TRY(ddl_store_check(joining->store, err));
        ddl_meshing_connected(joining->meshing, joining->present);
        char missing[DDL_JOINING_ABSENCE_TEXT];
        ddl_joining_describe_missing(joining, missing);
        if (ddl_deadline_passed(deadline))
            return report_unconnected(joining, missing, err);
        if (ddl_joining_first_missing(joining) >= 0) /* else what is still to be done is this rank's */
            ddl_progress_tell(&joining->progress, "%s to be connected to rank %d", missing,
                              joining->self.rank);
    }
}
