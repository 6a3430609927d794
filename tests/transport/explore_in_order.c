/*
 * explore_in_order.c - the memory of x86: each process has a store buffer, from which its stores become
 * visible later, in order. Of memory orders only a fence that is seq_cst does anything.
 *
 * Where a step changes nothing that others could see, and nothing of theirs changes it, every order of it and
 * their steps leads to the same states: it is made at once. That is so for a store, which goes into the own
 * buffer, for a fence behind an empty one, and for one that does nothing. A choice is so too; if there is
 * one, its ways are all that is done in a state.
 */
#include "explore.h"

#include <stdbool.h>
#include <string.h>

enum { BUFFER = 24 };

struct store {
    uint8_t variable, value, age;
};

struct state {
    uint16_t at[PROCESSES];
    uint8_t memory[VARIABLES];
    uint8_t nbuffered[PROCESSES];
    struct store buffer[PROCESSES][BUFFER];
};

static int nprocesses, prompt;

static const struct step *step_of(const struct state *s, int p)
{
    return explore_step(p, s->at[p]);
}

static void go_on(struct state *s, int p, uint8_t found)
{
    s->at[p] = explore_after(p, s->at[p], found);
}

/* ---- as bytes ---- */

/* Variables that are 0 at the end are left out: there may be more of them than are known yet. */
static size_t pack(const struct state *s, uint8_t *bytes)
{
    uint8_t *to = bytes;
    for (int p = 0; p < nprocesses; p++) {
        memcpy(to, &s->at[p], sizeof s->at[p]);
        to += sizeof s->at[p];
        *to++ = s->nbuffered[p];
        for (int i = 0; i < s->nbuffered[p]; i++) {
            *to++ = s->buffer[p][i].variable;
            *to++ = s->buffer[p][i].value;
            if (prompt > 0)
                *to++ = s->buffer[p][i].age;
        }
    }
    int count = VARIABLES;
    while (count > 0 && s->memory[count - 1] == 0)
        count--;
    memcpy(to, s->memory, (size_t)count);
    return (size_t)(to - bytes) + (size_t)count;
}

static void unpack(struct state *s, const uint8_t *bytes, size_t nbytes)
{
    const uint8_t *from = bytes;
    memset(s, 0, sizeof *s);
    for (int p = 0; p < nprocesses; p++) {
        memcpy(&s->at[p], from, sizeof s->at[p]);
        from += sizeof s->at[p];
        s->nbuffered[p] = *from++;
        for (int i = 0; i < s->nbuffered[p]; i++) {
            s->buffer[p][i].variable = *from++;
            s->buffer[p][i].value = *from++;
            s->buffer[p][i].age = prompt > 0 ? *from++ : 0;
        }
    }
    memcpy(s->memory, from, nbytes - (size_t)(from - bytes));
}

/* ---- steps ---- */

/* False: prompt forbids it, an older store has to become visible first. */
static bool store(struct state *s, int p)
{
    const struct step *step = step_of(s, p);
    if (s->nbuffered[p] == BUFFER)
        explore_fail("a buffer is too small");
    for (int other = 0; other < nprocesses && prompt > 0; other++)
        for (int i = 0; i < s->nbuffered[other] && other != p; i++)
            if (++s->buffer[other][i].age >= prompt)
                return false;
    s->buffer[p][s->nbuffered[p]++] = (struct store){ (uint8_t)step->variable, (uint8_t)step->value, 0 };
    go_on(s, p, 0);
    return true;
}

static bool may_pass_fence(const struct state *s, int p)
{
    return step_of(s, p)->order != SEQ_CST || s->nbuffered[p] == 0;
}

/* What concerns nobody else. */
static void make_private_steps(struct state *s)
{
    for (int p = 0; p < nprocesses && prompt == 0; p++)
        for (;;) {
            const struct step *step = step_of(s, p);
            if (step->kind == STORE)
                store(s, p);
            else if (step->kind == FENCE && may_pass_fence(s, p))
                go_on(s, p, 0);
            else
                break;
        }
}

static void reach(struct state *s)
{
    uint8_t bytes[sizeof *s + 1];
    make_private_steps(s);
    explore_reach(bytes, pack(s, bytes));
}

/* The oldest store of a process becomes visible. */
static void drain(const struct state *from, int p)
{
    struct state s = *from;
    s.memory[s.buffer[p][0].variable] = s.buffer[p][0].value;
    s.nbuffered[p]--;
    memmove(s.buffer[p], s.buffer[p] + 1, s.nbuffered[p] * sizeof s.buffer[p][0]);
    reach(&s);
}

/* What a process finds in a variable: its own newest store, or what is in memory. */
static uint8_t look(const struct state *s, int p, int variable)
{
    uint8_t found = s->memory[variable];
    for (int i = 0; i < s->nbuffered[p]; i++)
        if (s->buffer[p][i].variable == variable)
            found = s->buffer[p][i].value;
    return found;
}

/* The next step of a process. False: it cannot be made now. */
static bool advance(const struct state *from, int p)
{
    const struct step *step = step_of(from, p);
    struct state s = *from;
    uint8_t *variable = &s.memory[step->variable];
    uint8_t found = *variable;
    bool is_empty = s.nbuffered[p] == 0;
    switch (step->kind) {
    case END:
    case CHOOSE:
        return false;
    case LOAD:
        go_on(&s, p, look(&s, p, step->variable));
        break;
    case STORE:
        if (!store(&s, p))
            return false;
        break;
    case SWAP:
        if (!is_empty)
            return false;
        *variable = (uint8_t)step->value;
        go_on(&s, p, found);
        break;
    case FENCE:
        if (!may_pass_fence(&s, p))
            return false;
        go_on(&s, p, 0);
        break;
    case AWAIT:
        if (!is_empty || found == 0)
            return false;
        *variable = 0;
        go_on(&s, p, 0);
        break;
    case UNTIL:
        found = look(&s, p, step->variable);
        if (step->value != 0 ? found != step->value : found == 0)
            return false;
        go_on(&s, p, found);
        break;
    case EXPECT:
        for (int e = 0; e < step->nexpected; e++)
            if (look(&s, p, step->expected[e][0]) != step->expected[e][1])
                explore_lose("what was expected is not there", s.at);
        go_on(&s, p, 0);
        break;
    }
    reach(&s);
    return true;
}

static void choose_every_way(const struct state *from, int p)
{
    for (int way = 0; way < step_of(from, p)->value; way++) {
        struct state s = *from;
        go_on(&s, p, (uint8_t)way);
        reach(&s);
    }
}

static void expand(const uint8_t *bytes, size_t nbytes)
{
    struct state s;
    bool went_on = false, have_ended = true;
    unpack(&s, bytes, nbytes);
    for (int p = 0; p < nprocesses; p++)
        if (step_of(&s, p)->kind == CHOOSE) {
            choose_every_way(&s, p);
            return;
        }
    for (int p = 0; p < nprocesses; p++) {
        if (s.nbuffered[p] > 0) {
            drain(&s, p);
            went_on = true;
        }
        have_ended = have_ended && step_of(&s, p)->kind == END;
        went_on = advance(&s, p) || went_on;
    }
    if (!went_on && !have_ended)
        explore_lose("nobody can go on", s.at);
}

static void begin(int count, int how_prompt)
{
    struct state s;
    memset(&s, 0, sizeof s);
    nprocesses = count;
    prompt = how_prompt;
    reach(&s);
}

const struct memory explore_in_order = { "x86", begin, expand };
