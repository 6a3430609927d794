/*
 * spoil.c - preloaded: gives one rank a wrong result of float32, as the program's own calls are of integers.
 *
 * SPOILED names the call: allreduce, reduce or broadcast.
 */
#define _GNU_SOURCE
#include <ddl/ddl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void spoil(const char *call, void *result, ddl_dtype dtype, bool here)
{
    const char *spoiled = getenv("SPOILED");
    if (here && dtype == DDL_FLOAT32 && spoiled != NULL && strcmp(spoiled, call) == 0)
        *(unsigned char *)result ^= 1;
}

ddl_status ddl_allreduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                         ddl_comm *comm, ddl_request **request)
{
    union {
        void *object;
        ddl_status (*function)(const void *, void *, size_t, ddl_dtype, ddl_op, ddl_comm *, ddl_request **);
    } real = { .object = dlsym(RTLD_NEXT, "ddl_allreduce") };
    ddl_status status = real.function(send, recv, count, dtype, op, comm, request);
    spoil("allreduce", recv, dtype, ddl_rank(comm) == 1);
    return status;
}

ddl_status ddl_reduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op, int root,
                      ddl_comm *comm, ddl_request **request)
{
    union {
        void *object;
        ddl_status (*function)(const void *, void *, size_t, ddl_dtype, ddl_op, int, ddl_comm *,
                               ddl_request **);
    } real = { .object = dlsym(RTLD_NEXT, "ddl_reduce") };
    ddl_status status = real.function(send, recv, count, dtype, op, root, comm, request);
    spoil("reduce", recv, dtype, ddl_rank(comm) == root);
    return status;
}

ddl_status ddl_broadcast(void *buffer, size_t count, ddl_dtype dtype, int root, ddl_comm *comm,
                         ddl_request **request)
{
    union {
        void *object;
        ddl_status (*function)(void *, size_t, ddl_dtype, int, ddl_comm *, ddl_request **);
    } real = { .object = dlsym(RTLD_NEXT, "ddl_broadcast") };
    ddl_status status = real.function(buffer, count, dtype, root, comm, request);
    spoil("broadcast", buffer, dtype, ddl_rank(comm) == 1);
    return status;
}
