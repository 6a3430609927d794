/*
 * loaded_linux.c - by the dynamic loader's own count of what it has loaded, which only grows.
 *
 * Nothing here waits for a library's constructors, and nothing is kept from being unloaded, but for the
 * library that was asked for once it is there.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "io/loaded.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ANYTHING UINT64_MAX /* is news */

static _Atomic(uint64_t) known = ANYTHING;

/* ---- news ---- */

static int take_count(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes;
    *(uint64_t *)arg = info->dlpi_adds;
    return 1; /* the first one tells */
}

uint64_t ddl_loaded_count(void)
{
    uint64_t count = ANYTHING;
    (void)dl_iterate_phdr(take_count, &count);
    return count;
}

bool ddl_loaded_is_news(void)
{
    uint64_t before = atomic_load_explicit(&known, memory_order_relaxed);
    return before == ANYTHING || ddl_loaded_count() != before;
}

bool ddl_loaded_may_be_there(void)
{
    return atomic_load_explicit(&known, memory_order_relaxed) == ANYTHING;
}

void ddl_loaded_remember(uint64_t count)
{
    atomic_store(&known, count);
}

void ddl_loaded_forget(void)
{
    atomic_store(&known, ANYTHING);
}

/* ---- by name ---- */

typedef struct search {
    const char *stem;
    size_t bytes;
    bool found;
} search;

static int look_at_name(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    search *wanted = arg;
    (void)bytes;
    const char *slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    wanted->found = name != NULL && strncmp(name, wanted->stem, wanted->bytes) == 0;
    return wanted->found;
}

/* The loader is asked only if there is a file of such a name: it may be busy for long. */
void *ddl_loaded_find(const char *name)
{
    const char *so = strstr(name, ".so"); /* "libcuda.so.1" may be there as libcuda.so, or libcuda.so.580.1 */
    search wanted = { name, so != NULL ? (size_t)(so - name) + 3 : strlen(name), false };
    (void)dl_iterate_phdr(look_at_name, &wanted);
    return wanted.found ? dlopen(name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

void ddl_loaded_own_folder(char *folder, unsigned capacity)
{
    Dl_info own;
    const char *slash = dladdr(&known, &own) != 0 ? strrchr(own.dli_fname, '/') : NULL;
    if (capacity > 0)
        folder[0] = '\0';
    if (slash != NULL && (size_t)(slash - own.dli_fname) + 1 < capacity)
        snprintf(folder, capacity, "%.*s", (int)(slash - own.dli_fname) + 1, own.dli_fname);
}
