/*
 * fuzz_frame.c - bytes from a peer: headers and notices as they are decoded, and a mesh that reads them.
 *
 * Whatever comes, a decoder refuses it or gives something that encodes to the same bytes, and the mesh
 * neither crashes nor holds more than its budget.
 */
#include "../io/idle_client.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "protocol/agreement.h"
#include "protocol/frame.h"
#include "protocol/notice.h"
#include "protocol/sightings.h"
#include "transport/transport_mesh.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_header(const uint8_t *data)
{
    ddl_frame frame;
    ddl_error error;
    if (ddl_frame_decode(data, &frame, &error) != DDL_OK) {
        DDL_ASSERT(error.text[0] != '\0');
        return;
    }
    uint8_t again[DDL_FRAME_BYTES];
    ddl_frame_encode(&frame, again);
    DDL_ASSERT(memcmp(data, again, sizeof again) == 0);
}

static void decode_notice(const uint8_t *data, size_t size)
{
    ddl_notice notice;
    if (ddl_notice_decode((ddl_view){ data, size }, 8, &notice, NULL) != DDL_OK)
        return;
    uint8_t again[DDL_FRAME_NOTICE_LIMIT];
    DDL_ASSERT(ddl_notice_encode(&notice, again) <= size);
    DDL_ASSERT(notice.culprit < 8);
}

/* Of who is in an operation, which enter frames may have, in worlds whose bits end within a byte or with it.
 */
static void decode_sightings(const uint8_t *data, size_t size)
{
    static const int worlds[] = { 1, 2, 8, 70 };
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        ddl_sightings sightings;
        int seen = 0;
        if (ddl_sightings_decode((ddl_view){ data, size }, worlds[i], &sightings, NULL) != DDL_OK)
            continue;
        for (int rank = 0; rank < worlds[i]; rank++)
            seen += ddl_sightings_has(&sightings, rank);
        DDL_ASSERT(seen <= sightings.nranks && sightings.nranks == worlds[i]);
    }
}

/* Any bytes are a place: it is where it lies that is checked, by who goes there. */
static void decode_place(const uint8_t *data)
{
    uint8_t again[DDL_FRAME_PLACE_BYTES];
    const ddl_frame_place place = ddl_frame_place_decode(data);
    ddl_frame_place_encode(&place, again);
    DDL_ASSERT(memcmp(data, again, sizeof again) == 0);
}

/* ---- a mesh of two, whose other end is the input ---- */

typedef struct world {
    ddl_engine *engine;
    ddl_mesh *mesh;
} world;

static bool on_heard(void *arg, int peer, const ddl_frame *frame)
{
    (void)arg;
    DDL_ASSERT(peer == 1);
    DDL_ASSERT(frame->type > 0 && frame->type < DDL_FRAME_TYPES);
    return frame->channel < 4;
}

static bool on_agreement(void *arg, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err)
{
    (void)arg;
    (void)peer;
    DDL_ASSERT(frame->type == DDL_FRAME_AGREE);
    ddl_agreement *agreement;
    ddl_bytes report = { 0 };
    DDL_ASSERT(ddl_agreement_create(0, 9, 7, &agreement, err) == DDL_OK);
    ddl_agreement_enter(agreement);
    const bool sound = ddl_agreement_hear(agreement, 1 + (int)(frame->sequence % 8), payload, err) == DDL_OK;
    DDL_ASSERT(sound || err->code == DDL_EPROTO);
    while (ddl_agreement_report(agreement, &report))
        ;
    (void)ddl_agreement_result(agreement);
    ddl_bytes_fini(&report);
    ddl_agreement_destroy(agreement);
    return sound;
}

static void on_told(void *arg, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    (void)arg;
    (void)peer;
    (void)frame;
    DDL_ASSERT(notice->culprit >= -1 && notice->culprit < 2);
}

static void on_left(void *arg, int peer)
{
    (void)arg;
    (void)peer;
}

static void on_lost(void *arg, int peer, int os_errno, const ddl_error *error)
{
    (void)arg;
    (void)peer;
    (void)os_errno;
    (void)error;
}

static bool sweep(void *arg)
{
    ddl_mesh_sweep(((world *)arg)->mesh);
    return false;
}

static void on_done(ddl_xfer *xfer)
{
    (void)xfer;
}

/* on_stripes: the input comes over a connection for stripes, in which the receive is due then. */
static void feed_mesh(const uint8_t *data, size_t size, bool on_stripes)
{
    static ddl_engine *engine; /* kept: a thread per input would be slow */
    static world w;
    if (engine == NULL) {
        ddl_engine_client client = idle_client(&w);
        client.sweep = sweep;
        DDL_ASSERT(ddl_engine_create(&client, false, &engine, NULL) == DDL_OK);
        DDL_ASSERT(ddl_engine_try_enter(engine));
    }
    int pair[2], more[2];
    DDL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    DDL_ASSERT(!on_stripes || socketpair(AF_UNIX, SOCK_STREAM, 0, more) == 0);
    ddl_wire wires[2] = { { -1, NULL }, { pair[0], NULL } };
    ddl_mesh_owner owner = {
        .heard = on_heard, .told = on_told, .agrees = on_agreement, .left = on_left, .lost = on_lost
    };
    DDL_ASSERT(ddl_mesh_create(0, 2, wires, NULL, NULL, &owner, &w.mesh, NULL) == DDL_OK);
    const ddl_wire stripes = { on_stripes ? more[0] : -1, NULL };
    DDL_ASSERT(!on_stripes || ddl_mesh_widen(w.mesh, 1, &stripes, 1, NULL) == DDL_OK);
    DDL_ASSERT(ddl_mesh_open(w.mesh, engine, NULL) == DDL_OK);
    /* One receive and one send wait, under keys that are easy to hit. */
    static const ddl_signature signature = { 0 };
    static uint8_t buffer[70000], bulk[70000];
    const size_t in_bytes = on_stripes ? sizeof buffer : 128;
    ddl_xfer in = { .peer = 1,
                    .part = { { buffer, 100 }, { buffer + 100, in_bytes - 100 } },
                    .bytes = in_bytes,
                    .signature = &signature,
                    .done = on_done };
    ddl_xfer out = { .key = { .sequence = 1 },
                     .peer = 1,
                     .part = { { bulk, sizeof bulk }, { NULL, 0 } },
                     .bytes = sizeof bulk,
                     .signature = &signature,
                     .done = on_done };
    ddl_transport *transport = ddl_mesh_transport(w.mesh);
    transport->ops->recv(transport, &in);
    transport->ops->send(transport, &out);
    ssize_t written = send(on_stripes ? more[1] : pair[1], data, size < 100000 ? size : 100000,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)written;
    for (int turn = 0; turn < 3; turn++)
        ddl_engine_progress(engine);
    transport->ops->cancel(transport, &in);
    transport->ops->cancel(transport, &out);
    ddl_mesh_close(w.mesh);
    ddl_engine_progress(engine);
    ddl_mesh_destroy(w.mesh);
    w.mesh = NULL;
    close(pair[1]);
    if (on_stripes)
        close(more[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= DDL_FRAME_BYTES)
        decode_header(data);
    if (size >= DDL_FRAME_PLACE_BYTES)
        decode_place(data);
    decode_notice(data, size);
    decode_sightings(data, size);
    feed_mesh(data, size, false);
    feed_mesh(data, size, true);
    return 0;
}
