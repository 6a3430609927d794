/* test_arguments.c - a world of one: what makes no sense is refused and changes nothing, every collective is
 * the identity, and what there is beside the calls on data. */
#include "../conformance/call.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const variables[] = {
    "RANK",         "WORLD_SIZE",           "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "NODE_RANK",
    "GROUP_RANK",   "LOCAL_WORLD_SIZE",     "DDL_STORE",   "DDL_TIMEOUT", "DDL_IFACE",  "DDL_TRANSPORT",
    "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"
};

static void be_alone(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
}

static int open_world(void **state)
{
    ddl_comm *world = NULL;
    be_alone();
    if (ddl_init(&world, NULL) != DDL_OK) {
        fprintf(stderr, "%s\n", ddl_last_error()->text);
        return -1;
    }
    *state = world;
    return 0;
}

static int close_world(void **state)
{
    ddl_comm *world = *state;
    return ddl_comm_free(&world) == DDL_OK && world == NULL ? 0 : -1;
}

/* ---- refused ---- */

enum { ELEMENTS = 8 };

static float in[ELEMENTS], out[ELEMENTS];

static void assert_refused(const char *name, const call *c, ddl_comm *world)
{
    ddl_request *never = (ddl_request *)(uintptr_t)&in, *request = never;
    float before[ELEMENTS];

    memcpy(before, out, sizeof out);
    for (int blocking = 0; blocking < 2; blocking++) {
        ddl_status status = call_make(c, world, blocking ? NULL : &request);
        const ddl_error *error = ddl_last_error();
        if (status != DDL_EINVAL || error->code != DDL_EINVAL || error->text[0] == '\0' ||
            error->culprit != -1 || request != never || memcmp(before, out, sizeof out) != 0)
            fail_msg("%s of %s: status %s, error %s, text \"%s\", request %s", name,
                     oracle_kind_name(c->kind), ddl_status_name(status), ddl_status_name(error->code),
                     error->text, request == never ? "untouched" : "written");
    }
}

static const oracle_kind with_buffers[] = { ORACLE_ALLREDUCE, ORACLE_REDUCE,    ORACLE_REDUCE_SCATTER,
                                            ORACLE_ALLGATHER, ORACLE_BROADCAST, ORACLE_ALLTOALL };

enum { WITH_BUFFERS = sizeof with_buffers / sizeof with_buffers[0] };

static const call sound = {
    .kind = ORACLE_ALLREDUCE, .send = in, .recv = out, .count = ELEMENTS, .dtype = DDL_FLOAT32, .op = DDL_SUM
};

static void missing_buffers_are_refused(void **state)
{
    for (int i = 0; i < WITH_BUFFERS; i++) {
        call c = sound;
        c.kind = with_buffers[i];
        c.recv = NULL;
        assert_refused("a NULL recv", &c, *state);
        if (c.kind == ORACLE_BROADCAST)
            continue;
        c.recv = out;
        c.send = NULL;
        assert_refused("a NULL send", &c, *state);
    }
}

static void a_missing_communicator_is_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < ORACLE_KINDS; kind++) {
        call c = sound;
        c.kind = (oracle_kind)kind;
        assert_refused("a NULL communicator", &c, NULL);
        c.receives = true;
        assert_refused("a NULL communicator", &c, NULL);
    }
    assert_int_equal(ddl_comm_set_timeout(NULL, 1000), DDL_EINVAL);
    assert_int_equal(ddl_rank(NULL), -1);
    assert_int_equal(ddl_size(NULL), -1);
    assert_int_equal(ddl_local_rank(NULL), -1);
    assert_int_equal(ddl_local_size(NULL), -1);
    assert_int_equal(ddl_node_rank(NULL), -1);
    assert_int_equal(ddl_node_count(NULL), -1);
}

static void counts_that_overflow_are_refused(void **state)
{
    static const size_t counts[] = { SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4 + 1, SIZE_MAX / 8 + 1 };
    for (int i = 0; i < WITH_BUFFERS; i++)
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            call c = sound;
            c.kind = with_buffers[i];
            c.dtype = DDL_FLOAT64;
            c.count = counts[k];
            assert_refused("a count that overflows", &c, *state);
        }
}

