/* course_entering.c - this rank enters a run: it comes to the place, listens, is known there. */
#include "rendezvous/course.h"

#include "base/log.h"
#include "io/address.h"
#include "io/socket.h"

#include <stdio.h>
#include <string.h>

enum { OVER_PAUSE_MS = 50 }; /* before looking again at a place whose last run is over */

/* Listen for the others, and note what they are to call. */
static ddl_status open_mesh(ddl_course *course, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    ddl_network_place place;
    uint16_t ports[DDL_NETWORK_LISTEN_MAX];
    DDL_TRY(ddl_network_choose(course->network, options->store, options->master,
                               ddl_store_address(course->store), options->deadline, &place, err));
    DDL_TRY(ddl_meshing_open(options->service, &course->self, options->encryption, &place,
                             course->network->ports, options->local, options->deadline, ports,
                             &course->meshing, err));
    course->bootstrap->forming = course->meshing;
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

static ddl_status refuse_latecomer(const ddl_course *course, ddl_view existing, ddl_error *err)
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

static ddl_status leave_will(ddl_course *course, ddl_error *err)
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
static ddl_status publish(ddl_course *course, bool *over, ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_bytes record = { 0 }, existing = { 0 };
    ddl_store_outcome outcome = DDL_STORE_CREATED;
    ddl_store_name("member", course->own.rank, key);
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

void ddl_course_close_store(ddl_course *course, ddl_deadline deadline)
{
    if (course->bootstrap != NULL)
        course->bootstrap->store = NULL;
    ddl_store_destroy(course->store, deadline);
    course->store = NULL;
}

static void forget_run(ddl_course *course)
{
    course->bootstrap->forming = NULL;
    (void)ddl_meshing_close(course->meshing, course->options->deadline, NULL);
    course->meshing = NULL;
    ddl_course_close_store(course, ddl_now_ns());
}

ddl_status ddl_course_come_to_place(ddl_course *course, ddl_deadline deadline, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    const ddl_store_options store = { .url = options->store,
                                      .place = options->master,
                                      .self = &course->self,
                                      .encryption = options->encryption,
                                      .service = options->service,
                                      .network = course->network,
                                      .progress = &course->progress,
                                      .is_modest = options->lack != NULL };
    DDL_TRY(ddl_store_open(&store, deadline, &course->store, err));
    course->bootstrap->store = course->store;
    if (options->quiet && options->rank != 0) /* rank 0 tells of the others */
        course->progress.next = DDL_DEADLINE_NEVER;
    memcpy(course->self.run_id, ddl_store_run_id(course->store), DDL_RUN_ID_BYTES);
    return DDL_OK;
}

ddl_status ddl_course_enter_run(ddl_course *course, ddl_error *err)
{
    const ddl_bootstrap_options *options = course->options;
    for (;;) {
        bool over = false;
        DDL_TRY(ddl_course_come_to_place(course, options->deadline, err));
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
