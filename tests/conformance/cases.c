#include "cases.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS_AT_MOST = 8,
    GROUPS_AT_MOST = 10,
    PARTS_AT_MOST = 3,
    DEPTH_AT_MOST = 3,
    RANKS_AT_MOST = 64,
    GUARD_BYTES = 128,
    UNUSED_ELEMENTS = 50,
    GUARD = 0xc5,
    UNSET = 0xa7,
    STALE = 0x3d
};

/* Memory with a guard before and behind it. */
struct guarded {
    unsigned char *memory, *data;
    size_t front, bytes;
    ddl_comm *from; /* its memory is from ddl_mem_alloc of this one; NULL: malloc */
    char *far; /* the library is given this memory instead, and `memory` is its image here; NULL: not so */
};

/* A communicator as every rank knows it, also one that has no part in it. The first is that of cases_run. */
struct group {
    ddl_comm *comm; /* NULL if this rank has no part in it */
    int rank;       /* of this rank in it, -1 */
    int nranks, depth;
    int members[RANKS_AT_MOST]; /* ranks of the first group, in the order of this one */
};

struct call {
    oracle_call what;
    uint64_t key; /* of its inputs */
    const struct group *group;
    size_t *counts;     /* of a v form */
    int ranks_in_place; /* of 4, how many ranks put it in place */
    bool in_place, blocking, receive_first, null_unused;
    struct guarded send, recv; /* in place and broadcast: only recv */
    const void *send_pointer;
    void *recv_pointer;
    const unsigned char *received; /* where the host finds what recv_pointer points to */
    ddl_request *requests[2];
};

struct run {
    const cases_plan *plan;
    struct group groups[GROUPS_AT_MOST];
    int ngroups, first_case, ncalls;
    uint64_t state;                 /* what all ranks draw alike */
    uint64_t own_state;             /* what this rank draws for itself */
    oracle_kind deck[ORACLE_KINDS]; /* of calls of the whole communicator: as many of each */
    int ndealt;
    struct call calls[CALLS_AT_MOST];
    char *failure;
};

static bool fail(struct run *run, const struct call *c, const char *format, ...)
{
    char what[240], reason[700];
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (c == NULL)
        snprintf(what, sizeof what, "batch");
    else
        snprintf(what, sizeof what,
                 "%s of %zu %s, op %s, root %d, peer %d%s%s%s, as rank %d of %d at depth %d",
                 oracle_kind_name(c->what.kind), c->what.count, oracle_dtype_name(c->what.dtype),
                 oracle_op_name(c->what.op), c->what.root, c->what.peer, c->in_place ? ", in place" : "",
                 c->blocking ? ", blocking" : "", c->what.values == ORACLE_EXACT ? "" : ", inexact values",
                 c->group->rank, c->group->nranks, c->group->depth);
    snprintf(run->failure, CASES_FAILURE_BYTES, "rank %d of %d, seed %llu, case %d: %s: %s",
             run->groups[0].rank, run->groups[0].nranks, (unsigned long long)run->plan->seed,
             run->first_case + (c == NULL ? 0 : (int)(c - run->calls)), what, reason);
    return false;
}

static bool fail_status(struct run *run, const struct call *c, const char *what, ddl_status status)
{
    return fail(run, c, "%s gave %s: %s", what, ddl_status_name(status), ddl_last_error()->text);
}

/* ---- guarded memory ---- */

static bool guarded_init(struct guarded *g, size_t bytes, size_t shift, ddl_comm *from)
{
    size_t all_bytes = GUARD_BYTES + shift + bytes + GUARD_BYTES;
    void *memory = NULL;
    g->front = GUARD_BYTES + shift;
    g->bytes = bytes;
    g->from = from;
    if (from == NULL)
        memory = malloc(all_bytes);
    else if (ddl_mem_alloc(from, all_bytes, &memory) != DDL_OK)
        return false;
    if (memory == NULL)
        return false;
    g->memory = memory;
    g->data = g->memory + g->front;
    memset(g->memory, GUARD, g->front);
    memset(g->data, UNSET, bytes);
    memset(g->data + bytes, GUARD, GUARD_BYTES);
    return true;
}

static bool guarded_fini(struct guarded *g)
{
    if (g->from != NULL)
        return ddl_mem_free(g->from, g->memory) == DDL_OK;
    free(g->memory);
    return true;
}

static size_t whole_bytes(const struct guarded *g)
{
    return g->front + g->bytes + GUARD_BYTES;
}

