/* fuzz_redis_reply.c - what a hostile Redis server says. Input: 0 piece size | 1 the stream. */
#include "rendezvous/store_redis_reply.h"

#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Elements of a reply, itself included; what every reply promises is checked. */
static size_t walk(const ddl_redis_reply *reply, int depth)
{
    size_t count = 1;
    bool is_text = reply->kind == DDL_REDIS_TEXT || reply->kind == DDL_REDIS_ERROR;
    DDL_ASSERT(depth <= DDL_REDIS_DEPTH + 1);
    DDL_ASSERT(is_text == (reply->text != NULL));
    DDL_ASSERT(!is_text || reply->text[reply->text_bytes] == '\0');
    DDL_ASSERT(reply->kind == DDL_REDIS_ARRAY || reply->item_count == 0);
    for (size_t i = 0; i < reply->item_count; i++)
        count += walk(reply->items[i], depth + 1);
    return count;
}

/* After how many bytes, fed and unfinished, the first line is too long whatever comes; once, as to look at
 * each piece would be most of the work. */
static size_t endless_from(const uint8_t *data, size_t bytes)
{
    for (size_t i = 1; i < bytes && i < DDL_REDIS_LINE_BYTES + 3; i++)
        if (data[i - 1] == '\r' && data[i] == '\n')
            return SIZE_MAX;
    return DDL_REDIS_LINE_BYTES + 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddl_redis_reader *reader = NULL;
    bool good = true;
    if (bytes < 1)
        return 0;
    const size_t piece = 1 + data[0];
    data++;
    bytes--;
    const size_t too_many = endless_from(data, bytes);
    DDL_ASSERT(ddl_redis_reader_create(&reader, NULL) == DDL_OK);
    for (size_t at = 0; at < bytes && good; at += piece) {
        ddl_redis_reply *reply = NULL;
        good =
            ddl_redis_reader_feed(reader, data + at, bytes - at < piece ? bytes - at : piece, NULL) == DDL_OK;
        while (good && (good = ddl_redis_reader_next(reader, &reply, NULL) == DDL_OK) && reply != NULL) {
            DDL_ASSERT(walk(reply, 0) <= 1 + DDL_REDIS_ELEMENTS);
            ddl_redis_reply_destroy(reply);
        }
        DDL_ASSERT(!good || (bytes - at < piece ? bytes : at + piece) < too_many);
    }
    ddl_redis_reader_destroy(reader);
    return 0;
}
