/* outcome.c - whose failure it was. */
#include "outcome.h"

#include "program.h"

#include "base/assert.h"
#include "base/clock.h"

#include <sys/wait.h>

enum { TOGETHER_MS = 100 }; /* ends this close may have been seen in another order than they came about */

static bool has_failed(const launch_rank *rank)
{
    return rank->order != 0 && rank->status != 0;
}

static bool crashed(const launch_rank *rank)
{
    int signal = WIFSIGNALED(rank->status) ? WTERMSIG(rank->status) : 0;
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGKILL;
}

/* Who has failed before the launcher asked it to end comes before all who were asked. */
static bool is_earlier(const launch_rank *rank, const launch_rank *other)
{
    return rank->was_asked == other->was_asked ? rank->order < other->order : other->was_asked;
}

/* By a signal that the launcher may have sent. */
static bool may_be_stopped(const launch_rank *rank)
{
    return rank->was_asked && !rank->was_exiting && WIFSIGNALED(rank->status);
}

static const launch_rank *find_seen_first(const launch_rank *ranks, int nranks)
{
    const launch_rank *seen_first = NULL;
    for (const launch_rank *rank = ranks; rank < ranks + nranks; rank++)
        if (has_failed(rank) && (seen_first == NULL || is_earlier(rank, seen_first)))
            seen_first = rank;
    return seen_first;
}

/* Whether the rank failed by itself, and so close to the one that was seen first that it may have been before
 * it. */
static bool failed_together(const launch_rank *rank, const launch_rank *seen_first)
{
    if (rank == seen_first)
        return true;
    return has_failed(rank) && !may_be_stopped(rank) &&
           (rank->was_exiting || rank->ended_ns <= seen_first->ended_ns + TOGETHER_MS * DDL_NS_PER_MS);
}

static const launch_rank *find_crashed(const launch_rank *ranks, int nranks, const launch_rank *seen_first)
{
    const launch_rank *found = NULL;
    for (const launch_rank *rank = ranks; rank < ranks + nranks; rank++)
        if (failed_together(rank, seen_first) && crashed(rank) &&
            (found == NULL || rank->order < found->order))
            found = rank;
    return found;
}

/* The only one that ended in another way than the one that was seen first, and so than all others; NULL:
 * there is none, or it is one of two. */
static const launch_rank *find_different(const launch_rank *ranks, int nranks, const launch_rank *seen_first)
{
    const launch_rank *different = NULL;
    int ntogether = 0, ndifferent = 0;
    for (const launch_rank *rank = ranks; rank < ranks + nranks; rank++) {
        if (!failed_together(rank, seen_first))
            continue;
        ntogether++;
        if (rank->status == seen_first->status)
            continue;
        ndifferent++;
        different = rank;
    }
    return ntogether > 2 && ndifferent == 1 ? different : NULL;
}

const launch_rank *launch_outcome_find_culprit(const launch_rank *ranks, int nranks)
{
    const launch_rank *seen_first = find_seen_first(ranks, nranks), *culprit;
    if (seen_first == NULL)
        return NULL;
    if ((culprit = find_crashed(ranks, nranks, seen_first)) != NULL)
        return culprit;
    if ((culprit = find_different(ranks, nranks, seen_first)) != NULL)
        return culprit;
    return seen_first;
}

void launch_outcome_put_first(launch_rank *ranks, int nranks, const launch_rank *culprit)
{
    launch_rank *first = &ranks[culprit - ranks];
    for (int i = 0; i < nranks; i++)
        if (has_failed(&ranks[i]) && ranks[i].order < first->order)
            first->order = ranks[i].order;
}

bool launch_outcome_is_by_signal(const launch_rank *ranks, int nranks, int signal, int64_t now_ns)
{
    for (int i = 0; i < nranks; i++) {
        const launch_rank *rank = &ranks[i];
        if (!has_failed(rank))
            continue;
        if (!WIFSIGNALED(rank->status) || WTERMSIG(rank->status) != signal ||
            now_ns > rank->ended_ns + TOGETHER_MS * DDL_NS_PER_MS)
            return false;
    }
    return true;
}

/* Whether the rank ended by a signal that the launcher sends to stop a job; or, as it was asked to, with the
 * exit code by which a shell, or another launcher, says that it was. */
static bool was_stopped(const launch_outcome *outcome, const launch_rank *rank)
{
    if (WIFEXITED(rank->status)) {
        const int code = WEXITSTATUS(rank->status);
        return rank->was_asked && (code == 128 + SIGTERM || code == 128 + outcome->signal);
    }
    const int signal = WTERMSIG(rank->status);
    return signal == SIGTERM || signal == SIGKILL || signal == outcome->signal;
}

static bool lost_output(const launch_outcome *outcome)
{
    return outcome->write_error != 0 || outcome->log_cut != NULL;
}

int launch_outcome_exit_code(const launch_outcome *outcome)
{
    const launch_rank *first = outcome->first;
    switch (outcome->cause) {
    case LAUNCH_ENDED:
        return lost_output(outcome) || outcome->nunkillable > 0 || outcome->has_unseen ? LAUNCH_EXIT_FAILED
                                                                                       : 0;
    case LAUNCH_RANK_FAILED:
        return first->stayed_out ? 1 : launch_exit_code(first->status);
    case LAUNCH_SIGNALLED:
        if (first == NULL) /* all ended well on being asked */
            return outcome->output_cut ? 128 + outcome->signal : 0;
        return was_stopped(outcome, first) ? 128 + outcome->signal : launch_exit_code(first->status);
    case LAUNCH_TIME_LIMIT:
        return LAUNCH_EXIT_TIME_LIMIT;
    case LAUNCH_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case LAUNCH_NOT_STARTED:
        return launch_program_exit_code(outcome->os_errno);
    case LAUNCH_DEFECT:
        return LAUNCH_EXIT_FAILED;
    case LAUNCH_ORPHANED:
        return 128 + SIGKILL;
    }
    DDL_ASSERT(!"a cause");
    return LAUNCH_EXIT_FAILED;
}
