/* processor.c - asks the processor, and the compiler's runtime, which has asked it before. */
#include "base/processor.h"

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <stdatomic.h>

bool ddl_processor_is_intel_server(void)
{
    return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
}

/* Stepping, model and family, with the parts that came later; never 0. */
static unsigned signature(void)
{
    /* As a virtual machine takes long to answer. Pairs with nothing: all store the same. */
    static atomic_uint known;
    unsigned answer = atomic_load_explicit(&known, memory_order_relaxed), b, c, d;
    if (answer != 0)
        return answer;
    if (__get_cpuid(1, &answer, &b, &c, &d) == 0 || answer == 0)
        answer = 1; /* of family 0, of which there is none */
    atomic_store_explicit(&known, answer, memory_order_relaxed);
    return answer;
}

static unsigned family(void)
{
    return (signature() >> 8 & 0xf) + (signature() >> 20 & 0xff);
}

static unsigned model(void)
{
    return (signature() >> 4 & 0xf) + (signature() >> 12 & 0xf0);
}

/* Not all compilers know the newer ones by name. */
bool ddl_processor_is_amd_25(void)
{
    return __builtin_cpu_is("amd") && family() == 25;
}

bool ddl_processor_is_amd_26(void)
{
    return __builtin_cpu_is("amd") && family() == 26;
}

bool ddl_processor_is_epyc_3(void)
{
    return ddl_processor_is_amd_25() && model() < 16;
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

bool ddl_processor_is_amd_26(void)
{
    return false;
}

bool ddl_processor_is_epyc_3(void)
{
    return false;
}

#endif
