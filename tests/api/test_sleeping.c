/*
 * test_sleeping.c - ranks that sleep as soon as there is nothing to do, with no tick that would end a sleep:
 * posts of any size on boards, messages through lanes, heaps and from the memory of their senders, mixed.
 *
 * Threads are the ranks, each with memory, mesh and boards of its own, as a process has them, and driven as
 * world_engine.c drives them. Who is not woken though there is something for him fails the test.
 */
#define _GNU_SOURCE /* for processors of threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../io/idle_client.h"
#include "../transport/meeting.h"
#include "algorithms/catalogue.h"
#include "backend/posting.h"
#include "base/clock.h"
#include "base/size.h"
#include "compute/compute_cpu.h"
#include "io/local.h"
#include "transport/transport_mesh.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MOST_RANKS = 4,
    COMMS = 2, /* at a time; more than that take the pads of those before */
    LIFE = 50, /* calls of a communicator, at most */
    IN_FLIGHT = 3,
    PIECES = 3,
    MOST_COUNT = DDL_POST_BYTES / 4,
    MESSAGE_BYTES = 96 * 1024,
    PULL_BYTES = 16 * 1024,
    NAP_MS = 2000,
    PATIENCE_MS = 20000,
    KINDS = 5,
    SIZES = 5,
};

static int64_t seconds = 2;

static const struct kind {
    ddl_collective collective;
    const char *algorithm;
    bool is_rooted;
} kinds[KINDS] = {
    { DDL_COLLECTIVE_ALLREDUCE, "flat", false },   { DDL_COLLECTIVE_BARRIER, "flat", false },
    { DDL_COLLECTIVE_GATHER, "direct", true },     { DDL_COLLECTIVE_SCATTER, "direct", true },
    { DDL_COLLECTIVE_ALLREDUCE, "direct", false }, /* of two rounds */
};

static const uint32_t sizes[SIZES] = { MOST_RANKS, 7, 300, 9000,
                                       MOST_COUNT }; /* elements; the last fill a sheet */

typedef struct party party;
typedef struct world world;

typedef struct comm {
    party *owner;
    uint32_t id;
    int ncalls;
    uint64_t sequence;
    ddl_board board;
    ddl_posting posting;
} comm;

typedef struct call {
    ddl_post post;
    ddl_signature signature;
    int kind, root;
    uint32_t count, npieces, piece;
    bool is_begun, is_done;
    uint32_t *in, *out; /* each for the most that any call needs, and one more */
} call;

typedef struct message {
    ddl_xfer xfer;
    bool is_done;
} message;

struct world {
    int nranks;
    int members[MOST_RANKS];
    ddl_oneshot *oneshots[KINDS][SIZES][MOST_RANKS][MOST_RANKS]; /* of each kind, size, root and rank */
    _Atomic(uint64_t) last;                                      /* call, once that is decided */
    ddl_deadline end;
    _Atomic(bool) has_failed;
    struct party {
        pthread_t thread;
        world *world;
        int rank;
        ddl_roster *roster;
        ddl_lanes *lanes;
        ddl_heap *heap;
        ddl_engine *engine;
        ddl_mesh *mesh;
        comm comms[COMMS];
        ddl_list busy;
        call calls[IN_FLIGHT];
        uint8_t *plain[2], *shared[2]; /* to send from, and to receive into */
        uint64_t nsleeps;
        int lost, wrong;
        char why[200];   /* the first thing that was wrong */
        bool was_asleep; /* in a meeting */
    } parties[MOST_RANKS];
};

static void __attribute__((format(printf, 2, 3))) blame(party *self, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (self->wrong++ == 0)
        vsnprintf(self->why, sizeof self->why, format, arguments);
    va_end(arguments);
    atomic_store(&self->world->has_failed, true); /* which nobody waits for any longer */
}

/* ---- what ranks hear ---- */

static bool on_heard(void *arg, int peer, const ddl_frame *frame)
{
    (void)arg;
    (void)peer;
    (void)frame;
    return true;
}

