/* test_exit.c - what an exit leaves of the library. Here nobody calls it before fork(), so that a child's
 * handlers for the exit that are registered before ddl_init run after the library's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <ddl/ddl.h>

#include "../support/now.h"

enum { PAGE = 4096 };

enum { LONGER_THAN_A_LINE_IS_WAITED_FOR_US = 700 * 1000 };

static void *page;

static void count_slowly(void *arg, const char *line)
{
    (void)line;
    nap_us(LONGER_THAN_A_LINE_IS_WAITED_FOR_US);
    ++*(volatile int *)arg;
}

static void unmap_page(void)
{
    munmap(page, PAGE);
    nap_us(LONGER_THAN_A_LINE_IS_WAITED_FOR_US);
}

static void exit_while_the_sink_is_called(void)
{
    static const char *const variables[] = { "RANK",         "WORLD_SIZE",           "MASTER_ADDR",
                                             "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    setenv("DDL_NO_SUCH_SETTING", "1", 1); /* a line for each */
    setenv("DDL_NOR_THIS_ONE", "1", 1);
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || atexit(unmap_page) != 0)
        _exit(2);
    ddl_set_log(count_slowly, page);
    ddl_comm *world = NULL;
    exit(ddl_init(&world, NULL) == DDL_OK && *(volatile int *)page < 2 ? 0 : 3);
}

static void what_the_sink_has_may_be_freed_by_later_handlers(void **state)
{
    (void)state;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        exit_while_the_sink_is_called();
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_sink_has_may_be_freed_by_later_handlers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
