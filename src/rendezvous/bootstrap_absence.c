/* bootstrap_absence.c - who is missing, found by the keys that are not set. */
#include "rendezvous/bootstrap_parts.h"

#include "io/address.h"

#include <stdio.h>
#include <string.h>

enum { ASKED_RANKS = 64, RANKS_TEXT = 120, JOINED_TEXT = RANKS_TEXT + 40, PLACE_TEXT = 200 };

_Static_assert((int)RANKS_TEXT + (int)JOINED_TEXT + 40 <= (int)DDL_JOINING_ABSENCE_TEXT, "both, and words");

ddl_status ddl_joining_look_around(ddl_joining *joining, const char *what, ddl_error *err)
{
    const ddl_store_many many = { what, joining->self.nranks, joining->present, NULL, true };
    ddl_status status = ddl_store_get_many(joining->store, &many, ddl_now_ns(), err);
    return status == DDL_ETIMEDOUT ? DDL_OK : status;
}

/* Who has come, and where. */
struct arrivals {
    ddl_member *hosts; /* somebody of each host, by the lowest rank; to be released, NULL if out of memory */
    int *host_of;      /* by rank; -1: has not come, or cannot be told */
    int count;         /* of hosts */
};

/* Best effort: of all who have come, or nothing. And where many have come by rank 0 alone, which knows: all
 * may ask at the same time. */
static void find_arrivals(ddl_joining *joining, struct arrivals *arrivals)
{
    const size_t nranks = (size_t)joining->self.nranks;
    ddl_store_many many = { "member", joining->self.nranks, ddl_alloc_array(nranks, sizeof(bool)),
                            ddl_alloc_array(nranks, sizeof(ddl_bytes)), false };
    *arrivals = (struct arrivals){ ddl_alloc_array(nranks, sizeof *arrivals->hosts),
                                   ddl_alloc_array(nranks, sizeof *arrivals->host_of), 0 };
    int come = 0;
    for (size_t rank = 0; rank < nranks; rank++)
        come += joining->present[rank];
    const bool asks = joining->self.rank == 0 || come <= ASKED_RANKS;
    const bool has_room = asks && arrivals->hosts != NULL && arrivals->host_of != NULL &&
                          many.present != NULL && many.values != NULL;
    for (size_t rank = 0; has_room && rank < nranks; rank++)
        many.present[rank] = !joining->present[rank]; /* who has not come is not looked for */
    const bool all_known =
        has_room && ddl_store_get_many(joining->store, &many, ddl_now_ns(), NULL) == DDL_OK;
    for (size_t rank = 0; has_room && rank < nranks; rank++) {
        ddl_member *member = &arrivals->hosts[arrivals->count];
        int host = 0;
        arrivals->host_of[rank] = -1;
        if (all_known && ddl_member_decode(ddl_bytes_view(&many.values[rank]), member, NULL) == DDL_OK) {
            while (memcmp(arrivals->hosts[host].host_id, member->host_id, DDL_HOST_ID_BYTES) != 0)
                host++;
            arrivals->host_of[rank] = host;
            arrivals->count += host == arrivals->count;
        }
        ddl_bytes_fini(&many.values[rank]);
    }
    ddl_free(many.present);
    ddl_free(many.values);
}

static void forget_arrivals(struct arrivals *arrivals)
{
    ddl_free(arrivals->hosts);
    ddl_free(arrivals->host_of);
}

/* "0-1, 3-4 on 2 hosts", or without the hosts where that is not known. */
static void count_joined(ddl_joining *joining, const struct arrivals *arrivals, char joined[JOINED_TEXT])
{
    char ranks[RANKS_TEXT];
    ddl_progress_ranks(joining->present, joining->self.nranks, true, ranks, sizeof ranks);
    if (arrivals->count == 0)
        snprintf(joined, JOINED_TEXT, "%s", ranks);
    else
        snprintf(joined, JOINED_TEXT, "%s on %d host%s", ranks, arrivals->count,
                 arrivals->count == 1 ? "" : "s");
}

