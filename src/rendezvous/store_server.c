/* store_server.c - the doors of the store's server, from the first to the last. */
#include "rendezvous/store_server_parts.h"

#include "base/assert.h"

/* Of the clients that have set nothing, and so take no part, the one that came first; NULL if there is none.
 */
static ddl_store_client *first_idle(ddl_store_server *server)
{
    DDL_LIST_FOR_EACH (link, &server->clients) {
        ddl_store_client *client = DDL_CONTAINER(link, ddl_store_client, link);
        if (ddl_list_empty(&client->owned))
            return client;
    }
    return NULL;
}

static bool is_full(const ddl_store_server *server)
{
    return server->client_count >= 4 * server->self.nranks + 64;
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    ddl_store_server *server = arg;
    (void)from;
    bool room = !is_full(server) || first_idle(server) != NULL;
    ddl_hello_judge(hello, room ? DDL_HELLO_WELCOME : DDL_HELLO_TAKEN);
}

/* A rank of ours that is not like the others: nobody can go on, and everybody is told why. */
static void refused(void *arg, const ddl_hello *hello, const ddl_address *from)
{
    ddl_store_server *server = arg;
    ddl_error cause;
    (void)from;
    if (!ddl_hello_ends_run(hello->verdict) || hello->peer.nranks <= 0)
        return;
    (void)ddl_error_set(&cause, ddl_hello_verdict_status(hello->verdict), "%s", hello->reason);
    cause.culprit = hello->peer.rank;
    ddl_store_server_fail(server, &cause);
    ddl_store_server_sweep(server);
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    ddl_store_server *server = arg;
    (void)from;
    /* Only who has proved to belong here takes another's place. */
    ddl_store_client *idle = is_full(server) ? first_idle(server) : NULL;
    if (idle != NULL) {
        ddl_store_client_give_up(idle);
        ddl_store_server_sweep(server);
    }
    if (is_full(server))
        ddl_wire_close(&wire);
    else
        ddl_store_client_add(server, wire, &hello->peer);
}

static const ddl_listener_events door = { judge, refused, entered };

/* ---- opening and closing ---- */

static void open_on_service(void *arg)
{
    ddl_store_server *server = arg;
    const ddl_listener_options options = {
        .service = server->service,
        .self = server->self,
        .encryption = server->encryption,
        .events = &door,
        .arg = server,
    };
    server->opening.status =
        ddl_listener_open(&options, &server->opening.address, &server->opening.bound,
                          &server->listeners[server->listener_count], &server->opening.error);
    server->listener_count += server->opening.status == DDL_OK;
}

static ddl_status open_door(ddl_store_server *server, const ddl_address *address, ddl_address *bound,
                            ddl_deadline deadline, ddl_error *err)
{
    server->opening.address = *address;
    DDL_TRY(ddl_service_call(server->service, "opening the store's door", open_on_service, server, deadline,
                             err));
    if (server->opening.status == DDL_OK)
        *bound = server->opening.bound;
    else if (err != NULL)
        *err = server->opening.error;
    return server->opening.status;
}

static void free_server(ddl_store_server *server)
{
    ddl_store_keys_fini(&server->keys);
    ddl_bell_fini(&server->bell);
    ddl_free(server);
}

ddl_status ddl_store_server_open(ddl_service *service, const ddl_hello_party *self,
                                 const ddl_encryption *encryption, const ddl_address *address,
                                 ddl_deadline deadline, ddl_address *bound, ddl_store_server **out,
                                 ddl_error *err)
{
    ddl_store_server *server = ddl_alloc(sizeof *server);
    if (server == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the store's server");
    server->service = service;
    server->start_limit = deadline;
    server->self = *self;
    server->self.channel = DDL_HELLO_FOR_STORE;
    server->encryption = encryption;
    ddl_list_init(&server->clients);
    ddl_bell_init(&server->bell);
    ddl_status status = ddl_store_keys_init(&server->keys, self->nranks)
                            ? open_door(server, address, bound, deadline, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for the store's server");
    if (status != DDL_OK) {
        if (!ddl_service_may_use(service, server))
            free_server(server);
        return status;
    }
    *out = server;
    return DDL_OK;
}

ddl_status ddl_store_server_open_also(ddl_store_server *server, const ddl_address *address,
                                      ddl_deadline deadline, ddl_error *err)
{
    ddl_address bound;
    DDL_ASSERT(server->listener_count < DDL_STORE_SERVER_DOORS);
    return open_door(server, address, &bound, deadline, err);
}

static void stop_listening(void *arg)
{
    ddl_store_server *server = arg;
    while (server->listener_count > 0)
        ddl_listener_close(server->listeners[--server->listener_count]);
    server->leaving = true;
    ddl_store_server_sweep(server);
}

static void close_on_service(void *arg)
{
    ddl_store_server *server = arg;
    DDL_LIST_FOR_EACH (link, &server->clients)
        ddl_store_client_remove(DDL_CONTAINER(link, ddl_store_client, link));
}

void ddl_store_server_close(ddl_store_server *server, ddl_deadline deadline)
{
    if (server == NULL)
        return;
    if (ddl_service_call(server->service, "closing the store's door", stop_listening, server, deadline,
                         NULL) != DDL_OK)
        return; /* the thread may still touch it, whenever it wakes up */
    ddl_bell_lock(&server->bell);
    while (!server->all_know && ddl_bell_wait(&server->bell, deadline))
        continue;
    ddl_bell_unlock(&server->bell);
    if (ddl_service_call(server->service, "closing the store's connections", close_on_service, server,
                         deadline, NULL) == DDL_OK)
        free_server(server);
}
