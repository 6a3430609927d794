/* mesh_end.c - with a goodbye, or without. */
#include "transport/mesh_link.h"

#include "io/socket.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* ---- well ---- */

void ddl_mesh_leave(ddl_mesh_link *link)
{
    ddl_mesh *mesh = link->mesh;
    link->state = DDL_LINK_LEFT;
    ddl_mesh_let_go_of_heap(link);
    ddl_mesh_stop_watching(link);
    /* Who has left waits for that, or for an acknowledgement that the system may put off by 40 ms. */
    if (link->out == NULL)
        shutdown(link->wire.fd, SHUT_WR);
    if (link->stripes != NULL)
        ddl_stripes_shut(link->stripes);
    mesh->owner.left(mesh->owner.arg, link->peer);
}

void ddl_mesh_hear_goodbye(ddl_mesh_link *link)
{
    const bool unheard = link->offered > 0 && !link->peer_widened; /* nothing has gone over the others */
    if (link->stripes == NULL || unheard || ddl_stripes_have_ended(link->stripes)) {
        ddl_mesh_leave(link);
        return;
    }
    link->state = DDL_LINK_LEAVING;
    uv_poll_stop(&link->poll);
    ddl_mesh_mark_dirty(link);
    ddl_mesh_note_unread(link);
}

void ddl_mesh_say_goodbye(ddl_mesh *mesh)
{
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    if (mesh->parting)
        return;
    mesh->parting = true;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        if (peer == mesh->rank || link->state != DDL_LINK_OPEN)
            continue;
        if (link->stripes != NULL)
            ddl_stripes_say_goodbye(link->stripes);
        ddl_mesh_queue_control(link, &goodbye, NULL);
        ddl_mesh_flush_link(link);
    }
    ddl_mesh_pay_nudges(mesh);
}

/* What comes after the own goodbye is nobody's; but the peer may be leaving too, and look for room. Nobody
 * else needs it: a peer that sleeps is woken by the goodbye. */
static void make_room(ddl_mesh_link *link)
{
    ddl_view there = ddl_lane_peek(link->in);
    for (int i = 0; i < DDL_MESH_READS_PER_TURN && there.bytes > 0; i++) {
        ddl_lane_take(link->in, there.bytes);
        there = ddl_lane_peek(link->in);
    }
}

/* Whether closing the link loses nothing of what was said. If it does, what to wait for is in *wait. */
static bool has_parted(ddl_mesh_link *link, struct pollfd *wait)
{
    ddl_mesh *mesh = link->mesh;
    struct pollfd own = { .fd = link->wire.fd };
    ddl_mesh_flush_link(link);
    if (link->out != NULL) { /* lanes stay until their reader is done, with what has found room in them */
        make_room(link);
        return link->state != DDL_LINK_OPEN || link->control.bytes == 0 ||
               ddl_socket_has_ended(link->wire.fd);
    }
    bool parted = link->deaf || link->state != DDL_LINK_OPEN ||
                  ddl_wire_part(&link->wire, link->control.bytes == 0, mesh->staging, DDL_MESH_STAGING_BYTES,
                                &own.events);
    if (!parted)
        *wait = own;
    return (link->stripes == NULL || ddl_stripes_part(link->stripes, wait)) && parted;
}

/* What has parted is not looked at again. False: *wait is for what has not. */
static bool part(ddl_mesh *mesh, struct pollfd *wait)
{
    bool all = true;
    *wait = (struct pollfd){ .fd = -1 };
    for (int peer = 0; peer < mesh->nranks; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        if (peer == mesh->rank || link->state != DDL_LINK_OPEN)
            continue;
        if (!has_parted(link, wait)) {
            all = false;
        } else if (link->state == DDL_LINK_OPEN) {
            link->state = DDL_LINK_LEFT;
            ddl_mesh_stop_watching(link);
        }
    }
    ddl_mesh_pay_nudges(mesh); /* to readers of lanes */
    return all;
}

