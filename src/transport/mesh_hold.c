/*
 * mesh_hold.c - small messages that leave together.
 *
 * Who only sends, a root whose broadcasts follow each other for one, pays a system call and the way through
 * the kernel for each message, which is many times what all the rest of such a call takes. So once some have
 * gone in quick succession, and nothing is awaited from anybody, those that follow are held, and leave with
 * one write: when they are many, or old, when another kind of message follows, when the rank looks for
 * anything, or when the engine sweeps because the program has not called again (ddl_engine_call_for_sweep).
 * So what is last in a succession may be late by 100 us, or by as long as the succession took, and by no more
 * than 1.6 ms.
 */
#include "transport/mesh_link.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "transport/moving.h"

enum {
    HELD_BYTES = 32 * 1024,
    MESSAGE_BYTES = 4 * 1024,  /* one that is longer leaves at once */
    SUCCESSION_NS = 20 * 1000, /* from one to the next */
    SUCCESSION = 16,           /* so many leave at once before any is held */
    MOST_COUNTED = 24,         /* a break takes half of them */
    AGE_NS = 20 * 1000
};

static bool has_room(ddl_mesh_link *link, size_t bytes)
{
    if (link->held == NULL && (link->held = ddl_alloc(HELD_BYTES)) == NULL)
        return false;
    if (link->held_bytes + bytes <= HELD_BYTES)
        return true;
    ddl_mesh_flush_link(link);
    ddl_mesh_sent_small(link->mesh);
    return link->held_bytes + bytes <= HELD_BYTES;
}

/* Its frame, behind those that are held. */
static void hold(ddl_mesh_link *link, ddl_xfer *xfer, int64_t now_ns)
{
    if (!ddl_mesh_holds(link)) {
        link->held_ns = now_ns;
        ddl_list_append(&link->mesh->holding, &link->holding);
    }
    ddl_frame frame = ddl_mesh_frame_of(xfer, DDL_FRAME_EAGER);
    frame.bytes = (uint32_t)xfer->bytes;
    frame.credit = link->credit_due;
    link->credit_due = 0;
    ddl_frame_encode(&frame, link->held + link->held_bytes);
    ddl_moving_copy_out(xfer, 0, link->held + link->held_bytes + DDL_FRAME_BYTES, xfer->bytes);
    link->held_bytes += DDL_FRAME_BYTES + xfer->bytes;
    xfer->state = DDL_XFER_IDLE;
}

bool ddl_mesh_is_small(ddl_mesh_link *link, const ddl_xfer *xfer)
{
    const bool small = xfer->bytes <= MESSAGE_BYTES && link->out == NULL && link->mesh->nhot == 0 &&
                       link->control.bytes == 0 && !link->wants_writable;
    if (!small)
        link->nsmall = 0;
    return small;
}

/* Whether enough have gone in succession. */
static bool is_of_succession(ddl_mesh_link *link, int64_t now_ns)
{
    ddl_mesh *mesh = link->mesh;
    if (now_ns - mesh->small_ns > SUCCESSION_NS)
        mesh->nbreaks++;
    if (link->nbreaks != mesh->nbreaks)
        link->nsmall /= 2;
    else if (link->nsmall < MOST_COUNTED)
        link->nsmall++;
    link->nbreaks = mesh->nbreaks;
    mesh->small_ns = now_ns;
    return link->nsmall >= SUCCESSION;
}

bool ddl_mesh_hold(ddl_mesh_link *link, ddl_xfer *xfer)
{
    const int64_t now_ns = ddl_now_ns();
    if (!is_of_succession(link, now_ns) || !has_room(link, DDL_FRAME_BYTES + xfer->bytes) ||
        !ddl_engine_call_for_sweep(link->mesh->engine, now_ns, link->nsmall == SUCCESSION))
        return false;
    hold(link, xfer, now_ns);
    if (now_ns - link->held_ns > AGE_NS) {
        ddl_mesh_flush_link(link);
        ddl_mesh_sent_small(link->mesh);
    }
    return true;
}

void ddl_mesh_sent_small(ddl_mesh *mesh)
{
    mesh->small_ns = ddl_now_ns();
}

void ddl_mesh_held_left(ddl_mesh_link *link, size_t bytes)
{
    if (ddl_link_linked(&link->holding)) /* if there is more, the connection takes no more now */
        ddl_list_remove(&link->holding);
    link->held_sent += bytes;
    if (link->held_sent == link->held_bytes)
        link->held_sent = link->held_bytes = 0;
}

void ddl_mesh_flush_held(ddl_mesh *mesh)
{
    for (ddl_link *first; (first = ddl_list_first(&mesh->holding)) != NULL;) {
        ddl_list_remove(first);
        ddl_mesh_flush_link(DDL_CONTAINER(first, ddl_mesh_link, holding));
    }
}
