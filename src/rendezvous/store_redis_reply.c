/* store_redis_reply.c - hiredis' reader with objects and limits of our own. */
#include "rendezvous/store_redis_reply.h"

#include "base/failpoint.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

/* From 1.0 on an array's length comes as size_t. */
#if HIREDIS_MAJOR >= 1
typedef size_t array_length;
#else
typedef int array_length;
#endif

struct ddl_redis_reader {
    redisReader *inner;
    size_t held;      /* bytes fed of the request at hand */
    size_t elements;  /* of the reply that is being built */
    const char *over; /* the limit that it broke, or NULL */
};

void ddl_redis_reply_destroy(ddl_redis_reply *reply)
{
    if (reply == NULL)
        return;
    for (size_t i = 0; i < reply->item_count; i++)
        ddl_redis_reply_destroy(reply->items[i]);
    ddl_free(reply->items);
    ddl_free(reply->text);
    ddl_free(reply);
}

/* ---- objects, as hiredis asks for them; NULL ends its work ---- */

/* A new reply in its place inside the array that it belongs to. */
static ddl_redis_reply *make(const redisReadTask *task, ddl_redis_kind kind)
{
    ddl_redis_reply *reply = ddl_alloc(sizeof *reply);
    if (reply == NULL)
        return NULL;
    reply->kind = kind;
    if (task->parent != NULL) {
        ddl_redis_reply *array = task->parent->obj;
        array->items[task->idx] = reply;
        array->item_count = (size_t)task->idx + 1;
    }
    return reply;
}

static void *make_text(const redisReadTask *task, char *text, size_t bytes)
{
    ddl_redis_reader *reader = task->privdata;
    if (task->type != REDIS_REPLY_STRING && bytes > DDL_REDIS_LINE_BYTES) {
        reader->over = "a longer line than";
        return NULL;
    }
    ddl_redis_reply *reply = make(task, task->type == REDIS_REPLY_ERROR ? DDL_REDIS_ERROR : DDL_REDIS_TEXT);
    if (reply == NULL)
        return NULL;
    reply->text = ddl_alloc(bytes + 1);
    if (reply->text == NULL) {
        reply->kind = DDL_REDIS_NIL; /* the array that has it goes, and it with that */
        if (task->parent == NULL)
            ddl_redis_reply_destroy(reply);
        return NULL;
    }
    memcpy(reply->text, text, bytes);
    reply->text_bytes = bytes;
    return reply;
}

static void *make_array(const redisReadTask *task, array_length length)
{
    ddl_redis_reader *reader = task->privdata;
    size_t count = (size_t)length;
    int depth = 0;
    for (const redisReadTask *outer = task->parent; outer != NULL; outer = outer->parent)
        depth++;
    if (depth > DDL_REDIS_DEPTH)
        reader->over = "more arrays inside arrays than";
    else if (count > DDL_REDIS_ELEMENTS || reader->elements + count > DDL_REDIS_ELEMENTS)
        reader->over = "more elements than";
    if (reader->over != NULL)
        return NULL;
    reader->elements += count;
    ddl_redis_reply **items = ddl_alloc_array(count, sizeof(ddl_redis_reply *));
    ddl_redis_reply *reply = items != NULL ? make(task, DDL_REDIS_ARRAY) : NULL;
    if (reply == NULL)
        ddl_free(items);
    else
        reply->items = items;
    return reply;
}

static void *make_integer(const redisReadTask *task, long long value)
{
    ddl_redis_reply *reply = make(task, DDL_REDIS_INTEGER);
    if (reply != NULL)
        reply->integer = value;
    return reply;
}

static void *make_nil(const redisReadTask *task)
{
    return make(task, DDL_REDIS_NIL);
}

static void release(void *reply)
{
    ddl_redis_reply_destroy(reply);
}

#if HIREDIS_MAJOR >= 1
static void *make_double(const redisReadTask *task, double value, char *text, size_t bytes)
{
    (void)value;
    return make_text(task, text, bytes);
}

static void *make_bool(const redisReadTask *task, int value)
{
    return make_integer(task, value);
}
#endif

/* ---- the reader ---- */