/* From now on it is elsewhere; with what it holds. */
static bool guarded_send_far(struct guarded *g, const cases_memory *elsewhere)
{
    if (g->memory == NULL)
        return true;
    g->far = elsewhere->alloc(whole_bytes(g));
    if (g->far == NULL || !elsewhere->write(g->far, g->memory, whole_bytes(g)))
        return false;
    memset(g->memory, STALE, whole_bytes(g));
    return true;
}

static bool guarded_fetch(struct guarded *g, const cases_memory *elsewhere)
{
    return g->far == NULL || elsewhere->read(g->memory, g->far, whole_bytes(g));
}

/* What the library is to be given for an address in here. */
static void *guarded_far(const struct guarded *g, const void *near)
{
    return g->far + ((const unsigned char *)near - g->memory);
}

static bool guards_hold(const struct guarded *g)
{
    if (g->memory == NULL)
        return true;
    for (size_t i = 0; i < g->front; i++)
        if (g->memory[i] != GUARD)
            return false;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (g->data[g->bytes + i] != GUARD)
            return false;
    return true;
}

static bool all_bytes_are(const unsigned char *data, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != value)
            return false;
    return true;
}

/* ---- drawing calls ---- */

static size_t draw_count(uint64_t *state, int nranks, size_t element_bytes, size_t limit)
{
    static const size_t boundaries[] = { 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1u << 20 };
    size_t n = (size_t)nranks, count;

    switch (oracle_below(state, 8)) {
    case 0:
        count = oracle_below(state, 4);
        break;
    case 1: /* around multiples of the number of ranks, where blocks differ in size or are empty */
        count = n * oracle_below(state, 4) + oracle_below(state, 3);
        count = count > 0 ? count - 1 : 0;
        break;
    case 2: { /* around sizes at which a transport may change its ways */
        size_t boundary = boundaries[oracle_below(state, sizeof boundaries / sizeof boundaries[0])];
        count = boundary / element_bytes + oracle_below(state, 3) - 1;
        break;
    }
    case 3:
        count = oracle_below(state, limit + 1);
        break;
    default: { /* small sizes are drawn most */
        size_t range = (size_t)1 << oracle_below(state, 14);
        count = oracle_below(state, range + 1);
        break;
    }
    }
    return count <= limit ? count : limit;
}

/*
 * Blocks of every kind of unevenness: n of them, ordinary ones of at most `each` elements and a great one of
 * at most `most`.
 */
static void draw_counts(uint64_t *state, size_t n, size_t each, size_t most, size_t counts[])
{
    size_t pattern = oracle_below(state, 6), small = oracle_below(state, 2) ? 20 : each;
    size_t even = oracle_below(state, (small < each ? small : each) + 1);
    size_t chosen = oracle_below(state, n);

    for (size_t i = 0; i < n; i++)
        switch (pattern) {
        case 0:
            counts[i] = even;
            break;
        case 1: /* all of nothing */
            counts[i] = 0;
            break;
        case 2: /* one block only */
            counts[i] = i == chosen ? oracle_below(state, most + 1) : 0;
            break;
        case 3: /* rising */
            counts[i] = even * i / n;
            break;
        case 4:
            counts[i] = oracle_below(state, 3) == 0 ? 0 : oracle_below(state, even + 1);
            break;
        default: /* wildly uneven */
            counts[i] = i == chosen ? most : oracle_below(state, (each < 3 ? each : 3) + 1);
        }
}

static oracle_values draw_values(uint64_t *state, const oracle_call *what)
{
    if (!oracle_reduces(what->kind) || !oracle_is_float(what->dtype))
        return ORACLE_EXACT;
    if (what->op == DDL_MIN || what->op == DDL_MAX)
        return oracle_below(state, 2) ? ORACLE_SPECIAL : ORACLE_EXACT;
    return (oracle_values)oracle_below(state, 3);
}

static bool has_many_blocks(oracle_kind kind)
{
    return kind == ORACLE_REDUCE_SCATTER || kind == ORACLE_ALLGATHER || kind == ORACLE_ALLTOALL ||
           kind == ORACLE_GATHER || kind == ORACLE_SCATTER;
}

static bool draw_blocks(struct run *run, struct call *c, size_t limit)
{
    oracle_call *what = &c->what;
    size_t n = (size_t)what->nranks;
    bool matrix = what->kind == ORACLE_ALLTOALLV;

    c->counts = calloc(matrix ? n * n : n, sizeof *c->counts);
    if (c->counts == NULL)
        return fail(run, c, "no memory");
    draw_counts(&run->state, matrix ? n * n : n, limit / n, limit / 2, c->counts);
    for (size_t i = 0; matrix && c->ranks_in_place > 0 && i < n; i++) /* what goes is what comes */
        for (size_t j = 0; j < i; j++)
            c->counts[i * n + j] = c->counts[j * n + i];
    what->counts = c->counts;
    return true;
}

