/* port.c - choosing and holding a port. */
#include "port.h"

#include "base/failpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef DDL_PORTABLE
/* Below those that Linux and macOS give, as they are set up, to whom it does not matter which. */
enum { FIRST_PORT = 10240, NPORTS = 6144, TRIES = 64 };
#endif

/* Bind fd to one; who cannot hold it takes one by its pid, so that two launchers do not choose the same. */
static bool bind_some(int fd)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
#ifdef DDL_PORTABLE
    for (int i = 0; i < TRIES; i++) {
        address.sin_port = htons((uint16_t)(FIRST_PORT + ((long)getpid() + 97L * i) % NPORTS));
        if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return true;
    }
    address.sin_port = 0;
#endif
    return bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

ddl_status launch_port_reserve(int *fd, int *port, ddl_error *err)
{
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    int on = 1, made = -1;
    if (DDL_FAILPOINT_OS("launch.socket", EMFILE) || (made = socket(AF_INET, SOCK_STREAM, 0)) < 0)
        return DDL_FAIL_OS(err, DDL_ENETWORK, errno, "cannot make a socket to choose a port");
    if (fcntl(made, F_SETFD, FD_CLOEXEC) != 0 ||
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        DDL_FAILPOINT_OS("launch.bind", EADDRINUSE) || !bind_some(made) ||
        getsockname(made, (struct sockaddr *)&address, &bytes) != 0) {
        ddl_status status = DDL_FAIL_OS(err, DDL_ENETWORK, errno, "cannot find a free port");
        close(made);
        return status;
    }
    *port = ntohs(address.sin_port);
#ifdef DDL_PORTABLE
    close(made);
    made = -1;
#endif
    *fd = made;
    return DDL_OK;
}
