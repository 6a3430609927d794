/* failpoint.c - counts hits of fallible sites, and says which one fails. */
#include "base/failpoint.h"

#ifdef DDL_FAILPOINTS

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STALL_MS = 5000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool armed_from_environment;
static char armed_site[64];
static uint64_t armed_nth; /* 0: every hit */
static bool armed_onward;  /* and all after that */
static uint64_t all_hits, site_hits;

static void arm(const char *setting)
{
    armed_site[0] = '\0';
    armed_nth = all_hits = site_hits = 0;
    armed_onward = false;
    if (setting == NULL)
        return;
    const char *colon = strrchr(setting, ':');
    size_t name_bytes = colon != NULL ? (size_t)(colon - setting) : strlen(setting);
    if (name_bytes >= sizeof armed_site) {
        fprintf(stderr, "ddl: DDL_FAILPOINTS: no site has a name as long as \"%s\"\n", setting);
        abort();
    }
    memcpy(armed_site, setting, name_bytes);
    armed_site[name_bytes] = '\0';
    if (colon != NULL) {
        char *rest;
        armed_nth = strtoull(colon + 1, &rest, 10);
        armed_onward = *rest == '+';
    }
}

void ddl_failpoint_arm(const char *setting)
{
    pthread_mutex_lock(&lock);
    armed_from_environment = true;
    arm(setting);
    pthread_mutex_unlock(&lock);
}

uint64_t ddl_failpoint_hits(void)
{
    pthread_mutex_lock(&lock);
    uint64_t hits = all_hits;
    pthread_mutex_unlock(&lock);
    return hits;
}

/* With the lock. */
static bool count(const char *site, bool may_be_any)
{
    if (!armed_from_environment) {
        armed_from_environment = true;
        arm(getenv("DDL_FAILPOINTS"));
    }
    all_hits += may_be_any;
    bool any = may_be_any && strcmp(armed_site, "*") == 0;
    bool named = any || strcmp(armed_site, site) == 0;
    if (named)
        site_hits++;
    return named && (armed_nth == 0 || site_hits == armed_nth || (armed_onward && site_hits > armed_nth));
}

bool ddl_failpoint_hit(const char *site)
{
    pthread_mutex_lock(&lock);
    bool fails = count(site, true);
    pthread_mutex_unlock(&lock);
    return fails;
}

bool ddl_failpoint_skip(const char *site)
{
    pthread_mutex_lock(&lock);
    bool skips = count(site, false);
    pthread_mutex_unlock(&lock);
    return skips;
}

void ddl_failpoint_stall(const char *site)
{
    if (ddl_failpoint_skip(site))
        (void)poll(NULL, 0, STALL_MS);
}

#else

typedef int ddl_failpoint_not_built; /* ISO C wants a declaration in every file */

#endif