static void on_told(void *arg, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    (void)frame;
    blame(arg, "rank %d tells: %s", peer, notice->text);
}

static bool on_agreement(void *arg, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err)
{
    (void)frame;
    (void)payload;
    (void)err;
    blame(arg, "rank %d asks who is left", peer);
    return true;
}

static void on_left(void *arg, int peer)
{
    (void)arg;
    (void)peer;
}

static void on_lost(void *arg, int peer, int os_errno, const ddl_error *error)
{
    blame(arg, "rank %d is lost (%d): %s", peer, os_errno,
          error != NULL ? error->text : "its connection ended");
}

static void posted(void *arg)
{
    party *self = ((comm *)arg)->owner;
    ddl_lanes_wake(self->lanes, self->world->members, self->world->nranks);
}

static void differs(void *arg, int rank, uint64_t sequence, const ddl_signature *ours,
                    const ddl_signature *theirs)
{
    blame(((comm *)arg)->owner, "call %#llx: collective %d of %llu, rank %d has collective %d of %llu",
          (unsigned long long)sequence, ours->collective, (unsigned long long)ours->count, rank,
          theirs->collective, (unsigned long long)theirs->count);
}

/* ---- driving, as world_engine.c and engine.c do, but for the tick ---- */

static bool sweep(void *arg)
{
    ddl_mesh_sweep(((party *)arg)->mesh);
    return false;
}

static bool needs_loop(void *arg)
{
    return ddl_mesh_needs_loop(((party *)arg)->mesh);
}

static bool progress_posts(party *self)
{
    bool moved = false;
    DDL_LIST_FOR_EACH (link, &self->busy)
        moved = ddl_posting_progress(DDL_CONTAINER(link, ddl_posting, link)) || moved;
    return moved;
}

static bool doze(void *arg)
{
    party *self = arg;
    bool missed = ddl_mesh_doze(self->mesh);
    return progress_posts(self) || missed;
}

static bool rings_within(const party *self, int nap_ms)
{
    struct pollfd bell = { .fd = ddl_lanes_bell(self->lanes), .events = POLLIN };
    return poll(&bell, 1, nap_ms) == 1;
}

/* Sleep until the bell rings. Who has something to look at then, and still hears no bell, was forgotten: it
 * is not that another one has yet to ring, or the machine stood still. */
static void sleep_until_rung(party *self, ddl_deadline deadline)
{
    self->nsleeps++;
    while (!rings_within(self, NAP_MS)) {
        if (atomic_load(&self->world->has_failed) || ddl_deadline_passed(deadline))
            return;
        if (doze(self) && !rings_within(self, NAP_MS)) {
            self->lost++;
            atomic_store(&self->world->has_failed, true);
            return;
        }
    }
    ddl_local_bell_silence(ddl_lanes_bell(self->lanes));
}

/* False: somebody has failed. */
static bool await(party *self, const bool *is_done)
{
    const ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (!*is_done && self->wrong == 0 && !atomic_load(&self->world->has_failed)) {
        if (ddl_deadline_passed(deadline))
            blame(self, "something has not come for %d ms", PATIENCE_MS);
        ddl_mesh_sweep(self->mesh);
        (void)progress_posts(self);
        if (!*is_done && !doze(self) && !*is_done)
            sleep_until_rung(self, deadline);
    }
    return *is_done;
}

/* ---- calls over a board ---- */

static uint32_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(x >> 32);
}

static uint32_t value(uint64_t sequence, int rank, uint32_t i)
{
    return (uint32_t)sequence * 1000003 + (uint32_t)rank * 7919 + i;
}

/* Blocks of a sheet for all, where one rank has something for each. */
static uint32_t count_of(int kind, int size, int nranks)
{
    return kinds[kind].collective == DDL_COLLECTIVE_SCATTER && sizes[size] > (uint32_t)nranks
               ? sizes[size] / (uint32_t)nranks
               : sizes[size];
}

static void call_finished(ddl_post *post)
{
    DDL_CONTAINER(post, call, post)->is_done = true;
}