/* "0-1 on nodeA, 3-4 on nodeB"; false if there is no room, or nothing to tell. */
static bool name_joined(ddl_joining *joining, const struct arrivals *arrivals, char joined[JOINED_TEXT])
{
    const int nranks = joining->self.nranks;
    size_t used = 0;
    bool *here = ddl_alloc_array((size_t)nranks, sizeof *here);
    for (int host = 0; here != NULL && host < arrivals->count && used < JOINED_TEXT; host++) {
        char ranks[RANKS_TEXT];
        for (int rank = 0; rank < nranks; rank++)
            here[rank] = arrivals->host_of[rank] == host;
        ddl_progress_ranks(here, nranks, true, ranks, sizeof ranks);
        used += (size_t)snprintf(joined + used, JOINED_TEXT - used, "%s%s on %s", host > 0 ? ", " : "", ranks,
                                 arrivals->hosts[host].host);
    }
    ddl_free(here);
    return used > 0 && used < JOINED_TEXT;
}

void ddl_joining_describe_missing(const ddl_joining *joining, char text[DDL_JOINING_ABSENCE_TEXT])
{
    char missing[RANKS_TEXT];
    int missing_count = 0;
    for (int rank = 0; rank < joining->self.nranks; rank++)
        missing_count += !joining->present[rank];
    ddl_progress_ranks(joining->present, joining->self.nranks, false, missing, sizeof missing);
    snprintf(text, DDL_JOINING_ABSENCE_TEXT, "rank%s %s of %d", missing_count == 1 ? "" : "s", missing,
             joining->self.nranks);
}

/* "ranks 2, 5-7 of 8 (joined: 0-1, 3-4 on 2 hosts)", or with the names of hosts; what: else than to join, all
 * have done that. */
static void describe_absence(ddl_joining *joining, const char *what, bool by_name,
                             char text[DDL_JOINING_ABSENCE_TEXT])
{
    struct arrivals arrivals;
    char joined[JOINED_TEXT];
    ddl_joining_describe_missing(joining, text);
    if (strcmp(what, "member") != 0)
        return;
    find_arrivals(joining, &arrivals);
    if (!by_name || !name_joined(joining, &arrivals, joined))
        count_joined(joining, &arrivals, joined);
    forget_arrivals(&arrivals);
    const size_t used = strlen(text);
    snprintf(text + used, DDL_JOINING_ABSENCE_TEXT - used, " (joined: %s)", joined);
}

/* "tcp://nodeA:29500 (10.0.0.5)", "10.0.0.1:29500 in file:///shared": who is missing may look elsewhere, or
 * at an address of the same name that is its own host's. */
static void describe_place(const ddl_joining *joining, char text[PLACE_TEXT])
{
    const char *store = joining->options->store;
    char host[256];
    uint16_t port = 0;
    ddl_address named, here;
    if (strncmp(store, DDL_JOINING_TCP_STORE, sizeof DDL_JOINING_TCP_STORE - 1) != 0) {
        snprintf(text, PLACE_TEXT, "%.64s in %.120s", joining->options->master, store);
        return;
    }
    snprintf(text, PLACE_TEXT, "%.100s", store);
    const size_t used = strlen(text);
    if (ddl_address_split("", store + sizeof DDL_JOINING_TCP_STORE - 1, host, sizeof host, &port, NULL) !=
            DDL_OK ||
        !ddl_address_parse(ddl_store_address(joining->store), port, &here))
        return;
    const bool is_numeric = ddl_address_parse(host, port, &named);
    if (is_numeric && ddl_address_is_any(&named))
        return;
    if (ddl_address_is_loopback(&here) && joining->network->spread != DDL_SPREAD_ONE)
        snprintf(text + used, PLACE_TEXT - used, " (which only this host reaches)");
    else if (!is_numeric && joining->self.rank == 0) /* the address of this end, which is where it listens */
        snprintf(text + used, PLACE_TEXT - used, " (%s)", ddl_store_address(joining->store));
}

