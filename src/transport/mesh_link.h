/*
 * mesh_link.h - the link to one peer, as the files of the mesh share it. What a user of the mesh needs is in
 * transport_mesh.h.
 *
 * All of it is for the holder of the engine's baton. Telling the owner of something, or a poster that its
 * xfer is done, may change any link.
 */
#ifndef DDL_TRANSPORT_MESH_LINK_H
#define DDL_TRANSPORT_MESH_LINK_H

#include "base/bytes.h"
#include "base/table.h"
#include "transport/climb.h"
#include "transport/early.h"
#include "transport/stripes.h"
#include "transport/transport_mesh.h"

enum {
    DDL_MESH_STAGING_BYTES = 64 * 1024 + DDL_FRAME_BYTES,
    DDL_MESH_READS_PER_TURN = 8,
};

/*
 * ddl_xfer.state. What waits for the other end, for which of its frames, and what it does then; other frames
 * that cross on their way it ignores, or they break the link. A frame that comes before the message is posted
 * is held, and heard when it is (mesh_match.c, mesh_pages.c).
 *
 *   the sender         hears
 *   AWAITING_GRANT     GRANT: sends all               PLACE: puts it there
 *   OFFERED            TAKEN: sends the rest          PLACE: puts it there  (not GRANT, as it is offered)
 *   LENT               TAKEN: done; GRANT: sends all  PLACE: puts it there
 *
 *   the receiver
 *   RECEIVING          EAGER; ASK: says GRANT         OFFER: takes it       SOURCE: pulls it
 *   RECEIVING_GRANTED  BULK                           OFFER: takes it       (not SOURCE, as it is granted)
 *   RECEIVING_PLACED   REST                           (not OFFER, as it is put where that was told to)
 *   RECEIVING_REST     REST
 */
typedef enum ddl_mesh_xfer_state {
    DDL_XFER_IDLE,
    DDL_XFER_SENDING_EAGER,
    DDL_XFER_SENDING_BULK,
    DDL_XFER_SENDING_REST,
    DDL_XFER_SENDING_STRIPES,
    DDL_XFER_AWAITING_GRANT,
    DDL_XFER_OFFERED, /* awaiting that it is taken, or a place to put it */
    DDL_XFER_LENT,    /* likewise, or a grant: the peer was told the source */
    DDL_XFER_PUT_DUE,
    DDL_XFER_RECEIVING,
    DDL_XFER_RECEIVING_GRANTED,
    DDL_XFER_RECEIVING_STRIPES,
    DDL_XFER_RECEIVING_PLACED, /* the peer may write into the heap */
    DDL_XFER_TAKE_DUE,
    DDL_XFER_PULL_DUE,
    DDL_XFER_RECEIVING_REST
} ddl_mesh_xfer_state;

/* Where the payload that is coming goes. */
typedef enum ddl_mesh_sink {
    DDL_SINK_NONE,
    DDL_SINK_XFER,
    DDL_SINK_EARLY,
    DDL_SINK_NOTICE,
    DDL_SINK_PLACE,
    DDL_SINK_DROP
} ddl_mesh_sink;

typedef enum ddl_mesh_link_state {
    DDL_LINK_OPEN,
    DDL_LINK_UNUSED,  /* not connected, as nobody wants it to be */
    DDL_LINK_MEETING, /* not connected yet */
    DDL_LINK_LEAVING, /* the peer has said goodbye, but not yet behind its last stripes */
    DDL_LINK_LEFT,
    DDL_LINK_LOST
} ddl_mesh_link_state;