static oracle_kind deal_kind(struct run *run)
{
    const int next = run->ndealt++ % ORACLE_KINDS;
    for (int i = 0; next == 0 && i < ORACLE_KINDS; i++) { /* another one is put in at any place */
        const int at = (int)oracle_below(&run->state, (uint64_t)i + 1);
        run->deck[i] = run->deck[at];
        run->deck[at] = (oracle_kind)i;
    }
    return run->deck[next];
}

/* From the shared state alone, so that all ranks draw the same. */
static bool draw_call(struct run *run, struct call *c)
{
    const cases_plan *plan = run->plan;
    uint64_t *state = &run->state;
    oracle_call *what = &c->what;
    size_t limit = plan->max_count;

    memset(c, 0, sizeof *c);
    c->group = &run->groups[oracle_below(state, 2) ? 0 : oracle_below(state, (uint64_t)run->ngroups)];
    what->nranks = c->group->nranks;
    if (plan->only >= 0)
        what->kind = (oracle_kind)plan->only;
    else if (c->group == &run->groups[0] && what->nranks > 1)
        what->kind = deal_kind(run);
    else
        what->kind = (oracle_kind)oracle_below(state, what->nranks > 1 ? ORACLE_KINDS : ORACLE_SHIFT);
    what->dtype = (ddl_dtype)oracle_below(state, DDL_FLOAT64 + 1);
    what->op = (ddl_op)oracle_below(state, oracle_is_float(what->dtype) ? DDL_AVG + 1 : DDL_BXOR + 1);
    what->root = (int)oracle_below(state, (uint64_t)what->nranks);
    if (what->kind == ORACLE_SHIFT)
        what->root = 1 + (int)oracle_below(state, (uint64_t)what->nranks - 1);
    if (what->kind == ORACLE_PAIR)
        what->peer = (what->root + 1 + (int)oracle_below(state, (uint64_t)what->nranks - 1)) % what->nranks;
    what->values = draw_values(state, what);
    c->key = oracle_next(state);
    switch (oracle_below(state, 6)) {
    case 0:
        c->ranks_in_place = 4;
        break;
    case 1:
        c->ranks_in_place = 2; /* it is for each rank to decide */
        break;
    }
    if (oracle_is_uneven(what->kind))
        return draw_blocks(run, c, limit);
    if (has_many_blocks(what->kind))
        limit /= (size_t)what->nranks;
    if (what->kind != ORACLE_BARRIER)
        what->count = draw_count(state, what->nranks, ddl_dtype_bytes(what->dtype), limit);
    return true;
}

/* ---- buffers ---- */

/* In place the smaller buffer is the own block of the larger one: this is where it is, in elements. */
static size_t own_block_start(const struct call *c)
{
    switch (c->what.kind) {
    case ORACLE_ALLGATHER:
    case ORACLE_ALLGATHERV:
    case ORACLE_GATHER:
    case ORACLE_GATHERV:
        return oracle_block_start(&c->what, false, c->group->rank, c->group->rank);
    case ORACLE_REDUCE_SCATTER:
    case ORACLE_REDUCE_SCATTERV:
    case ORACLE_SCATTER:
    case ORACLE_SCATTERV:
        return oracle_block_start(&c->what, true, c->group->rank, c->group->rank);
    default:
        return 0;
    }
}

static bool gives_more_than_it_gets(oracle_kind kind)
{
    return kind == ORACLE_REDUCE_SCATTER || kind == ORACLE_REDUCE_SCATTERV || kind == ORACLE_SCATTER ||
           kind == ORACLE_SCATTERV;
}

static bool may_be_in_place(const struct call *c)
{
    if (c->what.kind == ORACLE_BROADCAST || c->what.kind == ORACLE_BARRIER || c->what.kind >= ORACLE_SHIFT)
        return false;
    return !oracle_is_rooted(c->what.kind) || c->group->rank == c->what.root;
}

/* Bytes from the guard to the data: some elements, or as many as there are to the next page. */
static size_t draw_shift(struct run *run, size_t element)
{
    return oracle_below(&run->own_state, 4) == 0 ? 4096 - GUARD_BYTES
                                                 : oracle_below(&run->own_state, 8) * element;
}

/* Whose memory a buffer is of. */
static ddl_comm *draw_memory(struct run *run)
{
    return oracle_below(&run->own_state, 2) == 0 ? run->groups[0].comm : NULL;
}

