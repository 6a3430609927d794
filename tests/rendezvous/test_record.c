/* test_record.c - what others put in the way of a record leads nowhere. */
#include "rendezvous/store_file_record.h"

#include "../support/folder.h"

#include <errno.h>
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

enum { STRANGER = 12345, PATH = 128 };

static const ddl_view content = { (const uint8_t *)"precious", 8 };

/* A directory with a place in it, DIR/ddl-place/run/key, and a tree of the same names elsewhere. */
struct ground {
    char directory[PATH];
    ino_t record; /* elsewhere/run/key/x */
};

static const char *const tree[] = { "", "/run", "/run/key" };
static const char *const files[] = { "/run/key/x", "/run/key/1", "/run/key/2", "/run/key/3" };
enum { LEVELS = 3, FILES = 4 };

static char *path_to(const struct ground *ground, const char *root, const char *item, char path[PATH])
{
    snprintf(path, PATH, "%.60s/%s%s", ground->directory, root, item);
    return path;
}

static ino_t inode_of(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 ? info.st_ino : 0;
}

static void ground_open(struct ground *ground)
{
    char path[PATH];
    snprintf(ground->directory, sizeof ground->directory, "/tmp/record-ddl-XXXXXX");
    assert_non_null(mkdtemp(ground->directory));
    assert_int_equal(chmod(ground->directory, 0777),
                     0); /* others may write to it, and rename what is there */
    for (int level = 0; level < LEVELS; level++) {
        assert_int_equal(mkdir(path_to(ground, "ddl-place", tree[level], path), 0700), 0);
        assert_int_equal(mkdir(path_to(ground, "elsewhere", tree[level], path), 0700), 0);
    }
    for (int i = FILES - 1; i >= 0; i--) {
        assert_int_equal(ddl_record_replace(path_to(ground, "ddl-place", files[i], path), content, NULL),
                         DDL_OK);
        assert_int_equal(ddl_record_replace(path_to(ground, "elsewhere", files[i], path), content, NULL),
                         DDL_OK);
    }
    ground->record = inode_of(path);
}

static int entries_of(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 2;
}

/* Nothing was made, removed or replaced in the tree at root. */
static void expect_untouched(const struct ground *ground, const char *root, const char *what)
{
    char path[PATH];
    if (inode_of(path_to(ground, root, "/run/key/x", path)) != ground->record)
        fail_msg("%s: the record elsewhere is gone", what);
    for (int level = 0; level < LEVELS; level++)
        if (entries_of(path_to(ground, root, tree[level], path)) != (level == 2 ? FILES : 1))
            fail_msg("%s: %d files are in %s", what, entries_of(path), path);
}

static void ground_close(const struct ground *ground)
{
    assert_int_equal(remove_folder(ground->directory), 0);
}

/* Put a link to its counterpart elsewhere in the stead of a folder of the place. */
static void put_link(const struct ground *ground, int level)
{
    char from[PATH], aside[PATH], to[PATH];
    path_to(ground, "ddl-place", tree[level], from);
    assert_int_equal(rename(from, path_to(ground, "aside", "", aside)), 0);
    assert_int_equal(symlink(path_to(ground, "elsewhere", tree[level], to), from), 0);
}

/* Put that folder of elsewhere itself there, as one that another may write to, or has. False: only root can.
 */
static bool put_folder(const struct ground *ground, int level, bool owned)
{
    char from[PATH], aside[PATH], to[PATH];
    if (owned && geteuid() != 0)
        return false;
    path_to(ground, "ddl-place", tree[level], from);
    assert_int_equal(rename(from, path_to(ground, "aside", "", aside)), 0);
    assert_int_equal(rename(path_to(ground, "elsewhere", tree[level], to), from), 0);
    assert_int_equal(owned ? chown(from, STRANGER, STRANGER) : chmod(from, 0770), 0);
    return true;
}

/* ---- every call ---- */

static bool creates(const char *path)
{
    bool created = false;
    return ddl_record_create(path, content, &created, NULL) == DDL_OK && created;
}

