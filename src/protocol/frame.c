/* frame.c - the mesh's frame header to and from bytes. */
#include "protocol/frame.h"

#include "base/bytes.h"

#include <string.h>

/*
 * Offset  0  u16 magic, u8 type, u8 zero, u32 payload bytes
 *         8  u32 credit, u32 channel
 *        16  u64 sequence
 *        24  u32 piece, u32 number
 *        32  u8 collective, u8 dtype, u8 op, u8 algorithm, u32 root
 *        40  u64 count, 16 zero bytes
 */
enum { MAGIC = 0xdd1f, USED_BYTES = 48 };

static const uint32_t limits[DDL_FRAME_TYPES] = {
    [DDL_FRAME_EAGER] = DDL_FRAME_EAGER_LIMIT,   [DDL_FRAME_BULK] = DDL_FRAME_BULK_LIMIT,
    [DDL_FRAME_ABORT] = DDL_FRAME_NOTICE_LIMIT,  [DDL_FRAME_AGREE] = DDL_FRAME_NOTICE_LIMIT,
    [DDL_FRAME_ENTER] = DDL_FRAME_NOTICE_LIMIT,  [DDL_FRAME_OFFER] = DDL_FRAME_PLACE_BYTES,
    [DDL_FRAME_PLACE] = DDL_FRAME_PLACE_BYTES,   [DDL_FRAME_REST] = DDL_FRAME_BULK_LIMIT,
    [DDL_FRAME_STRIPE] = DDL_FRAME_STRIPE_BYTES, [DDL_FRAME_SOURCE] = DDL_FRAME_PLACE_BYTES,
};

void ddl_frame_encode(const ddl_frame *frame, uint8_t bytes[DDL_FRAME_BYTES])
{
    ddl_put_u16(bytes, MAGIC);
    bytes[2] = frame->type;
    bytes[3] = 0;
    ddl_put_u32(bytes + 4, frame->bytes);
    ddl_put_u32(bytes + 8, frame->credit);
    ddl_put_u32(bytes + 12, frame->channel);
    ddl_put_u64(bytes + 16, frame->sequence);
    ddl_put_u32(bytes + 24, frame->piece);
    ddl_put_u32(bytes + 28, frame->number);
    bytes[32] = frame->signature.collective;
    bytes[33] = frame->signature.dtype;
    bytes[34] = frame->signature.op;
    bytes[35] = frame->signature.algorithm;
    ddl_put_u32(bytes + 36, (uint32_t)frame->signature.root);
    ddl_put_u64(bytes + 40, frame->signature.count);
    memset(bytes + USED_BYTES, 0, DDL_FRAME_BYTES - USED_BYTES);
}

void ddl_frame_place_encode(const ddl_frame_place *place, uint8_t bytes[DDL_FRAME_PLACE_BYTES])
{
    ddl_put_u64(bytes, place->offset);
    ddl_put_u64(bytes + 8, place->bytes);
}

ddl_frame_place ddl_frame_place_decode(const uint8_t bytes[DDL_FRAME_PLACE_BYTES])
{
    return (ddl_frame_place){ .offset = ddl_get_u64(bytes), .bytes = ddl_get_u64(bytes + 8) };
}

ddl_status ddl_frame_check_begin(const uint8_t *bytes, size_t count, ddl_error *err)
{
    if (count >= 4 && (ddl_get_u16(bytes) != MAGIC || bytes[3] != 0))
        return DDL_FAIL(err, DDL_EPROTO, "bytes that are no frame (0x%02x%02x%02x%02x)", bytes[0], bytes[1],
                        bytes[2], bytes[3]);
    return DDL_OK;
}

/* Where in a communicator's operations it belongs can be; whether it is there is for who waits for it. */
static ddl_status check_place(const ddl_frame *frame, ddl_error *err)
{
    if (frame->sequence >= DDL_FRAME_SEQUENCE_LIMIT)
        return DDL_FAIL(err, DDL_EPROTO, "a frame of type %u about operation %llu; the limit is %llu",
                        frame->type, (unsigned long long)frame->sequence,
                        (unsigned long long)DDL_FRAME_SEQUENCE_LIMIT);
    if (frame->number >= DDL_FRAME_NUMBER_LIMIT)
        return DDL_FAIL(err, DDL_EPROTO, "a frame of type %u about message %u; the limit is %u", frame->type,
                        (unsigned)frame->number, (unsigned)DDL_FRAME_NUMBER_LIMIT);
    return DDL_OK;
}

