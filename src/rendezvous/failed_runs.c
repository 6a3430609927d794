/* failed_runs.c - see failed_runs.h. */
#include "rendezvous/failed_runs.h"

#include "base/clock.h"

#include <pthread.h>
#include <string.h>

enum {
    KEPT = 64,
    KEPT_MS = 10000 /* rank 0 has left by then: a run that is still there has not failed for all */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct {
    ddl_deadline until; /* 0: unused */
    int rank;
    uint8_t run_id[DDL_RUN_ID_BYTES];
} runs[KEPT];
static int next;

void ddl_failed_runs_add(const uint8_t run_id[DDL_RUN_ID_BYTES], int rank)
{
    pthread_mutex_lock(&lock);
    runs[next].until = ddl_deadline_in_ms(KEPT_MS);
    runs[next].rank = rank;
    memcpy(runs[next].run_id, run_id, DDL_RUN_ID_BYTES);
    next = (next + 1) % KEPT;
    pthread_mutex_unlock(&lock);
}

bool ddl_failed_runs_have(const uint8_t run_id[DDL_RUN_ID_BYTES], int rank)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    const int64_t now_ns = ddl_now_ns();
    for (int i = 0; i < KEPT && !found; i++)
        found = now_ns < runs[i].until && runs[i].rank == rank &&
                memcmp(runs[i].run_id, run_id, DDL_RUN_ID_BYTES) == 0;
    pthread_mutex_unlock(&lock);
    return found;
}
