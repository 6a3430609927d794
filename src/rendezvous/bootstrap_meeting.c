/* bootstrap_meeting.c - ranks wait for each other at the store: to have come, later to be connected. */
#include "rendezvous/bootstrap_parts.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "io/address.h"
#include "io/host.h"
#include "rendezvous/secret.h"

#include <stdio.h>
#include <string.h>

/* Who is missing may have no secret, or another, where the home directory is not shared. Told once. */
static void tell_how_to_copy_secret(ddl_joining *joining)
{
    const ddl_bootstrap_options *options = joining->options;
    char path[DDL_SECRET_PATH], host[256], command[DDL_SECRET_COPY_COMMAND];
    uint16_t port;
    if (joining->told_how_to_copy_secret || options->prover == NULL ||
        !ddl_secret_is_of_home(options->prover->source, path))
        return;
    joining->told_how_to_copy_secret = true;
    if (path[0] == '\0') {
        ddl_log(
            DDL_LOG_INFO,
            "hosts that do not share this home directory need this job's secret too: copy its file, whose "
            "name is too long to be told here, ~/.ddl/secret unless DDL_SECRET_FILE names another");
        return;
    }
    /* In another store a place is but a name, if it has one. */
    if (strncmp(options->store, DDL_JOINING_TCP_STORE, sizeof DDL_JOINING_TCP_STORE - 1) != 0 ||
        ddl_address_split("", options->master, host, sizeof host, &port, NULL) != DDL_OK)
        snprintf(host, sizeof host, "%s", joining->own.host);
    ddl_secret_copy_command(host, path, command);
    ddl_log(DDL_LOG_INFO,
            "hosts that do not share this home directory need its secret too; on each of them run: %s",
            command);
}

/* Rank 0: wait until every rank has set its key of this kind. */
static ddl_status collect(ddl_joining *joining, const char *what, ddl_bytes values[], ddl_error *err)
{
    const ddl_deadline deadline = joining->options->deadline;
    const ddl_store_many many = { what, joining->self.nranks, joining->present, values, false };
    memset(joining->present, 0, (size_t)joining->self.nranks * sizeof *joining->present);
    for (;;) {
        ddl_deadline slice = ddl_deadline_earlier(joining->progress.next, deadline);
        ddl_status status = ddl_store_get_many(joining->store, &many, slice, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(deadline))
            return status;
        DDL_TRY(ddl_joining_tell_absence(joining, what, err));
        if (strcmp(what, "member") == 0)
            tell_how_to_copy_secret(joining);
    }
}

/* Another rank: wait for what rank 0 sets when every rank has set its key of this kind. */
static ddl_status await(ddl_joining *joining, const char *key, const char *what, ddl_bytes *value,
                        ddl_error *err)
{
    const ddl_deadline deadline = joining->options->deadline;
    for (;;) {
        ddl_deadline slice = ddl_deadline_earlier(joining->progress.next, deadline);
        ddl_status status = ddl_store_get(joining->store, key, slice, value, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(deadline))
            return status;
        memset(joining->present, 0, (size_t)joining->self.nranks * sizeof *joining->present);
        DDL_TRY(ddl_joining_look_around(joining, what, err));
        DDL_TRY(ddl_joining_tell_absence(joining, what, err));
    }
}

