/* vigil.c - times without a sign add up until there is one. */
#include "protocol/vigil.h"

#include "base/clock.h"

enum {
    PINGS = 8,             /* in the shorter limit */
    BREAK_MS = 2000,       /* it was not waited for in between, or nobody looked */
    MOST_MS = 500,         /* that one look counts for */
    LEAST_BYTES = 4 * 1024 /* more than pings make: a host takes these while its process stands still */
};

/*
 * A host that takes nothing more answers all the same. But one that hears nothing sends too: data again,
 * which brings old acknowledgements along, and probes of a window that it believes closed, which have no data
 * and acknowledge nothing, as they are not in the order of the stream. Each shows in one of the two signs
 * alone.
 */
static bool has_answered(const ddl_vigil *vigil, const ddl_signs *signs, int64_t passed_ns)
{
    return signs->answers != vigil->signs.answers && signs->ack_ns < passed_ns;
}

/* A process that goes on reading is a sign, and so is a slow network that goes on carrying. But what is said
 * to a process that stands still its host takes all the same; twice that, as encryption adds to it. */
static bool is_sign(const ddl_vigil *vigil, const ddl_signs *signs)
{
    const uint64_t least = signs->has_acks ? LEAST_BYTES + 2 * (signs->said - vigil->said_before) : 1;
    return signs->heard != vigil->signs.heard || signs->taken - vigil->taken_before >= least;
}

/* From one ping to the next, and silence before the first. */
static int64_t ping_ns_of(const ddl_vigil_limits *limits)
{
    const bool is_process = limits->unresponsive_ns < limits->unreachable_ns;
    return (is_process ? limits->unresponsive_ns : limits->unreachable_ns) / PINGS;
}

bool ddl_vigil_hears(const ddl_vigil *vigil, const ddl_vigil_limits *limits)
{
    return vigil->silent_ns < limits->unreachable_ns / 2;
}

ddl_vigil_verdict ddl_vigil_look(ddl_vigil *vigil, const ddl_signs *signs, const ddl_vigil_limits *limits,
                                 int64_t now_ns, bool *ping)
{
    int64_t passed_ns = now_ns - vigil->looked_ns;
    const bool is_new = vigil->looked_ns == 0 || passed_ns > BREAK_MS * DDL_NS_PER_MS;
    if (passed_ns > MOST_MS * DDL_NS_PER_MS)
        passed_ns = MOST_MS * DDL_NS_PER_MS;
    const bool is_silent = vigil->verdict != DDL_VIGIL_ALIVE; /* which a break does not change */
    bool is_anew = is_new && !is_silent;
    if (is_anew || is_sign(vigil, signs)) {
        /* A host that was cut off is there again. One that is heard all the time, but acknowledges nothing,
         * does not get what is sent to it, or not what is large. */
        is_anew = is_anew || !ddl_vigil_hears(vigil, limits);
        vigil->silent_ns = 0;
        vigil->taken_before = signs->taken;
        vigil->said_before = signs->said;
    } else {
        vigil->silent_ns += passed_ns;
    }
    const bool is_acked =
        !signs->awaits_acks || signs->taken != vigil->signs.taken || has_answered(vigil, signs, passed_ns);
    vigil->unacked_ns = is_anew || is_acked ? 0 : vigil->unacked_ns + passed_ns;
    if (vigil->unacked_ns == 0 || signs->tries != vigil->signs.tries)
        vigil->tried_ns = vigil->unacked_ns;
    vigil->looked_ns = now_ns;
    vigil->signs = *signs;
    /* Not where data comes: its sender may have ended since, and a host resets a connection to which
     * something comes that nobody will read, with what it still had to send. */
    const int64_t ping_ns = ping_ns_of(limits);
    *ping = vigil->silent_ns >= ping_ns && now_ns - vigil->pinged_ns >= ping_ns;
    if (*ping)
        vigil->pinged_ns = now_ns;
    /* TCP sends again after twice as long each time, so a network that is there again may not have been tried
     * for as long as it was gone; but once in the second half of the limit. Nobody waits for that for ever,
     * unless it is heard.
     */
    const bool was_tried = vigil->tried_ns >= limits->unreachable_ns / 2;
    const bool is_heard = ddl_vigil_hears(vigil, limits);
    const bool is_due = was_tried || (!is_heard && vigil->unacked_ns >= 2 * limits->unreachable_ns);
    if (vigil->unacked_ns >= limits->unreachable_ns && is_due)
        return vigil->verdict = DDL_VIGIL_UNREACHABLE;
    if (vigil->silent_ns < limits->unresponsive_ns)
        return vigil->verdict = DDL_VIGIL_ALIVE;
    /* A host that stopped acknowledging long ago would have been found to be gone, had there been time. */
    const bool is_gone = vigil->unacked_ns > vigil->silent_ns / 2;
    return vigil->verdict = is_gone ? DDL_VIGIL_UNREACHABLE : DDL_VIGIL_UNRESPONSIVE;
}