static void unknown_types_and_operators_are_refused(void **state)
{
    static const int wrong[] = { -1, 12, 100, 1 << 20 };
    for (int i = 0; i < WITH_BUFFERS; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            call c = sound;
            c.kind = with_buffers[i];
            c.dtype = wrong[k];
            assert_refused("an unknown type", &c, *state);
            c.dtype = DDL_FLOAT32;
            c.op = k == 1 ? DDL_BXOR + 1 : wrong[k];
            if (oracle_reduces(c.kind))
                assert_refused("an unknown operator", &c, *state);
        }
}

static void bitwise_operators_on_floats_are_refused(void **state)
{
    static const int floats[] = { DDL_FLOAT16, DDL_BFLOAT16, DDL_FLOAT32, DDL_FLOAT64 };
    for (int i = 0; i < WITH_BUFFERS; i++)
        for (int op = DDL_BAND; op <= DDL_BXOR; op++)
            for (int k = 0; k < 4; k++) {
                call c = sound;
                c.kind = with_buffers[i];
                c.count = 2;
                c.dtype = floats[k];
                c.op = op;
                if (oracle_reduces(c.kind))
                    assert_refused("a bitwise operator on floats", &c, *state);
            }
}

static void roots_and_peers_outside_the_world_are_refused(void **state)
{
    static const int wrong[] = { -1, 1, 1000, -1000000 };
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        call c = sound;
        c.root = wrong[k];
        c.kind = ORACLE_BROADCAST;
        assert_refused("a root outside", &c, *state);
        c.kind = ORACLE_REDUCE;
        assert_refused("a root outside", &c, *state);
        c.kind = ORACLE_PAIR;
        assert_refused("a peer outside", &c, *state);
        c.receives = true;
        assert_refused("a peer outside", &c, *state);
    }
}

static void the_own_rank_is_no_peer(void **state)
{
    call c = sound;
    c.kind = ORACLE_PAIR;
    assert_refused("the own rank", &c, *state);
    c.receives = true;
    assert_refused("the own rank", &c, *state);
}

static void overlapping_buffers_are_refused(void **state)
{
    static const oracle_kind kinds[] = { ORACLE_ALLREDUCE, ORACLE_REDUCE, ORACLE_REDUCE_SCATTER,
                                         ORACLE_ALLGATHER, ORACLE_ALLTOALL };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        call c = sound;
        c.kind = kinds[k];
        c.count = 4;
        c.send = out;
        c.recv = out + 1;
        assert_refused("recv one element into send", &c, *state);
        c.send = out + 3;
        c.recv = out;
        assert_refused("send on the last element of recv", &c, *state);
    }
}

static void neighbouring_buffers_are_no_overlap(void **state)
{
    float both[2 * ELEMENTS] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    assert_int_equal(ddl_allreduce(both, both + ELEMENTS, ELEMENTS, DDL_FLOAT32, DDL_SUM, *state, NULL),
                     DDL_OK);
    assert_memory_equal(both, both + ELEMENTS, ELEMENTS * sizeof both[0]);
    assert_int_equal(ddl_allreduce(both + ELEMENTS, both, ELEMENTS, DDL_FLOAT32, DDL_SUM, *state, NULL),
                     DDL_OK);
}

static void timeouts_must_be_positive(void **state)
{
    ddl_comm *world = *state;
    assert_int_equal(ddl_comm_set_timeout(world, 0), DDL_EINVAL);
    assert_int_equal(ddl_comm_set_timeout(world, -1), DDL_EINVAL);
    assert_int_equal(ddl_comm_set_timeout(world, INT64_MIN), DDL_EINVAL);
    assert_int_equal(ddl_comm_set_timeout(world, 1), DDL_OK);
    assert_int_equal(ddl_comm_set_timeout(world, INT64_MAX), DDL_OK);
    assert_int_equal(ddl_barrier(world, NULL), DDL_OK);
    assert_int_equal(ddl_comm_set_timeout(world, 300000), DDL_OK);
}

static void a_refused_call_takes_no_place_in_the_order(void **state)
{
    ddl_comm *world = *state;
    float one = 1, sum = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ddl_allreduce(&one, NULL, 1, DDL_FLOAT32, DDL_SUM, world, NULL), DDL_EINVAL);
        assert_int_equal(ddl_last_error()->sequence, 0);
        assert_string_equal(ddl_last_error()->operation, "allreduce");
        assert_int_equal(ddl_allreduce(&one, &sum, 1, DDL_FLOAT32, DDL_SUM, world, NULL), DDL_OK);
        assert_true(sum == 1.0f);
    }
}

