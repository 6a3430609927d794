#include "cases.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_AT_MOST = 6, GUARD_BYTES = 128, GUARD = 0xc5, UNSET = 0xa7 };

/* Memory with a guard before and behind it. */
struct guarded {
    unsigned char *memory, *data;
    size_t front, bytes;
};

struct call {
    oracle_call what;
    uint64_t key; /* of its inputs */
    bool in_place, blocking, receive_first, null_unused;
    struct guarded send, recv; /* in place and broadcast: only recv */
    const void *send_pointer;
    void *recv_pointer;
    ddl_request *requests[2];
};

struct batch {
    ddl_comm *comm;
    const cases_plan *plan;
    int rank, nranks, first_case, ncalls;
    uint64_t own_state; /* what this rank draws for itself */
    struct call calls[CALLS_AT_MOST];
    char *failure;
};

static bool fail(struct batch *b, const struct call *c, const char *format, ...)
{
    char what[200], reason[800];
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (c == NULL)
        snprintf(what, sizeof what, "batch");
    else
        snprintf(what, sizeof what, "%s of %zu %s, op %s, root %d, peer %d%s%s%s",
                 oracle_kind_name(c->what.kind), c->what.count, oracle_dtype_name(c->what.dtype),
                 oracle_op_name(c->what.op), c->what.root, c->what.peer, c->in_place ? ", in place" : "",
                 c->blocking ? ", blocking" : "", c->what.values == ORACLE_EXACT ? "" : ", inexact values");
    snprintf(b->failure, CASES_FAILURE_BYTES, "rank %d of %d, seed %llu, case %d: %s: %s", b->rank, b->nranks,
             (unsigned long long)b->plan->seed, b->first_case + (c == NULL ? 0 : (int)(c - b->calls)), what,
             reason);
    return false;
}

static bool fail_status(struct batch *b, const struct call *c, const char *what, ddl_status status)
{
    return fail(b, c, "%s gave %s: %s", what, ddl_status_name(status), ddl_last_error()->text);
}

/* ---- guarded memory ---- */

