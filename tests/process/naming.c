/* naming - preloaded: the look-up of slow.test takes half a minute and finds nothing; whoever asks for the
 * name of an address ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOW_S = 30 };

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    union {
        void *object;
        int (*function)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    } real = { .object = dlsym(RTLD_NEXT, "getaddrinfo") };
    if (name == NULL || strcmp(name, "slow.test") != 0)
        return real.function(name, service, hints, found);
    sleep(SLOW_S);
    return EAI_AGAIN;
}

int getnameinfo(const struct sockaddr *address, socklen_t bytes, char *host, socklen_t host_bytes,
                char *service, socklen_t service_bytes, int flags)
{
    (void)address, (void)bytes, (void)host, (void)host_bytes, (void)service, (void)service_bytes, (void)flags;
    abort();
}

struct hostent *gethostbyaddr(const void *address, socklen_t bytes, int family)
{
    (void)address, (void)bytes, (void)family;
    abort();
}
