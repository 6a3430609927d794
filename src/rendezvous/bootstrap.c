/*
 * bootstrap.c - the course of a start-up.
 *
 * Keys of a run, beside those of the store itself: "member.R" is rank R's record, set by R; "roster" has all
 * records, set by rank 0 when the last has come; "meshed.R" says that rank R is connected to everyone;
 * DDL_STORE_SETTLED that all are.
 */
#include "rendezvous/bootstrap.h"

#include "base/assert.h"
#include "base/log.h"
#include "io/address.h"
#include "io/host.h"
#include "io/interface.h"
#include "io/socket.h"
#include "protocol/overlay.h"
#include "protocol/store_wire.h"
#include "rendezvous/progress.h"
#include "rendezvous/secret.h"
#include "rendezvous/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    DESCRIPTORS_MARGIN = 64, /* for loops, files and strangers */
    PER_NEIGHBOUR = 3,       /* its memory, its bell, and a socket by which these come */
    CHECK_INTERVAL_MS = 20,  /* between looks at the store while the mesh is made */
    LAST_WORDS_MS = 600,     /* to tell the others of a failure, and for them to hear it */
    LAST_WORD_MS = 100,      /* the same in a hurry */
    /* Who cannot take part comes where that can be said. Rank 0 stays there for longer than a caller rests
     * and a handshake takes 100 ms away. */
    COME_MS = 600,
    STAY_MS = 850,
    STAY_SHORTLY_MS = 300, /* for those who were started together with who has failed */
    VISIT_MS = 4000,       /* of rank 0: with coming and going, where the place is somewhere else */
    CLOSING_MS = 1000,
    OVER_PAUSE_MS = 50, /* before looking again at a place whose last run is over */
    RANKS_TEXT = 120,
    JOINED_TEXT = RANKS_TEXT + 40,
    ABSENCE_TEXT = RANKS_TEXT + JOINED_TEXT + 40
};

static const char tcp_store[] = "tcp://";

struct ddl_bootstrap {
    ddl_store *store;
    ddl_meshing *meshing; /* where pairs connect late; else NULL */
    ddl_meshing *closing; /* the same, once nobody is to be let in any more */
    ddl_wire *streams;    /* further connections that were not taken yet, nstreams for each of nranks */
    int nranks, nstreams;
};

/* One start-up while it lasts. */
struct course {
    const ddl_bootstrap_options *options;
    const ddl_network *network;
    ddl_progress progress;
    ddl_hello_party self;
    ddl_member own;
    ddl_bootstrap *bootstrap; /* has the store as well, which a forked child finds there */
    ddl_store *store;
    ddl_meshing *meshing;
    ddl_roster *roster;
    ddl_wire *streams; /* as of the bootstrap */
    bool *present;     /* by rank: has been heard of, in the phase at hand */
    bool told_errand;
    bool all_have_come; /* as rank 0 knows */
};

static void key_of(const char *what, int rank, char key[32])
{
    snprintf(key, 32, "%s.%d", what, rank);
}

/* ---- this rank ---- */

ddl_status ddl_bootstrap_know_oneself(int rank, int nranks, uint32_t generator, const ddl_prover *prover,
                                      ddl_hello_party *self, ddl_member *own, ddl_error *err)
{
    self->rank = own->rank = rank;
    self->nranks = nranks;
    self->generator = generator;
    self->library = ddl_hello_library(DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH);
    self->prover = prover;
    self->level = ddl_prover_level(prover);
    self->pid = own->pid = (int32_t)getpid();
    ddl_host_name(own->host);
    ddl_hello_clean(own->host);
    memcpy(self->host, own->host, sizeof self->host);
    ddl_host_id(own->host_id);
    own->cpus = ddl_host_cpus(&own->first_cpu);
    return ddl_host_random(self->nonce, sizeof self->nonce, err);
}

static ddl_status know_oneself(struct course *course, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    course->own.asks_nccl = options->asks_nccl;
    course->own.may_use_nccl = options->may_use_nccl;
    course->own.declines_memory = !options->local;
    course->own.insists_on_memory = options->insists_on_memory;
    return ddl_bootstrap_know_oneself(options->rank, options->nranks, options->generator, options->prover,
                                      &course->self, &course->own, err);
}

/* A link to every rank that is connected at the start; rank 0 has each of all as a client of the store, too.
 */
ddl_status ddl_bootstrap_need_descriptors(int rank, int nranks, ddl_connect connect, ddl_error *err)
{
    const int clients = rank == 0 ? nranks : 0;
    const char *how = "";
    char what[96];
    ddl_error unwanted;
    bool lazy = connect != DDL_CONNECT_EAGER;
    int links = lazy ? ddl_overlay_degree(nranks) : nranks;
    if (!lazy && !ddl_overlay_is_complete(nranks))
        how = ", connected all to all (DDL_CONNECT=lazy takes fewer),";
    snprintf(what, sizeof what, "%d ranks%s", nranks, how);
    /* While neighbours meet they have some more; without these there is TCP instead of shared memory. And
     * where others connect late it is well to have as many as for all, if they are allowed. */
    if (ddl_host_need_descriptors(nranks * (1 + PER_NEIGHBOUR) + clients + DESCRIPTORS_MARGIN, what,
                                  &unwanted) == DDL_OK)
        return DDL_OK;
    return ddl_host_need_descriptors(links + clients + DESCRIPTORS_MARGIN, what, err);
}

