/* mesh_poll.c - readable, writable, broken. */
#include "transport/mesh_link.h"

#include "io/socket.h"

#include <errno.h>
#include <sys/socket.h>

/* The connection of a pair that talks by lanes has ended, or carries what it never should. What the peer said
 * before lies in the lane. */
static void end_of_connection(ddl_mesh_link *link)
{
    uint8_t byte;
    ssize_t got = recv(link->wire.fd, &byte, 1, MSG_DONTWAIT);
    int cause = got < 0 ? errno : 0;
    if (cause == EAGAIN || cause == EWOULDBLOCK || cause == EINTR)
        return;
    ddl_mesh_read_to_the_end(link);
    if (link->state != DDL_LINK_OPEN)
        return;
    ddl_error error;
    if (got > 0)
        DDL_FAIL(&error, DDL_EPROTO, "bytes on a connection beside lanes");
    ddl_mesh_link_lost(link, cause, got > 0 ? &error : NULL);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    ddl_mesh_link *link = poll->data;
    if (link->in != NULL && status >= 0) {
        end_of_connection(link);
        ddl_mesh_pay_nudges(link->mesh);
        return;
    }
    /* The loop tells an error of the socket, whatever it is, as UV_EBADF and watches no more. What the peer
     * said before it closed may still be unread, a goodbye for one; reading on comes to the error itself. */
    if (status < 0) {
        ddl_mesh_read_to_the_end(link);
        if (link->state == DDL_LINK_OPEN)
            ddl_mesh_link_lost(link, ECONNRESET, NULL);
        ddl_mesh_pay_nudges(link->mesh);
        return;
    }
    if ((events & UV_WRITABLE) != 0)
        ddl_mesh_flush_link(link);
    if ((events & UV_READABLE) != 0)
        ddl_mesh_read_link(link);
    ddl_mesh_pay_nudges(link->mesh);
}

void ddl_mesh_want_writable(ddl_mesh_link *link, bool wanted)
{
    if (link->out != NULL) /* tried at every sweep; before sleep, see ddl_mesh_doze */
        return;
    if (link->wants_writable == wanted || !link->poll_open || link->state == DDL_LINK_LOST)
        return;
    link->wants_writable = wanted;
    ddl_engine_watch(link->mesh->engine, &link->poll, UV_READABLE | (wanted ? UV_WRITABLE : 0), on_poll);
}

ddl_status ddl_mesh_watch(ddl_mesh_link *link, ddl_error *err)
{
    int code = uv_poll_init(ddl_engine_loop(link->mesh->engine), &link->poll, link->wire.fd);
    if (code != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch the connection to rank %d", link->peer);
    link->poll.data = link;
    link->poll_open = true;
    if (link->in == NULL) /* else nothing goes over it */
        ddl_socket_avoid_pacing(link->wire.fd);
    code = ddl_engine_watch(link->mesh->engine, &link->poll, UV_READABLE, on_poll);
    if (code != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch the connection to rank %d", link->peer);
    return link->stripes != NULL ? ddl_stripes_open(link->stripes, link->mesh->engine, err) : DDL_OK;
}

void ddl_mesh_stop_watching(ddl_mesh_link *link)
{
    if (link->poll_open)
        uv_poll_stop(&link->poll);
    if (link->stripes != NULL)
        ddl_stripes_stop(link->stripes);
    ddl_mesh_drop_held(link);
    ddl_mesh_mark_dirty(link);
}

static void on_poll_closed(uv_handle_t *handle)
{
    ddl_mesh_link *link = handle->data;
    ddl_wire_close(&link->wire);
}

void ddl_mesh_close_poll(ddl_mesh_link *link)
{
    if (link->poll_open)
        uv_close((uv_handle_t *)&link->poll, on_poll_closed);
    link->poll_open = false;
}
