/*
 * heap.h - memory for the program's buffers that the other ranks of the host reach as well.
 *
 * A block is ordinary memory to its owner. The other ranks of the host have the heap mapped and are told
 * places in it by their offsets. When somebody who was told one may still use it, though the operation is
 * over, the pages are withdrawn: the owner gets private ones with the same content at the same address, and
 * the old ones are nobody's.
 *
 * Without memory to share, blocks are ordinary for everyone.
 */
#ifndef DDL_TRANSPORT_HEAP_H
#define DDL_TRANSPORT_HEAP_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ddl_heap ddl_heap;

/* memory: `bytes` in whole pages, at `start` in the descriptor (local.h), which must outlive the heap; NULL:
 * none to share. */
DDL_MUST_USE ddl_status ddl_heap_create(void *memory, size_t bytes, int fd, size_t start, ddl_heap **heap,
                                        ddl_error *err);

/* A block of at least so many bytes, zero, aligned to a page. Thread: any. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_heap_alloc(ddl_heap *heap, size_t bytes, void **block, ddl_error *err);

/* False: there is no such block. Thread: any. */
bool ddl_heap_release(ddl_heap *heap, void *block);

/* Whether all of it lies where others reach it, and at which offset. Holder of the baton. */
bool ddl_heap_find(const ddl_heap *heap, const void *data, size_t bytes, size_t *offset);

/* From now on nobody else reaches these whole pages of the heap, and they are not found. What they had been
 * told stays as it is. Where the system has no memory for that there is a warning, and others that come too
 * late may still write there. Holder of the baton. */
void ddl_heap_withdraw(ddl_heap *heap, void *pages, size_t bytes);

/* Blocks that were not released end with it. NULL is fine. */
void ddl_heap_destroy(ddl_heap *heap);

#endif
