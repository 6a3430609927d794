/* bootstrap.c - the course of a start-up. */
#include "rendezvous/course.h"

#include "base/assert.h"
#include "base/log.h"
#include "io/address.h"
#include "io/host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CLOSING_MS = 1000 };

/* ---- this rank ---- */

ddl_status ddl_bootstrap_know_oneself(int rank, int nranks, uint32_t generator, const ddl_prover *prover,
                                      ddl_hello_party *self, ddl_member *own, ddl_error *err)
{
    self->rank = own->rank = rank;
    self->nranks = nranks;
    self->generator = generator;
    self->library = ddl_hello_library(DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH);
    self->prover = prover;
    self->level = ddl_prover_level(prover);
    self->pid = own->pid = (int32_t)getpid();
    ddl_host_name(own->host);
    ddl_hello_clean(own->host);
    memcpy(self->host, own->host, sizeof self->host);
    ddl_host_id(own->host_id);
    own->cpus = ddl_host_cpus(&own->first_cpu);
    return ddl_host_random(self->nonce, sizeof self->nonce, err);
}

static ddl_status know_oneself(ddl_course *course, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    course->own.asks_nccl = options->asks_nccl;
    course->own.may_use_nccl = options->may_use_nccl;
    course->own.may_have_gpu = options->may_have_gpu;
    course->own.declines_memory = !options->local;
    course->own.insists_on_memory = options->insists_on_memory;
    course->own.declines_streams =
        options->nranks > 1 && !ddl_bootstrap_may_have_streams(options->rank, options->nranks);
    return ddl_bootstrap_know_oneself(options->rank, options->nranks, options->generator, options->prover,
                                      &course->self, &course->own, err);
}

/* ---- the whole ---- */

static ddl_status run_course(ddl_course *course, ddl_error *err)
{
    DDL_TRY(ddl_course_meet(course, err));
    DDL_TRY(ddl_course_connect_all(course, err));
    if (ddl_roster_keeps_doors(course->roster))
        DDL_TRY(ddl_meshing_serve(course->meshing, course->options->deadline, err));
    return ddl_course_settle(course, err);
}

/* Whether a store of this name is open to other machines: any tcp:// one but on loopback. */
static bool is_open_place(const char *store)
{
    char host[256];
    uint16_t port;
    ddl_address address;
    if (strncmp(store, DDL_COURSE_TCP_STORE, sizeof DDL_COURSE_TCP_STORE - 1) != 0)
        return false;
    if (ddl_address_split("ADDRESS", store + sizeof DDL_COURSE_TCP_STORE - 1, host, sizeof host, &port,
                          NULL) != DDL_OK)
        return true;
    return strcmp(host, "localhost") != 0 &&
           !(ddl_address_parse(host, port, &address) && ddl_address_is_loopback(&address));
}

/* Once for the job: without proofs, whoever reaches rank 0, or its store, can take part. */
static void warn_if_open(const ddl_course *course)
{
    ddl_address address;
    if (course->self.rank != 0 || course->self.prover != NULL)
        return;
    bool open = ddl_address_parse(course->own.address, course->own.port, &address) &&
                !ddl_address_is_loopback(&address);
    if (!open && !is_open_place(course->options->store))
        return;
    ddl_log(
        DDL_LOG_WARNING,
        "DDL_SECURITY=off: whoever can reach %s can join this job, read its data and change its results; use "
        "auth outside of networks that you trust",
        open ? course->own.address : course->options->store);
}

static ddl_status join(ddl_course *course, ddl_error *err)
{
    ddl_service_set_lack(course->options->service, 0); /* which may have served another start */
    ddl_service_set_turned_away(course->options->service, "");
    DDL_TRY(know_oneself(course, err));
    if (course->options->lack != NULL) {
        *err = *course->options->lack;
        return ddl_course_come_and_decline(course, err);
    }
    DDL_TRY(ddl_course_check_interfaces(course, err));
    ddl_status status = ddl_course_enter_run(course, err);
    if (status != DDL_OK) {
        (void)ddl_course_own_up(course, err);
        return ddl_course_decline(course, err);
    }
    warn_if_open(course);
    status = run_course(course, err);
    if (status != DDL_OK) {
        (void)ddl_course_own_up(course, err);
        ddl_course_tell_others(course, err);
        if (err->code == DDL_ETIMEDOUT && course->own.rank == 0) /* another may have given up first */
            ddl_course_tell_of_turned_away(course, err);
        ddl_course_stay_shortly(course, err);
        status = err->code;
    }
    return status;
}