static bool next_piece(ddl_post *post)
{
    call *c = DDL_CONTAINER(post, call, post);
    if (++c->piece == c->npieces)
        return false;
    post->in = (uint32_t *)post->in + c->count;
    post->out = (uint32_t *)post->out + c->count;
    return true;
}

static void begin(party *self, comm *on, call *c, uint32_t what)
{
    const int nranks = self->world->nranks;
    const int kind = (int)(what % KINDS), root = (int)(what / KINDS) % nranks;
    const uint32_t luck = mix(what);
    const int size = luck % 64 == 0 ? 4 : luck % 16 == 1 ? 3 : (int)(luck % 3);
    const ddl_collective collective = kinds[kind].collective;
    c->kind = kind;
    c->root = root;
    c->count = count_of(kind, size, nranks);
    c->npieces = collective == DDL_COLLECTIVE_ALLREDUCE ? 1 + luck / 64 % PIECES : 1;
    c->piece = 0;
    const uint32_t nin = c->count * (collective == DDL_COLLECTIVE_SCATTER ? (uint32_t)nranks : c->npieces);
    const uint32_t nout = c->count * (collective == DDL_COLLECTIVE_GATHER ? (uint32_t)nranks : c->npieces);
    for (uint32_t i = 0; i < nin; i++)
        c->in[i] = value(on->sequence, self->rank, i);
    memset(c->out, 0xee, (nout + 1) * sizeof *c->out);
    c->signature = (ddl_signature){ .collective = (uint8_t)collective, .root = root, .count = c->count };
    c->post = (ddl_post){ .oneshot = self->world->oneshots[kind][size][root][self->rank],
                          .signature = &c->signature,
                          .number = ddl_board_number(on->id, on->sequence),
                          .sequence = on->sequence,
                          .in = c->in,
                          .out = c->out,
                          .dtype = DDL_INT32,
                          .op = DDL_SUM,
                          .next = c->npieces > 1 ? next_piece : NULL,
                          .finished = call_finished };
    c->is_begun = true;
    c->is_done = ddl_posting_start(&on->posting, &c->post, 0);
}

static int count_wrong(const party *self, const call *c)
{
    const int nranks = self->world->nranks;
    const uint64_t sequence = c->post.sequence;
    const ddl_collective collective = kinds[c->kind].collective;
    uint32_t nout = 0, first = 0, each = 0; /* element i is to be first + each * i; of a block if gathered */
    int wrong = 0;
    if (collective == DDL_COLLECTIVE_ALLREDUCE) {
        nout = c->count * c->npieces;
        each = (uint32_t)nranks;
        for (int rank = 0; rank < nranks; rank++)
            first += value(sequence, rank, 0);
    } else if (collective == DDL_COLLECTIVE_SCATTER) {
        nout = c->count;
        each = 1;
        first = value(sequence, c->root, (uint32_t)self->rank * c->count);
    } else if (collective == DDL_COLLECTIVE_GATHER && self->rank == c->root) {
        nout = c->count * (uint32_t)nranks;
        for (int rank = 0; rank < nranks; rank++)
            for (uint32_t i = 0; i < c->count; i++)
                wrong += c->out[(uint32_t)rank * c->count + i] != value(sequence, rank, i);
    }
    for (uint32_t i = 0; i < nout && each > 0; i++)
        wrong += c->out[i] != first + each * i;
    return wrong + (c->out[nout] != 0xeeeeeeee);
}

/* Wait for it, if it was begun. */
static bool end(party *self, call *c)
{
    if (!c->is_begun)
        return true;
    c->is_begun = false;
    if (!await(self, &c->is_done))
        return false;
    const int wrong = count_wrong(self, c);
    if (wrong > 0)
        blame(self, "%d elements of call %#llx, kind %d of %u in %u pieces, root %d", wrong,
              (unsigned long long)c->post.sequence, c->kind, (unsigned)c->count, (unsigned)c->npieces,
              c->root);
    return self->wrong == 0;
}

/* ---- messages ---- */

