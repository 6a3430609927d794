/*
 * eventually.h - waiting for what another thread or process brings about, and failing where it does not come.
 * Looks are counted, not time, so that a test may have made the clock its own.
 */
#ifndef DDL_TESTS_SUPPORT_EVENTUALLY_H
#define DDL_TESTS_SUPPORT_EVENTUALLY_H

#include <poll.h>
#include <stdbool.h>

enum { EVENTUALLY_MS = 20000 };

#define EVENTUALLY(condition)                                                            \
    do {                                                                                 \
        bool has_come = false;                                                           \
        for (int looks = 0; !(has_come = (condition)) && looks < EVENTUALLY_MS; looks++) \
            (void)poll(NULL, 0, 1);                                                      \
        assert_true(has_come);                                                           \
    } while (0)

#endif
