/*
 * transport_mesh.c - the links of a rank together: their life, and what their owner asks and tells. See
 * transport_mesh.h for the protocol, mesh_link.h for what the other files do.
 */
#include "transport/mesh_link.h"

#include "base/assert.h"
#include "io/local.h"
#include "io/socket.h"

#include <unistd.h>

enum {
    CONTROL_BYTES = 1024,
    ANSWERS_BYTES = 1024 * 1024 /* that wait for a peer; one turn of its questions makes less */
};

/* ---- for the owner ---- */

ddl_transport *ddl_mesh_transport(ddl_mesh *mesh)
{
    return &mesh->transport;
}

bool ddl_mesh_has_queued(const ddl_mesh *mesh)
{
    return !ddl_list_empty(&mesh->dirty);
}

bool ddl_mesh_is_gone(const ddl_mesh *mesh, int peer)
{
    return peer != mesh->rank && mesh->links[peer].state >= DDL_LINK_LEFT;
}

bool ddl_mesh_is_linked(const ddl_mesh *mesh, int peer)
{
    ddl_mesh_link_state state = mesh->links[peer].state;
    return peer != mesh->rank && (state == DDL_LINK_OPEN || state == DDL_LINK_MEETING);
}

bool ddl_mesh_awaits_meeting(const ddl_mesh *mesh)
{
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (mesh->links[peer].state == DDL_LINK_MEETING && mesh->links[peer].control.bytes > 0)
            return true;
    return false;
}

void ddl_mesh_tell_bytes(ddl_mesh *mesh, int peer, const ddl_frame *frame, ddl_view payload)
{
    DDL_ASSERT(peer != mesh->rank);
    DDL_ASSERT(payload.bytes <= DDL_FRAME_NOTICE_LIMIT);
    ddl_frame with_payload = *frame;
    with_payload.bytes = (uint32_t)payload.bytes;
    ddl_mesh_queue_control(&mesh->links[peer], &with_payload, payload.data);
}

void ddl_mesh_tell(ddl_mesh *mesh, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    uint8_t payload[DDL_FRAME_NOTICE_LIMIT];
    size_t bytes = notice != NULL ? ddl_notice_encode(notice, payload) : 0;
    ddl_mesh_tell_bytes(mesh, peer, frame, (ddl_view){ payload, bytes });
}

bool ddl_mesh_may_answer(const ddl_mesh *mesh, int peer)
{
    const ddl_mesh_link *link = &mesh->links[peer];
    return link->control.bytes - link->control_sent < ANSWERS_BYTES;
}

bool ddl_mesh_see(ddl_mesh *mesh, int peer, ddl_signs *signs)
{
    ddl_mesh_link *link = &mesh->links[peer];
    ddl_socket_acks acks = { 0 };
    if (peer == mesh->rank || link->state != DDL_LINK_OPEN)
        return false;
    *signs = (ddl_signs){ .heard = link->bytes_read, .said = link->bytes_said };
    if (link->stripes != NULL)
        signs->heard += ddl_stripes_heard(link->stripes);
    if (link->out != NULL)
        signs->taken = ddl_lane_taken(link->out);
    else
        signs->has_acks = ddl_socket_ask_acks(link->wire.fd, &acks);
    if (signs->has_acks) {
        signs->taken = acks.acked_bytes;
        signs->awaits_acks = acks.awaits_more;
        signs->answers = acks.answers;
        signs->ack_ns = acks.ago_ns;
        signs->tries = acks.tries;
        link->has_left = acks.awaits_more;
    }
    return true;
}

bool ddl_mesh_may_await_acks(const ddl_mesh *mesh, int peer)
{
    const ddl_mesh_link *link = &mesh->links[peer];
    return link->state == DDL_LINK_OPEN && link->out == NULL && link->has_left;
}

void ddl_mesh_ping(ddl_mesh *mesh, int peer)
{
    const ddl_frame ping = { .type = DDL_FRAME_PING };
    ddl_mesh_link *link = &mesh->links[peer];
    if (link->control.bytes == link->control_sent) /* or what waits to leave has to be read as well */
        ddl_mesh_queue_control(link, &ping, NULL);
}

/* ---- life ---- */

/* Room for control frames, so that the first of them in a running operation allocates nothing. */
static bool reserve_control(ddl_mesh_link *link)
{
    static const uint8_t room[CONTROL_BYTES];
    bool reserved = ddl_bytes_append(&link->control, room, sizeof room);
    link->control.bytes = 0;
    return reserved;
}

static bool reserve(ddl_mesh_link *link)
{
    return ddl_earlies_reserve(&link->earlies) && (link->control.bytes > 0 || reserve_control(link)) &&
           (link->wire.tls == NULL || ddl_tls_socket_hurry(link->wire.tls));
}