static void message_done(ddl_xfer *xfer)
{
    DDL_CONTAINER(xfer, message, xfer)->is_done = true;
}

static void post_message(party *self, message *m, bool sends, int peer, const ddl_key *key, void *data,
                         size_t bytes)
{
    static const ddl_signature signature = { .collective = DDL_COLLECTIVE_SEND };
    ddl_transport *transport = ddl_mesh_transport(self->mesh);
    *m = (message){ .xfer = { .key = *key,
                              .peer = peer,
                              .part = { { data, bytes } },
                              .bytes = bytes,
                              .signature = &signature,
                              .done = message_done,
                              .pulls = true } };
    m->is_done =
        sends ? transport->ops->send(transport, &m->xfer) : transport->ops->recv(transport, &m->xfer);
}

static uint8_t byte(uint64_t sequence, int rank, size_t i)
{
    return (uint8_t)(sequence * 31 + (uint64_t)rank * 7 + i * 13 + (i >> 8));
}

/* Each to the next, as large as the call says, from memory and into memory that others reach or not. */
static bool pass_on(party *self, const comm *on, uint32_t what)
{
    const int nranks = self->world->nranks, rank = self->rank;
    const int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    const size_t bytes = 1 + (what % 4 == 0 ? what / 4 % MESSAGE_BYTES : what / 4 % 200);
    const ddl_key key = { .channel = 2 * on->id, .sequence = on->sequence };
    uint8_t *from = what >> 28 & 1 ? self->shared[0] : self->plain[0];
    uint8_t *to = what >> 29 & 1 ? self->shared[1] : self->plain[1];
    message out, in;
    for (size_t i = 0; i < bytes; i++)
        from[i] = byte(on->sequence, rank, i);
    post_message(self, &out, true, next, &key, from, bytes);
    post_message(self, &in, false, before, &key, to, bytes);
    ddl_mesh_flush(self->mesh); /* which wakes, as at the start of an operation */
    if (!await(self, &in.is_done) || !await(self, &out.is_done))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (to[i] != byte(on->sequence, before, i))
            blame(self, "byte %zu of %zu from rank %d is %#x (%#x of what was drawn)", i, bytes, before,
                  to[i], what);
    return self->wrong == 0;
}

/* All have come here before anybody goes on; in the number of the last call. */
static bool meet_all(party *self, const comm *on)
{
    message out[MOST_RANKS], in[MOST_RANKS];
    uint8_t word = 1, words[MOST_RANKS];
    const ddl_key key = { .channel = 2 * on->id + 1, .sequence = on->sequence };
    bool all = true;
    for (int peer = 0; peer < self->world->nranks; peer++)
        if (peer != self->rank) {
            post_message(self, &out[peer], true, peer, &key, &word, 1);
            post_message(self, &in[peer], false, peer, &key, &words[peer], 1);
        }
    ddl_mesh_flush(self->mesh);
    for (int peer = 0; peer < self->world->nranks && all; peer++)
        if (peer != self->rank)
            all = await(self, &out[peer].is_done) && await(self, &in[peer].is_done);
    return all;
}

/* ---- communicators ---- */

static void make_comm(party *self, int which, uint32_t id)
{
    comm *c = &self->comms[which];
    *c = (comm){ .owner = self, .id = id };
    c->board = ddl_board_of(self->rank, self->world->nranks);
    for (int rank = 0; rank < self->world->nranks; rank++) {
        ddl_pad *all = ddl_lanes_room(self->lanes, rank);
        c->board.pads[rank] = all + which;
    }
    ddl_board_begin(&c->board, false);
    const ddl_posting_owner owner = { &c->board, posted, differs, c, &self->busy, NULL };
    ddl_posting_init(&c->posting, &owner, ddl_compute_cpu());
}

/* Short lives, too: who has met the others may still look at what they posted last. */
static int life_of(const comm *c)
{
    return 1 + (int)(mix(c->id) % LIFE);
}

