/* bootstrap.c - the order of a start-up: come, meet, connect, settle. */
#include "rendezvous/bootstrap_parts.h"

#include "base/assert.h"
#include "base/log.h"
#include "io/address.h"
#include "io/host.h"
#include "rendezvous/failed_runs.h"

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

static ddl_status know_oneself(ddl_joining *joining, ddl_error *err)
{
    const ddl_bootstrap_options *options = joining->options;
    joining->own.asks_nccl = options->asks_nccl;
    joining->own.may_use_nccl = options->may_use_nccl;
    joining->own.may_have_gpu = options->may_have_gpu;
    joining->own.declines_memory = !options->local;
    joining->own.insists_on_memory = options->insists_on_memory;
    joining->own.declines_streams =
        options->nranks > 1 && !ddl_bootstrap_may_have_streams(options->rank, options->nranks);
    return ddl_bootstrap_know_oneself(options->rank, options->nranks, options->generator, options->prover,
                                      &joining->self, &joining->own, err);
}

/* ---- the whole ---- */

static ddl_status make_ready(const ddl_joining *joining, ddl_error *err)
{
    const ddl_bootstrap_options *options = joining->options;
    if (options->make_ready == NULL || options->make_ready(options->arg, joining->roster, err) == DDL_OK)
        return DDL_OK;
    ddl_bootstrap_sign(&joining->own, "", err);
    return err->code;
}

static ddl_status run_joining(ddl_joining *joining, ddl_error *err)
{
    DDL_TRY(ddl_joining_meet(joining, err));
    DDL_TRY(make_ready(joining, err));
    DDL_TRY(ddl_joining_connect_all(joining, err));
    if (ddl_roster_keeps_doors(joining->roster))
        DDL_TRY(ddl_meshing_serve(joining->meshing, joining->options->deadline, err));
    return ddl_joining_settle(joining, err);
}

/* Whether a store of this name is open to other machines: any tcp:// one but on loopback. */
static bool is_open_place(const char *store)
{
    char host[256];
    uint16_t port;
    ddl_address address;
    if (strncmp(store, DDL_JOINING_TCP_STORE, sizeof DDL_JOINING_TCP_STORE - 1) != 0)
        return false;
    if (ddl_address_split("ADDRESS", store + sizeof DDL_JOINING_TCP_STORE - 1, host, sizeof host, &port,
                          NULL) != DDL_OK)
        return true;
    return strcmp(host, "localhost") != 0 &&
           !(ddl_address_parse(host, port, &address) && ddl_address_is_loopback(&address));
}

/* Once for the job: without proofs, whoever reaches rank 0, or its store, can take part. */
static void warn_if_open(const ddl_joining *joining)
{
    ddl_address address;
    if (joining->self.rank != 0 || joining->self.prover != NULL)
        return;
    bool open = ddl_address_parse(joining->own.address, joining->own.port, &address) &&
                !ddl_address_is_loopback(&address);
    if (!open && !is_open_place(joining->options->store))
        return;
    ddl_log(
        DDL_LOG_WARNING,
        "DDL_SECURITY=off: whoever can reach %s can join this job, read its data and change its results; use "
        "auth outside of networks that you trust",
        open ? joining->own.address : joining->options->store);
}

static ddl_status join(ddl_joining *joining, ddl_error *err)
{
    ddl_service_set_lack(joining->options->service, 0); /* which may have served another start */
    ddl_service_set_turned_away(joining->options->service, "");
    DDL_TRY(know_oneself(joining, err));
    ddl_service_set_strangers(
        joining->options->service,
        ddl_bootstrap_strangers(joining->self.rank, joining->self.nranks, joining->options->connect));
    if (joining->options->lack != NULL) {
        *err = *joining->options->lack;
        return ddl_joining_come_and_decline(joining, err);
    }
    DDL_TRY(ddl_joining_check_interfaces(joining, err));
    ddl_status status = ddl_joining_enter_run(joining, err);
    if (status != DDL_OK) {
        (void)ddl_joining_own_up(joining, err);
        return ddl_joining_decline(joining, err);
    }
    warn_if_open(joining);
    status = run_joining(joining, err);
    if (status != DDL_OK) {
        (void)ddl_joining_own_up(joining, err);
        ddl_joining_tell_others(joining, err);
        if (err->code == DDL_ETIMEDOUT && joining->own.rank == 0) /* another may have given up first */
            ddl_joining_tell_of_turned_away(joining, err);
        ddl_joining_stay_shortly(joining, err);
        status = err->code;
    }
    return status;
}

