/*
 * check.c - what each collective means, and whether all ranks together have done it.
 *
 * The schedules of all ranks become a plan (check_plan.h), which is proved and executed by its other files.
 * Here are the collectives' meanings: which bytes a rank may touch, and what it must hold at the end.
 */
#include "simulate/check_plan.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "simulate/fingerprint.h"

#include <string.h>

bool ddl_checker_reserve(array *a, size_t count, size_t element_bytes)
{
    if (count <= a->capacity)
        return true;
    size_t more = count > 2 * a->capacity ? count : 2 * a->capacity;
    void *grown = ddl_alloc_array(more, element_bytes);
    if (grown == NULL)
        return false;
    if (a->capacity > 0)
        memcpy(grown, a->data, a->capacity * element_bytes);
    ddl_free(a->data);
    a->data = grown;
    a->capacity = more;
    return true;
}

ddl_status ddl_checker_no_memory(ddl_error *err)
{
    return DDL_FAIL(err, DDL_ENOMEM, "no memory to check a schedule");
}

ddl_status ddl_checker_create(ddl_checker **out, ddl_error *err)
{
    ddl_checker *c = ddl_alloc(sizeof *c);
    if (c == NULL)
        return ddl_checker_no_memory(err);
    *out = c;
    return DDL_OK;
}

void ddl_checker_destroy(ddl_checker *c)
{
    if (c == NULL)
        return;
    array *const arrays[] = { &c->states,       &c->partners,     &c->actions,
                              &c->successors,   &c->operands,     &c->positions,
                              &c->values,       &c->sends,        &c->recvs,
                              &c->extra,        &c->first_action, &c->first_atom,
                              &c->first_extra,  &c->stack,        &c->sorted_sends,
                              &c->sorted_recvs, &c->spare,        &c->starts,
                              &c->known,        &c->predecessors, &c->first_predecessor,
                              &c->stamps,       &c->searched,     &c->writers,
                              &c->readers,      &c->reader_links, &c->schedules };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        ddl_free(arrays[i]->data);
    ddl_cuts_fini(&c->cuts);
    ddl_cuts_fini(&c->common[0]);
    ddl_cuts_fini(&c->common[1]);
    ddl_free(c);
}

ddl_proof ddl_checker_failed(const ddl_checker *c)
{
    return c->failed;
}

const char *ddl_proof_name(ddl_proof proof)
{
    static const char *const names[] = { "none",     "structure", "bounds", "overlap", "channel",
                                         "progress", "value",     "bits",   "scale" };
    return names[proof];
}

const char *ddl_checker_kind_name(int kind)
{
    static const char *const names[] = { "send", "recv", "recv_reduce", "reduce", "copy", "scale" };
    return names[kind];
}

