/* heap.c - which pages belong to which block: a list in the order of addresses, searched for the first gap.
 */
#include "transport/heap.h"

#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "base/size.h"
#include "io/host.h"
#include "io/local.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {
    ddl_link link;
    uint8_t *memory;
    size_t bytes; /* whole pages */
    bool closed;  /* was released after pages of it were withdrawn: its place is used no more */
} block;

struct ddl_heap {
    uint8_t *memory; /* NULL: each block is allocated by itself */
    size_t bytes, page_bytes;
    int fd;
    size_t start;
    uint8_t *withdrawn; /* a bit for each page; the holder's, with the lock where others look */
    pthread_mutex_t lock;
    ddl_list blocks; /* in the order of addresses where memory is shared */
};

ddl_status ddl_heap_create(void *memory, size_t bytes, int fd, size_t start, ddl_heap **out, ddl_error *err)
{
    ddl_heap *heap = ddl_alloc(sizeof *heap);
    /* Untouched memory costs nothing until something is withdrawn. */
    uint8_t *withdrawn = ddl_alloc(bytes / ddl_local_page_bytes() / 8 + 1);
    if (heap == NULL || withdrawn == NULL) {
        ddl_free(heap);
        ddl_free(withdrawn);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a heap");
    }
    heap->memory = memory;
    heap->bytes = memory != NULL ? bytes : 0;
    heap->page_bytes = ddl_local_page_bytes();
    heap->fd = fd;
    heap->start = start;
    heap->withdrawn = withdrawn;
    pthread_mutex_init(&heap->lock, NULL);
    ddl_list_init(&heap->blocks);
    *out = heap;
    return DDL_OK;
}

static bool is_withdrawn(const ddl_heap *heap, size_t page)
{
    return (heap->withdrawn[page / 8] >> page % 8 & 1) != 0;
}

/* Of the pages that these bytes are on. */
static bool any_withdrawn(const ddl_heap *heap, size_t offset, size_t bytes)
{
    size_t last = (offset + bytes - 1) / heap->page_bytes;
    for (size_t page = offset / heap->page_bytes; page <= last; page++)
        if (page % 8 == 0 && page + 7 <= last && heap->withdrawn[page / 8] == 0)
            page += 7;
        else if (is_withdrawn(heap, page))
            return true;
    return false;
}

/* The first gap of so many bytes, and the link before which its block goes; NULL: none. With the lock. */
static uint8_t *find_gap(ddl_heap *heap, size_t bytes, ddl_link **before)
{
    uint8_t *end = heap->memory; /* of the block before */
    DDL_LIST_FOR_EACH (link, &heap->blocks) {
        const block *each = DDL_CONTAINER(link, block, link);
        *before = link;
        if ((size_t)(each->memory - end) >= bytes)
            return end;
        end = each->memory + each->bytes;
    }
    *before = &heap->blocks.head;
    return (size_t)(heap->memory + heap->bytes - end) >= bytes ? end : NULL;
}

static ddl_status take_shared(ddl_heap *heap, block *taken, ddl_error *err)
{
    ddl_link *before;
    uint8_t *gap = find_gap(heap, taken->bytes, &before);
    if (gap == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no %zu KiB in one piece are left of %zu KiB that can be shared",
                        taken->bytes / 1024, heap->bytes / 1024);
    taken->memory = gap;
    ddl_link_insert_before(before, &taken->link);
    return DDL_OK;
}

static ddl_status take_ordinary(ddl_heap *heap, block *taken, ddl_error *err)
{
    void *memory = NULL;
    DDL_TRY(ddl_host_need_memory(taken->bytes, err));
    if (DDL_FAILPOINT("heap.alloc") || posix_memalign(&memory, heap->page_bytes, taken->bytes) != 0)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu KiB", taken->bytes / 1024);
    memset(memory, 0, taken->bytes);
    taken->memory = memory;
    ddl_list_append(&heap->blocks, &taken->link);
    return DDL_OK;
}

