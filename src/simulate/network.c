/* network.c - a heap of events over ranks, each of which runs the real executor. */
#include "simulate/network.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "executor/executor.h"

#include <string.h>

#define NO_MESSAGE UINT32_MAX

typedef struct flight { /* a message, from the post of either end on */
    int from, to;
    uint32_t number;
    uint32_t next;              /* in its hash chain */
    ddl_xfer *send, *recv;      /* while posted and not done */
    double send_ns, recv_ns;    /* when they were posted */
    bool eager, sent, received; /* posted at some time */
    bool arrived;               /* and no receive was posted yet */
    size_t bytes;
    char *copy; /* eager content until the receive is posted */
} flight;

typedef enum event_kind {
    EVENT_START,   /* a rank begins */
    EVENT_READY,   /* a message may take its turn at the sender's port */
    EVENT_HEAD,    /* its first byte is at the receiver */
    EVENT_SENT,    /* its last byte has left */
    EVENT_ARRIVED, /* its last byte is at the receiver */
    EVENT_LOST,    /* a rank's process ends */
    EVENT_TOLD     /* a rank hears of that */
} event_kind;

typedef struct event {
    double at_ns;
    uint64_t order; /* breaks ties */
    event_kind kind;
    int rank;
    uint32_t flight;
} event;

typedef struct node {        /* a rank */
    ddl_transport transport; /* first, so that the executor's pointer leads here */
    ddl_compute compute;
    ddl_network *network;
    int rank;
    const ddl_schedule *schedule;
    ddl_run *run;
    void *in, *out, *scratch;
    ddl_dtype dtype;
    ddl_op op;
    double now_ns;                     /* the CPU is busy until then */
    double send_port_ns, recv_port_ns; /* until when they are busy */
    double done_ns;
    bool lost, cancelled;
} node;

struct ddl_network {
    ddl_network_options options;
    int nranks, nunfinished;
    node *nodes;
    event *heap;
    size_t nevents, heap_capacity;
    uint64_t order, random;
    flight *flights;
    uint32_t nflights, flights_capacity;
    uint32_t *chains; /* of the hash table */
    uint32_t nchains;
    void *untouched; /* stands for all buffers when values are not computed */
    bool failed;     /* out of memory */
};

/* ---- events ---- */

static bool before(const event *x, const event *y)
{
    return x->at_ns < y->at_ns || (!(y->at_ns < x->at_ns) && x->order < y->order);
}

static void push(ddl_network *n, double at_ns, event_kind kind, int rank, uint32_t which)
{
    if (n->nevents == n->heap_capacity) {
        size_t more = n->heap_capacity == 0 ? 256 : 2 * n->heap_capacity;
        event *grown = ddl_alloc_array(more, sizeof *grown);
        if (grown == NULL) {
            n->failed = true;
            return;
        }
        if (n->nevents > 0)
            memcpy(grown, n->heap, n->nevents * sizeof *grown);
        ddl_free(n->heap);
        n->heap = grown;
        n->heap_capacity = more;
    }
    event e = { at_ns, n->order++, kind, rank, which };
    size_t at = n->nevents++;
    for (; at > 0 && before(&e, &n->heap[(at - 1) / 2]); at = (at - 1) / 2)
        n->heap[at] = n->heap[(at - 1) / 2];
    n->heap[at] = e;
}

static event pop(ddl_network *n)
{
    event first = n->heap[0], last = n->heap[--n->nevents];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < n->nevents && before(&n->heap[child + 1], &n->heap[child]))
            child++;
        if (child >= n->nevents || !before(&n->heap[child], &last))
            break;
        n->heap[at] = n->heap[child];
        at = child;
    }
    n->heap[at] = last;
    return first;
}

/* From 0 up to 1. */
static double random_part(ddl_network *n)
{
    n->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = n->random;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)(x >> 11) / (double)(UINT64_C(1) << 53);
}

static double later(double x, double y)
{
    return x > y ? x : y;
}

static double port_ns(const ddl_network *n, size_t bytes)
{
    return n->options.bytes_per_ns > 0 ? (double)bytes / n->options.bytes_per_ns : 0;
}

static double reduce_ns(const ddl_network *n, size_t bytes)
{
    return n->options.reduce_bytes_per_ns > 0 ? (double)bytes / n->options.reduce_bytes_per_ns : 0;
}

/* ---- the transport ---- */

