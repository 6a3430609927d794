/* test_host.c - whose a disk is, and who calls at a local door, where that can be made otherwise. */
#define _GNU_SOURCE

#include "io/host.h"
#include "io/local.h"
#include "io/socket.h"

#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

static bool write_table(const char *text)
{
    FILE *table = fopen("/var/lib/nfs/etab", "w");
    bool written = table != NULL && fputs(text, table) >= 0;
    return (table == NULL || fclose(table) == 0) && written;
}

/* In a process of its own: whose folder /var/lib is, as others come to mount what is there. 0: as it should.
 */
static int look_at_disks(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/var/lib", "tmpfs", 0, NULL) != 0 || mkdir("/var/lib/nfs", 0755) != 0)
        return SKIPPED;
    if (!ddl_host_keeps("/var/lib"))
        return 1;
    if (ddl_host_keeps("/proc") || ddl_host_keeps("/var/lib/nowhere"))
        return 2;
    if (!write_table("") || !ddl_host_keeps("/var/lib"))
        return 3;
    if (!write_table("/home\t10.0.0.0/8(rw,sync)\n") || ddl_host_keeps("/var/lib"))
        return 4;
    return 0;
}

static void what_others_may_mount_is_not_kept_to_oneself(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(look_at_disks());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool become_another(void)
{
    return setgid(65534) == 0 && setuid(65534) == 0;
}

/* Root can, but not where it is alone. */
static bool can_become_another(void)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(become_another() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* As nobody in particular: call at a door of this user, and be called. 0: both were refused. */
static int be_another(const char door[DDL_LOCAL_NAME_BYTES], int own_door)
{
    ddl_error error;
    int fd;
    if (!become_another())
        return 4;
    if (ddl_local_connect(door, &fd, &error) != DDL_EAUTH)
        return 1;
    if (!ddl_socket_wait(own_door, POLLIN, ddl_deadline_in_ms(10000)))
        return 2;
    return ddl_local_accept(own_door, &fd, &error) == DDL_EAUTH ? 0 : 3;
}

static void another_user_is_neither_let_in_nor_called(void **state)
{
    char doors[2][DDL_LOCAL_NAME_BYTES];
    int listeners[2], status, fd;
    ddl_error error;
    (void)state;
    if (geteuid() != 0 || !can_become_another())
        skip();
    for (int i = 0; i < 2; i++)
        assert_int_equal(ddl_local_listen(2, doors[i], &listeners[i], NULL), DDL_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(be_another(doors[0], listeners[1]));
    /* Its call at the first door may have come to its end already, and counts as another's all the same. */
    assert_true(ddl_socket_wait(listeners[0], POLLIN, ddl_deadline_in_ms(10000)));
    assert_int_equal(ddl_local_accept(listeners[0], &fd, &error), DDL_EAUTH);
    assert_int_equal(ddl_local_connect(doors[1], &fd, NULL), DDL_OK); /* root made that door */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(fd);
    for (int i = 0; i < 2; i++)
        close(listeners[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_is_neither_let_in_nor_called),
        cmocka_unit_test(what_others_may_mount_is_not_kept_to_oneself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
