/* crier.c - a short queue of lines, and the thread that tells them. */
#include "base/crier.h"

#include "base/bell.h"
#include "base/thread.h"

#include <stdint.h>
#include <stdio.h>

enum { LINES = 16, PATIENCE_MS = 500 };

static struct {
    ddl_bell bell;
    ddl_log_sink *sink;
    void *arg;
    bool has_thread, is_telling;
    ddl_deadline told_by;  /* is_telling: who waits for that waits until then */
    uint64_t told, queued; /* lines since the start; line n is at n % LINES */
    char lines[LINES][DDL_CRIER_LINE];
} crier;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget_in_child(void)
{
    ddl_bell_init(&crier.bell);
    crier.has_thread = crier.is_telling = false;
    crier.told = crier.queued;
}

static void set_up(void)
{
    ddl_bell_init(&crier.bell);
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* With the lock, which is given away meanwhile: the oldest line. */
static void tell_oldest(void)
{
    ddl_log_sink *sink = crier.sink;
    void *arg = crier.arg;
    const char *line = crier.lines[crier.told % LINES];
    crier.is_telling = true;
    crier.told_by = ddl_deadline_in_ms(PATIENCE_MS);
    ddl_bell_unlock(&crier.bell);
    sink(arg, line);
    ddl_bell_lock(&crier.bell);
    crier.is_telling = false;
    crier.told++;
    ddl_bell_ring(&crier.bell);
}

static void *tell_all(void *arg)
{
    (void)arg;
    ddl_bell_lock(&crier.bell);
    while (crier.sink != NULL) {
        if (crier.told < crier.queued)
            tell_oldest();
        else
            (void)ddl_bell_wait(&crier.bell, DDL_DEADLINE_NEVER);
    }
    crier.has_thread = false;
    ddl_bell_unlock(&crier.bell);
    return NULL;
}

void ddl_crier_set(ddl_log_sink *sink, void *arg)
{
    pthread_once(&once, set_up);
    ddl_bell_lock(&crier.bell);
    while (crier.is_telling)
        (void)ddl_bell_wait(&crier.bell, DDL_DEADLINE_NEVER);
    crier.sink = sink;
    crier.arg = arg;
    if (sink == NULL)
        crier.told = crier.queued;
    ddl_bell_ring(&crier.bell);
    ddl_bell_unlock(&crier.bell);
}

bool ddl_crier_tell(const char *line)
{
    pthread_once(&once, set_up);
    ddl_bell_lock(&crier.bell);
    if (crier.sink == NULL) {
        ddl_bell_unlock(&crier.bell);
        return false;
    }
    const ddl_deadline end = crier.is_telling ? crier.told_by : ddl_deadline_in_ms(PATIENCE_MS);
    bool has_room;
    while (!(has_room = crier.queued - crier.told < LINES) && ddl_bell_wait(&crier.bell, end))
        continue;
    if (has_room) {
        const uint64_t number = crier.queued;
        snprintf(crier.lines[number % LINES], DDL_CRIER_LINE, "%s", line);
        crier.queued++;
        if (!crier.has_thread)
            crier.has_thread = ddl_thread_start_detached(tell_all, NULL) == 0;
        if (!crier.has_thread && !crier.is_telling) /* there can be none */
            tell_oldest();
        ddl_bell_ring(&crier.bell);
        while (crier.told <= number && ddl_bell_wait(&crier.bell, end))
            continue;
    }
    ddl_bell_unlock(&crier.bell);
    return true;
}
