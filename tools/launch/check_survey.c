/*
 * check_survey.c - a meeting of its own, and a connection in each direction between any two ranks.
 *
 * Keys: "member.R" and "roster" as in a start-up; "row.R" is what rank R found, an errno for each rank and
 * then the time of a request to the store in us, little endian, 4 bytes each; "verdict" is one byte, whether
 * the job could go on. Callers are accepted from before a rank is known to others until all have parted.
 */
#include "check_survey.h"

#include "check_door.h"
#include "check_probe.h"

#include "api/membership.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "io/host.h"
#include "io/service.h"
#include "io/socket.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/network_own.h"
#include "rendezvous/proof.h"
#include "rendezvous/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAVE_MS = 2000, /* for the others to hear the end */
    MARGIN = 64      /* of descriptors */
};

struct course {
    const ddl_config *config;
    check_survey *survey;
    ddl_deadline deadline;
    ddl_service *service;
    ddl_prover *prover;
    ddl_encryption *encryption;
    ddl_progress progress;
    ddl_hello_party self;
    ddl_member own;
    ddl_store *store;
    int listeners[DDL_NETWORK_LISTEN_MAX];
    check_door *door;
    uint32_t *row; /* what this rank found */
};

static void key_of(const char *what, int rank, char key[32])
{
    snprintf(key, 32, "%s.%d", what, rank);
}

/* ---- meeting ---- */

static ddl_status set(struct course *course, const char *key, ddl_view value, ddl_error *err)
{
    ddl_store_outcome outcome = DDL_STORE_CREATED;
    ddl_bytes existing = { 0 };
    ddl_status status =
        ddl_store_set_new(course->store, key, value, course->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    if (status == DDL_OK && outcome != DDL_STORE_CREATED)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "rank %d is here already: two processes have the same RANK, or two jobs share %s",
                        course->own.rank, course->config->store);
    return status;
}

static ddl_status listen_as_a_job(struct course *course, ddl_error *err)
{
    const ddl_network *network = &course->config->network;
    const int backlog = 2 * course->self.nranks + MARGIN;
    ddl_network_place place;
    uint16_t ports[DDL_NETWORK_LISTEN_MAX] = { 0 };
    DDL_TRY(ddl_network_choose(network, course->config->store, course->config->master,
                               ddl_store_address(course->store), course->deadline, &place, err));
    for (int i = 0; i < place.nlisten; i++) {
        ddl_address bound;
        DDL_TRY(network->ports.first == 0
                    ? ddl_socket_listen(&place.listen[i], backlog, &course->listeners[i], &bound, err)
                    : ddl_socket_listen_within(&place.listen[i], network->ports, course->self.rank, backlog,
                                               &course->listeners[i], &bound, err));
        ports[i] = ddl_address_port(&bound);
    }
    ddl_network_tell(network, &place, ports, &course->own);
    return check_door_open(course->service, course->listeners, place.nlisten, course->deadline, &course->door,
                           err);
}

static ddl_status publish(struct course *course, ddl_error *err)
{
    char key[32];
    ddl_error will;
    ddl_bytes record = { 0 };
    (void)ddl_error_set(&will, DDL_EPEERLOST, "rank %d on %s[%d] ended during the check; look at its output",
                        course->own.rank, course->own.host, (int)course->own.pid);
    will.culprit = course->own.rank;
    DDL_TRY(ddl_store_will(course->store, &will, course->deadline, err));
    if (!ddl_member_encode(&course->own, &record))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a rank's record");
    key_of("member", course->own.rank, key);
    ddl_status status = set(course, key, ddl_bytes_view(&record), err);
    ddl_bytes_fini(&record);
    return status;
}

/* ---- rank 0 collects ---- */