static bool replaces(const char *path)
{
    ddl_error error;
    return ddl_record_replace(path, (ddl_view){ NULL, 0 }, &error) == DDL_OK;
}

static bool reads(const char *path)
{
    ddl_bytes read = { 0 };
    bool found = false;
    (void)!ddl_record_read(path, 100, &read, &found, NULL);
    ddl_bytes_fini(&read);
    return found;
}

static bool touches(const char *path)
{
    return ddl_record_touch(path) == 0;
}

static bool removes(const char *path)
{
    return ddl_record_remove(path) == 0;
}

static bool makes_folder(const char *path)
{
    return ddl_record_folder(path, NULL) == DDL_OK;
}

static bool makes_new_folder(const char *path)
{
    return ddl_record_new_folder(path, NULL) == DDL_OK;
}

static bool lists(const char *path)
{
    DIR *folder = ddl_record_list(path);
    if (folder != NULL)
        closedir(folder);
    return folder != NULL;
}

static bool removes_tree(const char *path)
{
    ddl_record_remove_tree(path);
    return false; /* it does not say */
}

static bool locks(const char *path)
{
    int fd = -1;
    bool held = false;
    if (ddl_record_lock(path, &fd, &held, NULL) != DDL_OK)
        return false;
    close(fd);
    return true;
}

static bool tells_life(const char *path)
{
    return ddl_record_life_of(path) != DDL_RECORD_UNKNOWN;
}

static const struct {
    const char *name;
    bool (*works)(const char *path);
    const char *item;
} calls[] = {
    { "create", creates, "/run/key/new" },
    { "replace", replaces, "/run/key/x" },
    { "read", reads, "/run/key/x" },
    { "touch", touches, "/run/key/new" },
    { "remove", removes, "/run/key/x" },
    { "folder", makes_folder, "/run/key/new" },
    { "new_folder", makes_new_folder, "/run/key/new" },
    { "list", lists, "/run/key" },
    { "list with a slash", lists, "/run/key/" },
    { "lock, made", locks, "/run/key/new" },
    { "lock", locks, "/run/key/x" },
    { "life_of", tells_life, "/run/key/x" },
    { "remove_tree of key", removes_tree, "/run/key" },
    { "remove_tree of run", removes_tree, "/run" },
    { "remove_tree of the place", removes_tree, "" },
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void all_calls_work_where_nothing_is_in_the_way(void **state)
{
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        struct ground ground;
        char path[PATH];
        ground_open(&ground);
        path_to(&ground, "ddl-place", calls[i].item, path);
        const bool worked = calls[i].works(path);
        if (!worked && (calls[i].works != removes_tree || inode_of(path) != 0))
            fail_msg("%s does not work", calls[i].name);
        expect_untouched(&ground, "elsewhere", calls[i].name);
        ground_close(&ground);
    }
}

/* A link in the stead of the place, of a run, of a folder in it. What a call removes is the link, at most. */
static void no_call_is_led_elsewhere_by_a_link(void **state)
{
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        for (int level = 0; level < LEVELS; level++) {
            struct ground ground;
            char path[PATH];
            ground_open(&ground);
            put_link(&ground, level);
            if (calls[i].works(path_to(&ground, "ddl-place", calls[i].item, path)))
                fail_msg("%s went through a link at %s", calls[i].name, tree[level]);
            expect_untouched(&ground, "elsewhere", calls[i].name);
            ground_close(&ground);
        }
    }
}

static void no_call_goes_through_what_is_another_s(void **state)
{
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        for (int level = 0; level < LEVELS; level++) {
            for (int owned = 0; owned < 2; owned++) {
                struct ground ground;
                char path[PATH];
                ground_open(&ground);
                if (put_folder(&ground, level, owned)) {
                    if (calls[i].works(path_to(&ground, "ddl-place", calls[i].item, path)))
                        fail_msg("%s went through another's folder at %s", calls[i].name, tree[level]);
                    expect_untouched(&ground, "ddl-place", calls[i].name);
                }
                ground_close(&ground);
            }
        }
    }
}

