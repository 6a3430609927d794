/* processor.c - asks what the compiler's runtime has read of it, once. */
#include "base/processor.h"

bool ddl_processor_is_intel_server(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}
