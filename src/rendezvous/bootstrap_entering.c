/* bootstrap_entering.c - this rank enters a run: it comes to the place, listens, is known there. */
#include "rendezvous/bootstrap_parts.h"

#include "base/log.h"
#include "io/address.h"
#include "io/socket.h"
#include "rendezvous/failed_runs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    OVER_PAUSE_MS = 50,    /* before looking again at a place whose last run is over */
    NO_PORT_MS = 10000,    /* for a local port to become free */
    NO_PORT_PAUSE_MS = 100 /* before looking again for one */
};

/* As ddl_meshing_open. Connections of others end, or have lingered long enough, and leave their ports. */
static ddl_status listen_for_ranks(ddl_joining *joining, const ddl_network_place *place,
                                   uint16_t ports[DDL_NETWORK_LISTEN_MAX], ddl_error *err)
{
    const ddl_bootstrap_options *options = joining->options;
    const ddl_deadline until = ddl_deadline_earlier(options->deadline, ddl_deadline_in_ms(NO_PORT_MS));
    for (;;) {
        ddl_error why = { .code = DDL_OK };
        ddl_status status = ddl_meshing_open(options->service, &joining->self, options->encryption, place,
                                             joining->network->ports, options->local, options->deadline,
                                             ports, &joining->meshing, &why);
        if (status == DDL_OK)
            return DDL_OK;
        if (status != DDL_ERESOURCE || why.os_errno != EADDRINUSE || ddl_deadline_passed(until)) {
            *err = why;
            return status;
        }
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(NO_PORT_PAUSE_MS));
        DDL_TRY(ddl_store_check(joining->store, err));
    }
}

/* Listen for the others, and note what they are to call. */
static ddl_status open_mesh(ddl_joining *joining, ddl_error *err)
{
    const ddl_bootstrap_options *options = joining->options;
    ddl_network_place place;
    uint16_t ports[DDL_NETWORK_LISTEN_MAX];
    DDL_TRY(ddl_network_choose(joining->network, options->store, options->master,
                               ddl_store_address(joining->store), options->deadline, &place, err));
    DDL_TRY(listen_for_ranks(joining, &place, ports, err));
    joining->bootstrap->forming = joining->meshing;
    ddl_network_tell(joining->network, &place, ports, &joining->own);
    for (int i = 0; i < place.nlisten; i++) {
        char listens[DDL_ADDRESS_FULL_TEXT];
        ddl_address_set_port(&place.listen[i], ports[i]);
        ddl_address_text(&place.listen[i], listens);
        ddl_log(DDL_LOG_DEBUG, "rank %d on %s listens at %s; others call %s, port %u", joining->own.rank,
                joining->own.host, listens, joining->own.address, joining->own.port);
    }
    return DDL_OK;
}

static ddl_status refuse_latecomer(const ddl_joining *joining, ddl_view existing, ddl_error *err)
{
    ddl_member first;
    if (ddl_member_decode(existing, &first, NULL) != DDL_OK)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "rank %d is here already; two processes were started with the same RANK",
                        joining->own.rank);
    if (first.pid == joining->own.pid && strcmp(first.host, joining->own.host) == 0) {
        (void)DDL_FAIL(err, DDL_ECONFIG,
                       "rank %d is here already: it is this process, %s[%d]; free that communicator before "
                       "another ddl_init, or have each meet at a port of its own",
                       joining->own.rank, first.host, (int)first.pid);
        return ddl_error_blame(err, joining->own.rank), DDL_ECONFIG;
    }
    (void)DDL_FAIL(
        err, DDL_ECONFIG,
        "rank %d is here already: it is %s[%d], and this is %s[%d]; two processes were started with the same "
        "RANK, or two jobs share %s",
        joining->own.rank, first.host, (int)first.pid, joining->own.host, (int)joining->own.pid,
        joining->options->store);
    return ddl_error_blame(err, joining->own.rank), DDL_ECONFIG;
}

static ddl_status leave_will(ddl_joining *joining, ddl_error *err)
{
    ddl_error will;
    (void)ddl_error_set(&will, DDL_EPEERLOST,
                        "rank %d on %s[%d] ended before all ranks were connected; look at its "
                        "output",
                        joining->own.rank, joining->own.host, (int)joining->own.pid);
    will.culprit = joining->own.rank;
    return ddl_store_will(joining->store, &will, joining->options->deadline, err);
}

