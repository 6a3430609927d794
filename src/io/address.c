/* address.c - numeric addresses and the machine's interfaces. */
#include "io/address.h"

#include "base/assert.h"
#include "base/failpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void from_v4(const struct in_addr *host, uint16_t port, ddl_address *address)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = *host };
    memset(address, 0, sizeof *address);
    memcpy(&address->socket, &v4, sizeof v4);
    address->bytes = sizeof v4;
}

static void from_v6(const struct in6_addr *host, uint32_t scope, uint16_t port, ddl_address *address)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = scope };
    v6.sin6_addr = *host;
    memset(address, 0, sizeof *address);
    memcpy(&address->socket, &v6, sizeof v6);
    address->bytes = sizeof v6;
}

static struct sockaddr_in as_v4(const ddl_address *address)
{
    struct sockaddr_in v4;
    memcpy(&v4, &address->socket, sizeof v4);
    return v4;
}

static struct sockaddr_in6 as_v6(const ddl_address *address)
{
    struct sockaddr_in6 v6;
    memcpy(&v6, &address->socket, sizeof v6);
    return v6;
}

/* From a name, or a number in the decimal form; 0 if it is neither. */
static uint32_t scope_of(const char *text)
{
    char *end;
    uint32_t index = if_nametoindex(text);
    if (index > 0 || !isdigit((unsigned char)*text))
        return index;
    unsigned long long number = strtoull(text, &end, 10);
    return *end == '\0' && number <= UINT32_MAX ? (uint32_t)number : 0;
}

bool ddl_address_parse(const char *text, uint16_t port, ddl_address *address)
{
    DDL_ASSERT(text != NULL);
    struct in_addr v4;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        from_v4(&v4, port, address);
        return true;
    }
    char host[DDL_ADDRESS_HOST_TEXT];
    size_t bytes = strcspn(text, "%");
    if (bytes >= sizeof host)
        return false;
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    uint32_t scope = 0;
    if (text[bytes] == '%') {
        scope = scope_of(text + bytes + 1);
        if (scope == 0)
            return false;
    }
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return false;
    from_v6(&v6, scope, port, address);
    return true;
}

void ddl_address_host(const ddl_address *address, char text[DDL_ADDRESS_HOST_TEXT])
{
    snprintf(text, DDL_ADDRESS_HOST_TEXT, "?");
    if (address->socket.ss_family == AF_INET) {
        struct sockaddr_in v4 = as_v4(address);
        inet_ntop(AF_INET, &v4.sin_addr, text, DDL_ADDRESS_HOST_TEXT);
    } else if (address->socket.ss_family == AF_INET6) {
        struct sockaddr_in6 v6 = as_v6(address);
        inet_ntop(AF_INET6, &v6.sin6_addr, text, DDL_ADDRESS_HOST_TEXT);
        char name[IF_NAMESIZE];
        if (v6.sin6_scope_id != 0) {
            size_t used = strlen(text);
            if (if_indextoname(v6.sin6_scope_id, name) == NULL)
                snprintf(name, sizeof name, "%u", (unsigned)v6.sin6_scope_id);
            snprintf(text + used, DDL_ADDRESS_HOST_TEXT - used, "%%%s", name);
        }
    }
}

void ddl_address_text(const ddl_address *address, char text[DDL_ADDRESS_FULL_TEXT])
{
    char host[DDL_ADDRESS_HOST_TEXT];
    ddl_address_host(address, host);
    bool v6 = address->socket.ss_family == AF_INET6;
    snprintf(text, DDL_ADDRESS_FULL_TEXT, v6 ? "[%s]:%u" : "%s:%u", host, ddl_address_port(address));
}

uint16_t ddl_address_port(const ddl_address *address)
{
    if (address->socket.ss_family == AF_INET)
        return ntohs(as_v4(address).sin_port);
    return address->socket.ss_family == AF_INET6 ? ntohs(as_v6(address).sin6_port) : 0;
}

void ddl_address_set_port(ddl_address *address, uint16_t port)
{
    if (address->socket.ss_family == AF_INET) {
        struct in_addr host = as_v4(address).sin_addr;
        from_v4(&host, port, address);
    } else if (address->socket.ss_family == AF_INET6) {
        struct sockaddr_in6 v6 = as_v6(address);
        from_v6(&v6.sin6_addr, v6.sin6_scope_id, port, address);
    }
}