typedef struct ddl_mesh_link {
    ddl_mesh *mesh;
    int peer;
    ddl_wire wire;
    ddl_stripes *stripes; /* further connections; NULL: none */
    int offered;          /* how many there may be, where they are made late; 0: the link stays as it is */
    bool peer_widened;    /* it listens to those that were made late */
    ddl_climb climb;      /* where they are offered: how many connections what is large takes; 1: the first */
    bool sent_large;      /* since that was looked at */
    uint64_t heard_before;  /* bytes over the first one, when connections were looked at */
    int64_t heard_ns;       /* when there were more of them than before */
    ddl_vigil leaving;      /* over what is still to come of a rank that has said goodbye */
    ddl_lane_end *in, *out; /* the stream is two lanes; NULL: it is the connection */
    bool shares_heaps;
    uint8_t *heap; /* the peer's */
    size_t heap_bytes;
    ddl_mesh_link_state state;
    uv_poll_t poll;
    bool poll_open, wants_writable;
    bool last_words; /* the owner is being told that the link is lost, and may still answer */
    bool deaf; /* a write failed. What the peer said before it closed may still be unread: reading tells the
                  end */
    int reset_errno; /* and why, if the system has said so */

    /* Incoming */
    uint64_t bytes_read;
    uint8_t partial[DDL_FRAME_BYTES]; /* a header that has not come whole */
    size_t partial_bytes;
    ddl_frame frame;     /* whose payload is coming */
    size_t payload_left; /* of it */
    ddl_mesh_sink sink;
    ddl_xfer *sink_xfer;
    ddl_early *sink_early;
    uint8_t *notice;   /* DDL_FRAME_NOTICE_LIMIT bytes */
    ddl_list receives; /* posted xfers, oldest first */
    ddl_earlies earlies;
    uint32_t bulk_due;   /* receives granted, message not begun */
    uint32_t credit_due; /* chunks consumed and not told */

    /* Outgoing */
    uint32_t budget;     /* chunks that may still be sent eagerly */
    ddl_list sending;    /* xfers whose frame is due; the first may be under way */
    ddl_list awaiting;   /* xfers that wait for a grant */
    ddl_bytes control;   /* frames without xfer */
    uint64_t bytes_said; /* of them, ever */
    bool has_left;       /* something, since all that had was acknowledged */
    size_t control_sent;
    uint8_t header[DDL_FRAME_BYTES]; /* of the first of sending */
    size_t header_sent;
    uint32_t header_credit; /* in it */
    bool begun;             /* the first of sending has its header encoded */
    bool flushing;

    /* Small messages that leave together */
    uint8_t *held; /* their frames; NULL: there were none yet, or the link has ended */
    size_t held_bytes, held_sent;
    int64_t held_ns;  /* when the first of them came */
    int nsmall;       /* that came in quick succession, since */
    unsigned nbreaks; /* so many breaks */
    bool in_succession;

    int expecting;    /* posted receives and awaited grants */
    bool nudge_due;   /* something was written to the lane since the peer was last looked at */
    ddl_link hot;     /* in mesh->hot while expecting > 0 */
    ddl_link dirty;   /* in mesh->dirty while something is queued */
    ddl_link unread;  /* in mesh->unread while its TLS session holds bytes that no poll shows */
    ddl_link holding; /* in mesh->holding while messages are held that the connection might take */
} ddl_mesh_link;

struct ddl_mesh {
    ddl_transport transport;
    int rank, nranks;
    ddl_mesh_owner owner;
    ddl_engine *engine;
    ddl_lanes *lanes; /* NULL: none */
    ddl_heap *heap;   /* the own one; NULL: none */
    size_t page_bytes;
    size_t pull_bytes; /* messages of so many and more are read at their source where that is possible */
    ddl_mesh_link **by_lane; /* those whose stream is lanes; nby_lane of them */
    int *nudges_due;         /* to these of their ranks, nnudges_due of them */
    int nby_lane, nnudges_due;
    uv_poll_t bell; /* of the lanes */
    bool bell_open;
    ddl_mesh_link *links; /* nranks; the own one is unused */
    ddl_list hot, dirty, unread, holding;
    ddl_list due;       /* xfers whose pages are to be put or taken */
    ddl_table expected; /* these, and those that links have in receives and awaiting, by key */
    int nhot, nholding;
    int nstriped;   /* xfers that go in stripes */
    bool by_choice; /* to some ranks, what is large goes in stripes where that is faster */
    ddl_early_pool early_pool;
    bool parting, closed;
    int64_t small_ns; /* when the last small message had been sent, to whomever */
    unsigned nbreaks; /* in the succession of small messages */
    uint8_t *staging;
    uint8_t *notices;                      /* of all links */
    uint8_t gathered[DDL_WIRE_ROOM_BYTES]; /* also the stripes' room */
};

/* Lanes have taken the place of the connection, where there are any. */
static inline bool ddl_mesh_is_encrypted(const ddl_mesh_link *link)
{
    return link->wire.tls != NULL && link->out == NULL;
}

static inline bool ddl_mesh_has_unsent(const ddl_mesh_link *link)
{
    return ddl_mesh_is_encrypted(link) && ddl_wire_has_unsent(&link->wire);
}

/* ---- mesh_link.c: what waits at a link ---- */

/* Of the link's receives, or of those that await a grant, the xfer of the frame's message; NULL: none is. */
ddl_xfer *ddl_mesh_find_receive(const ddl_mesh_link *link, const ddl_frame *frame);
ddl_xfer *ddl_mesh_find_awaiting(const ddl_mesh_link *link, const ddl_frame *frame);

