/* guarded.c - pages of their own, with what advice the system takes. */
#include "io/guarded.h"

#include "base/bytes.h"
#include "base/failpoint.h"

#include <errno.h>
#include <sys/mman.h>

void *ddl_guarded_alloc(size_t bytes)
{
    void *memory = DDL_FAILPOINT_OS("io.guarded", ENOMEM)
                       ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#if defined(MADV_DONTDUMP)
    (void)madvise(memory, bytes, MADV_DONTDUMP);
#elif defined(MADV_NOCORE)
    (void)madvise(memory, bytes, MADV_NOCORE);
#endif
    (void)mlock(memory, bytes); /* not allowed to everyone, and then not needed */
    return memory;
}

void ddl_guarded_free(void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    ddl_clear(memory, bytes);
    munmap(memory, bytes);
}

void ddl_guarded_forget_in_child(void *memory, size_t bytes)
{
#if defined(MADV_WIPEONFORK)
    (void)madvise(memory, bytes, MADV_WIPEONFORK);
#else
    (void)memory, (void)bytes;
#endif
}
