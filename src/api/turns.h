/*
 * turns.h - which communicator's calls go to each GPU of this process.
 *
 * Calls that GPUs perform among themselves could wait for each other for ever where those of two
 * communicators begin on one GPU; so one at a time has the GPU, and nobody waits for that. Thread: any.
 */
#ifndef DDL_API_TURNS_H
#define DDL_API_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/* By which a communicator asks; no other one has it, now or later. */
uint64_t ddl_turn_number(void);

/* False: another communicator has the GPU. gpu: below DDL_COMM_GPUS. */
bool ddl_turn_take(int gpu, uint64_t number);

/* Of who has it. */
void ddl_turn_give(int gpu);

#endif
