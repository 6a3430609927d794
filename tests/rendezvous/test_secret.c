/* test_secret.c - one secret for all who make it at the same time, and none out of files that others may have
 * made. */
#define _GNU_SOURCE
#include "base/failpoint.h"
#include "io/host.h"
#include "rendezvous/proof.h"
#include "rendezvous/secret.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

#include <cmocka.h>

enum { THREADS = 6, ROUNDS = 60 };

struct finder {
    pthread_barrier_t *together;
    bool on_host; /* or in the home directory */
    bool made;
    ddl_status status;
    ddl_error error;
    ddl_secret *secret;
};

static void *find(void *arg)
{
    struct finder *finder = arg;
    char path[DDL_SECRET_PATH];
    pthread_barrier_wait(finder->together);
    finder->status = finder->on_host
                         ? ddl_secret_of_host(&finder->secret, &finder->error)
                         : ddl_secret_of_home(true, path, &finder->made, &finder->secret, &finder->error);
    return NULL;
}

static void make_in_many_threads(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        char folder[] = "/tmp/ddl-secret-XXXXXX", inner[64], file[80];
        struct finder finders[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t together;
        int makers = 0;
        assert_non_null(mkdtemp(folder));
        setenv("HOME", folder, 1);
        setenv("XDG_RUNTIME_DIR", folder, 1);
        pthread_barrier_init(&together, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            finders[i] = (struct finder){ .together = &together, .on_host = round % 2 };
            assert_int_equal(pthread_create(&threads[i], NULL, find, &finders[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&together);
        for (int i = 0; i < THREADS; i++) {
            if (finders[i].status != DDL_OK)
                fail_msg("%s", finders[i].error.text);
            ddl_view first = ddl_secret_view(finders[0].secret), other = ddl_secret_view(finders[i].secret);
            assert_int_equal(other.bytes, DDL_SECRET_TEXT);
            assert_memory_equal(first.data, other.data, other.bytes);
            makers += finders[i].made;
        }
        if (round % 2 == 0)
            assert_int_equal(makers, 1);
        for (int i = 0; i < THREADS; i++)
            ddl_secret_destroy(finders[i].secret);
        /* Nothing is left but the file. */
        snprintf(inner, sizeof inner, "%s/%s", folder, round % 2 ? "ddl" : ".ddl");
        snprintf(file, sizeof file, "%s/secret", inner);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(inner), 0);
        assert_int_equal(rmdir(folder), 0);
    }
}

static void whoever_makes_a_secret_at_the_same_time_has_the_same(void **state)
{
    (void)state;
    make_in_many_threads(ROUNDS);
}

#ifdef DDL_FAILPOINTS
static void so_it_is_where_files_have_one_name_only(void **state)
{
    (void)state;
    ddl_failpoint_arm("rendezvous.link");
    make_in_many_threads(ROUNDS);
    /* As network file systems say it. */
    static const char *const others[] = { "rendezvous.link-exdev", "rendezvous.link-emlink",
                                          "rendezvous.link-eacces" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ddl_failpoint_arm(others[i]);
        make_in_many_threads(2);
    }
    ddl_failpoint_arm(NULL);
}
#endif

/* A home directory with the place of a secret in it. */
struct home {
    char folder[24], inner[32], file[40];
};

static void open_home(struct home *home)
{
    strcpy(home->folder, "/tmp/ddl-secret-XXXXXX");
    assert_non_null(mkdtemp(home->folder));
    setenv("HOME", home->folder, 1);
    snprintf(home->inner, sizeof home->inner, "%s/.ddl", home->folder);
    snprintf(home->file, sizeof home->file, "%s/secret", home->inner);
    assert_int_equal(mkdir(home->inner, 0700), 0);
}

/* Nothing else is left there. */
static void close_home(const struct home *home)
{
    assert_int_equal(rmdir(home->inner), 0);
    assert_int_equal(rmdir(home->folder), 0);
}

static void *write_later(void *arg)
{
    const int fd = *(const int *)arg;
    usleep(30000);
    if (write(fd, "0123456789abcdef\n", 17) != 17)
        return arg;
    return NULL;
}

static void a_file_that_is_just_being_written_is_waited_for(void **state)
{
    struct home home;
    char path[DDL_SECRET_PATH];
    ddl_secret *secret = NULL;
    ddl_error error;
    pthread_t writer;
    void *failed;
    (void)state;
    open_home(&home);
    int fd = open(home.file, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pthread_create(&writer, NULL, write_later, &fd), 0);
    ddl_status status = ddl_secret_of_home(true, path, NULL, &secret, &error);
    pthread_join(writer, &failed);
    assert_null(failed);
    if (status != DDL_OK)
        fail_msg("%s", error.text);
    assert_int_equal(ddl_secret_view(secret).bytes, 16);
    ddl_secret_destroy(secret);
    close(fd);
    assert_int_equal(unlink(home.file), 0);
    close_home(&home);
}

/* By a process that was killed; nobody can know whether it is still to come, so nobody else removes it. */
static void a_file_that_was_left_empty_is_to_be_removed(void **state)
{
    struct home home;
    char path[DDL_SECRET_PATH];
    ddl_secret *secret = NULL;
    ddl_error error;
    (void)state;
    open_home(&home);
    int fd = open(home.file, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ddl_secret_of_home(true, path, NULL, &secret, &error), DDL_ECONFIG);
    assert_non_null(strstr(error.text, home.file));
    assert_non_null(strstr(error.text, "is empty"));
    assert_non_null(strstr(error.text, "remove it"));
    assert_int_equal(unlink(home.file), 0);
    assert_int_equal(ddl_secret_of_home(true, path, NULL, &secret, &error), DDL_OK);
    ddl_secret_destroy(secret);
    assert_int_equal(unlink(home.file), 0);
    close_home(&home);
}

static void what_the_killed_left_beside_a_secret_goes_once_it_is_old(void **state)
{
    static const struct {
        const char *name;
        bool is_old, is_link, stays;
    } files[] = {
        { "secret.new-0123456789abcdef", true, false, false },
        { "secret.new-89abcdef01234567", false, false, true },
        { "secret.new-of-somebody", true, true, true },
        { "secret.old", true, false, true },
    };
    struct home home;
    char file[128], path[DDL_SECRET_PATH];
    ddl_secret *secret = NULL;
    (void)state;
    open_home(&home);
    for (int i = 0; i < 4; i++) {
        const time_t then = time(NULL) - (files[i].is_old ? 3700 : 3500);
        const struct timespec times[2] = { { .tv_sec = then }, { .tv_sec = then } };
        snprintf(file, sizeof file, "%s/%s", home.inner, files[i].name);
        if (files[i].is_link)
            assert_int_equal(symlink("/nowhere", file), 0);
        else
            close(open(file, O_WRONLY | O_CREAT | O_EXCL, 0600));
        assert_int_equal(utimensat(AT_FDCWD, file, times, AT_SYMLINK_NOFOLLOW), 0);
    }
    assert_int_equal(ddl_secret_of_home(true, path, NULL, &secret, NULL), DDL_OK);
    ddl_secret_destroy(secret);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", home.inner, files[i].name);
        if ((unlink(file) == 0) != files[i].stays)
            fail_msg("%s", files[i].name);
    }
    close_home(&home);
}

static void a_secret_that_may_not_be_made_is_not_there(void **state)
{
    char folder[] = "/tmp/ddl-secret-XXXXXX", path[DDL_SECRET_PATH];
    ddl_secret *secret = NULL;
    ddl_error error;
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("HOME", folder, 1);
    assert_int_equal(ddl_secret_of_home(false, path, NULL, &secret, &error), DDL_OK);
    assert_null(secret);
    assert_int_equal(rmdir(folder), 0);
}

/* As long as what is told of a source may be. */
#define TEN       "0123456789"
#define FIFTY     TEN TEN TEN TEN TEN
#define LONG_HOME "/home/" FIFTY FIFTY TEN TEN TEN TEN "012"

static void a_host_is_told_where_to_fetch_that_of_the_home_and_no_other(void **state)
{
    static const struct {
        const char *home, *source, *command; /* NULL: it is of another place */
    } cases[] = {
        { "/home/x", "read from /home/x/.ddl/secret", "scp 10.0.0.1:/home/x/.ddl/secret ~/" },
        { "/home/x", "read from /home/x/.ddl/secret, handed over by ddl-launch",
          "scp 10.0.0.1:/home/x/.ddl/secret ~/" },
        { "/home/x", "read from /home/x/.ddl/secret.old", NULL },
        { "/home/x", "read from /mnt/home/x/.ddl/secret", NULL },
        { "/home/x", "from DDL_SECRET", NULL },
        { LONG_HOME "x", "read from " LONG_HOME, "" }, /* cut off */
        { "/home/xyz", "read from /home/xyz/.ddl/s", NULL },
        { "/home/x y$(z)'", "read from /home/x y$(z)'/.ddl/secret",
          "scp 10.0.0.1:/home/x\\ y\\$\\(z\\)\\'/.ddl/secret ~/" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[DDL_SECRET_PATH], command[DDL_SECRET_COPY_COMMAND];
        setenv("HOME", cases[i].home, 1);
        assert_int_equal(ddl_secret_is_of_home(cases[i].source, path), cases[i].command != NULL);
        if (cases[i].command == NULL)
            continue;
        assert_int_equal(path[0] == '\0', cases[i].command[0] == '\0');
        if (path[0] == '\0')
            continue;
        ddl_secret_copy_command("10.0.0.1", path, command);
        if (strstr(command, cases[i].command) == NULL)
            fail_msg("%s", command);
    }
}

static void nobody_is_sent_to_his_own_loopback(void **state)
{
    static const char *const loopback[] = { "127.0.0.1", "127.0.1.1", "::1", "localhost", "LocalHost" };
    char own[DDL_HOST_NAME_TEXT], expected[DDL_HOST_NAME_TEXT + 16], command[DDL_SECRET_COPY_COMMAND];
    (void)state;
    ddl_host_name(own);
    snprintf(expected, sizeof expected, "scp %s:/x ~/", own);
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++) {
        ddl_secret_copy_command(loopback[i], "/x", command);
        assert_non_null(strstr(command, expected));
    }
    ddl_secret_copy_command("fd00::1", "/x", command);
    assert_non_null(strstr(command, "scp [fd00::1]:/x ~/"));
}

static void fresh_secrets_differ(void **state)
{
    ddl_secret *a, *b;
    (void)state;
    assert_int_equal(ddl_secret_make("a", &a, NULL), DDL_OK);
    assert_int_equal(ddl_secret_make("b", &b, NULL), DDL_OK);
    ddl_view first = ddl_secret_view(a), second = ddl_secret_view(b);
    assert_int_equal(first.bytes, second.bytes);
    assert_memory_not_equal(first.data, second.data, first.bytes);
    assert_string_equal(ddl_secret_source(b), "b");
    ddl_secret_destroy(a);
    ddl_secret_destroy(b);
}

/* A line end at the end is not of it, so that a file and what is pasted from it are the same. */
static void a_line_end_does_not_count(void **state)
{
    ddl_secret *secret;
    ddl_error error;
    (void)state;
    assert_int_equal(ddl_secret_create((ddl_view){ "0123456789abcdef\n", 17 }, "x", &secret, NULL), DDL_OK);
    assert_int_equal(ddl_secret_view(secret).bytes, 16);
    ddl_secret_destroy(secret);
    assert_int_equal(ddl_secret_create((ddl_view){ "0123456789abcde\n", 16 }, "x", &secret, &error),
                     DDL_ECONFIG);
    assert_null(strstr(error.text, "0123"));
}

/* What a forked child has of its parent's secrets. */
static void nothing_follows_from_an_empty_secret(void **state)
{
    (void)state;
    ddl_prover *prover = NULL;
    ddl_error error;
    static const uint8_t zeros[DDL_SECRET_LEAST];
    for (size_t bytes = 0; bytes < DDL_SECRET_LEAST; bytes++)
        assert_int_equal(
            ddl_proof_create((ddl_view){ zeros, bytes }, "nowhere", DDL_SECURITY_AUTH, &prover, &error),
            DDL_ECONFIG);
    assert_null(prover);
}

#ifdef __linux__
/* ---- where there is no directory of this user but one in /tmp ---- */

enum { NOBODY = 65534, LOOKS = 20000 };

/* The name in /tmp, which others may have taken, and a folder of ours to which they may lead it. */
static char ours[32];
static const char elsewhere[] = "/tmp/elsewhere";

/* From now on this program has a /tmp of its own, and no /run/user; false: it may not. */
static bool be_apart(void)
{
    unsetenv("XDG_RUNTIME_DIR");
    snprintf(ours, sizeof ours, "/tmp/ddl-%ld", (long)geteuid());
    return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/run", "tmpfs", 0, "size=1m") == 0 &&
           mount("none", "/tmp", "tmpfs", 0, "size=1m,mode=1777") == 0 && mkdir(elsewhere, 0700) == 0;
}

static void plant_link(void)
{
    assert_int_equal(symlink(elsewhere, ours), 0);
}

static void plant_folder(uid_t owner, mode_t mode)
{
    assert_int_equal(mkdir(ours, 0700), 0);
    assert_int_equal(chown(ours, owner, (gid_t)-1), 0);
    assert_int_equal(chmod(ours, mode), 0);
}

static void plant_foreign(void)
{
    plant_folder(NOBODY, 0700);
}

static void plant_open(void)
{
    plant_folder(geteuid(), 0777);
}

static void plant_readable(void)
{
    plant_folder(geteuid(), 0750);
}

/* Only what is empty can be removed. */
static void assert_nothing_was_written(void)
{
    assert_true(unlink(ours) == 0 || rmdir(ours) == 0);
    assert_int_equal(rmdir(elsewhere), 0);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
}

static void a_place_in_tmp_that_is_not_its_users_alone_is_refused(void **state)
{
    static void (*const plants[])(void) = { plant_link, plant_foreign, plant_open, plant_readable };
    char file[48];
    struct stat facts;
    ddl_secret *secret = NULL;
    ddl_error error;
    (void)state;
    if (!be_apart())
        skip();
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        plants[i]();
        assert_int_equal(ddl_secret_of_host(&secret, &error), DDL_ECONFIG);
        assert_null(secret);
        if (strstr(error.text, ours) == NULL || strstr(error.text, "belongs to you") == NULL)
            fail_msg("%s", error.text);
        assert_nothing_was_written();
    }
    assert_int_equal(ddl_secret_of_host(&secret, &error), DDL_OK);
    snprintf(file, sizeof file, "%s/secret", ours);
    assert_int_equal(stat(ours, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0700);
    assert_int_equal(stat(file, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0600);
    ddl_secret_destroy(secret);
    assert_int_equal(unlink(file), 0);
    assert_nothing_was_written();
}

/* Puts one in the place of the other, all the time. */
static void *swap(void *arg)
{
    atomic_bool *over = arg;
    while (!atomic_load(over))
        if (renameat2(AT_FDCWD, ours, AT_FDCWD, "/tmp/other", RENAME_EXCHANGE) != 0)
            return arg;
    return NULL;
}

static void a_link_that_comes_and_goes_is_never_followed(void **state)
{
    ddl_secret *first = NULL, *secret;
    ddl_error error;
    pthread_t swapper;
    void *failed;
    atomic_bool over = false;
    int refused = 0;
    (void)state;
    if (!be_apart())
        skip();
    assert_int_equal(ddl_secret_of_host(&first, &error), DDL_OK);
    assert_int_equal(symlink(elsewhere, "/tmp/other"), 0);
    assert_int_equal(pthread_create(&swapper, NULL, swap, &over), 0);
    for (int i = 0; i < LOOKS; i++) {
        if (ddl_secret_of_host(&secret, &error) != DDL_OK) {
            assert_int_equal(error.code, DDL_ECONFIG);
            refused++;
            continue;
        }
        ddl_view content = ddl_secret_view(first), other = ddl_secret_view(secret);
        assert_int_equal(other.bytes, content.bytes);
        assert_memory_equal(other.data, content.data, content.bytes);
        ddl_secret_destroy(secret);
    }
    atomic_store(&over, true);
    pthread_join(swapper, &failed);
    assert_null(failed);
    assert_in_range(refused, 1, LOOKS - 1); /* it was now this and now that */
    ddl_secret_destroy(first);
    assert_int_equal(rmdir(elsewhere), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_follows_from_an_empty_secret),
        cmocka_unit_test(whoever_makes_a_secret_at_the_same_time_has_the_same),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(so_it_is_where_files_have_one_name_only),
#endif
        cmocka_unit_test(a_file_that_is_just_being_written_is_waited_for),
        cmocka_unit_test(a_file_that_was_left_empty_is_to_be_removed),
        cmocka_unit_test(what_the_killed_left_beside_a_secret_goes_once_it_is_old),
        cmocka_unit_test(a_secret_that_may_not_be_made_is_not_there),
        cmocka_unit_test(a_host_is_told_where_to_fetch_that_of_the_home_and_no_other),
        cmocka_unit_test(nobody_is_sent_to_his_own_loopback),
        cmocka_unit_test(fresh_secrets_differ),
        cmocka_unit_test(a_line_end_does_not_count),
#ifdef __linux__
        cmocka_unit_test(a_place_in_tmp_that_is_not_its_users_alone_is_refused),
        cmocka_unit_test(a_link_that_comes_and_goes_is_never_followed),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