/* Further connections, once it is known who is on which host; the same for those that connect late. */
static ddl_status need_more_descriptors(const ddl_roster *roster, ddl_error *err)
{
    const int others = roster->nranks - roster->local_size_of[roster->rank];
    int remote = others;
    const int degree = ddl_overlay_degree(roster->nranks);
    char what[128];
    if (roster->nstreams == 0)
        return DDL_OK;
    if (ddl_roster_is_sparse(roster) && remote > degree)
        remote = degree;
    snprintf(what, sizeof what, "%d ranks, with %d more connections to each on another host (DDL_STREAMS),",
             roster->nranks, roster->nstreams);
    int links = ddl_roster_is_sparse(roster) ? degree : roster->nranks;
    int clients = roster->rank == 0 ? roster->nranks : 0;
    /* As many as all may come to have, if they are allowed; see ddl_bootstrap_need_descriptors. */
    ddl_error unwanted;
    if (ddl_host_need_descriptors(roster->nranks * (1 + PER_NEIGHBOUR) + others * roster->nstreams + clients +
                                      DESCRIPTORS_MARGIN,
                                  what, &unwanted) == DDL_OK)
        return DDL_OK;
    return ddl_host_need_descriptors(links + remote * roster->nstreams + clients + DESCRIPTORS_MARGIN, what,
                                     err);
}

/* Listen for the others, and note what they are to call. */
static ddl_status open_mesh(struct course *course, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    ddl_network_place place;
    uint16_t ports[DDL_NETWORK_LISTEN_MAX];
    DDL_TRY(ddl_network_choose(course->network, options->store, options->master,
                               ddl_store_address(course->store), options->deadline, &place, err));
    DDL_TRY(ddl_meshing_open(options->service, &course->self, options->encryption, &place,
                             course->network->ports, options->local, options->deadline, ports,
                             &course->meshing, err));
    ddl_network_tell(course->network, &place, ports, &course->own);
    for (int i = 0; i < place.nlisten; i++) {
        char listens[DDL_ADDRESS_FULL_TEXT];
        ddl_address_set_port(&place.listen[i], ports[i]);
        ddl_address_text(&place.listen[i], listens);
        ddl_log(DDL_LOG_DEBUG, "rank %d on %s listens at %s; others call %s, port %u", course->own.rank,
                course->own.host, listens, course->own.address, course->own.port);
    }
    return DDL_OK;
}

/* ---- entering a run ---- */

static ddl_status refuse_latecomer(const struct course *course, ddl_view existing, ddl_error *err)
{
    ddl_member first;
    if (ddl_member_decode(existing, &first, NULL) != DDL_OK)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "rank %d is here already; two processes were started with the same RANK",
                        course->own.rank);
    if (first.pid == course->own.pid && strcmp(first.host, course->own.host) == 0) {
        (void)DDL_FAIL(err, DDL_ECONFIG,
                       "rank %d is here already: it is this process, %s[%d]; free that communicator before "
                       "another ddl_init, or have each meet at a port of its own",
                       course->own.rank, first.host, (int)first.pid);
        return ddl_error_blame(err, course->own.rank), DDL_ECONFIG;
    }
    (void)DDL_FAIL(
        err, DDL_ECONFIG,
        "rank %d is here already: it is %s[%d], and this is %s[%d]; two processes were started with the same "
        "RANK, or two jobs share %s",
        course->own.rank, first.host, (int)first.pid, course->own.host, (int)course->own.pid,
        course->options->store);
    return ddl_error_blame(err, course->own.rank), DDL_ECONFIG;
}

static ddl_status leave_will(struct course *course, ddl_error *err)
{
    ddl_error will;
    (void)ddl_error_set(&will, DDL_EPEERLOST,
                        "rank %d on %s[%d] ended before all ranks were connected; look at its "
                        "output",
                        course->own.rank, course->own.host, (int)course->own.pid);
    will.culprit = course->own.rank;
    return ddl_store_will(course->store, &will, course->options->deadline, err);
}

/* Say who and where this rank is. *over: this run has ended, and the next has to be waited for. */
static ddl_status publish(struct course *course, bool *over, ddl_error *err)
{
    char key[32];
    ddl_bytes record = { 0 }, existing = { 0 };
    ddl_store_outcome outcome = DDL_STORE_CREATED;
    key_of("member", course->own.rank, key);
    if (!ddl_member_encode(&course->own, &record))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a rank's record");
    ddl_status status = ddl_store_set_new(course->store, key, ddl_bytes_view(&record),
                                          course->options->deadline, &outcome, &existing, err);
    if (status == DDL_OK && outcome == DDL_STORE_TAKEN)
        status = refuse_latecomer(course, ddl_bytes_view(&existing), err);
    *over = outcome == DDL_STORE_ABANDONED;
    ddl_bytes_fini(&record);
    ddl_bytes_fini(&existing);
    return status;
}

static void close_store(struct course *course, ddl_deadline deadline)
{
    if (course->bootstrap != NULL)
        course->bootstrap->store = NULL;
    ddl_store_destroy(course->store, deadline);
    course->store = NULL;
}

static void forget_run(struct course *course)
{
    (void)ddl_meshing_close(course->meshing, course->options->deadline, NULL);
    course->meshing = NULL;
    close_store(course, ddl_now_ns());
}

static ddl_status come_to_place(struct course *course, ddl_deadline deadline, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    const ddl_store_options store = { .url = options->store,
                                      .place = options->master,
                                      .self = &course->self,
                                      .encryption = options->encryption,
                                      .service = options->service,
                                      .network = course->network,
                                      .progress = &course->progress };
    DDL_TRY(ddl_store_open(&store, deadline, &course->store, err));
    course->bootstrap->store = course->store;
    if (options->quiet && options->rank != 0) /* rank 0 tells of the others */
        course->progress.next = DDL_DEADLINE_NEVER;
    memcpy(course->self.run_id, ddl_store_run_id(course->store), DDL_RUN_ID_BYTES);
    return DDL_OK;
}

