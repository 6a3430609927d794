/* network.c - from settings and names to addresses. */
#include "rendezvous/network.h"

#include "base/assert.h"
#include "base/log.h"
#include "io/interface.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const ddl_network ddl_network_unsaid;

/* ---- settings ---- */

static bool parse_port(const char *text, const char **rest, uint16_t *port)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    unsigned long number = strtoul(text, &end, 10);
    *rest = end;
    *port = (uint16_t)number;
    return number >= 1 && number <= UINT16_MAX;
}

static ddl_status parse_ports(const char *text, ddl_port_range *ports, ddl_error *err)
{
    const char *rest;
    bool fine = parse_port(text, &rest, &ports->first);
    ports->last = ports->first;
    if (fine && *rest == '-')
        fine = parse_port(rest + 1, &rest, &ports->last);
    if (!fine || *rest != '\0' || ports->last < ports->first)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_PORT_RANGE=%.100s: ports are needed as FIRST-LAST, each from 1 to 65535, as in "
                        "30000-30099",
                        text);
    return DDL_OK;
}

static ddl_status refuse_advertise(const char *text, const char *why, ddl_error *err)
{
    char known[320];
    ddl_interfaces_text(known, sizeof known);
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "DDL_ADVERTISE=%.100s: %s; an address or a name is needed by which other hosts reach this "
        "one, and behind a colon what they take for the first port of DDL_PORT_RANGE; this host "
        "has: %s",
        text, why, known);
}

/* "203.0.113.7", "fd00::7", "[fd00::7]:31000", "gate.example", "gate.example:31000". */
static ddl_status parse_advertise(const char *text, ddl_network *network, ddl_error *err)
{
    ddl_address address;
    ddl_error why;
    bool is_numeric = ddl_address_parse(text, 0, &address);
    if (strlen(text) >= sizeof network->advertise)
        return refuse_advertise(text, "it is too long", err);
    if (is_numeric || strchr(text, ':') == NULL)
        snprintf(network->advertise, sizeof network->advertise, "%s", text);
    else if (ddl_address_split("DDL_ADVERTISE", text, network->advertise, sizeof network->advertise,
                               &network->advertise_port, &why) != DDL_OK)
        return refuse_advertise(text, "it is not of the form address:port", err);
    if (strpbrk(network->advertise, "/, \t") != NULL)
        return refuse_advertise(text, "it is neither an address nor a name", err);
    if (ddl_address_parse(network->advertise, 0, &address) && ddl_address_is_any(&address))
        return refuse_advertise(text, "it stands for all addresses", err);
    if (network->advertise_port == 0)
        return DDL_OK;
    if (network->ports.first == 0)
        return refuse_advertise(text, "it has a port, but DDL_PORT_RANGE is not set", err);
    if (network->advertise_port + (network->ports.last - network->ports.first) > UINT16_MAX)
        return refuse_advertise(text, "that port and the length of DDL_PORT_RANGE lead beyond 65535", err);
    return DDL_OK;
}

ddl_status ddl_network_parse(const char *iface, const char *advertise, const char *ports,
                             ddl_network *network, ddl_error *err)
{
    if (iface != NULL && strlen(iface) >= sizeof network->iface)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_IFACE is longer than %zu characters",
                        sizeof network->iface - 1);
    snprintf(network->iface, sizeof network->iface, "%s", iface != NULL ? iface : "");
    if (ports != NULL)
        DDL_TRY(parse_ports(ports, &network->ports, err));
    return advertise != NULL ? parse_advertise(advertise, network, err) : DDL_OK;
}

static const char *iface_of(const ddl_network *network)
{
    return network->iface[0] != '\0' ? network->iface : NULL;
}

static ddl_status resolve_advertise(const ddl_network *network, ddl_deadline deadline, ddl_address *address,
                                    ddl_error *err)
{
    ddl_address found[DDL_RESOLVE_MAX];
    int count;
    ddl_error why;
    if (ddl_resolve(network->advertise, 0, deadline, found, &count, &why) != DDL_OK)
        return DDL_FAIL(err, why.code, "DDL_ADVERTISE: %s", why.text);
    *address = found[0];
    return DDL_OK;
}

/* ---- this rank ---- */

/* The host in "tcp://host:port" or "redis://user@host:port/0?..."; false if a place has none. */
static bool host_of(const char *place, char host[256])
{
    uint16_t port;
    char text[300];
    const char *start = strstr(place, "://");
    start = start != NULL ? start + 3 : place;
    size_t bytes = strcspn(start, "/?");
    if (bytes >= sizeof text)
        return false;
    memcpy(text, start, bytes);
    text[bytes] = '\0';
    const char *at = strrchr(text, '@');
    return ddl_address_split("", at != NULL ? at + 1 : text, host, 256, &port, NULL) == DDL_OK;
}

