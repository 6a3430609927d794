/* loaded_posix.c - where no library of interest is ever loaded. */
#include "io/loaded.h"

#include <stddef.h>

uint64_t ddl_loaded_count(void)
{
    return 0;
}

bool ddl_loaded_is_news(void)
{
    return false;
}

bool ddl_loaded_may_be_there(void)
{
    return false;
}

void ddl_loaded_remember(uint64_t count)
{
    (void)count;
}

void ddl_loaded_forget(void)
{
}

void *ddl_loaded_find(const char *name)
{
    (void)name;
    return NULL;
}

void ddl_loaded_own_folder(char *folder, unsigned capacity)
{
    if (capacity > 0)
        folder[0] = '\0';
}
