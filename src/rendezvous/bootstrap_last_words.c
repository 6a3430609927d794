/* bootstrap_last_words.c - what a rank whose start fails still tells the others. */
#include "rendezvous/bootstrap_parts.h"

#include "base/log.h"
#include "io/interface.h"
#include "io/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    LAST_WORD_MS = 100, /* DDL_JOINING_LAST_WORDS_MS in a hurry */
    /* Who cannot take part comes where that can be said; ranks of other hosts may be started a little later.
     * Rank 0 stays there for longer than a caller rests and a handshake takes 100 ms away. */
    COME_MS = 2000,
    STAY_MS = 850,
    STAY_SHORTLY_MS = 300, /* for those who were started together with who has failed */
    VISIT_MS = 4000,       /* of rank 0: with coming and going, where the place is somewhere else */
};

/* Others may have waited at the own door, and be blamed for what this rank lacks. */
static void look_at_own_door(const ddl_joining *joining, ddl_error *err)
{
    const int os_errno = ddl_service_lack(joining->options->service);
    if (err->code == DDL_ETIMEDOUT && os_errno != 0)
        (void)DDL_FAIL_OS(err, DDL_ERESOURCE, os_errno, "it cannot let others in, who may wait at its door%s",
                          os_errno == EMFILE || os_errno == ENFILE ? "; see its ulimit -n" : "");
}

/* Others may have waited for the own service thread. */
static bool has_lost_service(const ddl_joining *joining, ddl_error *err)
{
    ddl_service *service = joining->options->service;
    if (err->code == DDL_ETIMEDOUT)
        (void)!ddl_service_check(service, joining->options->deadline, NULL);
    return ddl_service_is_lost(service, err);
}

void ddl_bootstrap_sign(const ddl_member *own, const char *more, ddl_error *err)
{
    const ddl_error before = *err;
    (void)ddl_error_set(err, before.code, "rank %d on %s[%d]: %.380s%s", own->rank, own->host, (int)own->pid,
                        before.text, more);
    err->os_errno = before.os_errno;
    (void)ddl_error_blame(err, own->rank);
}

/* A server that is gone, or that nobody reaches, has failed all ranks. */
static bool is_of_a_connection(int os_errno)
{
    switch (os_errno) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return true;
    default:
        return false;
    }
}

/* Of a store without an errno nobody knows where it failed. What has to do with who is at the other end, or
 * is late, is not sure to be this rank's fault. */
static bool is_own_fault(const ddl_error *err)
{
    switch (err->code) {
    case DDL_EINVAL:
    case DDL_ECONFIG:
    case DDL_ENETWORK:
    case DDL_ENOMEM:
    case DDL_ERESOURCE:
    case DDL_EUNSUPPORTED:
    case DDL_EDEVICE:
    case DDL_EINTERNAL:
        return err->culprit < 0;
    case DDL_ESTORE:
        return err->culprit < 0 && err->os_errno != 0 && !is_of_a_connection(err->os_errno);
    default:
        return false;
    }
}

void ddl_bootstrap_blame_oneself(int rank, ddl_error *err)
{
    if (is_own_fault(err))
        (void)ddl_error_blame(err, rank);
}

ddl_status ddl_joining_own_up(const ddl_joining *joining, ddl_error *err)
{
    const char *knob = "";
    look_at_own_door(joining, err);
    if (has_lost_service(joining, err))
        knob = " (DDL_START_TIMEOUT)";
    if ((err->code == DDL_ERESOURCE || err->code == DDL_ENOMEM || knob[0] != '\0') && err->culprit < 0)
        ddl_bootstrap_sign(&joining->own, knob, err);
    return err->code;
}

/* Finding out that the service thread is stuck has taken most of the time there is after the deadline; and
 * rank 0's serves the store. */
static ddl_deadline last_words(const ddl_joining *joining)
{
    return ddl_deadline_in_ms(
        ddl_service_is_lost(joining->options->service, NULL) ? LAST_WORD_MS : DDL_JOINING_LAST_WORDS_MS);
}

