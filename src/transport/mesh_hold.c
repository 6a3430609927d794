/*
 * mesh_hold.c - small messages that leave together.
 *
 * Who only sends, a root whose broadcasts follow each other for one, pays a system call and the way through
 * the kernel for each message, which is many times what all the rest of such a call takes. So once some have
 * gone to a peer in quick succession, each while nothing was awaited over a connection, those that follow are
 * held, and leave with one write: when they are many, or old, when another kind of message follows, when the
 * rank looks for anything, or when the engine sweeps because the program has not called again
 * (ddl_engine_call_for_sweep). So what is last in a succession may be late by 100 us, or by as long as the
 * succession took, and by no more than 1.6 ms.
 */
#include "transport/mesh_link.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "transport/moving.h"

enum {
    HELD_BYTES = 32 * 1024,
    MESSAGE_BYTES = 4 * 1024,  /* one that is longer leaves at once */
    SUCCESSION_NS = 20 * 1000, /* from when one has left to the next, to whomever */
    SUCCESSION = 16,           /* so many leave at once before any is held */
    MOST_COUNTED = 24,         /* a break takes half of them */
    AGE_NS = 20 * 1000, /* for each peer that has some, or there would be few together where these are many */
    MOST_AGED = 16
};

static void stop_holding(ddl_mesh_link *link)
{
    if (!ddl_link_linked(&link->holding))
        return;
    ddl_list_remove(&link->holding);
    link->mesh->nholding--;
}

/* Write what is held for a peer, from within a post. */
static void write_now(ddl_mesh_link *link)
{
    stop_holding(link);
    ddl_mesh_write_held(link);
    ddl_mesh_sent_small(link->mesh);
}

/* What has been held for long, whomever it is for; the list is in the order of that. */
static void write_old(ddl_mesh *mesh, int64_t now_ns)
{
    const int64_t age_ns = AGE_NS * (int64_t)(mesh->nholding < MOST_AGED ? mesh->nholding : MOST_AGED);
    for (ddl_link *first; (first = ddl_list_first(&mesh->holding)) != NULL;) {
        ddl_mesh_link *link = DDL_CONTAINER(first, ddl_mesh_link, holding);
        if (now_ns - link->held_ns <= age_ns)
            return;
        write_now(link);
    }
}

static bool has_room(ddl_mesh_link *link, size_t bytes)
{
    if (link->held == NULL)
        return false;
    if (link->held_bytes + bytes > HELD_BYTES)
        write_now(link);
    return link->held_bytes + bytes <= HELD_BYTES && link->state == DDL_LINK_OPEN;
}

/* Its frame, behind those that are held. */
static void hold(ddl_mesh_link *link, ddl_xfer *xfer, int64_t now_ns)
{
    if (!ddl_mesh_holds(link)) {
        link->held_ns = now_ns;
        ddl_list_append(&link->mesh->holding, &link->holding);
        link->mesh->nholding++;
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
    /* By the first message, whether or not any is ever held: when that is, time decides. */
    if (link->held == NULL && link->out == NULL && xfer->bytes <= MESSAGE_BYTES)
        link->held = ddl_alloc(HELD_BYTES);
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
    write_old(link->mesh, now_ns);
    const bool follows = is_of_succession(link, now_ns);
    const bool is_first = follows && !link->in_succession;
    link->in_succession = follows && ddl_engine_call_for_sweep(link->mesh->engine, now_ns, is_first) &&
                          has_room(link, DDL_FRAME_BYTES + xfer->bytes);
    if (!link->in_succession)
        return false;
    hold(link, xfer, now_ns);
    return true;
}

void ddl_mesh_sent_small(ddl_mesh *mesh)
{
    mesh->small_ns = ddl_now_ns();
}

void ddl_mesh_held_left(ddl_mesh_link *link, size_t bytes)
{
    stop_holding(link); /* if there is more, the connection takes no more now */
    link->held_sent += bytes;
    if (link->held_sent == link->held_bytes)
        link->held_sent = link->held_bytes = 0;
}

void ddl_mesh_flush_held(ddl_mesh *mesh)
{
    for (ddl_link *first; (first = ddl_list_first(&mesh->holding)) != NULL;) {
        ddl_mesh_link *link = DDL_CONTAINER(first, ddl_mesh_link, holding);
        stop_holding(link);
        ddl_mesh_flush_link(link);
    }
}

void ddl_mesh_drop_held(ddl_mesh_link *link)
{
    stop_holding(link);
    ddl_free(link->held);
    link->held = NULL; /* how much of it was sent is still asked, see ddl_mesh_say_last_words */
}
