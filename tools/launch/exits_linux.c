/* exits_linux.c - a pidfd per process; epoll hands them out in the order in which they became readable. */
#define _GNU_SOURCE
#include "exits.h"

#include "base/bytes.h"
#include "base/failpoint.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

struct launch_exits {
    int queue;
};

launch_exits *launch_exits_create(void)
{
    launch_exits *exits = ddl_alloc(sizeof *exits);
    if (exits == NULL)
        return NULL;
    exits->queue = DDL_FAILPOINT_OS("launch.epoll", EMFILE) ? -1 : epoll_create1(EPOLL_CLOEXEC);
    if (exits->queue < 0) {
        ddl_free(exits);
        return NULL;
    }
    return exits;
}

bool launch_exits_watch(launch_exits *exits, pid_t pid, int number)
{
    if (exits == NULL)
        return false;
#ifdef SYS_pidfd_open
    int fd = DDL_FAILPOINT_OS("launch.pidfd", EMFILE)
                 ? -1
                 : (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec */
    if (fd < 0)
        return false;
    /* The descriptor is told by the event, to be closed then. */
    struct epoll_event event = { .events = EPOLLIN,
                                 .data.u64 = (uint64_t)(uint32_t)number << 32 | (uint32_t)fd };
    if (epoll_ctl(exits->queue, EPOLL_CTL_ADD, fd, &event) == 0)
        return true;
    close(fd);
#else
    (void)pid;
    (void)number;
#endif
    return false;
}

int launch_exits_next(launch_exits *exits)
{
    struct epoll_event event;
    if (exits == NULL || epoll_wait(exits->queue, &event, 1, 0) != 1)
        return -1;
    int fd = (int)(uint32_t)event.data.u64;
    epoll_ctl(exits->queue, EPOLL_CTL_DEL, fd, &event);
    close(fd);
    return (int)(event.data.u64 >> 32);
}

void launch_exits_destroy(launch_exits *exits)
{
    if (exits == NULL)
        return;
    close(exits->queue);
    ddl_free(exits);
}