/* Ranks may come to what has a name in either family, and to a directory in any. */
static bool is_of_one_family(const char *store, const char *master)
{
    char host[256];
    ddl_address address;
    const bool is_directory = strncmp(store, "file://", 7) == 0; /* MASTER_ADDR is but a name to that */
    if (is_directory || (!host_of(store, host) && !host_of(master, host)))
        return false;
    return ddl_address_parse(host, 0, &address) || strcasecmp(host, "localhost") == 0;
}

/* A place without a network is met at MASTER_ADDR in name only, but that may still be an address. */
static bool find_preferred(const char *master, const char *leads, ddl_address *preferred)
{
    char host[256];
    ddl_address address;
    if (leads[0] != '\0')
        return ddl_address_parse(leads, 0, preferred);
    if (!host_of(master, host) || !ddl_address_parse(host, 0, &address) ||
        ddl_address_is_loopback(&address) || !ddl_interface_is_local(&address))
        return false;
    *preferred = address;
    return true;
}

ddl_status ddl_network_choose(const ddl_network *network, const char *store, const char *master,
                              const char *leads, ddl_deadline deadline, ddl_network_place *place,
                              ddl_error *err)
{
    ddl_address preferred;
    char text[DDL_ADDRESS_HOST_TEXT];
    const char *iface = iface_of(network);
    bool prefers = find_preferred(master, leads, &preferred);
    memset(place, 0, sizeof *place);
    place->nlisten = 1;
    place->advertises = network->advertise[0] != '\0';
    if (place->advertises)
        DDL_TRY(resolve_advertise(network, deadline, &place->advertise, err));
    if (iface == NULL && leads[0] != '\0' && prefers) {
        place->listen[0] = preferred;
        ddl_address_set_port(&place->listen[0], 0);
    } else {
        DDL_TRY(ddl_interface_choose(iface, prefers ? &preferred : NULL, &place->listen[0], err));
        if (!ddl_interface_await(&place->listen[0], deadline)) {
            ddl_address_host(&place->listen[0], text);
            return DDL_FAIL(err, DDL_ENETWORK,
                            "the address %s, at which others are to call this rank, " DDL_INTERFACE_NOT_YET
                            ", or choose with DDL_IFACE",
                            text);
        }
    }
    if (!place->advertises && !ddl_address_is_loopback(&place->listen[0]) &&
        !is_of_one_family(store, master) &&
        ddl_interface_other_family(iface, &place->listen[0], &place->listen[1]))
        place->nlisten = 2;
    return DDL_OK;
}

void ddl_network_tell(const ddl_network *network, const ddl_network_place *place, const uint16_t ports[],
                      ddl_member *member)
{
    const bool advertises = place->advertises;
    member->other[0] = '\0';
    member->is_inner = advertises;
    member->port = ports[0];
    ddl_address_host(advertises ? &place->advertise : &place->listen[0], member->address);
    if (advertises && network->advertise_port != 0)
        member->port = (uint16_t)(network->advertise_port + (ports[0] - network->ports.first));
    if (advertises || place->nlisten > 1) {
        ddl_address_host(advertises ? &place->listen[0] : &place->listen[1], member->other);
        member->other_port = ports[advertises ? 0 : 1];
    }
}

int ddl_network_call(const ddl_member *self, const ddl_member *peer, bool is_neighbour,
                     ddl_address addresses[DDL_NETWORK_CALL_MAX])
{
    int count = 0;
    bool behind_same = peer->is_inner && strcmp(self->address, peer->address) == 0;
    if (!(peer->is_inner && (is_neighbour || behind_same)) &&
        ddl_address_parse(peer->address, peer->port, &addresses[count]))
        count++;
    if (peer->other[0] != '\0' && (!peer->is_inner || is_neighbour || behind_same) &&
        ddl_address_parse(peer->other, peer->other_port, &addresses[count]))
        count++;
    return count;
}

/* ---- rank 0 ---- */

static bool is_own_name(const char *host)
{
    char name[256];
    if (gethostname(name, sizeof name) != 0)
        return false;
    name[sizeof name - 1] = '\0';
    size_t first = strcspn(name, ".");
    return strcasecmp(host, name) == 0 || (strlen(host) == first && strncasecmp(host, name, first) == 0);
}

/* Loopback addresses out, unless there is nothing else. True: there is nothing else. */
static bool only_loopback(ddl_address addresses[], int *count)
{
    int kept = 0;
    for (int i = 0; i < *count; i++)
        if (!ddl_address_is_loopback(&addresses[i]))
            addresses[kept++] = addresses[i];
    if (kept > 0)
        *count = kept;
    return kept == 0;
}

static bool any_is_local(const ddl_address addresses[], int count)
{
    for (int i = 0; i < count; i++)
        if (ddl_address_is_any(&addresses[i]) || ddl_interface_is_local(&addresses[i]))
            return true;
    return false;
}