/*
 * Come to the meeting place, listen, and publish where. A place may still hold the last run of this very
 * job, if its rank 0 is a little behind: then wait for the next run.
 */
static ddl_status enter_run(struct course *course, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    for (;;) {
        bool over = false;
        DDL_TRY(come_to_place(course, options->deadline, err));
        ddl_status status = open_mesh(course, err);
        if (status == DDL_OK)
            status = leave_will(course, err);
        if (status == DDL_OK)
            status = publish(course, &over, err);
        over = over || (status != DDL_OK && ddl_store_is_lost(course->store));
        if (!over)
            return status;
        forget_run(course);
        memset(course->self.run_id, 0, DDL_RUN_ID_BYTES);
        if (ddl_deadline_passed(options->deadline))
            return DDL_FAIL(
                err, DDL_ETIMEDOUT,
                "the last run at %s is over, and rank 0 did not begin another within %.1f s; start rank 0, "
                "or raise DDL_START_TIMEOUT",
                options->store, (double)(ddl_now_ns() - course->progress.start_ns) / 1e9);
        ddl_progress_tell(&course->progress, "rank 0 to begin another run at %s", options->store);
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(OVER_PAUSE_MS));
    }
}

/* ---- who is missing ---- */

/* Mark every rank whose key of this kind is set. */
static ddl_status look_around(struct course *course, const char *what, ddl_error *err)
{
    const ddl_store_many many = { what, course->self.nranks, course->present, NULL };
    ddl_status status = ddl_store_get_many(course->store, &many, ddl_now_ns(), err);
    return status == DDL_ETIMEDOUT ? DDL_OK : status;
}

/* Who has come, and where. */
struct arrivals {
    ddl_member *hosts; /* somebody of each host, by the lowest rank; to be released, NULL if out of memory */
    int *host_of;      /* by rank; -1: has not come, or cannot be told */
    int count;         /* of hosts */
};

