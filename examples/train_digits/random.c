/* random.c - SplitMix64 (Steele, Lea and Flood, 2014), and a shuffle by it. */
#include "random.h"

uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void shuffle(int order[], int count, int64_t seed, int64_t epoch)
{
    uint64_t state = (uint64_t)seed;
    state = next_random(&state) + (uint64_t)epoch;
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(next_random(&state) % (uint64_t)(i + 1));
        int other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}