/* Rank 0 is on this host, but the name says nothing that other hosts could use. */
static ddl_status settle_loopback(const ddl_network *network, bool serves, const char *host,
                                  const char *meaning, ddl_address addresses[], int *count, ddl_error *err)
{
    ddl_address chosen;
    char text[DDL_ADDRESS_HOST_TEXT];
    const uint16_t port = ddl_address_port(&addresses[0]);
    const bool moves = network->spread == DDL_SPREAD_SEVERAL ||
                       (network->spread == DDL_SPREAD_UNKNOWN && network->iface[0] != '\0');
    if (serves && !moves) {
        if (network->spread == DDL_SPREAD_UNKNOWN)
            ddl_log(DDL_LOG_WARNING,
                    "MASTER_ADDR %s %s: ranks on other hosts cannot connect; use a numeric address, or set "
                    "DDL_IFACE",
                    host, meaning);
        return DDL_OK;
    }
    if (!serves && network->spread == DDL_SPREAD_ONE)
        return DDL_OK;
    DDL_TRY(ddl_interface_choose(iface_of(network), NULL, &chosen, err));
    ddl_address_set_port(&chosen, port);
    if (!serves) {
        addresses[(*count)++] = chosen;
        return DDL_OK;
    }
    ddl_address_host(&chosen, text);
    ddl_log(DDL_LOG_WARNING,
            "MASTER_ADDR %s %s, which other hosts cannot use: rank 0 listens at %s instead; use a numeric "
            "address, or choose with DDL_IFACE",
            host, meaning, text);
    addresses[0] = chosen;
    *count = 1;
    return DDL_OK;
}

/* MASTER_ADDR is none of ours, but others may see us there. */
static ddl_status settle_behind_nat(const ddl_network *network, bool serves, ddl_deadline deadline,
                                    ddl_address addresses[], int *count, ddl_error *err)
{
    ddl_address outside, chosen;
    bool same = false;
    const uint16_t port = ddl_address_port(&addresses[0]);
    DDL_TRY(resolve_advertise(network, deadline, &outside, err));
    for (int i = 0; i < *count; i++)
        same = same || ddl_address_same_host(&outside, &addresses[i]);
    if (!same)
        return DDL_OK;
    DDL_TRY(ddl_interface_choose(iface_of(network), NULL, &chosen, err));
    ddl_address_set_port(&chosen, port);
    if (serves)
        *count = 0;
    addresses[(*count)++] = chosen;
    return DDL_OK;
}

/* Else it is an address, written in full, or as 127.1 is. */
static bool is_host_name(const char *host)
{
    ddl_address parsed;
    struct in_addr v4;
    return !ddl_address_parse(host, 0, &parsed) && inet_aton(host, &v4) == 0 &&
           strcasecmp(host, "localhost") != 0;
}

/* The system would call it an invalid argument, or try until the time is over. */
static ddl_status refuse_without_interface(const char *host, ddl_error *err)
{
    ddl_address parsed;
    if (!ddl_address_parse(host, 0, &parsed) || !ddl_address_lacks_interface(&parsed))
        return DDL_OK;
    return DDL_FAIL(err, DDL_ECONFIG,
                    "%s is a link-local address, which means something on one interface only: write "
                    "%s%%INTERFACE, with that of this host by which rank 0 is reached",
                    host, host);
}

ddl_status ddl_network_find_master(const ddl_network *network, bool serves, const char *host, uint16_t port,
                                   ddl_deadline deadline, ddl_address addresses[DDL_NETWORK_MASTER_MAX],
                                   int *count, ddl_error *err)
{
    ddl_error why;
    char meaning[128], text[DDL_ADDRESS_HOST_TEXT];
    DDL_TRY(refuse_without_interface(host, err));
    const bool is_name = is_host_name(host), is_own = is_name && is_own_name(host);
    /* Rank 0 is on that host: what it does not know is misspelt, and the sooner told the better. */
    ddl_status status = is_own || serves ? ddl_resolve(host, port, deadline, addresses, count, &why)
                                         : ddl_resolve_soon(host, port, deadline, addresses, count, &why);
    const bool is_unknown = status == DDL_ENETWORK && is_own;
    if (is_unknown) {
        *count = ddl_address_parse("127.0.0.1", port, &addresses[0]);
    } else if (status != DDL_OK) {
        if (err != NULL)
            *err = why;
        return status;
    }
    if (is_name && only_loopback(addresses, count)) {
        ddl_address_host(&addresses[0], text);
        if (is_unknown)
            snprintf(meaning, sizeof meaning, "is the name of this host, but nobody knows its address");
        else
            snprintf(meaning, sizeof meaning, "is %s on this host (see /etc/hosts)", text);
        return settle_loopback(network, serves, host, meaning, addresses, count, err);
    }
    if (network->advertise[0] != '\0' && !any_is_local(addresses, *count))
        return settle_behind_nat(network, serves, deadline, addresses, count, err);
    return DDL_OK;
}
