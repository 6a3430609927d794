/*
 * transport_mesh.h - messages between ranks: frames over one stream of bytes per pair.
 *
 * The stream is a TCP connection, with TLS on it at that level of security, or between ranks of one host that
 * share memory two lanes (lanes.h); such a pair keeps its connection, which carries nothing any more, for its
 * end: it tells that the peer has died.
 *
 * Small messages leave at once as eager frames, against a budget of chunks per link that the receiver
 * hands back as it consumes them; without budget the sender asks first. Larger messages wait for a grant,
 * which the receiver sends when it posts the receive, so bulk data goes straight from the socket into
 * its destination. Inside a host, a message that lies in the sender's heap, or goes to the receiver's
 * (heap.h), is copied once, or reduced where it lies: its whole pages are, and what is left of it goes
 * through the lane. Where that is the faster way (ddl_mesh_set_pull), any other large message that is not
 * reduced as it comes is read by its receiver from the memory of the sender.
 *
 * Where a pair has further connections, what is granted goes over these in stripes (stripes.h), and
 * everything else over the first; or, by choice of its sender, over as many of these as make it faster
 * (climb.h), which may be none. The end of any of them is the end of the link, but of one that was made late
 * and has carried nothing: that one is given up.
 *
 * The wire never carries what cannot be consumed at once, so readers never stop reading
 * and nothing blocks behind a head of line.
 *
 * Everything here is for the holder of the engine's baton only. What happens to a link is told to the
 * owner; the mesh itself never decides that an operation has failed.
 */
#ifndef DDL_TRANSPORT_TRANSPORT_MESH_H
#define DDL_TRANSPORT_TRANSPORT_MESH_H

#include "base/error.h"
#include "executor/transport.h"
#include "io/engine.h"
#include "io/wire.h"
#include "protocol/frame.h"
#include "protocol/notice.h"
#include "protocol/vigil.h"
#include "transport/heap.h"
#include "transport/lanes.h"

typedef struct ddl_mesh ddl_mesh;

typedef struct ddl_mesh_owner {
    /* A frame about an operation came from peer, before the mesh acts on it. False: nobody here will ever
     * want it; it is read and dropped. */
    bool (*heard)(void *arg, int peer, const ddl_frame *frame);
    /* peer told why the communicator of frame->channel failed. */
    void (*told)(void *arg, int peer, const ddl_frame *frame, const ddl_notice *notice);
    /* peer sent its part of an agreement; the payload is valid during the call. False, with *err set: it is
     * none, and the peer is lost. */
    bool (*agrees)(void *arg, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err);
    /* peer said that it will send nothing more. */
    void (*left)(void *arg, int peer);
    /* The connection to peer ended without a goodbye (os_errno 0: end of file), or carried bytes that are no
     * frames (error is set then). What peer is told during the call it hears in that case, if it can be sent
     * at once; nothing later. Where there are several connections, error is set with DDL_EPEERLOST too: the
     * end of one is the end of all. */
    void (*lost)(void *arg, int peer, int os_errno, const ddl_error *error);
    /* Whether what was granted of this frame's operation may have been cancelled since; NULL: it may. Who
     * sends what was not granted is broken. */
    bool (*cancels)(void *arg, const ddl_frame *frame);
    void *arg;
    /* The rest may be NULL where all pairs are connected at the start. */
    /* Something is to go to peer, or to come from it, and they are not connected: see to it that they are,
     * and tell the mesh (ddl_mesh_meet) or that they cannot be (ddl_mesh_miss). Must not do so at once. */
    void (*reach)(void *arg, int peer);
    /* peer is connected now. */
    void (*met)(void *arg, int peer);
    /* Further connections to peer are to be made, or else it stays as it is. Must not be done at once. */
    void (*widen)(void *arg, int peer);
    /* peer told with an enter frame what else it knows; the payload is valid during the call. */
    void (*knows)(void *arg, int peer, const ddl_frame *frame, ddl_view payload);
} ddl_mesh_owner;

/*
 * wires[i] is connected to rank i (none for the own rank, and where that comes later); the mesh owns them
 * from now on, also on failure, where none is left there. lanes (NULL: none) carry the frames to ranks that
 * they reach; heap (NULL: none) is the one in the memory of this rank. Both must outlive the mesh. engine is
 * created by the caller with ddl_mesh_sweep, ddl_mesh_needs_loop and ddl_mesh_doze as its client.
 */
DDL_MUST_USE ddl_status ddl_mesh_create(int rank, int nranks, ddl_wire wires[], ddl_lanes *lanes,
                                        ddl_heap *heap, const ddl_mesh_owner *owner, ddl_mesh **mesh,
                                        ddl_error *err);

/*
 * Large messages to and from peer go over these connections, not over the first; at the other end alike.
 * Before ddl_mesh_open, or before peer is met. The wires are the mesh's from now on, also on failure.
 */
DDL_MUST_USE ddl_status ddl_mesh_widen(ddl_mesh *mesh, int peer, const ddl_wire wires[], int count,
                                       ddl_error *err);

/*
 * Or they are made late: once either end finds that one connection keeps it waiting, it asks its owner for so
 * many more, a power of two. Then each end chooses by itself over how many of them large messages go, or
 * whether over the first one. At the other end alike. Before ddl_mesh_open; the owner has widen.
 */
