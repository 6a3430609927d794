/* test_redis_reply.c - replies of a Redis server that is not trusted. */
#include "rendezvous/store_redis_reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ddl_redis_reader *reader;

static int open_reader(void **state)
{
    (void)state;
    return ddl_redis_reader_create(&reader, NULL) == DDL_OK ? 0 : -1;
}

static int close_reader(void **state)
{
    (void)state;
    ddl_redis_reader_destroy(reader);
    return 0;
}

static ddl_status feed(const char *text, size_t piece)
{
    ddl_error error;
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes; at += piece)
        if (ddl_redis_reader_feed(reader, text + at, bytes - at < piece ? bytes - at : piece, &error) !=
            DDL_OK)
            return error.code;
    return DDL_OK;
}

static void replies_come_out_however_they_came_in(void **state)
{
    static const char wire[] = "+OK\r\n-ERR no\r\n:42\r\n$-1\r\n$3\r\na\nb\r\n*-1\r\n*0\r\n"
                               "*2\r\n$1\r\nx\r\n*2\r\n:1\r\n$-1\r\n";
    static const ddl_redis_kind kinds[] = { DDL_REDIS_TEXT,  DDL_REDIS_ERROR, DDL_REDIS_INTEGER,
                                            DDL_REDIS_NIL,   DDL_REDIS_TEXT,  DDL_REDIS_NIL,
                                            DDL_REDIS_ARRAY, DDL_REDIS_ARRAY };
    (void)state;
    for (size_t piece = 1; piece < sizeof wire; piece++) {
        ddl_redis_reply *reply = NULL;
        assert_int_equal(feed(wire, piece), DDL_OK);
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
            assert_non_null(reply);
            assert_int_equal(reply->kind, kinds[i]);
            if (i == 1)
                assert_string_equal(reply->text, "ERR no");
            if (i == 2)
                assert_int_equal(reply->integer, 42);
            if (i == 4)
                assert_memory_equal(reply->text, "a\nb", 4);
            if (i == 7) {
                assert_int_equal(reply->item_count, 2);
                assert_int_equal(reply->items[1]->items[0]->integer, 1);
                assert_int_equal(reply->items[1]->items[1]->kind, DDL_REDIS_NIL);
            }
            ddl_redis_reply_destroy(reply);
        }
        assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
        assert_null(reply);
    }
}

