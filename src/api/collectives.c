/* collectives.c - the public data calls: check arguments, describe the call, issue it. */
#include "api/gpu.h"
#include "api/issue.h"
#include "api/last_error.h"
#include "api/repeat.h"
#include "api/stream.h"
#include "base/dtype.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

/* ---- checks; each keeps an error and returns false when the argument makes no sense ---- */

static ddl_status wrong(const ddl_comm *comm, ddl_collective collective, const char *what)
{
    return ddl_last_error_set(DDL_EINVAL, comm != NULL ? comm->rank : -1, ddl_collective_name(collective),
                              "%s", what);
}

static ddl_status check_types(const ddl_comm *comm, const ddl_call *call)
{
    if (ddl_dtype_bytes(call->dtype) == 0)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                                  "there is no dtype %d", (int)call->dtype);
    if (ddl_collective_reduces(call->collective) && (unsigned)call->op >= DDL_OP_COUNT)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                                  "there is no operator %d", (int)call->op);
    if (ddl_collective_reduces(call->collective) && !ddl_op_takes(call->op, call->dtype))
        return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                                  "the bitwise operator %s is not defined for %s", ddl_op_name(call->op),
                                  ddl_dtype_name(call->dtype));
    return DDL_OK;
}

static ddl_status check_root(const ddl_comm *comm, const ddl_call *call, const char *what)
{
    if (call->root < 0 || call->root >= comm->nranks)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                                  "%s %d is not among the ranks 0 to %d", what, call->root, comm->nranks - 1);
    return DDL_OK;
}

/* ---- buffers ---- */

/* More than any machine addresses; the pieces of so much can be counted. */
static const uint64_t most_bytes = PTRDIFF_MAX < UINT64_C(1) << 47 ? PTRDIFF_MAX : UINT64_C(1) << 47;

static ddl_status too_large(const ddl_comm *comm, const ddl_call *call, const char *what)
{
    return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                              "%s of %s overflow the address space", what, ddl_dtype_name(call->dtype));
}

/* Elements of blocks 0 .. before-1, and bytes of all of them in whole. False: too many. */
static bool sum_counts(const ddl_comm *comm, const size_t counts[], size_t element_bytes, int before,
                       size_t *elements_before, size_t *bytes)
{
    size_t sum = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (rank == before)
            *elements_before = sum;
        if (!ddl_size_add(sum, counts[rank], &sum))
            return false;
    }
    return ddl_size_mul(sum, element_bytes, bytes) && *bytes <= most_bytes;
}

/* Bytes of a buffer of this content; *inner: where in all blocks the own one begins. */
static ddl_status measure(const ddl_comm *comm, const ddl_call *call, ddl_content holds,
                          const size_t counts[], size_t *bytes, size_t *inner)
{
    size_t element_bytes = ddl_dtype_bytes(call->dtype), before = 0, elements = 0, whole = 0;
    *bytes = 0;
    if (holds == DDL_NOTHING)
        return DDL_OK;
    if (counts != NULL) {
        if (!sum_counts(comm, counts, element_bytes, comm->rank, &before, &whole))
            return too_large(comm, call, "the counts");
        *bytes = holds == DDL_ALL_BLOCKS ? whole : counts[comm->rank] * element_bytes;
        *inner = before * element_bytes;
        return DDL_OK;
    }
    size_t blocks = holds == DDL_VECTOR ? 1 : (size_t)comm->nranks;
    if (!ddl_size_mul(call->count, blocks, &elements) || !ddl_size_mul(elements, element_bytes, &whole) ||
        whole > most_bytes) {
        char what[64];
        snprintf(what, sizeof what, "%zu x %zu elements", blocks, call->count);
        return too_large(comm, call, what);
    }
    *bytes = holds == DDL_OWN_BLOCK ? whole / blocks : whole;
    *inner = call->count * element_bytes * (size_t)comm->rank;
    return DDL_OK;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t from_a = (uintptr_t)a, from_b = (uintptr_t)b;
    if (a_bytes == 0 || b_bytes == 0)
        return false;
    return from_a < from_b ? from_b - from_a < a_bytes : from_a - from_b < b_bytes;
}