/* Rank 0: the record of every rank goes into the roster. */
static ddl_status collect_members(ddl_joining *joining, ddl_error *err)
{
    const int nranks = joining->self.nranks;
    ddl_bytes *records = ddl_alloc_array((size_t)nranks, sizeof *records);
    if (records == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the records of %d ranks", nranks);
    ddl_status status = collect(joining, "member", records, err);
    for (int rank = 0; rank < nranks; rank++) {
        ddl_member *member = &joining->roster->members[rank];
        if (status == DDL_OK)
            status = ddl_member_decode(ddl_bytes_view(&records[rank]), member, err);
        if (status == DDL_OK)
            status = ddl_member_suits(member, false, err);
        ddl_bytes_fini(&records[rank]);
    }
    ddl_free(records);
    return status;
}

/* Whether some ranks are on other hosts than others for certain. */
static bool is_spread(const ddl_roster *roster)
{
    int sure_node = -1;
    for (int rank = 0; rank < roster->nranks; rank++) {
        if (!ddl_host_id_is_sure(roster->members[rank].host_id))
            continue;
        if (sure_node >= 0 && roster->node_of[rank] != sure_node)
            return true;
        sure_node = roster->node_of[rank];
    }
    return false;
}

/* An address that only its own host can reach is of no use to others. */
static ddl_status check_addresses(const ddl_roster *roster, ddl_error *err)
{
    const bool spread = is_spread(roster);
    for (int rank = 0; spread && rank < roster->nranks; rank++) {
        const ddl_member *member = &roster->members[rank];
        ddl_address address;
        if (!ddl_address_parse(member->address, member->port, &address) || !ddl_address_is_loopback(&address))
            continue;
        (void)DDL_FAIL(
            err, DDL_ECONFIG,
            "the ranks are on %d hosts, but rank %d on %s would be reached at %s, which no other host can "
            "reach; set MASTER_ADDR to an address of rank 0 that all hosts reach, or on that host DDL_IFACE "
            "or DDL_ADVERTISE",
            roster->node_count, rank, member->host, member->address);
        (void)ddl_error_blame(err, rank);
        return DDL_ECONFIG;
    }
    return DDL_OK;
}

void ddl_joining_fill_in(ddl_joining *joining)
{
    const ddl_bootstrap_options *options = joining->options;
    DDL_ASSERT(options->ncosts <= DDL_ROSTER_COSTS);
    joining->roster->ncosts = options->ncosts;
    for (int i = 0; i < options->ncosts; i++)
        joining->roster->costs[i] = options->costs[i];
    joining->roster->connect = options->connect;
    joining->roster->nstreams = options->nstreams > 0 ? options->nstreams : 0;
    memcpy(joining->roster->run_id, joining->self.run_id, DDL_RUN_ID_BYTES);
}

static ddl_status gather_roster(ddl_joining *joining, ddl_error *err)
{
    ddl_bytes table = { 0 }, existing = { 0 };
    ddl_store_outcome outcome;
    DDL_TRY(ddl_roster_create(0, joining->self.nranks, &joining->roster, err));
    DDL_TRY(collect_members(joining, err));
    joining->all_have_come = true;
    ddl_joining_fill_in(joining);
    ddl_roster_derive(joining->roster);
    if (joining->options->nstreams < 0)
        ddl_roster_offer_streams(joining->roster);
    DDL_TRY(check_addresses(joining->roster, err));
    if (!ddl_roster_encode(joining->roster, &table)) {
        ddl_bytes_fini(&table);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the roster of %d ranks", joining->self.nranks);
    }
    ddl_status status = ddl_store_set_new(joining->store, DDL_STORE_ROSTER, ddl_bytes_view(&table),
                                          joining->options->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    ddl_bytes_fini(&table);
    return status;
}

static ddl_status receive_roster(ddl_joining *joining, ddl_error *err)
{
    ddl_bytes table = { 0 };
    DDL_TRY(await(joining, DDL_STORE_ROSTER, "member", &table, err));
    ddl_status status = ddl_roster_decode(ddl_bytes_view(&table), joining->self.rank, &joining->roster, err);
    ddl_bytes_fini(&table);
    if (status != DDL_OK)
        return status;
    if (joining->roster->nranks != joining->self.nranks ||
        memcmp(joining->roster->run_id, joining->self.run_id, DDL_RUN_ID_BYTES) != 0)
        return DDL_FAIL(err, DDL_ESTORE, "the roster at %s belongs to another run", joining->options->store);
    return DDL_OK;
}

ddl_status ddl_joining_meet(ddl_joining *joining, ddl_error *err)
{
    ddl_status status = joining->self.rank == 0 ? gather_roster(joining, err) : receive_roster(joining, err);
    return status == DDL_ETIMEDOUT ? ddl_joining_report_absence(joining, "member", "come", "come", err)
                                   : status;
}

static ddl_status set_empty(ddl_joining *joining, const char *key, ddl_error *err)
{
    ddl_store_outcome outcome;
    ddl_bytes existing = { 0 };
    ddl_status status = ddl_store_set_new(joining->store, key, (ddl_view){ NULL, 0 },
                                          joining->options->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    return status;
}

ddl_status ddl_joining_settle(ddl_joining *joining, ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    DDL_FAILPOINT_STALL("rendezvous.settle");
    ddl_store_name("meshed", joining->self.rank, key);
    DDL_TRY(set_empty(joining, key, err));
    ddl_status status;
    if (joining->self.rank == 0) {
        status = collect(joining, "meshed", NULL, err);
        if (status == DDL_OK)
            status = set_empty(joining, DDL_STORE_SETTLED, err);
    } else {
        ddl_bytes nothing = { 0 };
        status = await(joining, DDL_STORE_SETTLED, "meshed", &nothing, err);
        ddl_bytes_fini(&nothing);
    }
    if (status == DDL_ETIMEDOUT)
        return ddl_joining_report_absence(joining, "meshed", "connect to all others", "connected", err);
    return status;
}
