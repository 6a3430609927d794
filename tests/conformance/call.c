/* call.c - which public call a kind is. */
#include "call.h"

ddl_status call_make(const call *c, ddl_comm *comm, ddl_request **request)
{
    const ddl_dtype dtype = (ddl_dtype)c->dtype;
    const ddl_op op = (ddl_op)c->op;

    switch (c->kind) {
    case ORACLE_ALLREDUCE:
        return ddl_allreduce(c->send, c->recv, c->count, dtype, op, comm, request);
    case ORACLE_REDUCE:
        return ddl_reduce(c->send, c->recv, c->count, dtype, op, c->root, comm, request);
    case ORACLE_REDUCE_SCATTER:
        return ddl_reduce_scatter(c->send, c->recv, c->count, dtype, op, comm, request);
    case ORACLE_ALLGATHER:
        return ddl_allgather(c->send, c->recv, c->count, dtype, comm, request);
    case ORACLE_BROADCAST:
        return ddl_broadcast(c->recv, c->count, dtype, c->root, comm, request);
    case ORACLE_ALLTOALL:
        return ddl_alltoall(c->send, c->recv, c->count, dtype, comm, request);
    case ORACLE_BARRIER:
        return ddl_barrier(comm, request);
    case ORACLE_GATHER:
        return ddl_gather(c->send, c->recv, c->count, dtype, c->root, comm, request);
    case ORACLE_SCATTER:
        return ddl_scatter(c->send, c->recv, c->count, dtype, c->root, comm, request);
    case ORACLE_REDUCE_SCATTERV:
        return ddl_reduce_scatterv(c->send, c->recv, c->counts, dtype, op, comm, request);
    case ORACLE_ALLGATHERV:
        return ddl_allgatherv(c->send, c->recv, c->counts, dtype, comm, request);
    case ORACLE_GATHERV:
        return ddl_gatherv(c->send, c->recv, c->counts, dtype, c->root, comm, request);
    case ORACLE_SCATTERV:
        return ddl_scatterv(c->send, c->recv, c->counts, dtype, c->root, comm, request);
    case ORACLE_ALLTOALLV:
        return ddl_alltoallv(c->send, c->counts, c->recv, c->recv_counts, dtype, comm, request);
    default:
        if (c->receives)
            return ddl_recv(c->recv, c->count, dtype, c->root, comm, request);
        return ddl_send(c->send, c->count, dtype, c->root, comm, request);
    }
}
