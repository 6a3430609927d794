/* test_redis_url.c - addresses of Redis servers, and files with passwords. */
#include "rendezvous/store_redis_url.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void urls_are_taken_apart(void **state)
{
    static const struct {
        const char *rest, *host;
        int port, db;
        const char *user, *password_file, *prefix, *ca_file;
    } cases[] = {
        { "db:6379", "db", 6379, 0, "", "", "ddl", "" },
        { "10.0.0.1:1/7", "10.0.0.1", 1, 7, "", "", "ddl", "" },
        { "[::1]:65535/", "::1", 65535, 0, "", "", "ddl", "" },
        { "me@db:6379", "db", 6379, 0, "me", "", "ddl", "" },
        { "me:/home/me/pw@db:6379/2", "db", 6379, 2, "me", "/home/me/pw", "ddl", "" },
        { ":/home/m@e/pw@db:6379", "db", 6379, 0, "", "/home/m@e/pw", "ddl", "" },
        { "me:/a%3fb%25@db:6379?prefix=team.a-1", "db", 6379, 0, "me", "/a?b%", "team.a-1", "" },
        { "db:6379?cacert=/etc/a%20b.pem&prefix=p", "db", 6379, 0, "", "", "p", "/etc/a b.pem" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_redis_url url;
        ddl_error error;
        if (ddl_redis_url_parse(cases[i].rest, true, &url, &error) != DDL_OK)
            fail_msg("%s: %s", cases[i].rest, error.text);
        assert_string_equal(url.host, cases[i].host);
        assert_int_equal(url.port, cases[i].port);
        assert_int_equal(url.db, cases[i].db);
        assert_string_equal(url.user, cases[i].user);
        assert_string_equal(url.password_file, cases[i].password_file);
        assert_string_equal(url.prefix, cases[i].prefix);
        assert_string_equal(url.ca_file, cases[i].ca_file);
    }
}

/* Whatever is wrong with it: a password that somebody wrote where its file should be is not said again. */
static void bad_urls_are_refused_without_a_word_of_a_password(void **state)
{
    static const char *const cases[] = {
        "",
        "db",
        "db:0",
        "db:65536",
        ":6379",
        "::1:6379",
        "db:6379/x",
        "db:6379/-1",
        "db:6379/99999999999",
        "db:6379?prefix=",
        "db:6379?prefix=a*",
        "db:6379?prefix=a b",
        "db:6379?password=hunter2",
        "db:6379?hunter2",
        "me:hunter2@db:6379",
        "me:hunter2/@db:6379",
        ":hunter2@db:6379",
        "me:hunter2",
        "me:hunter2?x@db:6379",
        "me:hunter2:6379",
        "me:/p%0w@db:6379",
        "me:/p%00@db:6379",
        "me:/p%",
    };
    char longest[2000] = "db:6379?prefix=";
    ddl_redis_url url;
    ddl_error error;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (ddl_redis_url_parse(cases[i], false, &url, &error) != DDL_ECONFIG)
            fail_msg("%s was taken", cases[i]);
        assert_null(strstr(error.text, "hunter2"));
        assert_non_null(strstr(error.text, "DDL_STORE"));
    }
    memset(longest + strlen(longest), 'p', 1000);
    assert_int_equal(ddl_redis_url_parse(longest, false, &url, &error), DDL_ECONFIG);
    memset(longest, 'h', 1500);
    assert_int_equal(ddl_redis_url_parse(longest, false, &url, &error), DDL_ECONFIG);
}

static void a_password_is_read_from_a_file_that_is_ours_alone(void **state)
{
    static const struct {
        const char *content;
        mode_t mode;
        const char *password, *text; /* one of them NULL */
    } cases[] = {
        { "hunter2", 0600, "hunter2", NULL },
        { "hunter2\n", 0400, "hunter2", NULL },
        { "two words\r\nrest\n", 0600, "two words", NULL },
        { "hunter2\n", 0640, NULL, "chmod 600" },
        { "hunter2\n", 0604, NULL, "chmod 600" },
        { "", 0600, NULL, "empty" },
        { "\nhunter2", 0600, NULL, "empty" },
    };
    char folder[] = "/tmp/ddl-password-XXXXXX", path[64], other[64], password[DDL_REDIS_PASSWORD_BYTES];
    ddl_error error;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(cases[i].content, file);
        fclose(file);
        assert_int_equal(chmod(path, cases[i].mode), 0);
        ddl_status status = ddl_redis_password_read(path, password, &error);
        assert_int_equal(status, cases[i].text == NULL ? DDL_OK : DDL_ECONFIG);
        if (status == DDL_OK)
            assert_string_equal(password, cases[i].password);
        else
            assert_non_null(strstr(error.text, cases[i].text));
        if (status != DDL_OK)
            assert_null(strstr(error.text, "hunter2"));
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(ddl_redis_password_read(path, password, &error), DDL_ECONFIG);
    assert_non_null(strstr(error.text, "No such file"));
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(ddl_redis_password_read(path, password, &error), DDL_ECONFIG);
    assert_non_null(strstr(error.text, "is a link"));
    assert_int_equal(mkfifo(other, 0600), 0); /* must not be waited for */
    assert_int_equal(ddl_redis_password_read(other, password, &error), DDL_ECONFIG);
    assert_int_equal(ddl_redis_password_read(folder, password, &error), DDL_ECONFIG);
    unlink(other);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_taken_apart),
        cmocka_unit_test(bad_urls_are_refused_without_a_word_of_a_password),
        cmocka_unit_test(a_password_is_read_from_a_file_that_is_ours_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
