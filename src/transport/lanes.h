/*
 * lanes.h - the lanes between this rank and the others of its host, and the bells that end their sleep.
 *
 * Each rank shares one piece of memory, which holds a lane from every other rank of the host, a word that
 * says whether this rank sleeps, room for what else all are to read, and at its end a heap for its program.
 * Who writes to a lane looks at that word, and rings the sleeper's bell.
 *
 * Holder of the engine's baton only, once the mesh is open.
 */
#ifndef DDL_TRANSPORT_LANES_H
#define DDL_TRANSPORT_LANES_H

#include "base/error.h"
#include "protocol/roster.h"
#include "transport/lane.h"

typedef struct ddl_lanes ddl_lanes;

/*
 * Make the memory, with so many bytes of room, used_bytes of which some calls use, and the bell of this
 * rank. lane_bytes: what all lanes to it may take together, if that makes them larger than they are at least;
 * all ranks of a host say the same. The roster must outlive all use of them but their end. DDL_ENOMEM, too,
 * where a cgroup does not leave as much as the lanes and used_bytes of all ranks of the host take.
 */
DDL_MUST_USE ddl_status ddl_lanes_create(const ddl_roster *roster, size_t room_bytes, size_t used_bytes,
                                         size_t lane_bytes, ddl_lanes **lanes, ddl_error *err);

/* What other ranks of the host need to join; both stay the lanes'. */
int ddl_lanes_memory(const ddl_lanes *lanes);
int ddl_lanes_bell(const ddl_lanes *lanes);

/* Join with a rank of this host by what it handed over. The descriptors are the lanes' from now on, also on
 * failure. The other one's heap is mapped as well, if it can be. */
DDL_MUST_USE ddl_status ddl_lanes_join(ddl_lanes *lanes, int peer, int memory_fd, int bell_fd,
                                       ddl_error *err);

typedef struct ddl_room_part {
    size_t offset, bytes;
} ddl_room_part;

/*
 * Have the memory of joined lanes there now, and these parts of the room, in both ranks' memory: else the
 * first calls wait for it, page by page. As much of each lane as is reasonable where there are many.
 */
void ddl_lanes_touch(ddl_lanes *lanes, const ddl_room_part parts[], int nparts);

/* Whether this pair uses its heaps: both can map the other's, as far as is known here. */
bool ddl_lanes_share_heaps(const ddl_lanes *lanes, int peer);

/* Let go of another one's heap: it is not used in this pair, or no longer. */
void ddl_lanes_drop_heap(ddl_lanes *lanes, int peer);

/* Undo a join. */
void ddl_lanes_part(ddl_lanes *lanes, int peer);

bool ddl_lanes_reach(const ddl_lanes *lanes, int peer);

/* The ends of the two lanes to and from a peer that is reached. */
ddl_lane_end *ddl_lanes_out(ddl_lanes *lanes, int peer);
ddl_lane_end *ddl_lanes_in(ddl_lanes *lanes, int peer);

/* Whether this rank can read the memory of a peer that is reached: found out when first asked. */
bool ddl_lanes_can_pull(ddl_lanes *lanes, int peer);

/* Copy from an address there into these parts, one after the other. False: not all of it could be read;
 * nothing can be from now on. */
bool ddl_lanes_pull(ddl_lanes *lanes, int peer, uint64_t address, const struct iovec parts[], int count);

/* The room in the memory of a rank that is reached, or of this one. All ranks have as much. Zero at first,
 * and no memory is used where nobody touches it. */
void *ddl_lanes_room(ddl_lanes *lanes, int rank);

/* The heap in the memory of a rank that is reached, or of this one, in whole pages; 0 bytes: it has none, or
 * it was dropped, and NULL is returned. Each rank has a size of its own. */
void *ddl_lanes_heap(const ddl_lanes *lanes, int rank, size_t *bytes);

/* A word in the memory of a rank that is reached, or of this one, which that rank alone writes (balance.h);
 * NULL: it is not reached. */
_Atomic(uint64_t) *ddl_lanes_place(ddl_lanes *lanes, int rank);

/* Where this rank's heap begins in its descriptor. */
size_t ddl_lanes_heap_start(const ddl_lanes *lanes);

/* Something was told to these, among whom this rank may be: wake those of them who sleep. */
void ddl_lanes_wake(ddl_lanes *lanes, const int peers[], int npeers);

/* Whether that has woken anybody since this was asked last. */
bool ddl_lanes_have_rung(ddl_lanes *lanes);

/* Say that this rank is going to sleep, or is awake. Before sleeping: ask for room where it is missing, then
 * ddl_doze_look_again. */
void ddl_lanes_set_asleep(ddl_lanes *lanes, bool asleep);

/* NULL is fine. */
void ddl_lanes_destroy(ddl_lanes *lanes);

/* In a forked child, which has none of the memory. */
void ddl_lanes_close_in_child(ddl_lanes *lanes);

#endif