/* ---- requests ---- */

static void nothing_to_wait_for_is_done(void **state)
{
    ddl_request *none[3] = { NULL, NULL, NULL };
    size_t index = 77;
    bool done = false;

    (void)state;
    assert_int_equal(ddl_wait(&none[0]), DDL_OK);
    assert_int_equal(ddl_wait_all(0, NULL), DDL_OK);
    assert_int_equal(ddl_wait_all(3, none), DDL_OK);
    assert_int_equal(ddl_test(&none[0], &done), DDL_OK);
    assert_true(done);
    assert_int_equal(ddl_wait_any(0, NULL, &index), DDL_EINVAL);
    assert_int_equal(ddl_wait_any(3, none, &index), DDL_EINVAL);
    assert_int_equal(index, 77);
}

static void missing_request_arguments_are_refused(void **state)
{
    ddl_request *request = NULL, *requests[1];
    size_t index;

    assert_int_equal(ddl_wait_all(2, NULL), DDL_EINVAL);
    assert_int_equal(ddl_wait_any(2, NULL, &index), DDL_EINVAL);
    assert_int_equal(ddl_barrier(*state, &request), DDL_OK);
    assert_non_null(request);
    assert_int_equal(ddl_test(&request, NULL), DDL_EINVAL);
    requests[0] = request;
    assert_int_equal(ddl_wait_any(1, requests, NULL), DDL_EINVAL);
    assert_ptr_equal(requests[0], request);
    assert_int_equal(ddl_wait(&request), DDL_OK);
    assert_null(request);
}

static void requests_complete_by_every_way(void **state)
{
    float value[6] = { 1, 2, 3, 4, 5, 6 };
    ddl_request *requests[6] = { NULL };
    size_t index = 99;
    bool done = false;

    for (int i = 0; i < 6; i++)
        if (i != 2) {
            assert_int_equal(
                ddl_allreduce(&value[i], &value[i], 1, DDL_FLOAT32, DDL_SUM, *state, &requests[i]), DDL_OK);
            assert_non_null(requests[i]);
        }
    assert_int_equal(ddl_wait(&requests[4]), DDL_OK);
    assert_null(requests[4]);
    assert_int_equal(ddl_wait_any(6, requests, &index), DDL_OK);
    assert_true(index < 6 && index != 2 && index != 4);
    assert_null(requests[index]);
    for (int i = 0; i < 6; i++)
        if (requests[i] != NULL) {
            while (!done)
                assert_int_equal(ddl_test(&requests[i], &done), DDL_OK);
            assert_null(requests[i]);
            break;
        }
    assert_int_equal(ddl_wait_all(6, requests), DDL_OK);
    for (int i = 0; i < 6; i++) {
        assert_null(requests[i]);
        assert_true(value[i] == (float)(i + 1));
    }
}

static void freeing_completes_what_is_in_flight(void **state)
{
    ddl_comm *world = NULL;
    ddl_request *request = NULL;
    float value = 3, sum = 0;

    (void)state;
    be_alone();
    assert_int_equal(ddl_init(&world, NULL), DDL_OK);
    assert_int_equal(ddl_allreduce(&value, &sum, 1, DDL_FLOAT32, DDL_SUM, world, &request), DDL_OK);
    assert_int_equal(ddl_comm_free(&world), DDL_OK);
    assert_null(world);
    assert_int_equal(ddl_wait(&request), DDL_OK);
    assert_null(request);
    assert_true(sum == 3.0f);
}

/* ---- identity ---- */

