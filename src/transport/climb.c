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
    return climb->most == 1 || now_ns < climb->rests_until;
}

static void use(ddl_climb *climb, int count)
{
    climb->count = count;
    climb->nidle = climb->nseen = 0;
    climb->bytes = climb->us = 0;
    climb->has_last = false;
}

void ddl_climb_limit(ddl_climb *climb, int most)
{
    if (most >= climb->most)
        return;
    climb->most = most;
    if (climb->count <= most && climb->before <= most)
        return;
    climb->before = 0;
    climb->descends = false;
    use(climb, climb->count < most ? climb->count : most);
}

/* The count that it had, and the other direction next, where there is one. */
static bool go_back(ddl_climb *climb, int64_t now_ns)
{
    const int before = climb->before;
    climb->before = 0;
    climb->descends = climb->count > before ? before > 1 : before == climb->most;
    climb->rests_until = now_ns + climb->pause_ms * DDL_NS_PER_MS;
    if (climb->pause_ms < DDL_CLIMB_LAST_PAUSE_MS)
        climb->pause_ms *= 2;
    use(climb, before);
    return true;
}

/* Half as fast again, or more are not worth it. */
static bool is_worth_it(uint64_t more, uint64_t fewer)
{
    return more >= fewer + fewer / 2;
}

/* Its rate is known: the next one in the same direction. True: there is one. */
static bool try_next(ddl_climb *climb, uint64_t rate, int64_t now_ns)
{
    const int next = climb->descends ? climb->count / 2 : 2 * climb->count;
    climb->base = rate;
    climb->before = 0;
    if (rate == 0 || next == 0 || next > climb->most) {
        climb->descends = climb->count == climb->most;
        climb->rests_until = now_ns + climb->pause_ms * DDL_NS_PER_MS;
        use(climb, climb->count);
        return false;
    }
    climb->before = climb->count;
    climb->tried_ns = now_ns;
    use(climb, next);
    return true;
}

static bool decide(ddl_climb *climb, int64_t now_ns)
{
    const uint64_t rate = climb->bytes * 1000000 / climb->us;
    const bool more = climb->count > climb->before;
    if (climb->before == 0)
        return try_next(climb, rate, now_ns);
    if (more != is_worth_it(more ? rate : climb->base, more ? climb->base : rate))
        return go_back(climb, now_ns);
    climb->pause_ms = DDL_CLIMB_FIRST_PAUSE_MS;
    return try_next(climb, rate, now_ns);
}

/* They are idle between what they are given: there is nothing to compare. */
static bool be_in_vain(ddl_climb *climb, int64_t now_ns)
{
    if (climb->before > 0)
        return go_back(climb, now_ns);
    use(climb, climb->count);
    return false;
}

bool ddl_climb_see(ddl_climb *climb, const ddl_climb_look *look, int64_t now_ns)
{
    const ddl_climb_look before = climb->last;
    const bool is_stretch = climb->has_last;
    const bool is_first = climb->count == 1 && climb->before == 0;
    const bool waits = !is_first || (before.has_more && look->has_more);
    const uint64_t bytes = look->acked_bytes - before.acked_bytes, us = look->busy_us - before.busy_us;
    const uint64_t passed_us = (uint64_t)(now_ns - climb->last_ns) / 1000;
    climb->last = *look;
    climb->last_ns = now_ns;
    climb->has_last = true;
    if (climb->before > 0 && now_ns - climb->tried_ns > DDL_CLIMB_TRIAL_MS * DDL_NS_PER_MS)
        return be_in_vain(climb, now_ns);
    if (!is_stretch)
        return false;
    if (us == 0 || us < passed_us / 4 * 3 || !waits)
        return ++climb->nidle >= DDL_CLIMB_IDLE && climb->nidle >= 3 * climb->nseen &&
               be_in_vain(climb, now_ns);
    if (climb->nseen++ < DDL_CLIMB_SETTLE)
        return false;
    climb->bytes += bytes;
    climb->us += us;
    return climb->nseen == DDL_CLIMB_SETTLE + DDL_CLIMB_LOOKS && decide(climb, now_ns);
}
