/* collectives.c - the public data calls: check arguments, describe the call, issue it. */
#include "api/contexts.h"
#include "api/issue.h"
#include "api/last_error.h"
#include "base/dtype.h"
#include "base/size.h"

#include <string.h>

/* ---- checks; each keeps an error and returns false when the argument makes no sense ---- */

static ddl_status wrong(const ddl_comm *comm, ddl_collective collective, const char *what)
{
    return ddl_last_error_set(DDL_EINVAL, comm != NULL ? comm->roster->rank : -1,
                              ddl_collective_name(collective), "%s", what);
}

static ddl_status check_comm(const ddl_comm *comm, ddl_collective collective)
{
    if (comm == NULL)
        return wrong(NULL, collective, "comm is NULL");
    if (comm->forked || ddl_contexts_forked())
        return ddl_last_error_set(
            DDL_EUNSUPPORTED, comm->roster->rank, ddl_collective_name(collective),
            "a forked child must not use the library; start it with exec, or fork before ddl_init");
    return DDL_OK;
}

static ddl_status check_types(const ddl_comm *comm, const ddl_call *call)
{
    if (ddl_dtype_bytes(call->dtype) == 0)
        return ddl_last_error_set(DDL_EINVAL, comm->roster->rank, ddl_collective_name(call->collective),
                                  "there is no dtype %d", (int)call->dtype);
    if (call->has_op && (unsigned)call->op >= DDL_OP_COUNT)
        return ddl_last_error_set(DDL_EINVAL, comm->roster->rank, ddl_collective_name(call->collective),
                                  "there is no operator %d", (int)call->op);
    if (call->has_op && !ddl_op_takes(call->op, call->dtype))
        return ddl_last_error_set(DDL_EINVAL, comm->roster->rank, ddl_collective_name(call->collective),
                                  "the bitwise operator %s is not defined for %s", ddl_op_name(call->op),
                                  ddl_dtype_name(call->dtype));
    return DDL_OK;
}

static ddl_status check_root(const ddl_comm *comm, const ddl_call *call, const char *what)
{
    if (call->root < 0 || call->root >= comm->config.nranks)
        return ddl_last_error_set(DDL_EINVAL, comm->roster->rank, ddl_collective_name(call->collective),
                                  "%s %d is not among the ranks 0 to %d", what, call->root,
                                  comm->config.nranks - 1);
    return DDL_OK;
}

/* Bytes of blocks times count elements. */
static ddl_status measure(const ddl_comm *comm, const ddl_call *call, size_t blocks, size_t *bytes)
{
    size_t elements;
    if (!ddl_size_mul(call->count, blocks, &elements) ||
        !ddl_size_mul(elements, ddl_dtype_bytes(call->dtype), bytes) || *bytes > PTRDIFF_MAX)
        return ddl_last_error_set(DDL_EINVAL, comm->roster->rank, ddl_collective_name(call->collective),
                                  "%zu x %zu elements of %s overflow the address space", blocks, call->count,
                                  ddl_dtype_name(call->dtype));
    return DDL_OK;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t from_a = (uintptr_t)a, from_b = (uintptr_t)b;
    return from_a < from_b + b_bytes && from_b < from_a + a_bytes;
}

/*
 * Both buffers of a call that uses both: not NULL, and apart, unless recv (for allgather: send) is exactly
 * where in place puts it: `inner` bytes into the other. Sets call->in_place.
 */
static ddl_status check_buffers(const ddl_comm *comm, ddl_call *call, size_t in_bytes, size_t out_bytes,
                                size_t inner)
{
    if (in_bytes == 0 && out_bytes == 0)
        return DDL_OK;
    if (call->in == NULL || call->out == NULL)
        return wrong(comm, call->collective, call->in == NULL ? "send is NULL" : "recv is NULL");
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    call->in_place = in_bytes > out_bytes ? out == in + inner : in == out + inner;
    if (!call->in_place && overlap(call->in, in_bytes, call->out, out_bytes))
        return wrong(
            comm, call->collective,
            "send and recv overlap, and are not in place (see the rules in ddl.h); use one buffer or two");
    return DDL_OK;
}

/* ---- the calls ---- */

ddl_status ddl_allreduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                         ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLREDUCE,
                      .in = send,
                      .out = recv,
                      .count = count,
                      .stride = count,
                      .dtype = dtype,
                      .op = op,
                      .has_dtype = true,
                      .has_op = true };
    size_t bytes = 0;
    DDL_TRY(check_comm(comm, call.collective));
    DDL_TRY(check_types(comm, &call));
    DDL_TRY(measure(comm, &call, 1, &bytes));
    DDL_TRY(check_buffers(comm, &call, bytes, bytes, 0));
    return ddl_issue(comm, &call, request);
}

