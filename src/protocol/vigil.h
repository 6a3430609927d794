/*
 * vigil.h - whether a rank that is waited for still lives: a verdict on the signs that it gives.
 *
 * Pure; time is an argument. A rank whose process runs answers a ping within a second, whatever its program
 * does. So of one that has said nothing for long, and taken nothing, its process stands still; and if its
 * host has not even acknowledged what is on its way, that, or the network to it, is gone; also where it is
 * heard all the same.
 *
 * Only time counts in which somebody looked: who was stopped himself, or got no CPU, has heard nothing
 * because of that.
 */
#ifndef DDL_PROTOCOL_VIGIL_H
#define DDL_PROTOCOL_VIGIL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ddl_signs {
    uint64_t heard;   /* bytes from it */
    uint64_t taken;   /* bytes of ours that it has taken, or its host acknowledged; they only grow */
    uint64_t said;    /* bytes to it of what is no part of an operation, pings and such; likewise */
    bool has_acks;    /* its host acknowledges what it gets, and taken counts that */
    bool awaits_acks; /* something is on its way there that was not acknowledged, */
    unsigned tries;   /* and so often it was sent again since anything was */
    unsigned answers; /* segments from it without data, which acknowledge something or nothing */
    int64_t ack_ns;   /* since any segment from it acknowledged something or nothing */
} ddl_signs;

typedef enum ddl_vigil_verdict {
    DDL_VIGIL_ALIVE,
    DDL_VIGIL_UNRESPONSIVE,
    DDL_VIGIL_UNREACHABLE
} ddl_vigil_verdict;

typedef struct ddl_vigil {              /* over one rank; zero at first */
    int64_t looked_ns;                  /* 0: never */
    int64_t silent_ns, unacked_ns;      /* for so long it has given no sign, and its host has not acknowledged
                                           anything */
    int64_t pinged_ns;                  /* when it was asked for a sign last */
    ddl_signs signs;                    /* when it was looked at last */
    int64_t tried_ns;                   /* unacked_ns when it was sent again last */
    uint64_t taken_before, said_before; /* when it gave the last sign */
    ddl_vigil_verdict verdict;          /* then */
} ddl_vigil;

typedef struct ddl_vigil_limits {
    int64_t unresponsive_ns, unreachable_ns;
} ddl_vigil_limits;

/* Whether it was heard lately. A host that is, but acknowledges nothing, is cut off in one direction, or for
 * what is large. */
bool ddl_vigil_hears(const ddl_vigil *vigil, const ddl_vigil_limits *limits);

/* To be called a few times a second while the rank is waited for, with what is seen of it now. *ping: it is
 * to be asked for a sign. */
ddl_vigil_verdict ddl_vigil_look(ddl_vigil *vigil, const ddl_signs *signs, const ddl_vigil_limits *limits,
                                 int64_t now_ns, bool *ping);

#endif
