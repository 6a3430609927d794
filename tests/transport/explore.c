/*
 * explore.c - every interleaving of some processes, of which interleavings.py tells the steps.
 *
 *     explore PROCESSES MOST_STATES PROMPT
 *
 * Whenever it does not know what a process does after a step, it says "after PROCESS STEP FOUND" and reads
 * the number of the step that follows, of this process; if that was not told before, KIND VARIABLE VALUE N
 * and N variables with their values that are expected stand behind. At the end it says "lost" and where
 * everybody is if there is a state in which nobody can go on though not all have ended, or in which somebody
 * has not found what he expected; "none" and the number of states if there is none; and "more" if there are
 * more of them than MOST_STATES. PROMPT: a store is visible before other processes have made so many more of
 * their own; 0: whenever.
 *
 * Of the states that were seen 64 bits of a hash are kept: of 10^8 states two are taken for one with a
 * probability below 1 in 3000.
 *
 * Where a step changes nothing that others could see, and nothing of theirs changes it, every order of it and
 * their steps leads to the same states: it is made at once. That is so for a store, which goes into the own
 * buffer, and for a fence behind an empty one.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES = 4, VARIABLES = 64, VALUES = 64, BUFFER = 24, UNKNOWN = UINT16_MAX };

enum kind { END, LOAD, STORE, SWAP, FENCE, AWAIT, UNTIL, EXPECT };

struct step {
    int kind, variable, value;
    int nexpected;
    uint8_t expected[VARIABLES][2]; /* of EXPECT: variables and their values */
    uint16_t next[VALUES];          /* for each value that is found; of other steps the first one */
};

static struct {
    struct step *steps;
    int nsteps;
} programs[PROCESSES];
static int nprocesses, prompt;

struct store {
    uint8_t variable, value, age;
};

struct state {
    uint16_t at[PROCESSES];
    uint8_t memory[VARIABLES];
    uint8_t nbuffered[PROCESSES];
    struct store buffer[PROCESSES][BUFFER];
};

static void fail(const char *why)
{
    fprintf(stderr, "explore: %s\n", why);
    exit(2);
}

static int number(void)
{
    int value;
    if (scanf("%d", &value) != 1)
        fail("nothing more is told");
    return value;
}

static void *claim(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL)
        fail("no memory");
    return memory;
}

static int number_below(int limit)
{
    int value = number();
    if (value < 0 || value >= limit)
        fail("too many steps, variables or values");
    return value;
}

static void learn_step(int p)
{
    programs[p].steps = realloc(programs[p].steps, (size_t)(programs[p].nsteps + 1) * sizeof(struct step));
    if (programs[p].steps == NULL)
        fail("no memory");
    struct step *step = &programs[p].steps[programs[p].nsteps++];
    step->kind = number();
    step->variable = number_below(VARIABLES);
    step->value = number_below(VALUES);
    step->nexpected = number_below(VARIABLES);
    for (int e = 0; e < step->nexpected; e++) {
        step->expected[e][0] = (uint8_t)number_below(VARIABLES);
        step->expected[e][1] = (uint8_t)number_below(VALUES);
    }
    for (int v = 0; v < VALUES; v++)
        step->next[v] = UNKNOWN;
}

/* The step that follows one of a process that has found this. */
static uint16_t after(int p, uint16_t at, uint8_t found)
{
    uint16_t next = programs[p].steps[at].next[found];
    if (next != UNKNOWN)
        return next;
    printf("after %d %d %d\n", p, at, found);
    fflush(stdout);
    next = (uint16_t)number_below(UNKNOWN);
    if (next == programs[p].nsteps)
        learn_step(p);
    programs[p].steps[at].next[found] = next;
    return next;
}

/* ---- what was seen ---- */

static uint64_t *seen;
static size_t nseen, seen_room = 1 << 16;