static const char *null_buffer(ddl_collective collective, bool is_send)
{
    if (collective == DDL_COLLECTIVE_BROADCAST)
        return "buffer is NULL";
    return is_send ? "send is NULL" : "recv is NULL";
}

/* What the buffers of this rank hold. */
typedef struct role {
    ddl_content in, out;
} role;

static role own_role(const ddl_comm *comm, const ddl_call *call)
{
    const ddl_collective_facts *facts = &ddl_collectives[call->collective];
    bool is_root = comm->rank == call->root;
    return (role){ .in = facts->in_at_root && !is_root ? DDL_NOTHING : facts->in,
                   .out = facts->out_at_root && !is_root ? DDL_NOTHING : facts->out };
}

static ddl_status measure_buffers(const ddl_comm *comm, const ddl_call *call, ddl_extent *extent)
{
    role own = own_role(comm, call);
    const size_t *out_counts = call->out_counts != NULL ? call->out_counts : call->counts;
    size_t in_inner = 0, out_inner = 0;
    DDL_TRY(measure(comm, call, own.in, call->counts, &extent->in_bytes, &in_inner));
    DDL_TRY(measure(comm, call, own.out, out_counts, &extent->out_bytes, &out_inner));
    bool gathers = own.in == DDL_OWN_BLOCK && own.out == DDL_ALL_BLOCKS;
    bool scatters = own.in == DDL_ALL_BLOCKS && own.out == DDL_OWN_BLOCK;
    extent->in_inside = gathers ? out_inner : 0;
    extent->out_inside = scatters ? in_inner : 0;
    return DDL_OK;
}

/*
 * Not NULL unless empty, and apart, unless one is exactly where in place puts it: at the same address, or at
 * the own block of the other. Sets call->in_place, and to NULL what is not used.
 */
static ddl_status check_buffers(const ddl_comm *comm, ddl_call *call, const ddl_extent *extent)
{
    if (extent->in_bytes == 0 || extent->out_bytes == 0) {
        role own = own_role(comm, call);
        call->in = own.in == DDL_NOTHING ? NULL : call->in;
        call->out = own.out == DDL_NOTHING ? NULL : call->out;
    }
    if ((extent->in_bytes > 0 && call->in == NULL) || (extent->out_bytes > 0 && call->out == NULL))
        return wrong(comm, call->collective,
                     null_buffer(call->collective, extent->in_bytes > 0 && call->in == NULL));
    if (extent->in_bytes == 0 || extent->out_bytes == 0)
        return DDL_OK;
    call->in_place = (uintptr_t)call->in + extent->out_inside == (uintptr_t)call->out + extent->in_inside;
    if (!call->in_place && overlap(call->in, extent->in_bytes, call->out, extent->out_bytes))
        return wrong(
            comm, call->collective,
            "send and recv overlap, and are not in place (see the rules in ddl.h); use one buffer or two");
    if (call->in_place && call->out_counts != NULL &&
        memcmp(call->counts, call->out_counts, (size_t)comm->nranks * sizeof *call->counts) != 0)
        return wrong(comm, call->collective,
                     "send == recv (in place), but send_counts and recv_counts differ; use two buffers");
    return DDL_OK;
}

static size_t largest(const ddl_comm *comm, const size_t counts[])
{
    size_t most = 0;
    for (int rank = 0; counts != NULL && rank < comm->nranks; rank++)
        most = ddl_size_max(most, counts[rank]);
    return most;
}