static ddl_status roster_of_one(ddl_course *course, ddl_error *err)
{
    DDL_TRY(know_oneself(course, err));
    DDL_TRY(ddl_roster_create(0, 1, &course->roster, err));
    DDL_TRY(ddl_host_random(course->self.run_id, DDL_RUN_ID_BYTES, err));
    ddl_course_fill_in(course);
    snprintf(course->own.address, sizeof course->own.address, "127.0.0.1");
    course->roster->members[0] = course->own;
    ddl_roster_derive(course->roster);
    return DDL_OK;
}

static void close_streams(ddl_bootstrap *bootstrap)
{
    ddl_wire *streams = bootstrap->streams;
    for (int i = 0; i < bootstrap->nranks * bootstrap->nstreams; i++)
        ddl_wire_close(&streams[i]);
    bootstrap->streams = NULL;
    ddl_free(streams);
}

static void take_streams(ddl_course *course, ddl_bootstrap *bootstrap)
{
    const ddl_roster *roster = course->roster;
    bootstrap->nranks = roster->nranks;
    bootstrap->nstreams = course->streams != NULL ? roster->nstreams : 0;
    bootstrap->streams = course->streams;
    course->streams = NULL;
    for (int rank = 0; rank < roster->nranks && bootstrap->nstreams > 0; rank++)
        if (ddl_roster_connects(roster, rank))
            ddl_meshing_take_streams(course->meshing, rank,
                                     bootstrap->streams + (size_t)rank * (size_t)bootstrap->nstreams);
}

/* The meshing has done its work, but where connections are made late. */
static ddl_status hand_over(ddl_course *course, ddl_bootstrap *bootstrap, ddl_wire wires[], ddl_error *err)
{
    ddl_status status = DDL_OK;
    wires[0] = ddl_no_wire;
    if (course->meshing != NULL)
        ddl_meshing_take(course->meshing, wires);
    take_streams(course, bootstrap);
    bootstrap->forming = NULL; /* wires and streams have all of them */
    if (ddl_roster_keeps_doors(course->roster))
        bootstrap->meshing = course->meshing;
    else
        status = ddl_meshing_close(course->meshing, course->options->deadline, err);
    if (status == DDL_OK) {
        course->meshing = NULL;
        return DDL_OK;
    }
    (void)ddl_course_own_up(course, err);
    for (int rank = 0; rank < bootstrap->nranks; rank++)
        ddl_wire_close(&wires[rank]);
    close_streams(bootstrap);
    return err->code;
}