static bool send_far(struct run *run, struct call *c, bool one_buffer)
{
    const cases_memory *elsewhere = run->plan->elsewhere;

    if (!guarded_send_far(&c->send, elsewhere) || !guarded_send_far(&c->recv, elsewhere))
        return fail(run, c, "no device memory");
    if (c->send_pointer != NULL)
        c->send_pointer = guarded_far(one_buffer ? &c->recv : &c->send, c->send_pointer);
    if (c->recv_pointer != NULL)
        c->recv_pointer = guarded_far(&c->recv, c->recv_pointer);
    return true;
}

/* Allocate this rank's buffers of a call and fill in what it gives. */
static bool prepare(struct run *run, struct call *c)
{
    const oracle_call *what = &c->what;
    size_t element = ddl_dtype_bytes(what->dtype);
    size_t send_bytes = oracle_send_count(what, c->group->rank) * element;
    size_t recv_bytes = oracle_recv_count(what, c->group->rank) * element;
    size_t room_bytes;
    unsigned char *given;
    bool one_buffer;

    c->blocking = oracle_below(&run->own_state, run->ncalls == 1 ? 2 : 4) == 0;
    c->receive_first = oracle_below(&run->own_state, 2) == 0;
    c->null_unused = oracle_below(&run->own_state, 2) == 0;
    c->in_place = may_be_in_place(c) && oracle_below(&run->own_state, 4) < (uint64_t)c->ranks_in_place;
    one_buffer = c->in_place || what->kind == ORACLE_BROADCAST;

    room_bytes = one_buffer && send_bytes > recv_bytes ? send_bytes : recv_bytes;
    if (room_bytes == 0) /* of no use to this rank: must stay as it is */
        room_bytes = UNUSED_ELEMENTS * element;
    if (!guarded_init(&c->recv, room_bytes, draw_shift(run, element), draw_memory(run)))
        return fail(run, c, "no memory");
    if (!one_buffer && !guarded_init(&c->send, send_bytes, draw_shift(run, element), draw_memory(run)))
        return fail(run, c, "no memory");
    given = one_buffer ? c->recv.data : c->send.data;
    c->recv_pointer = c->recv.data;
    if (c->in_place && gives_more_than_it_gets(what->kind))
        c->recv_pointer = c->recv.data + own_block_start(c) * element;
    else if (c->in_place)
        given = c->recv.data + own_block_start(c) * element;
    if (send_bytes > 0)
        oracle_fill(what, c->key, c->group->rank, given);
    c->send_pointer = given;
    if (c->null_unused && send_bytes == 0 && !one_buffer)
        c->send_pointer = NULL;
    if (c->null_unused && recv_bytes == 0 && !c->in_place)
        c->recv_pointer = NULL;
    c->received = c->recv_pointer;
    if (run->plan->elsewhere != NULL && oracle_below(&run->own_state, run->plan->host_one_in) > 0)
        return send_far(run, c, one_buffer);
    return true;
}

/* ---- issuing and completing ---- */

static ddl_status issue_point_to_point(struct call *c, const char **name)
{
    const oracle_call *w = &c->what;
    const struct group *g = c->group;
    bool shifts = w->kind == ORACLE_SHIFT;
    int to = shifts ? (g->rank + w->root) % g->nranks : w->peer;
    int from = shifts ? (g->rank - w->root + g->nranks) % g->nranks : w->root;

    for (int turn = 0; turn < 2; turn++) {
        bool receives = (turn == 0) == c->receive_first;
        bool last = turn == 1 || !shifts;
        ddl_request **request = c->blocking && last ? NULL : &c->requests[turn];
        ddl_status status = DDL_OK;

        *name = receives ? "ddl_recv" : "ddl_send";
        if (receives && (shifts || g->rank == w->peer))
            status = ddl_recv(c->recv_pointer, w->count, w->dtype, from, g->comm, request);
        else if (!receives && (shifts || g->rank == w->root))
            status = ddl_send(c->send_pointer, w->count, w->dtype, to, g->comm, request);
        if (status != DDL_OK)
            return status;
    }
    return DDL_OK;
}

/* The arrays of counts are the caller's again when the call has returned: what follows overwrites them. */
static ddl_status issue_uneven(struct call *c, size_t sends[], size_t receives[])
{
    const oracle_call *w = &c->what;
    ddl_request **request = c->blocking ? NULL : &c->requests[0];
    ddl_comm *comm = c->group->comm;

    for (int r = 0; r < w->nranks; r++) {
        sends[r] = oracle_block_count(w, true, c->group->rank, r);
        receives[r] = oracle_block_count(w, false, c->group->rank, r);
    }
    switch (w->kind) {
    case ORACLE_REDUCE_SCATTERV:
        return ddl_reduce_scatterv(c->send_pointer, c->recv_pointer, sends, w->dtype, w->op, comm, request);
    case ORACLE_ALLGATHERV:
        return ddl_allgatherv(c->send_pointer, c->recv_pointer, receives, w->dtype, comm, request);
    case ORACLE_GATHERV:
        return ddl_gatherv(c->send_pointer, c->recv_pointer, receives, w->dtype, w->root, comm, request);
    case ORACLE_SCATTERV:
        return ddl_scatterv(c->send_pointer, c->recv_pointer, sends, w->dtype, w->root, comm, request);
    default:
        return ddl_alltoallv(c->send_pointer, sends, c->recv_pointer, receives, w->dtype, comm, request);
    }
}

