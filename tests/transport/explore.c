/*
 * explore.c - every interleaving of some processes, of which interleavings.py tells the steps.
 *
 *     explore MEMORY PROCESSES MOST_STATES PROMPT
 *
 * MEMORY: x86 (explore_in_order.c) or C11 (explore_of_views.c).
 *
 * Whenever it does not know what a process does after a step, it says "after PROCESS STEP FOUND" and reads
 * the number of the step that follows, of this process; if that was not told before, KIND ORDER VARIABLE
 * VALUE N and N variables with their values that are expected stand behind. At the end it says "lost", why,
 * and where everybody is if there is a state in which nobody can go on though not all have ended, in which
 * somebody has not found what he expected, or in which plain accesses race; "none" and the number of states
 * if there is none; and "more" if there are more of them than MOST_STATES. PROMPT, of x86: a store is visible
 * before other processes have made so many more of their own; 0: whenever.
 */
#include "explore.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = UINT16_MAX };

static struct {
    struct step **steps; /* each stays where it is */
    int nsteps;
} programs[PROCESSES];
static int nprocesses;

void explore_fail(const char *why)
{
    fprintf(stderr, "explore: %s\n", why);
    exit(2);
}

static void *claim(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL)
        explore_fail("no memory");
    return memory;
}

static void *claim_again(void *memory, size_t count, size_t bytes)
{
    memory = realloc(memory, count * bytes);
    if (memory == NULL)
        explore_fail("no memory");
    return memory;
}

/* ---- programs ---- */

static int number_below(int limit, const char *why)
{
    int value;
    if (scanf("%d", &value) != 1)
        explore_fail("nothing more is told");
    if (value < 0 || value >= limit)
        explore_fail(why);
    return value;
}

static int variable(void)
{
    return number_below(VARIABLES, "too many variables");
}

static int value(void)
{
    return number_below(VALUES, "too large a value");
}

static void learn_step(int p)
{
    struct step *step = claim(1, sizeof *step);
    programs[p].steps = claim_again(programs[p].steps, (size_t)programs[p].nsteps + 1, sizeof(struct step *));
    programs[p].steps[programs[p].nsteps++] = step;
    step->kind = (enum kind)number_below(CHOOSE + 1, "no such step");
    step->order = (enum order)number_below(SEQ_CST + 1, "no such order");
    step->variable = variable();
    step->value = value();
    step->nexpected = number_below(VARIABLES + 1, "too much is expected");
    for (int e = 0; e < step->nexpected; e++) {
        step->expected[e][0] = (uint8_t)variable();
        step->expected[e][1] = (uint8_t)value();
    }
    for (int v = 0; v < VALUES; v++)
        step->next[v] = UNKNOWN;
}

const struct step *explore_step(int process, uint16_t at)
{
    return programs[process].steps[at];
}

uint16_t explore_after(int process, uint16_t at, uint8_t found)
{
    uint16_t *next = &programs[process].steps[at]->next[found];
    if (*next != UNKNOWN)
        return *next;
    printf("after %d %d %d\n", process, at, found);
    fflush(stdout);
    *next = (uint16_t)number_below(UNKNOWN, "too many steps");
    if (*next == programs[process].nsteps)
        learn_step(process);
    return *next;
}

/* ---- what was seen ---- */

/* States lie behind their lengths in blocks that stay where they are; a place is the number of a block and
 * where in it. Slots have places, from 1, and bits of a hash, so that few others are compared. Blocks are
 * small, as most searches need little, and who runs them may have malloc fill all that it gives. */
enum { BLOCK_BITS = 18, BLOCK_BYTES = 1 << BLOCK_BITS, PLACE_BITS = 40 };

static uint8_t **blocks;
static size_t nblocks, block_used = BLOCK_BYTES;
static uint64_t *slots;
static size_t nseen, nslots = 1 << 16;
static uint64_t *stack; /* places of states that were not expanded */
static size_t nstack, stack_room;

static uint64_t mixed(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const uint8_t *state, size_t bytes)
{
    uint64_t hash = mixed(UINT64_C(0x243f6a8885a308d3), bytes), word;
    for (; bytes >= sizeof word; bytes -= sizeof word, state += sizeof word) {
        memcpy(&word, state, sizeof word);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, state, bytes);
    hash = mixed(hash, word);
    return mixed(hash, hash >> 32);
}

static const uint8_t *state_at(uint64_t place, size_t *bytes)
{
    const uint8_t *at = blocks[(place - 1) >> BLOCK_BITS] + ((place - 1) & (BLOCK_BYTES - 1));
    uint16_t length;
    memcpy(&length, at, sizeof length);
    *bytes = length;
    return at + sizeof length;
}

