/* memory.c - ddl_mem_alloc and ddl_mem_free: blocks of the world's heap. */
#include "api/comm.h"
#include "api/last_error.h"

#include <stdio.h>

ddl_status ddl_mem_alloc(ddl_comm *comm, size_t bytes, void **memory)
{
    DDL_TRY(ddl_comm_check(comm, "mem_alloc"));
    if (memory == NULL)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, "mem_alloc", "memory is NULL");
    void *block = NULL;
    ddl_error error;
    ddl_status status = bytes > 0 ? ddl_heap_alloc(comm->world->heap, bytes, &block, &error) : DDL_OK;
    if (status == DDL_OK) {
        *memory = block;
        return DDL_OK;
    }
    error.rank = comm->rank;
    snprintf(error.operation, sizeof error.operation, "mem_alloc");
    return ddl_last_error_keep(&error);
}

ddl_status ddl_mem_free(ddl_comm *comm, void *memory)
{
    DDL_TRY(ddl_comm_check(comm, "mem_free"));
    if (memory != NULL && !ddl_heap_release(comm->world->heap, memory))
        return ddl_last_error_set(DDL_EINVAL, comm->rank, "mem_free",
                                  "%p is not from ddl_mem_alloc in this world, or was freed before", memory);
    return DDL_OK;
}