/* Of those who have not come, whoever was turned away is the first to look at. */
static ddl_status report_missing(struct course *course, const char *what, const char *verb, ddl_error *err)
{
    const int nranks = course->self.nranks;
    char key[32], missing[160], turned_away[DDL_SERVICE_TURNED_AWAY];
    int count = 0;
    bool *present = ddl_alloc_array((size_t)nranks, sizeof *present);
    if (present == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", nranks);
    for (int rank = 0; rank < nranks; rank++) {
        ddl_bytes value = { 0 };
        key_of(what, rank, key);
        present[rank] = ddl_store_get(course->store, key, ddl_now_ns(), &value, NULL) == DDL_OK;
        ddl_bytes_fini(&value);
        count += !present[rank];
    }
    ddl_progress_ranks(present, nranks, false, missing, sizeof missing);
    ddl_free(present);
    const char *plural = count == 1 ? "" : "s";
    ddl_service_turned_away(course->service, turned_away);
    if (turned_away[0] != '\0')
        return DDL_FAIL(err, DDL_ETIMEDOUT,
                        "rank%s %s of %d did not %s; rank 0 turned away %s; look at their output too", plural,
                        missing, nranks, verb, turned_away);
    return DDL_FAIL(err, DDL_ETIMEDOUT,
                    "rank%s %s of %d did not %s; look at their output: can they reach %s? Or raise "
                    "DDL_START_TIMEOUT",
                    plural, missing, nranks, verb, course->config->store);
}

/* Wait for the key of a rank, telling what is waited for. */
static ddl_status await(struct course *course, const char *what, int rank, ddl_bytes *value, ddl_error *err)
{
    char key[32];
    key_of(what, rank, key);
    for (;;) {
        ddl_deadline slice =
            course->progress.next < course->deadline ? course->progress.next : course->deadline;
        ddl_status status = ddl_store_get(course->store, key, slice, value, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(course->deadline))
            return status;
        ddl_progress_tell(&course->progress, "rank %d of %d to %s", rank, course->self.nranks,
                          strcmp(what, "member") == 0 ? "come" : "connect to the others");
    }
}

static ddl_status gather_members(struct course *course, ddl_error *err)
{
    ddl_roster *roster = course->survey->roster;
    ddl_bytes table = { 0 };
    for (int rank = 0; rank < roster->nranks; rank++) {
        ddl_bytes value = { 0 };
        ddl_status status = await(course, "member", rank, &value, err);
        if (status == DDL_OK)
            status = ddl_member_decode(ddl_bytes_view(&value), &roster->members[rank], err);
        if (status == DDL_OK)
            status = ddl_member_suits(&roster->members[rank], true, err);
        ddl_bytes_fini(&value);
        if (status == DDL_ETIMEDOUT)
            return report_missing(course, "member", "come", err);
        if (status != DDL_OK)
            return status;
    }
    memcpy(roster->run_id, course->self.run_id, DDL_RUN_ID_BYTES);
    ddl_roster_derive(roster);
    if (!ddl_roster_encode(roster, &table)) {
        ddl_bytes_fini(&table);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", roster->nranks);
    }
    ddl_status status = set(course, DDL_STORE_ROSTER, ddl_bytes_view(&table), err);
    ddl_bytes_fini(&table);
    return status;
}

static ddl_status meet(struct course *course, ddl_error *err)
{
    check_survey *survey = course->survey;
    ddl_bytes table = { 0 };
    if (course->self.rank == 0) {
        DDL_TRY(ddl_roster_create(0, course->self.nranks, &survey->roster, err));
        return gather_members(course, err);
    }
    DDL_TRY(ddl_store_get(course->store, DDL_STORE_ROSTER, course->deadline, &table, err));
    ddl_status status = ddl_roster_decode(ddl_bytes_view(&table), course->self.rank, &survey->roster, err);
    ddl_bytes_fini(&table);
    if (status == DDL_OK && survey->roster->nranks != course->self.nranks)
        return DDL_FAIL(err, DDL_ESTORE, "the roster at %s is of another job", course->config->store);
    return status;
}

/* How long the store takes, by asking for what is there. */
static ddl_status time_store(struct course *course, ddl_error *err)
{
    enum { TIMES = 5 };
    char key[32];
    key_of("member", course->self.rank, key);
    for (int i = 0; i < TIMES; i++) {
        ddl_bytes value = { 0 };
        int64_t start_ns = ddl_now_ns();
        ddl_status status = ddl_store_get(course->store, key, course->deadline, &value, err);
        double ms = (double)(ddl_now_ns() - start_ns) / 1e6;
        ddl_bytes_fini(&value);
        if (status != DDL_OK)
            return status;
        if (i == 0 || ms < course->survey->store_ms)
            course->survey->store_ms = ms;
    }
    return DDL_OK;
}

/* ---- connecting ---- */

static ddl_status publish_row(struct course *course, ddl_error *err)
{
    char key[32];
    ddl_bytes bytes = { 0 };
    bool fits = true;
    for (int rank = 0; rank < course->self.nranks && fits; rank++) {
        uint8_t wire[4];
        ddl_put_u32(wire, course->row[rank]);
        fits = ddl_bytes_append(&bytes, wire, sizeof wire);
    }
    if (fits) {
        uint8_t wire[4];
        ddl_put_u32(wire, (uint32_t)(course->survey->store_ms * 1e3));
        fits = ddl_bytes_append(&bytes, wire, sizeof wire);
    }
    key_of("row", course->self.rank, key);
    ddl_status status = fits ? set(course, key, ddl_bytes_view(&bytes), err)
                             : DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", course->self.nranks);
    ddl_bytes_fini(&bytes);
    return status;
}

static ddl_status gather_rows(struct course *course, ddl_error *err)
{
    const int nranks = course->self.nranks;
    check_survey *survey = course->survey;
    survey->goes_on = true;
    survey->results = ddl_alloc_array((size_t)nranks * (size_t)nranks, sizeof *survey->results);
    if (survey->results == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", nranks);
    for (int from = 0; from < nranks; from++) {
        ddl_bytes value = { 0 };
        ddl_status status = await(course, "row", from, &value, err);
        if (status == DDL_OK && value.bytes != 4 * (size_t)(nranks + 1))
            status = DDL_FAIL(err, DDL_EPROTO, "rank %d told of %zu ranks", from, value.bytes / 4);
        double store_ms = status == DDL_OK ? ddl_get_u32(value.data + 4 * nranks) / 1e3 : 0;
        survey->store_ms = store_ms > survey->store_ms ? store_ms : survey->store_ms;
        for (int to = 0; to < nranks && status == DDL_OK; to++) {
            uint32_t result = ddl_get_u32(value.data + 4 * to);
            survey->results[(size_t)from * (size_t)nranks + (size_t)to] = result;
            survey->goes_on = survey->goes_on && (result == 0 || !check_survey_needs(from, to));
        }
        ddl_bytes_fini(&value);
        if (status == DDL_ETIMEDOUT)
            return report_missing(course, "row", "finish connecting", err);
        if (status != DDL_OK)
            return status;
    }
    return DDL_OK;
}

/* All hear whether it goes on, before the meeting ends. */
static ddl_status part(struct course *course, ddl_error *err)
{
    check_survey *survey = course->survey;
    ddl_bytes verdict = { 0 }, nothing = { 0 };
    if (course->self.rank == 0) {
        uint8_t byte = survey->goes_on;
        DDL_TRY(set(course, "verdict", (ddl_view){ &byte, 1 }, err));
        return set(course, DDL_STORE_SETTLED, (ddl_view){ NULL, 0 }, err);
    }
    ddl_status status = ddl_store_get(course->store, "verdict", course->deadline, &verdict, err);
    survey->goes_on = status == DDL_OK && verdict.bytes == 1 && verdict.data[0] == 1;
    if (status == DDL_OK)
        status = ddl_store_get(course->store, DDL_STORE_SETTLED, course->deadline, &nothing, err);
    ddl_bytes_fini(&verdict);
    ddl_bytes_fini(&nothing);
    return status;
}

/* ---- the whole ---- */

static ddl_status run_met(struct course *course, ddl_error *err)
{
    if (listen_as_a_job(course, err) != DDL_OK) {
        ddl_bootstrap_sign(&course->own, "", err);
        return err->code;
    }
    DDL_TRY(publish(course, err));
    DDL_TRY(meet(course, err));
    DDL_TRY(time_store(course, err));
    DDL_TRY(check_probe_all(course->survey->roster, course->deadline, course->row, err));
    DDL_TRY(publish_row(course, err));
    if (course->self.rank == 0)
        DDL_TRY(gather_rows(course, err));
    return part(course, err);
}

static ddl_status run(struct course *course, ddl_error *err)
{
    const ddl_config *config = course->config;
    check_survey *survey = course->survey;
    DDL_TRY(ddl_membership_find(config, &course->prover, &course->encryption, err));
    static const char *const levels[] = { "off", "auth", "tls" }; /* as ddl_security */
    survey->security = levels[config->security];
    if (course->prover != NULL && course->prover->source != NULL)
        snprintf(survey->proves, sizeof survey->proves, "%s", course->prover->source);
    DDL_TRY(ddl_host_need_descriptors(4 * config->nranks + MARGIN, "the connections of the check", err));
    DDL_TRY(ddl_bootstrap_know_oneself(course->config->rank, course->config->nranks, DDL_GENERATOR_VERSION,
                                       course->prover, &course->self, &course->own, err));
    course->own.is_check = true;
    course->row = ddl_alloc_array((size_t)config->nranks, sizeof *course->row);
    if (course->row == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", config->nranks);
    DDL_TRY(ddl_service_create(&course->service, err));
    const ddl_store_options options = { .url = config->store,
                                        .place = config->master,
                                        .self = &course->self,
                                        .encryption = course->encryption,
                                        .service = course->service,
                                        .network = &config->network,
                                        .progress = &course->progress };
    DDL_TRY(ddl_store_open(&options, course->deadline, &course->store, err));
    memcpy(course->self.run_id, ddl_store_run_id(course->store), DDL_RUN_ID_BYTES);
    ddl_status status = run_met(course, err);
    if (status != DDL_OK) {
        ddl_store_fail(course->store, err, ddl_deadline_in_ms(LEAVE_MS), err);
        status = err->code;
    }
    return status;
}

ddl_status check_survey_run(const ddl_config *config, check_survey *survey, ddl_error *err)
{
    struct course course = { .config = config, .survey = survey, .deadline = config->start_until };
    memset(survey, 0, sizeof *survey);
    for (int i = 0; i < DDL_NETWORK_LISTEN_MAX; i++)
        course.listeners[i] = -1;
    ddl_progress_start(&course.progress, course.deadline);
    ddl_status status = run(&course, err);
    ddl_store_destroy(course.store, ddl_deadline_in_ms(LEAVE_MS));
    check_door_close(course.door);
    if (ddl_service_destroy(course.service)) { /* else its thread closes what it holds, should it go on */
        for (int i = 0; i < DDL_NETWORK_LISTEN_MAX; i++)
            ddl_socket_close(&course.listeners[i]);
        ddl_encryption_destroy(course.encryption);
        ddl_proof_destroy(course.prover);
    }
    ddl_free(course.row);
    if (status != DDL_OK)
        check_survey_fini(survey);
    return status;
}

void check_survey_fini(check_survey *survey)
{
    ddl_roster_destroy(survey->roster);
    ddl_free(survey->results);
    survey->roster = NULL;
    survey->results = NULL;
}
