/*
 * explore_of_views.c - the memory of C11, as views of histories.
 *
 * After Kang, Hur, Lahav, Vafeiadis and Dreyer, "A promising semantics for relaxed-memory concurrency", POPL
 * 2017, without promises. Of each variable there is the history of its writes, called messages here, in
 * modification order; a process may read any that is not older than what its view has of the variable, and
 * may put its own anywhere behind that. Views go from one process to another with what is released and
 * acquired. What differs:
 *
 * - A process makes its steps one after the other. So no store is visible before a load ahead of it, which
 *   C11 allows and promises would show.
 * - What was released goes on with read-modify-writes only, as since C++20, and not with later relaxed stores
 *   of the same process, as in the paper. That allows more.
 * - A variable is either atomic or plain. Of a plain one there is only the last write. A view has, as a bit
 *   each, whether that write, and the last read since by each process, are not known to have come before; an
 *   access that conflicts with one of those is a race, which is a mistake. As C11 has it, the order of
 *   seq_cst fences lets nobody know that.
 * - Who waits for something sees the newest write in the end. He who waits for an older one may have missed
 *   it.
 *
 * Steps that change nothing for others are made at once, before those of others: accesses to plain variables,
 * fences but the seq_cst ones, and stores to atomic variables. A store adds a message that nobody has to
 * read, and others' messages find room on either side of it; so what they can do without it they can do after
 * it as well. If there are several places for it, or a process chooses, these ways are all that is done in a
 * state.
 */
#include "explore.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { HISTORY = 32, VIEW_BYTES = 1 + 2 * VARIABLES };

/* Of each variable: if it is atomic, how many of its messages are older than the one that is in view; if it
 * is plain, what is not known of: bit 0, its last write; bit 1 + p, the last read of p since. */
struct view {
    uint8_t of[VARIABLES];
};

struct message {
    uint8_t value;
    bool is_swap;      /* directly behind what it has read */
    struct view shows; /* to who acquires it; nothing of the own variable */
};

struct history { /* from the oldest message that somebody may still read */
    int count;
    struct message messages[HISTORY];
};

struct process {
    uint16_t at;
    struct view now;  /* cur in the paper */
    struct view seen; /* acq: once there is an acquire fence */
    struct view told; /* rel: as at the last release fence */
};

struct state {
    struct process processes[PROCESSES];
    struct view fences;  /* what seq_cst fences have seen */
    struct view nothing; /* that of who knows of nothing */
    struct history histories[VARIABLES];
};

static int nprocesses;

/* What is known so far of who does what to which variable: of what nobody can find any more, nothing is kept.
 * When more becomes known, the search begins again. */
enum { LOADS = 1, STORES = 2 };
static uint8_t uses[PROCESSES][VARIABLES];
static enum { UNUSED, IS_PLAIN, IS_ATOMIC } kinds[VARIABLES];
static int nvariables; /* that were known when the search began */
static bool begins_again;

/* All but those of messages. */
enum { VIEWS = 3 * PROCESSES + 2 };

static void list_views(struct state *s, struct view *views[VIEWS])
{
    int count = 0;
    for (int p = 0; p < PROCESSES; p++) {
        views[count++] = &s->processes[p].now;
        views[count++] = &s->processes[p].seen;
        views[count++] = &s->processes[p].told;
    }
    views[count++] = &s->fences;
    views[count++] = &s->nothing;
}

static const struct step *step_of(const struct state *s, int p)
{
    return explore_step(p, s->processes[p].at);
}

static void go_on(struct state *s, int p, uint8_t found)
{
    s->processes[p].at = explore_after(p, s->processes[p].at, found);
}

