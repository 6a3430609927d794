/* course_meeting.c - ranks wait for each other at the store: to have come, later to be connected. */
#include "rendezvous/course.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "io/address.h"
#include "io/host.h"
#include "rendezvous/secret.h"

#include <stdio.h>
#include <string.h>

/* Who is missing may have no secret, or another, where the home directory is not shared. Told once. */
static void tell_errand(ddl_course *course)
{
    const ddl_bootstrap_options *options = course->options;
    char path[DDL_SECRET_PATH], host[256], errand[DDL_SECRET_ERRAND];
    uint16_t port;
    if (course->told_errand || options->prover == NULL ||
        !ddl_secret_is_of_home(options->prover->source, path))
        return;
    course->told_errand = true;
    if (path[0] == '\0') {
        ddl_log(
            DDL_LOG_INFO,
            "hosts that do not share this home directory need this job's secret too: copy its file, whose "
            "name is too long to be told here, ~/.ddl/secret unless DDL_SECRET_FILE names another");
        return;
    }
    /* In another store a place is but a name, if it has one. */
    if (strncmp(options->store, DDL_COURSE_TCP_STORE, sizeof DDL_COURSE_TCP_STORE - 1) != 0 ||
        ddl_address_split("", options->master, host, sizeof host, &port, NULL) != DDL_OK)
        snprintf(host, sizeof host, "%s", course->own.host);
    ddl_secret_errand(host, path, errand);
    ddl_log(DDL_LOG_INFO,
            "hosts that do not share this home directory need its secret too; on each of them run: %s",
            errand);
}

/* Rank 0: wait until every rank has set its key of this kind. */
static ddl_status collect(ddl_course *course, const char *what, ddl_bytes values[], ddl_error *err)
{
    const ddl_deadline deadline = course->options->deadline;
    const ddl_store_many many = { what, course->self.nranks, course->present, values, false };
    memset(course->present, 0, (size_t)course->self.nranks * sizeof *course->present);
    for (;;) {
        ddl_deadline slice = ddl_deadline_earlier(course->progress.next, deadline);
        ddl_status status = ddl_store_get_many(course->store, &many, slice, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(deadline))
            return status;
        DDL_TRY(ddl_course_tell_absence(course, what, err));
        if (strcmp(what, "member") == 0)
            tell_errand(course);
    }
}

/* Another rank: wait for what rank 0 sets when every rank has set its key of this kind. */
static ddl_status await(ddl_course *course, const char *key, const char *what, ddl_bytes *value,
                        ddl_error *err)
{
    const ddl_deadline deadline = course->options->deadline;
    for (;;) {
        ddl_deadline slice = ddl_deadline_earlier(course->progress.next, deadline);
        ddl_status status = ddl_store_get(course->store, key, slice, value, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(deadline))
            return status;
        memset(course->present, 0, (size_t)course->self.nranks * sizeof *course->present);
        DDL_TRY(ddl_course_look_around(course, what, err));
        if (course->present[course->self.rank] && ddl_course_first_missing(course) >= 0)
            DDL_TRY(ddl_course_tell_absence(course, what, err));
        else
            ddl_progress_tell(&course->progress, "rank 0 at %s", course->options->store);
    }
}

/* Rank 0: the record of every rank goes into the roster. */
static ddl_status collect_members(ddl_course *course, ddl_error *err)
{
    const int nranks = course->self.nranks;
    ddl_bytes *records = ddl_alloc_array((size_t)nranks, sizeof *records);
    if (records == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the records of %d ranks", nranks);
    ddl_status status = collect(course, "member", records, err);
    for (int rank = 0; rank < nranks; rank++) {
        ddl_member *member = &course->roster->members[rank];
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

void ddl_course_fill_in(ddl_course *course)
{
    const ddl_bootstrap_options *options = course->options;
    DDL_ASSERT(options->ncosts <= DDL_ROSTER_COSTS);
    course->roster->ncosts = options->ncosts;
    for (int i = 0; i < options->ncosts; i++)
        course->roster->costs[i] = options->costs[i];
    course->roster->connect = options->connect;
    course->roster->nstreams = options->nstreams > 0 ? options->nstreams : 0;
    memcpy(course->roster->run_id, course->self.run_id, DDL_RUN_ID_BYTES);
}

static ddl_status gather_roster(ddl_course *course, ddl_error *err)
{
    ddl_bytes table = { 0 }, existing = { 0 };
    ddl_store_outcome outcome;
    DDL_TRY(ddl_roster_create(0, course->self.nranks, &course->roster, err));
    DDL_TRY(collect_members(course, err));
    course->all_have_come = true;
    ddl_course_fill_in(course);
    ddl_roster_derive(course->roster);
    if (course->options->nstreams < 0)
        ddl_roster_offer_streams(course->roster);
    DDL_TRY(check_addresses(course->roster, err));
    if (!ddl_roster_encode(course->roster, &table)) {
        ddl_bytes_fini(&table);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the roster of %d ranks", course->self.nranks);
    }
    ddl_status status = ddl_store_set_new(course->store, DDL_STORE_ROSTER, ddl_bytes_view(&table),
                                          course->options->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    ddl_bytes_fini(&table);
    return status;
}

static ddl_status receive_roster(ddl_course *course, ddl_error *err)
{
    ddl_bytes table = { 0 };
    DDL_TRY(await(course, DDL_STORE_ROSTER, "member", &table, err));
    ddl_status status = ddl_roster_decode(ddl_bytes_view(&table), course->self.rank, &course->roster, err);
    ddl_bytes_fini(&table);
    if (status != DDL_OK)
        return status;
    if (course->roster->nranks != course->self.nranks ||
        memcmp(course->roster->run_id, course->self.run_id, DDL_RUN_ID_BYTES) != 0)
        return DDL_FAIL(err, DDL_ESTORE, "the roster at %s belongs to another run", course->options->store);
    return DDL_OK;
}

ddl_status ddl_course_meet(ddl_course *course, ddl_error *err)
{
    ddl_status status = course->self.rank == 0 ? gather_roster(course, err) : receive_roster(course, err);
    return status == DDL_ETIMEDOUT ? ddl_course_report_absence(course, "member", "come", "come", err)
                                   : status;
}

static ddl_status set_empty(ddl_course *course, const char *key, ddl_error *err)
{
    ddl_store_outcome outcome;
    ddl_bytes existing = { 0 };
    ddl_status status = ddl_store_set_new(course->store, key, (ddl_view){ NULL, 0 },
                                          course->options->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    return status;
}

ddl_status ddl_course_settle(ddl_course *course, ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    DDL_FAILPOINT_STALL("rendezvous.settle");
    ddl_store_name("meshed", course->self.rank, key);
    DDL_TRY(set_empty(course, key, err));
    ddl_status status;
    if (course->self.rank == 0) {
        status = collect(course, "meshed", NULL, err);
        if (status == DDL_OK)
            status = set_empty(course, DDL_STORE_SETTLED, err);
    } else {
        ddl_bytes nothing = { 0 };
        status = await(course, DDL_STORE_SETTLED, "meshed", &nothing, err);
        ddl_bytes_fini(&nothing);
    }
    if (status == DDL_ETIMEDOUT)
        return ddl_course_report_absence(course, "meshed", "connect to all others", "connected", err);
    return status;
}