/* It has woken a sleeper, and that is all: lanes are looked at by every sweep, and before every sleep. */
static void on_bell(uv_poll_t *poll, int status, int events)
{
    ddl_mesh *mesh = poll->data;
    (void)status, (void)events;
    ddl_local_bell_silence(ddl_lanes_bell(mesh->lanes));
}

static size_t notice_bytes(const ddl_mesh *mesh)
{
    return (size_t)mesh->nranks * DDL_FRAME_NOTICE_LIMIT;
}

static void release(ddl_mesh *mesh)
{
    ddl_pages_free(mesh->notices, notice_bytes(mesh));
    ddl_free(mesh->links);
    ddl_free(mesh->nudges_due);
    ddl_free(mesh->by_lane);
    ddl_free(mesh->staging);
    ddl_table_fini(&mesh->expected);
    ddl_free(mesh);
}

/* NULL: no memory. */
static ddl_mesh *reserve_mesh(int nranks)
{
    enum { FIRST_ROWS = 256 };
    ddl_mesh *mesh = ddl_alloc(sizeof *mesh);
    if (mesh == NULL)
        return NULL;
    mesh->nranks = nranks;
    mesh->links = ddl_alloc_array((size_t)nranks, sizeof *mesh->links);
    mesh->staging = ddl_alloc(DDL_MESH_STAGING_BYTES);
    mesh->notices = ddl_pages_alloc(notice_bytes(mesh));
    mesh->by_lane = ddl_alloc_array((size_t)nranks, sizeof(ddl_mesh_link *));
    mesh->nudges_due = ddl_alloc_array((size_t)nranks, sizeof *mesh->nudges_due);
    if (mesh->links != NULL && mesh->staging != NULL && mesh->notices != NULL && mesh->by_lane != NULL &&
        mesh->nudges_due != NULL && ddl_table_init(&mesh->expected, FIRST_ROWS))
        return mesh;
    release(mesh);
    return NULL;
}

static void init_lists(ddl_mesh *mesh)
{
    ddl_list_init(&mesh->hot);
    ddl_list_init(&mesh->dirty);
    ddl_list_init(&mesh->unread);
    ddl_list_init(&mesh->holding);
    ddl_list_init(&mesh->due);
}

/* The lanes take the place of what is said over the wire, of which only the end is of interest from now on.
 */
static void take_lanes(ddl_mesh_link *link)
{
    ddl_mesh *mesh = link->mesh;
    link->in = ddl_lanes_in(mesh->lanes, link->peer);
    link->out = ddl_lanes_out(mesh->lanes, link->peer);
    link->shares_heaps = ddl_lanes_share_heaps(mesh->lanes, link->peer);
    link->heap = ddl_lanes_heap(mesh->lanes, link->peer, &link->heap_bytes);
    mesh->by_lane[mesh->nby_lane++] = link;
    ddl_tls_socket_destroy(link->wire.tls);
    link->wire.tls = NULL;
}

static void init_link(ddl_mesh *mesh, int peer, ddl_wire wire)
{
    ddl_mesh_link *link = &mesh->links[peer];
    link->mesh = mesh;
    link->peer = peer;
    link->wire = wire;
    link->notice = mesh->notices + (size_t)peer * DDL_FRAME_NOTICE_LIMIT;
    link->state = wire.fd >= 0 || peer == mesh->rank ? DDL_LINK_OPEN : DDL_LINK_UNUSED;
    if (mesh->lanes != NULL && peer != mesh->rank && ddl_lanes_reach(mesh->lanes, peer))
        take_lanes(link);
    ddl_list_init(&link->receives);
    ddl_earlies_init(&link->earlies, &mesh->early_pool);
    ddl_list_init(&link->sending);
    ddl_list_init(&link->awaiting);
    link->budget = DDL_CHUNKS;
}

static bool reserve_links(ddl_mesh *mesh)
{
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (peer != mesh->rank && mesh->links[peer].state != DDL_LINK_UNUSED && !reserve(&mesh->links[peer]))
            return false;
    return true;
}

ddl_status ddl_mesh_create(int rank, int nranks, ddl_wire wires[], ddl_lanes *lanes, ddl_heap *heap,
                           const ddl_mesh_owner *owner, ddl_mesh **out, ddl_error *err)
{
    ddl_mesh *mesh = reserve_mesh(nranks);
    if (mesh == NULL) {
        for (int peer = 0; peer < nranks; peer++)
            ddl_wire_close(&wires[peer]);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d links", nranks);
    }
    mesh->transport.ops = &ddl_mesh_ops;
    mesh->rank = rank;
    mesh->owner = *owner;
    mesh->lanes = lanes;
    mesh->heap = heap;
    mesh->page_bytes = ddl_local_page_bytes();
    mesh->pull_bytes = SIZE_MAX;
    init_lists(mesh);
    int nopen = 0;
    for (int peer = 0; peer < nranks; peer++)
        nopen += peer != rank && wires[peer].fd >= 0;
    const bool has_pool = ddl_early_pool_open(&mesh->early_pool, nopen);
    for (int peer = 0; peer < nranks; peer++)
        init_link(mesh, peer, wires[peer]);
    if (!has_pool || !reserve_links(mesh)) {
        for (int peer = 0; peer < nranks; peer++)
            wires[peer] = ddl_no_wire;
        ddl_mesh_destroy(mesh);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d links", nranks);
    }
    *out = mesh;
    return DDL_OK;
}

