/*
 * store_mem.c - a store for ranks that are threads of one process: mem://name.
 *
 * The registry of runs, by name and place, is one of the few mutable globals, and stays within this file:
 * threads that know nothing of each other but a name have to meet somewhere.
 */
#include "rendezvous/store.h"

#include "base/assert.h"
#include "base/bell.h"
#include "base/list.h"
#include "io/host.h"
#include "rendezvous/failed_runs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    ddl_link link;
    const struct store_mem *owner; /* NULL once that one has left */
    ddl_bytes value;
    char key[];
};

/* One run; it lives as long as any rank is in it, and can be found as long as rank 0 is. */
struct run {
    ddl_link link; /* in runs, while it can be found */
    int users;
    ddl_hello_party host; /* rank 0 */
    ddl_list entries;
    bool failed, settled;
    ddl_error failure;
    char name[];
};

struct store_mem {
    ddl_store base;
    struct run *run;
    int rank;
    bool has_will, has_set; /* has_set: created a key */
    ddl_error will;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ddl_bell bell; /* guards all that follows and all runs; rings at every change */
static ddl_list runs;

static void init_registry(void)
{
    ddl_bell_init(&bell);
    ddl_list_init(&runs);
}

static struct store_mem *as_mem(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_mem);
    return DDL_CONTAINER(store, struct store_mem, base);
}

/* ---- with the lock held ---- */

static struct run *find_run(const char *name)
{
    DDL_LIST_FOR_EACH (link, &runs) {
        struct run *run = DDL_CONTAINER(link, struct run, link);
        if (strcmp(run->name, name) == 0)
            return run;
    }
    return NULL;
}

static struct entry *find_entry(struct run *run, const char *key)
{
    DDL_LIST_FOR_EACH (link, &run->entries) {
        struct entry *entry = DDL_CONTAINER(link, struct entry, link);
        if (strcmp(entry->key, key) == 0)
            return entry;
    }
    return NULL;
}

static void fail_run(struct run *run, const ddl_error *cause)
{
    if (run->failed || run->settled)
        return;
    run->failed = true;
    run->failure = *cause;
    ddl_bell_ring(&bell);
}

static ddl_status failure_of(const struct run *run, ddl_error *err)
{
    if (run->failed && err != NULL)
        *err = run->failure;
    return run->failed ? run->failure.code : DDL_OK;
}

static void leave_run(struct run *run)
{
    ddl_link *link;
    if (--run->users > 0)
        return;
    while ((link = ddl_list_take_first(&run->entries)) != NULL) {
        struct entry *entry = DDL_CONTAINER(link, struct entry, link);
        ddl_bytes_fini(&entry->value);
        ddl_free(entry);
    }
    ddl_free(run);
}