static uint64_t keep(const uint8_t *state, size_t bytes)
{
    const uint16_t length = (uint16_t)bytes;
    if (block_used + sizeof length + bytes > BLOCK_BYTES) {
        blocks = claim_again(blocks, nblocks + 1, sizeof *blocks);
        blocks[nblocks++] = claim_again(NULL, 1, BLOCK_BYTES);
        block_used = 0;
    }
    uint8_t *at = blocks[nblocks - 1] + block_used;
    uint64_t place = ((uint64_t)(nblocks - 1) << BLOCK_BITS) + block_used + 1;
    memcpy(at, &length, sizeof length);
    memcpy(at + sizeof length, state, bytes);
    block_used += sizeof length + bytes;
    return place;
}

/* The slot of a state, or the empty one where it belongs. */
static uint64_t *slot_of(const uint8_t *state, size_t bytes, uint64_t hash)
{
    for (size_t i = (size_t)hash & (nslots - 1);; i = (i + 1) & (nslots - 1)) {
        if (slots[i] == 0)
            return &slots[i];
        if (slots[i] >> PLACE_BITS != hash >> PLACE_BITS)
            continue;
        size_t other_bytes;
        const uint8_t *other = state_at(slots[i] & (((uint64_t)1 << PLACE_BITS) - 1), &other_bytes);
        if (other_bytes == bytes && memcmp(other, state, bytes) == 0)
            return &slots[i];
    }
}

static void double_slots(void)
{
    uint64_t *old = slots;
    size_t nold = nslots;
    nslots *= 2;
    slots = claim(nslots, sizeof *slots);
    for (size_t i = 0; i < nold; i++) {
        size_t bytes;
        if (old[i] == 0)
            continue;
        const uint8_t *state = state_at(old[i] & (((uint64_t)1 << PLACE_BITS) - 1), &bytes);
        *slot_of(state, bytes, hash_of(state, bytes)) = old[i];
    }
    free(old);
}

void explore_reach(const uint8_t *state, size_t bytes)
{
    if (bytes > STATE_BYTES)
        explore_fail("too large a state");
    const uint64_t hash = hash_of(state, bytes);
    uint64_t *slot = slot_of(state, bytes, hash);
    if (*slot != 0)
        return;
    const uint64_t place = keep(state, bytes);
    *slot = hash >> PLACE_BITS << PLACE_BITS | place;
    if (2 * ++nseen >= nslots)
        double_slots();
    if (nstack == stack_room) {
        stack_room = stack_room == 0 ? 1024 : 2 * stack_room;
        stack = claim_again(stack, stack_room, sizeof *stack);
    }
    stack[nstack++] = place;
}

static bool begins_again;

void explore_begin_again(void)
{
    begins_again = true;
}

static void forget_states(void)
{
    begins_again = false;
    memset(slots, 0, nslots * sizeof *slots);
    nseen = nstack = 0;
    while (nblocks > 0)
        free(blocks[--nblocks]);
    block_used = BLOCK_BYTES;
}

void explore_lose(const char *why, const uint16_t at[])
{
    printf("lost: %s; %zu states; steps", why, nseen);
    for (int p = 0; p < nprocesses; p++)
        printf(" %d", at[p]);
    printf("\n");
    exit(0);
}

int main(int argc, char **argv)
{
    const struct memory *const memories[] = { &explore_in_order, &explore_of_views }, *memory = NULL;
    for (int m = 0; m < 2 && argc == 5; m++)
        if (strcmp(argv[1], memories[m]->name) == 0)
            memory = memories[m];
    if (memory == NULL || (nprocesses = atoi(argv[2])) < 1 || nprocesses > PROCESSES)
        explore_fail("usage: explore x86|C11 PROCESSES MOST_STATES PROMPT");
    const size_t most = (size_t)strtoull(argv[3], NULL, 10);
    for (int p = 0; p < nprocesses; p++)
        learn_step(p);
    slots = claim(nslots, sizeof *slots);
    do {
        forget_states();
        memory->begin(nprocesses, atoi(argv[4]));
        while (nstack > 0 && !begins_again) {
            size_t bytes;
            const uint8_t *state = state_at(stack[--nstack], &bytes);
            memory->expand(state, bytes);
            if (nseen > most) {
                printf("more than %zu states\n", most);
                return 0;
            }
        }
    } while (begins_again);
    printf("none in %zu states\n", nseen);
    return 0;
}
