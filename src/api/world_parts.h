/*
 * world_parts.h - what the files of a world share. What its users need is in world.h.
 *
 * All of it is for the holder of the baton, but for what is called while the world is made, when there is
 * none.
 */
#ifndef DDL_API_WORLD_PARTS_H
#define DDL_API_WORLD_PARTS_H

#include "api/comm.h"

/* ---- world_comms.c: communicators by id ---- */

static inline ddl_list *ddl_world_bucket(ddl_world *world, uint32_t id)
{
    return &world->by_id[id % DDL_WORLD_BUCKETS];
}

static inline ddl_comm *ddl_world_find(ddl_world *world, uint32_t id)
{
    DDL_LIST_FOR_EACH (link, ddl_world_bucket(world, id)) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, same_bucket);
        if (comm->id == id)
            return comm;
    }
    return NULL;
}

/* What still comes for this id is dropped. */
bool ddl_world_is_freed(const ddl_world *world, uint32_t id);

/* For a communicator which this rank has not made yet: that it failed, or a report on who is left of it. */
void ddl_world_hold_notice(ddl_world *world, int peer, const ddl_frame *frame, const ddl_notice *notice);
void ddl_world_hold_report(ddl_world *world, int peer, const ddl_frame *frame, ddl_view report);

/* Whoever wants to go on with what this rank has freed, or forgone, need not wait for it. */
void ddl_world_answer_apart(ddl_world *world, int peer, const ddl_frame *frame, ddl_view report);

/* Of all communicators that were never made. */
void ddl_world_forget_words(ddl_world *world);

/* ---- world_settings.c: settings of all ranks ---- */

/* Whether they go together, once these are known; and then which calls ranks vote on. All ranks find the
 * same. DDL_ECONFIG. */
DDL_MUST_USE ddl_status ddl_world_check_settings(ddl_world *world, ddl_error *err);

/* ---- world_memory.c: memory that ranks of a host share ---- */

/* This rank's own, with DDL_TRANSPORT=shm, as soon as the roster is known: so all ranks hear it if there is
 * none. arg: the world. */
DDL_MUST_USE ddl_status ddl_world_make_insisted(void *arg, const ddl_roster *roster, ddl_error *err);

/* wires: to all ranks that are connected. */
DDL_MUST_USE ddl_status ddl_world_make_lanes(ddl_world *world, ddl_wire wires[], ddl_deadline deadline,
                                             ddl_error *err);

/* With lanes, if there are any, or without. */
DDL_MUST_USE ddl_status ddl_world_make_heap(ddl_world *world, ddl_error *err);

/* ---- world_links.c: connections beside the first one to each rank ---- */

/* For large messages, from the start, or once it has shown that they are worth it. */
DDL_MUST_USE ddl_status ddl_world_widen(ddl_world *world, ddl_error *err);

/* From now on the engine is told of ranks that connect late, which the second call takes in. */
void ddl_world_await_arrivals(ddl_world *world);
void ddl_world_take_arrivals(ddl_world *world);

/* ---- world_mesh.c: what the mesh tells ---- */

ddl_mesh_owner ddl_world_mesh_owner(ddl_world *world);

/* ---- world_engine.c: what the engine drives ---- */

ddl_engine_client ddl_world_engine_client(ddl_world *world);

/* What is on boards. True: something moved. */
bool ddl_world_finish_posts(ddl_world *world);

/* What a rank that has gone still took part in. */
void ddl_world_finish_with(ddl_world *world);

#endif