static void what_is_over_a_limit_ends_the_conversation(void **state)
{
    static const struct {
        const char *wire, *text;
    } cases[] = {
        { "*4097\r\n", "more elements" },
        { "*4000\r\n*97\r\n", "more elements" },
        { "*2147483647\r\n", "more elements" },
        { "*4294967297\r\n", "" },
        { "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "arrays inside arrays" },
        { "HTTP/1.1 200 OK\r\n\r\n", "no reply of Redis" },
        { "$-5\r\n", "" },
        { "*1\r\n:12x\r\n", "" },
        { "\x16\x03\x03\r\n", "no reply of Redis" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_redis_reply *reply = NULL;
        ddl_error error = { .code = DDL_OK };
        open_reader(NULL);
        assert_int_equal(feed(cases[i].wire, 1000), DDL_OK);
        if (ddl_redis_reader_next(reader, &reply, &error) != DDL_EPROTO ||
            strstr(error.text, cases[i].text) == NULL)
            fail_msg("%s: %s", cases[i].wire, error.text);
        assert_null(reply);
        close_reader(NULL);
    }
    open_reader(NULL);
}

static void the_deepest_and_longest_replies_are_taken(void **state)
{
    ddl_redis_reply *reply = NULL;
    (void)state;
    for (int round = 0; round < 3; round++) { /* limits are of one reply */
        assert_int_equal(feed("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n*4096\r\n", 1000), DDL_OK);
        assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
        assert_non_null(reply);
        ddl_redis_reply_destroy(reply);
        for (int i = 0; i < DDL_REDIS_ELEMENTS; i++) {
            assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
            assert_null(reply);
            assert_int_equal(feed(":7\r\n", 4), DDL_OK);
        }
        assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
        assert_int_equal(reply->item_count, DDL_REDIS_ELEMENTS);
        ddl_redis_reply_destroy(reply);
    }
}

static void a_flood_is_cut_off(void **state)
{
    static char flood[1 << 20];
    ddl_redis_reply *reply = NULL;
    ddl_error error;
    ddl_status status = DDL_OK;
    int fed = 0;
    (void)state;
    memset(flood, 'x', sizeof flood);
    memcpy(flood, "$2000000000\r\n", 13);
    for (; fed < 100 && status == DDL_OK; fed++) {
        status = ddl_redis_reader_feed(reader, flood, sizeof flood, &error);
        if (status == DDL_OK)
            assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
        assert_null(reply);
    }
    assert_int_equal(status, DDL_EPROTO);
    assert_int_equal(fed, 17);
    assert_non_null(strstr(error.text, "16 MiB"));
}

/* Replies are kept until the last one that a request has has come. */
static void the_replies_to_a_request_are_bounded_together(void **state)
{
    static char wire[(1 << 20) + 10];
    ddl_error error;
    (void)state;
    memset(wire, 'x', sizeof wire);
    memcpy(wire, "$1048576\r\n", 10);
    for (int request = 0; request < 3; request++) {
        ddl_status status = DDL_OK;
        int fed = 0;
        ddl_redis_reader_begin(reader);
        for (; fed < (request < 2 ? 15 : 100) && status == DDL_OK; fed++) {
            ddl_redis_reply *reply = NULL;
            status = ddl_redis_reader_feed(reader, wire, sizeof wire, &error);
            if (status != DDL_OK)
                break;
            assert_int_equal(ddl_redis_reader_feed(reader, "\r\n", 2, NULL), DDL_OK);
            assert_int_equal(ddl_redis_reader_next(reader, &reply, NULL), DDL_OK);
            assert_non_null(reply);
            ddl_redis_reply_destroy(reply);
        }
        assert_int_equal(status, request < 2 ? DDL_OK : DDL_EPROTO);
        assert_int_equal(fed, 15);
    }
    assert_non_null(strstr(error.text, "16 MiB for a request"));
}

/* As long as it may be, one longer, and without end; at once and in pieces. */
static void a_line_is_no_longer_than_allowed(void **state)
{
    static const size_t pieces[] = { 1, 1000, 1 << 14 };
    (void)state;
    for (size_t bytes = DDL_REDIS_LINE_BYTES; bytes <= DDL_REDIS_LINE_BYTES + 1; bytes++)
        for (size_t i = 0; i < 3 * 2; i++) {
            static char wire[3 * DDL_REDIS_LINE_BYTES];
            ddl_redis_reply *reply = NULL;
            ddl_error error = { .code = DDL_OK };
            ddl_status status = DDL_OK;
            bool is_endless = i >= 3 && bytes > DDL_REDIS_LINE_BYTES;
            memset(wire, i % 2 == 0 ? 'x' : '\r', sizeof wire); /* which may be half an end */
            memcpy(wire, "*1\r\n+", 5);
            if (!is_endless)
                memcpy(wire + 5 + bytes, "\r\n", 2);
            size_t all = is_endless ? sizeof wire : 5 + bytes + 2, fed = 0, piece = pieces[i % 3];
            for (; fed < all && status == DDL_OK; fed += piece) {
                size_t count = all - fed < piece ? all - fed : piece;
                assert_int_equal(ddl_redis_reader_feed(reader, wire + fed, count, NULL), DDL_OK);
                status = ddl_redis_reader_next(reader, &reply, &error);
            }
            assert_int_equal(status, bytes > DDL_REDIS_LINE_BYTES ? DDL_EPROTO : DDL_OK);
            if (status == DDL_OK) {
                assert_int_equal(reply->items[0]->text_bytes, bytes);
                ddl_redis_reply_destroy(reply);
                continue;
            }
            assert_null(reply);
            assert_non_null(strstr(error.text, "a longer line"));
            assert_true(!is_endless || fed < 5 + bytes + 2 + piece + 1);
            close_reader(NULL);
            open_reader(NULL);
        }
}

static void commands_are_words_of_any_bytes(void **state)
{
    static const char expected[] = "*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n";
    const ddl_view words[] = { { "SET", 3 }, { "a\r\nb", 4 }, { "", 0 } };
    ddl_bytes out = { 0 };
    (void)state;
    assert_true(ddl_redis_command(&out, words, 3));
    assert_int_equal(out.bytes, sizeof expected - 1);
    assert_memory_equal(out.data, expected, out.bytes);
    ddl_bytes_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replies_come_out_however_they_came_in, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(what_is_over_a_limit_ends_the_conversation, NULL, close_reader),
        cmocka_unit_test_setup_teardown(the_deepest_and_longest_replies_are_taken, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(a_flood_is_cut_off, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(the_replies_to_a_request_are_bounded_together, open_reader,
                                        close_reader),
        cmocka_unit_test_setup_teardown(a_line_is_no_longer_than_allowed, open_reader, close_reader),
        cmocka_unit_test(commands_are_words_of_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