ddl_frame ddl_mesh_frame_of(const ddl_xfer *xfer, ddl_frame_type type);

/* Something is to go through the link: from the first time on it is being connected. */
void ddl_mesh_want_link(ddl_mesh_link *link);

/* A posted xfer waits for the peer, in this list, and leaves it. */
void ddl_mesh_expect(ddl_mesh_link *link, ddl_list *list, ddl_xfer *xfer);
void ddl_mesh_stop_expecting(ddl_mesh_link *link, ddl_xfer *xfer);

void ddl_mesh_await_message(ddl_mesh_link *link, ddl_xfer *xfer);

/* Tell the poster. */
void ddl_mesh_send_done(ddl_mesh_link *link, ddl_xfer *xfer);
void ddl_mesh_receive_done(ddl_mesh_link *link, ddl_xfer *xfer);

/* Keep the link among those to be written to exactly while something is queued. */
void ddl_mesh_mark_dirty(ddl_mesh_link *link);

/* ---- mesh_write.c: what leaves ---- */

/* A frame without an xfer, with frame->bytes of payload. Whoever is gone hears nothing. */
void ddl_mesh_queue_control(ddl_mesh_link *link, const ddl_frame *frame, const void *payload);

void ddl_mesh_queue_grant(ddl_mesh_link *link, ddl_xfer *xfer);

/* So a message that was granted comes, which was not known before its first stripe. */
void ddl_mesh_comes_in_stripes(ddl_mesh_link *link, ddl_xfer *xfer);

/* The link has further connections now: what was granted before it had any comes over them, as its sender,
 * who hears of the grant later, has them by then. */
void ddl_mesh_await_in_stripes(ddl_mesh_link *link);

/* The peer says that it listens to further connections. False: it cannot be. */
bool ddl_mesh_hear_widened(ddl_mesh_link *link, ddl_error *err);

/* So many chunks were consumed: the peer hears of it at some time. */
void ddl_mesh_give_credit(ddl_mesh_link *link, uint32_t chunks);

/* Something was written to the peer's lane, or taken out of its own: it may have to be woken, which is looked
 * at when that is paid. */
void ddl_mesh_owe_nudge(ddl_mesh_link *link);
void ddl_mesh_pay_nudges(ddl_mesh *mesh);

/* Write until nothing is left or the socket is full, and tell posters of finished xfers. */
void ddl_mesh_flush_link(ddl_mesh_link *link);

/* From within a post: write what is held, and queued control frames with it, unless xfers wait behind it. */
void ddl_mesh_write_held(ddl_mesh_link *link);

/* Queue an xfer's frame; true if it left whole at once. Control frames ahead of it leave with it. */
bool ddl_mesh_send_frame(ddl_mesh_link *link, ddl_xfer *xfer, ddl_mesh_xfer_state state);

/* A granted message goes; true if it left whole at once. */
bool ddl_mesh_send_granted(ddl_mesh_link *link, ddl_xfer *xfer);

/* Put a copy of what is left of the frame that is under way before everything else that is queued. False: no
 * memory. */
bool ddl_mesh_finish_from_copy(ddl_mesh_link *link, ddl_xfer *xfer);

/* Who sent what cannot be is there to hear why nobody listens any more: as far as that goes at once, and not
 * in the middle of a message. */
void ddl_mesh_say_last_words(ddl_mesh_link *link);

/* ---- mesh_hold.c: small messages that leave together ---- */

/* Whether an eager message may be one of those, now. */
bool ddl_mesh_is_small(ddl_mesh_link *link, const ddl_xfer *xfer);

/* Some have left, which took as long as it did. */
void ddl_mesh_sent_small(ddl_mesh *mesh);

/* True: the message is as good as sent, and leaves with others soon. */
bool ddl_mesh_hold(ddl_mesh_link *link, ddl_xfer *xfer);

static inline bool ddl_mesh_holds(const ddl_mesh_link *link)
{
    return link->held_bytes > link->held_sent;
}

/* So many of the bytes held were written. */
void ddl_mesh_held_left(ddl_mesh_link *link, size_t bytes);

/* Write what is held. */
void ddl_mesh_flush_held(ddl_mesh *mesh);

/* Of a link that has ended. */
void ddl_mesh_drop_held(ddl_mesh_link *link);

/* ---- mesh_pages.c: messages that are reached in the memory of the other rank ---- */

/* Where a message lies that the peer can reach; its hole is cut then. */
bool ddl_mesh_find_place(const ddl_mesh_link *link, ddl_xfer *xfer, ddl_frame_place *place);