/* The message of this name, made known if it is not; NULL: out of memory. */
static flight *flight_of(ddl_network *n, int from, int to, uint32_t number)
{
    uint64_t hash = ((uint64_t)from * (uint64_t)n->nranks + (uint64_t)to) * UINT64_C(0x9e3779b97f4a7c15) +
                    number * UINT64_C(0xbf58476d1ce4e5b9);
    uint32_t *chain = &n->chains[(hash >> 20) % n->nchains];
    for (uint32_t i = *chain; i != NO_MESSAGE; i = n->flights[i].next)
        if (n->flights[i].from == from && n->flights[i].to == to && n->flights[i].number == number)
            return &n->flights[i];
    DDL_ASSERT(n->nflights < n->flights_capacity);
    flight *f = &n->flights[n->nflights];
    *f = (flight){ .from = from, .to = to, .number = number, .next = *chain };
    *chain = n->nflights++;
    return f;
}

static uint32_t index_of(const ddl_network *n, const flight *f)
{
    return (uint32_t)(f - n->flights);
}

static void copy_parts(const ddl_part *to, const char *from)
{
    for (int i = 0; i < 2; i++) {
        if (to[i].bytes > 0)
            memcpy(to[i].data, from, to[i].bytes);
        from += to[i].bytes;
    }
}

/* From the sender's parts to the receiver's, which may be split elsewhere. */
static void move_parts(const ddl_part *to, const ddl_part *from)
{
    ddl_part target = to[0], source = from[0];
    for (int t = 0, f = 0;;) {
        if (target.bytes == 0) {
            if (t++ == 1)
                return;
            target = to[1];
            continue;
        }
        if (source.bytes == 0) {
            if (f++ == 1)
                return;
            source = from[1];
            continue;
        }
        size_t bytes = target.bytes < source.bytes ? target.bytes : source.bytes;
        memcpy(target.data, source.data, bytes);
        target = (ddl_part){ (char *)target.data + bytes, target.bytes - bytes };
        source = (ddl_part){ (char *)source.data + bytes, source.bytes - bytes };
    }
}

static bool post_send(ddl_transport *transport, ddl_xfer *xfer)
{
    node *me = (node *)transport;
    ddl_network *n = me->network;
    flight *f = flight_of(n, me->rank, xfer->peer, xfer->key.number);
    DDL_ASSERT(!f->sent);
    me->now_ns += n->options.overhead_ns;
    f->sent = true;
    f->bytes = xfer->bytes;
    f->send_ns = me->now_ns;
    f->eager = xfer->bytes <= n->options.eager_bytes;
    if (!f->eager) {
        f->send = xfer;
        if (f->recv != NULL)
            push(n, later(f->send_ns, f->recv_ns + n->options.latency_ns), EVENT_READY, me->rank,
                 index_of(n, f));
        return false;
    }
    if (n->options.compute != NULL) {
        f->copy = ddl_alloc(xfer->bytes);
        if (f->copy == NULL) {
            n->failed = true;
            return true;
        }
        move_parts((ddl_part[2]){ { f->copy, xfer->bytes }, { NULL, 0 } }, xfer->part);
    }
    push(n, f->send_ns, EVENT_READY, me->rank, index_of(n, f));
    return true;
}

static void take_copy(ddl_network *n, flight *f, const ddl_xfer *xfer)
{
    if (n->options.compute != NULL && f->copy != NULL)
        copy_parts(xfer->part, f->copy);
    ddl_free(f->copy);
    f->copy = NULL;
}

static bool post_recv(ddl_transport *transport, ddl_xfer *xfer)
{
    node *me = (node *)transport;
    ddl_network *n = me->network;
    flight *f = flight_of(n, xfer->peer, me->rank, xfer->key.number);
    DDL_ASSERT(!f->received);
    DDL_ASSERT(!f->sent || f->bytes == xfer->bytes);
    f->received = true;
    f->recv_ns = me->now_ns;
    if (f->arrived) {
        me->now_ns += n->options.overhead_ns;
        take_copy(n, f, xfer);
        return true;
    }
    f->recv = xfer;
    if (f->sent && !f->eager && f->send != NULL)
        push(n, later(f->send_ns, f->recv_ns + n->options.latency_ns), EVENT_READY, f->from, index_of(n, f));
    return false;
}