void ddl_mesh_let_choose(ddl_mesh *mesh, int peer, int most);

/* They have been made. The wires are the mesh's from now on, also on failure, after which all goes on as
 * before. Holder of the baton. */
DDL_MUST_USE ddl_status ddl_mesh_widen_late(ddl_mesh *mesh, int peer, const ddl_wire wires[], ddl_error *err);

/* Between ranks that can read each other's memory, messages of so many bytes and more are read by the
 * receiver where they lie; all ranks say the same. Before ddl_mesh_open; without it, none. */
void ddl_mesh_set_pull(ddl_mesh *mesh, size_t least_bytes);

/* Start to listen to the sockets on this engine. */
DDL_MUST_USE ddl_status ddl_mesh_open(ddl_mesh *mesh, ddl_engine *engine, ddl_error *err);

ddl_transport *ddl_mesh_transport(ddl_mesh *mesh);

/* For the engine's client. What moves is told by ddl_engine_moved. */
void ddl_mesh_sweep(ddl_mesh *mesh);
bool ddl_mesh_needs_loop(const ddl_mesh *mesh);
bool ddl_mesh_doze(ddl_mesh *mesh);

/* To be called every 20 ms or so: look whether more connections are worth it. */
void ddl_mesh_choose(ddl_mesh *mesh, int64_t now_ns);

/* To be called a few times a second: lose those of whom one of several connections is cut off, though the
 * first is not. */
void ddl_mesh_watch_stripes(ddl_mesh *mesh, const ddl_vigil_limits *limits, int64_t now_ns);

/* Whether something waits to be written. */
bool ddl_mesh_has_queued(const ddl_mesh *mesh);

/* Whether peer has said goodbye, or its connection is gone. */
bool ddl_mesh_is_gone(const ddl_mesh *mesh, int peer);

/* Whether peer is connected, or about to be. */
bool ddl_mesh_is_linked(const ddl_mesh *mesh, int peer);

/* Whether something waits for a connection so that it can leave, but for what operations send. */
bool ddl_mesh_awaits_meeting(const ddl_mesh *mesh);

/* peer is connected: what waited goes now. The wire is the mesh's from now on. */
void ddl_mesh_meet(ddl_mesh *mesh, int peer, ddl_wire wire);

/* peer cannot be had: DDL_EPEERLOST, as it has left; anything else as if the connection had ended. */
void ddl_mesh_miss(ddl_mesh *mesh, int peer, const ddl_error *error);

/* Visit what came early for an operation that was not issued: messages, asks and grants. */
void ddl_mesh_visit_early(ddl_mesh *mesh, uint32_t channel, uint64_t sequence,
                          void (*visit)(void *arg, int peer, const ddl_frame *frame), void *arg);

/* Queue a frame without payload (enter) or with a notice (abort) to one peer; as all that is queued, it makes
 * for a connection where there is none. */
void ddl_mesh_tell(ddl_mesh *mesh, int peer, const ddl_frame *frame, const ddl_notice *notice);

/* Queue a frame with at most DDL_FRAME_NOTICE_LIMIT bytes of payload to one peer. */
void ddl_mesh_tell_bytes(ddl_mesh *mesh, int peer, const ddl_frame *frame, ddl_view payload);

/* Whether what is only an answer to peer may be queued: who asks again and again, and does not read, has been
 * answered. */
bool ddl_mesh_may_answer(const ddl_mesh *mesh, int peer);

/* What shows that peer lives. False: it is not connected. */
bool ddl_mesh_see(ddl_mesh *mesh, int peer, ddl_signs *signs);

/* Without asking the system: false where all that was sent had been acknowledged when it was last asked. */
bool ddl_mesh_may_await_acks(const ddl_mesh *mesh, int peer);

/* Have it show that it does: within a second or so, wherever its program is. */
void ddl_mesh_ping(ddl_mesh *mesh, int peer);

/* Write queued control frames as far as the sockets take them. */
void ddl_mesh_flush(ddl_mesh *mesh);

/* Drop what came early on `count` channels from the first one on: nobody will want it any more. Their xfers
 * have been cancelled, and the owner no longer wants what is still on its way. */
void ddl_mesh_forget(ddl_mesh *mesh, uint32_t first_channel, uint32_t count);

/* Say goodbye on every link, as far as that goes at once. Nothing else is to be sent after it, and the loop
 * not to run. */
void ddl_mesh_say_goodbye(ddl_mesh *mesh);

/* After that, before the links are closed, which this process may also do by ending: wait until it has come
 * to all hosts of peers, or they have closed too. */
void ddl_mesh_part(ddl_mesh *mesh, ddl_deadline deadline);

/* Say goodbye, if that is not said, and close all links. The mesh is freed by ddl_mesh_destroy once the loop
 * has run. */
void ddl_mesh_close(ddl_mesh *mesh);

/* After close, and after the engine's loop has run the close callbacks. NULL is fine. */
void ddl_mesh_destroy(ddl_mesh *mesh);

/* In a forked child. */
void ddl_mesh_close_in_child(ddl_mesh *mesh);

#endif
