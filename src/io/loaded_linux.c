/*
 * loaded_linux.c - by the dynamic loader's own list of objects, which grows at its end.
 *
 * Whoever holds a pointer that came from a library has seen the loader append that library: so a plain look
 * at whether the last object known still is the last needs no lock. That object is kept from being unloaded,
 * or the look would be at memory that is somebody else's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "io/loaded.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 8, NAME_BYTES = 4096 };

/* After which there is always something. */
static struct link_map anything = { .l_next = &anything };
static _Atomic(const struct link_map *) last = &anything;

bool ddl_loaded_is_news(void)
{
    return atomic_load_explicit(&last, memory_order_relaxed)->l_next != NULL;
}

typedef struct end { /* of the loader's list */
    const struct link_map *first, *object;
    char name[NAME_BYTES];
} end;

/* The list does not change while the loader calls this. */
static int find_end(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)info;
    (void)bytes;
    end *found = arg;
    found->object = found->first;
    while (found->object->l_next != NULL)
        found->object = found->object->l_next;
    snprintf(found->name, sizeof found->name, "%s", found->object->l_name);
    return 1;
}

static const struct link_map *object_of(void *handle)
{
    struct link_map *object = NULL;
    return handle != NULL && dlinfo(handle, RTLD_DI_LINKMAP, &object) == 0 ? object : NULL;
}

/* Keeps the last object loaded for good. NULL: it was gone before that. */
static const struct link_map *keep_end(const struct link_map *first)
{
    end found = { .first = first };
    dl_iterate_phdr(find_end, &found);
    void *handle = dlopen(found.name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    const struct link_map *kept = object_of(handle);
    if (handle != NULL)
        dlclose(handle);
    return kept == found.object ? kept : NULL;
}

void ddl_loaded_remember(void)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    const struct link_map *first = object_of(program), *kept = NULL;
    for (int i = 0; first != NULL && kept == NULL && i < TRIES; i++)
        kept = keep_end(first);
    if (program != NULL)
        dlclose(program);
    atomic_store(&last, kept != NULL ? kept : &anything);
}

void ddl_loaded_forget(void)
{
    atomic_store(&last, &anything);
}

void *ddl_loaded_find(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

void ddl_loaded_own_folder(char *folder, unsigned capacity)
{
    Dl_info info;
    folder[0] = '\0';
    if (dladdr((const void *)&last, &info) == 0 || info.dli_fname == NULL)
        return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash != NULL && (size_t)(slash - info.dli_fname) + 2 < capacity)
        snprintf(folder, (size_t)(slash - info.dli_fname) + 2, "%s", info.dli_fname);
}