int ddl_checker_rank_of(const ddl_checker *c, uint32_t index)
{
    const uint32_t *first = c->first_action.data;
    int low = 0, high = c->shape.nranks;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- meanings ---- */

/* Of a matrix. */
static ddl_uneven row_of(const ddl_uneven *all, int nranks, int row)
{
    size_t first = (size_t)row * (size_t)nranks;
    return (ddl_uneven){ all->counts + first, all->starts + first };
}

bool ddl_shape_of_rank(const ddl_shape *shape, ddl_collective collective, int rank, ddl_shape *own,
                       ddl_collective *role)
{
    *own = *shape;
    own->rank = rank;
    *role = collective;
    if (collective == DDL_COLLECTIVE_ALLTOALLV) {
        own->blocks = row_of(&own->blocks, own->nranks, rank);
        own->out_blocks = row_of(&own->out_blocks, own->nranks, rank);
    }
    if (collective != DDL_COLLECTIVE_SEND && collective != DDL_COLLECTIVE_RECV)
        return true;
    int sender = shape->root, receiver = (shape->root + 1) % shape->nranks;
    own->root = rank == sender ? receiver : sender;
    *role = rank == sender ? DDL_COLLECTIVE_SEND : DDL_COLLECTIVE_RECV;
    return sender != receiver && (rank == sender || rank == receiver);
}

/* The areas, without regard to where they lie. */
static void set_areas(const ddl_checker *c, int rank, layout *l)
{
    const ddl_shape *s = &c->shape;
    size_t own = s->blocks.counts != NULL ? s->blocks.counts[rank] : s->count;
    area vector = { own, own, 1, { NULL, NULL } }, blocks = { s->count, s->stride, s->nranks, s->blocks };
    bool is_root = rank == s->root;
    switch (c->collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
        l->in = l->out = vector;
        break;
    case DDL_COLLECTIVE_REDUCE:
        l->in = vector;
        if (is_root)
            l->out = vector;
        break;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        l->in = blocks;
        l->out = vector;
        break;
    case DDL_COLLECTIVE_ALLGATHER:
    case DDL_COLLECTIVE_ALLGATHERV:
        l->in = vector;
        l->out = blocks;
        break;
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_GATHERV:
        l->in = vector;
        if (is_root)
            l->out = blocks;
        break;
    case DDL_COLLECTIVE_SCATTER:
    case DDL_COLLECTIVE_SCATTERV:
        l->out = vector;
        if (is_root)
            l->in = blocks;
        break;
    case DDL_COLLECTIVE_ALLTOALL:
        l->in = l->out = blocks;
        break;
    case DDL_COLLECTIVE_ALLTOALLV:
        l->in = l->out = blocks;
        l->in.uneven = row_of(&s->blocks, s->nranks, rank);
        l->out.uneven = row_of(&s->out_blocks, s->nranks, rank);
        break;
    case DDL_COLLECTIVE_BROADCAST:
        l->out = vector;
        l->out_is_written = !is_root;
        break;
    case DDL_COLLECTIVE_SEND:
    case DDL_COLLECTIVE_RECV:
        if (is_root)
            l->in = vector;
        else if (rank == (s->root + 1) % s->nranks)
            l->out = vector;
        break;
    case DDL_COLLECTIVE_BARRIER:
    case DDL_COLLECTIVE_COUNT:
        break;
    }
}

/* What a rank's buffers are, which of their elements may be touched, and where they lie. */
layout ddl_checker_layout(const ddl_checker *c, int rank, size_t scratch_bytes)
{
    const ddl_shape *s = &c->shape;
    area none = { 0, 0, 0, { NULL, NULL } };
    layout l = { none, none, true, 0, 0, 0, 0 };
    set_areas(c, rank, &l);
    bool point_to_point = c->collective == DDL_COLLECTIVE_SEND || c->collective == DDL_COLLECTIVE_RECV;
    bool joined = s->in_place && !point_to_point && l.in.nblocks > 0 && l.out.nblocks > 0;
    if (!joined)
        l.out_base = extent(&l.in);
    else if (l.in.nblocks > l.out.nblocks) /* OUT is the own block of IN */
        l.out_base = block_start(&l.in, rank);
    else if (l.out.nblocks > l.in.nblocks)
        l.in_base = block_start(&l.out, rank);
    uint64_t in_end = l.in_base + extent(&l.in), out_end = l.out_base + extent(&l.out);
    l.scratch_base = in_end > out_end ? in_end : out_end;
    l.end = l.scratch_base + (scratch_bytes + s->element_bytes - 1) / s->element_bytes;
    return l;
}

/* The value that element x of a rank's OUT, laid out so, must have at the end; A_all is the sum of all A(r).
 */
static uint64_t meant(const ddl_checker *c, int rank, const area *out, uint64_t x, uint64_t A_all)
{
    const ddl_shape *s = &c->shape;
    area all = { s->count, s->stride, s->nranks, s->blocks }; /* the buffer of nranks blocks */
    int block = out->nblocks > 1 ? block_at(out, x) : 0;
    uint64_t offset = x - block_start(out, block);
    switch (c->collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
    case DDL_COLLECTIVE_REDUCE:
        return ddl_fingerprint_position(x) * A_all;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        return ddl_fingerprint_position(block_start(&all, rank) + x) * A_all;
    case DDL_COLLECTIVE_ALLGATHER: /* each block is the IN of its rank */
    case DDL_COLLECTIVE_ALLGATHERV:
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_GATHERV:
        return ddl_fingerprint_position(offset) * ddl_fingerprint_rank(block);
    case DDL_COLLECTIVE_SCATTER:
    case DDL_COLLECTIVE_SCATTERV:
        return ddl_fingerprint_position(block_start(&all, rank) + x) * ddl_fingerprint_rank(s->root);
    case DDL_COLLECTIVE_ALLTOALLV:
        all.uneven = row_of(&s->blocks, s->nranks, block);
        return ddl_fingerprint_position(block_start(&all, rank) + offset) * ddl_fingerprint_rank(block);
    case DDL_COLLECTIVE_ALLTOALL: /* each block is the one in its rank's IN that is for this rank */
        return ddl_fingerprint_position(block_start(&all, rank) + offset) * ddl_fingerprint_rank(block);
    case DDL_COLLECTIVE_BROADCAST:
    case DDL_COLLECTIVE_SEND:
    case DDL_COLLECTIVE_RECV:
        return ddl_fingerprint_position(x) * ddl_fingerprint_rank(s->root);
    case DDL_COLLECTIVE_BARRIER:
    case DDL_COLLECTIVE_COUNT:
        break;
    }
    DDL_ASSERT(false);
    return 0;
}

static bool reduces(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_REDUCE_SCATTER ||
           collective == DDL_COLLECTIVE_REDUCE_SCATTERV || collective == DDL_COLLECTIVE_REDUCE;
}

/* ---- results ---- */

static ddl_status tell_wrong_value(ddl_checker *c, int rank, uint64_t x, uint64_t got, uint64_t sum,
                                   bool average, ddl_error *err)
{
    if (average && got == sum)
        return FAILED(c, err, DDL_PROOF_SCALE, "scale: rank %d element %llu of OUT is the sum, never divided",
                      rank, (unsigned long long)x);
    if (got == ddl_fingerprint_scaled(average ? ddl_fingerprint_scaled(sum) : sum))
        return FAILED(c, err, DDL_PROOF_SCALE, "scale: rank %d element %llu of OUT is divided once too often",
                      rank, (unsigned long long)x);
    return FAILED(
        c, err, DDL_PROOF_VALUE,
        "value: rank %d element %llu of OUT is not the %s (an input is missing, misplaced or counted twice)",
        rank, (unsigned long long)x, ddl_collective_name(c->collective));
}

static ddl_status prove_values(ddl_checker *c, ddl_error *err)
{
    const atom_value *values = c->values.data;
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    bool average = c->shape.average && reduces(c->collective) && c->shape.nranks > 1;
    uint64_t A_all = 0;
    for (int rank = 0; rank < c->shape.nranks; rank++)
        A_all += ddl_fingerprint_rank(rank);
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        layout l = ddl_checker_layout(c, rank, 0);
        uint64_t end = l.out_base + extent(&l.out);
        for (uint32_t i = first_atom[rank]; i < first_atom[rank + 1]; i++) {
            if (positions[i] < l.out_base || positions[i] >= end)
                continue;
            uint64_t x = positions[i] - l.out_base;
            if (!within(&l.out, x, 1))
                continue; /* between blocks: proved untouched */
            uint64_t sum = meant(c, rank, &l.out, x, A_all);
            if (values[i].sum != (average ? ddl_fingerprint_scaled(sum) : sum))
                return tell_wrong_value(c, rank, x, values[i].sum, sum, average, err);
        }
    }
    return DDL_OK;
}

