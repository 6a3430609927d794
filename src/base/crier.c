/* crier.c - a short queue of lines, and the thread that tells them. */
#include "base/crier.h"

#include "base/bell.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/thread.h"

#include <stdint.h>
#include <stdio.h>

enum { LINES = 16, PATIENCE_MS = 500 };

typedef struct crier {
    ddl_bell bell;
    ddl_log_sink *sink;
    void *arg;
    bool has_thread, is_telling;
    int nsetters;          /* who wait to set another one: no line is begun */
    ddl_deadline told_by;  /* is_telling: who waits for that waits until then */
    uint64_t told, queued; /* lines since the start; line n is at n % LINES */
    char lines[LINES][DDL_CRIER_LINE];
    struct crier *parents; /* of a forked child: where nobody looks any more */
} crier;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static crier first;
static crier *own = &first; /* NULL: in a child without memory; another one in each child */

/* The parent's lock may be held, and threads that wait there are none of this process. */
static void renew_in_child(void)
{
    crier *parents = own;
    own = ddl_alloc(sizeof *own);
    if (own == NULL)
        return;
    ddl_bell_init(&own->bell);
    own->parents = parents;
    if (parents != NULL) {
        own->sink = parents->sink;
        own->arg = parents->arg;
    }
}

static void set_up(void)
{
    ddl_bell_init(&first.bell);
    pthread_atfork(NULL, NULL, renew_in_child);
}

static crier *enter(void)
{
    pthread_once(&once, set_up);
    if (own != NULL)
        ddl_bell_lock(&own->bell);
    return own;
}

/* With the lock, which is given away meanwhile: the oldest line. */
static void tell_oldest(crier *c)
{
    ddl_log_sink *sink = c->sink;
    void *arg = c->arg;
    const char *line = c->lines[c->told % LINES];
    c->is_telling = true;
    c->told_by = ddl_deadline_in_ms(PATIENCE_MS);
    ddl_bell_unlock(&c->bell);
    sink(arg, line);
    ddl_bell_lock(&c->bell);
    c->is_telling = false;
    c->told += c->told < c->queued; /* or all were dropped meanwhile */
    ddl_bell_ring(&c->bell);
}

static bool may_tell(const crier *c)
{
    return c->sink != NULL && c->told < c->queued && !c->is_telling && c->nsetters == 0;
}

static void *tell_all(void *arg)
{
    crier *c = arg;
    ddl_bell_lock(&c->bell);
    while (c->sink != NULL) {
        if (may_tell(c))
            tell_oldest(c);
        else
            (void)ddl_bell_wait(&c->bell, DDL_DEADLINE_NEVER);
    }
    c->has_thread = false;
    ddl_bell_unlock(&c->bell);
    return NULL;
}

/* Until the deadline for the one before. */
static void set(ddl_log_sink *sink, void *arg, ddl_deadline deadline)
{
    crier *c = enter();
    if (c == NULL)
        return;
    c->nsetters++;
    while (c->is_telling && ddl_bell_wait(&c->bell, deadline))
        continue;
    c->nsetters--;
    c->sink = sink;
    c->arg = arg;
    if (sink == NULL)
        c->told = c->queued;
    ddl_bell_ring(&c->bell);
    ddl_bell_unlock(&c->bell);
}

void ddl_crier_set(ddl_log_sink *sink, void *arg)
{
    set(sink, arg, DDL_DEADLINE_NEVER);
}

void ddl_crier_end(void)
{
    set(NULL, NULL, ddl_deadline_in_ms(PATIENCE_MS));
}

/* Where there can be no thread, by whoever waits for line number. */
static void tell_until(crier *c, uint64_t number)
{
    while (!c->has_thread && c->told <= number && may_tell(c))
        tell_oldest(c);
}

bool ddl_crier_tell(const char *line)
{
    crier *c = enter();
    if (c == NULL)
        return false;
    if (c->sink == NULL) {
        ddl_bell_unlock(&c->bell);
        return false;
    }
    const ddl_deadline end = c->is_telling ? c->told_by : ddl_deadline_in_ms(PATIENCE_MS);
    while (c->queued - c->told == LINES && ddl_bell_wait(&c->bell, end))
        continue;
    if (c->queued - c->told < LINES) {
        const uint64_t number = c->queued++;
        snprintf(c->lines[number % LINES], DDL_CRIER_LINE, "%s", line);
        if (!c->has_thread)
            c->has_thread = !DDL_FAILPOINT("base.crier") && ddl_thread_start_detached(tell_all, c) == 0;
        ddl_bell_ring(&c->bell);
        do
            tell_until(c, number);
        while (c->told <= number && ddl_bell_wait(&c->bell, end));
    }
    ddl_bell_unlock(&c->bell);
    return true;
}
