/* refusing - preloaded into a rank: a system whose rules let this process accept nobody. */
#include <errno.h>

/* Not as in <sys/socket.h>, whose own types C cannot repeat. */
int accept(int listener, void *from, void *from_bytes);
int accept4(int listener, void *from, void *from_bytes, int flags);

int accept(int listener, void *from, void *from_bytes)
{
    (void)listener, (void)from, (void)from_bytes;
    errno = EPERM;
    return -1;
}

int accept4(int listener, void *from, void *from_bytes, int flags)
{
    (void)flags;
    return accept(listener, from, from_bytes);
}
