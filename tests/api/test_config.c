/* test_config.c - what follows from settings that nobody has made. */
#include "api/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void pairs_connect_late_above_128_ranks_unless_told_otherwise(void **state)
{
    static const struct {
        int nranks;
        const char *connect, *transport; /* NULL: not set */
        ddl_connect expected;
    } cases[] = {
        { 1, NULL, NULL, DDL_CONNECT_EAGER },     { 128, NULL, NULL, DDL_CONNECT_EAGER },
        { 129, NULL, NULL, DDL_CONNECT_LAZY },    { 128, "auto", NULL, DDL_CONNECT_EAGER },
        { 129, "auto", NULL, DDL_CONNECT_LAZY },  { 129, NULL, "tcp", DDL_CONNECT_LAZY },
        { 128, NULL, "shm", DDL_CONNECT_EAGER },  { 129, NULL, "shm", DDL_CONNECT_LAZY_REMOTE },
        { 100000, NULL, NULL, DDL_CONNECT_LAZY }, { 100000, "eager", NULL, DDL_CONNECT_EAGER },
        { 2, "lazy", NULL, DDL_CONNECT_LAZY },    { 2, "lazy", "shm", DDL_CONNECT_LAZY_REMOTE },
    };
    static const char *const others[] = { "RANK",      "WORLD_SIZE", "PMI_RANK",     "OMPI_COMM_WORLD_RANK",
                                          "DDL_STORE", "DDL_LAUNCH", "SLURM_PROCID", "DDL_TRANSPORT" };
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_options options = DDL_OPTIONS_INIT;
        ddl_config config;
        ddl_error error;
        options.rank = 0;
        options.world_size = cases[i].nranks;
        options.store = "tcp://127.0.0.1:29500";
        options.transport = cases[i].transport;
        unsetenv("DDL_CONNECT");
        if (cases[i].connect != NULL)
            setenv("DDL_CONNECT", cases[i].connect, 1);
        if (ddl_config_read(&options, &config, &error) != DDL_OK)
            fail_msg("%s", error.text);
        if (config.connect != cases[i].expected)
            fail_msg("case %zu: %d ranks connect as %d says", i, cases[i].nranks, (int)config.connect);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_connect_late_above_128_ranks_unless_told_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