/* When all have ended with it, another one takes its board. */
static bool replace_comm(party *self, int which)
{
    for (int i = 0; i < IN_FLIGHT; i++)
        if (!end(self, &self->calls[i]))
            return false;
    comm *c = &self->comms[which];
    if (!meet_all(self, c))
        return false;
    ddl_posting_fini(&c->posting);
    make_comm(self, which, c->id + COMMS);
    return true;
}

/* ---- a rank ---- */

/* Which call is the last one rank 0 says, far enough ahead that nobody can have gone past it. */
static bool is_over(party *self, uint64_t n)
{
    world *w = self->world;
    if (self->rank == 0 && n % 64 == 0 && atomic_load(&w->last) == UINT64_MAX && ddl_deadline_passed(w->end))
        atomic_store(&w->last, n + 4 * COMMS * LIFE);
    return n > atomic_load(&w->last);
}

static void *take_part(void *arg)
{
    party *self = arg;
    bool goes_on = true;
    for (uint64_t n = 1; goes_on && !is_over(self, n); n++) {
        const uint32_t what = mix(n * 8 + (uint64_t)self->world->nranks);
        const int which = (int)(mix(what) >> 8) % COMMS;
        if (self->comms[which].ncalls == life_of(&self->comms[which]))
            goes_on = replace_comm(self, which);
        comm *on = &self->comms[which];
        on->ncalls++;
        on->sequence += what % 8 == 7 ? (uint64_t)1 << 31 : 1; /* as after so many calls by messages */
        if (goes_on && what >> 30 == 0) {
            goes_on = pass_on(self, on, what);
        } else if (goes_on) {
            goes_on = end(self, &self->calls[n % IN_FLIGHT]);
            if (goes_on)
                begin(self, on, &self->calls[n % IN_FLIGHT], what);
        }
    }
    for (int which = 0; which < COMMS && goes_on; which++)
        goes_on = replace_comm(self, which);
    return NULL;
}

/* ---- worlds ---- */

static void make_oneshots(world *w, int kind, int size, int root)
{
    const ddl_algorithm *row = ddl_catalogue_find(kinds[kind].collective, kinds[kind].algorithm);
    ddl_schedule *schedules[MOST_RANKS];
    ddl_error error;
    for (int rank = 0; rank < w->nranks; rank++) {
        const uint32_t count = count_of(kind, size, w->nranks);
        ddl_shape shape = { .rank = rank,
                            .nranks = w->nranks,
                            .root = root,
                            .count = count,
                            .stride = count,
                            .placement = { w->nranks, 1, NULL },
                            .element_bytes = 4 };
        assert_int_equal(row->build(&shape, &schedules[rank], &error), DDL_OK);
    }
    for (int rank = 0; rank < w->nranks; rank++) {
        ddl_oneshot_posts posts[MOST_RANKS];
        for (int other = 0; other < w->nranks; other++)
            posts[other] = ddl_oneshot_posts_for(schedules[other], rank);
        assert_true(ddl_oneshot_is_possible(posts, w->nranks, kinds[kind].is_rooted));
        assert_int_equal(
            ddl_oneshot_create(schedules[rank], posts, &w->oneshots[kind][size][root][rank], &error), DDL_OK);
    }
    for (int rank = 0; rank < w->nranks; rank++)
        ddl_schedule_destroy(schedules[rank]);
}

static void make_memory(party *self)
{
    const int nranks = self->world->nranks;
    assert_int_equal(ddl_roster_create(self->rank, nranks, &self->roster, NULL), DDL_OK);
    for (int rank = 0; rank < nranks; rank++)
        self->roster->members[rank].pid = getpid();
    ddl_roster_derive(self->roster);
    assert_int_equal(ddl_lanes_create(self->roster, COMMS * sizeof(ddl_pad), 0, 1, &self->lanes, NULL),
                     DDL_OK);
    size_t bytes;
    void *memory = ddl_lanes_heap(self->lanes, self->rank, &bytes);
    assert_int_equal(ddl_heap_create(memory, bytes, ddl_lanes_memory(self->lanes),
                                     ddl_lanes_heap_start(self->lanes), &self->heap, NULL),
                     DDL_OK);
    for (int i = 0; i < 2; i++) {
        void *block;
        assert_int_equal(ddl_heap_alloc(self->heap, MESSAGE_BYTES, &block, NULL), DDL_OK);
        self->shared[i] = block;
        self->plain[i] = malloc(MESSAGE_BYTES);
        assert_non_null(self->plain[i]);
    }
}