static uint64_t mixed(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Only what is in use: buffers have their lengths. */
static uint64_t hash_of(const struct state *s)
{
    uint64_t hash = UINT64_C(0x243f6a8885a308d3), word;
    for (int p = 0; p < nprocesses; p++) {
        hash = mixed(hash, (uint64_t)s->at[p] << 8 | s->nbuffered[p]);
        for (int i = 0; i < s->nbuffered[p]; i++) {
            const struct store *b = &s->buffer[p][i];
            hash = mixed(hash, (uint64_t)b->variable << 16 | (uint64_t)b->value << 8 | b->age);
        }
    }
    for (int i = 0; i < VARIABLES; i += 8) {
        memcpy(&word, s->memory + i, 8);
        hash = mixed(hash, word);
    }
    hash = mixed(hash, hash >> 32);
    return hash == 0 ? 1 : hash;
}

static bool put(uint64_t hash)
{
    size_t at = (size_t)hash & (seen_room - 1);
    while (seen[at] != 0 && seen[at] != hash)
        at = (at + 1) & (seen_room - 1);
    if (seen[at] == hash)
        return false;
    seen[at] = hash;
    return true;
}

static bool is_new(const struct state *s)
{
    if (2 * nseen >= seen_room) {
        uint64_t *old = seen;
        size_t old_room = seen_room;
        seen_room *= 2;
        seen = claim(seen_room, sizeof *seen);
        for (size_t i = 0; i < old_room; i++)
            if (old[i] != 0)
                put(old[i]);
        free(old);
    }
    bool added = put(hash_of(s));
    nseen += added ? 1 : 0;
    return added;
}

static struct state *stack;
static size_t nstack, stack_room;

static void push(const struct state *s)
{
    if (nstack == stack_room) {
        stack_room = stack_room == 0 ? 1024 : 2 * stack_room;
        stack = realloc(stack, stack_room * sizeof *stack);
        if (stack == NULL)
            fail("no memory");
    }
    stack[nstack++] = *s;
}

/* ---- steps ---- */

static const struct step *step_of(const struct state *s, int p)
{
    return &programs[p].steps[s->at[p]];
}

/* False: prompt forbids it, an older store has to become visible first. */
static bool store(struct state *s, int p)
{
    const struct step *step = step_of(s, p);
    if (s->nbuffered[p] == BUFFER)
        fail("a buffer is too small");
    for (int other = 0; other < nprocesses && prompt > 0; other++)
        for (int i = 0; i < s->nbuffered[other] && other != p; i++)
            if (++s->buffer[other][i].age >= prompt)
                return false;
    s->buffer[p][s->nbuffered[p]++] = (struct store){ (uint8_t)step->variable, (uint8_t)step->value, 0 };
    s->at[p] = after(p, s->at[p], 0);
    return true;
}

/* What concerns nobody else. */
static void make_private_steps(struct state *s)
{
    for (int p = 0; p < nprocesses && prompt == 0; p++)
        for (;;) {
            const struct step *step = step_of(s, p);
            if (step->kind == STORE)
                store(s, p);
            else if (step->kind == FENCE && s->nbuffered[p] == 0)
                s->at[p] = after(p, s->at[p], 0);
            else
                break;
        }
}

static void note(struct state *s)
{
    make_private_steps(s);
    if (is_new(s))
        push(s);
}

/* The oldest store of a process becomes visible. */
static void drain(const struct state *from, int p)
{
    struct state s = *from;
    s.memory[s.buffer[p][0].variable] = s.buffer[p][0].value;
    s.nbuffered[p]--;
    memmove(s.buffer[p], s.buffer[p] + 1, s.nbuffered[p] * sizeof s.buffer[p][0]);
    note(&s);
}

/* The next step of a process. 1: made; 0: it cannot be made now; -1: what was expected is not there. */
static int advance(const struct state *from, int p)
{
    const struct step *step = step_of(from, p);
    struct state s = *from;
    uint8_t *variable = &s.memory[step->variable];
    uint8_t found = *variable;
    bool is_empty = s.nbuffered[p] == 0;
    switch (step->kind) {
    case LOAD:
        for (int i = 0; i < s.nbuffered[p]; i++)
            if (s.buffer[p][i].variable == step->variable)
                found = s.buffer[p][i].value;
        s.at[p] = after(p, s.at[p], found);
        break;
    case STORE:
        if (!store(&s, p))
            return 0;
        break;
    case SWAP:
        if (!is_empty)
            return 0;
        *variable = (uint8_t)step->value;
        s.at[p] = after(p, s.at[p], found);
        break;
    case FENCE:
        if (!is_empty)
            return 0;
        s.at[p] = after(p, s.at[p], 0);
        break;
    case AWAIT:
        if (!is_empty || found == 0)
            return 0;
        *variable = 0;
        s.at[p] = after(p, s.at[p], 0);
        break;
    case UNTIL:
        if (found != step->value)
            return 0;
        s.at[p] = after(p, s.at[p], 0);
        break;
    case EXPECT:
        for (int e = 0; e < step->nexpected; e++)
            if (s.memory[step->expected[e][0]] != step->expected[e][1])
                return -1;
        s.at[p] = after(p, s.at[p], 0);
        break;
    default:
        return 0;
    }
    note(&s);
    return 1;
}

static int say_lost(const struct state *s, const char *why)
{
    printf("lost: %s; steps", why);
    for (int p = 0; p < nprocesses; p++)
        printf(" %d", s->at[p]);
    printf("; memory");
    for (int i = 0; i < VARIABLES; i++)
        if (s->memory[i] != 0)
            printf(" %d=%d", i, s->memory[i]);
    printf("; %zu states\n", nseen);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4 || (nprocesses = atoi(argv[1])) > PROCESSES)
        fail("usage: explore PROCESSES MOST_STATES PROMPT");
    size_t most = (size_t)strtoull(argv[2], NULL, 10);
    prompt = atoi(argv[3]);
    for (int p = 0; p < nprocesses; p++)
        learn_step(p);
    seen = claim(seen_room, sizeof *seen);
    struct state s;
    memset(&s, 0, sizeof s);
    note(&s);
    while (nstack > 0) {
        s = stack[--nstack];
        bool went_on = false, have_ended = true;
        for (int p = 0; p < nprocesses; p++) {
            if (s.nbuffered[p] > 0) {
                drain(&s, p);
                went_on = true;
            }
            have_ended = have_ended && step_of(&s, p)->kind == END;
            int made = advance(&s, p);
            if (made < 0)
                return say_lost(&s, "what was expected is not there");
            went_on = went_on || made > 0;
        }
        if (!went_on && !have_ended)
            return say_lost(&s, "nobody can go on");
        if (nseen > most) {
            printf("more than %zu states\n", most);
            return 0;
        }
    }
    printf("none in %zu states\n", nseen);
    return 0;
}
