/* mesh_turn.c - what a rank does for its links in each turn of the engine, and before it sleeps. */
#include "transport/mesh_link.h"

#include "transport/doze.h"

enum { POLLED_LINKS = 4 /* up to so many expected links are read without asking the loop */ };

static void read_hot_links(ddl_mesh *mesh)
{
    ddl_mesh_link *hot[POLLED_LINKS]; /* reading may change the list */
    int count = 0;
    DDL_LIST_FOR_EACH (link, &mesh->hot)
        hot[count++] = DDL_CONTAINER(link, ddl_mesh_link, hot);
    for (int i = 0; i < count; i++)
        if (hot[i]->state == DDL_LINK_OPEN)
            ddl_mesh_read_link(hot[i]);
}

void ddl_mesh_sweep(ddl_mesh *mesh)
{
    ddl_mesh_flush_held(mesh);
    ddl_mesh_flush(mesh);
    if (mesh->lanes != NULL)
        ddl_lanes_set_asleep(mesh->lanes, false);
    for (int i = 0; i < mesh->nby_lane; i++)
        ddl_mesh_read_lanes_of(mesh->by_lane[i]);
    ddl_mesh_read_unread(mesh);
    if (mesh->nhot <= POLLED_LINKS)
        read_hot_links(mesh);
    ddl_mesh_flush(mesh);
    ddl_mesh_move_pages(mesh);
}

bool ddl_mesh_needs_loop(const ddl_mesh *mesh)
{
    return mesh->nhot > POLLED_LINKS || mesh->nstriped > 0;
}

bool ddl_mesh_doze(ddl_mesh *mesh)
{
    if (!ddl_list_empty(&mesh->unread))
        return true;
    if (mesh->lanes == NULL)
        return false;
    if (ddl_lanes_have_rung(mesh->lanes))
        ddl_engine_woke(mesh->engine);
    if (!ddl_list_empty(&mesh->due))
        return true;
    ddl_lanes_set_asleep(mesh->lanes, true);
    for (int i = 0; i < mesh->nby_lane; i++)
        if (ddl_link_linked(&mesh->by_lane[i]->dirty))
            ddl_lane_want_room(mesh->by_lane[i]->out);
    ddl_doze_look_again();
    for (int i = 0; i < mesh->nby_lane; i++) {
        ddl_mesh_link *link = mesh->by_lane[i];
        if (link->state == DDL_LINK_OPEN && (ddl_lane_peek(link->in).bytes > 0 ||
                                             (ddl_link_linked(&link->dirty) && ddl_lane_room(link->out) > 0)))
            return true;
    }
    return false;
}

void ddl_mesh_flush(ddl_mesh *mesh)
{
    /* Flushing one link may take others from the list, or add to it. */
    ddl_list turn;
    ddl_list_take_all(&mesh->dirty, &turn);
    for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
        ddl_mesh_link *link = DDL_CONTAINER(first, ddl_mesh_link, dirty);
        ddl_mesh_flush_link(link);
        ddl_mesh_mark_dirty(link);
    }
    ddl_mesh_pay_nudges(mesh);
}
