/* test_config.c - what a rank's options and variables come to, and where nobody has set any; what is refused.
 */
#include "api/config.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* What another program means by these names is nothing to a rank that has its own from its options. */
static void what_the_options_have_is_not_asked_of_the_environment(void **state)
{
    (void)state;
    ddl_options options = DDL_OPTIONS_INIT;
    ddl_config config;
    ddl_error error;
    unsetenv("DDL_CONNECT");
    setenv("DDL_TIMEOUT", "soon", 1);
    setenv("DDL_START_TIMEOUT", "later", 1);
    setenv("MASTER_PORT", "tcp://10.0.0.1:29500", 1); /* as Kubernetes does for a service called master */
    setenv("MASTER_ADDR", "10.0.0.1", 1);
    options.rank = 0;
    options.world_size = 2;
    options.store = "file:///shared";
    options.timeout_ms = 5000;
    assert_int_equal(ddl_config_read(&options, &config, &error), DDL_ECONFIG);
    options.start_timeout_ms = 6000;
    assert_int_equal(ddl_config_read(&options, &config, &error), DDL_OK);
    assert_int_equal(config.timeout_ms, 5000);
    assert_int_equal(config.start_timeout_ms, 6000);
    assert_string_equal(config.master, "");
    options.store = NULL;
    assert_int_equal(ddl_config_read(&options, &config, &error), DDL_ECONFIG);
    assert_non_null(strstr(error.text, "MASTER_PORT"));
    unsetenv("DDL_TIMEOUT");
    unsetenv("DDL_START_TIMEOUT");
    unsetenv("MASTER_PORT");
    unsetenv("MASTER_ADDR");
}

static void what_is_no_part_of_an_address_is_refused_on_one_line(void **state)
{
    static const struct {
        const char *address, *port, *said;
    } cases[] = {
        { "10.0.0.1\r", "29500", "MASTER_ADDR='10.0.0.1?'" },
        { "nodea\nnodeb", "29500", "MASTER_ADDR='nodea nodeb'" },
        { "tcp://10.0.0.1:5", "29500",
          "MASTER_ADDR=tcp://10.0.0.1:5 is a URL; set MASTER_ADDR=10.0.0.1, and" },
        { "tcp://[::1]:5/", "29500", "MASTER_ADDR=[::1], and" },
        { "me:secret@localhost", "29500", "MASTER_ADDR: an address has no @ in it; set the host alone" },
        { "redis://me:secret@localhost", "29500", "MASTER_ADDR: an address has no @ in it" },
        { "[::1", "29500", "MASTER_ADDR=[::1: brackets belong around an IPv6 address" },
        { "::1]", "29500", "MASTER_ADDR=::1]: brackets" },
        { "[::1]x", "29500", "MASTER_ADDR=[::1]x: brackets" },
        { "[]", "29500", "MASTER_ADDR=[]: brackets" },
        { "[::1]:5", "29500", "set MASTER_ADDR=[::1] and MASTER_PORT=5" },
        { "10.0.0.1", "29500\n", "MASTER_PORT=29500 : a whole number" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_options options = DDL_OPTIONS_INIT;
        ddl_config config;
        ddl_error error;
        options.rank = 0;
        options.world_size = 2;
        setenv("MASTER_ADDR", cases[i].address, 1);
        setenv("MASTER_PORT", cases[i].port, 1);
        assert_int_equal(ddl_config_read(&options, &config, &error), DDL_ECONFIG);
        if (strstr(error.text, cases[i].said) == NULL)
            fail_msg("%s", error.text);
        options.store = "file:///shared"; /* names it after neither */
        assert_int_equal(ddl_config_read(&options, &config, &error), DDL_OK);
        assert_string_equal(config.master, "");
    }
    unsetenv("MASTER_PORT");
    unsetenv("MASTER_ADDR");
}

static void what_is_wrong_in_the_options_is_told_as_theirs(void **state)
{
    (void)state;
    ddl_options options = DDL_OPTIONS_INIT;
    ddl_config config;
    ddl_error error;
    setenv("DDL_SECURITY", "tls", 1);
    options.security = "some";
    assert_int_equal(ddl_config_read(&options, &config, &error), DDL_ECONFIG);
    assert_non_null(strstr(error.text, "ddl_options.security=some"));
    setenv("DDL_SECURITY", "none", 1);
    options.security = NULL;
    assert_int_equal(ddl_config_read(&options, &config, &error), DDL_ECONFIG);
    assert_non_null(strstr(error.text, "DDL_SECURITY=none"));
    unsetenv("DDL_SECURITY");
}

static void a_world_has_a_largest_size_whoever_gives_it(void **state)
{
    static const struct {
        const char *environment; /* WORLD_SIZE; NULL: the options give it */
        int nranks;
        bool is_fine;
    } cases[] = {
        { NULL, 1 << 20, true },        { NULL, (1 << 20) + 1, false }, { NULL, INT_MAX, false },
        { "1048576", (1 << 20), true }, { "1048577", -1, false },       { "1048576", INT_MAX, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_options options = DDL_OPTIONS_INIT;
        ddl_config config;
        ddl_error error;
        options.rank = 0;
        options.world_size = cases[i].nranks;
        options.store = "file:///shared";
        if (cases[i].environment != NULL)
            setenv("WORLD_SIZE", cases[i].environment, 1);
        ddl_status status = ddl_config_read(&options, &config, &error);
        unsetenv("WORLD_SIZE");
        if (status != (cases[i].is_fine ? DDL_OK : DDL_ECONFIG))
            fail_msg("case %zu: %s", i, ddl_status_name(status));
        if (cases[i].is_fine)
            assert_int_equal(config.nranks, cases[i].nranks);
        else
            assert_non_null(strstr(error.text, "1048576"));
    }
}

/* A healthy rank may take so long to answer. */
static void ranks_have_a_second_to_give_a_sign(void **state)
{
    static const char *const names[] = { "DDL_UNREACH_TIMEOUT", "DDL_UNRESP_TIMEOUT" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        ddl_config config;
        ddl_error error;
        setenv(names[i], "999ms", 1);
        assert_int_equal(ddl_config_read(NULL, &config, &error), DDL_ECONFIG);
        assert_non_null(strstr(error.text, names[i]));
        assert_non_null(strstr(error.text, "=999ms: at least 1 s is needed"));
        setenv(names[i], "1s", 1);
        assert_int_equal(ddl_config_read(NULL, &config, &error), DDL_OK);
        unsetenv(names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_connect_late_above_128_ranks_unless_told_otherwise),
        cmocka_unit_test(what_the_options_have_is_not_asked_of_the_environment),
        cmocka_unit_test(what_is_no_part_of_an_address_is_refused_on_one_line),
        cmocka_unit_test(what_is_wrong_in_the_options_is_told_as_theirs),
        cmocka_unit_test(a_world_has_a_largest_size_whoever_gives_it),
        cmocka_unit_test(ranks_have_a_second_to_give_a_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
