/* local_posix.c - where Linux's descriptors of memory are missing: nothing of it is there. */
#include "io/local.h"

#include <unistd.h>

static ddl_status missing(ddl_error *err)
{
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "shared memory is for Linux only");
}

ddl_status ddl_local_memory_create(size_t bytes, int *fd, ddl_error *err)
{
    (void)bytes, (void)fd;
    return missing(err);
}

ddl_status ddl_local_memory_check(int fd, size_t least_bytes, size_t *bytes, ddl_error *err)
{
    (void)fd, (void)least_bytes, (void)bytes;
    return missing(err);
}

ddl_status ddl_local_memory_map(int fd, size_t offset, size_t bytes, ddl_local_use use, void **memory,
                                ddl_error *err)
{
    (void)fd, (void)offset, (void)bytes, (void)use, (void)memory;
    return missing(err);
}

void ddl_local_memory_unmap(void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
}

size_t ddl_local_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void ddl_local_pages_keep_in_children(void *pages, size_t bytes)
{
    (void)pages, (void)bytes;
}

void ddl_local_pages_set_dumped(void *pages, size_t bytes, bool dumped)
{
    (void)pages, (void)bytes, (void)dumped;
}

ddl_status ddl_local_pages_reserve(int fd, size_t offset, size_t bytes, ddl_error *err)
{
    (void)fd, (void)offset, (void)bytes;
    return missing(err);
}

void ddl_local_pages_touch(void *pages, size_t bytes)
{
    (void)pages;
    (void)bytes;
}

void ddl_local_pages_release(int fd, size_t offset, size_t bytes)
{
    (void)fd, (void)offset, (void)bytes;
}

ddl_status ddl_local_pages_detach(void *pages, size_t bytes, ddl_error *err)
{
    (void)pages, (void)bytes;
    return missing(err);
}

void ddl_local_pages_close(void *pages, size_t bytes)
{
    (void)pages, (void)bytes;
}

ddl_status ddl_local_read(int pid, const ddl_local_mark *mark, uint64_t address, const struct iovec parts[],
                          int count, ddl_error *err)
{
    (void)pid, (void)mark, (void)address, (void)parts, (void)count;
    return missing(err);
}

ddl_status ddl_local_bell_create(int *fd, ddl_error *err)
{
    (void)fd;
    return missing(err);
}

void ddl_local_bell_ring(int fd)
{
    (void)fd;
}

void ddl_local_bell_silence(int fd)
{
    (void)fd;
}

bool ddl_local_address(const uint8_t id[DDL_LOCAL_ID_BYTES], int number, ddl_address *address)
{
    (void)id, (void)number, (void)address;
    return false;
}

bool ddl_local_is_own_user(int fd)
{
    (void)fd;
    return false;
}

ddl_status ddl_local_pair(int ends[2], ddl_error *err)
{
    (void)ends;
    return missing(err);
}

ddl_status ddl_local_listen(int backlog, char name[DDL_LOCAL_NAME_BYTES], int *fd, ddl_error *err)
{
    (void)backlog, (void)name, (void)fd;
    return missing(err);
}

ddl_status ddl_local_connect(const char name[DDL_LOCAL_NAME_BYTES], int *fd, ddl_error *err)
{
    (void)name, (void)fd;
    return missing(err);
}

ddl_status ddl_local_accept(int listener, int *fd, ddl_error *err)
{
    (void)listener, (void)fd;
    return missing(err);
}

ddl_status ddl_local_send(int fd, const void *note, size_t bytes, const int descriptors[], int count,
                          ddl_error *err)
{
    (void)fd, (void)note, (void)bytes, (void)descriptors, (void)count;
    return missing(err);
}

ddl_status ddl_local_receive(int fd, void *note, size_t bytes, int descriptors[], int room, int *count,
                             ddl_error *err)
{
    (void)fd, (void)note, (void)bytes, (void)descriptors, (void)room, (void)count;
    return missing(err);
}
