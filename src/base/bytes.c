/* bytes.c - allocation and byte buffers. */
#include "base/bytes.h"

#include "base/failpoint.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef MAP_NORESERVE
enum { NORESERVE = MAP_NORESERVE };
#else
enum { NORESERVE = 0 };
#endif

/* What each thread keeps of little that was freed glibc's calloc does not look at before version 2.41. Where
 * this is inlined with a constant size compilers make a calloc of it again (noinline). */
enum { LITTLE_BYTES = 1024 };

__attribute__((noinline)) void *ddl_alloc(size_t bytes)
{
    if (DDL_FAILPOINT("base.alloc"))
        return NULL;
    if (bytes > LITTLE_BYTES)
        return calloc(1, bytes);
    void *memory = malloc(bytes > 0 ? bytes : 1);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

void *ddl_alloc_array(size_t count, size_t element_bytes)
{
    size_t bytes;
    return ddl_size_mul(count, element_bytes, &bytes) ? ddl_alloc(bytes) : NULL;
}

void ddl_free(void *memory)
{
    free(memory);
}

void *ddl_pages_alloc(size_t bytes)
{
    if (DDL_FAILPOINT("base.alloc"))
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_NOHUGEPAGE
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE); /* a touch is of a page */
#endif
    return memory;
}

void ddl_pages_free(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

void ddl_clear(void *memory, size_t bytes)
{
    /* Which function this calls is not known before it runs. */
    static void *(*const volatile set)(void *, int, size_t) = memset;
    if (bytes > 0)
        set(memory, 0, bytes);
}

char *ddl_text_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ddl_alloc(bytes);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

bool ddl_bytes_append(ddl_bytes *bytes, const void *data, size_t count)
{
    size_t needed;
    if (!ddl_size_add(bytes->bytes, count, &needed))
        return false;
    if (needed > bytes->capacity) {
        size_t capacity = ddl_size_max(needed, bytes->capacity < SIZE_MAX / 2 ? 2 * bytes->capacity : needed);
        uint8_t *grown = DDL_FAILPOINT("base.realloc") ? NULL : realloc(bytes->data, capacity);
        if (grown == NULL)
            return false;
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (count > 0)
        memcpy(bytes->data + bytes->bytes, data, count);
    bytes->bytes = needed;
    return true;
}

void ddl_bytes_fini(ddl_bytes *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}