static void join(party *self, const party *other)
{
    assert_int_equal(ddl_lanes_join(self->lanes, other->rank, dup(ddl_lanes_memory(other->lanes)),
                                    dup(ddl_lanes_bell(other->lanes)), NULL),
                     DDL_OK);
}

static void open_party(party *self, ddl_wire wires[])
{
    const ddl_mesh_owner owner = { .heard = on_heard,
                                   .told = on_told,
                                   .agrees = on_agreement,
                                   .left = on_left,
                                   .lost = on_lost,
                                   .arg = self };
    ddl_engine_client client = idle_client(self);
    client.sweep = sweep;
    client.needs_loop = needs_loop;
    client.doze = doze;
    assert_int_equal(ddl_mesh_create(self->rank, self->world->nranks, wires, self->lanes, self->heap, &owner,
                                     &self->mesh, NULL),
                     DDL_OK);
    ddl_mesh_set_pull(self->mesh, PULL_BYTES);
    assert_int_equal(ddl_engine_create(&client, false, &self->engine, NULL), DDL_OK);
    assert_true(ddl_engine_try_enter(self->engine)); /* kept: the thread of this rank drives */
    assert_int_equal(ddl_mesh_open(self->mesh, self->engine, NULL), DDL_OK);
    ddl_list_init(&self->busy);
    for (int which = 0; which < COMMS; which++)
        make_comm(self, which, 1 + (uint32_t)which);
    for (int i = 0; i < IN_FLIGHT; i++) {
        const size_t most = (size_t)MOST_COUNT * (MOST_RANKS > PIECES ? MOST_RANKS : PIECES) + 1;
        self->calls[i].in = malloc(most * sizeof *self->calls[i].in);
        self->calls[i].out = malloc(most * sizeof *self->calls[i].out);
        assert_non_null(self->calls[i].in);
        assert_non_null(self->calls[i].out);
    }
}

static world *make_world(int nranks)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->nranks = nranks;
    atomic_store(&w->last, UINT64_MAX);
    w->end = ddl_deadline_in_ms(seconds * 1000);
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 0; size < SIZES; size++)
            for (int root = 0; root < nranks; root++)
                make_oneshots(w, kind, size, root);
    ddl_wire wires[MOST_RANKS][MOST_RANKS];
    for (int rank = 0; rank < nranks; rank++) {
        party *self = &w->parties[rank];
        w->members[rank] = rank;
        self->world = w;
        self->rank = rank;
        make_memory(self);
        wires[rank][rank] = ddl_no_wire;
        for (int other = 0; other < rank; other++) {
            int ends[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
            wires[rank][other] = (ddl_wire){ ends[0], NULL };
            wires[other][rank] = (ddl_wire){ ends[1], NULL };
            join(self, &w->parties[other]);
            join(&w->parties[other], self);
        }
    }
    for (int rank = 0; rank < nranks; rank++)
        open_party(&w->parties[rank], wires[rank]);
    return w;
}

static void close_party(party *self)
{
    ddl_mesh_close(self->mesh);
    ddl_engine_progress(self->engine);
    ddl_engine_leave(self->engine);
    assert_true(ddl_engine_destroy(self->engine, ddl_deadline_in_ms(5000)));
    ddl_mesh_destroy(self->mesh);
    for (int which = 0; which < COMMS; which++)
        ddl_posting_fini(&self->comms[which].posting);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(self->calls[i].in);
        free(self->calls[i].out);
    }
    for (int i = 0; i < 2; i++)
        free(self->plain[i]);
}