static ddl_status roster_of_one(ddl_joining *joining, ddl_error *err)
{
    DDL_TRY(know_oneself(joining, err));
    DDL_TRY(ddl_roster_create(0, 1, &joining->roster, err));
    DDL_TRY(ddl_host_random(joining->self.run_id, DDL_RUN_ID_BYTES, err));
    ddl_joining_fill_in(joining);
    snprintf(joining->own.address, sizeof joining->own.address, "127.0.0.1");
    joining->roster->members[0] = joining->own;
    ddl_roster_derive(joining->roster);
    return DDL_OK;
}

/* The next start of this rank is not to come here again. */
static void note_failed_run(const ddl_joining *joining)
{
    if (joining->run_failed && joining->own.rank > 0)
        ddl_failed_runs_add(ddl_store_run_id(joining->store), joining->own.rank);
}

static void close_streams(ddl_bootstrap *bootstrap)
{
    ddl_wire *streams = bootstrap->streams;
    for (int i = 0; i < bootstrap->nranks * bootstrap->nstreams; i++)
        ddl_wire_close(&streams[i]);
    bootstrap->streams = NULL;
    ddl_free(streams);
}

static void take_streams(ddl_joining *joining, ddl_bootstrap *bootstrap)
{
    const ddl_roster *roster = joining->roster;
    bootstrap->nranks = roster->nranks;
    bootstrap->nstreams = joining->streams != NULL ? roster->nstreams : 0;
    bootstrap->streams = joining->streams;
    joining->streams = NULL;
    for (int rank = 0; rank < roster->nranks && bootstrap->nstreams > 0; rank++)
        if (ddl_roster_connects(roster, rank))
            ddl_meshing_take_streams(joining->meshing, rank,
                                     bootstrap->streams + (size_t)rank * (size_t)bootstrap->nstreams);
}

/* The meshing has done its work, but where connections are made late. */
static ddl_status hand_over(ddl_joining *joining, ddl_bootstrap *bootstrap, ddl_wire wires[], ddl_error *err)
{
    ddl_status status = DDL_OK;
    wires[0] = ddl_no_wire;
    if (joining->meshing != NULL)
        ddl_meshing_take(joining->meshing, wires);
    take_streams(joining, bootstrap);
    bootstrap->forming = NULL; /* wires and streams have all of them */
    if (ddl_roster_keeps_doors(joining->roster))
        bootstrap->meshing = joining->meshing;
    else
        status = ddl_meshing_close(joining->meshing, joining->options->deadline, err);
    if (status == DDL_OK) {
        joining->meshing = NULL;
        return DDL_OK;
    }
    (void)ddl_joining_own_up(joining, err);
    for (int rank = 0; rank < bootstrap->nranks; rank++)
        ddl_wire_close(&wires[rank]);
    close_streams(bootstrap);
    return err->code;
}

ddl_status ddl_bootstrap_join(const ddl_bootstrap_options *options, ddl_bootstrap **out, ddl_roster **roster,
                              ddl_wire wires[], ddl_error *err)
{
    ddl_error unwanted;
    ddl_joining joining = { .options = options, .network = &ddl_network_unsaid };
    if (options->network != NULL)
        joining.network = options->network;
    DDL_ASSERT(options->nranks > 0);
    DDL_ASSERT(options->rank >= 0);
    DDL_ASSERT(options->rank < options->nranks);
    if (err == NULL)
        err = &unwanted;
    ddl_bootstrap *bootstrap = ddl_alloc(sizeof *bootstrap);
    joining.present = ddl_alloc_array((size_t)options->nranks, sizeof *joining.present);
    ddl_progress_start(&joining.progress, options->deadline);
    if (options->quiet && options->rank > 1) /* rank 1 tells that it is rank 0 who is missing */
        joining.progress.next = DDL_DEADLINE_NEVER;
    ddl_status status;
    joining.bootstrap = *out = bootstrap;
    if (bootstrap == NULL || joining.present == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to start %d ranks", options->nranks);
    else
        status = options->nranks == 1 ? roster_of_one(&joining, err) : join(&joining, err);
    if (status == DDL_OK)
        status = hand_over(&joining, bootstrap, wires, err);
    if (status == DDL_OK) {
        *roster = joining.roster;
    } else {
        *out = NULL;
        note_failed_run(&joining);
        ddl_joining_close_store(&joining, ddl_deadline_in_ms(DDL_JOINING_LAST_WORDS_MS));
        /* Which looks at the roster. */
        if (ddl_meshing_close(joining.meshing, ddl_deadline_in_ms(CLOSING_MS), NULL) == DDL_OK)
            ddl_roster_destroy(joining.roster);
        ddl_free(bootstrap);
    }
    ddl_free(joining.streams);
    ddl_free(joining.present);
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
    ddl_store_destroy(bootstrap->store, ddl_deadline_in_ms(DDL_JOINING_LAST_WORDS_MS));
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