static void every_collective_is_the_identity(void **state)
{
    static const size_t counts[] = { 0, 1, 7, 1000 };
    unsigned char given[8000], got[8000], guard[8000];
    int calls = 0;

    memset(guard, 0x5a, sizeof guard);
    for (int i = 0; i < WITH_BUFFERS; i++)
        for (int dtype = 0; dtype <= DDL_FLOAT64; dtype++)
            for (int op = 0; op <= DDL_BXOR; op++)
                for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
                    for (int in_place = 0; in_place < 2; in_place++) {
                        oracle_call what = { .kind = with_buffers[i],
                                             .dtype = (ddl_dtype)dtype,
                                             .op = (ddl_op)op,
                                             .nranks = 1,
                                             .count = counts[k],
                                             .values = ORACLE_EXACT };
                        size_t bytes = counts[k] * ddl_dtype_bytes((ddl_dtype)dtype);
                        call c = { .kind = with_buffers[i],
                                   .send = given,
                                   .recv = got,
                                   .count = counts[k],
                                   .dtype = dtype,
                                   .op = op };
                        if (op >= DDL_BAND && oracle_is_float((ddl_dtype)dtype))
                            continue;
                        oracle_fill(&what, 42, 0, given);
                        memcpy(got, guard, sizeof got);
                        if (in_place || with_buffers[i] == ORACLE_BROADCAST) {
                            memcpy(got, given, bytes);
                            c.send = got;
                        }
                        assert_int_equal(call_make(&c, *state, NULL), DDL_OK);
                        assert_memory_equal(got, given, bytes);
                        assert_memory_equal(got + bytes, guard, sizeof guard - bytes);
                        calls++;
                    }
    assert_true(calls > 1000);
    assert_int_equal(ddl_barrier(*state, NULL), DDL_OK);
}

static void zero_counts_need_no_buffers(void **state)
{
    for (int i = 0; i < WITH_BUFFERS; i++) {
        const call c = { .kind = with_buffers[i], .dtype = DDL_FLOAT32, .op = DDL_SUM };
        ddl_request *request = NULL;
        assert_int_equal(call_make(&c, *state, NULL), DDL_OK);
        assert_int_equal(call_make(&c, *state, &request), DDL_OK);
        assert_int_equal(ddl_wait(&request), DDL_OK);
    }
}

static void a_world_of_one_has_one_of_everything(void **state)
{
    const ddl_comm *world = *state;
    assert_int_equal(ddl_rank(world), 0);
    assert_int_equal(ddl_size(world), 1);
    assert_int_equal(ddl_local_rank(world), 0);
    assert_int_equal(ddl_local_size(world), 1);
    assert_int_equal(ddl_node_rank(world), 0);
    assert_int_equal(ddl_node_count(world), 1);
}

/* ---- life cycle and options ---- */

static void nowhere_to_put_the_world_is_refused(void **state)
{
    ddl_comm *none = NULL;
    (void)state;
    assert_int_equal(ddl_init(NULL, NULL), DDL_EINVAL);
    assert_int_equal(ddl_comm_free(&none), DDL_OK);
}

static void option_structs_of_other_ages_are_told_apart(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
        ddl_status status;
    } cases[] = {
        { "as it is", sizeof(ddl_options), DDL_OK },
        { "an older one, up to the rank and size", offsetof(ddl_options, store), DDL_OK },
        { "an older one, without transport", offsetof(ddl_options, transport), DDL_OK },
        { "not set", 0, DDL_EINVAL },
        { "too short for any", 3, DDL_EINVAL },
        { "absurd", (size_t)1 << 20, DDL_EINVAL },
        { "not a number that was meant", SIZE_MAX, DDL_EINVAL },
    };
    (void)state;
    be_alone();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_options *options = malloc(sizeof *options);
        ddl_comm *world = NULL;
        ddl_status status;
        assert_non_null(options);
        *options = (ddl_options)DDL_OPTIONS_INIT;
        options->struct_size = cases[i].bytes;
        if (cases[i].bytes == offsetof(ddl_options, transport))
            options->transport = "beyond what the program knows";
        status = ddl_init(&world, options);
        if (status != cases[i].status)
            fail_msg("%s: %s %s", cases[i].name, ddl_status_name(status), ddl_last_error()->text);
        assert_true((world != NULL) == (status == DDL_OK));
        assert_int_equal(ddl_comm_free(&world), DDL_OK);
        free(options);
    }
}

