/* workload.c - the collectives as ddl-bench runs them, and an oracle for their results. */
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values repeat after so many elements, a prime, so that they can be made and compared by the piece. */
enum { PERIOD = 1021, MAX_ELEMENT_BYTES = 8 };

/* The block with this index, of those of one rank. */
static size_t block_count(const struct workload *w, size_t index)
{
    size_t last = (size_t)w->nranks - 1, mirror = last - index;
    if (w->kind->uneven && index < mirror)
        return 2 * index * w->count / last;
    if (w->kind->uneven && index > mirror) /* what is left of two means, so that the sum is exact */
        return 2 * w->count - 2 * mirror * w->count / last;
    return w->count;
}

/* Which block a rank has for another, by its index. */
static size_t block_index(const struct workload *w, int rank, int peer)
{
    return ((size_t)peer + (w->kind->blocks == BLOCKS_BOTH ? (size_t)rank : 0)) % (size_t)w->nranks;
}

static double twice_all_but_one(const struct workload *w)
{
    return 2.0 * (w->nranks - 1) / w->nranks;
}

/* Of all blocks, those that have to leave or to reach the busiest rank: that which keeps least, or the root.
 */
static double all_but_kept(const struct workload *w)
{
    size_t kept = w->elements;
    for (int rank = 0; rank < w->nranks; rank++) {
        size_t own = block_count(w, block_index(w, rank, rank));
        if (own < kept && (!w->kind->has_root || rank == w->root))
            kept = own;
    }
    return (double)(w->elements - kept) / (double)w->elements;
}

static double once(const struct workload *w)
{
    (void)w;
    return 1;
}

static ddl_status run_allreduce(struct workload *w)
{
    return ddl_allreduce(w->send, w->recv, w->count, w->dtype, w->op, w->world, NULL);
}

static ddl_status run_reduce_scatter(struct workload *w)
{
    return ddl_reduce_scatter(w->send, w->recv, w->count, w->dtype, w->op, w->world, NULL);
}

static ddl_status run_allgather(struct workload *w)
{
    return ddl_allgather(w->send, w->recv, w->count, w->dtype, w->world, NULL);
}

static ddl_status run_broadcast(struct workload *w)
{
    return ddl_broadcast(w->recv, w->count, w->dtype, w->root, w->world, NULL);
}

static ddl_status run_reduce(struct workload *w)
{
    return ddl_reduce(w->send, w->recv, w->count, w->dtype, w->op, w->root, w->world, NULL);
}

static ddl_status run_alltoall(struct workload *w)
{
    return ddl_alltoall(w->send, w->recv, w->count, w->dtype, w->world, NULL);
}

static ddl_status run_gather(struct workload *w)
{
    return ddl_gather(w->send, w->recv, w->count, w->dtype, w->root, w->world, NULL);
}

static ddl_status run_scatter(struct workload *w)
{
    return ddl_scatter(w->send, w->recv, w->count, w->dtype, w->root, w->world, NULL);
}

static ddl_status run_reduce_scatterv(struct workload *w)
{
    return ddl_reduce_scatterv(w->send, w->recv, w->counts, w->dtype, w->op, w->world, NULL);
}

static ddl_status run_allgatherv(struct workload *w)
{
    return ddl_allgatherv(w->send, w->recv, w->counts, w->dtype, w->world, NULL);
}

static ddl_status run_gatherv(struct workload *w)
{
    return ddl_gatherv(w->send, w->recv, w->counts, w->dtype, w->root, w->world, NULL);
}

static ddl_status run_scatterv(struct workload *w)
{
    return ddl_scatterv(w->send, w->recv, w->counts, w->dtype, w->root, w->world, NULL);
}

static ddl_status run_alltoallv(struct workload *w)
{
    return ddl_alltoallv(w->send, w->counts, w->recv, w->counts, w->dtype, w->world, NULL);
}

