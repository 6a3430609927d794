/* climb.c - compares rates, and decides. */
#include "transport/climb.h"

#include "base/assert.h"
#include "base/clock.h"

void ddl_climb_begin(ddl_climb *climb, int most)
{
    DDL_ASSERT(most > 0);
    DDL_ASSERT((most & (most - 1)) == 0);
    *climb = (ddl_climb){ .count = 1, .most = most, .pause_ms = DDL_CLIMB_FIRST_PAUSE_MS };
}

bool ddl_climb_rests(const ddl_climb *climb, int64_t now_ns)
{
    return (climb->count == climb->most && !climb->tries) || now_ns < climb->rests_until;
}

static void use(ddl_climb *climb, int count)
{
    climb->count = count;
    climb->nseen = 0;
    climb->bytes = climb->us = 0;
    climb->has_last = false;
}

static bool go_back(ddl_climb *climb, int64_t now_ns)
{
    climb->tries = false;
    climb->rests_until = now_ns + climb->pause_ms * DDL_NS_PER_MS;
    if (climb->pause_ms < DDL_CLIMB_LAST_PAUSE_MS)
        climb->pause_ms *= 2;
    use(climb, climb->count / 2);
    return true;
}

/* Half as fast again, or it is not worth it. */
static bool decide(ddl_climb *climb, int64_t now_ns)
{
    const uint64_t rate = climb->bytes * 1000000 / climb->us;
    if (climb->tries && rate < climb->base + climb->base / 2)
        return go_back(climb, now_ns);
    climb->base = rate;
    climb->tries = rate > 0 && climb->count < climb->most;
    climb->tried_ns = now_ns;
    use(climb, climb->tries ? 2 * climb->count : climb->count);
    return climb->tries;
}

bool ddl_climb_see(ddl_climb *climb, const ddl_climb_look *look, int64_t now_ns)
{
    const ddl_climb_look before = climb->last;
    const bool is_stretch = climb->has_last && before.has_more && look->has_more;
    const uint64_t bytes = look->acked_bytes - before.acked_bytes, us = look->busy_us - before.busy_us;
    const uint64_t passed_us = (uint64_t)(now_ns - climb->last_ns) / 1000;
    climb->last = *look;
    climb->last_ns = now_ns;
    climb->has_last = true;
    if (climb->tries && now_ns - climb->tried_ns > DDL_CLIMB_TRIAL_MS * DDL_NS_PER_MS)
        return go_back(climb, now_ns); /* the network takes what it is given: there is nothing to compare */
    if (!is_stretch || us == 0 || us < passed_us / 4 * 3)
        return false;
    if (climb->nseen++ < DDL_CLIMB_SETTLE)
        return false;
    climb->bytes += bytes;
    climb->us += us;
    return climb->nseen == DDL_CLIMB_SETTLE + DDL_CLIMB_LOOKS && decide(climb, now_ns);
}
