/* test_aside.c - what is done aside is waited for until its deadline, and released by whoever has it last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/eventually.h"
#include "base/aside.h"
#include "base/bytes.h"
#include "base/failpoint.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUICK_MS = 50, PATIENCE_MS = 30000 };

static atomic_int nreleased;
static int gate[2]; /* a pipe: what hangs reads from it */

struct work {
    ddl_status status;
    bool hangs;
    useconds_t then_us; /* which it takes after that */
    pthread_t thread;   /* that did it */
};

static ddl_status act(void *state, ddl_error *err)
{
    struct work *work = state;
    char byte;
    work->thread = pthread_self();
    if (work->hangs && read(gate[0], &byte, 1) != 1)
        return DDL_EINTERNAL;
    usleep(work->then_us);
    return work->status != DDL_OK ? DDL_FAIL(err, work->status, "as it was to be") : DDL_OK;
}

static void release(void *state)
{
    ddl_free(state);
    atomic_fetch_add(&nreleased, 1);
}

static struct work *make(ddl_status status, bool hangs)
{
    struct work *work = ddl_alloc(sizeof *work);
    assert_non_null(work);
    work->status = status;
    work->hangs = hangs;
    return work;
}

static ddl_status run(struct work *work, int ms, bool *lost, ddl_error *err)
{
    const ddl_aside aside = { act, release, work, "work" };
    return ddl_aside_run(&aside, ddl_deadline_in_ms(ms), lost, err);
}

static void what_comes_back_in_time_is_the_callers(void **state)
{
    (void)state;
    ddl_error error = { .code = DDL_OK };
    bool lost = true;
    struct work *work = make(DDL_OK, false);
    assert_int_equal(run(work, PATIENCE_MS, &lost, &error), DDL_OK);
    assert_false(lost);
    assert_false(pthread_equal(work->thread, pthread_self()));
    work->status = DDL_EAUTH;
    lost = true;
    assert_int_equal(run(work, PATIENCE_MS, &lost, &error), DDL_EAUTH);
    assert_false(lost);
    assert_string_equal(error.text, "as it was to be");
    assert_int_equal(run(work, PATIENCE_MS, &lost, NULL), DDL_EAUTH);
    ddl_free(work);
    assert_int_equal(atomic_load(&nreleased), 0);
}

static void what_does_not_is_given_up_and_releases_itself(void **state)
{
    (void)state;
    ddl_error error = { .code = DDL_OK };
    bool lost = false;
    const int64_t start_ns = ddl_now_ns();
    assert_int_equal(run(make(DDL_OK, true), QUICK_MS, &lost, &error), DDL_ETIMEDOUT);
    assert_true(lost);
    assert_true(ddl_now_ns() - start_ns >= QUICK_MS * DDL_NS_PER_MS);
    assert_non_null(strstr(error.text, "work has not returned for 0."));
    assert_int_equal(atomic_load(&nreleased), 0);
    assert_int_equal(write(gate[1], "", 1), 1);
    EVENTUALLY(atomic_load(&nreleased) != 0);
    assert_int_equal(atomic_load(&nreleased), 1);
}

/* By 0.1 s, with all that it does. */
static void what_does_not_hang_comes_back_though_the_time_is_over(void **state)
{
    (void)state;
    bool lost = true;
    struct work *work = make(DDL_OK, false);
    assert_int_equal(run(work, 0, &lost, NULL), DDL_OK);
    assert_false(lost);
    ddl_free(work);
}

/* A process that was stopped beyond the deadline does not take that for a file that hangs. */
static void who_was_stopped_waits_on(void **state)
{
    enum { ALREADY_US = 100 * 1000, STOPPED_US = 800 * 1000, LIMIT_MS = 400 };
    (void)state;
    bool lost = true;
    const pid_t process = getpid(), child = fork();
    if (child == 0) {
        usleep(ALREADY_US);
        kill(process, SIGSTOP);
        usleep(STOPPED_US);
        const bool is_told = write(gate[1], "", 1) == 1;
        kill(process, SIGCONT);
        _exit(is_told ? 0 : 1);
    }
    struct work *work = make(DDL_OK, true);
    work->then_us = ALREADY_US;
    assert_int_equal(run(work, LIMIT_MS, &lost, NULL), DDL_OK);
    assert_false(lost);
    ddl_free(work);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#ifdef DDL_FAILPOINTS
static void without_a_thread_it_is_done_here(void **state)
{
    (void)state;
    bool lost = true;
    struct work *work = make(DDL_EAUTH, false);
    ddl_failpoint_arm("base.aside");
    assert_int_equal(run(work, PATIENCE_MS, &lost, NULL), DDL_EAUTH);
    ddl_failpoint_arm(NULL);
    assert_false(lost);
    assert_true(pthread_equal(work->thread, pthread_self()));
    ddl_free(work);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_back_in_time_is_the_callers),
        cmocka_unit_test(what_does_not_is_given_up_and_releases_itself),
        cmocka_unit_test(what_does_not_hang_comes_back_though_the_time_is_over),
        cmocka_unit_test(who_was_stopped_waits_on),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(without_a_thread_it_is_done_here),
#endif
    };
    if (pipe(gate) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