static ddl_status run_barrier(struct workload *w)
{
    return ddl_barrier(w->world, NULL);
}

/* Everybody sends to the next rank and receives from the one before. */
static ddl_status run_sendrecv(struct workload *w)
{
    ddl_request *requests[2] = { NULL, NULL };
    int next = (w->rank + 1) % w->nranks, previous = (w->rank + w->nranks - 1) % w->nranks;
    ddl_status status = ddl_recv(w->recv, w->count, w->dtype, previous, w->world, &requests[0]);
    if (status == DDL_OK)
        status = ddl_send(w->send, w->count, w->dtype, next, w->world, &requests[1]);
    ddl_status waited = ddl_wait_all(2, requests);
    return status != DDL_OK ? status : waited;
}

/* name, blocks, uneven, reduces, in place, root */
static const struct workload_kind kinds[] = {
    { "allreduce", NO_BLOCKS, false, true, true, false, twice_all_but_one, run_allreduce },
    { "reduce_scatter", BLOCKS_SENT, false, true, true, false, all_but_kept, run_reduce_scatter },
    { "allgather", BLOCKS_RECEIVED, false, false, true, false, all_but_kept, run_allgather },
    { "broadcast", NO_BLOCKS, false, false, false, true, once, run_broadcast },
    { "reduce", NO_BLOCKS, false, true, true, true, once, run_reduce },
    { "alltoall", BLOCKS_BOTH, false, false, true, false, all_but_kept, run_alltoall },
    { "gather", BLOCKS_RECEIVED, false, false, true, true, all_but_kept, run_gather },
    { "scatter", BLOCKS_SENT, false, false, true, true, all_but_kept, run_scatter },
    { "reduce_scatterv", BLOCKS_SENT, true, true, true, false, all_but_kept, run_reduce_scatterv },
    { "allgatherv", BLOCKS_RECEIVED, true, false, true, false, all_but_kept, run_allgatherv },
    { "gatherv", BLOCKS_RECEIVED, true, false, true, true, all_but_kept, run_gatherv },
    { "scatterv", BLOCKS_SENT, true, false, true, true, all_but_kept, run_scatterv },
    { "alltoallv", BLOCKS_BOTH, true, false, true, false, all_but_kept, run_alltoallv },
    { "barrier", NO_BLOCKS, false, false, false, false, once, run_barrier },
    { "sendrecv", NO_BLOCKS, false, false, false, false, once, run_sendrecv },
};

const struct workload_kind *workload_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return &kinds[i];
    return NULL;
}

void workload_list_kinds(FILE *file)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        fprintf(file, " %s", kinds[i].name);
    fputc('\n', file);
}

size_t workload_count(const struct workload_kind *kind, size_t bytes, ddl_dtype dtype, int nranks)
{
    if (kind->run == run_barrier)
        return 0;
    size_t count = bytes / ddl_dtype_bytes(dtype) / (size_t)(kind->blocks != NO_BLOCKS ? nranks : 1);
    return count > 0 ? count : 1;
}

/* A page-aligned buffer of at least one page. */
static void *allocate(struct workload *w, size_t bytes)
{
    void *memory = NULL;
    if (w->shared && ddl_mem_alloc(w->world, bytes < 4096 ? 4096 : bytes, &memory) != DDL_OK)
        w->problem = ddl_last_error()->text;
    if (w->shared)
        return memory;
    return posix_memalign(&memory, 4096, bytes < 4096 ? 4096 : bytes) == 0 ? memory : NULL;
}

/* Element counts of the blocks as they lie in a buffer, and where each begins. */
static bool lay_blocks(struct workload *w)
{
    size_t nranks = (size_t)w->nranks, start = 0;
    w->counts = calloc(nranks, sizeof *w->counts);
    w->starts = calloc(nranks, sizeof *w->starts);
    if (w->counts == NULL || w->starts == NULL)
        return false;
    for (size_t i = 0; i < nranks; i++) {
        w->counts[i] = block_count(w, block_index(w, w->rank, (int)i));
        w->starts[i] = start;
        start += w->counts[i];
    }
    return true;
}

