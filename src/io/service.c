/* service.c - the service loop, its thread, and calls into it. */
#include "io/service.h"

#include "base/assert.h"
#include "base/bell.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    HELD_PER_CHUNK = 62,
    TICK_MS = 100,
    GRACE_TICKS = 8, /* more than a thread that is not stuck may take, while its waiter has its turns */
    END_MS = 4000
};

/*
 * Chunks are only ever added, and each slot changes in one store, so a child forked at any moment finds
 * a table that it can walk. A slot holds a descriptor plus one; zero is free.
 */
struct held {
    _Atomic(struct held *) next; /* stored by ddl_service_hold, read by ddl_service_close_in_child */
    atomic_int slots[HELD_PER_CHUNK];
};

struct call {
    ddl_link link;
    const char *what;
    void (*function)(void *arg);
    void *arg;
    bool returned;
};

struct ddl_service {
    uv_loop_t loop;
    uv_async_t wake;
    pthread_t thread;
    ddl_bell bell; /* guards what follows, and each call; rings when one has returned, or the thread ends */
    ddl_list calls;
    struct call *running; /* NULL: none, or nobody waits for it any more */
    const char *doing;    /* what of the call that has begun; NULL: none */
    const void *in_use;   /* arg of it; where nobody waits for it any more, for good */
    bool lost;            /* somebody has waited in vain; this is why: */
    ddl_error why;
    bool stopping, ended;
    atomic_int lack, strangers;
    char turned_away[DDL_SERVICE_TURNED_AWAY]; /* guarded by the bell */
    struct held held;
};

static void run_calls(uv_async_t *wake)
{
    ddl_service *service = wake->data;
    ddl_bell_lock(&service->bell);
    ddl_link *link;
    while (!service->lost && (link = ddl_list_take_first(&service->calls)) != NULL) {
        struct call *call = DDL_CONTAINER(link, struct call, link);
        void (*function)(void *arg) = call->function;
        void *arg = call->arg;
        service->running = call;
        service->doing = call->what;
        service->in_use = arg;
        ddl_bell_unlock(&service->bell);
        DDL_FAILPOINT_STALL("io.call");
        function(arg);
        ddl_bell_lock(&service->bell);
        service->doing = NULL;
        if (service->running != NULL) {
            service->running->returned = true;
            service->running = NULL;
            service->in_use = NULL;
        }
        ddl_bell_ring(&service->bell);
    }
    bool stopping = service->stopping, lost = service->lost;
    ddl_bell_unlock(&service->bell);
    if (lost)
        uv_stop(&service->loop);
    else if (stopping)
        uv_close((uv_handle_t *)wake, NULL);
}

static void close_held(ddl_service *service)
{
    for (struct held *chunk = &service->held; chunk != NULL; chunk = atomic_load(&chunk->next)) {
        for (int slot = 0; slot < HELD_PER_CHUNK; slot++) {
            int fd = atomic_exchange(&chunk->slots[slot], 0) - 1;
            if (fd >= 0)
                close(fd);
        }
    }
}

static void *run_loop(void *arg)
{
    ddl_service *service = arg;
    ddl_thread_be_own();
    uv_run(&service->loop, UV_RUN_DEFAULT); /* until the last handle is closed, or nobody expects anything */
    ddl_bell_lock(&service->bell);
    if (service->lost)
        close_held(service); /* so that others see that nobody is there */
    service->ended = true;
    ddl_bell_ring(&service->bell);
    ddl_bell_unlock(&service->bell);
    return NULL;
}

static void forget_wake(uv_handle_t *handle)
{
    (void)handle;
}

