/* watch.c - descriptors and timers on the service loop, over uv_poll and uv_timer. */
#include "io/watch.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"

struct ddl_watch {
    uv_poll_t handle;
    ddl_service *service;
    int fd, events;
    ddl_watch_event *event;
    void *arg;
};

struct ddl_alarm {
    uv_timer_t handle;
    void (*ring)(void *arg);
    void *arg;
};

struct ddl_poke {
    uv_async_t handle;
    void (*heard)(void *arg);
    void *arg;
};

static void on_poll(uv_poll_t *handle, int status, int events)
{
    ddl_watch *watch = handle->data;
    int seen = status < 0 ? DDL_READABLE | DDL_WRITABLE : 0;
    if (status < 0) /* libuv has stopped to watch it */
        watch->events = 0;
    if (events & UV_READABLE)
        seen |= DDL_READABLE;
    if (events & UV_WRITABLE)
        seen |= DDL_WRITABLE;
    DDL_FAILPOINT_STALL("io.event");
    watch->event(watch->arg, seen);
}

static void free_data(uv_handle_t *handle)
{
    ddl_free(handle->data);
}

ddl_status ddl_watch_open(ddl_service *service, int fd, ddl_watch_event *event, void *arg, ddl_watch **out,
                          ddl_error *err)
{
    DDL_ASSERT(fd >= 0);
    ddl_watch *watch = ddl_alloc(sizeof *watch);
    if (watch == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to watch a descriptor");
    if (!ddl_service_hold(service, fd)) {
        ddl_free(watch);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to watch a descriptor");
    }
    int error =
        DDL_FAILPOINT("io.watch") ? UV_EMFILE : uv_poll_init(ddl_service_loop(service), &watch->handle, fd);
    if (error != 0) {
        ddl_service_release(service, fd);
        ddl_free(watch);
        return DDL_FAIL(err, DDL_ERESOURCE, "cannot watch a descriptor: %s", uv_strerror(error));
    }
    watch->handle.data = watch;
    watch->service = service;
    watch->fd = fd;
    watch->events = 0;
    watch->event = event;
    watch->arg = arg;
    *out = watch;
    return DDL_OK;
}

void ddl_watch_set(ddl_watch *watch, int events)
{
    if (events ==
        watch->events) /* for libuv to start anew is to remove it from the set and to add it again */
        return;
    watch->events = events;
    if (events == 0) {
        uv_poll_stop(&watch->handle);
        return;
    }
    int wanted = (events & DDL_READABLE ? UV_READABLE : 0) | (events & DDL_WRITABLE ? UV_WRITABLE : 0);
    int error = uv_poll_start(&watch->handle, wanted, on_poll);
    DDL_ASSERT(error == 0);
}

void ddl_watch_close(ddl_watch *watch)
{
    if (watch == NULL)
        return;
    ddl_service_release(watch->service, watch->fd);
    uv_close((uv_handle_t *)&watch->handle, free_data);
}

static void on_timer(uv_timer_t *handle)
{
    ddl_alarm *alarm = handle->data;
    alarm->ring(alarm->arg);
}

ddl_status ddl_alarm_open(ddl_service *service, void (*ring)(void *arg), void *arg, ddl_alarm **out,
                          ddl_error *err)
{
    ddl_alarm *alarm = ddl_alloc(sizeof *alarm);
    if (alarm == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a timer");
    uv_timer_init(ddl_service_loop(service), &alarm->handle);
    alarm->handle.data = alarm;
    alarm->ring = ring;
    alarm->arg = arg;
    *out = alarm;
    return DDL_OK;
}

void ddl_alarm_set(ddl_alarm *alarm, int64_t after_ms)
{
    /* The loop's idea of now may be old where its last turn was long. */
    uv_update_time(alarm->handle.loop);
    uv_timer_start(&alarm->handle, on_timer, after_ms > 0 ? (uint64_t)after_ms : 0, 0);
}

void ddl_alarm_rest(ddl_alarm *alarm)
{
    uv_timer_stop(&alarm->handle);
}

void ddl_alarm_close(ddl_alarm *alarm)
{
    if (alarm != NULL)
        uv_close((uv_handle_t *)&alarm->handle, free_data);
}

static void on_poke(uv_async_t *handle)
{
    ddl_poke *poke = handle->data;
    poke->heard(poke->arg);
}

ddl_status ddl_poke_open(ddl_service *service, void (*heard)(void *arg), void *arg, ddl_poke **out,
                         ddl_error *err)
{
    ddl_poke *poke = ddl_alloc(sizeof *poke);
    if (poke == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a call between threads");
    int error = DDL_FAILPOINT("io.async") ? UV_EMFILE
                                          : uv_async_init(ddl_service_loop(service), &poke->handle, on_poke);
    if (error != 0) {
        ddl_free(poke);
        return DDL_FAIL(err, DDL_ERESOURCE, "cannot make a call between threads: %s", uv_strerror(error));
    }
    poke->handle.data = poke;
    poke->heard = heard;
    poke->arg = arg;
    *out = poke;
    return DDL_OK;
}

void ddl_poke_ring(ddl_poke *poke)
{
    uv_async_send(&poke->handle);
}

void ddl_poke_close(ddl_poke *poke)
{
    if (poke != NULL)
        uv_close((uv_handle_t *)&poke->handle, free_data);
}