static ddl_status issue(struct call *c, const char **name)
{
    const oracle_call *w = &c->what;
    ddl_request **request = c->blocking ? NULL : &c->requests[0];
    const void *send = c->send_pointer;
    void *recv = c->recv_pointer;
    ddl_comm *comm = c->group->comm;

    *name = oracle_kind_name(w->kind);
    switch (w->kind) {
    case ORACLE_ALLREDUCE:
        return ddl_allreduce(send, recv, w->count, w->dtype, w->op, comm, request);
    case ORACLE_REDUCE:
        return ddl_reduce(send, recv, w->count, w->dtype, w->op, w->root, comm, request);
    case ORACLE_REDUCE_SCATTER:
        return ddl_reduce_scatter(send, recv, w->count, w->dtype, w->op, comm, request);
    case ORACLE_ALLGATHER:
        return ddl_allgather(send, recv, w->count, w->dtype, comm, request);
    case ORACLE_BROADCAST:
        return ddl_broadcast(recv, w->count, w->dtype, w->root, comm, request);
    case ORACLE_ALLTOALL:
        return ddl_alltoall(send, recv, w->count, w->dtype, comm, request);
    case ORACLE_GATHER:
        return ddl_gather(send, recv, w->count, w->dtype, w->root, comm, request);
    case ORACLE_SCATTER:
        return ddl_scatter(send, recv, w->count, w->dtype, w->root, comm, request);
    case ORACLE_BARRIER:
        return ddl_barrier(comm, request);
    case ORACLE_SHIFT:
    case ORACLE_PAIR:
        return issue_point_to_point(c, name);
    default: {
        size_t sends[RANKS_AT_MOST], receives[RANKS_AT_MOST];
        ddl_status status = issue_uneven(c, sends, receives);
        memset(sends, UNSET, sizeof sends);
        memset(receives, UNSET, sizeof receives);
        return status;
    }
    }
}

struct other_thread {
    ddl_request **requests;
    size_t count;
    ddl_status status;
};

static void *wait_on_other_thread(void *arg)
{
    struct other_thread *other = arg;
    other->status = ddl_wait_all(other->count, other->requests);
    return NULL;
}

static ddl_status wait_on_two_threads(size_t count, ddl_request *requests[])
{
    struct other_thread other = { requests, count / 2, DDL_OK };
    pthread_t thread;
    ddl_status status;

    if (pthread_create(&thread, NULL, wait_on_other_thread, &other) != 0)
        return ddl_wait_all(count, requests);
    status = ddl_wait_all(count - count / 2, requests + count / 2);
    pthread_join(thread, NULL);
    return status != DDL_OK ? status : other.status;
}

static ddl_status wait_for_any(size_t count, ddl_request *requests[])
{
    for (size_t done = 0; done < count; done++) {
        size_t index = count;
        ddl_status status = ddl_wait_any(count, requests, &index);
        if (status != DDL_OK)
            return status;
        if (index >= count || requests[index] != NULL)
            return DDL_EINTERNAL;
    }
    return DDL_OK;
}

static ddl_status test_until_done(size_t count, ddl_request *requests[])
{
    for (size_t left = count; left > 0; sched_yield()) {
        for (size_t i = 0; i < count; i++) {
            bool done = false;
            ddl_status status;
            if (requests[i] == NULL)
                continue;
            status = ddl_test(&requests[i], &done);
            if (status != DDL_OK)
                return status;
            if (done && requests[i] != NULL)
                return DDL_EINTERNAL;
            left -= done;
        }
    }
    return DDL_OK;
}

static ddl_status wait_one_by_one(size_t count, ddl_request *requests[])
{
    for (size_t i = 0; i < count; i++) {
        ddl_status status = ddl_wait(&requests[i]);
        if (status != DDL_OK)
            return status;
        if (requests[i] != NULL)
            return DDL_EINTERNAL;
    }
    return DDL_OK;
}