static bool guarded_init(struct guarded *g, size_t bytes, size_t shift)
{
    g->front = GUARD_BYTES + shift;
    g->bytes = bytes;
    g->memory = malloc(g->front + bytes + GUARD_BYTES);
    if (g->memory == NULL)
        return false;
    g->data = g->memory + g->front;
    memset(g->memory, GUARD, g->front);
    memset(g->data, UNSET, bytes);
    memset(g->data + bytes, GUARD, GUARD_BYTES);
    return true;
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

static oracle_values draw_values(uint64_t *state, const oracle_call *what)
{
    if (!oracle_reduces(what->kind) || !oracle_is_float(what->dtype))
        return ORACLE_EXACT;
    if (what->op == DDL_MIN || what->op == DDL_MAX)
        return oracle_below(state, 2) ? ORACLE_SPECIAL : ORACLE_EXACT;
    return oracle_below(state, 3) == 0 ? ORACLE_RANDOM : ORACLE_EXACT;
}

/* From the seed alone, so that all ranks draw the same. */
static void draw_call(uint64_t *state, const cases_plan *plan, int nranks, struct call *c)
{
    oracle_call *what = &c->what;
    size_t limit = plan->max_count;

    memset(c, 0, sizeof *c);
    what->nranks = nranks;
    do {
        what->kind =
            plan->only >= 0 ? (oracle_kind)plan->only : (oracle_kind)oracle_below(state, ORACLE_KINDS);
    } while (nranks == 1 && plan->only < 0 && what->kind >= ORACLE_SHIFT);
    what->dtype = (ddl_dtype)oracle_below(state, DDL_FLOAT64 + 1);
    what->op = (ddl_op)oracle_below(state, oracle_is_float(what->dtype) ? DDL_AVG + 1 : DDL_BXOR + 1);
    what->root = (int)oracle_below(state, (uint64_t)nranks);
    if (what->kind == ORACLE_SHIFT)
        what->root = 1 + (int)oracle_below(state, (uint64_t)nranks - 1);
    if (what->kind == ORACLE_PAIR)
        what->peer = (what->root + 1 + (int)oracle_below(state, (uint64_t)nranks - 1)) % nranks;
    if (what->kind == ORACLE_REDUCE_SCATTER || what->kind == ORACLE_ALLGATHER ||
        what->kind == ORACLE_ALLTOALL)
        limit /= (size_t)nranks;
    if (what->kind != ORACLE_BARRIER)
        what->count = draw_count(state, nranks, ddl_dtype_bytes(what->dtype), limit);
    what->values = draw_values(state, what);
    c->key = oracle_next(state);
    c->in_place = oracle_below(state, 3) == 0 && what->kind < ORACLE_BROADCAST;
    if (what->kind == ORACLE_ALLTOALL)
        c->in_place = oracle_below(state, 3) == 0;
}

/* Allocate this rank's buffers of a call and fill in what it gives. */
static bool prepare(struct batch *b, struct call *c)
{
    const oracle_call *what = &c->what;
    size_t element = ddl_dtype_bytes(what->dtype);
    size_t send_bytes = oracle_send_count(what, b->rank) * element;
    size_t recv_bytes = oracle_recv_count(what, b->rank) * element;
    size_t own_block = (size_t)b->rank * what->count * element;
    size_t shift = oracle_below(&b->own_state, 8) * element;
    size_t room_bytes;
    bool one_buffer;

    c->blocking = oracle_below(&b->own_state, b->ncalls == 1 ? 2 : 4) == 0;
    c->receive_first = oracle_below(&b->own_state, 2) == 0;
    c->null_unused = oracle_below(&b->own_state, 2) == 0;
    if (what->kind == ORACLE_REDUCE && b->rank != what->root)
        c->in_place = false;
    one_buffer = c->in_place || what->kind == ORACLE_BROADCAST;

    room_bytes = one_buffer && send_bytes > recv_bytes ? send_bytes : recv_bytes;
    if (recv_bytes == 0) /* of no use to this rank: must stay as it is */
        room_bytes = what->count * element;
    if (!guarded_init(&c->recv, room_bytes, shift))
        return fail(b, c, "no memory");
    if (!one_buffer && !guarded_init(&c->send, send_bytes, oracle_below(&b->own_state, 8) * element))
        return fail(b, c, "no memory");
    c->recv_pointer = c->recv.data;
    if (!one_buffer)
        c->send_pointer = c->send.data;
    else if (what->kind == ORACLE_ALLGATHER)
        c->send_pointer = c->recv.data + own_block;
    else
        c->send_pointer = c->recv.data;
    if (send_bytes > 0)
        oracle_fill(what, c->key, b->rank, (void *)(uintptr_t)c->send_pointer);
    if (c->in_place && what->kind == ORACLE_REDUCE_SCATTER)
        c->recv_pointer = c->recv.data + own_block;
    if (c->null_unused && send_bytes == 0 && !one_buffer)
        c->send_pointer = NULL;
    if (c->null_unused && recv_bytes == 0)
        c->recv_pointer = NULL;
    return true;
}

/* ---- issuing and completing ---- */

static ddl_status issue_point_to_point(struct batch *b, struct call *c, const char **name)
{
    const oracle_call *w = &c->what;
    bool shifts = w->kind == ORACLE_SHIFT;
    int to = shifts ? (b->rank + w->root) % b->nranks : w->peer;
    int from = shifts ? (b->rank - w->root + b->nranks) % b->nranks : w->root;

    for (int turn = 0; turn < 2; turn++) {
        bool receives = (turn == 0) == c->receive_first;
        bool last = turn == 1 || !shifts;
        ddl_request **request = c->blocking && last ? NULL : &c->requests[turn];
        ddl_status status = DDL_OK;

        *name = receives ? "ddl_recv" : "ddl_send";
        if (receives && (shifts || b->rank == w->peer))
            status = ddl_recv(c->recv_pointer, w->count, w->dtype, from, b->comm, request);
        else if (!receives && (shifts || b->rank == w->root))
            status = ddl_send(c->send_pointer, w->count, w->dtype, to, b->comm, request);
        if (status != DDL_OK)
            return status;
    }
    return DDL_OK;
}

static ddl_status issue(struct batch *b, struct call *c, const char **name)
{
    const oracle_call *w = &c->what;
    ddl_request **request = c->blocking ? NULL : &c->requests[0];
    const void *send = c->send_pointer;
    void *recv = c->recv_pointer;

    *name = oracle_kind_name(w->kind);
    switch (w->kind) {
    case ORACLE_ALLREDUCE:
        return ddl_allreduce(send, recv, w->count, w->dtype, w->op, b->comm, request);
    case ORACLE_REDUCE:
        return ddl_reduce(send, recv, w->count, w->dtype, w->op, w->root, b->comm, request);
    case ORACLE_REDUCE_SCATTER:
        return ddl_reduce_scatter(send, recv, w->count, w->dtype, w->op, b->comm, request);
    case ORACLE_ALLGATHER:
        return ddl_allgather(send, recv, w->count, w->dtype, b->comm, request);
    case ORACLE_BROADCAST:
        return ddl_broadcast(recv, w->count, w->dtype, w->root, b->comm, request);
    case ORACLE_ALLTOALL:
        return ddl_alltoall(send, recv, w->count, w->dtype, b->comm, request);
    case ORACLE_BARRIER:
        return ddl_barrier(b->comm, request);
    default:
        return issue_point_to_point(b, c, name);
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

static bool complete(struct batch *b)
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
    };
    ddl_request *requests[2 * CALLS_AT_MOST];
    size_t count = 0, way = oracle_below(&b->own_state, sizeof ways / sizeof ways[0]);
    ddl_status status;

    for (int i = 0; i < b->ncalls; i++)
        for (int k = 0; k < 2; k++)
            if (b->calls[i].requests[k] != NULL)
                requests[count++] = b->calls[i].requests[k];
    for (size_t i = count; i > 1; i--) { /* any order */
        size_t other = oracle_below(&b->own_state, i);
        ddl_request *moved = requests[i - 1];
        requests[i - 1] = requests[other];
        requests[other] = moved;
    }
    status = ways[way].run(count, requests);
    return status == DDL_OK || fail_status(b, b->ncalls == 1 ? b->calls : NULL, ways[way].name, status);
}

/* ---- checking ---- */

/* What is an input only, or not this rank's to write, is as it was. */
static bool untouched(struct batch *b, const struct call *c, const void *given)
{
    const oracle_call *w = &c->what;
    size_t element = ddl_dtype_bytes(w->dtype);
    size_t send_bytes = oracle_send_count(w, b->rank) * element;
    size_t recv_bytes = oracle_recv_count(w, b->rank) * element;

    if (!guards_hold(&c->send) || !guards_hold(&c->recv))
        return fail(b, c, "wrote outside its buffers");
    if (c->send.memory != NULL && memcmp(c->send.data, given, send_bytes) != 0)
        return fail(b, c, "changed its input");
    if (c->in_place && w->kind == ORACLE_REDUCE_SCATTER) {
        size_t begin = (size_t)b->rank * recv_bytes;
        if (memcmp(c->recv.data, given, begin) != 0 ||
            memcmp(c->recv.data + begin + recv_bytes, (const unsigned char *)given + begin + recv_bytes,
                   send_bytes - begin - recv_bytes) != 0)
            return fail(b, c, "changed its input beside the own block");
    }
    if (recv_bytes == 0 && !all_bytes_are(c->recv.data, c->recv.bytes, UNSET) && !c->in_place)
        return fail(b, c, "wrote into a buffer that this rank's role does not use");
    return true;
}

static bool check(struct batch *b, const struct call *c)
{
    const oracle_call *w = &c->what;
    size_t element = ddl_dtype_bytes(w->dtype), each = 0, index = 0;
    unsigned char *inputs;
    const void **sends = calloc((size_t)b->nranks, sizeof *sends);
    char want[32], have[32];
    bool good;

    for (int r = 0; r < b->nranks; r++)
        if (oracle_send_count(w, r) > each)
            each = oracle_send_count(w, r);
    each = each * element + 8; /* not zero, and aligned for each rank */
    each -= each % 8;
    inputs = malloc(each * (size_t)b->nranks);
    if (inputs == NULL || sends == NULL) {
        free(inputs);
        free(sends);
        return fail(b, c, "no memory");
    }
    for (int r = 0; r < b->nranks; r++) {
        sends[r] = inputs + each * (size_t)r;
        oracle_fill(w, c->key, r, inputs + each * (size_t)r);
    }
    good = untouched(b, c, sends[b->rank]);
    if (good && !oracle_agrees(w, sends, b->rank, c->recv_pointer, &index, want, have))
        good = fail(b, c, "element %zu is %s, must be %s", index, have, want);
    free(inputs);
    free(sends);
    return good;
}

/* FNV-1a over what all ranks must have alike. */
static uint64_t digest(const struct batch *b)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < b->ncalls; i++) {
        const oracle_call *w = &b->calls[i].what;
        const unsigned char *data = b->calls[i].recv_pointer;
        size_t bytes = oracle_recv_count(w, b->rank) * ddl_dtype_bytes(w->dtype);
        if (w->kind != ORACLE_ALLREDUCE && w->kind != ORACLE_ALLGATHER && w->kind != ORACLE_BROADCAST)
            continue;
        for (size_t k = 0; k < bytes; k++)
            hash = (hash ^ data[k]) * 0x100000001b3u;
    }
    return hash;
}

