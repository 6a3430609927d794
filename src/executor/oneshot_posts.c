/* oneshot_posts.c - what ranks say on their sheets, in rounds, by a schedule of few. */
#include "executor/oneshot_parts.h"

static bool is_sent_in(const ddl_step *step, int round)
{
    return step->kind == DDL_STEP_SEND && step->number == (uint32_t)round;
}

/* Whether no message of this round waits for what this step, which is of it, does. */
static bool comes_after_messages(const ddl_schedule *schedule, const ddl_step *step, int round)
{
    for (uint32_t i = 0; i < step->nsuccessors; i++)
        if (is_sent_in(&schedule->steps[schedule->successors[step->first_successor + i]], round))
            return false;
    return true;
}

/*
 * How many rounds there are, of messages at both ends that are numbered by their round, and leave before
 * anything else of it happens; 0: it is not so. sent and received are in each of them.
 */
static int count_rounds(const ddl_schedule *schedule, uint32_t sent[], uint32_t received[])
{
    int round = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_step *step = &schedule->steps[i];
        if (ddl_step_is_message(step)) {
            if (step->number >= DDL_ONESHOT_ROUNDS || (int)step->number < round ||
                step->target.part[1].bytes > 0)
                return 0;
            round = (int)step->number;
            (step->kind == DDL_STEP_SEND ? sent : received)[round]++;
        }
        if (step->kind != DDL_STEP_SEND && !comes_after_messages(schedule, step, round))
            return 0;
    }
    return round + 1;
}

/* As one of all, who have each something to say to each in each round; or, in one round, as the one or one of
 * the others, where one rank has messages for all others or from all. */
static bool has_its_messages(const ddl_schedule *schedule, int rounds, const uint32_t sent[],
                             const uint32_t received[])
{
    uint32_t others = (uint32_t)schedule->nranks - 1;
    bool among_all = rounds > 0;
    for (int round = 0; round < rounds; round++)
        among_all = among_all && sent[round] == others && received[round] == others;
    bool is_one = (sent[0] == others && received[0] == 0) || (sent[0] == 0 && received[0] == others);
    bool is_other = sent[0] + received[0] == 1;
    return among_all || (rounds == 1 && (is_one || is_other));
}

static void insert(ddl_oneshot_saying *said, ddl_slice slice)
{
    int at = said->nparts++;
    for (; at > 0 && said->parts[at - 1].offset > slice.offset; at--)
        said->parts[at] = said->parts[at - 1];
    said->parts[at] = slice;
}

/* Those that touch or overlap become one, which changes no place on the sheet. So that does not depend on
 * what is between them in a buffer, which only its owner knows (backend/layout.h). */
static void join(ddl_oneshot_saying *said)
{
    int kept = 0;
    for (int i = 1; i < said->nparts; i++) {
        ddl_slice *last = &said->parts[kept], *next = &said->parts[i];
        if (next->offset > ddl_slice_end(last))
            said->parts[++kept] = *next;
        else if (ddl_slice_end(next) > ddl_slice_end(last))
            last->bytes = ddl_slice_end(next) - last->offset;
    }
    said->nparts = kept + 1;
    for (int i = 0; i < said->nparts; i++)
        said->bytes += said->parts[i].bytes;
}

bool ddl_oneshot_find_said(const ddl_schedule *schedule, int round, ddl_oneshot_saying *said)
{
    said->nparts = 0;
    said->bytes = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_slice *slice = &schedule->steps[i].target.part[0];
        if (!is_sent_in(&schedule->steps[i], round))
            continue;
        if (said->nparts == DDL_BOARD_RANKS || (said->nparts > 0 && slice->buffer != said->parts[0].buffer))
            return false;
        insert(said, *slice);
    }
    if (said->nparts > 0)
        join(said);
    return true;
}

static size_t place_on_sheet(const ddl_oneshot_saying *said, const ddl_slice *message)
{
    size_t before = 0;
    int i = 0;
    while (ddl_slice_end(&said->parts[i]) < ddl_slice_end(message))
        before += said->parts[i++].bytes;
    return before + message->offset - said->parts[i].offset;
}

