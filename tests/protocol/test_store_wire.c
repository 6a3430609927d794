/* test_store_wire.c - messages of the store's protocol, whole, in pieces, and malformed. */
#include "protocol/store_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ddl_store_inbox inbox_from(bool client)
{
    return (ddl_store_inbox){ .from_client = client, .value_limit = DDL_STORE_VALUE_LIMIT };
}

static void messages_come_out_as_they_went_in_however_they_arrive(void **state)
{
    static char key[DDL_STORE_KEY_LIMIT], value[DDL_STORE_VALUE_LIMIT];
    const ddl_store_message sent[] = {
        { DDL_STORE_SET_NEW, 0, 1, { "k", 1 }, { "v", 1 } },
        { DDL_STORE_SET_NEW, 0, 2, { key, sizeof key }, { value, sizeof value } },
        { DDL_STORE_SET_NEW, 0, 3, { "empty", 5 }, { NULL, 0 } },
        { DDL_STORE_GET, DDL_STORE_WAIT, 4, { "k", 1 }, { NULL, 0 } },
        { DDL_STORE_CANCEL, 0, UINT32_MAX, { NULL, 0 }, { NULL, 0 } },
        { DDL_STORE_FAIL, 0, 5, { NULL, 0 }, { "0123456789abc", 13 } },
    };
    enum { COUNT = sizeof sent / sizeof sent[0] };
    ddl_bytes wire = { 0 };
    (void)state;
    memset(key, 'k', sizeof key);
    for (int i = 0; i < COUNT; i++)
        assert_true(ddl_store_message_encode(&sent[i], &wire));
    static const size_t pieces[] = { 1, 7, 16, 17, 4096, 1000000 };
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
        ddl_store_inbox inbox = inbox_from(true);
        int seen = 0;
        for (size_t at = 0; at < wire.bytes; at += pieces[p]) {
            size_t count = wire.bytes - at < pieces[p] ? wire.bytes - at : pieces[p];
            ddl_store_message got;
            bool found;
            assert_int_equal(ddl_store_inbox_feed(&inbox, wire.data + at, count, NULL), DDL_OK);
            for (;;) {
                assert_int_equal(ddl_store_inbox_next(&inbox, &got, &found, NULL), DDL_OK);
                if (!found)
                    break;
                const ddl_store_message *was = &sent[seen++];
                assert_int_equal(got.kind, was->kind);
                assert_int_equal(got.flags, was->flags);
                assert_int_equal(got.id, was->id);
                assert_int_equal(got.key.bytes, was->key.bytes);
                assert_int_equal(got.value.bytes, was->value.bytes);
                if (was->key.bytes > 0)
                    assert_memory_equal(got.key.data, was->key.data, was->key.bytes);
                if (was->value.bytes > 0)
                    assert_memory_equal(got.value.data, was->value.data, was->value.bytes);
            }
        }
        assert_int_equal(seen, COUNT);
        ddl_store_inbox_fini(&inbox);
    }
    ddl_bytes_fini(&wire);
}

