/*
 * bootstrap_parts.h - one start-up while it lasts, as the files of the bootstrap share it. What a user of the
 * bootstrap needs is in bootstrap.h.
 *
 * Keys of a run, beside those of the store itself: "member.R" is rank R's record, set by R; "roster" has all
 * records, set by rank 0 when the last has come; "meshed.R" says that rank R is connected to everyone;
 * DDL_STORE_SETTLED that all are.
 *
 * Thread: that of the owner, who waits.
 */
#ifndef DDL_RENDEZVOUS_BOOTSTRAP_PARTS_H
#define DDL_RENDEZVOUS_BOOTSTRAP_PARTS_H

#include "rendezvous/bootstrap.h"
#include "rendezvous/progress.h"
#include "rendezvous/store.h"

#define DDL_JOINING_TCP_STORE "tcp://"

enum {
    DDL_JOINING_CHECK_INTERVAL_MS = 20, /* between looks at the store while the mesh is made */
    DDL_JOINING_LAST_WORDS_MS = 600,    /* to tell the others of a failure, and for them to hear it */
    DDL_JOINING_ABSENCE_TEXT = 320      /* of who is missing, and who is not */
};

struct ddl_bootstrap {
    ddl_store *store;
    ddl_meshing *forming; /* until all have settled, for a forked child alone; else NULL */
    ddl_meshing *meshing; /* then, where pairs connect late; else NULL */
    ddl_meshing *closing; /* the same, once nobody is to be let in any more */
    ddl_wire *streams;    /* further connections that were not taken yet, nstreams for each of nranks */
    int nranks, nstreams;
};

/* This rank comes to the others, who come to it. */
typedef struct ddl_joining {
    const ddl_bootstrap_options *options;
    const ddl_network *network;
    ddl_progress progress;
    ddl_hello_party self;
    ddl_member own;
    ddl_bootstrap *bootstrap; /* has the store as well, which a forked child finds there */
    ddl_store *store;
    ddl_meshing *meshing;
    ddl_roster *roster;
    ddl_wire *streams; /* as of the bootstrap */
    bool *present;     /* by rank: has been heard of, in the phase at hand; who begins one clears it */
    bool told_how_to_copy_secret;
    bool all_have_come; /* as rank 0 knows */
    bool run_failed;    /* and not this rank alone */
} ddl_joining;

/* ---- bootstrap_entering.c: how this rank enters a run ---- */

DDL_MUST_USE ddl_status ddl_joining_come_to_place(ddl_joining *joining, ddl_deadline deadline,
                                                  ddl_error *err);

/*
 * Come to the meeting place, listen, and publish where. A place may still hold the last run of this very
 * job, if its rank 0 is a little behind: then wait for the next run.
 */
DDL_MUST_USE ddl_status ddl_joining_enter_run(ddl_joining *joining, ddl_error *err);

void ddl_joining_close_store(ddl_joining *joining, ddl_deadline deadline);

/* ---- bootstrap_absence.c: who is missing ---- */

/* Mark every rank whose key of this kind is set. */
DDL_MUST_USE ddl_status ddl_joining_look_around(ddl_joining *joining, const char *what, ddl_error *err);

/* Of the ranks that are not marked: the lowest, or -1; and all, as "ranks 2, 5-7 of 8". */
int ddl_joining_first_missing(const ddl_joining *joining);
void ddl_joining_describe_missing(const ddl_joining *joining, char text[DDL_JOINING_ABSENCE_TEXT]);

/* Whoever waits less long may have given up: then the reason, else a progress line of all that are missing,
 * or of rank 0. what: as for ddl_joining_look_around, whose present ranks are those found last; this one has
 * set its key. DDL_ESTORE: the store has lost that. */
DDL_MUST_USE ddl_status ddl_joining_tell_absence(ddl_joining *joining, const char *what, ddl_error *err);

/* The deadline has passed: say who did not do what. verb, done: "come", "come". */
DDL_MUST_USE ddl_status ddl_joining_report_absence(ddl_joining *joining, const char *what, const char *verb,
                                                   const char *done, ddl_error *err);

/* Who is missing may have come, and been turned away; as nothing was proved, nobody is blamed for it. */
void ddl_joining_tell_of_turned_away(const ddl_joining *joining, ddl_error *err);

/* ---- bootstrap_meeting.c: how the ranks wait for each other at the store ---- */

/* Until all have come: joining->roster says who. DDL_ETIMEDOUT: who has not. */
DDL_MUST_USE ddl_status ddl_joining_meet(ddl_joining *joining, ddl_error *err);

/* What rank 0 says for all. */
void ddl_joining_fill_in(ddl_joining *joining);

/* Nobody begins before everybody is connected: so all succeed, or all fail alike. */
DDL_MUST_USE ddl_status ddl_joining_settle(ddl_joining *joining, ddl_error *err);

/* ---- bootstrap_connecting.c: connections to those that the roster says ---- */

/* DDL_ETIMEDOUT: who is not connected to this rank. */
DDL_MUST_USE ddl_status ddl_joining_connect_all(ddl_joining *joining, ddl_error *err);

/* ---- bootstrap_last_words.c: what a rank whose start fails still tells the others ---- */

/* What this rank lacks others cannot know by themselves, and they are told. */
ddl_status ddl_joining_own_up(const ddl_joining *joining, ddl_error *err);

/* Of what has failed here the others are told where that was. What another has put into the store before has
 * a culprit, and is left as it is. */
void ddl_joining_tell_others(ddl_joining *joining, ddl_error *err);

/* Rank 0 of a run that has failed: some may be about to come, as all were started together. */
void ddl_joining_stay_shortly(ddl_joining *joining, const ddl_error *why);

/*
 * This rank cannot take part, and the others, who wait for it, hear why; unless there is another with its
 * number, whose run this is.
 */
DDL_MUST_USE ddl_status ddl_joining_decline(ddl_joining *joining, ddl_error *err);

/* The same for a rank that has not come: it does so first, if that can be done soon. */
DDL_MUST_USE ddl_status ddl_joining_come_and_decline(ddl_joining *joining, ddl_error *err);

/* Wrong ones are told at once, not when all have come; the others too if that can be. */
DDL_MUST_USE ddl_status ddl_joining_check_interfaces(ddl_joining *joining, ddl_error *err);

#endif
