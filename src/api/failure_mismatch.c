/* failure_mismatch.c - what is said of calls that differ. */
#include "api/failure_parts.h"

#include "api/settings.h"
#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

enum { DIGITS = 16 }; /* of a digest */
#define DIGEST     "counts #"
#define OWN_COUNTS "; the counts of this rank are "

/* "allreduce(count 20, float32, sum, by ring)" */
static void describe_call(const ddl_signature *signature, char *text, size_t capacity)
{
    size_t rows;
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    if (signature->collective == DDL_SIGNATURE_FREE || signature->collective == DDL_SIGNATURE_SPLIT) {
        snprintf(text, capacity, "comm_%s()", signature->collective == DDL_SIGNATURE_FREE ? "free" : "split");
        return;
    }
    const char *name = signature->collective < DDL_COLLECTIVE_COUNT
                           ? ddl_collective_name((ddl_collective)signature->collective)
                           : "an unknown operation";
    char root[32] = "", op[32] = "", dtype[32] = "", count[64] = "";
    if (signature->root >= 0)
        snprintf(root, sizeof root, ", root %d", (int)signature->root);
    if (signature->op != 0xff)
        snprintf(op, sizeof op, ", %s", ddl_op_name((ddl_op)signature->op));
    if (signature->dtype != 0xff) {
        snprintf(dtype, sizeof dtype, ", %s", ddl_dtype_name((ddl_dtype)signature->dtype));
        if (signature->collective == DDL_COLLECTIVE_ALLTOALLV)
            snprintf(count, sizeof count, "counts of its own");
        else if (signature->collective < DDL_COLLECTIVE_COUNT &&
                 ddl_collective_is_uneven((ddl_collective)signature->collective))
            snprintf(count, sizeof count, DIGEST "%0*llx", DIGITS, (unsigned long long)signature->count);
        else
            snprintf(count, sizeof count, "count %llu", (unsigned long long)signature->count);
    }
    snprintf(text, capacity, "%s(%s%s%s%s) by %s", name, count, dtype, op, root,
             signature->algorithm < rows ? catalogue[signature->algorithm].name : "?");
}

/* What is to be done about it. Of other ranks it is not known what they are set to: whoever has set nothing
 * cannot tell whether they have. */
static void advise(const ddl_comm *comm, const ddl_signature *low, const ddl_signature *high, char *text,
                   size_t capacity)
{
    ddl_signature with_algorithm = *low;
    char setting[DDL_SETTING_NAME];
    with_algorithm.algorithm = high->algorithm;
    if (low->collective >= DDL_COLLECTIVE_COUNT || !ddl_signature_same(&with_algorithm, high)) {
        snprintf(text, capacity, "every rank must make the same call");
        return;
    }
    ddl_setting_of((ddl_collective)low->collective, setting);
    if (comm->world->config.forced[low->collective] != NULL)
        snprintf(text, capacity,
                 "these are the same but for the algorithm; %s must be the same on every rank", setting);
    else
        snprintf(
            text, capacity,
            "these are the same but for the algorithm; %s is not set on rank %d, nor may it be on others; "
            "if it is not, this is an error of ddl",
            setting, comm->rank);
}

static void call_text(const ddl_comm *comm, ddl_notice *notice, const ddl_signature *low,
                      const ddl_signature *high)
{
    char low_call[112], high_call[112], low_rank[112], high_rank[112], advice[192];
    describe_call(low, low_call, sizeof low_call);
    describe_call(high, high_call, sizeof high_call);
    advise(comm, low, high, advice, sizeof advice);
    snprintf(notice->text, sizeof notice->text, "%s called %s, but %s called %s; %s",
             ddl_comm_describe(comm, notice->witness, low_rank, sizeof low_rank), low_call,
             ddl_comm_describe(comm, notice->culprit, high_rank, sizeof high_rank), high_call, advice);
}

/* Both are in the same alltoallv, but do not agree on what one sends to the other. */
static void pair_text(const ddl_comm *comm, ddl_notice *notice, int sender, uint64_t sent, int receiver,
                      uint64_t expected)
{
    char from[112], to[112];
    snprintf(notice->text, sizeof notice->text,
             "in alltoallv %s sends %llu elements to %s, which expects %llu; send_counts of the one must be "
             "recv_counts of the other",
             ddl_comm_describe(comm, sender, from, sizeof from), (unsigned long long)sent,
             ddl_comm_describe(comm, receiver, to, sizeof to), (unsigned long long)expected);
}

/* Of a send and a receive that meet. */
static void message_text(const ddl_comm *comm, ddl_notice *notice, int sender, const ddl_signature *sent,
                         int receiver, const ddl_signature *expected)
{
    char from[112], to[112];
    snprintf(notice->text, sizeof notice->text,
             "%s sends %llu %s to %s, which expects %llu %s; ddl_send of the one must have the count and the "
             "type of ddl_recv of the other",
             ddl_comm_describe(comm, sender, from, sizeof from), (unsigned long long)sent->count,
             ddl_dtype_name((ddl_dtype)sent->dtype), ddl_comm_describe(comm, receiver, to, sizeof to),
             (unsigned long long)expected->count, ddl_dtype_name((ddl_dtype)expected->dtype));
}

