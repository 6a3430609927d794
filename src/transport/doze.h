/*
 * doze.h - how ranks that share memory fall asleep and wake each other, so that no wake-up is lost: a word in
 * the memory of each, which says that it sleeps.
 *
 *     who is about to sleep             who has told something
 *     1  ddl_doze_begin: says so        1  has published it
 *     2  ddl_doze_look_again            2  ddl_doze_told
 *     3  looks once more, and sleeps    3  ddl_doze_take: looks at the word; who takes it back
 *        only if there is nothing          has to ring the sleeper's bell
 *
 * Both sides store first and load then. Every processor, x86 too, may load before its own earlier store is
 * visible to others: without one of the two fences each could look before it can be seen what the other has
 * stored, so that one sleeps and the other does not ring. With both, whichever fence comes second has all
 * that was stored before the first one: either the sleeper sees what was told, or the teller sees the sleep.
 *
 * Thread: any, processes too.
 */
#ifndef DDL_TRANSPORT_DOZE_H
#define DDL_TRANSPORT_DOZE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ddl_doze { /* all zero: awake */
    _Atomic(uint32_t) is_asleep;
} ddl_doze;

/* Sleeper: what it wishes beside that, as room in a lane, it says after this: a teller that took a wish from
 * one that did not sleep yet would wake nobody, and the wish would be gone. */
static inline void ddl_doze_begin(ddl_doze *own)
{
    atomic_store_explicit(&own->is_asleep, 1, memory_order_relaxed);
}

/* Sleeper, between all that it says and the last look. */
static inline void ddl_doze_look_again(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Sleeper: awake, whoever woke it. */
static inline void ddl_doze_end(ddl_doze *own)
{
    atomic_store_explicit(&own->is_asleep, 0, memory_order_relaxed);
}

/* Teller, between what it has published, for however many, and the looks whether they sleep or wish for
 * something. */
static inline void ddl_doze_told(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Teller: whether the other one sleeps. */
static inline bool ddl_doze_sees(const ddl_doze *other)
{
    return atomic_load_explicit(&other->is_asleep, memory_order_relaxed) != 0;
}

/* Teller: the same, and it is for this one to ring. Of many who tell something at once one rings. */
static inline bool ddl_doze_take(ddl_doze *other)
{
    return ddl_doze_sees(other) && atomic_exchange_explicit(&other->is_asleep, 0, memory_order_relaxed) != 0;
}

#endif
