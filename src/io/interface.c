/* interface.c - this machine's interfaces, and lists that choose among them. */
#include "io/interface.h"

#include "base/failpoint.h"
#include "io/socket.h"

#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ITEM_TEXT = 64,
    AWAIT_LIMIT_MS =
        5000, /* the system looks for others with an address for 1 or 2 s, unless it is set otherwise */
    AWAIT_PAUSE_MS = 50
};

/* ---- what there is ---- */

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

bool ddl_interface_is_local(const ddl_address *address)
{
    struct ifaddrs *list;
    if (ddl_address_is_loopback(address))
        return true;
    if (list_interfaces(&list) != 0)
        return false;
    bool found = false;
    for (struct ifaddrs *entry = list; entry != NULL && !found; entry = entry->ifa_next) {
        ddl_address own;
        found = usable(entry, &own) && ddl_address_same_host(&own, address);
    }
    freeifaddrs(list);
    return found;
}

bool ddl_interface_no_loopback(void)
{
    struct ifaddrs *list;
    bool is_up = false;
    if (list_interfaces(&list) != 0 || list == NULL)
        return false;
    for (struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next)
        is_up = is_up || (entry->ifa_flags & (IFF_LOOPBACK | IFF_UP)) == (IFF_LOOPBACK | IFF_UP);
    freeifaddrs(list);
    return !is_up;
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
    int count = ddl_address_bytes(&address, bytes);
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
        if (!usable(entry, &address) ||
            (ddl_address_is_link_local(&address) && address.socket.ss_family == AF_INET6))
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

/* ---- choices ---- */

/* One item of a choice. */
struct item {
    char text[ITEM_TEXT];
    bool excludes, is_network;
    ddl_address base;
    int bits;
};

/* A full address is a network of one. False: looks like a network ("a/b") but is none. */
static bool parse_network(struct item *item)
{
    char host[ITEM_TEXT], *end;
    uint8_t bytes[16];
    const char *slash = strchr(item->text, '/');
    size_t host_bytes = slash != NULL ? (size_t)(slash - item->text) : strlen(item->text);
    memcpy(host, item->text, host_bytes);
    host[host_bytes] = '\0';
    item->is_network = ddl_address_parse(host, 0, &item->base);
    /* An IPv4 address in the form of IPv6 counts as IPv4, without the bits before it. */
    const int most = item->base.socket.ss_family == AF_INET ? 32 : 128;
    const int before = item->is_network ? most - 8 * ddl_address_bytes(&item->base, bytes) : 0;
    item->bits = most - before;
    if (slash == NULL)
        return true;
    if (!item->is_network || !isdigit((unsigned char)slash[1]))
        return false;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (*end != '\0' || bits > (unsigned long)most || bits < (unsigned long)before)
        return false;
    item->bits = (int)bits - before;
    return true;
}

/* Take the next item off *rest, which is NULL behind the last. False: it is malformed. */
static bool next_item(const char **rest, bool all_exclude, struct item *item)
{
    const char *at = *rest;
    size_t bytes = strcspn(at, ",");
    memset(item, 0, sizeof *item);
    *rest = at[bytes] == ',' ? at + bytes + 1 : NULL;
    item->excludes = all_exclude || at[0] == '^';
    if (at[0] == '^') {
        at++;
        bytes--;
    }
    if (bytes == 0 || bytes >= sizeof item->text)
        return false;
    memcpy(item->text, at, bytes);
    return parse_network(item);
}

static bool is_name(const struct item *item, const char *name)
{
    size_t bytes = strlen(item->text);
    if (item->text[bytes - 1] == '*')
        return strncmp(item->text, name, bytes - 1) == 0;
    if (strncmp(item->text, name, bytes) != 0)
        return false;
    bool numbered = !isdigit((unsigned char)item->text[bytes - 1]);
    return name[bytes] == '\0' || (numbered && name[bytes + strspn(name + bytes, "0123456789")] == '\0');
}

static bool is_in(const struct item *item, const char *name, const ddl_address *address)
{
    if (!item->is_network)
        return is_name(item, name);
    uint8_t base[16], own[16];
    int count = ddl_address_bytes(&item->base, base);
    if (count != ddl_address_bytes(address, own))
        return false;
    for (int bit = 0; bit < item->bits; bit++)
        if (((base[bit / 8] ^ own[bit / 8]) >> (7 - bit % 8)) & 1)
            return false;
    return true;
}

/* Which item of a well-formed choice an address fits, from 0; a choice that only excludes fits the rest at 0.
 * -1: none. */
static int fits(const char *choice, const char *name, const ddl_address *address)
{
    struct item item;
    int found = -1, included = 0;
    const bool all_exclude = choice != NULL && choice[0] == '^';
    for (const char *rest = choice; rest != NULL;) {
        (void)next_item(&rest, all_exclude, &item);
        if (item.excludes && is_in(&item, name, address))
            return -1;
        if (item.excludes)
            continue;
        if (found < 0 && is_in(&item, name, address))
            found = included;
        included++;
    }
    return included == 0 ? 0 : found;
}

static ddl_status check_choice(const char *choice, ddl_error *err)
{
    struct item item;
    char known[320];
    for (const char *rest = choice; rest != NULL;)
        if (!next_item(&rest, false, &item)) {
            ddl_interfaces_text(known, sizeof known);
            return DDL_FAIL(err, DDL_ECONFIG,
                            "DDL_IFACE=%.100s: '%s' is neither an interface nor a network such as "
                            "10.0.0.0/8; there are: %s",
                            choice, item.text, known);
        }
    return DDL_OK;
}

/* ---- which is best ---- */

/* What the system would send from, to addresses that are reserved for documents: nothing is sent. */
static bool leads_out(const ddl_address *own)
{
    ddl_address target, source = { .bytes = sizeof source.socket };
    bool is_v4 = own->socket.ss_family == AF_INET;
    if (!ddl_address_parse(is_v4 ? "192.0.2.1" : "2001:db8::1", 9, &target))
        return false;
    int fd = ddl_socket_new_datagram(target.socket.ss_family);
    if (fd < 0)
        return false;
    bool known = connect(fd, (const struct sockaddr *)&target.socket, target.bytes) == 0 &&
                 getsockname(fd, (struct sockaddr *)&source.socket, &source.bytes) == 0;
    close(fd);
    return known && ddl_address_same_host(&source, own);
}

/* Bridges and tunnels that container engines and the like make; the same address may be on every host. */
static bool is_inner(const char *name)
{
    static const char *const prefixes[] = { "docker", "br-", "veth", "virbr",  "cni",   "flannel",
                                            "cali",   "lxc", "lxd",  "podman", "vmnet", "tailscale",
                                            "tun",    "tap", "wg",   "utun" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Higher is better; what other hosts can most likely reach comes first. */
static int preference(const char *name, const ddl_address *own, const ddl_address *preferred)
{
    int v4 = own->socket.ss_family == AF_INET;
    if (preferred != NULL && ddl_address_same_host(own, preferred))
        return 11;
    if (ddl_address_is_loopback(own))
        return 1 + v4;
    if (ddl_address_is_link_local(own))
        return 3 + v4;
    if (leads_out(own))
        return 9 + v4; /* a bridge as well, as hosts have it whose only way out is one */
    return (is_inner(name) ? 5 : 7) + v4;
}

/* One that is still being looked at (duplicate address detection), or that another host has too, cannot be
 * used. */
static bool can_bind(const ddl_address *own)
{
    ddl_address any_port = *own;
    ddl_address_set_port(&any_port, 0);
    int fd = ddl_socket_new(own->socket.ss_family);
    if (fd < 0) /* which has another reason */
        return true;
    bool can =
        bind(fd, (const struct sockaddr *)&any_port.socket, any_port.bytes) == 0 || errno != EADDRNOTAVAIL;
    ddl_socket_close(&fd);
    return can;
}

bool ddl_interface_await(const ddl_address *own, ddl_deadline deadline)
{
    const ddl_deadline limit = ddl_deadline_earlier(deadline, ddl_deadline_in_ms(AWAIT_LIMIT_MS));
    while (!can_bind(own)) {
        if (ddl_deadline_passed(limit))
            return false;
        (void)ddl_socket_wait(-1, 0, ddl_deadline_earlier(limit, ddl_deadline_in_ms(AWAIT_PAUSE_MS)));
    }
    return true;
}

ddl_status ddl_interface_choose(const char *choice, const ddl_address *preferred, ddl_address *address,
                                ddl_error *err)
{
    char known[320];
    struct ifaddrs *list;
    DDL_TRY(check_choice(choice, err));
    if (list_interfaces(&list) != 0) {
        if (choice != NULL || preferred == NULL)
            return DDL_FAIL_OS(err, DDL_ERESOURCE, errno,
                               "cannot list the network interfaces (are sockets of AF_NETLINK allowed?)");
        *address = *preferred;
        return DDL_OK;
    }
    int best = 0, best_item = -1;
    for (struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        ddl_address own;
        int item = usable(entry, &own) ? fits(choice, entry->ifa_name, &own) : -1;
        if (item < 0 || (best_item >= 0 && item > best_item))
            continue;
        int value = 2 * preference(entry->ifa_name, &own, preferred) + can_bind(&own);
        if (item == best_item && value <= best)
            continue;
        best = value;
        best_item = item;
        *address = own;
    }
    freeifaddrs(list);
    if (best_item >= 0)
        return DDL_OK;
    ddl_interfaces_text(known, sizeof known);
    if (choice == NULL)
        return DDL_FAIL(
            err, DDL_ENETWORK,
            "this machine has no network interface that is up, not even loopback (ip link set lo up)");
    return DDL_FAIL(err, DDL_ENETWORK, "DDL_IFACE=%.100s: %s; there are: %s", choice,
                    choice[0] == '^' ? "that leaves nothing of what is up here"
                                     : "no such interface or network is up here",
                    known);
}

/* The name of the interface that has this address; false if none has. */
static bool name_of(const struct ifaddrs *list, const ddl_address *address, char name[IF_NAMESIZE])
{
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        ddl_address own;
        if (!usable(entry, &own) || !ddl_address_same_host(&own, address))
            continue;
        snprintf(name, IF_NAMESIZE, "%s", entry->ifa_name);
        return true;
    }
    return false;
}

bool ddl_interface_other_family(const char *choice, const ddl_address *own, ddl_address *other)
{
    struct ifaddrs *list;
    char name[IF_NAMESIZE];
    bool found = false;
    if (list_interfaces(&list) != 0)
        return false;
    bool known = name_of(list, own, name);
    for (struct ifaddrs *entry = list; known && !found && entry != NULL; entry = entry->ifa_next) {
        found = usable(entry, other) && strcmp(entry->ifa_name, name) == 0 &&
                other->socket.ss_family != own->socket.ss_family && !ddl_address_is_link_local(other) &&
                !ddl_address_is_loopback(other) && fits(choice, name, other) >= 0 && can_bind(other);
    }
    freeifaddrs(list);
    return found;
}