int ddl_joining_first_missing(const ddl_joining *joining)
{
    for (int rank = 0; rank < joining->self.nranks; rank++)
        if (!joining->present[rank])
            return rank;
    return -1;
}

void ddl_joining_tell_of_turned_away(const ddl_joining *joining, ddl_error *err)
{
    char turned_away[DDL_SERVICE_TURNED_AWAY];
    const size_t used = strlen(err->text);
    ddl_service_turned_away(joining->options->service, turned_away);
    if (turned_away[0] != '\0' && strstr(err->text, "turned away") == NULL)
        snprintf(err->text + used, sizeof err->text - used, "; rank %d turned away %s", joining->own.rank,
                 turned_away);
}

/* This rank has set its key, and does not find it: then rank 0, which serves the store, is silent, unless the
 * store is somewhere else. */
static ddl_status check_own_key(const ddl_joining *joining, const char *what, ddl_error *err)
{
    if (joining->present[joining->self.rank] || !ddl_store_outlives(joining->store))
        return DDL_OK;
    return DDL_FAIL(
        err, DDL_ESTORE,
        "%s has lost the key %s.%d of this run: somebody has removed it, or Redis evicts keys; set "
        "its maxmemory-policy to noeviction, or use another server",
        joining->options->store, what, joining->self.rank);
}

ddl_status ddl_joining_report_absence(ddl_joining *joining, const char *what, const char *verb,
                                      const char *done, ddl_error *err)
{
    char absence[DDL_JOINING_ABSENCE_TEXT], place[PLACE_TEXT] = "";
    double waited_s = (double)(ddl_now_ns() - joining->progress.start_ns) / 1e9;
    memset(joining->present, 0, (size_t)joining->self.nranks * sizeof *joining->present);
    DDL_TRY(ddl_store_check(joining->store, err)); /* another may have said it already */
    DDL_TRY(ddl_joining_look_around(joining, what, err));
    DDL_TRY(check_own_key(joining, what, err));
    int missing = ddl_joining_first_missing(joining);
    if (!joining->present[joining->self.rank]) { /* which has said so, and would be found */
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "rank 0 at %s, where ranks meet, does not answer, %.1f s after the start; is it stopped, or "
            "its host unreachable? Look at its output, or raise DDL_START_TIMEOUT",
            joining->options->store, waited_s);
        missing = 0;
    } else if (missing < 0) {
        (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                       "rank 0 did not go on within %.1f s though all ranks had %s; look at its "
                       "output, or raise DDL_START_TIMEOUT",
                       waited_s, done);
        missing = 0;
    } else {
        const bool members = strcmp(what, "member") == 0;
        describe_absence(joining, what, true, absence);
        if (members)
            describe_place(joining, place);
        (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                       "%s did not %s%s%s within %.1f s; look at the output of what is missing, or "
                       "raise DDL_START_TIMEOUT",
                       absence, verb, members ? " to " : "", place, waited_s);
        ddl_joining_tell_of_turned_away(joining, err);
    }
    (void)ddl_error_blame(err, missing);
    return DDL_ETIMEDOUT;
}

ddl_status ddl_joining_tell_absence(ddl_joining *joining, const char *what, ddl_error *err)
{
    char absence[DDL_JOINING_ABSENCE_TEXT], place[PLACE_TEXT];
    DDL_TRY(ddl_store_check(joining->store, err));
    DDL_TRY(check_own_key(joining, what, err));
    if (!joining->present[joining->self.rank] || ddl_joining_first_missing(joining) < 0) {
        ddl_progress_tell(&joining->progress, "rank 0 at %s", joining->options->store);
        return DDL_OK;
    }
    describe_absence(joining, what, false, absence);
    if (strcmp(what, "member") != 0) {
        ddl_progress_tell(&joining->progress, "%s to be connected to everyone", absence);
        return DDL_OK;
    }
    describe_place(joining, place);
    ddl_progress_tell(&joining->progress, "%s at %s", absence, place);
    return DDL_OK;
}