/* Each completed by another way, in another order. */
static ddl_status complete_anyhow(struct run *run, size_t count, ddl_request *requests[])
{
    for (size_t left = count; left > 0;) {
        size_t index = oracle_below(&run->own_state, count);
        ddl_status status = DDL_OK;
        bool done = false;

        switch (oracle_below(&run->own_state, 3)) {
        case 0:
            done = requests[index] != NULL;
            status = ddl_wait(&requests[index]);
            break;
        case 1:
            done = true;
            status = ddl_wait_any(count, requests, &index);
            break;
        default:
            if (requests[index] != NULL)
                status = ddl_test(&requests[index], &done);
        }
        if (status != DDL_OK)
            return status;
        if (done && requests[index] != NULL)
            return DDL_EINTERNAL;
        left -= done;
    }
    return DDL_OK;
}

static bool complete(struct run *run)
{
    static const struct {
        const char *name;
        ddl_status (*run)(size_t count, ddl_request *requests[]);
    } ways[] = {
        { "ddl_wait", wait_one_by_one },
        { "ddl_wait_all", ddl_wait_all },
        { "ddl_wait_any", wait_for_any },
        { "ddl_test", test_until_done },
        { "ddl_wait_all on two threads", wait_on_two_threads },
        { "ddl_wait, wait_any or test", NULL },
    };
    ddl_request *requests[2 * CALLS_AT_MOST];
    size_t count = 0, way = oracle_below(&run->own_state, sizeof ways / sizeof ways[0]);
    ddl_status status;

    for (int i = 0; i < run->ncalls; i++)
        for (int k = 0; k < 2; k++)
            if (run->calls[i].requests[k] != NULL)
                requests[count++] = run->calls[i].requests[k];
    for (size_t i = count; i > 1; i--) { /* any order */
        size_t other = oracle_below(&run->own_state, i);
        ddl_request *moved = requests[i - 1];
        requests[i - 1] = requests[other];
        requests[other] = moved;
    }
    status = ways[way].run == NULL ? complete_anyhow(run, count, requests) : ways[way].run(count, requests);
    return status == DDL_OK || fail_status(run, run->ncalls == 1 ? run->calls : NULL, ways[way].name, status);
}

/* ---- checking ---- */

static bool fetch(struct run *run, struct call *c)
{
    const cases_memory *elsewhere = run->plan->elsewhere;
    return (guarded_fetch(&c->send, elsewhere) && guarded_fetch(&c->recv, elsewhere)) ||
           fail(run, c, "cannot read device memory");
}

static void free_far(const struct run *run, const struct call *c)
{
    if (c->send.far != NULL)
        run->plan->elsewhere->free(c->send.far);
    if (c->recv.far != NULL)
        run->plan->elsewhere->free(c->recv.far);
}

/* What is an input only, or not this rank's to write, is as it was. */
static bool untouched(struct run *run, const struct call *c, const unsigned char *given)
{
    const oracle_call *w = &c->what;
    size_t element = ddl_dtype_bytes(w->dtype);
    size_t send_bytes = oracle_send_count(w, c->group->rank) * element;
    size_t recv_bytes = oracle_recv_count(w, c->group->rank) * element;

    if (!guards_hold(&c->send) || !guards_hold(&c->recv))
        return fail(run, c, "wrote outside its buffers");
    if (c->send.memory != NULL && memcmp(c->send.data, given, send_bytes) != 0)
        return fail(run, c, "changed its input");
    if (c->in_place && gives_more_than_it_gets(w->kind)) {
        size_t begin = own_block_start(c) * element;
        if (memcmp(c->recv.data, given, begin) != 0 ||
            memcmp(c->recv.data + begin + recv_bytes, given + begin + recv_bytes,
                   send_bytes - begin - recv_bytes) != 0)
            return fail(run, c, "changed its input beside the own block");
    }
    if (recv_bytes == 0 && !c->in_place && !all_bytes_are(c->recv.data, c->recv.bytes, UNSET))
        return fail(run, c, "wrote into a buffer that this rank's role does not use");
    return true;
}

static bool check(struct run *run, const struct call *c)
{
    const oracle_call *w = &c->what;
    size_t element = ddl_dtype_bytes(w->dtype), each = 0, index = 0;
    unsigned char *inputs;
    const void **sends = calloc((size_t)w->nranks, sizeof *sends);
    char want[32], have[32];
    bool good;

    for (int r = 0; r < w->nranks; r++)
        if (oracle_send_count(w, r) > each)
            each = oracle_send_count(w, r);
    each = each * element + 8; /* not zero, and aligned for each rank */
    each -= each % 8;
    inputs = malloc(each * (size_t)w->nranks);
    if (inputs == NULL || sends == NULL) {
        free(inputs);
        free(sends);
        return fail(run, c, "no memory");
    }
    for (int r = 0; r < w->nranks; r++) {
        sends[r] = inputs + each * (size_t)r;
        oracle_fill(w, c->key, r, inputs + each * (size_t)r);
    }
    good = untouched(run, c, sends[c->group->rank]);
    if (good && !oracle_agrees(w, sends, c->group->rank, c->received, &index, want, have))
        good = fail(run, c, "element %zu is %s, must be %s", index, have, want);
    free(inputs);
    free(sends);
    return good;
}

