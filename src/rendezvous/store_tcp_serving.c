/* store_tcp_serving.c - rank 0 opens its server at the addresses of a name. */
#include "rendezvous/store_tcp_run.h"

#include "base/log.h"
#include "io/host.h"
#include "io/interface.h"
#include "io/socket.h"
#include "rendezvous/store_meeting_record.h"
#include "rendezvous/store_tcp_port_owner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PRIVILEGED_PORTS = 1024 }; /* so many, from 0 on, unless a system is set otherwise */

/* Which has put a store of its own where it tells ranks to meet. */
static bool is_of_torchrun(uint16_t port)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE"), *told = getenv("MASTER_PORT");
    return agent != NULL && strcasecmp(agent, "true") == 0 && told != NULL && atoi(told) == port;
}

/* The system does not let this machine have that address. */
static ddl_status explain_absence(const char *host, const ddl_address *at, ddl_error *err)
{
    char known[256];
    ddl_interfaces_text(known, sizeof known);
    if (ddl_address_is_loopback(at))
        return DDL_FAIL_OS(err, DDL_ENETWORK, EADDRNOTAVAIL,
                           "rank 0 must listen on %s, which this machine does not have, as its loopback "
                           "interface is down, or has no such address; ip link set lo up, or give another "
                           "--master_addr (MASTER_ADDR); it has: %s",
                           host, known);
    if (ddl_interface_is_local(at))
        return DDL_FAIL_OS(
            err, DDL_ENETWORK, EADDRNOTAVAIL,
            "rank 0 must listen on MASTER_ADDR %s, which this machine has but which " DDL_INTERFACE_NOT_YET,
            host);
    return DDL_FAIL_OS(
        err, DDL_ENETWORK, EADDRNOTAVAIL,
        "rank 0 must listen on MASTER_ADDR %s, which is no address of this machine; it has: %s; is this "
        "node 0 (--node_rank, --master_addr)? Behind a NAT, set DDL_ADVERTISE",
        host, known);
}

static ddl_status explain_listen(const ddl_hello_party *self, const char *host, const ddl_address *at,
                                 const ddl_error *why, ddl_error *err)
{
    char owner[DDL_PORT_OWNER_TEXT];
    const uint16_t port = ddl_address_port(at);
    if (why->os_errno == EADDRINUSE) {
        const bool is_run = ddl_port_owner_text(self, at, owner);
        if (!is_run && is_of_torchrun(port))
            return DDL_FAIL_OS(err, DDL_ENETWORK, EADDRINUSE,
                               "port %u on %s is in use, by torchrun perhaps, whose own store is at "
                               "MASTER_ADDR:MASTER_PORT; give ddl another place: DDL_STORE=tcp://%s:PORT",
                               port, host, strchr(host, ':') != NULL ? "[ADDRESS]" : host);
        if (is_run && ddl_socket_is_own_port(port))
            return DDL_FAIL_OS(
                err, DDL_ENETWORK, EADDRINUSE,
                "port %u on %s is in use by %s in this very process; free that communicator "
                "before ddl_init, or let the second one meet elsewhere (MASTER_PORT, DDL_STORE)",
                port, host, owner);
        return DDL_FAIL_OS(err, DDL_ENETWORK, EADDRINUSE,
                           "port %u on %s is in use by %s; %schoose another --master_port (MASTER_PORT)",
                           port, host, owner,
                           is_run ? "was rank 0 (--node_rank 0) started twice? If not, " : "");
    }
    if (why->os_errno == EADDRNOTAVAIL)
        return explain_absence(host, at, err);
    if (why->os_errno == EACCES || why->os_errno == EPERM)
        return DDL_FAIL_OS(
            err, DDL_ENETWORK, why->os_errno,
            port < PRIVILEGED_PORTS
                ? "port %u on %s is for root only; choose one above 1023"
                : "this process may not listen on port %u of %s: by a sandbox or a security "
                  "module (seccomp, Landlock, SELinux), or by net.ipv4.ip_unprivileged_port_start",
            port, host);
    if (err != NULL)
        *err = *why;
    return why->code;
}