/* Give its addresses memory. Takes long for a large one, so without the lock. */
static ddl_status back(ddl_heap *heap, block *own, ddl_error *err)
{
    size_t start = heap->start + (size_t)(own->memory - heap->memory);
    ddl_status status = ddl_local_pages_reserve(heap->fd, start, own->bytes, err);
    if (status == DDL_OK) {
        ddl_local_pages_set_dumped(own->memory, own->bytes, true);
        return DDL_OK;
    }
    pthread_mutex_lock(&heap->lock);
    ddl_list_remove(&own->link);
    pthread_mutex_unlock(&heap->lock);
    ddl_free(own);
    return status;
}

ddl_status ddl_heap_alloc(ddl_heap *heap, size_t bytes, void **out, ddl_error *err)
{
    size_t up;
    if (!ddl_size_add(bytes > 0 ? bytes : 1, heap->page_bytes - 1, &up) || up > PTRDIFF_MAX)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu bytes", bytes);
    block *taken = ddl_alloc(sizeof *taken);
    if (taken == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a block");
    taken->bytes = up / heap->page_bytes * heap->page_bytes;
    pthread_mutex_lock(&heap->lock);
    ddl_status status =
        heap->memory != NULL ? take_shared(heap, taken, err) : take_ordinary(heap, taken, err);
    pthread_mutex_unlock(&heap->lock);
    if (status != DDL_OK) {
        ddl_free(taken);
        return status;
    }
    if (heap->memory != NULL && (status = back(heap, taken, err)) != DDL_OK)
        return status;
    *out = taken->memory;
    return DDL_OK;
}

/* Whoever was told a place in what was withdrawn may still come: its addresses are not used again. */
static void give_back(ddl_heap *heap, block *own)
{
    size_t offset = (size_t)(own->memory - heap->memory);
    own->closed = any_withdrawn(heap, offset, own->bytes);
    ddl_local_pages_release(heap->fd, heap->start + offset, own->bytes);
    if (own->closed)
        ddl_local_pages_close(own->memory, own->bytes);
    else
        ddl_local_pages_set_dumped(own->memory, own->bytes, false);
}

bool ddl_heap_release(ddl_heap *heap, void *memory)
{
    block *found = NULL;
    pthread_mutex_lock(&heap->lock);
    DDL_LIST_FOR_EACH (link, &heap->blocks) {
        block *each = DDL_CONTAINER(link, block, link);
        if (each->memory == memory && !each->closed)
            found = each;
    }
    if (found != NULL && heap->memory != NULL)
        give_back(heap, found);
    if (found != NULL && !found->closed)
        ddl_list_remove(&found->link);
    pthread_mutex_unlock(&heap->lock);
    if (found == NULL)
        return false;
    if (heap->memory == NULL)
        free(found->memory);
    if (!found->closed)
        ddl_free(found);
    return true;
}

bool ddl_heap_find(const ddl_heap *heap, const void *data, size_t bytes, size_t *offset)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)heap->memory;
    if (at >= heap->bytes || bytes > heap->bytes - at || any_withdrawn(heap, at, bytes))
        return false;
    *offset = at;
    return true;
}

void ddl_heap_withdraw(ddl_heap *heap, void *pages, size_t bytes)
{
    ddl_error error;
    size_t first = (size_t)((uint8_t *)pages - heap->memory) / heap->page_bytes;
    pthread_mutex_lock(&heap->lock);
    for (size_t page = first; page < first + bytes / heap->page_bytes; page++)
        heap->withdrawn[page / 8] |= (uint8_t)(1 << page % 8);
    pthread_mutex_unlock(&heap->lock);
    if (ddl_local_pages_detach(pages, bytes, &error) != DDL_OK)
        ddl_log(DDL_LOG_WARNING, "a rank that lags behind may still write to a buffer: %s", error.text);
}

void ddl_heap_destroy(ddl_heap *heap)
{
    if (heap == NULL)
        return;
    for (ddl_link *first; (first = ddl_list_take_first(&heap->blocks)) != NULL;) {
        block *each = DDL_CONTAINER(first, block, link);
        if (heap->memory == NULL)
            free(each->memory);
        ddl_free(each);
    }
    if (heap->memory != NULL) /* others may have it mapped for longer */
        ddl_local_pages_release(heap->fd, heap->start, heap->bytes);
    pthread_mutex_destroy(&heap->lock);
    ddl_free(heap->withdrawn);
    ddl_free(heap);
}