static _Noreturn void lose(const struct state *s, const char *why)
{
    uint16_t at[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        at[p] = s->processes[p].at;
    explore_lose(why, at);
}

/* Only what is in use. */
static void copy(struct state *to, const struct state *from)
{
    memcpy(to, from, offsetof(struct state, histories));
    for (int v = 0; v < nvariables; v++) {
        const struct history *history = &from->histories[v];
        to->histories[v].count = history->count;
        memcpy(to->histories[v].messages, history->messages,
               (size_t)history->count * sizeof history->messages[0]);
    }
}

static bool acquires(enum order order)
{
    return order == ACQUIRE || order == ACQ_REL || order == SEQ_CST;
}

static bool releases(enum order order)
{
    return order == RELEASE || order == ACQ_REL || order == SEQ_CST;
}

/* ---- views ---- */

static void join(struct view *view, const struct view *other)
{
    for (int v = 0; v < nvariables; v++) {
        const uint8_t mine = view->of[v], theirs = other->of[v];
        view->of[v] = kinds[v] == IS_PLAIN ? mine & theirs : mine > theirs ? mine : theirs;
    }
}

/* Nothing is known of plain accesses by that. */
static void join_atomic(struct view *view, const struct view *other)
{
    for (int v = 0; v < nvariables; v++)
        if (kinds[v] == IS_ATOMIC && view->of[v] < other->of[v])
            view->of[v] = other->of[v];
}

static void see(struct view *view, int variable, int message)
{
    if (view->of[variable] < message)
        view->of[variable] = (uint8_t)message;
}

/* ---- atomic variables ---- */

/* The next message that a process may read; -1: there is none. */
static int next_readable(const struct state *s, int p, int variable, int after)
{
    const int oldest = s->processes[p].now.of[variable];
    const int next = after < oldest ? oldest : after + 1;
    return next < s->histories[variable].count ? next : -1;
}

/* Whether another one may come directly before this one, which may not exist. */
static bool is_place(const struct state *s, int variable, int at)
{
    const struct history *history = &s->histories[variable];
    return at == history->count || !history->messages[at].is_swap;
}

static void read_message(struct state *s, int p, int variable, int at, enum order order)
{
    struct process *process = &s->processes[p];
    const struct view *shows = &s->histories[variable].messages[at].shows;
    see(&process->now, variable, at);
    see(&process->seen, variable, at);
    join(&process->seen, shows);
    if (acquires(order))
        join(&process->now, shows);
}

static void make_room(struct view *view, int variable, int at)
{
    if (view->of[variable] >= at)
        view->of[variable]++;
}

/* As the message of this number, whichever now has it. read: what a read-modify-write has read. */
static void write_message(struct state *s, int p, const struct step *step, int at, const struct message *read)
{
    const int variable = step->variable;
    struct process *process = &s->processes[p];
    struct history *history = &s->histories[variable];
    struct message message = { .value = (uint8_t)step->value, .is_swap = read != NULL };
    struct view *views[VIEWS];
    if (history->count == HISTORY)
        explore_fail("a history is too long");
    list_views(s, views);
    for (int i = 0; i < VIEWS; i++)
        make_room(views[i], variable, at);
    for (int v = 0; v < nvariables; v++)
        for (int i = 0; i < s->histories[v].count; i++)
            make_room(&s->histories[v].messages[i].shows, variable, at);
    see(&process->now, variable, at);
    see(&process->seen, variable, at);
    message.shows = releases(step->order) ? process->now : process->told;
    if (read != NULL)
        join(&message.shows, &read->shows);
    message.shows.of[variable] = 0;
    memmove(history->messages + at + 1, history->messages + at,
            (size_t)(history->count - at) * sizeof history->messages[0]);
    history->messages[at] = message;
    history->count++;
}

static void swap(struct state *s, int p, const struct step *step, int at)
{
    const struct message read = s->histories[step->variable].messages[at];
    read_message(s, p, step->variable, at, step->order);
    write_message(s, p, step, at + 1, &read);
}

static void fence(struct state *s, int p, enum order order)
{
    struct process *process = &s->processes[p];
    if (acquires(order))
        process->now = process->seen;
    if (order == SEQ_CST) {
        join_atomic(&s->fences, &process->now);
        join_atomic(&process->now, &s->fences);
        join_atomic(&process->seen, &s->fences);
    }
    if (releases(order))
        process->told = process->now;
}

/* ---- plain variables ---- */

enum { WRITE = 1, ALL = 255 };

static uint8_t read_by(int p)
{
    return (uint8_t)(2 << p);
}

/* Nobody but this process knows of these accesses yet, and all know of the others or need not. */
static void hide(struct state *s, int p, int variable, uint8_t accesses, uint8_t others)
{
    struct view *views[VIEWS];
    list_views(s, views);
    for (int i = 0; i < VIEWS; i++)
        if (views[i] != &s->fences)
            views[i]->of[variable] = (uint8_t)((views[i]->of[variable] & ~others) | accesses);
    for (int v = 0; v < nvariables; v++)
        for (int i = 0; i < s->histories[v].count; i++) {
            struct view *shows = &s->histories[v].messages[i].shows;
            shows->of[variable] = (uint8_t)((shows->of[variable] & ~others) | accesses);
        }
    s->processes[p].now.of[variable] &= (uint8_t)~accesses;
    s->processes[p].seen.of[variable] &= (uint8_t)~accesses;
}

static void write_plain(struct state *s, int p, int variable, int value)
{
    if (s->processes[p].now.of[variable] != 0)
        lose(s, "plain accesses race");
    hide(s, p, variable, WRITE, ALL);
    s->histories[variable].messages[0].value = (uint8_t)value;
}

static uint8_t read_plain(struct state *s, int p, int variable)
{
    if ((s->processes[p].now.of[variable] & WRITE) != 0)
        lose(s, "plain accesses race");
    hide(s, p, variable, read_by(p), 0);
    return s->histories[variable].messages[0].value;
}

/* ---- states ---- */

static bool has_ended(const struct state *s, int p)
{
    return step_of(s, p)->kind == END;
}

static bool may(const struct state *s, int p, int variable, uint8_t what)
{
    return (uses[p][variable] & what) != 0 && !has_ended(s, p);
}

static void lower(struct view *view, int variable, int by)
{
    view->of[variable] = (uint8_t)(view->of[variable] > by ? view->of[variable] - by : 0);
}

/* Forget messages that nobody can read any more. */
static void shorten(struct state *s, int variable)
{
    struct history *history = &s->histories[variable];
    struct view *views[VIEWS];
    int oldest = history->count - 1;
    for (int p = 0; p < nprocesses; p++)
        if (may(s, p, variable, LOADS | STORES) && s->processes[p].now.of[variable] < oldest)
            oldest = s->processes[p].now.of[variable];
    if (oldest > 0) {
        list_views(s, views);
        for (int i = 0; i < VIEWS; i++)
            lower(views[i], variable, oldest);
        for (int v = 0; v < nvariables; v++)
            for (int i = 0; i < s->histories[v].count; i++)
                lower(&s->histories[v].messages[i].shows, variable, oldest);
        history->count -= oldest;
        memmove(history->messages, history->messages + oldest,
                (size_t)history->count * sizeof history->messages[0]);
    }
    history->messages[0].is_swap = false; /* nothing comes before it */
}

/* All variables, as a loop of known length takes a few instructions. */
static void keep_of(struct view *view, const struct view *other)
{
    for (int v = 0; v < VARIABLES; v++)
        view->of[v] &= other->of[v];
}

/* Forget plain accesses that can race with nothing: loads that all know of who store, stores that all know
 * of. */
static void forget_known(struct state *s)
{
    struct view unknown, *views[VIEWS];
    memset(&unknown, ALL, sizeof unknown);
    for (int v = 0; v < nvariables && v < VARIABLES; v++) {
        unknown.of[v] = kinds[v] == IS_PLAIN ? 0 : ALL;
        for (int p = 0; p < nprocesses; p++)
            if (may(s, p, v, STORES))
                unknown.of[v] |= s->processes[p].now.of[v];
            else if (may(s, p, v, LOADS))
                unknown.of[v] |= s->processes[p].now.of[v] & WRITE;
    }
    list_views(s, views);
    for (int i = 0; i < VIEWS; i++)
        keep_of(views[i], &unknown);
    for (int v = 0; v < nvariables; v++)
        for (int i = 0; i < s->histories[v].count; i++)
            keep_of(&s->histories[v].messages[i].shows, &unknown);
}

/* Make states between which nobody could tell a difference the same. */
static void simplify(struct state *s)
{
    for (int p = 0; p < nprocesses; p++)
        if (has_ended(s, p))
            s->processes[p] = (struct process){ s->processes[p].at, s->nothing, s->nothing, s->nothing };
    for (int v = 0; v < nvariables; v++)
        if (kinds[v] == IS_ATOMIC)
            shorten(s, v);
    forget_known(s);
}

/* Variables, most of which are alike; VARIABLES is a multiple of it. */
enum { AT_ONCE = 8 };

/* What of a view differs from another one. */
static uint8_t *pack_view(const struct view *view, const struct view *from, uint8_t *to)
{
    uint8_t *const count = to++;
    *count = 0;
    for (int first = 0; first < nvariables; first += AT_ONCE) {
        if (memcmp(view->of + first, from->of + first, AT_ONCE) == 0)
            continue;
        for (int v = first; v < first + AT_ONCE; v++)
            if (view->of[v] != from->of[v]) {
                *to++ = (uint8_t)v;
                *to++ = view->of[v];
                ++*count;
            }
    }
    return to;
}

static const uint8_t *unpack_view(struct view *view, const struct view *from, const uint8_t *bytes)
{
    *view = *from;
    for (int count = *bytes++; count > 0; count--, bytes += 2)
        view->of[bytes[0]] = bytes[1];
    return bytes;
}

static const struct view zero;

enum {
    PROCESS_BYTES = 2 + 3 * VIEW_BYTES,
    HISTORY_BYTES = 1 + HISTORY * (2 + VIEW_BYTES),
    MOST_BYTES = PROCESSES * PROCESS_BYTES + 2 * VIEW_BYTES + VARIABLES * HISTORY_BYTES
};

static size_t pack(const struct state *s, uint8_t *bytes)
{
    uint8_t *to = pack_view(&s->nothing, &zero, bytes);
    to = pack_view(&s->fences, &zero, to);
    for (int p = 0; p < nprocesses; p++) {
        const struct process *process = &s->processes[p];
        memcpy(to, &process->at, sizeof process->at);
        to = pack_view(&process->now, &zero, to + sizeof process->at);
        to = pack_view(&process->seen, &process->now, to);
        to = pack_view(&process->told, &s->nothing, to);
    }
    for (int v = 0; v < nvariables; v++) {
        const struct history *history = &s->histories[v];
        *to++ = (uint8_t)history->count;
        for (int i = 0; i < history->count; i++) {
            *to++ = history->messages[i].value;
            *to++ = history->messages[i].is_swap;
            to = pack_view(&history->messages[i].shows, &s->nothing, to);
        }
    }
    return (size_t)(to - bytes);
}

static void unpack(struct state *s, const uint8_t *bytes)
{
    const uint8_t *from = unpack_view(&s->nothing, &zero, bytes);
    from = unpack_view(&s->fences, &zero, from);
    memset(s->processes, 0, sizeof s->processes);
    for (int p = 0; p < nprocesses; p++) {
        struct process *process = &s->processes[p];
        memcpy(&process->at, from, sizeof process->at);
        from = unpack_view(&process->now, &zero, from + sizeof process->at);
        from = unpack_view(&process->seen, &process->now, from);
        from = unpack_view(&process->told, &s->nothing, from);
    }
    for (int v = 0; v < nvariables; v++) {
        struct history *history = &s->histories[v];
        history->count = *from++;
        for (int i = 0; i < history->count; i++) {
            struct message *message = &history->messages[i];
            message->value = *from++;
            message->is_swap = *from++ != 0;
            from = unpack_view(&message->shows, &s->nothing, from);
        }
    }
}

/* ---- steps ---- */

static void expect(struct state *s, int p, const struct step *step)
{
    for (int e = 0; e < step->nexpected; e++)
        if (read_plain(s, p, step->expected[e][0]) != step->expected[e][1])
            lose(s, "what was expected is not there");
}

/* False: the next step of the process concerns others, or it may put a message in several places. */
static bool make_private_step(struct state *s, int p)
{
    const struct step *step = step_of(s, p);
    const bool is_plain = step->order == PLAIN;
    const int newest = s->histories[step->variable].count - 1;
    uint8_t found = 0;
    if (step->kind == EXPECT)
        expect(s, p, step);
    else if (step->kind == LOAD && is_plain)
        found = read_plain(s, p, step->variable);
    else if (step->kind == STORE && is_plain)
        write_plain(s, p, step->variable, step->value);
    else if (step->kind == STORE && s->processes[p].now.of[step->variable] == newest)
        write_message(s, p, step, newest + 1, NULL);
    else if (step->kind == FENCE && step->order != SEQ_CST)
        fence(s, p, step->order);
    else
        return false;
    go_on(s, p, found);
    return true;
}

static void note_use(int p, int variable, bool is_plain, uint8_t what)
{
    if (kinds[variable] == (is_plain ? IS_ATOMIC : IS_PLAIN))
        explore_fail("a variable is plain and atomic");
    kinds[variable] = is_plain ? IS_PLAIN : IS_ATOMIC;
    if ((uses[p][variable] & what) == what)
        return;
    uses[p][variable] |= what;
    begins_again = true;
    explore_begin_again();
}

static void note_uses(int p, const struct step *step)
{
    const bool loads = step->kind == LOAD || step->kind == UNTIL;
    const bool swaps = step->kind == SWAP || step->kind == AWAIT;
    if (loads || swaps || step->kind == STORE)
        note_use(p, step->variable, step->order == PLAIN, swaps ? LOADS | STORES : loads ? LOADS : STORES);
    for (int e = 0; e < step->nexpected; e++)
        note_use(p, step->expected[e][0], true, LOADS);
}

static void reach(struct state *s)
{
    static uint8_t bytes[MOST_BYTES];
    for (int p = 0; p < nprocesses; p++)
        do
            note_uses(p, step_of(s, p));
        while (!begins_again && make_private_step(s, p));
    if (begins_again)
        return;
    simplify(s);
    explore_reach(bytes, pack(s, bytes));
}

/* The next step of a process, which reads this message if it reads one. */
static void advance(const struct state *from, int p, int at)
{
    static struct state s;
    const struct step *step = step_of(from, p);
    uint8_t found = 0;
    copy(&s, from);
    if (step->kind == FENCE) {
        fence(&s, p, step->order);
    } else if (step->kind == SWAP || step->kind == AWAIT) {
        found = step->kind == SWAP ? s.histories[step->variable].messages[at].value : 0;
        swap(&s, p, step, at);
    } else {
        found = s.histories[step->variable].messages[at].value;
        read_message(&s, p, step->variable, at, step->order);
    }
    go_on(&s, p, found);
    reach(&s);
}

static bool may_read(const struct state *s, const struct step *step, int at)
{
    const uint8_t value = s->histories[step->variable].messages[at].value;
    switch (step->kind) {
    case LOAD:
        return true;
    case SWAP:
        return is_place(s, step->variable, at + 1);
    case AWAIT:
        return is_place(s, step->variable, at + 1) && value != 0;
    case UNTIL:
        return step->value != 0 ? value == step->value : value != 0;
    default:
        return false;
    }
}

/* What a process can do next, in each way. False: nothing for sure, as it sees the newest message in the
 * end. */
static bool go_every_way(const struct state *s, int p)
{
    const struct step *step = step_of(s, p);
    const int newest = s->histories[step->variable].count - 1;
    if (step->kind == END)
        return false;
    if (step->kind == FENCE) {
        advance(s, p, 0);
        return true;
    }
    for (int at = -1; (at = next_readable(s, p, step->variable, at)) >= 0;)
        if (may_read(s, step, at))
            advance(s, p, at);
    return may_read(s, step, newest);
}

/* The store of a process in each place that it may have. */
static void put_everywhere(const struct state *from, int p)
{
    static struct state s;
    const struct step *step = step_of(from, p);
    const int newest = from->histories[step->variable].count - 1;
    for (int at = from->processes[p].now.of[step->variable] + 1; at <= newest + 1; at++)
        if (is_place(from, step->variable, at)) {
            copy(&s, from);
            write_message(&s, p, step, at, NULL);
            go_on(&s, p, 0);
            reach(&s);
        }
}

static void choose_every_way(const struct state *from, int p)
{
    static struct state s;
    for (int way = 0; way < step_of(from, p)->value; way++) {
        copy(&s, from);
        go_on(&s, p, (uint8_t)way);
        reach(&s);
    }
}

static void expand(const uint8_t *bytes, size_t nbytes)
{
    static struct state s;
    bool went_on = false, have_ended = true;
    (void)nbytes; /* which the bytes tell themselves */
    unpack(&s, bytes);
    for (int p = 0; p < nprocesses; p++) {
        const enum kind kind = step_of(&s, p)->kind;
        if (kind == STORE)
            put_everywhere(&s, p);
        else if (kind == CHOOSE)
            choose_every_way(&s, p);
        else
            continue;
        return;
    }
    for (int p = 0; p < nprocesses; p++) {
        have_ended = have_ended && has_ended(&s, p);
        went_on = go_every_way(&s, p) || went_on;
    }
    if (!went_on && !have_ended)
        lose(&s, "nobody can go on");
}

static void begin(int count, int prompt)
{
    static struct state s;
    if (prompt > 0)
        explore_fail("nothing is prompt in C11");
    nprocesses = count;
    begins_again = false;
    nvariables = 0;
    for (int v = 0; v < VARIABLES; v++)
        if (kinds[v] != UNUSED)
            nvariables = v + 1;
    memset(&s, 0, sizeof s);
    for (int v = 0; v < nvariables; v++)
        s.histories[v].count = 1;
    reach(&s);
}

const struct memory explore_of_views = { "C11", begin, expand };