/* FNV-1a over what all ranks of a group must have alike. */
static uint64_t digest(const struct run *run, const struct group *group)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < run->ncalls; i++) {
        const struct call *c = &run->calls[i];
        oracle_kind kind = c->what.kind;
        bool alike = kind == ORACLE_ALLREDUCE || kind == ORACLE_ALLGATHER || kind == ORACLE_ALLGATHERV ||
                     kind == ORACLE_BROADCAST;
        const unsigned char *data = c->received;
        if (c->group != group || !alike)
            continue;
        for (size_t k = oracle_recv_count(&c->what, group->rank) * ddl_dtype_bytes(c->what.dtype); k-- > 0;)
            hash = (hash ^ data[k]) * 0x100000001b3u;
    }
    return hash;
}

static bool alike_on_all_ranks(struct run *run, const struct group *group)
{
    uint64_t own = digest(run, group), all[RANKS_AT_MOST];
    ddl_status status = ddl_allgather(&own, all, 1, DDL_UINT64, group->comm, NULL);

    if (status != DDL_OK)
        return fail_status(run, NULL, "allgather of digests", status);
    for (int r = 0; r < group->nranks; r++)
        if (all[r] != own)
            return fail(run, run->ncalls == 1 ? run->calls : NULL, "rank %d has other bits than this rank",
                        r);
    return true;
}

/* ---- communicators ---- */

/* Parts of a group by the colors and keys of all its ranks; this rank makes its own and checks its place. */
static bool split(struct run *run)
{
    static const int colors[PARTS_AT_MOST] = { 7, 0, INT_MAX };
    static const int keys[] = { 0, 0, 1, -1, 5, INT_MAX, INT_MIN };
    const struct group *from = &run->groups[oracle_below(&run->state, (uint64_t)run->ngroups)];
    int part_of[RANKS_AT_MOST], key_of[RANKS_AT_MOST];
    int nparts = 1 + (int)oracle_below(&run->state, PARTS_AT_MOST);
    ddl_comm *part = from->comm; /* anything but what is to come */

    for (int r = 0; r < from->nranks; r++) {
        bool left_out = oracle_below(&run->state, 6) == 0;
        part_of[r] = left_out ? -1 : (int)oracle_below(&run->state, (uint64_t)nparts);
        key_of[r] = keys[oracle_below(&run->state, sizeof keys / sizeof keys[0])];
    }
    if (from->depth == DEPTH_AT_MOST || run->ngroups + nparts > GROUPS_AT_MOST)
        return true;
    if (from->rank >= 0) {
        int own = part_of[from->rank];
        ddl_status status = ddl_comm_split(from->comm, own < 0 ? -1 - run->first_case : colors[own],
                                           key_of[from->rank], &part);
        if (status != DDL_OK)
            return fail_status(run, NULL, "ddl_comm_split", status);
        if ((own < 0) != (part == NULL))
            return fail(run, NULL, "ddl_comm_split gave %s",
                        part == NULL ? "no part" : "a part to who has none");
    }
    for (int p = 0; p < nparts; p++) {
        struct group *to = &run->groups[run->ngroups];
        int order[RANKS_AT_MOST];

        *to = (struct group){ .rank = -1, .depth = from->depth + 1 };
        for (int r = 0; r < from->nranks; r++) {
            int at = to->nranks;
            if (part_of[r] != p)
                continue;
            for (; at > 0 && key_of[order[at - 1]] > key_of[r]; at--)
                order[at] = order[at - 1];
            order[at] = r;
            to->nranks++;
        }
        for (int i = 0; i < to->nranks; i++) {
            to->members[i] = from->members[order[i]];
            if (order[i] == from->rank) {
                to->rank = i;
                to->comm = part;
            }
        }
        if (to->comm != NULL && (ddl_rank(to->comm) != to->rank || ddl_size(to->comm) != to->nranks))
            return fail(run, NULL, "ddl_comm_split made rank %d of %d, must be %d of %d", ddl_rank(to->comm),
                        ddl_size(to->comm), to->rank, to->nranks);
        run->ngroups += to->nranks > 0;
    }
    return true;
}

