/*
 * split.c - communicators of parts of a communicator.
 *
 * All ranks tell each other color, key and an offer for the new id; what follows from that each works out
 * alone. They then tell each other whether they could make their part, so that it exists on all of its ranks
 * or on none.
 */
#include "api/issue.h"
#include "api/last_error.h"
#include "api/stream.h"
#include "base/bytes.h"
#include "base/failpoint.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_MS = 500 /* for a second round, whose first took all the time there was */ };

typedef struct card { /* what a rank tells the others; travels as int64 */
    int64_t color, key, offer, board;
} card;

enum { CARD_WORDS = sizeof(card) / sizeof(int64_t) };

typedef struct candidate {
    int64_t key;
    int rank; /* in the communicator being split */
} candidate;

static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

/* all[rank] = own, of so many int64 each, over all ranks; all holds the own ones already. */
static ddl_status tell_all(ddl_comm *comm, void *all, size_t count, int64_t timeout_ms)
{
    const int64_t usual_ms = comm->timeout_ms;
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLGATHER,
                      .in = (int64_t *)all + (size_t)comm->rank * count,
                      .out = all,
                      .count = count,
                      .stride = count,
                      .dtype = DDL_INT64,
                      .in_place = true,
                      .as = DDL_SIGNATURE_SPLIT };
    comm->timeout_ms = timeout_ms;
    ddl_status status = ddl_issue(comm, &call, NULL);
    comm->timeout_ms = usual_ms;
    return status;
}

/* To all, in place of the first round. */
static ddl_status tell_lack(ddl_comm *comm)
{
    const ddl_call call = { .collective = DDL_COLLECTIVE_ALLGATHER,
                            .count = CARD_WORDS,
                            .stride = CARD_WORDS,
                            .dtype = DDL_INT64,
                            .as = DDL_SIGNATURE_SPLIT,
                            .lacks = true };
    return ddl_issue(comm, &call, NULL);
}

/* The part of this rank's color; *has_boards: whether that has the boards that its members offer. */
static ddl_status make_part(ddl_comm *comm, const card *cards, bool *has_boards, ddl_comm **part,
                            ddl_error *err)
{
    candidate *candidates = ddl_alloc_array((size_t)comm->nranks, sizeof *candidates);
    int *members = ddl_alloc_array(2 * (size_t)comm->nranks, sizeof *members);
    int *boards = members != NULL ? members + comm->nranks : NULL;
    ddl_status status = DDL_OK;
    if (candidates == NULL || members == NULL) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory to split a communicator of %d ranks", comm->nranks);
        goto end;
    }
    int count = 0, own = 0;
    bool all_offer = true;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (cards[rank].color == cards[comm->rank].color)
            candidates[count++] = (candidate){ cards[rank].key, rank };
    qsort(candidates, (size_t)count, sizeof *candidates, compare_candidates);
    for (int i = 0; i < count; i++) {
        members[i] = comm->members[candidates[i].rank];
        boards[i] = (int)cards[candidates[i].rank].board;
        all_offer = all_offer && boards[i] >= 0 && boards[i] < DDL_BOARDS;
        if (candidates[i].rank == comm->rank)
            own = i;
    }
    *has_boards = all_offer && ddl_world_may_have_boards(comm->world, members, count);
    uint64_t id = ddl_world_id(comm->world, members[0], (uint32_t)cards[candidates[0].rank].offer);
    if (id > DDL_ID_LIMIT)
        status = DDL_FAIL(err, DDL_ERESOURCE, "no ids are left for communicators; start the job anew");
    else
        status = ddl_comm_create(comm->world, (uint32_t)id, members, count, own, *has_boards ? boards : NULL,
                                 comm->root, comm->timeout_ms, part, err);
end:
    ddl_free(candidates);
    ddl_free(members);
    return status;
}

static ddl_status refuse(const ddl_comm *comm, const ddl_error *error, int culprit, ddl_status status)
{
    ddl_error told;
    char who[160];
    ddl_comm_describe(comm, culprit, who, sizeof who);
    ddl_error_set(&told, status, "comm_split %s: %s could not make its part: %s", comm->pool->prefix, who,
                  error != NULL ? error->text : ddl_status_text(status));
    told.rank = comm->rank;
    told.culprit = culprit;
    told.sequence = comm->issued;
    memcpy(told.operation, "comm_split", sizeof "comm_split");
    return ddl_last_error_keep(&told);
}

/* Whether all could make theirs; if not, the own one is given up too. */
static ddl_status confirm(ddl_comm *comm, ddl_status own, const ddl_error *error, int64_t *answers,
                          ddl_deadline deadline, ddl_comm **made)
{
    answers[comm->rank] = own;
    const int64_t left_ms =
        deadline == DDL_DEADLINE_NEVER ? comm->timeout_ms : ddl_deadline_left_ms(deadline);
    ddl_status status = tell_all(comm, answers, 1, left_ms > LEAST_MS ? left_ms : LEAST_MS);
    int refused = 0;
    while (status == DDL_OK && refused < comm->nranks && answers[refused] == DDL_OK)
        refused++;
    if (status == DDL_OK && refused == comm->nranks)
        return DDL_OK;
    /* Some may have heard of everybody and keep theirs: they must not wait for this rank there. */
    if (*made != NULL)
        (void)ddl_comm_abort(*made, "the split that made it was not completed");
    (void)ddl_comm_destroy(*made, ddl_deadline_in_ms(DDL_COMM_GRACE_MS), NULL);
    *made = NULL;
    if (status != DDL_OK)
        return status;
    return refuse(comm, refused == comm->rank ? error : NULL, refused, (ddl_status)answers[refused]);
}

ddl_status ddl_comm_split(ddl_comm *comm, int color, int key, ddl_comm **part)
{
    if (comm == NULL || part == NULL)
        return ddl_last_error_set(DDL_EINVAL, comm != NULL ? comm->rank : -1, "comm_split", "%s is NULL",
                                  comm == NULL ? "comm" : "part");
    DDL_TRY(ddl_comm_check_open(comm, "comm_split"));
    DDL_TRY(ddl_stream_reap(comm));
    /* One room for both rounds: the second needs a quarter of it. It stays with the communicator, as the
     * holder of a stuck engine may still write to it after the call has given up. */
    if (comm->cards == NULL && !DDL_FAILPOINT("api.cards"))
        comm->cards = ddl_alloc_array((size_t)comm->nranks, sizeof(card));
    card *cards = comm->cards;
    if (cards == NULL)
        return tell_lack(comm);
    const int board = color < 0 ? -1 : ddl_world_take_board(comm->world);
    cards[comm->rank] = (card){ color < 0 ? -1 : color, key, ddl_world_offer(comm->world), board };
    ddl_comm *made = NULL;
    bool has_boards = false;
    const ddl_deadline deadline = ddl_deadline_in_ms(comm->timeout_ms); /* of both rounds together */
    ddl_status status = tell_all(comm, cards, CARD_WORDS, comm->timeout_ms);
    if (status == DDL_OK) {
        ddl_error error;
        ddl_status own = color < 0 ? DDL_OK : make_part(comm, cards, &has_boards, &made, &error);
        status = confirm(comm, own, &error, (int64_t *)cards, deadline, &made);
    }
    if (!has_boards)
        ddl_world_give_board(comm->world, board);
    if (status == DDL_OK)
        *part = made;
    return status;
}
