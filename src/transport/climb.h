/*
 * climb.h - how many of its connections a pair of ranks uses: twice as many, where that is faster.
 *
 * Twice as many as there are, and half of them, are tried in turns, each time that it was in vain after a
 * longer pause: a network's rate changes from one moment to the next, and what a lucky one has brought is to
 * be given up again. What is compared is how fast one network took what it was given, over stretches in which
 * the connections were hardly ever idle, so that neither pauses of the program nor what sockets swallow
 * counts. Others that fill the same link gain by more connections too, at the expense of each other: doubling
 * those of one of n + 1 makes it 2 (n + 1) / (n + 2) times as fast, which is not enough beside one other, and
 * is beside two or more.
 *
 * More than one are tried only if that one keeps messages waiting, as it does not where the CPU is the limit.
 *
 * Pure: what is seen and the time are arguments.
 */
#ifndef DDL_TRANSPORT_CLIMB_H
#define DDL_TRANSPORT_CLIMB_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DDL_CLIMB_SETTLE = 8, /* stretches until connections that were idle go at their rate */
    DDL_CLIMB_LOOKS = 8,  /* that count: what is in queues makes single ones twice as fast as the mean */
    DDL_CLIMB_IDLE = 16,  /* so many that tell nothing, and three times as many as others: it is in vain */
    /* A new connection may lose much before it knows its rate, so that it is tried again soon. */
    DDL_CLIMB_FIRST_PAUSE_MS = 1000,
    DDL_CLIMB_LAST_PAUSE_MS = 64 * 1000, /* each is twice as long as the one before */
    DDL_CLIMB_TRIAL_MS = 10 * 1000       /* one that has shown nothing by then has been in vain, too */
};

/* Of the connections in use, as the system tells it, since they were made: what the other end has
 * acknowledged, and the time in which it had something to acknowledge, on the average of them. */
typedef struct ddl_climb_look {
    uint64_t acked_bytes, busy_us;
    bool has_more; /* something waits that the network has not taken */
} ddl_climb_look;

typedef struct ddl_climb {
    int count, most;     /* in use; there are */
    int before;          /* while the count is being tried: which it is compared with; 0: it is not */
    bool descends;       /* half of them are tried next */
    int nidle, nseen;    /* stretches with this count: that tell nothing; that do */
    uint64_t bytes, us;  /* in those that count */
    uint64_t base;       /* bytes per second, with the count before */
    int64_t pause_ms;    /* the next time that it was in vain */
    int64_t rests_until; /* ns */
    int64_t tried_ns;    /* since when it tries */
    bool has_last;
    ddl_climb_look last;
    int64_t last_ns;
} ddl_climb;

/* most: a power of two. */
void ddl_climb_begin(ddl_climb *climb, int most);

/* There are so many now, and no more than there were. */
void ddl_climb_limit(ddl_climb *climb, int most);

/* Whether a look would change nothing now. */
bool ddl_climb_rests(const ddl_climb *climb, int64_t now_ns);

/* To be called every 20 ms or so, as long as something large is sent. True: another count is to be used from
 * now on. */
bool ddl_climb_see(ddl_climb *climb, const ddl_climb_look *look, int64_t now_ns);

#endif