static size_t own_count(const struct workload *w)
{
    return w->counts[w->rank];
}

bool workload_init(struct workload *workload, const struct workload_kind *kind, ddl_comm *world, size_t count,
                   ddl_dtype dtype, ddl_op op, int root, bool in_place, bool shared)
{
    struct workload *w = workload;
    *w = (struct workload){
        .kind = kind, .world = world, .dtype = dtype, .op = op, .root = root, .count = count, .shared = shared
    };
    w->rank = ddl_rank(world);
    w->nranks = ddl_size(world);
    w->elements = count * (size_t)(kind->blocks != NO_BLOCKS ? w->nranks : 1);
    size_t bytes = w->elements * ddl_dtype_bytes(dtype);
    bool one_buffer = in_place || kind->run == run_broadcast;
    w->send_memory = allocate(w, bytes);
    w->recv_memory = one_buffer ? NULL : allocate(w, bytes);
    if (w->send_memory == NULL || (!one_buffer && w->recv_memory == NULL) ||
        (kind->blocks != NO_BLOCKS && !lay_blocks(w))) {
        workload_fini(w);
        return false;
    }
    w->send = w->send_memory;
    w->recv = one_buffer ? w->send_memory : w->recv_memory;
    if (in_place && kind->blocks == BLOCKS_RECEIVED)
        w->send = (char *)w->recv + w->starts[w->rank] * ddl_dtype_bytes(dtype);
    if (in_place && kind->blocks == BLOCKS_SENT)
        w->recv = (char *)w->send + w->starts[w->rank] * ddl_dtype_bytes(dtype);
    return true;
}

static void release(const struct workload *w, void *memory)
{
    if (!w->shared)
        free(memory);
    else if (ddl_mem_free(w->world, memory) != DDL_OK)
        abort(); /* it is what ddl_mem_alloc gave */
}

void workload_fini(struct workload *workload)
{
    release(workload, workload->send_memory);
    release(workload, workload->recv_memory);
    free(workload->counts);
    free(workload->starts);
    workload->send_memory = workload->recv_memory = NULL;
    workload->counts = workload->starts = NULL;
}

/* ---- values ---- */

static bool is_float(ddl_dtype dtype)
{
    return dtype >= DDL_FLOAT16;
}

static bool is_signed(ddl_dtype dtype)
{
    return dtype == DDL_INT8 || dtype == DDL_INT16 || dtype == DDL_INT32 || dtype == DDL_INT64;
}

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* A float that holds a small whole number exactly. */
static void put_whole(uint8_t *at, ddl_dtype dtype, int64_t value)
{
    float single = (float)value;
    double wide = (double)value;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case DDL_FLOAT16: /* another exponent, a shorter fraction */
        half = (uint16_t)(value == 0 ? 0
                                     : (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - ((127 - 15) << 10)));
        memcpy(at, &half, sizeof half);
        break;
    case DDL_BFLOAT16:
        half = (uint16_t)(bits >> 16);
        memcpy(at, &half, sizeof half);
        break;
    case DDL_FLOAT32:
        memcpy(at, &single, sizeof single);
        break;
    default:
        memcpy(at, &wide, sizeof wide);
    }
}

static void put_value(uint8_t *at, ddl_dtype dtype, int64_t value)
{
    if (is_float(dtype)) {
        put_whole(at, dtype, value);
        return;
    }
    for (size_t i = 0; i < ddl_dtype_bytes(dtype); i++)
        at[i] = (uint8_t)((uint64_t)value >> 8 * i);
}

/* What an integer type keeps of a value. */
static int64_t wrapped(int64_t value, ddl_dtype dtype)
{
    unsigned spare = 64 - 8 * (unsigned)ddl_dtype_bytes(dtype);
    if (is_float(dtype) || spare == 0)
        return value;
    uint64_t low = (uint64_t)value << spare >> spare;
    if (is_signed(dtype) && low >> (63 - spare) != 0)
        low |= UINT64_MAX << (64 - spare);
    return (int64_t)low;
}