/* Network order, 4 or 16 bytes; an IPv4 address written as IPv6 counts as IPv4. 0: another family. */
static int host_bytes(const ddl_address *address, uint8_t bytes[16])
{
    if (address->socket.ss_family == AF_INET) {
        struct sockaddr_in v4 = as_v4(address);
        memcpy(bytes, &v4.sin_addr, 4);
        return 4;
    }
    if (address->socket.ss_family != AF_INET6)
        return 0;
    struct sockaddr_in6 v6 = as_v6(address);
    const uint8_t *host = v6.sin6_addr.s6_addr;
    bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    memcpy(bytes, mapped ? host + 12 : host, mapped ? 4 : 16);
    return mapped ? 4 : 16;
}

bool ddl_address_is_loopback(const ddl_address *address)
{
    static const uint8_t v6_loopback[16] = { [15] = 1 };
    uint8_t bytes[16];
    int count = host_bytes(address, bytes);
    return count == 4 ? bytes[0] == 127 : count == 16 && memcmp(bytes, v6_loopback, 16) == 0;
}

bool ddl_address_is_any(const ddl_address *address)
{
    static const uint8_t any[16];
    uint8_t bytes[16];
    int count = host_bytes(address, bytes);
    return count > 0 && memcmp(bytes, any, (size_t)count) == 0;
}

static bool is_link_local(const ddl_address *address)
{
    uint8_t bytes[16];
    int count = host_bytes(address, bytes);
    if (count == 4)
        return bytes[0] == 169 && bytes[1] == 254;
    return count == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

static bool same_host(const ddl_address *a, const ddl_address *b)
{
    uint8_t a_bytes[16], b_bytes[16];
    int count = host_bytes(a, a_bytes);
    return count > 0 && count == host_bytes(b, b_bytes) && memcmp(a_bytes, b_bytes, (size_t)count) == 0;
}

ddl_status ddl_address_split(const char *what, const char *text, char *host, size_t host_room, uint16_t *port,
                             ddl_error *err)
{
    const char *start = text, *end, *colon;
    if (text[0] == '[') {
        start = text + 1;
        end = strchr(text, ']');
        colon = end != NULL && end[1] == ':' ? end + 1 : NULL;
    } else {
        colon = end = strrchr(text, ':');
        if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL)
            return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: write an IPv6 address in brackets, as in [::1]:29500",
                            what, text);
    }
    if (colon == NULL || end == start)
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s is not of the form host:port, as in 10.0.0.1:29500", what,
                        text);
    char *rest;
    unsigned long number = colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &rest, 10) : 0;
    if (number < 1 || number > UINT16_MAX || *rest != '\0')
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: the port must be a number from 1 to 65535", what, text);
    if ((size_t)(end - start) >= host_room)
        return DDL_FAIL(err, DDL_ECONFIG, "%s: the host name is longer than %zu bytes", what, host_room - 1);
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *port = (uint16_t)number;
    return DDL_OK;
}

/* The IPv4 or IPv6 address of an interface that is up; false for any other entry of the list. */
static bool usable(const struct ifaddrs *entry, ddl_address *address)
{
    if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_UP) == 0)
        return false;
    memset(address, 0, sizeof *address);
    if (entry->ifa_addr->sa_family == AF_INET)
        address->bytes = sizeof(struct sockaddr_in);
    else if (entry->ifa_addr->sa_family == AF_INET6)
        address->bytes = sizeof(struct sockaddr_in6);
    else
        return false;
    memcpy(&address->socket, entry->ifa_addr, address->bytes);
    ddl_address_set_port(address, 0);
    return true;
}

static int list_interfaces(struct ifaddrs **list)
{
    if (DDL_FAILPOINT_OS("io.getifaddrs", ENOMEM))
        return -1;
    return getifaddrs(list);
}

bool ddl_address_is_local(const ddl_address *address)
{
    struct ifaddrs *list;
    if (ddl_address_is_loopback(address))
        return true;
    if (list_interfaces(&list) != 0)
        return false;
    bool found = false;
    for (struct ifaddrs *entry = list; entry != NULL && !found; entry = entry->ifa_next) {
        ddl_address own;
        found = usable(entry, &own) && same_host(&own, address);
    }
    freeifaddrs(list);
    return found;
}

