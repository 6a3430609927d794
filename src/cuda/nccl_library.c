/* nccl_library.c - libnccl.so.2, by the dynamic loader. */
#include "cuda/nccl_library.h"

#include <dlfcn.h>
#include <string.h>

static nccl_library found; /* of the process, as its libraries are; valid if is_found */
static bool is_found;

static const char name[] = "libnccl.so.2";

static ddl_status find_function(void *library, const char *function, void *place, ddl_error *err)
{
    void *symbol = dlsym(library, function);
    if (symbol == NULL)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "NCCL, %s, has no %s; it must be " NCCL_OLDEST_TEXT " or later", name, function);
    memcpy(place, &symbol, sizeof symbol); /* POSIX has it so: an object pointer that is one to a function */
    return DDL_OK;
}

ddl_status ddl_nccl_find(const nccl_library **out, ddl_error *err)
{
    if (!is_found) {
        void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
        if (library == NULL)
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            return DDL_FAIL(err, DDL_EUNSUPPORTED,
                            "NCCL is not loaded, and not where the system looks: %.300s", dlerror());
#define FIND(function, result, arguments) DDL_TRY(find_function(library, #function, &found.function, err));
        DDL_NCCL_FUNCTIONS(FIND)
#undef FIND
        if (found.ncclGetVersion(&found.version) != NCCL_SUCCESS || found.version < NCCL_OLDEST)
            return DDL_FAIL(err, DDL_EUNSUPPORTED,
                            "NCCL has version %d; it must be " NCCL_OLDEST_TEXT " or later", found.version);
        is_found = true;
    }
    *out = &found;
    return DDL_OK;
}