/* The whole numbers up to this are exact in a type, and are not too many to add up. */
static int64_t exact_limit(ddl_dtype dtype)
{
    return dtype == DDL_BFLOAT16 ? 256 : dtype == DDL_FLOAT16 ? 2048 : 1 << 24;
}

/* Element `index` of what rank contributes, as a whole number. */
static int64_t contribution(const struct workload *w, int rank, size_t index)
{
    uint64_t bits = scramble(index % PERIOD * 65537 + (uint64_t)rank + 1);
    if (!is_float(w->dtype))
        return wrapped((int64_t)bits, w->dtype);
    if (!w->kind->reduces || w->op == DDL_MIN || w->op == DDL_MAX)
        return (int64_t)(bits % 257) - 128;
    if (w->op == DDL_PROD)
        return bits & 1 ? -1 : 1;
    if (w->op == DDL_AVG) /* the same from all, so that the quotient is exact */
        bits = scramble(index % PERIOD + 1);
    int64_t most = exact_limit(w->dtype) / w->nranks;
    if (most == 0 && w->op == DDL_AVG) /* what all can have and add up exactly */
        return 0;
    if (most == 0)
        return index % PERIOD % (size_t)w->nranks == (size_t)rank;
    return (int64_t)(bits % (uint64_t)(most + 1));
}

