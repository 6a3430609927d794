/*
 * explore.h - between the search through all interleavings (explore.c) and the memories in which they are
 * made.
 *
 * A memory knows what a state is and which states follow it. To the search a state is a string of bytes, and
 * two states are the same if their bytes are.
 */
#ifndef DDL_TESTS_EXPLORE_H
#define DDL_TESTS_EXPLORE_H

#include <stddef.h>
#include <stdint.h>

enum { PROCESSES = 4, VARIABLES = 64, VALUES = 64, STATE_BYTES = UINT16_MAX };

/* As interleavings.py has them, in this order. */
enum kind { END, LOAD, STORE, SWAP, FENCE, AWAIT, UNTIL, EXPECT, CHOOSE };
enum order { PLAIN, RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

struct step {
    enum kind kind;
    enum order order;
    int variable, value; /* of CHOOSE: how many ways there are */
    int nexpected;
    uint8_t expected[VARIABLES][2]; /* of EXPECT: variables and their values */
    uint16_t next[VALUES];          /* for each value that is found, or way; of other steps the first one */
};

/* Processes begin at step 0; all variables are 0 then. */
struct memory {
    const char *name; /* the argument that chooses it */
    /* Reach the first state. prompt: see explore.c. Called once more for each explore_begin_again. */
    void (*begin)(int nprocesses, int prompt);
    /* Reach every state that follows this one, or lose. */
    void (*expand)(const uint8_t *state, size_t bytes);
};

extern const struct memory explore_in_order, explore_of_views;

/* ---- for memories ---- */

const struct step *explore_step(int process, uint16_t at);

/* The step that follows one of a process that has found this there. */
uint16_t explore_after(int process, uint16_t at, uint8_t found);

/* Here is a state. */
void explore_reach(const uint8_t *state, size_t bytes);

/* What the memory took for granted of the programs is not so: forget all states, and begin again once this
 * one is expanded. */
void explore_begin_again(void);

/* A mistake was found where the processes are at these steps: the search is over. */
_Noreturn void explore_lose(const char *why, const uint16_t at[]);

/* There is no answer. */
_Noreturn void explore_fail(const char *why);

#endif
