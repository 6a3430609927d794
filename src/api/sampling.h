/*
 * sampling.h - which calls are put to the vote (votes.h) where nobody has asked for NCCL.
 *
 * A vote costs each rank a message to each other, which a program whose buffers are the hosts' is not to pay.
 * So of the calls that could go to GPUs, the candidates, the 1st, 2nd, 4th, 8th, ... is voted on, and one in
 * 256 at least, until all ranks' GPUs can have one. From then on all are, until 8 in a row have been decided
 * for hosts.
 *
 * All ranks find the same, and tell each other nothing about it: whether a candidate is voted on follows from
 * the decisions before it alone. While all are, a rank need not know the decisions on the last `ahead` of
 * them: what they may change begins behind that many.
 */
#ifndef DDL_API_SAMPLING_H
#define DDL_API_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ddl_sampling {
    uint64_t sure_until; /* candidates up to this one are voted on, whatever else is decided */
    uint64_t next;       /* beyond that, this one, and none before it */
    uint64_t gap;        /* to the one after it, if it is for hosts */
    int nhosts;          /* decisions for hosts, one after the other, while all are voted on */
} ddl_sampling;

typedef enum ddl_sampled { DDL_SAMPLED_OPEN, DDL_SAMPLED_OUT, DDL_SAMPLED_IN } ddl_sampled;

/* always: all candidates are voted on, for good. */
void ddl_sampling_init(ddl_sampling *sampling, bool always);

/* Whether a candidate, counted from 1, is voted on; open: it depends on votes that are not decided, where
 * there are any. */
ddl_sampled ddl_sampling_of(const ddl_sampling *sampling, uint64_t candidate, bool all_decided);

/* Every vote, in order. Nobody votes on the candidate `ahead` behind this one before this is decided. */
void ddl_sampling_decided(ddl_sampling *sampling, uint64_t candidate, bool for_gpus, uint64_t ahead);

#endif
