/*
 * without_wait - a library to be preloaded: libddl-cuda does not find cuStreamWaitValue32 in any driver, so
 * that streams wait for its operations in functions of the host, as where a driver declines it.
 *
 * Tests themselves find it: drivers may run all functions of the host one after the other, and what waits
 * before an operation must not keep others waiting.
 */
#define _GNU_SOURCE /* dladdr, dlvsym */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void *dlsym(void *library, const char *name); /* as dlfcn.h has it, but for its attributes */

typedef void *find_function(void *library, const char *name);

static find_function *find_real(void)
{
    /* As it is called since glibc 2.34, and before on arm64 and x86_64. */
    static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5" };
    find_function *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof versions / sizeof *versions; i++) {
        void *symbol = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        memcpy(&found, &symbol, sizeof symbol);
    }
    if (found == NULL)
        abort();
    return found;
}

__attribute__((visibility("default"))) void *dlsym(void *library, const char *name)
{
    Dl_info caller;
    if (strcmp(name, "cuStreamWaitValue32_v2") == 0 && dladdr(__builtin_return_address(0), &caller) != 0 &&
        strstr(caller.dli_fname, "libddl-cuda") != NULL)
        return NULL;
    return find_real()(library, name);
}