/* Whether nothing is put into scratch but what comes, which stays on its sheet instead; *says_scratch: what
 * it says is from there all the same; *reads: anything of what comes. */
static bool needs_no_scratch(const ddl_schedule *schedule, bool *says_scratch, bool *reads)
{
    *says_scratch = *reads = false;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_step *step = &schedule->steps[i];
        const bool is_scratch = step->target.part[0].buffer == DDL_BUFFER_SCRATCH;
        if (step->kind == DDL_STEP_SEND)
            *says_scratch = *says_scratch || is_scratch;
        else if (step->kind != DDL_STEP_RECV || !is_scratch)
            *reads = true;
        const bool is_local = step->kind != DDL_STEP_SEND && step->kind != DDL_STEP_RECV;
        if (is_local && (is_scratch || step->target.part[1].bytes > 0))
            return false;
    }
    return true;
}

/* The rounds of a schedule that is of such rounds; else 0. How it uses scratch is left in *posts. */
static int rounds_of(const ddl_schedule *schedule, uint32_t sent[], ddl_oneshot_posts *posts)
{
    uint32_t received[DDL_ONESHOT_ROUNDS] = { 0 };
    if (schedule->nranks < 2 || schedule->nranks > DDL_BOARD_RANKS ||
        !needs_no_scratch(schedule, &posts->says_scratch, &posts->reads))
        return 0;
    const int rounds = count_rounds(schedule, sent, received);
    return has_its_messages(schedule, rounds, sent, received) ? rounds : 0;
}

size_t ddl_oneshot_bytes(const ddl_schedule *schedule)
{
    uint32_t sent[DDL_ONESHOT_ROUNDS] = { 0 };
    ddl_oneshot_posts posts;
    const int rounds = rounds_of(schedule, sent, &posts);
    ddl_oneshot_saying said;
    size_t most = rounds > 0 ? 1 : 0;
    for (int round = 0; round < rounds; round++) {
        if (!ddl_oneshot_find_said(schedule, round, &said))
            return 0;
        most = said.bytes > most ? said.bytes : most;
    }
    return most;
}

ddl_oneshot_posts ddl_oneshot_posts_for(const ddl_schedule *schedule, int rank)
{
    ddl_oneshot_posts posts = { .rounds = 0 };
    uint32_t sent[DDL_ONESHOT_ROUNDS] = { 0 };
    const int rounds = rounds_of(schedule, sent, &posts);
    ddl_oneshot_saying said;
    for (int round = 0; round < rounds; round++) {
        if (!ddl_oneshot_find_said(schedule, round, &said) || said.bytes > DDL_POST_BYTES)
            return posts;
        posts.is_long[round] = said.bytes > DDL_SHEET_BYTES;
        for (uint32_t i = 0; i < schedule->nsteps; i++)
            if (is_sent_in(&schedule->steps[i], round) && schedule->steps[i].peer == rank) {
                posts.message[round] = schedule->steps[i].target.part[0];
                posts.at[round] = place_on_sheet(&said, &posts.message[round]);
            }
    }
    posts.sent = sent[0];
    posts.rounds = rounds;
    return posts;
}

/* With as many messages as there are pairs, or others. */
bool ddl_oneshot_is_possible(const ddl_oneshot_posts posts[], int nranks, bool may_be_rooted)
{
    uint32_t others = (uint32_t)nranks - 1, messages = 0;
    bool says_scratch = false, reads = false;
    for (int rank = 0; rank < nranks; rank++) {
        if (posts[rank].rounds == 0 || posts[rank].rounds != posts[0].rounds)
            return false;
        messages += posts[rank].sent;
        says_scratch = says_scratch || posts[rank].says_scratch;
        reads = reads || posts[rank].reads;
    }
    if (says_scratch && reads)
        return false;
    return messages == (uint32_t)nranks * others || (may_be_rooted && messages == others);
}