/* The same as it is told in an offer, with whether the peer may write there what becomes of it. */
ddl_frame_place ddl_mesh_offer_of(const ddl_xfer *xfer, const ddl_frame_place *place);

/* The operation is over, but the peer may not know: it must not reach what is the program's again. */
void ddl_mesh_withdraw(const ddl_mesh *mesh, const ddl_xfer *xfer);

void ddl_mesh_queue_place(ddl_mesh_link *link, const ddl_xfer *xfer, ddl_frame_type type,
                          const ddl_frame_place *place);

/*
 * A receiver that reads such a message gives no grant by itself: it waits for the source, or for a question
 * if there is none to tell. So a sender says one or the other wherever the peer might wait.
 */
bool ddl_mesh_may_be_pulled(const ddl_mesh_link *link, const ddl_xfer *xfer);
bool ddl_mesh_is_pulled(const ddl_mesh_link *link, const ddl_xfer *xfer);

/* What the receiver is told of a message that it may pull. */
ddl_frame_place ddl_mesh_source_of(const ddl_mesh_link *link, const ddl_xfer *xfer);

/* Put a message where the peer wants it, take it where it lies, or read it at its source: one of all that are
 * due at a time. */
void ddl_mesh_put_later(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *place);
void ddl_mesh_take_later(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *offer);
void ddl_mesh_pull_later(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *source);
void ddl_mesh_move_pages(ddl_mesh *mesh);

/* Of a rank that has gone: its memory is the system's again once nobody has it mapped. */
void ddl_mesh_let_go_of_heap(ddl_mesh_link *link);

/* Frames have come: the sender says where its message lies, or at which address; the receiver says where it
 * wants one; the pages of an offer were taken; what is left of a message whose pages were put or taken.
 * False: the peer is broken, err says how. */
bool ddl_mesh_take_offer(ddl_mesh_link *link, const ddl_frame_place *place, ddl_error *err);
bool ddl_mesh_take_source(ddl_mesh_link *link, const ddl_frame_place *source, ddl_error *err);
bool ddl_mesh_take_place(ddl_mesh_link *link, const ddl_frame_place *place, ddl_error *err);
bool ddl_mesh_take_taken(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err);
bool ddl_mesh_take_rest(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err);

/* ---- mesh_match.c: xfers, and the frames that are of them ---- */

extern const struct ddl_transport_ops ddl_mesh_ops;

/* Frames have come: a message begins, is granted, is asked for. False: as above. */
bool ddl_mesh_take_message(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err);
bool ddl_mesh_take_grant(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err);
bool ddl_mesh_take_ask(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err);

/* Nobody waits for what has come, which is not sent unless somebody did. True: it was cancelled since. False:
 * as above. */
bool ddl_mesh_was_cancelled(const ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err);

/* ---- mesh_read.c: what arrives ---- */

/* What the connection has, or the lane, for a turn. */
void ddl_mesh_read_link(ddl_mesh_link *link);
void ddl_mesh_read_lanes_of(ddl_mesh_link *link);

/* Of a link that has ended, or whose end was seen elsewhere: take what is unread. A short read is not the end
 * of it here. */
void ddl_mesh_read_to_the_end(ddl_mesh_link *link);

/* Keep the link among those that are read without being polled exactly while that is needed, and read them.
 */
void ddl_mesh_note_unread(ddl_mesh_link *link);
void ddl_mesh_read_unread(ddl_mesh *mesh);

/* ---- mesh_poll.c: what the loop tells of a connection ---- */

DDL_MUST_USE ddl_status ddl_mesh_watch(ddl_mesh_link *link, ddl_error *err);
void ddl_mesh_want_writable(ddl_mesh_link *link, bool wanted);
void ddl_mesh_stop_watching(ddl_mesh_link *link);

/* Its connection is closed with it, once the loop has run. */
void ddl_mesh_close_poll(ddl_mesh_link *link);

/* ---- mesh_end.c: how links end ---- */

/* The peer has said goodbye; and nothing is on its way any more. */
void ddl_mesh_hear_goodbye(ddl_mesh_link *link);
void ddl_mesh_leave(ddl_mesh_link *link);

/* The connection of this number, from 1, which is the pair's first, has ended without a goodbye; error and
 * os_errno as in ddl_mesh_owner.lost. */
void ddl_mesh_connection_lost(ddl_mesh_link *link, int number, int os_errno, const ddl_error *error);
void ddl_mesh_link_lost(ddl_mesh_link *link, int os_errno, const ddl_error *error);

/* Reading or writing failed. */
void ddl_mesh_link_broke(ddl_mesh_link *link, int os_errno);

#endif
