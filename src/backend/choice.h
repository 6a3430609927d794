/*
 * choice.h - which algorithm a call runs: the cheapest by a cost model, or the one that a user forced.
 *
 * Pure arithmetic on numbers that all ranks share, so every rank chooses the same.
 */
#ifndef DDL_BACKEND_CHOICE_H
#define DDL_BACKEND_CHOICE_H

#include "algorithms/catalogue.h"

/* How two ranks are joined. */
typedef enum ddl_link_kind {
    DDL_LINK_LOCAL,  /* TCP inside a host */
    DDL_LINK_REMOTE, /* TCP between hosts */
    DDL_LINK_SHARED, /* shared memory, where all ranks have it in common */
    DDL_LINK_KINDS
} ddl_link_kind;

/* What a link costs. */
typedef struct ddl_link_cost {
    double latency_ns; /* a small message from one waiting rank to another */
    double message_ns; /* CPU per message, both ends together, beyond the latency */
    double byte_ns; /* per byte sent while as much is received; of a remote link: on the wire of the host */
} ddl_link_cost;

typedef struct ddl_cost_model {
    /* Inside a host byte_ns is CPU, which remote bytes cost as well. */
    ddl_link_cost links[DDL_LINK_KINDS];
    double reduce_ns;   /* per byte reduced */
    double piece_bytes; /* of the largest message of a piece, inside one host; costs nothing by itself */
    double pull_bytes;  /* inside a host, messages of so many bytes and more are read by the receiver where
                           they lie, where it can, instead of passing through shared memory; likewise */
    double lane_bytes;  /* of all lanes to a rank together (transport/lanes.h); likewise */
    double crowding;    /* ranks per usable CPU on the fullest host, at least 1: all CPU costs times this */
    bool shares_memory; /* links inside the host are shared rather than local */
    double
        board_bytes; /* that a rank posts for all at once at most (executor/board.h); 0: there is no board */
} ddl_cost_model;

/* The constants of a model, all but crowding and what follows it, as numbers: each above 0 and below
 * DDL_COST_LIMIT. */
enum { DDL_COST_CONSTANTS = 3 * DDL_LINK_KINDS + 4 };
#define DDL_COST_LIMIT 1e12

/* Names of the constants, in the order in which they travel: "local.latency_ns", ..., "shared.byte_ns",
 * "reduce_ns", "local.piece_bytes", "local.pull_bytes",
 * "local.lane_bytes". */
extern const char *const ddl_cost_names[DDL_COST_CONSTANTS];

/* More than a message has. */
#define DDL_NEVER_PULL 1e9

/* Fixed defaults for TCP; nothing is measured at start-up, so the same job chooses the same in every run. */
ddl_cost_model ddl_cost_model_default(double crowding);

/* The constants as an array, and the model of such an array. DDL_EPROTO: another number of them than this
 * version knows, or one that is out of range. */
void ddl_cost_model_pack(const ddl_cost_model *model, double constants[DDL_COST_CONSTANTS]);
DDL_MUST_USE ddl_status ddl_cost_model_unpack(const double constants[], int count, double crowding,
                                              ddl_cost_model *model, ddl_error *err);

/* Modelled time of one call over total_bytes (the vector, or all blocks of the ranks together). */
double ddl_cost_ns(const ddl_cost_model *model, const ddl_algorithm *algorithm,
                   const ddl_placement *placement, double total_bytes);

/* Where each rank has a CPU more goes by messages: of all ranks together, or, if they are two, in one
 * message.
 */
enum { DDL_POSTED_UNCROWDED_BYTES = 32 * 1024, DDL_POSTED_BETWEEN_TWO_BYTES = 64 * 1024 };

/* What a rank says is on a sheet if it is no more than this, and who needs nothing of it may be many calls
 * ahead. */
enum { DDL_POSTED_AHEAD_BYTES = 2 * 1024 };

/* Whether a call from one rank or to one goes over a board, also where ranks share CPUs, if its algorithm has
 * one round: what is so small, and there also what is large, if all have the same to read or to be read. */
bool ddl_choice_posts_for_root(const ddl_cost_model *model, ddl_collective collective, int nranks,
                               double total_bytes);

/* What a rank says in a round of a piece at most, if calls of this size go over a board wherever their
 * algorithm can; 0: they go by messages. */
size_t ddl_choice_post_bytes(const ddl_cost_model *model, ddl_collective collective, int nranks,
                             double total_bytes);

/* Choices that are remembered, by collective and size: the place of a size, below DDL_CHOICES. */
enum { DDL_CHOICES = 32 };
int ddl_choice_place(double total_bytes);

/* The cheapest that works for so many ranks; of equals the first of the catalogue. Never NULL: every
 * collective has an algorithm that takes any number. */
const ddl_algorithm *ddl_choose(const ddl_cost_model *model, ddl_collective collective,
                                const ddl_placement *placement, double total_bytes);

#endif
