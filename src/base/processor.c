/* processor.c - asks the processor, once. */
#include "base/processor.h"

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <stdatomic.h>

bool ddl_processor_is_intel_server(void)
{
    return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
}

/* Not all compilers know the newer ones by name. */
static unsigned family(void)
{
    unsigned signature, b, c, d;
    if (__get_cpuid(1, &signature, &b, &c, &d) == 0)
        return 0;
    return (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
}

bool ddl_processor_is_amd_25(void)
{
    static atomic_uint known; /* a virtual machine takes long to answer */
    unsigned answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        answer = family();
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return __builtin_cpu_is("amd") && answer == 25;
}

#else

bool ddl_processor_is_intel_server(void)
{
    return false;
}

bool ddl_processor_is_amd_25(void)
{
    return false;
}

#endif