ddl_status ddl_bootstrap_join(const ddl_bootstrap_options *options, ddl_bootstrap **out, ddl_roster **roster,
                              ddl_wire wires[], ddl_error *err)
{
    ddl_error unwanted;
    ddl_course course = { .options = options, .network = &ddl_network_unsaid };
    if (options->network != NULL)
        course.network = options->network;
    DDL_ASSERT(options->nranks > 0);
    DDL_ASSERT(options->rank >= 0);
    DDL_ASSERT(options->rank < options->nranks);
    if (err == NULL)
        err = &unwanted;
    ddl_bootstrap *bootstrap = ddl_alloc(sizeof *bootstrap);
    course.present = ddl_alloc_array((size_t)options->nranks, sizeof *course.present);
    ddl_progress_start(&course.progress, options->deadline);
    if (options->quiet && options->rank > 1) /* rank 1 tells that it is rank 0 who is missing */
        course.progress.next = DDL_DEADLINE_NEVER;
    ddl_status status;
    course.bootstrap = *out = bootstrap;
    if (bootstrap == NULL || course.present == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to start %d ranks", options->nranks);
    else
        status = options->nranks == 1 ? roster_of_one(&course, err) : join(&course, err);
    if (status == DDL_OK)
        status = hand_over(&course, bootstrap, wires, err);
    if (status == DDL_OK) {
        *roster = course.roster;
    } else {
        *out = NULL;
        ddl_course_close_store(&course, ddl_deadline_in_ms(DDL_COURSE_LAST_WORDS_MS));
        /* Which looks at the roster. */
        if (ddl_meshing_close(course.meshing, ddl_deadline_in_ms(CLOSING_MS), NULL) == DDL_OK)
            ddl_roster_destroy(course.roster);
        ddl_free(bootstrap);
    }
    ddl_free(course.streams);
    ddl_free(course.present);
    return status;
}

void ddl_bootstrap_take_streams(ddl_bootstrap *bootstrap, int rank, ddl_wire streams[])
{
    for (int i = 0; i < bootstrap->nstreams; i++) {
        ddl_wire *stream = &bootstrap->streams[(size_t)rank * (size_t)bootstrap->nstreams + (size_t)i];
        streams[i] = *stream;
        *stream = ddl_no_wire;
    }
}

void ddl_bootstrap_listen(ddl_bootstrap *bootstrap, void (*hear)(void *arg), void *arg)
{
    if (bootstrap->meshing != NULL)
        ddl_meshing_listen(bootstrap->meshing, hear, arg);
}

void ddl_bootstrap_reach(ddl_bootstrap *bootstrap, int rank)
{
    if (bootstrap->meshing != NULL)
        ddl_meshing_reach(bootstrap->meshing, rank);
}

void ddl_bootstrap_widen(ddl_bootstrap *bootstrap, int rank)
{
    if (bootstrap->meshing != NULL)
        ddl_meshing_widen(bootstrap->meshing, rank);
}

bool ddl_bootstrap_next(ddl_bootstrap *bootstrap, ddl_meshing_outcome *outcome)
{
    return bootstrap->meshing != NULL && ddl_meshing_next(bootstrap->meshing, outcome);
}

void ddl_bootstrap_shut_door(ddl_bootstrap *bootstrap)
{
    bootstrap->closing = bootstrap->meshing;
    bootstrap->meshing = NULL;
}

void ddl_bootstrap_leave(ddl_bootstrap *bootstrap)
{
    if (bootstrap == NULL)
        return;
    ddl_status status =
        ddl_meshing_close(bootstrap->closing != NULL ? bootstrap->closing : bootstrap->meshing,
                          ddl_deadline_in_ms(CLOSING_MS), NULL);
    ddl_store_destroy(bootstrap->store, ddl_deadline_in_ms(DDL_COURSE_LAST_WORDS_MS));
    close_streams(bootstrap);
    if (status == DDL_OK) /* else hear may be called, and look for who has come */
        ddl_free(bootstrap);
}

void ddl_bootstrap_clear_up(ddl_bootstrap *bootstrap, ddl_deadline deadline)
{
    if (bootstrap == NULL || bootstrap->store == NULL || !ddl_store_outlives(bootstrap->store))
        return;
    ddl_store_destroy(bootstrap->store, deadline);
    bootstrap->store = NULL;
}

void ddl_bootstrap_close_in_child(ddl_bootstrap *bootstrap)
{
    if (bootstrap == NULL)
        return;
    ddl_store_close_in_child(bootstrap->store);
    const ddl_meshing *meshings[] = { bootstrap->forming, bootstrap->meshing, bootstrap->closing };
    for (int i = 0; i < 3; i++)
        if (meshings[i] != NULL)
            ddl_meshing_close_in_child(meshings[i]);
    for (int i = 0; bootstrap->streams != NULL && i < bootstrap->nranks * bootstrap->nstreams; i++)
        if (bootstrap->streams[i].fd >= 0)
            close(bootstrap->streams[i].fd);
}
