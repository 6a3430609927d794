/* loaded_posix.c - where no library of interest is ever loaded. */
#include "io/loaded.h"

#include <stddef.h>

bool ddl_loaded_is_news(void)
{
    return false;
}

void ddl_loaded_remember(void)
{
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