static void free_world(world *w)
{
    for (int rank = 0; rank < w->nranks; rank++)
        close_party(&w->parties[rank]);
    for (int rank = 0; rank < w->nranks; rank++) {
        ddl_heap_destroy(w->parties[rank].heap);
        ddl_lanes_destroy(w->parties[rank].lanes);
        ddl_roster_destroy(w->parties[rank].roster);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 0; size < SIZES; size++)
            for (int root = 0; root < w->nranks; root++)
                for (int rank = 0; rank < w->nranks; rank++)
                    ddl_oneshot_destroy(w->oneshots[kind][size][root][rank]);
    free(w);
}

static void run(int nranks)
{
    world *w = make_world(nranks);
    const char *why = NULL;
    int lost = 0;
    uint64_t nsleeps = 0;
    for (int rank = 0; rank < nranks; rank++)
        assert_int_equal(pthread_create(&w->parties[rank].thread, NULL, take_part, &w->parties[rank]), 0);
    for (int rank = 0; rank < nranks; rank++) {
        assert_int_equal(pthread_join(w->parties[rank].thread, NULL), 0);
        if (w->parties[rank].wrong > 0 && why == NULL)
            why = w->parties[rank].why;
        lost += w->parties[rank].lost;
        nsleeps += w->parties[rank].nsleeps;
    }
    if (lost > 0)
        fail_msg("somebody slept on, though there was something for him");
    if (why != NULL)
        fail_msg("%s", why);
    assert_true(nsleeps > 0);
    free_world(w);
}

/* ---- one post and one sleep at a time ---- */

/* By what comm.c and the mesh have for it. Each has what it is going to look at in its cache, as who has
 * looked before, so that the look may come before its own store is visible. */
static bool post_alone(meeting *m, uint64_t round)
{
    static const ddl_signature signature = { .count = 1 };
    comm *c = &((world *)m->arg)->parties[0].comms[0];
    posted(c);
    ddl_board_post(&c->board, ddl_board_number(c->id, round), round, &signature, NULL, NULL, 0, 0);
    posted(c);
    ddl_board_see(&c->board, c->board.posts, 1); /* though the other one never posts */
    return true;                                 /* or not: the bell says */
}

static bool sees_post(meeting *m, uint64_t round)
{
    world *w = m->arg;
    party *self = &w->parties[1];
    ddl_board *board = &self->comms[0].board;
    board->posts++;
    board->posted[board->posts % DDL_AHEAD].number =
        ddl_board_number(self->comms[0].id, round) | ((board->posts & board->nsheets) != 0);
    const bool seen = ddl_board_has_posted(board, board->posts, 0) || ddl_mesh_doze(self->mesh) ||
                      ddl_board_has_posted(board, board->posts, 0);
    self->was_asleep = !seen;
    return seen;
}

static void hear_bell(meeting *m, uint64_t round)
{
    (void)round;
    party *self = &((world *)m->arg)->parties[1];
    const bool rings = rings_within(self, 0);
    m->lost += self->was_asleep && !rings ? 1 : 0;
    if (rings)
        ddl_local_bell_silence(ddl_lanes_bell(self->lanes));
    ddl_lanes_set_asleep(self->lanes, false);
}

static void who_falls_asleep_during_a_post_is_woken(void **state)
{
    (void)state;
    world *w = make_world(2);
    meeting m = { .tell = post_alone, .sees = sees_post, .wake_up = hear_bell, .arg = w };
    const bool apart = meeting_hold(&m, seconds);
    free_world(w);
    meeting_check(&m, apart);
}

static void two_ranks_wake_each_other(void **state)
{
    (void)state;
    run(2);
}

static void three_ranks_wake_each_other(void **state)
{
    (void)state;
    run(3);
}

static void four_ranks_wake_each_other(void **state)
{
    (void)state;
    run(4);
}

/* test_sleeping [SECONDS]: for each test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = strtoll(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_falls_asleep_during_a_post_is_woken),
        cmocka_unit_test(two_ranks_wake_each_other),
        cmocka_unit_test(three_ranks_wake_each_other),
        cmocka_unit_test(four_ranks_wake_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