static int prefix_bits(const struct sockaddr *mask)
{
    int bits = 0;
    uint8_t bytes[16];
    ddl_address address = { .bytes = 0 };
    if (mask == NULL)
        return -1;
    memcpy(&address.socket, mask,
           mask->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    int count = host_bytes(&address, bytes);
    for (int i = 0; i < count; i++)
        bits += __builtin_popcount(bytes[i]);
    return bits;
}

void ddl_interfaces_text(char *text, size_t text_bytes)
{
    struct ifaddrs *list;
    snprintf(text, text_bytes, "none");
    if (list_interfaces(&list) != 0)
        return;
    size_t used = 0;
    for (struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        ddl_address address;
        char host[DDL_ADDRESS_HOST_TEXT], item[DDL_ADDRESS_HOST_TEXT + IF_NAMESIZE + 16];
        if (!usable(entry, &address) || (is_link_local(&address) && address.socket.ss_family == AF_INET6))
            continue;
        ddl_address_host(&address, host);
        int bits = prefix_bits(entry->ifa_netmask);
        int item_bytes = bits >= 0 ? snprintf(item, sizeof item, "%s %s/%d", entry->ifa_name, host, bits)
                                   : snprintf(item, sizeof item, "%s %s", entry->ifa_name, host);
        if (item_bytes < 0 || used + (size_t)item_bytes + 3 > text_bytes)
            break;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used > 0 ? ", " : "", item);
    }
    freeifaddrs(list);
}

/* A network as DDL_IFACE names it. */
struct network {
    const char *name;
    bool is_cidr;
    ddl_address base;
    int bits;
};

/* False: looks like a network ("a/b") but is none. */
static bool parse_network(const char *text, struct network *network)
{
    *network = (struct network){ .name = text };
    const char *slash = strchr(text, '/');
    if (slash == NULL) {
        if (ddl_address_parse(text, 0, &network->base)) { /* a full address is a network of one */
            network->is_cidr = true;
            network->bits = network->base.socket.ss_family == AF_INET ? 32 : 128;
        }
        return true;
    }
    char host[DDL_ADDRESS_HOST_TEXT], *end;
    if ((size_t)(slash - text) >= sizeof host || slash[1] < '0' || slash[1] > '9')
        return false;
    memcpy(host, text, (size_t)(slash - text));
    host[slash - text] = '\0';
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (*end != '\0' || !ddl_address_parse(host, 0, &network->base))
        return false;
    if (bits > (network->base.socket.ss_family == AF_INET ? 32u : 128u))
        return false;
    network->is_cidr = true;
    network->bits = (int)bits;
    return true;
}

static bool in_network(const struct network *network, const char *name, const ddl_address *address)
{
    if (!network->is_cidr)
        return strcmp(network->name, name) == 0;
    uint8_t base[16], own[16];
    int count = host_bytes(&network->base, base);
    if (count != host_bytes(address, own))
        return false;
    for (int bit = 0; bit < network->bits; bit++)
        if (((base[bit / 8] ^ own[bit / 8]) >> (7 - bit % 8)) & 1)
            return false;
    return true;
}

/* Higher is better; what other hosts can most likely reach comes first. */
static int preference(const ddl_address *address)
{
    int v4 = address->socket.ss_family == AF_INET;
    if (ddl_address_is_loopback(address))
        return 1 + v4;
    return is_link_local(address) ? 3 + v4 : 5 + v4;
}

ddl_status ddl_interface_choose(const char *iface, ddl_address *address, ddl_error *err)
{
    struct network network = { .name = NULL };
    char known[320];
    struct ifaddrs *list;
    if (iface != NULL && !parse_network(iface, &network)) {
        ddl_interfaces_text(known, sizeof known);
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "DDL_IFACE=%s is neither an interface nor a network such as 10.0.0.0/8; there are: %s", iface,
            known);
    }
    if (list_interfaces(&list) != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot list the network interfaces");
    int best = 0;
    for (struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        ddl_address own;
        if (!usable(entry, &own) || (iface != NULL && !in_network(&network, entry->ifa_name, &own)))
            continue;
        if (preference(&own) > best) {
            best = preference(&own);
            *address = own;
        }
    }
    freeifaddrs(list);
    if (best > 0)
        return DDL_OK;
    ddl_interfaces_text(known, sizeof known);
    if (iface == NULL)
        return DDL_FAIL(err, DDL_ENETWORK,
                        "this machine has no network interface that is up, not even loopback");
    return DDL_FAIL(err, DDL_ECONFIG, "DDL_IFACE=%s: no such interface or network is up here; there are: %s",
                    iface, known);
}
