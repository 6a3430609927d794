/* service.c - the service loop, its thread, and calls into it. */
#include "io/service.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HELD_PER_CHUNK = 62 };

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
    void (*function)(void *arg);
    void *arg;
    bool returned;
};

struct ddl_service {
    uv_loop_t loop;
    uv_async_t wake;
    pthread_t thread;
    pthread_mutex_t lock;    /* guards calls, stopping, and returned of each call */
    pthread_cond_t returned; /* some call has returned */
    ddl_list calls;
    bool stopping;
    atomic_int lack;
    atomic_uint other_version;
    char turned_away[DDL_SERVICE_TURNED_AWAY]; /* guarded by lock */
    struct held held;
};

static void run_calls(uv_async_t *wake)
{
    ddl_service *service = wake->data;
    pthread_mutex_lock(&service->lock);
    ddl_link *link;
    while ((link = ddl_list_take_first(&service->calls)) != NULL) {
        struct call *call = DDL_CONTAINER(link, struct call, link);
        pthread_mutex_unlock(&service->lock);
        call->function(call->arg);
        pthread_mutex_lock(&service->lock);
        call->returned = true;
        pthread_cond_broadcast(&service->returned);
    }
    bool stopping = service->stopping;
    pthread_mutex_unlock(&service->lock);
    if (stopping)
        uv_close((uv_handle_t *)wake, NULL);
}

static void *run_loop(void *arg)
{
    ddl_service *service = arg;
    uv_run(&service->loop, UV_RUN_DEFAULT); /* until the last handle is closed */
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
    pthread_mutex_init(&service->lock, NULL);
    pthread_cond_init(&service->returned, NULL);
    error = DDL_FAILPOINT("io.thread") ? EAGAIN : ddl_thread_start(run_loop, service, &service->thread);
    if (error != 0) {
        uv_close((uv_handle_t *)&service->wake, forget_wake);
        uv_run(&service->loop, UV_RUN_DEFAULT);
        uv_loop_close(&service->loop);
        pthread_cond_destroy(&service->returned);
        pthread_mutex_destroy(&service->lock);
        ddl_free(service);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, error, "cannot start the service thread");
    }
    *out = service;
    return DDL_OK;
}

uv_loop_t *ddl_service_loop(ddl_service *service)
{
    DDL_ASSERT(service != NULL);
    return &service->loop;
}

void ddl_service_call(ddl_service *service, void (*function)(void *arg), void *arg)
{
    DDL_ASSERT(service != NULL);
    DDL_ASSERT(!pthread_equal(pthread_self(), service->thread));
    struct call call = { .function = function, .arg = arg };
    pthread_mutex_lock(&service->lock);
    DDL_ASSERT(!service->stopping);
    ddl_list_append(&service->calls, &call.link);
    uv_async_send(&service->wake); /* under the lock: the loop cannot be gone before this returns */
    while (!call.returned)
        pthread_cond_wait(&service->returned, &service->lock);
    pthread_mutex_unlock(&service->lock);
}

void ddl_service_set_lack(ddl_service *service, int os_errno)
{
    atomic_store(&service->lack, os_errno);
}

int ddl_service_lack(const ddl_service *service)
{
    return atomic_load(&service->lack);
}

void ddl_service_set_other_version(ddl_service *service, unsigned version)
{
    atomic_store(&service->other_version, version);
}

unsigned ddl_service_other_version(const ddl_service *service)
{
    return atomic_load(&service->other_version);
}

void ddl_service_set_turned_away(ddl_service *service, const char *text)
{
    pthread_mutex_lock(&service->lock);
    snprintf(service->turned_away, sizeof service->turned_away, "%s", text);
    pthread_mutex_unlock(&service->lock);
}

void ddl_service_turned_away(ddl_service *service, char text[DDL_SERVICE_TURNED_AWAY])
{
    pthread_mutex_lock(&service->lock);
    memcpy(text, service->turned_away, DDL_SERVICE_TURNED_AWAY);
    pthread_mutex_unlock(&service->lock);
}

void ddl_service_destroy(ddl_service *service)
{
    if (service == NULL)
        return;
    pthread_mutex_lock(&service->lock);
    service->stopping = true;
    uv_async_send(&service->wake);
    pthread_mutex_unlock(&service->lock);
    pthread_join(service->thread, NULL);
    int left = uv_loop_close(&service->loop);
    DDL_ASSERT(left == 0);
    pthread_cond_destroy(&service->returned);
    pthread_mutex_destroy(&service->lock);
    struct held *chunk = atomic_load(&service->held.next);
    while (chunk != NULL) {
        struct held *next = atomic_load(&chunk->next);
        ddl_free(chunk);
        chunk = next;
    }
    ddl_free(service);
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
