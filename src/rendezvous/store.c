/* store.c - finds the implementation that a URL names, and checks arguments for all of them. */
#include "rendezvous/store.h"

#include "base/assert.h"
#include "protocol/store_wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct ddl_store_ops *const stores[] = { &ddl_store_tcp, &ddl_store_file, &ddl_store_redis,
                                                      &ddl_store_rediss, &ddl_store_mem };

_Static_assert((int)DDL_SEAL_BYTES <= (int)DDL_STORE_SEAL_ROOM, "values of any size can be sealed");

enum { STORE_COUNT = sizeof stores / sizeof stores[0] };

enum { FORMS_TEXT = 256 };

/* "tcp://host:port, file:///directory and mem://name": what there is. */
static const char *forms(char text[FORMS_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < STORE_COUNT && used < FORMS_TEXT; i++)
        used += (size_t)snprintf(text + used, FORMS_TEXT - used, "%s%s://%s",
                                 i == 0                 ? ""
                                 : i == STORE_COUNT - 1 ? " and "
                                                        : ", ",
                                 stores[i]->scheme, stores[i]->form);
    return text;
}

/* NULL: there is none. */
static const struct ddl_store_ops *find_scheme(const char *name, size_t bytes)
{
    for (int i = 0; i < STORE_COUNT; i++)
        if (strlen(stores[i]->scheme) == bytes && strncmp(name, stores[i]->scheme, bytes) == 0)
            return stores[i];
    return NULL;
}

static ddl_status refuse_what_is_no_url(const char *url, ddl_error *err)
{
    char known[FORMS_TEXT], advice[24] = "";
    const size_t word_bytes = strcspn(url, ":@");
    const bool has_password = strchr(url, '@') != NULL; /* or may have */
    if (url[word_bytes] == ':' && find_scheme(url, word_bytes) != NULL)
        snprintf(advice, sizeof advice, ": write %.*s://", (int)word_bytes, url);
    return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE=%.*s is no URL%s; there are %s",
                    has_password ? (int)word_bytes : 200, url, advice, forms(known));
}

static ddl_status find(const char *url, const struct ddl_store_ops **ops, const char **rest, ddl_error *err)
{
    char known[FORMS_TEXT];
    const char *mark = strstr(url, "://");
    if (mark == NULL && strncmp(url, "file:", 5) == 0)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "DDL_STORE=%s is no URL: write the whole path of a directory, from / on, behind file://, as "
            "in file:///shared/directory",
            url);
    if (mark == NULL)
        return refuse_what_is_no_url(url, err);
    const struct ddl_store_ops *found = find_scheme(url, (size_t)(mark - url));
    if (found != NULL) {
        *ops = found;
        *rest = mark + 3;
        return DDL_OK;
    }
    return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE: there is no store %.*s://; there are %s",
                    (int)strcspn(url, ":@"), url, forms(known));
}

ddl_status ddl_store_open(const ddl_store_options *options, ddl_deadline deadline, ddl_store **store,
                          ddl_error *err)
{
    const struct ddl_store_ops *ops = NULL;
    const char *rest = NULL;
    DDL_ASSERT(options->url != NULL);
    DDL_ASSERT(options->place != NULL);
    DDL_TRY(find(options->url, &ops, &rest, err));
    ddl_store_options complete = *options;
    if (options->network == NULL)
        complete.network = &ddl_network_unsaid;
    DDL_TRY(ops->open(&complete, rest, deadline, store, err));
    (*store)->seal = (ddl_seal){ options->self->prover, (*store)->run_id };
    (*store)->rank = options->self->rank;
    return DDL_OK;
}

static void check_key(const char *key)
{
    DDL_ASSERT(key != NULL);
    DDL_ASSERT(key[0] != '\0');
    DDL_ASSERT(strlen(key) <= DDL_STORE_KEY_LIMIT);
}

/* Leave the value alone in what was read; nothing if it is not from a rank of this run. */
static ddl_status unseal(const ddl_store *store, const char *key, ddl_bytes *value, ddl_error *err)
{
    char place[64];
    ddl_view inner;
    if (ddl_seal_get(&store->seal, key, ddl_bytes_view(value), &inner)) {
        if (inner.data != value->data && inner.bytes > 0)
            memmove(value->data, inner.data, inner.bytes);
        value->bytes = inner.bytes;
        return DDL_OK;
    }
    ddl_bytes_fini(value);
    snprintf(place, sizeof place, "the %s store", store->ops->scheme);
    return ddl_seal_fail(key, place, err);
}

