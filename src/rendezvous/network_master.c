/* network_master.c - a name that others cannot use is told from one that they can. */
#include "rendezvous/network_master.h"

#include "base/log.h"
#include "io/interface.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- what the name means here ---- */

static bool is_own_name(const char *host)
{
    char name[256];
    if (gethostname(name, sizeof name) != 0)
        return false;
    name[sizeof name - 1] = '\0';
    size_t first = strcspn(name, ".");
    return strcasecmp(host, name) == 0 || (strlen(host) == first && strncasecmp(host, name, first) == 0);
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

/* None of the addresses is ours, but others may see us at one of them. */
static ddl_status look_behind_nat(const ddl_network *network, const ddl_address addresses[], int count,
                                  ddl_deadline deadline, bool *is_behind, ddl_error *err)
{
    ddl_address outside;
    *is_behind = false;
    if (network->advertise[0] == '\0' || any_is_local(addresses, count))
        return DDL_OK;
    DDL_TRY(ddl_network_resolve_advertise(network, deadline, &outside, err));
    for (int i = 0; i < count; i++)
        *is_behind = *is_behind || ddl_address_same_host(&outside, &addresses[i]);
    return DDL_OK;
}

enum meaning {
    AN_ADDRESS,  /* of this host or another, as it is */
    LOOPBACK,    /* rank 0 is on this host, but the name says nothing that other hosts could use */
    BEHIND_A_NAT /* rank 0 is on this host, and that is what others call */
};

struct finding {
    enum meaning meaning;
    char words[128]; /* of LOOPBACK: "is 127.0.1.1 on this host (see /etc/hosts)" */
};

/* may_be_new: a name that is unknown now may become known. */
static ddl_status look_up(const ddl_network *network, const char *host, uint16_t port, bool may_be_new,
                          ddl_deadline deadline, ddl_address addresses[], int *count, struct finding *finding,
                          ddl_error *err)
{
    ddl_error why;
    char text[DDL_ADDRESS_HOST_TEXT];
    bool is_behind;
    DDL_TRY(refuse_without_interface(host, err));
    const bool is_name = is_host_name(host), is_own = is_name && is_own_name(host);
    ddl_status status = may_be_new && !is_own ? ddl_resolve_soon(host, port, deadline, addresses, count, &why)
                                              : ddl_resolve(host, port, deadline, addresses, count, &why);
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
        finding->meaning = LOOPBACK;
        if (is_unknown)
            snprintf(finding->words, sizeof finding->words,
                     "is the name of this host, but nobody knows its address");
        else
            snprintf(finding->words, sizeof finding->words, "is %s on this host (see /etc/hosts)", text);
        return DDL_OK;
    }
    DDL_TRY(look_behind_nat(network, addresses, *count, deadline, &is_behind, err));
    finding->meaning = is_behind ? BEHIND_A_NAT : AN_ADDRESS;
    return DDL_OK;
}

/* ---- to listen ---- */

static ddl_status use_interface_instead(const ddl_network *network, uint16_t port, ddl_address addresses[],
                                        int *count, ddl_error *err)
{
    DDL_TRY(ddl_interface_choose(ddl_network_iface(network), NULL, &addresses[0], err));
    ddl_address_set_port(&addresses[0], port);
    *count = 1;
    return DDL_OK;
}

/* Where the name means loopback. */
static ddl_status listen_for_others(const ddl_network *network, const char *host, const char *words,
                                    uint16_t port, ddl_address addresses[], int *count, ddl_error *err)
{
    char text[DDL_ADDRESS_HOST_TEXT];
    if (network->spread == DDL_SPREAD_ONE)
        return DDL_OK;
    if (network->spread == DDL_SPREAD_UNKNOWN && network->iface[0] == '\0') {
        ddl_log(DDL_LOG_WARNING,
                "MASTER_ADDR %s %s: ranks on other hosts cannot connect; use a numeric address, or set "
                "DDL_IFACE",
                host, words);
        return DDL_OK;
    }
    DDL_TRY(use_interface_instead(network, port, addresses, count, err));
    ddl_address_host(&addresses[0], text);
    ddl_log(DDL_LOG_WARNING,
            "MASTER_ADDR %s %s, which other hosts cannot use: rank 0 listens at %s instead; use a numeric "
            "address, or choose with DDL_IFACE",
            host, words, text);
    return DDL_OK;
}

ddl_status ddl_master_addresses_to_listen(const ddl_network *network, const char *host, uint16_t port,
                                          ddl_deadline deadline,
                                          ddl_address addresses[DDL_NETWORK_MASTER_MAX], int *count,
                                          ddl_error *err)
{
    struct finding finding;
    /* Rank 0 is on that host: what it does not know is misspelt, and the sooner told the better. */
    DDL_TRY(look_up(network, host, port, false, deadline, addresses, count, &finding, err));
    switch (finding.meaning) {
    case LOOPBACK:
        return listen_for_others(network, host, finding.words, port, addresses, count, err);
    case BEHIND_A_NAT:
        return use_interface_instead(network, port, addresses, count, err);
    case AN_ADDRESS:
        break;
    }
    return DDL_OK;
}

/* ---- to call ---- */

static ddl_status try_interface_too(const ddl_network *network, uint16_t port, ddl_address addresses[],
                                    int *count, ddl_error *err)
{
    ddl_address chosen;
    DDL_TRY(ddl_interface_choose(ddl_network_iface(network), NULL, &chosen, err));
    ddl_address_set_port(&chosen, port);
    addresses[(*count)++] = chosen;
    return DDL_OK;
}

ddl_status ddl_master_addresses_to_call(const ddl_network *network, const char *host, uint16_t port,
                                        ddl_deadline deadline, ddl_address addresses[DDL_NETWORK_MASTER_MAX],
                                        int *count, ddl_error *err)
{
    struct finding finding;
    DDL_TRY(look_up(network, host, port, true, deadline, addresses, count, &finding, err));
    if (finding.meaning == BEHIND_A_NAT || (finding.meaning == LOOPBACK && network->spread != DDL_SPREAD_ONE))
        return try_interface_too(network, port, addresses, count, err);
    return DDL_OK;
}