/* Every rank's OUT against rank 0's, atom by atom; ranks may be cut differently. */
static ddl_status prove_bits(ddl_checker *c, ddl_error *err)
{
    const atom_value *values = c->values.data;
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    layout first = ddl_checker_layout(c, 0, 0);
    for (int rank = 1; rank < c->shape.nranks; rank++) {
        layout l = ddl_checker_layout(c, rank, 0);
        uint32_t i = first_atom[0], j = first_atom[rank];
        while (positions[i] < first.out_base)
            i++;
        while (positions[j] < l.out_base)
            j++;
        for (uint64_t x = 0; x < c->shape.count;) {
            if (values[i].expression != values[j].expression)
                return FAILED(
                    c, err, DDL_PROOF_BITS,
                    "bits: element %llu is computed in another order of operands on rank %d than on rank 0",
                    (unsigned long long)x, rank);
            uint64_t i_end = positions[i + 1] - first.out_base, j_end = positions[j + 1] - l.out_base;
            x = i_end < j_end ? i_end : j_end;
            i += i_end == x;
            j += j_end == x;
        }
    }
    return DDL_OK;
}

/* A rank must not be done before it has heard, through however many others, of every rank. */
static ddl_status prove_barrier(ddl_checker *c, ddl_error *err)
{
    for (int rank = 0; rank < c->shape.nranks; rank++)
        for (int other = 0; other < c->shape.nranks; other++)
            if (other != rank && !ddl_checker_heard(c, rank, other))
                return FAILED(c, err, DDL_PROOF_VALUE,
                              "value: rank %d leaves the barrier without having heard of rank %d", rank,
                              other);
    return DDL_OK;
}

