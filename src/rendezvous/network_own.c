/* network_own.c - of this rank's addresses, those at which the others are to call it. */
#include "rendezvous/network_own.h"

#include "io/interface.h"

#include <string.h>
#include <strings.h>

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
    const char *iface = ddl_network_iface(network);
    bool prefers = find_preferred(master, leads, &preferred);
    memset(place, 0, sizeof *place);
    place->nlisten = 1;
    place->advertises = network->advertise[0] != '\0';
    if (place->advertises)
        DDL_TRY(ddl_network_resolve_advertise(network, deadline, &place->advertise, err));
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
