/* check_door.c - on the service loop, so that no rank has to look for callers. */
#include "check_door.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/socket.h"
#include "io/watch.h"
#include "rendezvous/network_own.h"

#include <errno.h>

enum { ACCEPTS_PER_TURN = 64, PAUSE_MS = 100 };

struct entrance {
    int listener;
    ddl_watch *watch;
    ddl_alarm *alarm; /* to accept again */
};

struct check_door {
    ddl_service *service;
    int count;
    struct entrance entrances[DDL_NETWORK_LISTEN_MAX];
    ddl_status status;
    ddl_error error;
};

static void on_caller(void *arg, int events)
{
    struct entrance *entrance = arg;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        ddl_address from;
        int fd, error = ddl_socket_accept(entrance->listener, &fd, &from);
        if (error == EAGAIN)
            return;
        if (error != 0) { /* no descriptor, say: for now the system's queue is left to them */
            ddl_watch_set(entrance->watch, 0);
            ddl_alarm_set(entrance->alarm, PAUSE_MS);
            return;
        }
        ddl_socket_close(&fd);
    }
}

static void accept_again(void *arg)
{
    struct entrance *entrance = arg;
    ddl_watch_set(entrance->watch, DDL_READABLE);
}

static void open_on_service(void *arg)
{
    check_door *door = arg;
    for (int i = 0; i < door->count && door->status == DDL_OK; i++) {
        struct entrance *entrance = &door->entrances[i];
        door->status = ddl_watch_open(door->service, entrance->listener, on_caller, entrance,
                                      &entrance->watch, &door->error);
        if (door->status == DDL_OK)
            door->status =
                ddl_alarm_open(door->service, accept_again, entrance, &entrance->alarm, &door->error);
        if (door->status == DDL_OK)
            ddl_watch_set(entrance->watch, DDL_READABLE);
    }
}

static void close_on_service(void *arg)
{
    check_door *door = arg;
    for (int i = 0; i < door->count; i++) {
        ddl_watch_close(door->entrances[i].watch);
        ddl_alarm_close(door->entrances[i].alarm);
    }
}

ddl_status check_door_open(ddl_service *service, const int listeners[], int count, ddl_deadline deadline,
                           check_door **out, ddl_error *err)
{
    DDL_ASSERT(count <= DDL_NETWORK_LISTEN_MAX);
    check_door *door = ddl_alloc(sizeof *door);
    if (door == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to accept the connections of the check");
    door->service = service;
    for (int i = 0; i < count; i++)
        if (listeners[i] >= 0)
            door->entrances[door->count++].listener = listeners[i];
    ddl_status status =
        ddl_service_call(service, "listening for the check", open_on_service, door, deadline, err);
    if (status != DDL_OK)
        return status; /* the door is lost to the thread that is stuck */
    if (door->status != DDL_OK) {
        status = door->status;
        *err = door->error;
        check_door_close(door);
        return status;
    }
    *out = door;
    return DDL_OK;
}

void check_door_close(check_door *door)
{
    if (door == NULL)
        return;
    if (ddl_service_call(door->service, "ending the check", close_on_service, door, ddl_now_ns(), NULL) ==
        DDL_OK)
        ddl_free(door);
}