/* ---- costs ---- */

static double elements_of(const ddl_checker *c, const action *a)
{
    const uint32_t *positions = c->positions.data;
    double elements = 0;
    for (int i = 0; i < 2; i++)
        if (a->target[i].count > 0)
            elements += positions[a->target[i].first + a->target[i].count] - positions[a->target[i].first];
    return elements;
}

uint32_t ddl_checker_round(const ddl_checker *c, int rank, uint32_t step)
{
    uint32_t first = ((uint32_t *)c->first_action.data)[rank];
    DDL_ASSERT(first + step < ((uint32_t *)c->first_action.data)[rank + 1]);
    return ((action *)c->actions.data)[first + step].round;
}

/* Bytes that the ranks of a host send to other hosts, or receive, where that is more. */
static double between_hosts(const ddl_checker *c, int host)
{
    const action *actions = c->actions.data;
    const uint32_t *first = c->first_action.data, *partners = c->partners.data;
    const int *node_of = c->shape.placement.node_of;
    double elements[2] = { 0, 0 };
    for (int rank = 0; rank < c->shape.nranks; rank++)
        for (uint32_t i = first[rank]; node_of[rank] == host && i < first[rank + 1]; i++)
            if (partners[i] != NONE && node_of[ddl_checker_rank_of(c, partners[i])] != host)
                elements[actions[i].kind == DDL_STEP_SEND ? 0 : 1] += elements_of(c, &actions[i]);
    return (elements[0] > elements[1] ? elements[0] : elements[1]) * (double)c->shape.element_bytes;
}

ddl_work ddl_checker_measured(const ddl_checker *c)
{
    ddl_work most = { 0 };
    const action *actions = c->actions.data;
    const uint32_t *first = c->first_action.data;
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        double messages[2] = { 0, 0 }, elements[2] = { 0, 0 }, reduced = 0; /* sent, received */
        for (uint32_t i = first[rank]; i < first[rank + 1]; i++) {
            const action *a = &actions[i];
            double n = elements_of(c, a);
            bool sends = a->kind == DDL_STEP_SEND;
            if (((uint32_t *)c->partners.data)[i] != NONE) {
                messages[sends ? 0 : 1]++;
                most.mean_messages += sends ? 1.0 / c->shape.nranks : 0;
                elements[sends ? 0 : 1] += n;
            }
            if (a->kind == DDL_STEP_RECV_REDUCE)
                reduced += n;
            if (a->kind == DDL_STEP_REDUCE)
                reduced += n * (a->noperands - 1);
            if (most.rounds < a->round)
                most.rounds = a->round;
        }
        for (int i = 0; i < 2; i++) {
            if (most.messages < messages[i])
                most.messages = messages[i];
            if (most.sent_bytes < elements[i] * (double)c->shape.element_bytes)
                most.sent_bytes = elements[i] * (double)c->shape.element_bytes;
        }
        if (most.reduced_bytes < reduced * (double)c->shape.element_bytes)
            most.reduced_bytes = reduced * (double)c->shape.element_bytes;
    }
    for (int host = 0; c->shape.placement.node_of != NULL && host < c->shape.placement.nnodes; host++) {
        double bytes = between_hosts(c, host);
        if (most.remote_bytes < bytes)
            most.remote_bytes = bytes;
    }
    return most;
}

/* ---- all of it ---- */

/* Where schedules come from; `done` gives one back. */
typedef struct source {
    ddl_status (*get)(const struct source *source, const ddl_checker *c, int rank,
                      const ddl_schedule **schedule, ddl_error *err);
    void (*done)(const ddl_schedule *schedule);
    const ddl_algorithm *algorithm;
    const ddl_schedule *const *schedules;
} source;

/* What is loaded again is not built again: the schedules of the first ranks stay, as long as all their steps
 * fit into a cache. */
enum { MOST_KEPT_STEPS = 1 << 16 };

