/*
 * cmocka.h - as much of cmocka as tests/compute/test_compute_cpu.c asks for, where there is none: built for
 * another processor by tools/check_arm.
 *
 * A test that fails ends the program.
 */
#ifndef DDL_TESTS_COMPUTE_ARM_CMOCKA_H
#define DDL_TESTS_COMPUTE_ARM_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*function)(void **state);
};

/* clang-format off */
#define cmocka_unit_test(test) { #test, test }
/* clang-format on */

#define fail_msg(...)                                   \
    do {                                                \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__);                   \
        fprintf(stderr, "\n");                          \
        exit(1);                                        \
    } while (0)

#define assert_true(condition)                  \
    do {                                        \
        if (!(condition))                       \
            fail_msg("not so: %s", #condition); \
    } while (0)
#define assert_non_null(pointer)              assert_true((pointer) != NULL)
#define assert_null(pointer)                  assert_true((pointer) == NULL)
#define assert_int_equal(one, other)          assert_true((one) == (other))
#define assert_ptr_equal(one, other)          assert_true((one) == (other))
#define assert_string_equal(one, other)       assert_true(strcmp((one), (other)) == 0)
#define assert_memory_equal(one, other, size) assert_true(memcmp((one), (other), (size)) == 0)

static inline int run_tests(const struct CMUnitTest tests[], size_t count)
{
    void *state = NULL;
    for (size_t i = 0; i < count; i++) {
        tests[i].function(&state);
        printf("ok %s\n", tests[i].name);
    }
    return 0;
}

#define cmocka_run_group_tests(tests, setup, teardown) run_tests(tests, sizeof(tests) / sizeof *(tests))

#endif
