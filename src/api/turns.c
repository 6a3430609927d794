/* turns.c - a number for each GPU. */
#include "api/turns.h"

#include "api/comm.h"

#include <stdatomic.h>

/* Of the process, as communicators of all worlds share GPUs: who has each; 0: nobody. */
static _Atomic uint64_t holders[DDL_COMM_GPUS];
static _Atomic uint64_t nasked;

uint64_t ddl_turn_number(void)
{
    return atomic_fetch_add(&nasked, 1) + 1;
}

bool ddl_turn_take(int gpu, uint64_t number)
{
    uint64_t nobody = 0;
    return atomic_compare_exchange_strong(&holders[gpu], &nobody, number);
}

void ddl_turn_give(int gpu)
{
    atomic_store(&holders[gpu], 0);
}