ddl_status ddl_reduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op, int root,
                      ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_REDUCE,
                      .in = send,
                      .out = recv,
                      .count = count,
                      .stride = count,
                      .dtype = dtype,
                      .op = op,
                      .has_dtype = true,
                      .has_op = true,
                      .root = root,
                      .has_root = true };
    size_t bytes = 0;
    DDL_TRY(check_comm(comm, call.collective));
    DDL_TRY(check_types(comm, &call));
    DDL_TRY(check_root(comm, &call, "root"));
    DDL_TRY(measure(comm, &call, 1, &bytes));
    if (comm->roster->rank == root) {
        DDL_TRY(check_buffers(comm, &call, bytes, bytes, 0));
    } else {
        call.out = NULL;
        if (bytes > 0 && send == NULL)
            return wrong(comm, call.collective, "send is NULL");
    }
    return ddl_issue(comm, &call, request);
}

ddl_status ddl_reduce_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype, ddl_op op,
                              ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_REDUCE_SCATTER,
                      .in = send,
                      .out = recv,
                      .count = recv_count,
                      .stride = recv_count,
                      .dtype = dtype,
                      .op = op,
                      .has_dtype = true,
                      .has_op = true };
    size_t block = 0, all = 0;
    DDL_TRY(check_comm(comm, call.collective));
    DDL_TRY(check_types(comm, &call));
    DDL_TRY(measure(comm, &call, (size_t)comm->config.nranks, &all));
    DDL_TRY(measure(comm, &call, 1, &block));
    DDL_TRY(check_buffers(comm, &call, all, block, block * (size_t)comm->roster->rank));
    return ddl_issue(comm, &call, request);
}

ddl_status ddl_allgather(const void *send, void *recv, size_t send_count, ddl_dtype dtype, ddl_comm *comm,
                         ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLGATHER,
                      .in = send,
                      .out = recv,
                      .count = send_count,
                      .stride = send_count,
                      .dtype = dtype,
                      .has_dtype = true };
    size_t block = 0, all = 0;
    DDL_TRY(check_comm(comm, call.collective));
    DDL_TRY(check_types(comm, &call));
    DDL_TRY(measure(comm, &call, (size_t)comm->config.nranks, &all));
    DDL_TRY(measure(comm, &call, 1, &block));
    DDL_TRY(check_buffers(comm, &call, block, all, block * (size_t)comm->roster->rank));
    return ddl_issue(comm, &call, request);
}

ddl_status ddl_broadcast(void *buffer, size_t count, ddl_dtype dtype, int root, ddl_comm *comm,
                         ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_BROADCAST,
                      .out = buffer,
                      .count = count,
                      .stride = count,
                      .dtype = dtype,
                      .has_dtype = true,
                      .root = root,
                      .has_root = true,
                      .in_place = true };
    size_t bytes = 0;
    DDL_TRY(check_comm(comm, call.collective));
    DDL_TRY(check_types(comm, &call));
    DDL_TRY(check_root(comm, &call, "root"));
    DDL_TRY(measure(comm, &call, 1, &bytes));
    if (bytes > 0 && buffer == NULL)
        return wrong(comm, call.collective, "buffer is NULL");
    return ddl_issue(comm, &call, request);
}

ddl_status ddl_alltoall(const void *send, void *recv, size_t count_per_rank, ddl_dtype dtype, ddl_comm *comm,
                        ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_ALLTOALL,
                      .in = send,
                      .out = recv,
                      .count = count_per_rank,
                      .stride = count_per_rank,
                      .dtype = dtype,
                      .has_dtype = true };
    size_t all = 0;
    DDL_TRY(check_comm(comm, call.collective));
    DDL_TRY(check_types(comm, &call));
    DDL_TRY(measure(comm, &call, (size_t)comm->config.nranks, &all));
    DDL_TRY(check_buffers(comm, &call, all, all, 0));
    return ddl_issue(comm, &call, request);
}

ddl_status ddl_barrier(ddl_comm *comm, ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_BARRIER };
    DDL_TRY(check_comm(comm, call.collective));
    return ddl_issue(comm, &call, request);
}

static ddl_status point_to_point(ddl_comm *comm, ddl_call *call, const void *buffer, ddl_request **request)
{
    size_t bytes = 0;
    DDL_TRY(check_comm(comm, call->collective));
    DDL_TRY(check_types(comm, call));
    DDL_TRY(check_root(comm, call, "peer"));
    if (call->root == comm->roster->rank)
        return wrong(comm, call->collective, "peer is the own rank");
    DDL_TRY(measure(comm, call, 1, &bytes));
    if (bytes > 0 && buffer == NULL)
        return wrong(comm, call->collective,
                     call->collective == DDL_COLLECTIVE_SEND ? "send is NULL" : "recv is NULL");
    return ddl_issue(comm, call, request);
}

ddl_status ddl_send(const void *send, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                    ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_SEND,
                      .in = send,
                      .count = count,
                      .stride = count,
                      .dtype = dtype,
                      .has_dtype = true,
                      .root = peer };
    return point_to_point(comm, &call, send, request);
}

ddl_status ddl_recv(void *recv, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                    ddl_request **request)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_RECV,
                      .out = recv,
                      .count = count,
                      .stride = count,
                      .dtype = dtype,
                      .has_dtype = true,
                      .root = peer };
    return point_to_point(comm, &call, recv, request);
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
    return ddl_issue_algorithm(comm, collective, count, ddl_dtype_bytes(dtype))->name;
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