ddl_status ddl_frame_decode(const uint8_t bytes[DDL_FRAME_BYTES], ddl_frame *frame, ddl_error *err)
{
    static const uint8_t zeros[DDL_FRAME_BYTES - USED_BYTES];
    DDL_TRY(ddl_frame_check_begin(bytes, DDL_FRAME_BYTES, err));
    if (memcmp(bytes + USED_BYTES, zeros, sizeof zeros) != 0)
        return DDL_FAIL(err, DDL_EPROTO, "a frame of type %u whose header does not end in zeros", bytes[2]);
    uint8_t type = bytes[2];
    if (type == 0 || type >= DDL_FRAME_TYPES)
        return DDL_FAIL(err, DDL_EPROTO, "a frame of unknown type %u", type);
    uint32_t payload = ddl_get_u32(bytes + 4);
    if (payload > limits[type])
        return DDL_FAIL(err, DDL_EPROTO, "a frame of type %u with %u bytes; the limit is %u", type,
                        (unsigned)payload, (unsigned)limits[type]);
    bool is_message = type == DDL_FRAME_EAGER || type == DDL_FRAME_BULK || type == DDL_FRAME_STRIPE;
    if (is_message && payload == 0)
        return DDL_FAIL(err, DDL_EPROTO, "a message frame of type %u without payload", type);
    if (type == DDL_FRAME_AGREE && payload == 0)
        return DDL_FAIL(err, DDL_EPROTO, "a frame of who is left without payload");
    bool has_place = type == DDL_FRAME_OFFER || type == DDL_FRAME_PLACE || type == DDL_FRAME_SOURCE;
    if (has_place && payload != DDL_FRAME_PLACE_BYTES)
        return DDL_FAIL(err, DDL_EPROTO, "a frame of type %u with %u bytes, not %d", type, (unsigned)payload,
                        DDL_FRAME_PLACE_BYTES);
    *frame = (ddl_frame){
        .type = type,
        .bytes = payload,
        .credit = ddl_get_u32(bytes + 8),
        .channel = ddl_get_u32(bytes + 12),
        .sequence = ddl_get_u64(bytes + 16),
        .piece = ddl_get_u32(bytes + 24),
        .number = ddl_get_u32(bytes + 28),
        .signature.collective = bytes[32],
        .signature.dtype = bytes[33],
        .signature.op = bytes[34],
        .signature.algorithm = bytes[35],
        .signature.root = (int32_t)ddl_get_u32(bytes + 36),
        .signature.count = ddl_get_u64(bytes + 40),
    };
    return check_place(frame, err);
}

ddl_status ddl_frame_check_stripe(const ddl_frame *frame, size_t message_bytes, uint32_t come, ddl_error *err)
{
    const uint32_t number = frame->credit, count = ddl_frame_stripes_of(message_bytes);
    _Static_assert(DDL_FRAME_STRIPES <= 32, "a mask of stripes has 32 bits");
    if (number >= count)
        return DDL_FAIL(err, DDL_EPROTO, "stripe %u of a message of %zu bytes, which has %u",
                        (unsigned)number, message_bytes, (unsigned)count);
    if (frame->bytes != ddl_frame_stripe_bytes(message_bytes, number))
        return DDL_FAIL(err, DDL_EPROTO, "%u bytes for stripe %u of a message of %zu, which has %zu",
                        (unsigned)frame->bytes, (unsigned)number, message_bytes,
                        ddl_frame_stripe_bytes(message_bytes, number));
    if ((come >> number & 1) != 0)
        return DDL_FAIL(err, DDL_EPROTO, "stripe %u of a message of %zu bytes for the second time",
                        (unsigned)number, message_bytes);
    return DDL_OK;
}