static int64_t combine(int64_t a, int64_t b, ddl_op op, bool as_unsigned)
{
    bool less = as_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
    switch (op) {
    case DDL_SUM:
    case DDL_AVG:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case DDL_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case DDL_MIN:
        return less ? a : b;
    case DDL_MAX:
        return less ? b : a;
    case DDL_BAND:
        return a & b;
    case DDL_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

/* Element `index` of the combination of all contributions. */
static int64_t combination(const struct workload *w, size_t index)
{
    bool as_unsigned = !is_float(w->dtype) && !is_signed(w->dtype);
    int64_t result = contribution(w, 0, index);
    for (int rank = 1; rank < w->nranks; rank++)
        result = wrapped(combine(result, contribution(w, rank, index), w->op, as_unsigned), w->dtype);
    if (w->op == DDL_AVG)
        result = as_unsigned ? (int64_t)((uint64_t)result / (uint64_t)w->nranks) : result / w->nranks;
    return result;
}

/* One period of values from element `first` on; rank < 0: the combination of all ranks. */
static void make_period(const struct workload *w, int rank, size_t first, uint8_t period[])
{
    size_t bytes = ddl_dtype_bytes(w->dtype);
    for (size_t i = 0; i < PERIOD; i++)
        put_value(period + i * bytes, w->dtype,
                  rank < 0 ? combination(w, first + i) : contribution(w, rank, first + i));
}

static void fill_block(const struct workload *w, void *memory, size_t count, int rank, size_t first)
{
    uint8_t period[PERIOD * MAX_ELEMENT_BYTES];
    size_t bytes = ddl_dtype_bytes(w->dtype);
    make_period(w, rank, first, period);
    for (size_t done = 0; done < count; done += PERIOD)
        memcpy((char *)memory + done * bytes, period,
               (count - done < PERIOD ? count - done : PERIOD) * bytes);
}

static bool check_block(const struct workload *w, const void *memory, size_t count, int rank, size_t first,
                        char *reason, size_t reason_bytes)
{
    uint8_t period[PERIOD * MAX_ELEMENT_BYTES];
    size_t bytes = ddl_dtype_bytes(w->dtype);
    make_period(w, rank, first, period);
    for (size_t done = 0; done < count; done += PERIOD) {
        const uint8_t *at = (const uint8_t *)memory + done * bytes;
        size_t piece = count - done < PERIOD ? count - done : PERIOD;
        if (memcmp(at, period, piece * bytes) == 0)
            continue;
        size_t i = 0;
        while (memcmp(at + i * bytes, period + i * bytes, bytes) == 0)
            i++;
        uint64_t actual = 0, expected = 0;
        memcpy(&actual, at + i * bytes, bytes);
        memcpy(&expected, period + i * bytes, bytes);
        snprintf(reason, reason_bytes, "element %zu of %zu has the bits %#llx, expected %#llx", done + i,
                 count, (unsigned long long)actual, (unsigned long long)expected);
        return false;
    }
    return true;
}

/* Block `block` of what a rank sends begins at another element for every pair, so that no two are alike. */
static size_t alltoall_first(int block)
{
    return (size_t)block * 97;
}

void workload_fill(struct workload *workload)
{
    struct workload *w = workload;
    size_t element_bytes = ddl_dtype_bytes(w->dtype);
    if (w->recv_memory != NULL)
        memset(w->recv_memory, 0xa5, w->elements * element_bytes);
    if (w->kind->blocks == BLOCKS_BOTH) {
        for (int block = 0; block < w->nranks; block++)
            fill_block(w, (char *)w->send + w->starts[block] * element_bytes, w->counts[block], w->rank,
                       alltoall_first(block));
    } else if (w->kind->blocks == BLOCKS_RECEIVED) {
        fill_block(w, w->recv, w->elements, w->rank, 1);
        fill_block(w, w->send, own_count(w), w->rank, 0);
    } else {
        fill_block(w, w->send, w->elements, w->rank, 0);
    }
}

/* All blocks that came, one from each rank. */
static bool check_received(const struct workload *w, char *reason, size_t reason_bytes)
{
    size_t first = w->kind->blocks == BLOCKS_BOTH ? alltoall_first(w->rank) : 0;
    for (int rank = 0; rank < w->nranks; rank++) {
        const char *block = (const char *)w->recv + w->starts[rank] * ddl_dtype_bytes(w->dtype);
        if (!check_block(w, block, w->counts[rank], rank, first, reason, reason_bytes))
            return false;
    }
    return true;
}

bool workload_check(const struct workload *workload, char *reason, size_t reason_bytes)
{
    const struct workload *w = workload;
    bool roots_alone = w->kind->reduces || w->kind->blocks == BLOCKS_RECEIVED;
    if (w->kind->has_root && roots_alone && w->rank != w->root)
        return true;
    if (w->kind->blocks == BLOCKS_SENT)
        return check_block(w, w->recv, own_count(w), w->kind->reduces ? -1 : w->root, w->starts[w->rank],
                           reason, reason_bytes);
    if (w->kind->blocks != NO_BLOCKS)
        return check_received(w, reason, reason_bytes);
    if (w->kind->reduces)
        return check_block(w, w->recv, w->count, -1, 0, reason, reason_bytes);
    if (w->kind->run == run_sendrecv)
        return check_block(w, w->recv, w->count, (w->rank + w->nranks - 1) % w->nranks, 0, reason,
                           reason_bytes);
    return check_block(w, w->recv, w->count, w->root, 0, reason,
                       reason_bytes); /* broadcast; barrier has none */
}

ddl_status workload_try(struct workload *workload, const char *dtype_name, bool *right)
{
    struct workload *w = workload;
    char reason[160];
    workload_fill(w);
    ddl_status status = w->kind->run(w);
    if (status != DDL_OK)
        return status;
    *right = workload_check(w, reason, sizeof reason);
    if (!*right) {
        const char *algorithm = ddl_algorithm_name(w->world, w->kind->name, w->count, w->dtype);
        fprintf(stderr, "ddl-bench: rank %d: wrong result of %s by %s, %zu elements of %s: %s\n", w->rank,
                w->kind->name, algorithm != NULL ? algorithm : "-", w->count, dtype_name, reason);
    }
    return DDL_OK;
}