/* Nor does a link in the stead of the record itself, to one that is whole, or to what is to be made. */
static void what_is_a_link_is_no_record(void **state)
{
    static bool (*const looks[])(const char *path) = { reads, tells_life, lists, locks, creates, touches };
    static const char *const ends[] = { "/run/key/x", "/run/key/new" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ground ground;
        char path[PATH], to[PATH];
        ground_open(&ground);
        path_to(&ground, "ddl-place", "/run/key/link", path);
        assert_int_equal(symlink(path_to(&ground, "elsewhere", ends[i], to), path), 0);
        for (int look = 0; look < 6; look++)
            assert_false(looks[look](path));
        assert_true(reads(to) == (i == 0));
        assert_true(replaces(path));
        expect_untouched(&ground, "elsewhere", ends[i]);
        ground_close(&ground);
    }
}

/* The directory that the user names may be a link, be for all to write to, and be named as places are. */
static void a_directory_that_is_named_like_a_place_is_none(void **state)
{
    struct ground ground;
    char directory[PATH], link[PATH], path[PATH + 16];
    (void)state;
    ground_open(&ground);
    assert_int_equal(mkdir(path_to(&ground, "ddl-team", "", directory), 0700), 0);
    assert_int_equal(chmod(directory, 0777), 0);
    assert_int_equal(symlink(directory, path_to(&ground, "ddl-link", "", link)), 0);
    snprintf(path, sizeof path, "%s/ddl-place", link);
    assert_true(makes_folder(path));
    strcat(path, "/meet");
    assert_true(creates(path));
    assert_true(reads(path));
    ground_close(&ground);
}

/* ---- a folder that is swapped for a link while it is being emptied ---- */

#ifdef __linux__
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

static const struct ground *swapped; /* behind the next call that tries to remove such a name */
static bool swapped_early;

/* Before key is opened, or at the first file in it, while it is open. */
static void swap(const char *name)
{
    const int error = errno;
    if (swapped != NULL && strlen(name) == (swapped_early ? strlen("key") : strlen("x"))) {
        put_link(swapped, 2);
        swapped = NULL;
    }
    errno = error;
}

static const char *lossy; /* a record that is empty as soon as it is in its place */

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    const int result = __real_unlinkat(folder, name, flags);
    swap(name);
    if (lossy != NULL && strstr(name, DDL_RECORD_NEW) != NULL)
        assert_int_equal(truncate(lossy, 0), 0);
    return result;
}

int __wrap_unlink(const char *path)
{
    const int result = __real_unlink(path);
    swap(strrchr(path, '/') + 1);
    return result;
}

static void what_is_swapped_for_a_link_meanwhile_leads_nowhere(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++) {
        struct ground ground;
        char path[PATH];
        ground_open(&ground);
        swapped_early = early;
        swapped = &ground;
        ddl_record_remove_tree(path_to(&ground, "ddl-place", "/run", path));
        assert_null(swapped);
        expect_untouched(&ground, "elsewhere", early ? "early" : "late");
        ground_close(&ground);
    }
}

/* As a disk may be full, or a server lie. */
static void what_does_not_hold_what_was_written_is_found_out(void **state)
{
    struct ground ground;
    char path[PATH];
    bool created = false;
    ddl_error error;
    (void)state;
    ground_open(&ground);
    lossy = path_to(&ground, "ddl-place", "/run/key/new", path);
    assert_int_equal(ddl_record_create(path, content, &created, &error), DDL_ESTORE);
    assert_non_null(strstr(error.text, "does not hold what was written"));
    lossy = NULL;
    ground_close(&ground);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_calls_work_where_nothing_is_in_the_way),
        cmocka_unit_test(no_call_is_led_elsewhere_by_a_link),
        cmocka_unit_test(no_call_goes_through_what_is_another_s),
        cmocka_unit_test(what_is_a_link_is_no_record),
        cmocka_unit_test(a_directory_that_is_named_like_a_place_is_none),
#ifdef __linux__
        cmocka_unit_test(what_is_swapped_for_a_link_meanwhile_leads_nowhere),
        cmocka_unit_test(what_does_not_hold_what_was_written_is_found_out),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