/* Best effort. */
static void find_arrivals(struct course *course, struct arrivals *arrivals)
{
    const size_t nranks = (size_t)course->self.nranks;
    ddl_store_many many = { "member", course->self.nranks, ddl_alloc_array(nranks, sizeof(bool)),
                            ddl_alloc_array(nranks, sizeof(ddl_bytes)) };
    *arrivals = (struct arrivals){ ddl_alloc_array(nranks, sizeof *arrivals->hosts),
                                   ddl_alloc_array(nranks, sizeof *arrivals->host_of), 0 };
    const bool has_room =
        arrivals->hosts != NULL && arrivals->host_of != NULL && many.present != NULL && many.values != NULL;
    for (size_t rank = 0; has_room && rank < nranks; rank++)
        many.present[rank] = !course->present[rank]; /* who has not come is not looked for */
    if (has_room)
        (void)!ddl_store_get_many(course->store, &many, ddl_now_ns(), NULL);
    for (size_t rank = 0; has_room && rank < nranks; rank++) {
        ddl_member *member = &arrivals->hosts[arrivals->count];
        int host = 0;
        arrivals->host_of[rank] = -1;
        if (ddl_member_decode(ddl_bytes_view(&many.values[rank]), member, NULL) == DDL_OK) {
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

/* "0-1, 3-4 on 2 hosts" */
static void count_joined(struct course *course, const struct arrivals *arrivals, char joined[JOINED_TEXT])
{
    char ranks[RANKS_TEXT];
    ddl_progress_ranks(course->present, course->self.nranks, true, ranks, sizeof ranks);
    snprintf(joined, JOINED_TEXT, "%s on %d host%s", ranks, arrivals->count, arrivals->count == 1 ? "" : "s");
}

/* "0-1 on nodeA, 3-4 on nodeB"; false if there is no room, or nothing to tell. */
static bool name_joined(struct course *course, const struct arrivals *arrivals, char joined[JOINED_TEXT])
{
    const int nranks = course->self.nranks;
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

/* "ranks 2, 5-7 of 8" */
static void describe_missing(const struct course *course, char text[ABSENCE_TEXT])
{
    char missing[RANKS_TEXT];
    int missing_count = 0;
    for (int rank = 0; rank < course->self.nranks; rank++)
        missing_count += !course->present[rank];
    ddl_progress_ranks(course->present, course->self.nranks, false, missing, sizeof missing);
    snprintf(text, ABSENCE_TEXT, "rank%s %s of %d", missing_count == 1 ? "" : "s", missing,
             course->self.nranks);
}

/* "ranks 2, 5-7 of 8 (joined: 0-1, 3-4 on 2 hosts)", or with the names of hosts; what: else than to join, all
 * have done that. */
static void describe_absence(struct course *course, const char *what, bool by_name, char text[ABSENCE_TEXT])
{
    struct arrivals arrivals;
    char joined[JOINED_TEXT];
    describe_missing(course, text);
    if (strcmp(what, "member") != 0)
        return;
    find_arrivals(course, &arrivals);
    if (!by_name || !name_joined(course, &arrivals, joined))
        count_joined(course, &arrivals, joined);
    forget_arrivals(&arrivals);
    const size_t used = strlen(text);
    snprintf(text + used, ABSENCE_TEXT - used, " (joined: %s)", joined);
}

static int first_missing(const struct course *course)
{
    for (int rank = 0; rank < course->self.nranks; rank++)
        if (!course->present[rank])
            return rank;
    return -1;
}

/* Who is missing may have come, and been turned away; as nothing was proved, nobody is blamed for it. */
static void tell_of_turned_away(const struct course *course, ddl_error *err)
{
    char turned_away[DDL_SERVICE_TURNED_AWAY];
    const size_t used = strlen(err->text);
    ddl_service_turned_away(course->options->service, turned_away);
    if (turned_away[0] != '\0' && strstr(err->text, "turned away") == NULL)
        snprintf(err->text + used, sizeof err->text - used, "; rank %d turned away %s", course->own.rank,
                 turned_away);
}

/* The deadline has passed: say who did not do what. */
static ddl_status report_absence(struct course *course, const char *what, const char *verb, ddl_error *err)
{
    char absence[ABSENCE_TEXT];
    double waited_s = (double)(ddl_now_ns() - course->progress.start_ns) / 1e9;
    memset(course->present, 0, (size_t)course->self.nranks * sizeof *course->present);
    DDL_TRY(ddl_store_check(course->store, err)); /* another may have said it already */
    DDL_TRY(look_around(course, what, err));
    int missing = first_missing(course);
    if (!course->present[course->self.rank]) { /* which has said so, and would be found */
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "rank 0 at %s, where ranks meet, does not answer, %.1f s after the start; is it stopped, or "
            "its host unreachable? Look at its output, or raise DDL_START_TIMEOUT",
            course->options->store, waited_s);
        missing = 0;
    } else if (missing < 0) {
        (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                       "rank 0 did not go on within %.1f s though all ranks had come; look at its "
                       "output, or raise DDL_START_TIMEOUT",
                       waited_s);
        missing = 0;
    } else {
        describe_absence(course, what, true, absence);
        (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                       "%s did not %s within %.1f s; look at the output of what is missing, or "
                       "raise DDL_START_TIMEOUT",
                       absence, verb, waited_s);
        tell_of_turned_away(course, err);
    }
    (void)ddl_error_blame(err, missing);
    return DDL_ETIMEDOUT;
}

/* ---- meeting ---- */

/* Who is missing may have no secret, or another, where the home directory is not shared. Told once. */
static void tell_errand(struct course *course)
{
    const ddl_bootstrap_options *options = course->options;
    char path[DDL_SECRET_PATH], host[256], errand[DDL_SECRET_ERRAND];
    uint16_t port;
    if (course->told_errand || options->prover == NULL ||
        !ddl_secret_is_of_home(options->prover->source, path))
        return;
    course->told_errand = true;
    if (path[0] == '\0') {
        ddl_log(
            DDL_LOG_INFO,
            "hosts that do not share this home directory need this job's secret too: copy its file, whose "
            "name is too long to be told here, ~/.ddl/secret unless DDL_SECRET_FILE names another");
        return;
    }
    /* In another store a place is but a name, if it has one. */
    if (strncmp(options->store, tcp_store, sizeof tcp_store - 1) != 0 ||
        ddl_address_split("", options->master, host, sizeof host, &port, NULL) != DDL_OK)
        snprintf(host, sizeof host, "%s", course->own.host);
    ddl_secret_errand(host, path, errand);
    ddl_log(DDL_LOG_INFO,
            "hosts that do not share this home directory need its secret too; on each of them run: %s",
            errand);
}

/* Whoever waits less long may have given up: then the reason, else a progress line of all that are missing.
 * what: as for look_around, whose present ranks are those found last. */
static ddl_status tell_absence(struct course *course, const char *what, ddl_error *err)
{
    const bool members = strcmp(what, "member") == 0;
    char absence[ABSENCE_TEXT];
    DDL_TRY(ddl_store_check(course->store, err));
    describe_absence(course, what, false, absence);
    ddl_progress_tell(&course->progress, members ? "%s" : "%s to be connected to everyone", absence);
    return DDL_OK;
}

/* Rank 0: wait until every rank has set its key of this kind. */
static ddl_status collect(struct course *course, const char *what, ddl_bytes values[], ddl_error *err)
{
    const ddl_deadline deadline = course->options->deadline;
    const ddl_store_many many = { what, course->self.nranks, course->present, values };
    memset(course->present, 0, (size_t)course->self.nranks * sizeof *course->present);
    for (;;) {
        ddl_deadline slice = ddl_deadline_earlier(course->progress.next, deadline);
        ddl_status status = ddl_store_get_many(course->store, &many, slice, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(deadline))
            return status;
        DDL_TRY(tell_absence(course, what, err));
        if (strcmp(what, "member") == 0)
            tell_errand(course);
    }
}

/* Another rank: wait for what rank 0 sets when every rank has set its key of this kind. */
static ddl_status await(struct course *course, const char *key, const char *what, ddl_bytes *value,
                        ddl_error *err)
{
    const ddl_deadline deadline = course->options->deadline;
    for (;;) {
        ddl_deadline slice = ddl_deadline_earlier(course->progress.next, deadline);
        ddl_status status = ddl_store_get(course->store, key, slice, value, err);
        if (status != DDL_ETIMEDOUT || ddl_deadline_passed(deadline))
            return status;
        memset(course->present, 0, (size_t)course->self.nranks * sizeof *course->present);
        DDL_TRY(look_around(course, what, err));
        if (course->present[course->self.rank] && first_missing(course) >= 0)
            DDL_TRY(tell_absence(course, what, err));
        else
            ddl_progress_tell(&course->progress, "rank 0 at %s", course->options->store);
    }
}

/* Rank 0: the record of every rank goes into the roster. */
static ddl_status collect_members(struct course *course, ddl_error *err)
{
    const int nranks = course->self.nranks;
    ddl_bytes *records = ddl_alloc_array((size_t)nranks, sizeof *records);
    if (records == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the records of %d ranks", nranks);
    ddl_status status = collect(course, "member", records, err);
    for (int rank = 0; rank < nranks; rank++) {
        if (status == DDL_OK)
            status = ddl_member_decode(ddl_bytes_view(&records[rank]), &course->roster->members[rank], err);
        ddl_bytes_fini(&records[rank]);
    }
    ddl_free(records);
    return status;
}

/* Whether some ranks are on other hosts than others for certain. */
static bool is_spread(const ddl_roster *roster)
{
    int sure_node = -1;
    for (int rank = 0; rank < roster->nranks; rank++) {
        if (!ddl_host_id_is_sure(roster->members[rank].host_id))
            continue;
        if (sure_node >= 0 && roster->node_of[rank] != sure_node)
            return true;
        sure_node = roster->node_of[rank];
    }
    return false;
}

/* An address that only its own host can reach is of no use to others. */
static ddl_status check_addresses(const ddl_roster *roster, ddl_error *err)
{
    const bool spread = is_spread(roster);
    for (int rank = 0; spread && rank < roster->nranks; rank++) {
        const ddl_member *member = &roster->members[rank];
        ddl_address address;
        if (!ddl_address_parse(member->address, member->port, &address) || !ddl_address_is_loopback(&address))
            continue;
        (void)DDL_FAIL(
            err, DDL_ECONFIG,
            "the ranks are on %d hosts, but rank %d on %s would be reached at %s, which no other host can "
            "reach; set MASTER_ADDR to an address of rank 0 that all hosts reach, or on that host DDL_IFACE "
            "or DDL_ADVERTISE",
            roster->node_count, rank, member->host, member->address);
        (void)ddl_error_blame(err, rank);
        return DDL_ECONFIG;
    }
    return DDL_OK;
}

/* What rank 0 says for all. */
static void fill_in(struct course *course)
{
    const ddl_bootstrap_options *options = course->options;
    DDL_ASSERT(options->ncosts <= DDL_ROSTER_COSTS);
    course->roster->ncosts = options->ncosts;
    for (int i = 0; i < options->ncosts; i++)
        course->roster->costs[i] = options->costs[i];
    course->roster->connect = options->connect;
    course->roster->nstreams = options->nstreams;
    memcpy(course->roster->run_id, course->self.run_id, DDL_RUN_ID_BYTES);
}

static ddl_status gather_roster(struct course *course, ddl_error *err)
{
    ddl_bytes table = { 0 }, existing = { 0 };
    ddl_store_outcome outcome;
    DDL_TRY(ddl_roster_create(0, course->self.nranks, &course->roster, err));
    DDL_TRY(collect_members(course, err));
    course->all_have_come = true;
    fill_in(course);
    ddl_roster_derive(course->roster);
    DDL_TRY(check_addresses(course->roster, err));
    if (!ddl_roster_encode(course->roster, &table)) {
        ddl_bytes_fini(&table);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the roster of %d ranks", course->self.nranks);
    }
    ddl_status status = ddl_store_set_new(course->store, DDL_STORE_ROSTER, ddl_bytes_view(&table),
                                          course->options->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    ddl_bytes_fini(&table);
    return status;
}

static ddl_status receive_roster(struct course *course, ddl_error *err)
{
    ddl_bytes table = { 0 };
    DDL_TRY(await(course, DDL_STORE_ROSTER, "member", &table, err));
    ddl_status status = ddl_roster_decode(ddl_bytes_view(&table), course->self.rank, &course->roster, err);
    ddl_bytes_fini(&table);
    if (status != DDL_OK)
        return status;
    if (course->roster->nranks != course->self.nranks ||
        memcmp(course->roster->run_id, course->self.run_id, DDL_RUN_ID_BYTES) != 0)
        return DDL_FAIL(err, DDL_ESTORE, "the roster at %s belongs to another run", course->options->store);
    return DDL_OK;
}

static ddl_status meet(struct course *course, ddl_error *err)
{
    ddl_status status = course->self.rank == 0 ? gather_roster(course, err) : receive_roster(course, err);
    return status == DDL_ETIMEDOUT ? report_absence(course, "member", "come", err) : status;
}

/* ---- connecting ---- */

static ddl_status make_room_for_streams(struct course *course, ddl_error *err)
{
    const size_t count = (size_t)course->roster->nranks * (size_t)course->roster->nstreams;
    if (count == 0)
        return DDL_OK;
    course->streams = ddl_alloc_array(count, sizeof *course->streams);
    if (course->streams == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu connections", count);
    for (size_t i = 0; i < count; i++)
        course->streams[i] = ddl_no_wire;
    return DDL_OK;
}

static ddl_status connect_all(struct course *course, ddl_error *err)
{
    const ddl_deadline deadline = course->options->deadline;
    if (course->roster->connect != course->options->connect) /* rank 0 says otherwise */
        DDL_TRY(ddl_bootstrap_need_descriptors(course->self.rank, course->self.nranks,
                                               course->roster->connect, err));
    DDL_TRY(need_more_descriptors(course->roster, err));
    DDL_TRY(make_room_for_streams(course, err));
    DDL_TRY(ddl_meshing_start(course->meshing, course->roster, course->options->late_ms, deadline, err));
    for (;;) {
        ddl_deadline slice = ddl_deadline_in_ms(CHECK_INTERVAL_MS);
        ddl_status status = ddl_meshing_wait(course->meshing, slice < deadline ? slice : deadline, err);
        if (status != DDL_ETIMEDOUT)
            return status;
        DDL_TRY(ddl_store_check(course->store, err));
        ddl_meshing_connected(course->meshing, course->present);
        char missing[ABSENCE_TEXT];
        describe_missing(course, missing);
        if (ddl_deadline_passed(deadline)) {
            (void)DDL_FAIL(
                err, DDL_ETIMEDOUT,
                "%s and rank %d, at %s, port %u, were not connected to each other within %.1f s; are "
                "they stopped, or short of descriptors, or is there a firewall between them (DDL_PORT_RANGE, "
                "DDL_IFACE)? Or raise DDL_START_TIMEOUT",
                missing, course->self.rank, course->own.address, course->own.port,
                (double)(ddl_now_ns() - course->progress.start_ns) / 1e9);
            (void)ddl_error_blame(err, first_missing(course));
            return DDL_ETIMEDOUT;
        }
        if (first_missing(course) >= 0) /* else what is still to be done is this rank's */
            ddl_progress_tell(&course->progress, "%s to be connected to rank %d", missing, course->self.rank);
    }
}

static ddl_status set_empty(struct course *course, const char *key, ddl_error *err)
{
    ddl_store_outcome outcome;
    ddl_bytes existing = { 0 };
    ddl_status status = ddl_store_set_new(course->store, key, (ddl_view){ NULL, 0 },
                                          course->options->deadline, &outcome, &existing, err);
    ddl_bytes_fini(&existing);
    return status;
}

/* Nobody begins before everybody is connected: so all succeed, or all fail alike. */
static ddl_status settle(struct course *course, ddl_error *err)
{
    char key[32];
    key_of("meshed", course->self.rank, key);
    DDL_TRY(set_empty(course, key, err));
    ddl_status status;
    if (course->self.rank == 0) {
        status = collect(course, "meshed", NULL, err);
        if (status == DDL_OK)
            status = set_empty(course, DDL_STORE_SETTLED, err);
    } else {
        ddl_bytes nothing = { 0 };
        status = await(course, DDL_STORE_SETTLED, "meshed", &nothing, err);
        ddl_bytes_fini(&nothing);
    }
    if (status == DDL_ETIMEDOUT)
        return report_absence(course, "meshed", "connect to all others", err);
    return status;
}

/* ---- the whole ---- */

/* Others may have waited at the own door, and be blamed for what this rank lacks. */
static void look_at_own_door(const struct course *course, ddl_error *err)
{
    const int os_errno = ddl_service_lack(course->options->service);
    if (err->code == DDL_ETIMEDOUT && os_errno != 0)
        (void)DDL_FAIL_OS(err, DDL_ERESOURCE, os_errno,
                          "it cannot let others in, who may wait at its door; see its ulimit -n");
}

/* Others may have waited for the own service thread. */
static bool has_lost_service(const struct course *course, ddl_error *err)
{
    ddl_service *service = course->options->service;
    if (err->code == DDL_ETIMEDOUT)
        (void)!ddl_service_check(service, course->options->deadline, NULL);
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

/* What this rank lacks others cannot know by themselves, and they are told. */
static ddl_status own_up(const struct course *course, ddl_error *err)
{
    const char *knob = "";
    look_at_own_door(course, err);
    if (has_lost_service(course, err))
        knob = " (DDL_START_TIMEOUT)";
    if ((err->code == DDL_ERESOURCE || err->code == DDL_ENOMEM || knob[0] != '\0') && err->culprit < 0)
        ddl_bootstrap_sign(&course->own, knob, err);
    return err->code;
}

/* Finding out that the service thread is stuck has taken most of the time there is after the deadline; and
 * rank 0's serves the store. */
static ddl_deadline last_words(const struct course *course)
{
    return ddl_deadline_in_ms(ddl_service_is_lost(course->options->service, NULL) ? LAST_WORD_MS
                                                                                  : LAST_WORDS_MS);
}

/* Rank 0 of a run that has failed: some may be about to come, as all were started together. After a death
 * only where it serves the store, as that goes with it; elsewhere to find out about one has taken a second.
 */
static bool stays_shortly(const struct course *course, const ddl_error *why)
{
    const bool serves = strncmp(course->options->store, tcp_store, sizeof tcp_store - 1) == 0;
    const bool is_for_all =
        why->code != DDL_ETIMEDOUT && why->code != DDL_ESTORE && (serves || why->code != DDL_EPEERLOST);
    return course->own.rank == 0 && !course->all_have_come && is_for_all && !ddl_store_is_lost(course->store);
}

/* Of a call on a file that has failed here the others are told where that was. What another has put into the
 * store before has a culprit, and is left as it is. */
static void tell_others(const struct course *course, ddl_error *err)
{
    const ddl_error own = *err;
    if (own.code == DDL_ESTORE && own.os_errno != 0 && own.culprit < 0)
        ddl_bootstrap_sign(&course->own, "", err);
    const int64_t stay_ns = stays_shortly(course, err) ? STAY_SHORTLY_MS * DDL_NS_PER_MS : 0;
    if (!ddl_store_fail(course->store, err, last_words(course) + stay_ns, err))
        *err = own;
}

static ddl_status run_course(struct course *course, ddl_error *err)
{
    DDL_TRY(meet(course, err));
    DDL_TRY(connect_all(course, err));
    if (ddl_roster_is_sparse(course->roster))
        DDL_TRY(ddl_meshing_serve(course->meshing, course->options->deadline, err));
    return settle(course, err);
}

/* Whether a store of this name is open to other machines: any tcp:// one but on loopback. */
static bool is_open_place(const char *store)
{
    char host[256];
    uint16_t port;
    ddl_address address;
    if (strncmp(store, tcp_store, sizeof tcp_store - 1) != 0)
        return false;
    if (ddl_address_split("ADDRESS", store + sizeof tcp_store - 1, host, sizeof host, &port, NULL) != DDL_OK)
        return true;
    return strcmp(host, "localhost") != 0 &&
           !(ddl_address_parse(host, port, &address) && ddl_address_is_loopback(&address));
}

/* Once for the job: without proofs, whoever reaches rank 0, or its store, can take part. */
static void warn_if_open(const struct course *course)
{
    ddl_address address;
    if (course->self.rank != 0 || course->self.prover != NULL)
        return;
    bool open = ddl_address_parse(course->own.address, course->own.port, &address) &&
                !ddl_address_is_loopback(&address);
    if (!open && !is_open_place(course->options->store))
        return;
    ddl_log(
        DDL_LOG_WARNING,
        "DDL_SECURITY=off: whoever can reach %s can join this job, read its data and change its results; use "
        "auth outside of networks that you trust",
        open ? course->own.address : course->options->store);
}

/* Rank 0: who waits for it may be between two calls, or asks in a place where it has to look. */
static void stay_at_place(struct course *course, int ms)
{
    for (const ddl_deadline end = ddl_deadline_in_ms(ms); !ddl_deadline_passed(end);) {
        (void)!ddl_store_check(course->store, NULL);
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(CHECK_INTERVAL_MS));
    }
}

static void stay_shortly(struct course *course, const ddl_error *why)
{
    if (stays_shortly(course, why))
        stay_at_place(course, STAY_SHORTLY_MS);
}

/*
 * This rank cannot take part, and the others, who wait for it, hear why; unless there is another with its
 * number, whose run this is.
 */
static ddl_status decline(struct course *course, ddl_error *err)
{
    const ddl_error own = *err;
    if (course->store == NULL || ddl_store_is_lost(course->store))
        return own.code;
    const ddl_status around = look_around(course, "member", NULL);
    if (around != DDL_OK) /* it has failed already, which others may be about to hear */
        stay_shortly(course, &own);
    if (around != DDL_OK || course->present[course->own.rank])
        return own.code;
    if (own.culprit < 0)
        ddl_bootstrap_sign(&course->own, "", err);
    const bool stays = course->own.rank == 0; /* and then leaves, for which there is to be time */
    ddl_store_fail(course->store, err, last_words(course) + (stays ? STAY_MS * DDL_NS_PER_MS : 0), err);
    if (stays)
        stay_at_place(course, STAY_MS);
    return err->code;
}

/* Wrong ones are told at once, not when all have come; the others too if that can be. */
static ddl_status check_interfaces(struct course *course, ddl_error *err)
{
    ddl_address unused;
    ddl_error ignored;
    const char *choice = course->network->iface[0] != '\0' ? course->network->iface : NULL;
    const ddl_status status = ddl_interface_choose(choice, NULL, &unused, err);
    if (status == DDL_OK || choice == NULL) /* then there is none at all, and nobody to tell */
        return status;
    const ddl_deadline until = ddl_deadline_in_ms(course->own.rank == 0 ? VISIT_MS : COME_MS);
    (void)!come_to_place(course, ddl_deadline_earlier(course->options->deadline, until), &ignored);
    return decline(course, err);
}

static ddl_status join(struct course *course, ddl_error *err)
{
    ddl_service_set_lack(course->options->service, 0); /* which may have served another start */
    ddl_service_set_turned_away(course->options->service, "");
    DDL_TRY(know_oneself(course, err));
    DDL_TRY(check_interfaces(course, err));
    ddl_status status = enter_run(course, err);
    if (status != DDL_OK) {
        (void)own_up(course, err);
        return decline(course, err);
    }
    warn_if_open(course);
    status = run_course(course, err);
    if (status != DDL_OK) {
        (void)own_up(course, err);
        tell_others(course, err);
        if (err->code == DDL_ETIMEDOUT && course->own.rank == 0) /* another may have given up first */
            tell_of_turned_away(course, err);
        stay_shortly(course, err);
        status = err->code;
    }
    return status;
}

static ddl_status roster_of_one(struct course *course, ddl_error *err)
{
    DDL_TRY(know_oneself(course, err));
    DDL_TRY(ddl_roster_create(0, 1, &course->roster, err));
    DDL_TRY(ddl_host_random(course->self.run_id, DDL_RUN_ID_BYTES, err));
    fill_in(course);
    snprintf(course->own.address, sizeof course->own.address, "127.0.0.1");
    course->roster->members[0] = course->own;
    ddl_roster_derive(course->roster);
    return DDL_OK;
}

static void close_streams(ddl_bootstrap *bootstrap)
{
    for (int i = 0; i < bootstrap->nranks * bootstrap->nstreams; i++)
        ddl_wire_close(&bootstrap->streams[i]);
    ddl_free(bootstrap->streams);
    bootstrap->streams = NULL;
}

static void take_streams(struct course *course, ddl_bootstrap *bootstrap)
{
    const ddl_roster *roster = course->roster;
    bootstrap->nranks = roster->nranks;
    bootstrap->nstreams = course->streams != NULL ? roster->nstreams : 0;
    bootstrap->streams = course->streams;
    course->streams = NULL;
    for (int rank = 0; rank < roster->nranks && bootstrap->nstreams > 0; rank++)
        if (ddl_roster_connects(roster, rank))
            ddl_meshing_take_streams(course->meshing, rank,
                                     bootstrap->streams + (size_t)rank * (size_t)bootstrap->nstreams);
}

/* The meshing has done its work, but where pairs connect late. */
static ddl_status hand_over(struct course *course, ddl_bootstrap *bootstrap, ddl_wire wires[], ddl_error *err)
{
    ddl_status status = DDL_OK;
    wires[0] = ddl_no_wire;
    if (course->meshing != NULL)
        ddl_meshing_take(course->meshing, wires);
    take_streams(course, bootstrap);
    if (ddl_roster_is_sparse(course->roster))
        bootstrap->meshing = course->meshing;
    else
        status = ddl_meshing_close(course->meshing, course->options->deadline, err);
    if (status == DDL_OK) {
        course->meshing = NULL;
        return DDL_OK;
    }
    (void)own_up(course, err);
    for (int rank = 0; rank < bootstrap->nranks; rank++)
        ddl_wire_close(&wires[rank]);
    close_streams(bootstrap);
    return status;
}

ddl_status ddl_bootstrap_join(const ddl_bootstrap_options *options, ddl_bootstrap **out, ddl_roster **roster,
                              ddl_wire wires[], ddl_error *err)
{
    ddl_error unwanted;
    struct course course = { .options = options, .network = &ddl_network_unsaid };
    if (options->network != NULL)
        course.network = options->network;
    DDL_ASSERT(options->nranks > 0);
    DDL_ASSERT(options->rank >= 0);
    DDL_ASSERT(options->rank < options->nranks);
    if (err == NULL)
        err = &unwanted;
    ddl_bootstrap *bootstrap = ddl_alloc(sizeof *bootstrap);
    course.present = ddl_alloc_array((size_t)options->nranks, sizeof *course.present);
    ddl_progress_start(&course.progress, options->deadline);
    if (options->quiet && options->rank > 1) /* rank 1 tells that it is rank 0 who is missing */
        course.progress.next = DDL_DEADLINE_NEVER;
    ddl_status status;
    course.bootstrap = *out = bootstrap;
    if (bootstrap == NULL || course.present == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to start %d ranks", options->nranks);
    else
        status = options->nranks == 1 ? roster_of_one(&course, err) : join(&course, err);
    if (status == DDL_OK)
        status = hand_over(&course, bootstrap, wires, err);
    if (status == DDL_OK) {
        *roster = course.roster;
    } else {
        *out = NULL;
        close_store(&course, ddl_deadline_in_ms(LAST_WORDS_MS));
        /* Which looks at the roster. */
        if (ddl_meshing_close(course.meshing, ddl_deadline_in_ms(CLOSING_MS), NULL) == DDL_OK)
            ddl_roster_destroy(course.roster);
        ddl_free(bootstrap);
    }
    ddl_free(course.streams);
    ddl_free(course.present);
    return status;
}

void ddl_bootstrap_take_streams(ddl_bootstrap *bootstrap, int rank, ddl_wire streams[])
{
    for (int i = 0; i < bootstrap->nstreams; i++) {
        ddl_wire *stream = &bootstrap->streams[(size_t)rank * (size_t)bootstrap->nstreams + (size_t)i];
        streams[i] = *stream;
        *stream = ddl_no_wire;
    }
}

void ddl_bootstrap_listen(ddl_bootstrap *bootstrap, void (*hear)(void *arg), void *arg)
{
    if (bootstrap->meshing != NULL)
        ddl_meshing_listen(bootstrap->meshing, hear, arg);
}

void ddl_bootstrap_reach(ddl_bootstrap *bootstrap, int rank)
{
    if (bootstrap->meshing != NULL)
        ddl_meshing_reach(bootstrap->meshing, rank);
}

bool ddl_bootstrap_next(ddl_bootstrap *bootstrap, ddl_meshing_outcome *outcome)
{
    return bootstrap->meshing != NULL && ddl_meshing_next(bootstrap->meshing, outcome);
}

void ddl_bootstrap_shut_door(ddl_bootstrap *bootstrap)
{
    bootstrap->closing = bootstrap->meshing;
    bootstrap->meshing = NULL;
}

void ddl_bootstrap_leave(ddl_bootstrap *bootstrap)
{
    if (bootstrap == NULL)
        return;
    ddl_status status =
        ddl_meshing_close(bootstrap->closing != NULL ? bootstrap->closing : bootstrap->meshing,
                          ddl_deadline_in_ms(CLOSING_MS), NULL);
    ddl_store_destroy(bootstrap->store, ddl_deadline_in_ms(LAST_WORDS_MS));
    close_streams(bootstrap);
    if (status == DDL_OK) /* else hear may be called, and look for who has come */
        ddl_free(bootstrap);
}

void ddl_bootstrap_clear_up(ddl_bootstrap *bootstrap, ddl_deadline deadline)
{
    if (bootstrap == NULL || bootstrap->store == NULL || !ddl_store_outlives(bootstrap->store))
        return;
    ddl_store_destroy(bootstrap->store, deadline);
    bootstrap->store = NULL;
}

void ddl_bootstrap_close_in_child(ddl_bootstrap *bootstrap)
{
    if (bootstrap == NULL)
        return;
    ddl_store_close_in_child(bootstrap->store);
    if (bootstrap->meshing != NULL)
        ddl_meshing_close_in_child(bootstrap->meshing);
}
