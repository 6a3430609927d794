/* gpu_names.c - lists as in CUDA_VISIBLE_DEVICES. */
#include "gpus.h"

#include "base/assert.h"

#include <stdbool.h>
#include <string.h>

/* CUDA stops at the first name that is none: an empty one, or a negative number. */
static bool is_name(const char *at)
{
    return *at != '\0' && *at != ',' && *at != '-';
}

int launch_gpu_names(const char *list)
{
    int names = 0;
    for (const char *at = list; is_name(at); at += *at == ',') {
        names++;
        at += strcspn(at, ",");
    }
    return names;
}

const char *launch_gpu_name(const char *list, int place, size_t *bytes)
{
    DDL_ASSERT(place < launch_gpu_names(list));
    for (int i = 0; i < place; i++)
        list += strcspn(list, ",") + 1;
    *bytes = strcspn(list, ",");
    return list;
}
