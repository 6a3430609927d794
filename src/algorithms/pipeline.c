/*
 * pipeline.c - who sends which block in which round of the round-optimal pipelined broadcast.
 *
 * Skips are those of the circulant collectives: skip[q] = p, skip[k] = ceil(skip[k+1] / 2), skip[0] = 1. In
 * round i, with k = i mod q, the rank at distance r from the root sends to the one at r + skip[k] and
 * receives from the one at r - skip[k], all modulo p. What it receives repeats every q rounds, each time with
 * numbers q higher, so q numbers per rank say everything. They follow from these facts (Traff, arXiv
 * 2407.18004):
 *
 * - Blocks 0 .. q-1 leave the root in the first q rounds, block k over skip[k]. The first block that reaches
 *   a rank, its base block, is the smallest skip of the greedy sum of skips that makes its distance.
 * - In q rounds a rank receives q blocks that all differ: its new base block, and for the other numbers the
 *   block of the phase before. A block with number e arrives in round k by way of some rank whose base block
 *   is e, and which is at most skip[k] before this one, yet not so far that it would be served a round later.
 *
 * So a depth-first search over sums of skips, the largest first, that takes for each round the largest sum
 * that is near enough, and each number once, finds the q numbers. It visits few more than q sums. What a rank
 * sends is what the receiver's numbers say. That each block arrives once and is there when it is to be sent
 * is what the checker proves, for every number of ranks that it is asked about.
 */
#include "algorithms/builders.h"

#include "base/assert.h"

#include <math.h>

enum { MOST_SKIPS = 32 };

typedef struct skips {
    int q;              /* ceil(log2 p) */
    int at[MOST_SKIPS]; /* at[0] = 1 .. at[q] = p */
} skips;

static skips skips_of(int nranks)
{
    skips s = { .q = ddl_log2_ceil(nranks) };
    s.at[s.q] = nranks;
    for (int k = s.q; k > 0; k--)
        s.at[k - 1] = (s.at[k] + 1) / 2;
    return s;
}

/* The number of the first block that reaches this distance; q at the root, which has them all. */
static int base_block(const skips *s, int distance)
{
    for (int k = s->q - 1; k >= 0; k--) {
        if (s->at[k] > distance)
            continue;
        distance -= s->at[k];
        if (distance == 0)
            return k;
    }
    return s->q;
}

typedef struct search {
    const skips *skips;
    int target;            /* distance + p, so that sums may reach back around the circle */
    int round;             /* the next one to be decided */
    int last;              /* the sum that was taken last; sums fall */
    bool used[MOST_SKIPS]; /* numbers that were taken */
    int *numbers;          /* of each round */
} search;

/* Decide rounds among the sums that add to `sum` skips of numbers up to `highest`. */
static void search_from(search *s, int sum, int highest)
{
    const int *skip = s->skips->at;
    for (int e = highest; e >= 0 && s->round < s->skips->q; e--) {
        int next = sum + skip[e];
        if (s->used[e] || next > s->target - skip[s->round] || next >= s->last)
            continue;
        search_from(s, next, e - 1);
        if (s->round == s->skips->q || sum > s->target - skip[s->round + 1])
            return; /* this sum itself is near enough for the round, and larger sums were tried */
        if (s->used[e] || next > s->target - skip[s->round] || next >= s->last)
            continue;
        s->last = next;
        s->numbers[s->round++] = e;
        s->used[e] = true;
    }
}

/* numbers[k]: what the rank at this distance receives in round k of a phase; below 0: of phases before. */
static void receive_numbers(const skips *s, int distance, int numbers[])
{
    int base = base_block(s, distance);
    search found = {
        .skips = s, .target = distance + s->at[s->q], .last = 2 * s->at[s->q], .numbers = numbers
    };
    found.used[base] = true;
    search_from(&found, 0, s->q);
    DDL_ASSERT(found.round == s->q);
    for (int k = 0; k < s->q; k++)
        numbers[k] = numbers[k] == s->q ? base : numbers[k] - s->q;
}

int ddl_pipeline_blocks(int nranks, double bytes)
{
    /*
     * More blocks cost a latency each, fewer leave ranks idle while the pipeline fills; the best number is
     * sqrt((q-1) n b / a). a / b is taken as what a latency of 10 us is worth at 25 Gbit/s. A power of two,
     * so that small changes of size change nothing.
     */
    enum { LATENCY_WORTH_BYTES = 32 * 1024, MOST_BLOCKS = 64 };
    double best = sqrt((ddl_log2_ceil(nranks) - 1) * bytes / LATENCY_WORTH_BYTES);
    int nblocks = 1;
    while (nblocks < MOST_BLOCKS && nblocks * 2 <= best)
        nblocks *= 2;
    return nblocks;
}

const ddl_pipeline_round *ddl_pipeline_rounds(ddl_builder *b, const ddl_group *g, int root, int nblocks,
                                              int *nrounds)
{
    skips s = skips_of(g->nranks);
    int p = g->nranks, q = s.q, idle = (q - (nblocks - 1) % q) % q; /* rounds of the first phase left out */
    ddl_group from_root = { ddl_group_peer(g, -root), p };
    int distance = from_root.rank, received[MOST_SKIPS] = { 0 }, sent[MOST_SKIPS] = { 0 };
    ddl_pipeline_round *rounds = ddl_builder_alloc(b, (size_t)(nblocks - 1 + q), sizeof *rounds);
    if (rounds == NULL)
        return NULL;
    if (distance > 0)
        receive_numbers(&s, distance, received);
    for (int k = 0; k < q; k++) {
        int numbers[MOST_SKIPS], to = ddl_group_peer(&from_root, s.at[k]);
        if (to == 0)
            continue;
        receive_numbers(&s, to, numbers);
        sent[k] = numbers[k];
    }
    *nrounds = nblocks - 1 + q;
    for (int i = 0; i < *nrounds; i++) {
        int k = (i + idle) % q, phase = (i + idle) / q * q - idle;
        int to = ddl_group_peer(&from_root, s.at[k]), sent_block = sent[k] + phase;
        int recv_block = received[k] + phase;
        bool sends = to != 0 && sent_block >= 0, receives = distance > 0 && recv_block >= 0;
        /* In the last phase the numbers run beyond the last block, which stands for them. */
        rounds[i] = (ddl_pipeline_round){
            .to = sends ? ddl_group_peer(g, s.at[k]) : -1,
            .from = receives ? ddl_group_peer(g, -s.at[k]) : -1,
            .sent_block = sent_block < nblocks ? sent_block : nblocks - 1,
            .recv_block = recv_block < nblocks ? recv_block : nblocks - 1,
        };
    }
    return rounds;
}