/* Its operations may be in flight. */
static bool free_group(struct run *run, int index)
{
    struct group *group = &run->groups[index];

    if (group->comm != NULL) {
        ddl_status status = ddl_comm_free(&group->comm);
        if (status != DDL_OK || group->comm != NULL)
            return fail_status(run, NULL, "ddl_comm_free of a part", status);
    }
    return true;
}

static void forget_group(struct run *run, int index)
{
    run->groups[index] = run->groups[--run->ngroups];
}

/* ---- running ---- */

static bool draw_batch(struct run *run)
{
    bool alone = oracle_below(&run->state, 2) == 0;
    int ncalls = alone ? 1 : 2 + (int)oracle_below(&run->state, CALLS_AT_MOST - 1);

    for (run->ncalls = 0; run->ncalls < ncalls; run->ncalls++)
        if (!draw_call(run, &run->calls[run->ncalls]))
            return false;
    return true;
}

static bool run_batch(struct run *run)
{
    bool splits = run->plan->splits, good = draw_batch(run);
    bool split_under = splits && oracle_below(&run->state, 12) == 0;
    bool free_under = splits && oracle_below(&run->state, 12) == 0;
    int freed = (int)oracle_below(&run->state, (uint64_t)run->ngroups);

    free_under = free_under && freed > 0;
    for (int i = 0; good && i < run->ncalls; i++)
        if (run->calls[i].group->rank >= 0)
            good = prepare(run, &run->calls[i]);
    for (int i = 0; good && i < run->ncalls; i++) {
        struct call *c = &run->calls[i];
        const char *name = NULL;
        ddl_status status = c->group->rank < 0 ? DDL_OK : issue(c, &name);
        if (status != DDL_OK)
            good = fail_status(run, c, name, status);
    }
    good = good && (!split_under || split(run));
    good = good && (!free_under || free_group(run, freed));
    good = good && complete(run);
    for (int i = 0; good && i < run->ncalls; i++)
        if (run->calls[i].group->rank >= 0)
            good = fetch(run, &run->calls[i]) && check(run, &run->calls[i]);
    for (int g = 0; good && g < run->ngroups; g++) {
        bool used = false;
        for (int i = 0; i < run->ncalls; i++)
            used = used || run->calls[i].group == &run->groups[g];
        if (used && run->groups[g].comm != NULL)
            good = alike_on_all_ranks(run, &run->groups[g]);
    }
    /* After a failure requests may still be in flight: their buffers stay until the process ends. */
    for (int i = 0; good && i < run->ncalls; i++) {
        bool released = guarded_fini(&run->calls[i].send);
        released = guarded_fini(&run->calls[i].recv) && released;
        free_far(run, &run->calls[i]);
        free(run->calls[i].counts);
        if (!released)
            good = fail(run, &run->calls[i], "its memory was not taken back: %s", ddl_last_error()->text);
    }
    if (good && free_under)
        forget_group(run, freed);
    return good;
}

/* Some are left for the end of the communicator that they come from. */
static bool free_most_groups(struct run *run)
{
    int left = (int)oracle_below(&run->state, 3);

    while (run->ngroups > 1 + left) {
        int index = 1 + (int)oracle_below(&run->state, (uint64_t)run->ngroups - 1);
        if (!free_group(run, index))
            return false;
        forget_group(run, index);
    }
    return true;
}

static bool run_all(struct run *run)
{
    while (run->first_case < run->plan->ncases) {
        if (!run_batch(run))
            return false;
        run->first_case += run->ncalls;
        if (!run->plan->splits)
            continue;
        if (oracle_below(&run->state, 8) == 0 && !split(run))
            return false;
        if (run->ngroups > 1 && oracle_below(&run->state, 8) == 0) {
            int index = 1 + (int)oracle_below(&run->state, (uint64_t)run->ngroups - 1);
            if (!free_group(run, index))
                return false;
            forget_group(run, index);
        }
    }
    return free_most_groups(run);
}

bool cases_run(ddl_comm *comm, const cases_plan *plan, char failure[CASES_FAILURE_BYTES])
{
    struct run *run = calloc(1, sizeof *run);
    struct group *all;
    bool good;

    if (run == NULL || ddl_size(comm) > RANKS_AT_MOST) {
        snprintf(failure, CASES_FAILURE_BYTES, "no room for the cases");
        free(run);
        return false;
    }
    *run = (struct run){ .plan = plan, .failure = failure, .state = plan->seed, .ngroups = 1 };
    all = &run->groups[0];
    all->comm = comm;
    all->rank = ddl_rank(comm);
    all->nranks = ddl_size(comm);
    for (int r = 0; r < all->nranks; r++)
        all->members[r] = r;
    run->own_state = plan->seed ^ (uint64_t)(all->rank + 1) << 40;
    good = run_all(run);
    free(run);
    return good;
}
