/* network.c - reads what a user says of the network. */
#include "rendezvous/network.h"

#include "io/interface.h"
#include "io/resolve.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ddl_network ddl_network_unsaid;

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

const char *ddl_network_iface(const ddl_network *network)
{
    return network->iface[0] != '\0' ? network->iface : NULL;
}

ddl_status ddl_network_resolve_advertise(const ddl_network *network, ddl_deadline deadline,
                                         ddl_address *address, ddl_error *err)
{
    ddl_address found[DDL_RESOLVE_MAX];
    int count;
    ddl_error why;
    if (ddl_resolve(network->advertise, 0, deadline, found, &count, &why) != DDL_OK)
        return DDL_FAIL(err, why.code, "DDL_ADVERTISE: %s", why.text);
    *address = found[0];
    return DDL_OK;
}
