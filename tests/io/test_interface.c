/* test_interface.c - which of a machine's addresses is chosen, of a machine that is made up. */
#include "io/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

/* As the system lists them; of alike ones the first is chosen. The addresses are reserved for documents. */
static const struct {
    const char *name, *host;
    bool is_tentative; /* it cannot be bound */
} interfaces[] = {
    { "lo", "127.0.0.1", false },        { "usb0", "169.254.7.7", false },
    { "docker0", "203.0.113.1", false }, { "eth10", "198.51.100.10", false },
    { "eth1", "198.51.100.1", false },   { "ib0", "198.51.100.129", false },
    { "en0", "198.51.100.20", true },    { "en1", "198.51.100.21", false },
};

enum { NINTERFACES = sizeof interfaces / sizeof interfaces[0] };

static struct ifaddrs entries[NINTERFACES];
static struct sockaddr_in addresses[NINTERFACES];

/* In the C library's place. */
int getifaddrs(struct ifaddrs **list)
{
    for (int i = 0; i < NINTERFACES; i++) {
        addresses[i] =
            (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(interfaces[i].host) };
        entries[i] = (struct ifaddrs){ .ifa_name = (char *)(uintptr_t)interfaces[i].name,
                                       .ifa_flags = IFF_UP,
                                       .ifa_addr = (struct sockaddr *)&addresses[i],
                                       .ifa_next = i + 1 < NINTERFACES ? &entries[i + 1] : NULL };
    }
    *list = entries;
    return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
    (void)list;
}

int bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sockaddr_in own;
    (void)fd;
    memcpy(&own, address, bytes < sizeof own ? bytes : sizeof own);
    for (int i = 0; i < NINTERFACES; i++)
        if (interfaces[i].is_tentative && inet_addr(interfaces[i].host) == own.sin_addr.s_addr) {
            errno = EADDRNOTAVAIL;
            return -1;
        }
    return 0;
}

static void the_best_of_those_that_fit_is_chosen(void **state)
{
    static const struct {
        const char *choice, *host;
    } cases[] = {
        { NULL, "198.51.100.10" },
        { "eth", "198.51.100.10" },
        { "eth1", "198.51.100.1" },
        { "eth1*", "198.51.100.10" },
        { "ib,eth1", "198.51.100.129" },
        { "ib,eth1,^198.51.100.128/25", "198.51.100.1" },
        { "en", "198.51.100.21" }, /* for en0 cannot be bound */
        { "en0", "198.51.100.20" },
        { "^eth,ib,en", "203.0.113.1" },
        { "^eth,ib,en,docker", "169.254.7.7" },
        { "^eth,ib,en,docker,usb", "127.0.0.1" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_address chosen;
        ddl_error error;
        char host[DDL_ADDRESS_HOST_TEXT];
        if (ddl_interface_choose(cases[i].choice, NULL, &chosen, &error) != DDL_OK)
            fail_msg("%s: %s", cases[i].choice, error.text);
        ddl_address_host(&chosen, host);
        if (strcmp(host, cases[i].host) != 0)
            fail_msg("%s: %s, expected %s", cases[i].choice != NULL ? cases[i].choice : "no choice", host,
                     cases[i].host);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_those_that_fit_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
