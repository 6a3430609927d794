/*
 * stopping - preloaded into a rank: it stops itself, or ends, at one place of its start.
 *
 * DDL_TEST_STOP: "memory", where it makes its shared memory, once all are connected; "door", where it calls
 * the usher of its host; "call", where it first calls a rank over TCP; "pair", where as the usher it makes
 * the first connection between two others. DDL_TEST_SIGNAL: by which signal, SIGSTOP if that is not set.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int memfd_create(const char *name, unsigned flags);

static void be_at(const char *place)
{
    static int stopped;
    const char *where = getenv("DDL_TEST_STOP"), *signal = getenv("DDL_TEST_SIGNAL");
    if (where == NULL || strcmp(where, place) != 0 || stopped)
        return;
    stopped = 1;
    raise(signal != NULL ? atoi(signal) : SIGSTOP);
}

int memfd_create(const char *name, unsigned flags)
{
    if (strcmp(name, "ddl") == 0)
        be_at("memory");
    return (int)syscall(SYS_memfd_create, name, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    const struct sockaddr_un *local = (const void *)address;
    if (address->sa_family == AF_UNIX && strncmp(local->sun_path + 1, "ddl-", 4) == 0)
        be_at("door");
    int type = 0;
    socklen_t type_bytes = sizeof type;
    if (address->sa_family == AF_INET && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 &&
        type == SOCK_STREAM)
        be_at("call");
    return (int)syscall(SYS_connect, fd, address, bytes);
}

int socketpair(int domain, int type, int protocol, int ends[2])
{
    if (type == (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK))
        be_at("pair");
    return (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}