static ddl_status check_call(const ddl_comm *comm, ddl_call *call)
{
    if (ddl_collective_has_data(call->collective))
        DDL_TRY(check_types(comm, call));
    bool point_to_point = ddl_collective_is_point_to_point(call->collective);
    if (ddl_collective_is_rooted(call->collective) || point_to_point)
        DDL_TRY(check_root(comm, call, point_to_point ? "peer" : "root"));
    if (point_to_point && call->root == comm->rank)
        return wrong(comm, call->collective, "peer is the own rank");
    if (call->collective == DDL_COLLECTIVE_ALLTOALLV && (call->counts == NULL || call->out_counts == NULL))
        return wrong(comm, call->collective,
                     call->counts == NULL ? "send_counts is NULL" : "recv_counts is NULL");
    if (ddl_collective_is_uneven(call->collective)) {
        if (call->counts == NULL)
            return wrong(comm, call->collective, "counts is NULL");
        call->count = ddl_size_max(largest(comm, call->counts), largest(comm, call->out_counts));
    }
    if (ddl_collective_has_data(call->collective))
        DDL_TRY(measure_buffers(comm, call, &call->extent));
    if (call->out_counts != NULL && call->counts[comm->rank] != call->out_counts[comm->rank])
        return ddl_last_error_set(
            DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
            "send_counts[%d] is %zu, but recv_counts[%d] is %zu: of the block that this rank keeps",
            comm->rank, call->counts[comm->rank], comm->rank, call->out_counts[comm->rank]);
    return DDL_OK;
}

/* Two ranks that send to each other would have the receives wait for the sends in their streams, for ever. */
static ddl_status refuse_in_stream(const ddl_comm *comm, const ddl_call *call)
{
    return ddl_last_error_set(DDL_EUNSUPPORTED, comm->rank, ddl_collective_name(call->collective),
                              "send and recv are not operations of a stream; call ddl_stream_end first, and "
                              "wait for the stream");
}

/* Check everything, then issue. Of a call like the last one only the buffers can be wrong. */
static ddl_status run(ddl_comm *comm, ddl_call *call, ddl_request **request)
{
    DDL_TRY(ddl_comm_check_open(comm, ddl_collective_name(call->collective)));
    if (!ddl_list_empty(&comm->streamed))
        DDL_TRY(ddl_stream_reap(comm));
    bool knows_buffers = ddl_repeat_recall(comm, call);
    if (!call->is_repeated)
        DDL_TRY(check_call(comm, call));
    call->stride = call->count;
    if (ddl_collective_has_data(call->collective) && !knows_buffers) {
        DDL_TRY(check_buffers(comm, call, &call->extent));
        knows_buffers = call->is_repeated && ddl_repeat_recall(comm, call); /* but for one that is not used */
    }
    if (ddl_collective_has_data(call->collective) && ddl_gpu_may_be_used(knows_buffers))
        DDL_TRY(ddl_gpu_look(comm, call));
    if (call->collective == DDL_COLLECTIVE_BROADCAST)
        call->in_place = true;
    if (call->staging == NULL || (!comm->has_stream && comm->engine != NULL))
        return ddl_issue(comm, call, request);
    if (comm->has_stream && ddl_collective_is_point_to_point(call->collective))
        return refuse_in_stream(comm, call);
    return ddl_stream_issue(comm, call, request);
}

/* ---- the calls ---- */

ddl_status ddl_allreduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                         ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLREDUCE,
                      .in = send,
                      .out = recv,
                      .count = count,
                      .dtype = dtype,
                      .op = op };
    return run(comm, &call, request);
}

ddl_status ddl_reduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op, int root,
                      ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_REDUCE,
                      .in = send,
                      .out = recv,
                      .count = count,
                      .dtype = dtype,
                      .op = op,
                      .root = root };
    return run(comm, &call, request);
}

ddl_status ddl_reduce_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype, ddl_op op,
                              ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_REDUCE_SCATTER,
                      .in = send,
                      .out = recv,
                      .count = recv_count,
                      .dtype = dtype,
                      .op = op };
    return run(comm, &call, request);
}

ddl_status ddl_reduce_scatterv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype,
                               ddl_op op, ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_REDUCE_SCATTERV,
                      .in = send,
                      .out = recv,
                      .counts = counts,
                      .dtype = dtype,
                      .op = op };
    return run(comm, &call, request);
}

ddl_status ddl_allgather(const void *send, void *recv, size_t send_count, ddl_dtype dtype, ddl_comm *comm,
                         ddl_request **request)
{
    ddl_call call = {
        .collective = DDL_COLLECTIVE_ALLGATHER, .in = send, .out = recv, .count = send_count, .dtype = dtype
    };
    return run(comm, &call, request);
}