static void options_that_contradict_are_told(void **state)
{
    static const struct {
        const char *name;
        int rank, world_size;
        int64_t timeout_ms, start_timeout_ms;
        const char *transport, *rank_variable, *size_variable;
    } cases[] = {
        { "a rank without a size", 0, -1, 0, 0, NULL, NULL, NULL },
        { "a size without a rank", -1, 1, 0, 0, NULL, NULL, NULL },
        { "a rank beyond the size", 1, 1, 0, 0, NULL, NULL, NULL },
        { "no ranks", 0, 0, 0, 0, NULL, NULL, NULL },
        { "a negative rank", -2, 1, 0, 0, NULL, NULL, NULL },
        { "a negative rank alone", -2, -1, 0, 0, NULL, NULL, NULL },
        { "a negative size alone", -1, -2, 0, 0, NULL, NULL, NULL },
        { "a rank and half a launcher", 0, -1, 0, 0, NULL, "0", "" },
        { "a rank beyond the launcher's size", 2, -1, 0, 0, NULL, "", "2" },
        { "a rank beyond the size given", -1, 2, 0, 0, NULL, "2", "" },
        { "a negative timeout", -1, -1, -5, 0, NULL, NULL, NULL },
        { "a negative start timeout", -1, -1, 0, -5, NULL, NULL, NULL },
        { "an unknown transport", -1, -1, 0, 0, "pigeon", NULL, NULL },
        { "another rank than the launcher's", 0, 2, 0, 0, NULL, "1", "2" },
        { "another size than the launcher's", 0, 2, 0, 0, NULL, "0", "3" },
        { "another rank alone", 0, -1, 0, 0, NULL, "1", "2" },
        { "another size alone", -1, 2, 0, 0, NULL, "0", "3" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_options options = DDL_OPTIONS_INIT;
        ddl_comm *world = NULL;
        ddl_status status;
        be_alone();
        options.rank = cases[i].rank;
        options.world_size = cases[i].world_size;
        options.timeout_ms = cases[i].timeout_ms;
        options.start_timeout_ms = cases[i].start_timeout_ms;
        options.transport = cases[i].transport;
        if (cases[i].rank_variable != NULL) {
            setenv("RANK", cases[i].rank_variable, 1);
            setenv("WORLD_SIZE", cases[i].size_variable, 1);
            setenv("MASTER_ADDR", "127.0.0.1", 1);
            setenv("MASTER_PORT", "1", 1);
        }
        status = ddl_init(&world, &options);
        if ((status != DDL_ECONFIG && status != DDL_EINVAL) || ddl_last_error()->text[0] == '\0')
            fail_msg("%s: %s %s", cases[i].name, ddl_status_name(status), ddl_last_error()->text);
        assert_null(world);
        assert_string_equal(ddl_last_error()->operation, "init");
    }
    be_alone();
}

/* What the program does not say comes from the environment, one by one. */
static void options_are_taken_one_by_one(void **state)
{
    static const struct {
        int rank, world_size;
        const char *rank_variable, *size_variable;
    } cases[] = { { 0, -1, "", "1" }, { -1, 1, "0", "" }, { 0, -1, "0", "1" }, { -1, 1, "0", "1" },
                  { 0, 1, "0", "" },  { 0, 1, "", "1" },  { 0, 1, "0", "1" },  { -1, -1, "0", "1" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_options options = DDL_OPTIONS_INIT;
        ddl_comm *world = NULL;
        be_alone();
        options.rank = cases[i].rank;
        options.world_size = cases[i].world_size;
        setenv("RANK", cases[i].rank_variable, 1);
        setenv("WORLD_SIZE", cases[i].size_variable, 1);
        if (ddl_init(&world, &options) != DDL_OK)
            fail_msg("%zu: %s", i, ddl_last_error()->text);
        assert_int_equal(ddl_size(world), 1);
        assert_int_equal(ddl_comm_free(&world), DDL_OK);
    }
    be_alone();
}

/* A store that the program names is an address to meet at, whoever started it: what fails here is the store.
 */
static void a_launcher_need_not_know_of_the_programs_store(void **state)
{
    ddl_options options = DDL_OPTIONS_INIT;
    ddl_comm *world = NULL;
    (void)state;
    be_alone();
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    options.store = "file:///there/is/no/such/folder";
    options.start_timeout_ms = 2000;
    const ddl_status status = ddl_init(&world, &options);
    if (status != DDL_ESTORE || strstr(ddl_last_error()->text, "/there/is/no/such/folder") == NULL)
        fail_msg("%s %s", ddl_status_name(status), ddl_last_error()->text);
    unsetenv("PMI_SIZE");
    be_alone();
}

static void nccl_that_was_not_built_in_is_refused_at_once(void **state)
{
    (void)state;
    ddl_comm *world = NULL;
    be_alone();
    setenv("DDL_GPU", "nccl", 1);
    ddl_status status = ddl_init(&world, NULL);
    unsetenv("DDL_GPU");
#ifdef DDL_WITHOUT_NCCL
    assert_int_equal(status, DDL_EUNSUPPORTED);
    assert_null(world);
    assert_non_null(strstr(ddl_last_error()->text, "built without NCCL (" DDL_WITHOUT_NCCL ")"));
#else
    assert_int_equal(status, DDL_OK);
    assert_int_equal(ddl_comm_free(&world), DDL_OK);
#endif
}

static void worlds_can_follow_one_another(void **state)
{
    (void)state;
    be_alone();
    for (int i = 0; i < 20; i++) {
        ddl_comm *world = NULL;
        assert_int_equal(ddl_init(&world, NULL), DDL_OK);
        assert_int_equal(ddl_barrier(world, NULL), DDL_OK);
        assert_int_equal(ddl_comm_free(&world), DDL_OK);
    }
}

/* A child has no part in its parent's secrets, and must not join with none. */
static void a_forked_child_has_not_its_parents_secret(void **state)
{
    (void)state;
    be_alone();
    setenv("DDL_SECRET", "a secret of forty bytes, more or less so", 1);
    ddl_comm *world = NULL;
    assert_int_equal(ddl_init(&world, NULL), DDL_OK);
    assert_int_equal(ddl_comm_free(&world), DDL_OK);
    assert_null(getenv("DDL_SECRET"));
    pid_t child = fork();
    if (child == 0) {
        ddl_options options = DDL_OPTIONS_INIT;
        options.rank = 0;
        options.world_size = 2;
        options.store = "tcp://127.0.0.1:1";
        ddl_status result = ddl_init(&world, &options);
        _exit(result == DDL_ECONFIG && strstr(ddl_last_error()->text, "forked") != NULL ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

/* ---- errors and facts ---- */

struct seen {
    ddl_status before, after, status;
};

static void *fail_elsewhere(void *arg)
{
    struct seen *seen = arg;
    seen->before = ddl_last_error()->code;
    seen->status = ddl_comm_set_timeout(NULL, 5);
    seen->after = ddl_last_error()->code;
    return NULL;
}

static void the_last_error_belongs_to_its_thread(void **state)
{
    struct seen seen = { DDL_EINTERNAL, DDL_OK, DDL_OK };
    char text[sizeof ddl_last_error()->text];
    ddl_comm *world = NULL;
    pthread_t thread;

    (void)state;
    be_alone();
    setenv("WORLD_SIZE", "2", 1);
    assert_int_equal(ddl_init(&world, NULL), DDL_ECONFIG);
    strcpy(text, ddl_last_error()->text);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen.before, DDL_OK);
    assert_int_equal(seen.status, DDL_EINVAL);
    assert_int_equal(seen.after, DDL_EINVAL);
    assert_int_equal(ddl_last_error()->code, DDL_ECONFIG);
    assert_string_equal(ddl_last_error()->text, text);
    be_alone();
}

static void success_leaves_the_last_error_as_it_was(void **state)
{
    assert_int_equal(ddl_comm_set_timeout(NULL, 5), DDL_EINVAL);
    assert_int_equal(ddl_barrier(*state, NULL), DDL_OK);
    assert_int_equal(ddl_last_error()->code, DDL_EINVAL);
}

static void statuses_have_names_and_texts(void **state)
{
    static const struct {
        ddl_status status;
        const char *name;
    } cases[] = {
        { DDL_OK, "DDL_OK" },
        { DDL_EINVAL, "DDL_EINVAL" },
        { DDL_ETIMEDOUT, "DDL_ETIMEDOUT" },
        { DDL_EPEERLOST, "DDL_EPEERLOST" },
        { DDL_EUNREACHABLE, "DDL_EUNREACHABLE" },
        { DDL_EUNRESPONSIVE, "DDL_EUNRESPONSIVE" },
        { DDL_EMISMATCH, "DDL_EMISMATCH" },
        { DDL_EABORTED, "DDL_EABORTED" },
        { DDL_ECONFIG, "DDL_ECONFIG" },
        { DDL_EAUTH, "DDL_EAUTH" },
        { DDL_ESTORE, "DDL_ESTORE" },
        { DDL_ENETWORK, "DDL_ENETWORK" },
        { DDL_EPROTO, "DDL_EPROTO" },
        { DDL_ENOMEM, "DDL_ENOMEM" },
        { DDL_ERESOURCE, "DDL_ERESOURCE" },
        { DDL_EUNSUPPORTED, "DDL_EUNSUPPORTED" },
        { DDL_EDEVICE, "DDL_EDEVICE" },
        { DDL_EINTERNAL, "DDL_EINTERNAL" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(cases[i].status, -(int)i);
        assert_string_equal(ddl_status_name(cases[i].status), cases[i].name);
        assert_true(strlen(ddl_status_text(cases[i].status)) > 5);
    }
    assert_non_null(ddl_status_name((ddl_status)-18));
    assert_non_null(ddl_status_name((ddl_status)1));
    assert_non_null(ddl_status_text((ddl_status)-1000));
}

static void types_have_sizes(void **state)
{
    static const size_t bytes[] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8 };
    (void)state;
    for (int i = 0; i <= DDL_FLOAT64; i++)
        assert_int_equal(ddl_dtype_bytes((ddl_dtype)i), bytes[i]);
    assert_int_equal(ddl_dtype_bytes((ddl_dtype)12), 0);
    assert_int_equal(ddl_dtype_bytes((ddl_dtype)-1), 0);
}

static void the_version_is_that_of_the_header(void **state)
{
    char version[32];
    (void)state;
    snprintf(version, sizeof version, "%d.%d.%d", DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH);
    assert_string_equal(ddl_version(), version);
}

int main(void)
{
    const struct CMUnitTest in_a_world[] = {
        cmocka_unit_test(missing_buffers_are_refused),
        cmocka_unit_test(a_missing_communicator_is_refused),
        cmocka_unit_test(counts_that_overflow_are_refused),
        cmocka_unit_test(unknown_types_and_operators_are_refused),
        cmocka_unit_test(bitwise_operators_on_floats_are_refused),
        cmocka_unit_test(roots_and_peers_outside_the_world_are_refused),
        cmocka_unit_test(the_own_rank_is_no_peer),
        cmocka_unit_test(overlapping_buffers_are_refused),
        cmocka_unit_test(neighbouring_buffers_are_no_overlap),
        cmocka_unit_test(timeouts_must_be_positive),
        cmocka_unit_test(a_refused_call_takes_no_place_in_the_order),
        cmocka_unit_test(nothing_to_wait_for_is_done),
        cmocka_unit_test(missing_request_arguments_are_refused),
        cmocka_unit_test(requests_complete_by_every_way),
        cmocka_unit_test(every_collective_is_the_identity),
        cmocka_unit_test(zero_counts_need_no_buffers),
        cmocka_unit_test(a_world_of_one_has_one_of_everything),
        cmocka_unit_test(success_leaves_the_last_error_as_it_was),
    };
    const struct CMUnitTest without[] = {
        cmocka_unit_test(the_last_error_belongs_to_its_thread),
        cmocka_unit_test(freeing_completes_what_is_in_flight),
        cmocka_unit_test(nowhere_to_put_the_world_is_refused),
        cmocka_unit_test(option_structs_of_other_ages_are_told_apart),
        cmocka_unit_test(options_that_contradict_are_told),
        cmocka_unit_test(options_are_taken_one_by_one),
        cmocka_unit_test(a_launcher_need_not_know_of_the_programs_store),
        cmocka_unit_test(nccl_that_was_not_built_in_is_refused_at_once),
        cmocka_unit_test(worlds_can_follow_one_another),
        cmocka_unit_test(a_forked_child_has_not_its_parents_secret),
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(types_have_sizes),
        cmocka_unit_test(the_version_is_that_of_the_header),
    };
    int failed = cmocka_run_group_tests_name("in a world of one", in_a_world, open_world, close_world);
    return failed + cmocka_run_group_tests_name("life cycle and facts", without, NULL, NULL);
}