ddl_status ddl_service_create(ddl_service **out, ddl_error *err)
{
    DDL_ASSERT(out != NULL);
    ddl_service *service = ddl_alloc(sizeof *service);
    if (service == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a service loop");
    ddl_list_init(&service->calls);
    int error = DDL_FAILPOINT("io.loop") ? UV_EMFILE : uv_loop_init(&service->loop);
    if (error != 0) {
        ddl_free(service);
        return DDL_FAIL(err, DDL_ERESOURCE, "cannot make the service loop: %s", uv_strerror(error));
    }
    error = DDL_FAILPOINT("io.async") ? UV_EMFILE : uv_async_init(&service->loop, &service->wake, run_calls);
    if (error != 0) {
        uv_loop_close(&service->loop);
        ddl_free(service);
        return DDL_FAIL(err, DDL_ERESOURCE, "cannot make the service loop: %s", uv_strerror(error));
    }
    service->wake.data = service;
    ddl_bell_init(&service->bell);
    error = DDL_FAILPOINT("io.thread") ? EAGAIN : ddl_thread_start(run_loop, service, &service->thread);
    if (error != 0) {
        uv_close((uv_handle_t *)&service->wake, forget_wake);
        uv_run(&service->loop, UV_RUN_DEFAULT);
        uv_loop_close(&service->loop);
        ddl_bell_fini(&service->bell);
        ddl_free(service);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, error, "cannot start a thread (" DDL_THREAD_LIMITS ")");
    }
    *out = service;
    return DDL_OK;
}

uv_loop_t *ddl_service_loop(ddl_service *service)
{
    DDL_ASSERT(service != NULL);
    return &service->loop;
}

/* With the bell's lock: nobody waits for the thread any more. call: in vain; NULL: for its end. */
static void lose(ddl_service *service, const struct call *call, int64_t start_ns)
{
    const bool in_it = call != NULL && service->running == call;
    service->lost = true;
    (void)DDL_FAIL(
        &service->why, DDL_ETIMEDOUT,
        "the service thread has been stuck for %.1f s or longer in %s%s%s; is it stopped, by a debugger say, "
        "short of CPU time, or held up by a log that takes no more?",
        (double)(ddl_now_ns() - start_ns) / 1e9,
        service->doing != NULL ? service->doing : "what came over a connection",
        in_it ? "" : ", and did not come to ",
        in_it          ? ""
        : call != NULL ? call->what
                       : "its end");
    ddl_bell_ring(&service->bell);
}

/* With the bell's lock: until *is_over. False: not by the deadline, and the thread is lost. Its grace is
 * counted in waits: where this process is stopped as a whole, or hardly runs, they take longer, as for the
 * thread. */
static bool wait_until(ddl_service *service, const bool *is_over, const struct call *call,
                       ddl_deadline deadline)
{
    const int64_t start_ns = ddl_now_ns();
    for (int ticks = 1; !*is_over && !service->lost; ticks++) {
        const ddl_deadline tick = ddl_deadline_in_ms(TICK_MS);
        while (!*is_over && !service->lost && ddl_bell_wait(&service->bell, tick))
            continue;
        if (!*is_over && !service->lost && ticks >= GRACE_TICKS && ddl_deadline_passed(deadline))
            lose(service, call, start_ns);
    }
    return *is_over;
}

ddl_status ddl_service_call(ddl_service *service, const char *what, void (*function)(void *arg), void *arg,
                            ddl_deadline deadline, ddl_error *err)
{
    DDL_ASSERT(service != NULL);
    DDL_ASSERT(!pthread_equal(pthread_self(), service->thread));
    struct call call = { .what = what, .function = function, .arg = arg };
    ddl_status status = DDL_OK;
    ddl_bell_lock(&service->bell);
    DDL_ASSERT(!service->stopping);
    ddl_list_append(&service->calls, &call.link);
    uv_async_send(&service->wake); /* under the lock: the loop cannot be gone before this returns */
    if (!wait_until(service, &call.returned, &call, deadline)) {
        status = DDL_ETIMEDOUT;
        if (err != NULL)
            *err = service->why;
        if (service->running == &call)
            service->running = NULL;
        else
            ddl_list_remove(&call.link);
    }
    ddl_bell_unlock(&service->bell);
    return status;
}

static void nothing(void *arg)
{
    (void)arg;
}

ddl_status ddl_service_check(ddl_service *service, ddl_deadline deadline, ddl_error *err)
{
    return ddl_service_call(service, "answering", nothing, NULL, deadline, err);
}