ddl_status ddl_allgatherv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype,
                          ddl_comm *comm, ddl_request **request)
{
    ddl_call call = {
        .collective = DDL_COLLECTIVE_ALLGATHERV, .in = send, .out = recv, .counts = counts, .dtype = dtype
    };
    return run(comm, &call, request);
}

ddl_status ddl_broadcast(void *buffer, size_t count, ddl_dtype dtype, int root, ddl_comm *comm,
                         ddl_request **request)
{
    ddl_call call = {
        .collective = DDL_COLLECTIVE_BROADCAST, .out = buffer, .count = count, .root = root, .dtype = dtype
    };
    return run(comm, &call, request);
}

ddl_status ddl_gather(const void *send, void *recv, size_t send_count, ddl_dtype dtype, int root,
                      ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_GATHER,
                      .in = send,
                      .out = recv,
                      .count = send_count,
                      .root = root,
                      .dtype = dtype };
    return run(comm, &call, request);
}

ddl_status ddl_gatherv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype, int root,
                       ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_GATHERV,
                      .in = send,
                      .out = recv,
                      .counts = counts,
                      .root = root,
                      .dtype = dtype };
    return run(comm, &call, request);
}

ddl_status ddl_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype, int root,
                       ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_SCATTER,
                      .in = send,
                      .out = recv,
                      .count = recv_count,
                      .root = root,
                      .dtype = dtype };
    return run(comm, &call, request);
}

ddl_status ddl_scatterv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype, int root,
                        ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_SCATTERV,
                      .in = send,
                      .out = recv,
                      .counts = counts,
                      .root = root,
                      .dtype = dtype };
    return run(comm, &call, request);
}

ddl_status ddl_alltoall(const void *send, void *recv, size_t count_per_rank, ddl_dtype dtype, ddl_comm *comm,
                        ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLTOALL,
                      .in = send,
                      .out = recv,
                      .count = count_per_rank,
                      .dtype = dtype };
    return run(comm, &call, request);
}

ddl_status ddl_alltoallv(const void *send, const size_t send_counts[], void *recv, const size_t recv_counts[],
                         ddl_dtype dtype, ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLTOALLV,
                      .in = send,
                      .out = recv,
                      .counts = send_counts,
                      .out_counts = recv_counts,
                      .dtype = dtype };
    return run(comm, &call, request);
}

ddl_status ddl_barrier(ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_BARRIER };
    return run(comm, &call, request);
}

ddl_status ddl_send(const void *send, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                    ddl_request **request)
{
    ddl_call call = {
        .collective = DDL_COLLECTIVE_SEND, .in = send, .count = count, .root = peer, .dtype = dtype
    };
    return run(comm, &call, request);
}

ddl_status ddl_recv(void *recv, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                    ddl_request **request)
{
    ddl_call call = {
        .collective = DDL_COLLECTIVE_RECV, .out = recv, .count = count, .root = peer, .dtype = dtype
    };
    return run(comm, &call, request);
}

/* ---- which algorithm ---- */

static bool find_collective(const char *name, ddl_collective *collective)
{
    for (int i = 0; name != NULL && i < DDL_COLLECTIVE_COUNT; i++)
        if (strcmp(name, ddl_collective_name((ddl_collective)i)) == 0) {
            *collective = (ddl_collective)i;
            return true;
        }
    return false;
}

const char *ddl_algorithm_name(const ddl_comm *comm, const char *name, size_t count, ddl_dtype dtype)
{
    ddl_collective collective;
    if (comm == NULL || !find_collective(name, &collective))
        return NULL;
    double bytes = (double)count * (double)ddl_dtype_bytes(dtype) * ddl_issue_blocks(comm, collective);
    const ddl_algorithm *algorithm = ddl_issue_algorithm(comm, collective, bytes);
    return algorithm != NULL ? algorithm->name : NULL;
}

size_t ddl_algorithm_names(const char *name, const char *names[], size_t capacity)
{
    ddl_collective collective;
    if (!find_collective(name, &collective))
        return 0;
    size_t rows, found = 0;
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    for (size_t i = 0; i < rows; i++) {
        if (catalogue[i].collective != collective)
            continue;
        if (found < capacity)
            names[found] = catalogue[i].name;
        found++;
    }
    return found;
}