ddl_status ddl_store_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                             ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    ddl_bytes sealed = { 0 };
    check_key(key);
    int limit = strcmp(key, DDL_STORE_ROSTER) == 0 ? DDL_STORE_ROSTER_LIMIT : DDL_STORE_VALUE_LIMIT;
    if (value.bytes > (size_t)limit)
        return DDL_FAIL(err, DDL_EINVAL,
                        "a value of %zu bytes is too large for %s in a store, the limit is %d", value.bytes,
                        key, limit);
    if (!ddl_seal_put(&store->seal, store->rank, key, value, &sealed)) {
        ddl_bytes_fini(&sealed);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", value.bytes);
    }
    ddl_status status =
        store->ops->set_new(store, key, ddl_bytes_view(&sealed), deadline, outcome, existing, err);
    ddl_bytes_fini(&sealed);
    return status == DDL_OK && *outcome != DDL_STORE_CREATED ? unseal(store, key, existing, err) : status;
}

ddl_status ddl_store_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                         ddl_error *err)
{
    check_key(key);
    DDL_TRY(store->ops->get(store, key, deadline, value, err));
    return unseal(store, key, value, err);
}

void ddl_store_name(const char *kind, int rank, char key[DDL_STORE_NAME_BYTES])
{
    snprintf(key, DDL_STORE_NAME_BYTES, "%s.%d", kind, rank);
}

ddl_status ddl_store_found(const ddl_store *store, const ddl_store_many *many, int rank, ddl_view sealed,
                           ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_bytes value = { 0 };
    ddl_store_name(many->kind, rank, key);
    if (!ddl_bytes_append(&value, sealed.data, sealed.bytes))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", sealed.bytes);
    DDL_TRY(unseal(store, key, &value, err));
    many->present[rank] = true;
    if (many->values != NULL)
        many->values[rank] = value;
    else
        ddl_bytes_fini(&value);
    return DDL_OK;
}

/* Once it is too late for one, the others are still looked for. */
ddl_status ddl_store_get_each(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                              ddl_error *err)
{
    ddl_status outcome = DDL_OK;
    for (int rank = 0; rank < many->count; rank++) {
        char key[DDL_STORE_NAME_BYTES];
        ddl_bytes sealed = { 0 };
        if (many->present[rank])
            continue;
        ddl_store_name(many->kind, rank, key);
        ddl_status status = store->ops->get(store, key, deadline, &sealed, err);
        if (status == DDL_OK)
            status = ddl_store_found(store, many, rank, ddl_bytes_view(&sealed), err);
        ddl_bytes_fini(&sealed);
        if (status == DDL_ETIMEDOUT)
            outcome = status;
        else if (status != DDL_OK)
            return status;
    }
    return outcome;
}

ddl_status ddl_store_get_many(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                              ddl_error *err)
{
    DDL_ASSERT(many->count > 0);
    return store->ops->get_many(store, many, deadline, err);
}

ddl_status ddl_store_will(ddl_store *store, const ddl_error *will, ddl_deadline deadline, ddl_error *err)
{
    DDL_ASSERT(will->code != DDL_OK);
    return store->ops->will(store, will, deadline, err);
}

bool ddl_store_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first)
{
    ddl_error said = *cause; /* first may be the same object */
    DDL_ASSERT(said.code != DDL_OK);
    if (store->ops->fail(store, &said, deadline, first) == DDL_OK)
        return true;
    *first = said; /* what happened here stands */
    return false;
}

ddl_status ddl_store_check(ddl_store *store, ddl_error *err)
{
    return store->ops->check(store, err);
}

void ddl_store_destroy(ddl_store *store, ddl_deadline deadline)
{
    if (store != NULL)
        store->ops->destroy(store, deadline);
}

void ddl_store_close_in_child(ddl_store *store)
{
    for (int i = 0; store != NULL && i < 2; i++)
        if (store->held[i] >= 0)
            close(store->held[i]);
}

bool ddl_store_outlives(const ddl_store *store)
{
    return store->ops->outlives;
}

bool ddl_store_is_lost(const ddl_store *store)
{
    return store->is_lost;
}

const uint8_t *ddl_store_run_id(const ddl_store *store)
{
    return store->run_id;
}

const char *ddl_store_address(const ddl_store *store)
{
    return store->address;
}