/* What lets everybody in. */
static void warn_of_address(const char *host, const ddl_address *bound)
{
    if (ddl_address_is_any(bound))
        ddl_log(DDL_LOG_WARNING,
                "MASTER_ADDR %s: rank 0 listens on all addresses of this host; name the one that the other "
                "ranks use",
                host);
}

/* By its run another job is told whose port it wanted. */
static void tell_of_run(const ddl_hello_party *self, const ddl_address *bound)
{
    char run[DDL_RUN_TEXT], at[DDL_ADDRESS_FULL_TEXT];
    ddl_meet_hex(self->run_id, DDL_RUN_ID_BYTES, run);
    ddl_address_text(bound, at);
    ddl_log(DDL_LOG_DEBUG, "rank 0 of run %s listens at %s", run, at);
}

/* Whoever comes by another address of the same name, in the other family perhaps, is served there too, and
 * not by another program. */
static ddl_status serve_also(ddl_tcp_run *tcp, const ddl_hello_party *self, const char *host,
                             const ddl_address *bound, const ddl_address addresses[], int count,
                             ddl_deadline deadline, ddl_error *err)
{
    char text[DDL_ADDRESS_FULL_TEXT];
    int doors = 1;
    for (int i = 0; i < count && doors < DDL_STORE_SERVER_DOORS; i++) {
        ddl_error why;
        if (ddl_address_same_host(bound, &addresses[i]) || ddl_address_is_among(&addresses[i], addresses, i))
            continue;
        ddl_status status = ddl_store_server_open_also(tcp->server, &addresses[i], deadline, &why);
        doors += status == DDL_OK;
        if (status == DDL_ENETWORK && why.os_errno == EADDRINUSE)
            return explain_listen(self, host, &addresses[i], &why, err);
        if (status == DDL_OK || status == DDL_ENETWORK) {
            ddl_address_text(&addresses[i], text);
            ddl_log(DDL_LOG_DEBUG, "rank 0 %s %s", status == DDL_OK ? "also listens at" : "has no use for",
                    text);
            continue;
        }
        if (err != NULL)
            *err = why;
        return status;
    }
    return DDL_OK;
}

/* At the first of the addresses that can be had: its place among them. -1: none can; *failed is the one that
 * tells most, and *why what it tells. */
static int open_first(ddl_tcp_run *tcp, const ddl_store_options *options, const ddl_hello_party *self,
                      const ddl_address addresses[], int count, ddl_deadline deadline, ddl_address *bound,
                      const ddl_address **failed, ddl_error *why)
{
    for (int i = 0; i < count; i++) {
        ddl_error last = { .code = DDL_OK };
        if (ddl_store_server_open(options->service, self, options->encryption, &addresses[i], deadline, bound,
                                  &tcp->server, &last) == DDL_OK)
            return i;
        /* Of several addresses the one that is ours tells most. */
        if (i == 0 || last.os_errno != EADDRNOTAVAIL || ddl_interface_is_local(&addresses[i])) {
            *why = last;
            *failed = &addresses[i];
        }
        if (last.os_errno == EADDRINUSE || last.code == DDL_ETIMEDOUT)
            break;
    }
    return -1;
}

ddl_status ddl_tcp_run_serve(ddl_tcp_run *tcp, const ddl_store_options *options,
                             const ddl_address addresses[], int count, const char *host,
                             ddl_deadline deadline, ddl_address *bound, ddl_error *err)
{
    const ddl_address *failed = &addresses[0];
    ddl_hello_party self = *options->self;
    ddl_error why = { .code = DDL_OK };
    DDL_TRY(ddl_host_random(self.run_id, sizeof self.run_id, err));
    int first = open_first(tcp, options, &self, addresses, count, deadline, bound, &failed, &why);
    if (first < 0 && why.os_errno == EADDRNOTAVAIL && !ddl_address_is_loopback(failed) &&
        ddl_interface_is_local(failed) && ddl_interface_await(failed, deadline))
        first = open_first(tcp, options, &self, addresses, count, deadline, bound, &failed, &why);
    if (first < 0)
        return explain_listen(&self, host, failed, &why, err);
    warn_of_address(host, bound);
    tell_of_run(&self, bound);
    return serve_also(tcp, &self, host, bound, &addresses[first + 1], count - first - 1, deadline, err);
}