static ddl_status load(ddl_checker *c, const source *from, ddl_error *err)
{
    const ddl_schedule **kept = c->schedules.data;
    c->nactions = c->nsuccessors = c->noperands = c->natoms = c->nsends = c->nrecvs = 0;
    ((uint32_t *)c->first_action.data)[0] = ((uint32_t *)c->first_atom.data)[0] = 0;
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        const ddl_schedule *schedule = NULL;
        if (rank < c->nschedules)
            schedule = kept[rank];
        else
            DDL_TRY(from->get(from, c, rank, &schedule, err));
        ddl_status status = ddl_checker_load_rank(c, rank, schedule, err);
        if (rank == c->nschedules && c->nactions <= MOST_KEPT_STEPS)
            kept[c->nschedules++] = schedule;
        else if (rank >= c->nschedules)
            from->done(schedule);
        DDL_TRY(status);
    }
    c->locals_proved = true;
    return DDL_OK;
}

static ddl_status prove_whole(ddl_checker *c, const source *from, ddl_error *err)
{
    size_t nranks = (size_t)c->shape.nranks;
    c->failed = DDL_PROOF_NONE;
    c->locals_proved = false;
    c->nextra = 0;
    c->has_common = false;
    if (!ddl_checker_reserve(&c->first_action, nranks + 1, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->first_atom, nranks + 1, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->first_extra, nranks, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->schedules, nranks, sizeof(const ddl_schedule *)) ||
        !ddl_checker_reserve(&c->starts, nranks + 1, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
    memset(c->first_extra.data, 0xff, nranks * sizeof(uint32_t));
    for (bool alike = false; !alike;) {
        alike = true;
        DDL_TRY(load(c, from, err));
        DDL_TRY(ddl_checker_prove_channels(c, &alike, err));
        /* In alltoallv no two ranks' buffers are alike. */
        if (!alike && !c->has_common && c->collective != DDL_COLLECTIVE_ALLTOALLV)
            DDL_TRY(ddl_checker_share_cuts(c, err));
    }
    DDL_TRY(ddl_checker_execute(c, err));
    if (c->collective == DDL_COLLECTIVE_BARRIER)
        return prove_barrier(c, err);
    DDL_TRY(prove_values(c, err));
    if (c->collective == DDL_COLLECTIVE_ALLREDUCE && c->shape.count > 0)
        DDL_TRY(prove_bits(c, err));
    return DDL_OK;
}

static ddl_status prove(ddl_checker *c, const source *from, ddl_error *err)
{
    c->nschedules = 0;
    ddl_status status = prove_whole(c, from, err);
    for (int rank = 0; rank < c->nschedules; rank++)
        from->done(((const ddl_schedule **)c->schedules.data)[rank]);
    return status;
}

static ddl_status build_rank(const source *from, const ddl_checker *c, int rank,
                             const ddl_schedule **schedule, ddl_error *err)
{
    ddl_shape own;
    ddl_collective role;
    if (!ddl_shape_of_rank(&c->shape, c->collective, rank, &own, &role))
        return DDL_OK;
    const ddl_algorithm *algorithm = from->algorithm;
    if (role != algorithm->collective) /* the other end of a message */
        algorithm = ddl_catalogue_find(role, algorithm->name);
    DDL_ASSERT(algorithm != NULL);
    ddl_schedule *built;
    DDL_TRY(algorithm->build(&own, &built, err));
    *schedule = built;
    return DDL_OK;
}

static void destroy_built(const ddl_schedule *schedule)
{
    ddl_schedule_destroy((ddl_schedule *)schedule);
}

static ddl_status given_rank(const source *from, const ddl_checker *c, int rank,
                             const ddl_schedule **schedule, ddl_error *err)
{
    (void)c;
    (void)err;
    *schedule = from->schedules[rank];
    return DDL_OK;
}

static void keep_given(const ddl_schedule *schedule)
{
    (void)schedule;
}

static void set_shape(ddl_checker *c, ddl_collective collective, const ddl_shape *shape)
{
    DDL_ASSERT(shape->nranks > 0);
    DDL_ASSERT(shape->stride >= shape->count || shape->blocks.counts != NULL);
    c->collective = collective;
    c->shape = *shape;
}

ddl_status ddl_check_algorithm(ddl_checker *c, const ddl_algorithm *algorithm, const ddl_shape *shape,
                               ddl_error *err)
{
    set_shape(c, algorithm->collective, shape);
    return prove(c, &(source){ build_rank, destroy_built, algorithm, NULL }, err);
}

ddl_status ddl_check_schedules(ddl_checker *c, ddl_collective collective, const ddl_shape *shape,
                               const ddl_schedule *const schedules[], ddl_error *err)
{
    set_shape(c, collective, shape);
    return prove(c, &(source){ given_rank, keep_given, NULL, schedules }, err);
}
