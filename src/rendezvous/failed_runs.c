/* failed_runs.c - see failed_runs.h. */
#include "rendezvous/failed_runs.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct {
    bool is_used;
    int rank;
    uint8_t run_id[DDL_RUN_ID_BYTES];
} runs[KEPT];
static int next;

void ddl_failed_runs_add(const uint8_t run_id[DDL_RUN_ID_BYTES], int rank)
{
    pthread_mutex_lock(&lock);
    runs[next].is_used = true;
    runs[next].rank = rank;
    memcpy(runs[next].run_id, run_id, DDL_RUN_ID_BYTES);
    next = (next + 1) % KEPT;
    pthread_mutex_unlock(&lock);
}

bool ddl_failed_runs_have(const uint8_t run_id[DDL_RUN_ID_BYTES], int rank)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !found; i++)
        found =
            runs[i].is_used && runs[i].rank == rank && memcmp(runs[i].run_id, run_id, DDL_RUN_ID_BYTES) == 0;
    pthread_mutex_unlock(&lock);
    return found;
}