static void forget(ddl_transport *transport, ddl_xfer *xfer)
{
    node *me = (node *)transport;
    ddl_network *n = me->network;
    for (int sends = 0; sends < 2; sends++) {
        flight *f = sends ? flight_of(n, me->rank, xfer->peer, xfer->key.number)
                          : flight_of(n, xfer->peer, me->rank, xfer->key.number);
        if (f->send == xfer)
            f->send = NULL;
        if (f->recv == xfer)
            f->recv = NULL;
    }
}

static const struct ddl_transport_ops transport_ops = { post_send, post_recv, forget };

/* ---- the compute ---- */

static node *node_of_compute(ddl_compute *compute)
{
    return DDL_CONTAINER(compute, node, compute);
}

static void compute_reduce(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                           size_t count, ddl_dtype dtype, ddl_op op)
{
    node *me = node_of_compute(compute);
    ddl_compute *real = me->network->options.compute;
    me->now_ns += reduce_ns(me->network, (size_t)(noperands - 1) * count * ddl_dtype_bytes(dtype));
    if (real != NULL)
        real->ops->reduce(real, target, operands, noperands, count, dtype, op);
}

static void compute_copy(ddl_compute *compute, void *target, const void *source, size_t bytes,
                         bool past_caches)
{
    node *me = node_of_compute(compute);
    ddl_compute *real = me->network->options.compute;
    me->now_ns += reduce_ns(me->network, bytes);
    if (real != NULL)
        real->ops->copy(real, target, source, bytes, past_caches);
}

static void compute_scale(ddl_compute *compute, void *target, size_t count, ddl_dtype dtype, int divisor)
{
    node *me = node_of_compute(compute);
    ddl_compute *real = me->network->options.compute;
    me->now_ns += reduce_ns(me->network, count * ddl_dtype_bytes(dtype));
    if (real != NULL)
        real->ops->scale(real, target, count, dtype, divisor);
}

static const struct ddl_compute_ops compute_ops = { compute_reduce, compute_reduce, NULL, compute_copy,
                                                    compute_scale };

/* ---- setting up ---- */