static ddl_status begin_run(const char *name, const ddl_hello_party *self, const uint8_t *run_id,
                            struct run **out, ddl_error *err)
{
    struct run *run = find_run(name);
    if (run != NULL) {
        (void)DDL_FAIL(err, DDL_ECONFIG,
                       "rank 0 is here already: it is %s[%d]; two threads were started as rank 0 of "
                       "mem://%s",
                       run->host.host, (int)run->host.pid, name);
        return ddl_error_blame(err, 0), DDL_ECONFIG;
    }
    run = ddl_alloc(sizeof *run + strlen(name) + 1);
    if (run == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    strcpy(run->name, name);
    run->host = *self;
    run->host.channel = DDL_HELLO_FOR_STORE;
    memcpy(run->host.run_id, run_id, DDL_RUN_ID_BYTES);
    run->users = 1;
    ddl_list_init(&run->entries);
    ddl_list_append(&runs, &run->link);
    ddl_bell_ring(&bell);
    *out = run;
    return DDL_OK;
}

static ddl_status find_begun_run(const char *name, const ddl_store_options *options, ddl_deadline deadline,
                                 struct run **out, ddl_error *err)
{
    char reason[DDL_HELLO_REASON_TEXT];
    struct run *run;
    ddl_hello_party self = *options->self;
    while ((run = find_run(name)) == NULL) {
        ddl_progress_tell(options->progress, "rank 0 at mem://%s", name);
        ddl_deadline next = options->progress != NULL && options->progress->next < deadline
                                ? options->progress->next
                                : deadline;
        if (!ddl_bell_wait(&bell, next) && ddl_deadline_passed(deadline)) {
            (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                           "rank 0 did not come to mem://%s; start it, or raise DDL_START_TIMEOUT", name);
            return ddl_error_blame(err, 0), DDL_ETIMEDOUT;
        }
    }
    self.channel = DDL_HELLO_FOR_STORE;
    ddl_hello_verdict verdict = ddl_hello_check(&self, &run->host, reason);
    if (verdict != DDL_HELLO_WELCOME) {
        ddl_error refusal;
        ddl_status status = ddl_error_set(&refusal, ddl_hello_verdict_status(verdict), "%s", reason);
        refusal.culprit = self.rank;
        if (ddl_hello_ends_run(verdict))
            fail_run(run, &refusal);
        if (run->failed)
            ddl_failed_runs_add(run->host.run_id, self.rank);
        if (err != NULL)
            *err = refusal;
        return status;
    }
    run->users++;
    *out = run;
    return DDL_OK;
}

/* ---- the store ---- */

/* ddl-launch starts ranks as processes, which would each wait for the others alone. */
static bool is_one_of_many_processes(void)
{
    const char *world_size = getenv("WORLD_SIZE");
    return getenv("DDL_LAUNCH") != NULL && (world_size == NULL || strcmp(world_size, "1") != 0);
}

static ddl_status mem_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                           ddl_store **out, ddl_error *err)
{
    char name[300];
    uint8_t run_id[DDL_RUN_ID_BYTES];
    if (rest[0] == '\0')
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE=mem:// lacks a name; write mem://name");
    if (is_one_of_many_processes())
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_STORE=mem://%.80s is for threads of one process, and ddl-launch has started "
                        "several; use tcp:// or file://",
                        rest);
    if ((size_t)snprintf(name, sizeof name, "%s at %s", rest, options->place) >= sizeof name)
        return DDL_FAIL(err, DDL_ECONFIG, "the name of the store mem://%.40s... is too long", rest);
    DDL_TRY(ddl_host_random(run_id, sizeof run_id, err));
    struct store_mem *mem = ddl_alloc(sizeof *mem);
    if (mem == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    mem->base.ops = &ddl_store_mem;
    mem->base.held[0] = mem->base.held[1] = -1;
    snprintf(mem->base.address, sizeof mem->base.address, "127.0.0.1");
    mem->rank = options->self->rank;
    pthread_once(&once, init_registry);
    ddl_bell_lock(&bell);
    ddl_status status = mem->rank == 0 ? begin_run(name, options->self, run_id, &mem->run, err)
                                       : find_begun_run(name, options, deadline, &mem->run, err);
    if (status == DDL_OK)
        memcpy(mem->base.run_id, mem->run->host.run_id, DDL_RUN_ID_BYTES);
    ddl_bell_unlock(&bell);
    if (status != DDL_OK) {
        ddl_free(mem);
        return status;
    }
    *out = &mem->base;
    return DDL_OK;
}