ddl_status ddl_redis_reader_create(ddl_redis_reader **out, ddl_error *err)
{
    static const redisReplyObjectFunctions functions = {
        .createString = make_text,
        .createArray = make_array,
        .createInteger = make_integer,
        .createNil = make_nil,
        .freeObject = release,
#if HIREDIS_MAJOR >= 1
        .createDouble = make_double,
        .createBool = make_bool,
#endif
    };
    ddl_redis_reader *reader = ddl_alloc(sizeof *reader);
    if (reader != NULL && !DDL_FAILPOINT("rendezvous.redis_reader"))
        reader->inner = redisReaderCreateWithFunctions((redisReplyObjectFunctions *)&functions);
    if (reader == NULL || reader->inner == NULL) {
        ddl_redis_reader_destroy(reader);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for what Redis says");
    }
    reader->inner->privdata = reader;
    *out = reader;
    return DDL_OK;
}

void ddl_redis_reader_destroy(ddl_redis_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->inner != NULL)
        redisReaderFree(reader->inner);
    ddl_free(reader);
}

static ddl_status too_much(const ddl_redis_reader *reader, ddl_error *err)
{
    return DDL_FAIL(err, DDL_EPROTO,
                    "a reply of Redis has %s allowed (%d elements, %d deep, lines of %d KiB, %d MiB for a "
                    "request); is it Redis?",
                    reader->over, DDL_REDIS_ELEMENTS, DDL_REDIS_DEPTH, DDL_REDIS_LINE_BYTES >> 10,
                    DDL_REDIS_REQUEST_BYTES >> 20);
}

void ddl_redis_reader_begin(ddl_redis_reader *reader)
{
    reader->held = reader->inner->len - reader->inner->pos;
}

ddl_status ddl_redis_reader_feed(ddl_redis_reader *reader, const void *data, size_t bytes, ddl_error *err)
{
    if (bytes > DDL_REDIS_REQUEST_BYTES - reader->held) {
        reader->over = "more bytes than";
        return too_much(reader, err);
    }
    reader->held += bytes;
    if (redisReaderFeed(reader->inner, data, bytes) != REDIS_OK)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a reply of Redis");
    return DDL_OK;
}

/* hiredis looks for the end of a line from its beginning, at each attempt: what has none must not grow. */
static bool is_endless_line(const redisReader *inner)
{
    const char *at = inner->buf + inner->pos;
    if (inner->len - inner->pos <= DDL_REDIS_LINE_BYTES + 2)
        return false;
    for (size_t i = 0; i <= DDL_REDIS_LINE_BYTES; i++)
        if (at[i] == '\r' && at[i + 1] == '\n')
            return false;
    return true;
}

ddl_status ddl_redis_reader_next(ddl_redis_reader *reader, ddl_redis_reply **out, ddl_error *err)
{
    void *reply = NULL;
    *out = NULL;
    if (redisReaderGetReply(reader->inner, &reply) != REDIS_OK) {
        if (reader->over != NULL)
            return too_much(reader, err);
        if (reader->inner->err == REDIS_ERR_OOM)
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for a reply of Redis");
        return DDL_FAIL(err, DDL_EPROTO, "what came is no reply of Redis");
    }
    if (reply == NULL && is_endless_line(reader->inner)) {
        reader->over = "a longer line than";
        return too_much(reader, err);
    }
    if (reply != NULL)
        reader->elements = 0;
    *out = reply;
    return DDL_OK;
}

/* ---- commands ---- */

static bool append_head(ddl_bytes *out, char mark, size_t number)
{
    char head[32];
    int bytes = snprintf(head, sizeof head, "%c%zu\r\n", mark, number);
    return ddl_bytes_append(out, head, (size_t)bytes);
}

bool ddl_redis_command(ddl_bytes *out, const ddl_view words[], size_t count)
{
    const size_t before = out->bytes;
    bool good = append_head(out, '*', count);
    for (size_t i = 0; i < count && good; i++)
        good = append_head(out, '$', words[i].bytes) &&
               ddl_bytes_append(out, words[i].data, words[i].bytes) && ddl_bytes_append(out, "\r\n", 2);
    if (!good)
        out->bytes = before;
    return good;
}
