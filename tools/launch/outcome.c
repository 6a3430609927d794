/* outcome.c - whose failure it was. */
#include "outcome.h"

#include "program.h"

#include "base/assert.h"
#include "base/clock.h"

#include <sys/wait.h>

enum { TOGETHER_MS = 100 }; /* ends this close may have been seen in another order than they came about */

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

static bool ended_together(const launch_rank *rank, const launch_rank *seen_first)
{
    return rank->was_exiting || rank->ended_ns <= seen_first->ended_ns + TOGETHER_MS * DDL_NS_PER_MS;
}

launch_rank *launch_outcome_first(launch_rank *ranks, int nranks)
{
    launch_rank *seen_first = NULL, *first_crashed = NULL, *different = NULL;
    int least = 0;
    for (int i = 0; i < nranks; i++) {
        launch_rank *rank = &ranks[i];
        if (rank->order == 0 || rank->status == 0)
            continue;
        least = least == 0 || rank->order < least ? rank->order : least;
        if (seen_first == NULL || is_earlier(rank, seen_first))
            seen_first = rank;
    }
    if (seen_first == NULL)
        return NULL;
    int ntogether = 0, nlike_first = 0;
    for (int i = 0; i < nranks; i++) {
        launch_rank *rank = &ranks[i];
        if (rank->order == 0 || rank->status == 0 || (rank != seen_first && may_be_stopped(rank)) ||
            !ended_together(rank, seen_first))
            continue;
        ntogether++;
        if (rank->status == seen_first->status)
            nlike_first++;
        else
            different = rank;
        if (crashed(rank) && (first_crashed == NULL || rank->order < first_crashed->order))
            first_crashed = rank;
    }
    bool one_differs = ntogether > 2 && nlike_first == ntogether - 1;
    launch_rank *first = first_crashed != NULL ? first_crashed : one_differs ? different : seen_first;
    first->order = least;
    return first;
}

bool launch_outcome_is_by_signal(const launch_rank *ranks, int nranks, int signal, int64_t now_ns)
{
    for (int i = 0; i < nranks; i++) {
        const launch_rank *rank = &ranks[i];
        if (rank->order == 0 || rank->status == 0)
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
        return first == outcome->absent ? 1 : launch_exit_code(first->status);
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