bool ddl_service_is_lost(ddl_service *service, ddl_error *why)
{
    ddl_bell_lock(&service->bell);
    bool lost = service->lost;
    if (lost && why != NULL)
        *why = service->why;
    ddl_bell_unlock(&service->bell);
    return lost;
}

bool ddl_service_may_use(ddl_service *service, const void *arg)
{
    ddl_bell_lock(&service->bell);
    bool may_use = service->in_use == arg;
    ddl_bell_unlock(&service->bell);
    return may_use;
}

void ddl_service_set_lack(ddl_service *service, int os_errno)
{
    atomic_store(&service->lack, os_errno);
}

int ddl_service_lack(const ddl_service *service)
{
    return atomic_load(&service->lack);
}

void ddl_service_set_strangers(ddl_service *service, int most)
{
    atomic_store(&service->strangers, most);
}

int ddl_service_strangers(const ddl_service *service)
{
    return atomic_load(&service->strangers);
}

void ddl_service_set_turned_away(ddl_service *service, const char *text)
{
    ddl_bell_lock(&service->bell);
    snprintf(service->turned_away, sizeof service->turned_away, "%s", text);
    ddl_bell_unlock(&service->bell);
}

void ddl_service_turned_away(ddl_service *service, char text[DDL_SERVICE_TURNED_AWAY])
{
    ddl_bell_lock(&service->bell);
    memcpy(text, service->turned_away, DDL_SERVICE_TURNED_AWAY);
    ddl_bell_unlock(&service->bell);
}

bool ddl_service_destroy(ddl_service *service)
{
    if (service == NULL)
        return true;
    ddl_bell_lock(&service->bell);
    service->stopping = true;
    uv_async_send(&service->wake);
    bool ended = wait_until(service, &service->ended, NULL, ddl_deadline_in_ms(END_MS)) && !service->lost;
    ddl_bell_unlock(&service->bell);
    if (!ended)
        return false;
    pthread_join(service->thread, NULL);
    int left = uv_loop_close(&service->loop);
    DDL_ASSERT(left == 0);
    ddl_bell_fini(&service->bell);
    struct held *chunk = atomic_load(&service->held.next);
    while (chunk != NULL) {
        struct held *next = atomic_load(&chunk->next);
        ddl_free(chunk);
        chunk = next;
    }
    ddl_free(service);
    return true;
}

bool ddl_service_hold(ddl_service *service, int fd)
{
    DDL_ASSERT(fd >= 0);
    for (struct held *chunk = &service->held;;) {
        for (int slot = 0; slot < HELD_PER_CHUNK; slot++) {
            if (atomic_load(&chunk->slots[slot]) == 0) {
                atomic_store(&chunk->slots[slot], fd + 1);
                return true;
            }
        }
        struct held *next = atomic_load(&chunk->next);
        if (next == NULL) {
            next = ddl_alloc(sizeof *next);
            if (next == NULL)
                return false;
            atomic_store(&chunk->next, next);
        }
        chunk = next;
    }
}

void ddl_service_release(ddl_service *service, int fd)
{
    for (struct held *chunk = &service->held; chunk != NULL; chunk = atomic_load(&chunk->next)) {
        for (int slot = 0; slot < HELD_PER_CHUNK; slot++) {
            if (atomic_load(&chunk->slots[slot]) == fd + 1) {
                atomic_store(&chunk->slots[slot], 0);
                return;
            }
        }
    }
    DDL_ASSERT(!"a descriptor that is held");
}

void ddl_service_close_in_child(ddl_service *service)
{
    if (service == NULL)
        return;
    for (struct held *chunk = &service->held; chunk != NULL; chunk = atomic_load(&chunk->next)) {
        for (int slot = 0; slot < HELD_PER_CHUNK; slot++) {
            int fd = atomic_load(&chunk->slots[slot]) - 1;
            if (fd >= 0)
                close(fd);
        }
    }
    /* The kernel's interest list is shared with the parent; the loop's other descriptors do no harm. */
    int backend = uv_backend_fd(&service->loop);
    if (backend >= 0)
        close(backend);
}