static ddl_status set_new(struct store_mem *mem, const char *key, ddl_view value, ddl_store_outcome *outcome,
                          ddl_bytes *existing, ddl_error *err)
{
    struct run *run = mem->run;
    DDL_TRY(failure_of(run, err));
    struct entry *entry = find_entry(run, key);
    if (entry != NULL) {
        if (!ddl_bytes_append(existing, entry->value.data, entry->value.bytes))
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", entry->value.bytes);
        *outcome = entry->owner != NULL ? DDL_STORE_TAKEN : DDL_STORE_ABANDONED;
        return DDL_OK;
    }
    entry = ddl_alloc(sizeof *entry + strlen(key) + 1);
    if (entry == NULL || !ddl_bytes_append(&entry->value, value.data, value.bytes)) {
        ddl_free(entry);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", value.bytes);
    }
    strcpy(entry->key, key);
    entry->owner = mem;
    mem->has_set = true;
    ddl_list_append(&run->entries, &entry->link);
    run->settled = run->settled || strcmp(key, DDL_STORE_SETTLED) == 0;
    ddl_bell_ring(&bell);
    *outcome = DDL_STORE_CREATED;
    return DDL_OK;
}

static ddl_status mem_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                              ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    (void)deadline;
    ddl_bell_lock(&bell);
    ddl_status status = set_new(as_mem(store), key, value, outcome, existing, err);
    ddl_bell_unlock(&bell);
    return status;
}

static ddl_status get(struct run *run, const char *key, ddl_deadline deadline, ddl_bytes *value,
                      ddl_error *err)
{
    bool in_time = true;
    for (;;) {
        DDL_TRY(failure_of(run, err));
        struct entry *entry = find_entry(run, key);
        if (entry != NULL) {
            ddl_bytes copy = { 0 };
            if (!ddl_bytes_append(&copy, entry->value.data, entry->value.bytes))
                return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", entry->value.bytes);
            *value = copy;
            return DDL_OK;
        }
        if (!in_time)
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%s was not set in the store mem://%s", key, run->name);
        in_time = ddl_bell_wait(&bell, deadline);
    }
}

static ddl_status mem_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                          ddl_error *err)
{
    ddl_bell_lock(&bell);
    ddl_status status = get(as_mem(store)->run, key, deadline, value, err);
    ddl_bell_unlock(&bell);
    return status;
}

static ddl_status mem_will(ddl_store *store, const ddl_error *will, ddl_deadline deadline, ddl_error *err)
{
    struct store_mem *mem = as_mem(store);
    (void)deadline;
    ddl_bell_lock(&bell);
    ddl_status status = failure_of(mem->run, err);
    mem->will = *will;
    mem->has_will = true;
    ddl_bell_unlock(&bell);
    return status;
}

static ddl_status mem_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first)
{
    struct run *run = as_mem(store)->run;
    (void)deadline;
    ddl_bell_lock(&bell);
    fail_run(run, cause);
    *first = run->failed ? run->failure : *cause;
    ddl_bell_unlock(&bell);
    return DDL_OK;
}

static ddl_status mem_check(ddl_store *store, ddl_error *err)
{
    ddl_bell_lock(&bell);
    ddl_status status = failure_of(as_mem(store)->run, err);
    ddl_bell_unlock(&bell);
    return status;
}

/* What was said stays with the run, so nobody has to be waited for. */
static void mem_destroy(ddl_store *store, ddl_deadline deadline)
{
    struct store_mem *mem = as_mem(store);
    struct run *run = mem->run;
    (void)deadline;
    ddl_bell_lock(&bell);
    if (mem->has_will && mem->has_set)
        fail_run(run, &mem->will);
    DDL_LIST_FOR_EACH (link, &run->entries) {
        struct entry *entry = DDL_CONTAINER(link, struct entry, link);
        entry->owner = entry->owner == mem ? NULL : entry->owner;
    }
    if (mem->rank == 0)
        ddl_list_remove(&run->link);
    leave_run(run);
    ddl_bell_unlock(&bell);
    ddl_free(mem);
}

const struct ddl_store_ops ddl_store_mem = {
    .scheme = "mem",
    .form = "name",
    .open = mem_open,
    .set_new = mem_set_new,
    .get = mem_get,
    .get_many = ddl_store_get_each,
    .will = mem_will,
    .fail = mem_fail,
    .check = mem_check,
    .destroy = mem_destroy,
};
