/* random.h - random numbers that are the same on every machine and on any number of processes. */
#ifndef TRAIN_DIGITS_RANDOM_H
#define TRAIN_DIGITS_RANDOM_H

#include <stdint.h>

/* The next of the numbers that follow from the first state. */
uint64_t next_random(uint64_t *state);

/* The order in which an epoch visits count samples; depends on nothing but its arguments. */
void shuffle(int order[], int count, int64_t seed, int64_t epoch);

#endif
