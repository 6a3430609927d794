/* store_redis_talk.c - streams of a Redis server: asked for in words, found in replies. */
#include "rendezvous/store_redis_talk.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- requests ---- */

ddl_view ddl_redis_name_of(ddl_redis_name *name, const char *owner, const char *what, const char *item)
{
    int bytes = snprintf(name->text, sizeof name->text, "%s:%s%s", owner, what, item);
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT((size_t)bytes < sizeof name->text);
    return (ddl_view){ name->text, (size_t)bytes };
}

void ddl_redis_reading_add(ddl_redis_reading *reading, ddl_view name, const char *id)
{
    reading->names[reading->count] = name;
    reading->ids[reading->count++] = ddl_redis_word(id);
}

void ddl_redis_request_read(ddl_redis_request *request, const ddl_redis_reading *reading, int64_t block_ms)
{
    ddl_view words[6 + 2 * DDL_REDIS_BATCH];
    char block[24], batch[24];
    size_t used = 0;
    snprintf(block, sizeof block, "%lld", (long long)block_ms);
    snprintf(batch, sizeof batch, "%d", DDL_REDIS_BATCH);
    words[used++] = ddl_redis_word("XREAD");
    words[used++] = ddl_redis_word("COUNT");
    words[used++] = ddl_redis_word(batch);
    if (block_ms > 0) {
        words[used++] = ddl_redis_word("BLOCK");
        words[used++] = ddl_redis_word(block);
        request->block_ms = block_ms;
    }
    words[used++] = ddl_redis_word("STREAMS");
    for (size_t i = 0; i < reading->count; i++) {
        words[used + i] = reading->names[i];
        words[used + reading->count + i] = reading->ids[i];
    }
    ddl_redis_request_add(request, words, used + 2 * reading->count);
}

/* ---- replies ---- */

static bool is_text(const ddl_redis_reply *reply, const char *text)
{
    return reply->kind == DDL_REDIS_TEXT && reply->text_bytes == strlen(text) &&
           memcmp(reply->text, text, reply->text_bytes) == 0;
}

ddl_redis_reply *const *ddl_redis_entries_of(const ddl_redis_reply *reply, const char *name, size_t *count)
{
    *count = 0;
    for (size_t i = 0; reply->kind == DDL_REDIS_ARRAY && i < reply->item_count; i++) {
        const ddl_redis_reply *stream = reply->items[i];
        if (stream->kind == DDL_REDIS_ARRAY && stream->item_count == 2 && is_text(stream->items[0], name) &&
            stream->items[1]->kind == DDL_REDIS_ARRAY) {
            *count = stream->items[1]->item_count;
            return stream->items[1]->items;
        }
    }
    return NULL;
}

ddl_view ddl_redis_field_of(const ddl_redis_reply *entry, const char *field)
{
    const ddl_redis_reply *fields =
        entry->kind == DDL_REDIS_ARRAY && entry->item_count == 2 ? entry->items[1] : NULL;
    for (size_t i = 0; fields != NULL && fields->kind == DDL_REDIS_ARRAY && i + 1 < fields->item_count;
         i += 2)
        if (is_text(fields->items[i], field) && fields->items[i + 1]->kind == DDL_REDIS_TEXT)
            return (ddl_view){ fields->items[i + 1]->text, fields->items[i + 1]->text_bytes };
    return (ddl_view){ NULL, 0 };
}

bool ddl_redis_token_of(const ddl_redis_reply *entry, const char *field, char token[DDL_TOKEN_TEXT])
{
    ddl_view view = ddl_redis_field_of(entry, field);
    if (view.bytes != DDL_TOKEN_TEXT - 1)
        return false;
    memcpy(token, view.data, view.bytes);
    token[view.bytes] = '\0';
    return ddl_meet_is_token(token);
}

/* What is no id is left alone. */
static void copy_id(const ddl_redis_reply *given, char id[DDL_REDIS_ID_TEXT])
{
    if (given->kind == DDL_REDIS_TEXT && given->text_bytes < DDL_REDIS_ID_TEXT && given->text_bytes > 0 &&
        strspn(given->text, "0123456789-") == given->text_bytes)
        memcpy(id, given->text, given->text_bytes + 1);
}

void ddl_redis_note_id(const ddl_redis_reply *entry, char id[DDL_REDIS_ID_TEXT])
{
    if (entry->kind == DDL_REDIS_ARRAY && entry->item_count == 2)
        copy_id(entry->items[0], id);
}

/* When Redis gave this id, in ms by its clock; whatever it is. */
static int64_t ms_of_id(const char *id)
{
    int64_t ms = strtoll(id, NULL, 10);
    return ms > 0 ? ms : 0;
}

int64_t ddl_redis_ms_after(const char *id, const ddl_redis_reply *done, size_t index)
{
    char added[DDL_REDIS_ID_TEXT] = "";
    if (done->kind == DDL_REDIS_ARRAY && done->item_count > index)
        copy_id(done->items[index], added);
    return added[0] != '\0' ? ms_of_id(added) - ms_of_id(id) : -1;
}

bool ddl_redis_is_there(const ddl_redis_reply *reply, size_t index)
{
    return reply->kind == DDL_REDIS_ARRAY && reply->item_count > 2 * index + 1 &&
           reply->items[2 * index + 1]->kind == DDL_REDIS_INTEGER && reply->items[2 * index + 1]->integer > 0;
}