ddl_status ddl_network_create(int nranks, const ddl_network_options *options, ddl_network **out,
                              ddl_error *err)
{
    DDL_ASSERT(nranks > 0);
    ddl_network *n = ddl_alloc(sizeof *n);
    if (n == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a virtual network");
    n->options = *options;
    n->nranks = nranks;
    n->random = options->seed;
    n->nodes = ddl_alloc_array((size_t)nranks, sizeof *n->nodes);
    if (n->nodes == NULL) {
        ddl_network_destroy(n);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d virtual ranks", nranks);
    }
    for (int i = 0; i < nranks; i++) {
        node *me = &n->nodes[i];
        me->transport.ops = &transport_ops;
        me->compute.ops = &compute_ops;
        me->network = n;
        me->rank = i;
        me->done_ns = -1;
    }
    *out = n;
    return DDL_OK;
}

void ddl_network_destroy(ddl_network *n)
{
    if (n == NULL)
        return;
    for (int i = 0; n->nodes != NULL && i < n->nranks; i++) {
        ddl_run_destroy(n->nodes[i].run);
        if (n->options.compute != NULL)
            ddl_free(n->nodes[i].scratch);
    }
    for (uint32_t i = 0; i < n->nflights; i++)
        ddl_free(n->flights[i].copy);
    ddl_free(n->nodes);
    ddl_free(n->heap);
    ddl_free(n->flights);
    ddl_free(n->chains);
    ddl_free(n->untouched);
    ddl_free(n);
}

ddl_status ddl_network_assign(ddl_network *n, int rank, const ddl_schedule *schedule, void *in, void *out,
                              ddl_dtype dtype, ddl_op op, ddl_error *err)
{
    DDL_ASSERT(0 <= rank);
    DDL_ASSERT(rank < n->nranks);
    DDL_ASSERT(n->nodes[rank].run == NULL);
    node *me = &n->nodes[rank];
    me->schedule = schedule;
    me->in = in;
    me->out = out;
    me->dtype = dtype;
    me->op = op;
    if (n->options.compute != NULL && (me->scratch = ddl_alloc(schedule->scratch_bytes)) == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu bytes of scratch", schedule->scratch_bytes);
    return ddl_run_create(schedule, &me->run, err);
}

static size_t slice_end(const ddl_slice *slice, size_t end)
{
    return slice->bytes > 0 && slice->offset + slice->bytes > end ? slice->offset + slice->bytes : end;
}

/* Address space for all buffers of all ranks, as nobody looks at them. */
static ddl_status make_untouched(ddl_network *n, ddl_error *err)
{
    size_t bytes = 0;
    for (int i = 0; i < n->nranks; i++) {
        const ddl_schedule *s = n->nodes[i].schedule;
        for (uint32_t j = 0; s != NULL && j < s->nsteps; j++) {
            bytes = slice_end(&s->steps[j].target.part[0], bytes);
            bytes = slice_end(&s->steps[j].target.part[1], bytes);
            bytes = slice_end(&s->steps[j].source, bytes);
            for (uint32_t k = 0; k < s->steps[j].noperands; k++)
                bytes = slice_end(&s->operands[s->steps[j].first_operand + k], bytes);
        }
    }
    if ((n->untouched = ddl_alloc(bytes)) == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no address space of %zu bytes", bytes);
    for (int i = 0; i < n->nranks; i++)
        n->nodes[i].in = n->nodes[i].out = n->nodes[i].scratch = n->untouched;
    return DDL_OK;
}

static ddl_status make_flights(ddl_network *n, ddl_error *err)
{
    uint32_t ends = 0;
    for (int i = 0; i < n->nranks; i++)
        if (n->nodes[i].schedule != NULL)
            ends += n->nodes[i].schedule->nmessages;
    /* Cancelling asks for both directions, so a name may be made for a message that does not exist. */
    n->flights_capacity = 2 * ends + 1;
    n->nchains = ends + 1;
    n->flights = ddl_alloc_array(n->flights_capacity, sizeof *n->flights);
    n->chains = ddl_alloc_array(n->nchains, sizeof *n->chains);
    if (n->flights == NULL || n->chains == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %u virtual messages", ends);
    memset(n->chains, 0xff, n->nchains * sizeof *n->chains);
    return DDL_OK;
}

/* ---- running ---- */

static void rank_done(ddl_run *run, void *arg)
{
    (void)run;
    node *me = arg;
    me->done_ns = me->now_ns;
    me->network->nunfinished--;
}

static void start_rank(node *me)
{
    static const ddl_signature signature = { 0, 0, 0, 0, 0, 0 };
    ddl_binding binding = {
        .in = me->in,
        .out = me->out,
        .scratch = me->scratch,
        .dtype = me->dtype,
        .op = me->op,
        .transport = &me->transport,
        .compute = &me->compute,
        .key = { 0, 0, 1, 0 },
        .signature = &signature,
        .finished = rank_done,
        .arg = me,
    };
    if (ddl_run_start(me->run, &binding))
        rank_done(me->run, me);
}

static void launch(ddl_network *n, flight *f, double at_ns)
{
    node *sender = &n->nodes[f->from];
    double start = later(at_ns, sender->send_port_ns);
    if (n->options.compute != NULL && !f->eager)
        move_parts(f->recv->part, f->send->part);
    sender->send_port_ns = start + port_ns(n, f->bytes);
    double latency = n->options.latency_ns + n->options.jitter_ns * random_part(n);
    push(n, start + latency, EVENT_HEAD, f->to, index_of(n, f));
    if (!f->eager)
        push(n, sender->send_port_ns, EVENT_SENT, f->from, index_of(n, f));
}

/* An xfer is done: back to the executor, on its rank's CPU. */
static void hand_back(node *me, ddl_xfer **xfer, double at_ns)
{
    ddl_xfer *done = *xfer;
    *xfer = NULL;
    me->now_ns = later(at_ns, me->now_ns);
    done->done(done);
}

static void arrive(ddl_network *n, flight *f, double at_ns)
{
    node *receiver = &n->nodes[f->to];
    if (f->recv == NULL) {
        f->arrived = !f->received; /* else the receive was cancelled */
        return;
    }
    take_copy(n, f, f->recv);
    hand_back(receiver, &f->recv, later(at_ns, receiver->now_ns) + n->options.overhead_ns);
}

static void lose(ddl_network *n, node *me, double at_ns)
{
    me->lost = true;
    if (me->done_ns >= 0 || me->cancelled)
        return;
    ddl_run_cancel(me->run);
    n->nunfinished--;
    for (int i = 0; i < n->nranks; i++)
        if (i != me->rank)
            push(n, at_ns + n->options.latency_ns, EVENT_TOLD, i, NO_MESSAGE);
}

static void tell(ddl_network *n, node *me)
{
    if (me->done_ns >= 0 || me->cancelled)
        return;
    me->cancelled = true;
    ddl_run_cancel(me->run);
    n->nunfinished--;
}

/* What happens on a rank's CPU waits until it is not paused. */
static double awake_ns(const ddl_network *n, int rank, double at_ns)
{
    double end = n->options.pause_start_ns + n->options.pause_ns;
    bool asleep = rank == n->options.paused_rank && n->options.pause_start_ns <= at_ns && at_ns < end;
    return asleep ? end : at_ns;
}

static void happen(ddl_network *n, const event *e)
{
    node *me = &n->nodes[e->rank];
    flight *f = e->flight == NO_MESSAGE ? NULL : &n->flights[e->flight];
    bool on_cpu =
        e->kind == EVENT_START || e->kind == EVENT_SENT || e->kind == EVENT_ARRIVED || e->kind == EVENT_TOLD;
    if (me->lost)
        return;
    double awake = awake_ns(n, e->rank, later(e->at_ns, me->now_ns));
    if (on_cpu && awake > later(e->at_ns, me->now_ns)) {
        push(n, awake, e->kind, e->rank, e->flight);
        return;
    }
    switch (e->kind) {
    case EVENT_START:
        me->now_ns = e->at_ns;
        start_rank(me);
        break;
    case EVENT_READY:
        if (f->eager || (f->send != NULL && f->recv != NULL))
            launch(n, f, e->at_ns);
        break;
    case EVENT_HEAD:
        me->recv_port_ns = later(e->at_ns, me->recv_port_ns) + port_ns(n, f->bytes);
        push(n, me->recv_port_ns, EVENT_ARRIVED, e->rank, e->flight);
        break;
    case EVENT_SENT:
        if (f->send != NULL)
            hand_back(me, &f->send, e->at_ns);
        break;
    case EVENT_ARRIVED:
        arrive(n, f, e->at_ns);
        break;
    case EVENT_LOST:
        lose(n, me, e->at_ns);
        break;
    case EVENT_TOLD:
        tell(n, me);
        break;
    }
}

static void name_pending(void *arg, int peer, bool outgoing)
{
    int *first = arg;
    (void)outgoing;
    if (*first < 0)
        *first = peer;
}

static ddl_status outcome(const ddl_network *n, ddl_error *err)
{
    if (n->failed)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the virtual network's events");
    for (int i = 0; i < n->nranks; i++)
        if (n->nodes[i].cancelled) {
            DDL_FAIL(err, DDL_EPEERLOST, "virtual rank %d was lost", n->options.lost_rank);
            ddl_error_blame(err, n->options.lost_rank);
            return DDL_EPEERLOST;
        }
    for (int i = 0; i < n->nranks; i++) {
        const node *me = &n->nodes[i];
        if (me->run == NULL || me->done_ns >= 0 || me->lost)
            continue;
        int peer = -1;
        ddl_run_visit_pending(me->run, name_pending, &peer);
        return DDL_FAIL(err, DDL_EINTERNAL, "virtual rank %d waits for ever for rank %d", i, peer);
    }
    return DDL_OK;
}

ddl_status ddl_network_run(ddl_network *n, ddl_error *err)
{
    if (n->options.compute == NULL)
        DDL_TRY(make_untouched(n, err));
    DDL_TRY(make_flights(n, err));
    for (int i = 0; i < n->nranks; i++) {
        if (n->nodes[i].run == NULL) {
            n->nodes[i].done_ns = 0; /* has no part in it */
            continue;
        }
        n->nunfinished++;
        push(n, 0, EVENT_START, i, NO_MESSAGE);
    }
    if (n->options.lost_rank >= 0)
        push(n, n->options.lost_ns, EVENT_LOST, n->options.lost_rank, NO_MESSAGE);
    while (n->nevents > 0 && n->nunfinished > 0 && !n->failed) {
        event e = pop(n);
        happen(n, &e);
    }
    return outcome(n, err);
}

double ddl_network_slowest_ns(const ddl_network *n)
{
    double slowest = 0;
    for (int i = 0; i < n->nranks; i++)
        slowest = later(n->nodes[i].done_ns, slowest);
    return slowest;
}
