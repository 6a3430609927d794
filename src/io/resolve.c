/* resolve.c - name lookup with a deadline. */
#include "io/resolve.h"

#include "base/assert.h"
#include "base/bell.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/thread.h"
#include "io/socket.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    LOOKUP_LIMIT_MS = 10000,
    PAUSE_MS = 500 /* before a name is looked up again */
};

/* Of the asking thread, which joins the lookup thread; once given up, of the lookup thread. */
struct lookup {
    ddl_bell bell; /* guards all that follows but port and name; rings when done */
    bool done, given_up;
    int error, os_errno; /* of getaddrinfo */
    uint16_t port;
    int count;
    ddl_address addresses[DDL_RESOLVE_MAX];
    char name[256];
};

static void end(struct lookup *lookup)
{
    ddl_bell_fini(&lookup->bell);
    ddl_free(lookup);
}

static void *look_up(void *arg)
{
    struct lookup *lookup = arg;
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list = NULL;
    ddl_address found[DDL_RESOLVE_MAX];
    int count = 0;
    int error = getaddrinfo(lookup->name, NULL, &hints, &list);
    int os_errno = error == EAI_SYSTEM ? errno : 0;
    for (struct addrinfo *item = list; error == 0 && item != NULL && count < DDL_RESOLVE_MAX;
         item = item->ai_next) {
        if (item->ai_family != AF_INET && item->ai_family != AF_INET6)
            continue;
        memset(&found[count], 0, sizeof found[count]);
        memcpy(&found[count].socket, item->ai_addr, item->ai_addrlen);
        found[count].bytes = item->ai_addrlen;
        ddl_address_set_port(&found[count++], lookup->port);
    }
    if (list != NULL)
        freeaddrinfo(list);
    ddl_bell_lock(&lookup->bell);
    memcpy(lookup->addresses, found, (size_t)count * sizeof found[0]);
    lookup->count = count;
    lookup->error = error;
    lookup->os_errno = os_errno;
    lookup->done = true;
    ddl_bell_ring(&lookup->bell);
    bool given_up = lookup->given_up;
    ddl_bell_unlock(&lookup->bell);
    if (given_up)
        end(lookup);
    return NULL;
}

static int numeric(const char *name, uint16_t port, ddl_address addresses[])
{
    if (strcasecmp(name, "localhost") == 0)
        return ddl_address_parse("127.0.0.1", port, &addresses[0]) +
               ddl_address_parse("::1", port, &addresses[1]);
    return ddl_address_parse(name, port, &addresses[0]);
}

ddl_status ddl_resolve(const char *name, uint16_t port, ddl_deadline deadline,
                       ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err)
{
    DDL_ASSERT(name != NULL);
    int known = numeric(name, port, addresses);
    if (known > 0) {
        *count = known;
        return DDL_OK;
    }
    struct lookup *lookup = ddl_alloc(sizeof *lookup);
    if (lookup == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to look up %s", name);
    if (strlen(name) >= sizeof lookup->name) {
        ddl_free(lookup);
        return DDL_FAIL(err, DDL_ECONFIG, "the host name %.60s... is too long", name);
    }
    snprintf(lookup->name, sizeof lookup->name, "%s", name);
    ddl_bell_init(&lookup->bell);
    lookup->port = port;
    int64_t start_ns = ddl_now_ns();
    ddl_deadline limit = ddl_deadline_in_ms(LOOKUP_LIMIT_MS);
    if (deadline < limit)
        limit = deadline;
    pthread_t thread;
    int error = DDL_FAILPOINT("io.thread") ? EAGAIN : ddl_thread_start(look_up, lookup, &thread);
    if (error != 0) {
        end(lookup);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, error,
                           "cannot start a thread to look up %s (" DDL_THREAD_LIMITS ")", name);
    }
    ddl_bell_lock(&lookup->bell);
    while (!lookup->done && ddl_bell_wait(&lookup->bell, limit))
        continue;
    lookup->given_up = !lookup->done;
    bool given_up = lookup->given_up;
    ddl_bell_unlock(&lookup->bell);
    if (given_up) {
        pthread_detach(thread);
        return DDL_FAIL(err, DDL_ENETWORK,
                        "no answer within %.1f s to the lookup of host %s; use a numeric address, or check "
                        "the name server",
                        (double)(ddl_now_ns() - start_ns) / 1e9, name);
    }
    /* What the system's lookup holds for a thread is given back as that ends. */
    pthread_join(thread, NULL);
    ddl_status status = DDL_OK;
    if (lookup->error != 0 || lookup->count == 0)
        status = DDL_FAIL(err, DDL_ENETWORK,
                          "host %s cannot be resolved (%s); check its spelling or use a numeric "
                          "address",
                          name,
                          lookup->error == 0            ? "it has no address"
                          : lookup->error == EAI_SYSTEM ? strerror(lookup->os_errno)
                                                        : gai_strerror(lookup->error));
    else {
        memcpy(addresses, lookup->addresses, (size_t)lookup->count * sizeof addresses[0]);
        *count = lookup->count;
    }
    end(lookup);
    return status;
}

ddl_status ddl_resolve_soon(const char *name, uint16_t port, ddl_deadline deadline,
                            ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err)
{
    const int64_t start_ns = ddl_now_ns();
    const ddl_deadline limit = ddl_deadline_earlier(deadline, ddl_deadline_in_ms(LOOKUP_LIMIT_MS));
    for (;;) {
        ddl_error why;
        ddl_status status = ddl_resolve(name, port, limit, addresses, count, &why);
        if (status == DDL_OK)
            return DDL_OK;
        const ddl_deadline next = ddl_deadline_in_ms(PAUSE_MS);
        if (status == DDL_ENETWORK && next < limit) {
            (void)ddl_socket_wait(-1, 0, next);
            continue;
        }
        if (status == DDL_ENETWORK)
            return DDL_FAIL(err, status, "%s (tried for %.1f s)", why.text,
                            (double)(ddl_now_ns() - start_ns) / 1e9);
        if (err != NULL)
            *err = why;
        return status;
    }
}
