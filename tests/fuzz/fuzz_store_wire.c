/*
 * fuzz_store_wire.c - the inbox of the store's protocol, and errors as values. What comes out encodes to
 * what went in. Input: 0 from whom | 1 piece size | 2 the stream.
 */
#include "protocol/store_wire.h"

#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void take_message(const ddl_store_message *message, const uint8_t *from, size_t *at)
{
    ddl_bytes back = { 0 };
    ddl_error error;
    DDL_ASSERT(ddl_store_message_encode(message, &back));
    DDL_ASSERT(memcmp(back.data, from + *at, back.bytes) == 0);
    *at += back.bytes;
    ddl_bytes_fini(&back);
    if (ddl_store_error_decode(message->value, &error, NULL) == DDL_OK) {
        DDL_ASSERT(error.code < DDL_OK);
        DDL_ASSERT(memchr(error.text, '\0', sizeof error.text) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t encoded = 0;
    bool good = true;
    if (bytes < 2)
        return 0;
    ddl_store_inbox inbox = { .from_client = data[0] & 1, .value_limit = DDL_STORE_VALUE_LIMIT };
    const size_t piece = 1 + data[1];
    data += 2;
    bytes -= 2;
    for (size_t at = 0; at < bytes && good; at += piece) {
        ddl_store_message message;
        bool found = true;
        DDL_ASSERT(ddl_store_inbox_feed(&inbox, data + at, bytes - at < piece ? bytes - at : piece, NULL) ==
                   DDL_OK);
        while (good && found) {
            good = ddl_store_inbox_next(&inbox, &message, &found, NULL) == DDL_OK;
            if (good && found)
                take_message(&message, data, &encoded);
        }
    }
    ddl_store_inbox_fini(&inbox);
    return 0;
}