/* Say who and where this rank is. *over: this run has ended, and the next has to be waited for. */
static ddl_status publish(ddl_joining *joining, bool *over, ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_bytes record = { 0 }, existing = { 0 };
    ddl_store_outcome outcome = DDL_STORE_CREATED;
    ddl_store_name("member", joining->own.rank, key);
    if (!ddl_member_encode(&joining->own, &record))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a rank's record");
    ddl_status status = ddl_store_set_new(joining->store, key, ddl_bytes_view(&record),
                                          joining->options->deadline, &outcome, &existing, err);
    if (status == DDL_OK && outcome == DDL_STORE_TAKEN)
        status = refuse_latecomer(joining, ddl_bytes_view(&existing), err);
    *over = outcome == DDL_STORE_ABANDONED;
    ddl_bytes_fini(&record);
    ddl_bytes_fini(&existing);
    return status;
}

void ddl_joining_close_store(ddl_joining *joining, ddl_deadline deadline)
{
    if (joining->bootstrap != NULL)
        joining->bootstrap->store = NULL;
    ddl_store_destroy(joining->store, deadline);
    joining->store = NULL;
}

static void forget_run(ddl_joining *joining)
{
    joining->bootstrap->forming = NULL;
    (void)ddl_meshing_close(joining->meshing, joining->options->deadline, NULL);
    joining->meshing = NULL;
    ddl_joining_close_store(joining, ddl_now_ns());
}

/* Once more, to a run that rank 0 has yet to begin. */
static ddl_status await_next_run(ddl_joining *joining, ddl_deadline deadline, ddl_error *err)
{
    const char *place = joining->options->store;
    if (ddl_deadline_passed(deadline))
        return DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "the last run at %s is over, and rank 0 did not begin another within %.1f s; start rank 0, "
            "or raise DDL_START_TIMEOUT",
            place, (double)(ddl_now_ns() - joining->progress.start_ns) / 1e9);
    ddl_progress_tell(&joining->progress, "rank 0 to begin another run at %s", place);
    (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(OVER_PAUSE_MS));
    return DDL_OK;
}

ddl_status ddl_joining_come_to_place(ddl_joining *joining, ddl_deadline deadline, ddl_error *err)
{
    const ddl_bootstrap_options *options = joining->options;
    const ddl_store_options store = { .url = options->store,
                                      .place = options->master,
                                      .self = &joining->self,
                                      .encryption = options->encryption,
                                      .service = options->service,
                                      .network = joining->network,
                                      .progress = &joining->progress,
                                      .is_modest = options->lack != NULL };
    DDL_TRY(ddl_store_open(&store, deadline, &joining->store, err));
    while (ddl_failed_runs_have(ddl_store_run_id(joining->store), options->rank)) {
        ddl_joining_close_store(joining, ddl_now_ns());
        DDL_TRY(await_next_run(joining, deadline, err));
        DDL_TRY(ddl_store_open(&store, deadline, &joining->store, err));
    }
    joining->bootstrap->store = joining->store;
    if (options->quiet && options->rank != 0) /* rank 0 tells of the others */
        joining->progress.next = DDL_DEADLINE_NEVER;
    memcpy(joining->self.run_id, ddl_store_run_id(joining->store), DDL_RUN_ID_BYTES);
    return DDL_OK;
}

ddl_status ddl_joining_enter_run(ddl_joining *joining, ddl_error *err)
{
    const ddl_bootstrap_options *options = joining->options;
    for (;;) {
        bool over = false;
        DDL_TRY(ddl_joining_come_to_place(joining, options->deadline, err));
        ddl_status status = open_mesh(joining, err);
        if (status == DDL_OK)
            status = leave_will(joining, err);
        if (status == DDL_OK)
            status = publish(joining, &over, err);
        over = over || (status != DDL_OK && ddl_store_is_lost(joining->store));
        if (!over)
            return status;
        forget_run(joining);
        memset(joining->self.run_id, 0, DDL_RUN_ID_BYTES);
        DDL_TRY(await_next_run(joining, options->deadline, err));
    }
}
