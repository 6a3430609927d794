/*
 * floating.h - arithmetic that does not depend on who calls: to the nearest, with subnormals, without traps.
 *
 * A thread may have asked for something else, as torch.set_flush_denormal does, or a library that was linked
 * with -ffast-math. What the library computes in such a thread would differ from what it computes in its own,
 * and from what other ranks do. A compiler may move arithmetic past both calls, so what is between them is a
 * function that is not inlined.
 * Thread: any; enter and leave in the same one.
 */
#ifndef DDL_BASE_FLOATING_H
#define DDL_BASE_FLOATING_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

/* Of the control word: how to round, whether to flush, what does not trap. The rest tells what has happened.
 */
enum { DDL_FLOATING_CONTROL = 0xffc0, DDL_FLOATING_DEFAULT = 0x1f80 };

typedef struct ddl_floating {
    uint32_t control;
    bool is_changed;
} ddl_floating;

static inline ddl_floating ddl_floating_enter(void)
{
    const uint32_t control = _mm_getcsr();
    const bool is_changed = (control & DDL_FLOATING_CONTROL) != DDL_FLOATING_DEFAULT;
    if (is_changed)
        _mm_setcsr(DDL_FLOATING_DEFAULT);
    return (ddl_floating){ control, is_changed };
}

static inline void ddl_floating_leave(ddl_floating before)
{
    if (before.is_changed)
        _mm_setcsr(before.control);
}

#elif defined(__aarch64__)

typedef struct ddl_floating {
    uint64_t control;
} ddl_floating;

static inline ddl_floating ddl_floating_enter(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    if (control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return (ddl_floating){ control };
}

static inline void ddl_floating_leave(ddl_floating before)
{
    if (before.control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(before.control) : "memory");
}

#else

#include <fenv.h>

typedef struct ddl_floating {
    fenv_t environment;
} ddl_floating;

static inline ddl_floating ddl_floating_enter(void)
{
    ddl_floating before;
    fegetenv(&before.environment);
    fesetenv(FE_DFL_ENV);
    return before;
}

static inline void ddl_floating_leave(ddl_floating before)
{
    fesetenv(&before.environment);
}

#endif

#endif