/* Rank 0 of a run that has failed: some may be about to come, as all were started together. After a death
 * only where it serves the store, as that goes with it; elsewhere to find out about one has taken a second.
 */
static bool stays_shortly(const ddl_joining *joining, const ddl_error *why)
{
    const bool serves =
        strncmp(joining->options->store, DDL_JOINING_TCP_STORE, sizeof DDL_JOINING_TCP_STORE - 1) == 0;
    const bool is_for_all =
        why->code != DDL_ETIMEDOUT && why->code != DDL_ESTORE && (serves || why->code != DDL_EPEERLOST);
    return joining->own.rank == 0 && !joining->all_have_come && is_for_all &&
           !ddl_store_is_lost(joining->store);
}

void ddl_joining_tell_others(ddl_joining *joining, ddl_error *err)
{
    const ddl_error own = *err;
    if (is_own_fault(&own))
        ddl_bootstrap_sign(&joining->own, "", err);
    const int64_t stay_ns = stays_shortly(joining, err) ? STAY_SHORTLY_MS * DDL_NS_PER_MS : 0;
    joining->run_failed = ddl_store_fail(joining->store, err, last_words(joining) + stay_ns, err);
    if (!joining->run_failed)
        *err = own;
}

/* Rank 0: who waits for it may be between two calls, or asks in a place where it has to look. */
static void stay_at_place(ddl_joining *joining, int ms)
{
    for (const ddl_deadline end = ddl_deadline_in_ms(ms); !ddl_deadline_passed(end);) {
        (void)!ddl_store_check(joining->store, NULL);
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(DDL_JOINING_CHECK_INTERVAL_MS));
    }
}

void ddl_joining_stay_shortly(ddl_joining *joining, const ddl_error *why)
{
    if (stays_shortly(joining, why))
        stay_at_place(joining, STAY_SHORTLY_MS);
}

ddl_status ddl_joining_decline(ddl_joining *joining, ddl_error *err)
{
    const ddl_error own = *err;
    if (joining->store == NULL || ddl_store_is_lost(joining->store))
        return own.code;
    const ddl_status around = ddl_joining_look_around(joining, "member", NULL);
    joining->run_failed = around != DDL_OK && ddl_store_check(joining->store, NULL) != DDL_OK;
    if (around != DDL_OK) /* it has failed already, which others may be about to hear */
        ddl_joining_stay_shortly(joining, &own);
    if (around != DDL_OK || joining->present[joining->own.rank])
        return own.code;
    if (own.culprit < 0)
        ddl_bootstrap_sign(&joining->own, "", err);
    const bool stays = joining->own.rank == 0; /* and then leaves, for which there is to be time */
    joining->run_failed =
        ddl_store_fail(joining->store, err, last_words(joining) + (stays ? STAY_MS * DDL_NS_PER_MS : 0), err);
    if (stays)
        stay_at_place(joining, STAY_MS);
    return err->code;
}

ddl_status ddl_joining_come_and_decline(ddl_joining *joining, ddl_error *err)
{
    ddl_error why;
    const ddl_deadline until = ddl_deadline_in_ms(joining->own.rank == 0 ? VISIT_MS : COME_MS);
    const ddl_deadline limit = ddl_deadline_earlier(joining->options->deadline, until);
    const ddl_status status = ddl_joining_come_to_place(joining, limit, &why);
    if (status != DDL_OK && status != DDL_ETIMEDOUT) /* who times out may have nobody to tell */
        ddl_log(DDL_LOG_WARNING, "the other ranks are not told that this one cannot take part: %s", why.text);
    return ddl_joining_decline(joining, err);
}

ddl_status ddl_joining_check_interfaces(ddl_joining *joining, ddl_error *err)
{
    ddl_address unused;
    const char *choice = ddl_network_iface(joining->network);
    const ddl_status status = ddl_interface_choose(choice, NULL, &unused, err);
    if (status == DDL_ERESOURCE &&
        choice == NULL) /* they cannot be listed; the one that leads to rank 0 will do */
        return DDL_OK;
    if (status == DDL_OK || choice == NULL) /* then there is none at all, and nobody to tell */
        return status;
    return ddl_joining_come_and_decline(joining, err);
}
