/* gate_linux.c - a gate made of an epoll set that holds the loop's descriptor and an eventfd. */
#define _GNU_SOURCE
#include "io/gate.h"

#include "base/bytes.h"
#include "base/failpoint.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct ddl_gate {
    int epoll_fd, bell_fd, loop_fd, alarm_fd;
    bool one_shot;
};

static uint32_t events_watched(const ddl_gate *gate, bool on)
{
    if (!on)
        return 0;
    return gate->one_shot ? EPOLLIN | EPOLLONESHOT : EPOLLIN;
}

/* Without one there are no alarms. A timer has no slack, as a thread's sleep has. */
static void open_alarm(ddl_gate *gate)
{
    gate->alarm_fd = DDL_FAILPOINT_OS("io.timerfd", EMFILE)
                         ? -1
                         : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event alarm = { .events = EPOLLIN, .data = { .fd = gate->alarm_fd } };
    if (gate->alarm_fd >= 0 && epoll_ctl(gate->epoll_fd, EPOLL_CTL_ADD, gate->alarm_fd, &alarm) != 0) {
        close(gate->alarm_fd);
        gate->alarm_fd = -1;
    }
}

ddl_status ddl_gate_create(int loop_fd, bool one_shot, ddl_gate **out, ddl_error *err)
{
    ddl_gate *gate = ddl_alloc(sizeof *gate);
    if (gate == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a gate");
    gate->loop_fd = loop_fd;
    gate->one_shot = one_shot;
    gate->bell_fd = gate->alarm_fd = -1;
    gate->epoll_fd = DDL_FAILPOINT_OS("io.epoll", EMFILE) ? -1 : epoll_create1(EPOLL_CLOEXEC);
    if (gate->epoll_fd >= 0)
        gate->bell_fd = DDL_FAILPOINT_OS("io.eventfd", EMFILE) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event bell = { .events = EPOLLIN, .data = { .fd = gate->bell_fd } };
    struct epoll_event loop = { .events = events_watched(gate, !one_shot), .data = { .fd = loop_fd } };
    if (gate->bell_fd < 0 || DDL_FAILPOINT_OS("io.epoll_ctl", ENOSPC) ||
        epoll_ctl(gate->epoll_fd, EPOLL_CTL_ADD, gate->bell_fd, &bell) != 0 ||
        epoll_ctl(gate->epoll_fd, EPOLL_CTL_ADD, loop_fd, &loop) != 0) {
        int cause = errno;
        ddl_gate_destroy(gate);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, cause,
                           "cannot make an epoll set and its doorbell (see ulimit -n)");
    }
    if (one_shot)
        open_alarm(gate);
    *out = gate;
    return DDL_OK;
}

void ddl_gate_destroy(ddl_gate *gate)
{
    if (gate == NULL)
        return;
    ddl_gate_close_in_child(gate);
    ddl_free(gate);
}

static void silence(int fd)
{
    uint64_t rings;
    ssize_t got = read(fd, &rings, sizeof rings);
    (void)got; /* EAGAIN: another wait has taken it */
}

ddl_gate_end ddl_gate_wait(ddl_gate *gate, int timeout_ms)
{
    struct epoll_event events[3];
    int count = epoll_wait(gate->epoll_fd, events, 3, timeout_ms);
    ddl_gate_end end = DDL_GATE_TIME;
    for (int i = 0; i < count; i++) {
        if (events[i].data.fd == gate->bell_fd)
            silence(gate->bell_fd);
        if (events[i].data.fd != gate->alarm_fd)
            end = DDL_GATE_EVENT;
    }
    if (count > 0 && end == DDL_GATE_TIME) {
        silence(gate->alarm_fd); /* beside an event it goes on, for the next to hear */
        end = DDL_GATE_ALARM;
    }
    return count < 0 ? DDL_GATE_EVENT : end;
}

bool ddl_gate_set_alarm(ddl_gate *gate, long ns)
{
    const struct itimerspec once = { .it_value = { .tv_nsec = ns } };
    return ns > 0 && gate->alarm_fd >= 0 && timerfd_settime(gate->alarm_fd, 0, &once, NULL) == 0;
}

bool ddl_gate_rest(ddl_gate *gate, long ns)
{
    const struct timespec most = { 0, ns };
    struct pollfd alarm = { .fd = gate->alarm_fd, .events = POLLIN };
    if (ppoll(&alarm, 1, &most, NULL) <= 0)
        return false;
    silence(gate->alarm_fd);
    return true;
}

void ddl_gate_ring(ddl_gate *gate)
{
    uint64_t one = 1;
    ssize_t put = write(gate->bell_fd, &one, sizeof one);
    (void)put; /* EAGAIN: it rings already, 2^64 times */
}

void ddl_gate_watch(ddl_gate *gate, bool on)
{
    struct epoll_event loop = { .events = events_watched(gate, on), .data = { .fd = gate->loop_fd } };
    epoll_ctl(gate->epoll_fd, EPOLL_CTL_MOD, gate->loop_fd, &loop);
}

void ddl_gate_close_in_child(ddl_gate *gate)
{
    if (gate->epoll_fd >= 0)
        close(gate->epoll_fd);
    if (gate->bell_fd >= 0)
        close(gate->bell_fd);
    if (gate->alarm_fd >= 0)
        close(gate->alarm_fd);
    gate->epoll_fd = gate->bell_fd = gate->alarm_fd = -1;
}