void ddl_mesh_part(ddl_mesh *mesh, ddl_deadline deadline)
{
    enum { LOOK_MS = 2 }; /* an acknowledgement wakes nobody */
    struct pollfd wait;
    while (!part(mesh, &wait) && !ddl_deadline_passed(deadline)) {
        ddl_deadline look = ddl_deadline_in_ms(LOOK_MS);
        (void)ddl_socket_wait(wait.fd, wait.events, look < deadline ? look : deadline);
    }
}

void ddl_mesh_close(ddl_mesh *mesh)
{
    if (mesh->closed)
        return;
    struct pollfd wait;
    ddl_mesh_say_goodbye(mesh);
    (void)part(mesh, &wait); /* reads at least what would have the system reset a connection */
    mesh->closed = true;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        if (peer == mesh->rank)
            continue;
        link->state = DDL_LINK_LOST; /* also to one that is being met */
        if (link->stripes != NULL)
            ddl_stripes_close(link->stripes);
        ddl_mesh_close_poll(link);
    }
    if (mesh->bell_open)
        uv_close((uv_handle_t *)&mesh->bell, NULL);
    mesh->bell_open = false;
}

/* ---- badly ---- */

/* What is known of a peer when the first of several connections with it ends: whichever of them broke, both
 * sides end them all. */
static void describe_end(const ddl_mesh_link *link, int number, int os_errno, ddl_error *error)
{
    const int count = 1 + ddl_stripes_count(link->stripes);
    char reason[96];
    if (os_errno != 0 && strerror_r(os_errno, reason, sizeof reason) == 0)
        (void)ddl_error_set(error, DDL_EPEERLOST,
                            "connection %d of %d broke (%s): its process ended, or its host or the network "
                            "ended that connection",
                            number, count, reason);
    else
        (void)ddl_error_set(error, DDL_EPEERLOST,
                            "connection %d of %d was closed by the other end: its process ended, or another "
                            "of these connections broke",
                            number, count);
}

void ddl_mesh_connection_lost(ddl_mesh_link *link, int number, int os_errno, const ddl_error *error)
{
    ddl_error one_of_several;
    ddl_mesh_link_state before = link->state;
    link->state = DDL_LINK_LOST;
    link->last_words = before == DDL_LINK_OPEN && error != NULL && !link->deaf;
    if (error == NULL && link->stripes != NULL) {
        describe_end(link, number, os_errno, &one_of_several);
        error = &one_of_several;
    }
    ddl_mesh_let_go_of_heap(link);
    ddl_mesh_stop_watching(link);
    ddl_mesh_note_unread(link);
    if (before < DDL_LINK_LEFT)
        link->mesh->owner.lost(link->mesh->owner.arg, link->peer, os_errno, error);
    if (link->last_words)
        ddl_mesh_say_last_words(link);
    link->last_words = false;
    /* The peer sees that it was given up, also by its other connections. Of one connection that has last
     * words to carry it is those that tell. */
    if (link->stripes != NULL)
        ddl_stripes_shut(link->stripes);
    if (link->stripes != NULL || error == NULL)
        shutdown(link->wire.fd, SHUT_WR);
}

void ddl_mesh_link_lost(ddl_mesh_link *link, int os_errno, const ddl_error *error)
{
    ddl_mesh_connection_lost(link, 1, os_errno, error);
}

void ddl_mesh_link_broke(ddl_mesh_link *link, int os_errno)
{
    ddl_error error;
    if (os_errno == EFAULT) {
        DDL_FAIL(
            &error, DDL_ERESOURCE,
            "a buffer of an operation is no memory that may be read, or written, here (Bad address): was it "
            "freed, is it protected, or on a device that ddl does not know?");
        ddl_mesh_link_lost(link, os_errno, &error);
        return;
    }
    if (!ddl_mesh_is_encrypted(link) || os_errno != EBADMSG) {
        ddl_mesh_link_lost(link, os_errno, NULL);
        return;
    }
    DDL_FAIL(&error, DDL_EPROTO, "what TLS does not take: %s", ddl_wire_problem(&link->wire));
    ddl_mesh_link_lost(link, 0, &error);
}