static bool alike_on_all_ranks(struct batch *b)
{
    uint64_t own = digest(b), *all = calloc((size_t)b->nranks, sizeof *all);
    ddl_status status;
    bool good = true;

    if (all == NULL)
        return fail(b, NULL, "no memory");
    status = ddl_allgather(&own, all, 1, DDL_UINT64, b->comm, NULL);
    if (status != DDL_OK)
        good = fail_status(b, NULL, "allgather of digests", status);
    for (int r = 0; good && r < b->nranks; r++)
        if (all[r] != own)
            good = fail(b, b->ncalls == 1 ? b->calls : NULL, "rank %d has other bits than this rank", r);
    free(all);
    return good;
}

static bool run_batch(struct batch *b)
{
    bool good = true;

    for (int i = 0; good && i < b->ncalls; i++)
        good = prepare(b, &b->calls[i]);
    for (int i = 0; good && i < b->ncalls; i++) {
        const char *name = NULL;
        ddl_status status = issue(b, &b->calls[i], &name);
        if (status != DDL_OK)
            good = fail_status(b, &b->calls[i], name, status);
    }
    good = good && complete(b);
    for (int i = 0; good && i < b->ncalls; i++)
        good = check(b, &b->calls[i]);
    good = good && alike_on_all_ranks(b);
    /* After a failure requests may still be in flight: their buffers stay until the process ends. */
    for (int i = 0; good && i < b->ncalls; i++) {
        free(b->calls[i].send.memory);
        free(b->calls[i].recv.memory);
    }
    return good;
}

bool cases_run(ddl_comm *comm, const cases_plan *plan, char failure[CASES_FAILURE_BYTES])
{
    struct batch b = { .comm = comm, .plan = plan, .failure = failure };
    uint64_t state = plan->seed;

    b.rank = ddl_rank(comm);
    b.nranks = ddl_size(comm);
    b.own_state = plan->seed ^ (uint64_t)(b.rank + 1) << 40;
    while (b.first_case < plan->ncases) {
        b.ncalls = oracle_below(&state, 2) ? 1 : 2 + (int)oracle_below(&state, CALLS_AT_MOST - 1);
        for (int i = 0; i < b.ncalls; i++)
            draw_call(&state, plan, b.nranks, &b.calls[i]);
        if (!run_batch(&b))
            return false;
        b.first_case += b.ncalls;
    }
    return true;
}