void ddl_mesh_set_pull(ddl_mesh *mesh, size_t least_bytes)
{
    mesh->pull_bytes = least_bytes;
}

static ddl_status open_bell(ddl_mesh *mesh, ddl_error *err)
{
    int code = uv_poll_init(ddl_engine_loop(mesh->engine), &mesh->bell, ddl_lanes_bell(mesh->lanes));
    if (code == 0) {
        mesh->bell.data = mesh;
        mesh->bell_open = true;
        code = ddl_engine_watch(mesh->engine, &mesh->bell, UV_READABLE, on_bell);
    }
    return code == 0 ? DDL_OK : DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch the bell of lanes");
}

ddl_status ddl_mesh_open(ddl_mesh *mesh, ddl_engine *engine, ddl_error *err)
{
    mesh->engine = engine;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        if (peer == mesh->rank || mesh->links[peer].state == DDL_LINK_UNUSED)
            continue;
        DDL_TRY(ddl_mesh_watch(&mesh->links[peer], err));
        ddl_mesh_note_unread(&mesh->links[peer]);
    }
    return mesh->nby_lane > 0 ? open_bell(mesh, err) : DDL_OK;
}

void ddl_mesh_destroy(ddl_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        ddl_wire_close(&link->wire);
        ddl_stripes_destroy(link->stripes);
        ddl_earlies_fini(&link->earlies);
        ddl_bytes_fini(&link->control);
        ddl_free(link->held);
    }
    ddl_early_pool_close(&mesh->early_pool);
    release(mesh);
}

void ddl_mesh_close_in_child(ddl_mesh *mesh)
{
    for (int peer = 0; peer < mesh->nranks; peer++) {
        if (mesh->links[peer].wire.fd >= 0)
            close(mesh->links[peer].wire.fd);
        if (mesh->links[peer].stripes != NULL)
            ddl_stripes_close_in_child(mesh->links[peer].stripes);
    }
}

/* ---- pairs that are connected late ---- */

/* What was to be sent before there was a connection is sent now. */
static void send_what_waited(ddl_mesh_link *link)
{
    ddl_list turn;
    ddl_list_take_all(&link->awaiting, &turn);
    for (ddl_link *first; (first = ddl_list_first(&turn)) != NULL;) {
        ddl_xfer *xfer = DDL_CONTAINER(first, ddl_xfer, link);
        ddl_mesh_stop_expecting(link, xfer);
        if (link->mesh->transport.ops->send(&link->mesh->transport, xfer))
            ddl_mesh_send_done(link, xfer);
    }
}

void ddl_mesh_meet(ddl_mesh *mesh, int peer, ddl_wire wire)
{
    ddl_mesh_link *link = &mesh->links[peer];
    ddl_error error;
    if (mesh->closed || (link->state != DDL_LINK_UNUSED && link->state != DDL_LINK_MEETING)) {
        ddl_wire_close(&wire);
        return;
    }
    link->wire = wire;
    ddl_status status = reserve(link) ? DDL_OK : DDL_FAIL(&error, DDL_ENOMEM, "no memory for a link");
    if (status == DDL_OK)
        status = ddl_mesh_watch(link, &error);
    if (status != DDL_OK) {
        ddl_mesh_link_lost(link, 0, &error);
        return;
    }
    link->state = DDL_LINK_OPEN;
    ddl_mesh_note_unread(link);
    ddl_mesh_mark_dirty(link);
    ddl_engine_moved(mesh->engine);
    mesh->owner.met(mesh->owner.arg, peer);
    send_what_waited(link);
    ddl_mesh_flush(mesh);
}

void ddl_mesh_miss(ddl_mesh *mesh, int peer, const ddl_error *error)
{
    ddl_mesh_link *link = &mesh->links[peer];
    if (mesh->closed || (link->state != DDL_LINK_UNUSED && link->state != DDL_LINK_MEETING))
        return;
    ddl_engine_moved(mesh->engine);
    if (error->code != DDL_EPEERLOST) {
        ddl_mesh_link_lost(link, 0, error);
        return;
    }
    link->state = DDL_LINK_LEFT;
    mesh->owner.left(mesh->owner.arg, peer);
}
