/* test_staging.c - what staging makes of a GPU that does not end what it had begun. */
#include "backend/staging.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { OFF_CPU_MS = 10 };

struct ddl_device {
    ddl_drained drained;
    int limit_ms; /* of the last drain */
};

static struct ddl_device gpu;

static ddl_status open_gpu(int number, ddl_device **device, ddl_error *err)
{
    (void)number;
    (void)err;
    *device = &gpu;
    return DDL_OK;
}

static void close_gpu(ddl_device *device)
{
    (void)device;
}

/* It takes long, as where the thread is kept from its CPU. */
static ddl_drained drain(ddl_device *device, int timeout_ms)
{
    device->limit_ms = timeout_ms;
    ddl_pause_us(OFF_CPU_MS * 1000);
    return device->drained;
}

static const struct ddl_device_ops ops = { .open = open_gpu, .close = close_gpu, .drain = drain };

/* Whether buffers are said to be written to still. */
static bool tells(ddl_drained drained, ddl_deadline *hangs_until)
{
    char text[200] = "";
    ddl_staging *staging = NULL;
    ddl_error error;
    gpu.drained = drained;
    assert_int_equal(ddl_staging_create(&ops, 3, NULL, hangs_until, &staging, &error), DDL_OK);
    ddl_staging_drop(staging);
    ddl_staging_tell_hanging(staging, text, sizeof text);
    assert_int_equal(staging->lost, drained != DDL_DRAINED);
    ddl_staging_destroy(staging);
    return strstr(text, "GPU 3 does not end what it had begun here, and may still write") != NULL;
}

static void only_a_gpu_that_goes_on_may_still_write(void **state)
{
    (void)state;
    for (int is_known = 0; is_known < 2; is_known++) {
        static const ddl_drained all[] = { DDL_DRAINED, DDL_DRAIN_FAILED, DDL_DRAIN_LATE };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            ddl_deadline hangs_until = is_known ? ddl_deadline_in_ms(60000) : 0;
            assert_int_equal(tells(all[i], &hangs_until), all[i] == DDL_DRAIN_LATE);
            assert_int_equal(gpu.limit_ms, is_known ? DDL_DRAIN_LOOK_MS : DDL_DRAIN_MS);
        }
    }
}

static void what_hangs_is_known_to_all_who_take_turns(void **state)
{
    (void)state;
    ddl_deadline hangs_until = 0;
    assert_false(tells(DDL_DRAIN_FAILED, &hangs_until));
    assert_true(ddl_deadline_passed(hangs_until));
    assert_true(tells(DDL_DRAIN_LATE, &hangs_until));
    assert_false(ddl_deadline_passed(hangs_until));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(only_a_gpu_that_goes_on_may_still_write),
                                        cmocka_unit_test(what_hangs_is_known_to_all_who_take_turns) };
    return cmocka_run_group_tests_name("staging", tests, NULL, NULL);
}