static void malformed_heads_are_refused_before_the_body_comes(void **state)
{
    static const struct {
        const char *name;
        bool from_client;
        uint32_t body_bytes;
        uint8_t kind, flags;
        uint16_t key_bytes;
        uint32_t zero;
        bool good;
    } cases[] = {
        { "a good one", true, 10, DDL_STORE_SET_NEW, 0, 4, 0, true },
        { "a value at the limit", true, 4 + DDL_STORE_VALUE_LIMIT, DDL_STORE_SET_NEW, 0, 4, 0, true },
        { "a value over the limit", true, 5 + DDL_STORE_VALUE_LIMIT, DDL_STORE_SET_NEW, 0, 4, 0, false },
        { "a body of 2^31", true, 1u << 31, DDL_STORE_SET_NEW, 0, 4, 0, false },
        { "a body of 2^32-1", true, UINT32_MAX, DDL_STORE_SET_NEW, 0, 4, 0, false },
        { "a key at the limit", true, DDL_STORE_KEY_LIMIT, DDL_STORE_GET, 0, DDL_STORE_KEY_LIMIT, 0, true },
        { "a key over the limit", true, DDL_STORE_KEY_LIMIT + 1, DDL_STORE_GET, 0, DDL_STORE_KEY_LIMIT + 1, 0,
          false },
        { "a key longer than the body", true, 3, DDL_STORE_GET, 0, 4, 0, false },
        { "no key where there must be one", true, 4, DDL_STORE_SET_NEW, 0, 0, 0, false },
        { "a key where there is none", true, 4, DDL_STORE_CANCEL, 0, 4, 0, false },
        { "a value where there is none", true, 8, DDL_STORE_GET, 0, 4, 0, false },
        { "a kind that does not exist", true, 0, 6, 0, 0, 0, false },
        { "a kind beyond the table", true, 0, 255, 0, 0, 0, false },
        { "kind 0", true, 0, 0, 0, 0, 0, false },
        { "a reply from a client", true, 0, DDL_STORE_DONE, 0, 0, 0, false },
        { "a request from a server", false, 4, DDL_STORE_GET, 0, 4, 0, false },
        { "a reply from a server", false, 0, DDL_STORE_DONE, 0, 0, 0, true },
        { "unknown flags", true, 4, DDL_STORE_GET, 2, 4, 0, false },
        { "something where nothing is defined", true, 4, DDL_STORE_GET, 0, 4, 1, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t head[DDL_STORE_HEAD_BYTES] = { 0 };
        ddl_store_inbox inbox = inbox_from(cases[i].from_client);
        ddl_store_message message;
        bool found = false;
        ddl_put_u32(head, cases[i].body_bytes);
        ddl_put_u32(head + 4, 9);
        head[8] = cases[i].kind;
        head[9] = cases[i].flags;
        ddl_put_u16(head + 10, cases[i].key_bytes);
        ddl_put_u32(head + 12, cases[i].zero);
        assert_int_equal(ddl_store_inbox_feed(&inbox, head, sizeof head, NULL), DDL_OK);
        ddl_status status = ddl_store_inbox_next(&inbox, &message, &found, NULL);
        if (status != (cases[i].good ? DDL_OK : DDL_EPROTO))
            fail_msg("%s: %s", cases[i].name, ddl_status_name(status));
        assert_true(found == (cases[i].good && cases[i].body_bytes == 0));
        ddl_store_inbox_fini(&inbox);
    }
}

static void errors_travel_as_values(void **state)
{
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_error sent, got;
    (void)state;
    (void)ddl_error_set(&sent, DDL_EPEERLOST, "rank %d is \x1b gone", 3);
    sent.culprit = 3;
    sent.os_errno = 104;
    size_t bytes = ddl_store_error_encode(&sent, value);
    assert_int_equal(ddl_store_error_decode((ddl_view){ value, bytes }, &got, NULL), DDL_OK);
    assert_int_equal(got.code, DDL_EPEERLOST);
    assert_int_equal(got.culprit, 3);
    assert_int_equal(got.os_errno, 104);
    assert_int_equal(got.rank, -1);
    assert_string_equal(got.text, "rank 3 is ? gone"); /* fit for a terminal */
    memset(sent.text, 'x', sizeof sent.text);          /* no end: cut, and still text */
    bytes = ddl_store_error_encode(&sent, value);
    assert_int_equal(ddl_store_error_decode((ddl_view){ value, bytes }, &got, NULL), DDL_OK);
    assert_int_equal(strlen(got.text), sizeof got.text - 1);
}

static void what_is_no_error_is_refused(void **state)
{
    static const int32_t codes[] = { 0, 1, INT32_MAX, DDL_EINTERNAL - 1, INT32_MIN };
    uint8_t value[DDL_STORE_ERROR_BYTES + 1] = { 0 };
    ddl_error got;
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        ddl_put_u32(value, (uint32_t)codes[i]);
        assert_int_equal(ddl_store_error_decode((ddl_view){ value, 12 }, &got, NULL), DDL_EPROTO);
    }
    ddl_put_u32(value, (uint32_t)DDL_ECONFIG);
    assert_int_equal(ddl_store_error_decode((ddl_view){ value, 12 }, &got, NULL), DDL_OK);
    assert_int_equal(ddl_store_error_decode((ddl_view){ value, 11 }, &got, NULL), DDL_EPROTO);
    assert_int_equal(ddl_store_error_decode((ddl_view){ value, sizeof value }, &got, NULL), DDL_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_out_as_they_went_in_however_they_arrive),
        cmocka_unit_test(malformed_heads_are_refused_before_the_body_comes),
        cmocka_unit_test(errors_travel_as_values),
        cmocka_unit_test(what_is_no_error_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
