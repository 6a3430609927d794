/* store_server_own.c - what rank 0 itself asks the store's server. */
#include "rendezvous/store_server_parts.h"

#include <string.h>

void ddl_store_server_end_waiting(ddl_store_server *server)
{
    server->awaited = NULL;
    ddl_bell_lock(&server->bell);
    server->is_awaited_here = true;
    ddl_bell_ring(&server->bell);
    ddl_bell_unlock(&server->bell);
}

void ddl_store_server_count_awaited(ddl_store_server *server, ddl_view key)
{
    const size_t kind_bytes = server->awaited != NULL ? strlen(server->awaited) : 0;
    if (kind_bytes > 0 && key.bytes > kind_bytes && memcmp(key.data, server->awaited, kind_bytes) == 0 &&
        --server->awaited_count == 0)
        ddl_store_server_end_waiting(server);
}

/* Kept if the service thread does not come back from it. */
struct look {
    ddl_store_server *server;
    const char *kind;
    bool waits;
    int missing;
    ddl_status status;
    ddl_error error;
    int count;
    struct looked {
        bool wanted, found;
        ddl_bytes value;
    } keys[];
};

static void look_on_service(void *arg)
{
    struct look *look = arg;
    ddl_store_server *server = look->server;
    look->missing = 0;
    if (server->failed) {
        look->error = server->failure;
        look->status = server->failure.code;
    }
    for (int rank = 0; rank < look->count && look->status == DDL_OK; rank++) {
        struct looked *looked = &look->keys[rank];
        if (!looked->wanted)
            continue;
        const ddl_store_entry *entry = ddl_store_keys_find_of_rank(&server->keys, look->kind, rank);
        looked->found = entry != NULL;
        if (!looked->found)
            look->missing++;
        else if (!ddl_bytes_append(&looked->value, entry->value.data, entry->value.bytes))
            look->status =
                DDL_FAIL(&look->error, DDL_ENOMEM, "no memory for a value of %zu bytes", entry->value.bytes);
    }
    server->awaited = look->waits && look->missing > 0 ? look->kind : NULL;
    server->awaited_count = look->missing;
    server->is_awaited_here = false;
}

static ddl_status take_found(struct look *look, const ddl_store *store, const ddl_store_many *many,
                             ddl_error *err)
{
    for (int rank = 0; rank < look->count; rank++) {
        struct looked *looked = &look->keys[rank];
        if (!looked->wanted || !looked->found)
            continue;
        DDL_TRY(ddl_store_found(store, many, rank, ddl_bytes_view(&looked->value), err));
        ddl_bytes_fini(&looked->value);
        looked->wanted = false;
    }
    return DDL_OK;
}

/* Once, by the service thread, and what it found taken over. */
static ddl_status look_once(struct look *look, const ddl_store *store, const ddl_store_many *many,
                            ddl_deadline deadline, ddl_error *err)
{
    if (deadline < look->server->start_limit) /* who only looks once does not take a slow thread for lost */
        deadline = look->server->start_limit;
    DDL_TRY(ddl_service_call(look->server->service, "looking for what the ranks have set", look_on_service,
                             look, deadline, err));
    if (look->status != DDL_OK && err != NULL)
        *err = look->error;
    return look->status != DDL_OK ? look->status : take_found(look, store, many, err);
}

/* Keys of more ranks than there are can end the waiting early: then it begins anew. */
static ddl_status look_until(struct look *look, const ddl_store *store, const ddl_store_many *many,
                             ddl_deadline deadline, ddl_error *err)
{
    ddl_store_server *server = look->server;
    look->waits = !ddl_deadline_passed(deadline);
    for (;;) {
        DDL_TRY(look_once(look, store, many, deadline, err));
        if (look->missing == 0)
            return DDL_OK;
        if (!look->waits)
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%d keys of the kind %s were not set in the store",
                            look->missing, many->kind);
        ddl_bell_lock(&server->bell);
        while (!server->is_awaited_here && look->waits)
            look->waits = ddl_bell_wait(&server->bell, deadline);
        ddl_bell_unlock(&server->bell);
    }
}

ddl_status ddl_store_server_get_many(ddl_store_server *server, const ddl_store *store,
                                     const ddl_store_many *many, ddl_deadline deadline, ddl_error *err)
{
    struct look *look = ddl_alloc(sizeof *look + (size_t)many->count * sizeof look->keys[0]);
    if (look == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the keys of %d ranks", many->count);
    *look = (struct look){ .server = server, .kind = many->kind, .count = many->count };
    for (int rank = 0; rank < look->count; rank++)
        look->keys[rank].wanted = !many->present[rank];
    ddl_status status = look_until(look, store, many, deadline, err);
    if (ddl_service_may_use(server->service, look))
        return status;
    for (int rank = 0; rank < look->count; rank++)
        ddl_bytes_fini(&look->keys[rank].value);
    ddl_free(look);
    return status;
}