static bool same_but_count(const ddl_signature *a, const ddl_signature *b)
{
    ddl_signature with_count = *a;
    with_count.count = b->count;
    return ddl_signature_same(&with_count, b);
}

static void name_operation(ddl_notice *notice, const ddl_signature *call)
{
    const bool is_collective = call->collective < DDL_COLLECTIVE_COUNT;
    snprintf(notice->operation, sizeof notice->operation, "%s",
             is_collective ? ddl_collective_name((ddl_collective)call->collective) : "");
}

ddl_notice ddl_failure_mismatch(const ddl_comm *comm, const ddl_frame *frame, const ddl_signature *ours,
                                int peer, const ddl_signature *theirs)
{
    int own = comm->rank;
    const bool of_message = !ddl_channel_is_collective(frame->channel);
    ddl_notice notice = { .code = DDL_EMISMATCH, .sequence = of_message ? 0 : frame->sequence };
    notice.witness = own < peer ? own : peer;
    notice.culprit = own < peer ? peer : own;
    const ddl_signature *low = own < peer ? ours : theirs, *high = own < peer ? theirs : ours;
    name_operation(&notice, low);
    bool of_pair = ours->collective == DDL_COLLECTIVE_ALLTOALLV && same_but_count(ours, theirs);
    bool we_send = ddl_failure_is_from_receiver(frame) || (frame->type == DDL_FRAME_ENTER && !of_message);
    if (of_message && we_send)
        message_text(comm, &notice, own, ours, peer, theirs);
    else if (of_message)
        message_text(comm, &notice, peer, theirs, own, ours);
    else if (!of_pair)
        call_text(comm, &notice, low, high);
    else if (we_send)
        pair_text(comm, &notice, own, ours->count, peer, theirs->count);
    else
        pair_text(comm, &notice, peer, theirs->count, own, ours->count);
    return notice;
}

void ddl_failure_describe_pair(const ddl_comm *comm, ddl_notice *notice, const ddl_signature *low,
                               const ddl_signature *high)
{
    name_operation(notice, low);
    call_text(comm, notice, low, high);
}

ddl_notice ddl_failure_stray(const ddl_comm *comm, const ddl_frame *frame, int peer,
                             const ddl_signature *theirs)
{
    if (theirs->collective == DDL_COLLECTIVE_ALLTOALLV || !ddl_channel_is_collective(frame->channel)) {
        ddl_signature nothing = *theirs;
        nothing.count = 0;
        return ddl_failure_mismatch(comm, frame, &nothing, peer, theirs);
    }
    char call[112], who[112], own[112];
    ddl_notice notice = { .code = DDL_EMISMATCH, .sequence = frame->sequence };
    notice.witness = comm->rank < peer ? comm->rank : peer;
    notice.culprit = comm->rank < peer ? peer : comm->rank;
    describe_call(theirs, call, sizeof call);
    snprintf(
        notice.text, sizeof notice.text,
        "%s called %s and wants to exchange with %s, which did not in its call of the same place; every rank "
        "must make the same call",
        ddl_comm_describe(comm, peer, who, sizeof who), call,
        ddl_comm_describe(comm, comm->rank, own, sizeof own));
    return notice;
}

/* Whether the text has two digests that differ. */
static bool is_of_counts(const char *text)
{
    const char *first = strstr(text, DIGEST);
    const char *second = first != NULL ? strstr(first + 1, DIGEST) : NULL;
    return second != NULL && strncmp(first, second, sizeof DIGEST - 1 + DIGITS) != 0;
}

/* NULL: this rank's call is not in flight, or has none. */
static const size_t *counts_in_flight(const ddl_comm *comm, uint64_t sequence)
{
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (ddl_request_is_collective(request) && request->task.sequence == sequence)
            return request->task.shape.blocks.counts;
    }
    return NULL;
}

void ddl_failure_add_own_counts(const ddl_comm *comm, ddl_notice *cause)
{
    const size_t *counts = counts_in_flight(comm, cause->sequence);
    char list[sizeof cause->text], next[64], more[32] = "";
    const size_t there = strlen(cause->text);
    size_t used = 0;
    if (counts == NULL || !is_of_counts(cause->text))
        return;
    for (int rank = 0; rank < comm->nranks; rank++) {
        const int left = comm->nranks - rank - 1;
        const int bytes = snprintf(next, sizeof next, "%s%zu", rank > 0 ? ", " : "", counts[rank]);
        const int rest = left > 0 ? snprintf(NULL, 0, ", and %d more", left) : 0;
        if (there + strlen(OWN_COUNTS) + used + (size_t)bytes + (size_t)rest >= sizeof cause->text) {
            snprintf(more, sizeof more, ", and %d more", left + 1);
            break;
        }
        memcpy(list + used, next, (size_t)bytes);
        used += (size_t)bytes;
    }
    list[used] = '\0';
    if (used > 0)
        snprintf(cause->text + there, sizeof cause->text - there, OWN_COUNTS "%s%s", list, more);
}
