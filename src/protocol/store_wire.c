/* store_wire.c - the store protocol's messages. */
#include "protocol/store_wire.h"

#include "base/assert.h"
#include "base/status.h"

#include <string.h>

struct kind {
    bool known, from_client, key, value;
};

static const struct kind kinds[] = {
#define X(kind, number, from_client, key, value) [number] = { true, from_client, key, value },
    DDL_STORE_KINDS(X)
#undef X
};

enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

bool ddl_store_message_encode(const ddl_store_message *message, ddl_bytes *bytes)
{
    uint8_t head[DDL_STORE_HEAD_BYTES] = { 0 };
    const size_t before = bytes->bytes;
    DDL_ASSERT((int)message->kind < KIND_COUNT);
    DDL_ASSERT(kinds[message->kind].known);
    DDL_ASSERT(message->key.bytes <= DDL_STORE_KEY_LIMIT);
    DDL_ASSERT(message->value.bytes <= DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM);
    ddl_put_u32(head, (uint32_t)(message->key.bytes + message->value.bytes));
    ddl_put_u32(head + 4, message->id);
    head[8] = (uint8_t)message->kind;
    head[9] = message->flags;
    ddl_put_u16(head + 10, (uint16_t)message->key.bytes);
    if (ddl_bytes_append(bytes, head, sizeof head) &&
        ddl_bytes_append(bytes, message->key.data, message->key.bytes) &&
        ddl_bytes_append(bytes, message->value.data, message->value.bytes))
        return true;
    bytes->bytes = before;
    return false;
}

ddl_status ddl_store_inbox_feed(ddl_store_inbox *inbox, const void *data, size_t bytes, ddl_error *err)
{
    ddl_bytes *held = &inbox->held;
    DDL_ASSERT(inbox->value_limit <= DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM);
    if (inbox->taken > 0) {
        memmove(held->data, held->data + inbox->taken, held->bytes - inbox->taken);
        held->bytes -= inbox->taken;
        inbox->taken = 0;
    }
    if (!ddl_bytes_append(held, data, bytes))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu bytes of the store's protocol", bytes);
    return DDL_OK;
}

static ddl_status check_head(const ddl_store_inbox *inbox, const uint8_t *head, ddl_error *err)
{
    size_t body_bytes = ddl_get_u32(head), key_bytes = ddl_get_u16(head + 10);
    unsigned kind = head[8];
    if (kind >= KIND_COUNT || !kinds[kind].known || kinds[kind].from_client != inbox->from_client)
        return DDL_FAIL(err, DDL_EPROTO, "the store's protocol has no message of kind %u in this direction",
                        kind);
    if (head[9] > 1 || ddl_get_u32(head + 12) != 0)
        return DDL_FAIL(err, DDL_EPROTO,
                        "a store message of kind %u has flags %u, the limit is 1, and %lu in its last field, "
                        "the limit is 0",
                        kind, head[9], (unsigned long)ddl_get_u32(head + 12));
    if (key_bytes == 0 && kinds[kind].key)
        return DDL_FAIL(err, DDL_EPROTO, "a store message of kind %u has no key", kind);
    const size_t key_limit = kinds[kind].key ? DDL_STORE_KEY_LIMIT : 0;
    if (key_bytes > key_limit || key_bytes > body_bytes)
        return DDL_FAIL(err, DDL_EPROTO,
                        "a store message of kind %u has a key of %zu bytes in a body of %zu, the limit is "
                        "%zu",
                        kind, key_bytes, body_bytes, key_limit);
    size_t limit = kinds[kind].value ? inbox->value_limit : 0;
    if (body_bytes - key_bytes > limit)
        return DDL_FAIL(err, DDL_EPROTO,
                        "a store message of kind %u has a value of %zu bytes, the limit is %zu", kind,
                        body_bytes - key_bytes, limit);
    return DDL_OK;
}

ddl_status ddl_store_inbox_next(ddl_store_inbox *inbox, ddl_store_message *message, bool *found,
                                ddl_error *err)
{
    size_t left = inbox->held.bytes - inbox->taken;
    const uint8_t *head = left > 0 ? inbox->held.data + inbox->taken : NULL;
    *found = false;
    if (left < DDL_STORE_HEAD_BYTES)
        return DDL_OK;
    DDL_TRY(check_head(inbox, head, err));
    size_t body_bytes = ddl_get_u32(head), key_bytes = ddl_get_u16(head + 10);
    if (left - DDL_STORE_HEAD_BYTES < body_bytes)
        return DDL_OK;
    const uint8_t *key = head + DDL_STORE_HEAD_BYTES;
    *message = (ddl_store_message){
        .kind = (ddl_store_kind)head[8],
        .flags = head[9],
        .id = ddl_get_u32(head + 4),
        .key = { key, key_bytes },
        .value = { key + key_bytes, body_bytes - key_bytes },
    };
    inbox->taken += DDL_STORE_HEAD_BYTES + body_bytes;
    *found = true;
    return DDL_OK;
}

void ddl_store_inbox_fini(ddl_store_inbox *inbox)
{
    ddl_bytes_fini(&inbox->held);
    inbox->taken = 0;
}

size_t ddl_store_error_encode(const ddl_error *error, uint8_t value[DDL_STORE_ERROR_BYTES])
{
    size_t text_bytes = strnlen(error->text, sizeof error->text - 1);
    ddl_put_u32(value, (uint32_t)error->code);
    ddl_put_u32(value + 4, (uint32_t)error->culprit);
    ddl_put_u32(value + 8, (uint32_t)error->os_errno);
    memcpy(value + 12, error->text, text_bytes);
    return 12 + text_bytes;
}

ddl_status ddl_store_error_decode(ddl_view value, ddl_error *out, ddl_error *err)
{
    const uint8_t *at = value.data;
    ddl_error error = { .rank = -1 };
    if (value.bytes < 12 || value.bytes - 12 >= sizeof error.text)
        return DDL_FAIL(err, DDL_EPROTO, "an error of %zu bytes came from the store", value.bytes);
    int32_t code = (int32_t)ddl_get_u32(at);
    if (code >= DDL_OK || code < DDL_EINTERNAL)
        return DDL_FAIL(err, DDL_EPROTO, "an error with the unknown code %d came from the store", (int)code);
    error.code = (ddl_status)code;
    error.culprit = (int)(int32_t)ddl_get_u32(at + 4);
    error.os_errno = (int)(int32_t)ddl_get_u32(at + 8);
    for (size_t i = 12; i < value.bytes; i++)
        error.text[i - 12] = at[i] < ' ' || at[i] > '~' ? '?' : (char)at[i];
    *out = error;
    return DDL_OK;
}
