/* aside.c - a thread acts, and whoever sent it waits by deadline. */
#include "base/aside.h"

#include "base/bell.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/thread.h"

enum {
    LEAST_MS = 100, /* where the time is over, but nothing hangs */
    WARNING_MS = 5000,
    STOPPED_MS = 50, /* who sees its deadline so late was stopped, and so was its thread */
    GRACE_MS = 500,
};

/* Shared by both threads until one of them has no more to do with it. */
struct trip {
    ddl_bell bell; /* guards is_done and is_lost; rings when it is done */
    ddl_aside aside;
    bool is_done, is_lost;
    ddl_status status;
    ddl_error error;
};

static void forget(struct trip *trip)
{
    ddl_bell_fini(&trip->bell);
    ddl_free(trip);
}

static void *go(void *arg)
{
    struct trip *trip = arg;
    trip->status = trip->aside.act(trip->aside.state, &trip->error);
    ddl_bell_lock(&trip->bell);
    trip->is_done = true;
    const bool is_lost = trip->is_lost;
    ddl_bell_ring(&trip->bell);
    ddl_bell_unlock(&trip->bell);
    if (is_lost) {
        trip->aside.release(trip->aside.state);
        forget(trip);
    }
    return NULL;
}

/* With the bell's lock. */
static void wait_until(struct trip *trip, ddl_deadline deadline)
{
    while (!trip->is_done && ddl_bell_wait(&trip->bell, deadline))
        continue;
}

/* Whether it has come back in time. */
static bool await_return(struct trip *trip, ddl_deadline deadline)
{
    const ddl_deadline warning = ddl_deadline_in_ms(WARNING_MS);
    ddl_bell_lock(&trip->bell);
    wait_until(trip, ddl_deadline_earlier(deadline, warning));
    if (!trip->is_done && !ddl_deadline_passed(deadline)) {
        ddl_bell_unlock(&trip->bell); /* a program's log may take long */
        ddl_log(DDL_LOG_WARNING, "%s has not returned for 5 s; does the server of that file system answer?",
                trip->aside.what);
        ddl_bell_lock(&trip->bell);
        wait_until(trip, deadline);
    }
    if (!trip->is_done && ddl_now_ns() - deadline > STOPPED_MS * DDL_NS_PER_MS)
        wait_until(trip, ddl_deadline_in_ms(GRACE_MS));
    trip->is_lost = !trip->is_done;
    const bool is_done = trip->is_done;
    ddl_bell_unlock(&trip->bell);
    return is_done;
}

ddl_status ddl_aside_run(const ddl_aside *aside, ddl_deadline deadline, bool *lost, ddl_error *err)
{
    const int64_t start_ns = ddl_now_ns();
    pthread_t thread;
    *lost = false;
    struct trip *trip = ddl_alloc(sizeof *trip);
    if (trip == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %s", aside->what);
    ddl_bell_init(&trip->bell);
    trip->aside = *aside;
    if (DDL_FAILPOINT("base.aside") || ddl_thread_start(go, trip, &thread) != 0) {
        forget(trip);
        return aside->act(aside->state, err);
    }
    const ddl_deadline least = ddl_deadline_in_ms(LEAST_MS);
    if (!await_return(trip, deadline > least ? deadline : least)) {
        *lost = true;
        pthread_detach(thread);
        return DDL_FAIL(err, DDL_ETIMEDOUT,
                        "%.300s has not returned for %.1f s (DDL_START_TIMEOUT); does the server of that "
                        "file system answer?",
                        aside->what, (double)(ddl_now_ns() - start_ns) / 1e9);
    }
    pthread_join(thread, NULL);
    const ddl_status status = trip->status;
    if (status != DDL_OK && err != NULL)
        *err = trip->error;
    forget(trip);
    return status;
}
