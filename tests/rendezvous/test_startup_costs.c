/*
 * test_startup_costs.c - what start-ups ask of the store, and what passes through it, are what the model
 * says; room for descriptors is made at once.
 *
 * Each rank is a thread, so what a thread says to the store is what that rank does; functions of the library
 * are called by way of those here that count.
 */
#include "redis_server.h"
#include "world.h"

#include "backend/choice.h"
#include "io/host.h"
#include "io/local.h"
#include "io/socket.h"
#include "protocol/hello.h"
#include "protocol/store_wire.h"
#include "rendezvous/store_file_record.h"
#include "rendezvous/store_file_run.h"
#include "simulate/startup.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

_Static_assert((int)DDL_STARTUP_COSTS == (int)DDL_COST_CONSTANTS,
               "the roster that the model has is the real one");

static const int sizes[] = { 2, 5, 16 };
enum {
    SIZES = sizeof sizes / sizeof sizes[0],
    HELLO_BYTES = DDL_HELLO_CLIENT_BYTES + DDL_HELLO_SERVER_BYTES + DDL_HELLO_FINISH_BYTES
};

static atomic_int requests, requests_by[WORLD_MAX], store_hellos, mesh_hellos;
static atomic_size_t store_bytes;
static atomic_int ranks_seen;
static atomic_int hosts_read;          /* files that tell which host a rank is on */
static atomic_int reads, slowness_ms;  /* of files, and what each takes the server */
static _Thread_local int seen_as = -1; /* this thread, among those that have asked the store for something */

bool __real_ddl_store_message_encode(const ddl_store_message *message, ddl_bytes *bytes);
bool __wrap_ddl_store_message_encode(const ddl_store_message *message, ddl_bytes *bytes);
void __real_ddl_hello_start_client(ddl_hello *hello, const ddl_hello_party *self);
void __wrap_ddl_hello_start_client(ddl_hello *hello, const ddl_hello_party *self);

bool __wrap_ddl_store_message_encode(const ddl_store_message *message, ddl_bytes *bytes)
{
    const size_t before = bytes->bytes;
    const bool done = __real_ddl_store_message_encode(message, bytes);
    atomic_fetch_add(&store_bytes, bytes->bytes - before);
    if (message->kind < DDL_STORE_DONE) {
        if (seen_as < 0)
            seen_as = atomic_fetch_add(&ranks_seen, 1);
        atomic_fetch_add(&requests, 1);
        atomic_fetch_add(&requests_by[seen_as], 1);
    }
    return done;
}

void __wrap_ddl_hello_start_client(ddl_hello *hello, const ddl_hello_party *self)
{
    atomic_fetch_add(self->channel == DDL_HELLO_FOR_STORE ? &store_hellos : &mesh_hellos, 1);
    __real_ddl_hello_start_client(hello, self);
}

static bool ends_in(const char *path, const char *end)
{
    const size_t path_bytes = strlen(path), bytes = strlen(end);
    return path_bytes >= bytes && strcmp(path + path_bytes - bytes, end) == 0;
}

ddl_status __real_ddl_record_read(const char *path, size_t limit, ddl_bytes *content, bool *found,
                                  ddl_error *err);
ddl_status __wrap_ddl_record_read(const char *path, size_t limit, ddl_bytes *content, bool *found,
                                  ddl_error *err);

ddl_status __wrap_ddl_record_read(const char *path, size_t limit, ddl_bytes *content, bool *found,
                                  ddl_error *err)
{
    if (atomic_load(&slowness_ms) > 0)
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(atomic_load(&slowness_ms)));
    atomic_fetch_add(&reads, 1);
    atomic_fetch_add(&hosts_read, ends_in(path, ".host"));
    return __real_ddl_record_read(path, limit, content, found, err);
}

static void start_up(int nranks, const char *store)
{
    static struct world_rank ranks[WORLD_MAX];
    double costs[DDL_COST_CONSTANTS];
    for (int i = 0; i < DDL_COST_CONSTANTS; i++)
        costs[i] = 1;
    atomic_store(&requests, 0);
    atomic_store(&store_hellos, 0);
    atomic_store(&mesh_hellos, 0);
    atomic_store(&store_bytes, 0);
    atomic_store(&ranks_seen, 0);
    for (int rank = 0; rank < nranks; rank++)
        atomic_store(&requests_by[rank], 0);
    world_init(ranks, nranks, store, 30000);
    ranks[0].costs = costs;
    ranks[0].ncosts = DDL_COST_CONSTANTS;
    for (int rank = 0; rank < nranks; rank++)
        world_start(&ranks[rank]);
    for (int rank = 0; rank < nranks; rank++)
        world_finish(&ranks[rank]);
    for (int rank = 0; rank < nranks; rank++)
        if (ranks[rank].status != DDL_OK)
            fail_msg("rank %d of %d: %s", rank, nranks, ranks[rank].error.text);
}

static void the_tcp_store_is_asked_for_what_the_model_says(void **state)
{
    char host[DDL_HOST_TEXT];
    const uint8_t id[DDL_LOCAL_ID_BYTES] = { 0 };
    ddl_address unused;
    const bool introduces = ddl_local_address(id, 0, &unused); /* where there are such sockets */
    (void)state;
    ddl_host_name(host);
    for (int i = 0; i < SIZES; i++) {
        char url[64];
        const int nranks = sizes[i];
        const ddl_startup_costs costs = ddl_startup_default();
        const ddl_startup_world world = { .nranks = nranks,
                                          .ranks_per_host = nranks,
                                          .cores_per_host = 1,
                                          .host_bytes = (int)strlen(host),
                                          .address_bytes = sizeof "127.0.0.1" - 1 };
        const ddl_startup model = ddl_startup_predict(&world, &costs);
        start_up(nranks, world_tcp_url(url));
        const double bytes =
            (double)(atomic_load(&store_bytes) + (size_t)atomic_load(&store_hellos) * HELLO_BYTES);
        assert_int_equal(atomic_load(&requests), (int)model.store_requests);
        assert_int_equal(atomic_load(&ranks_seen), nranks);
        for (int rank = 0; rank < nranks; rank++) /* rank 0 asks for no more than others */
            assert_int_equal(atomic_load(&requests_by[rank]), (int)model.store_requests / nranks);
        assert_int_equal(atomic_load(&store_hellos), nranks);
        assert_int_equal(atomic_load(&mesh_hellos),
                         (int)(model.connections - (introduces ? model.introductions : 0)));
        if (fabs(bytes / model.store_bytes - 1) > 0.02)
            fail_msg("%.0f bytes go through the store of %d ranks, and %.0f by the model", bytes, nranks,
                     model.store_bytes);
    }
}

/* Where most of many never come each of the others asks once who has, and what those have said, but for none
 * of the many; and all say the same, though the time of rank 0 is not over yet. */
static void whose_time_is_over_asks_once_who_is_missing(void **state)
{
    enum { RANKS = 2000, COME = 10, MOST = COME + 8 };
    static struct world_rank ranks[COME];
    char url[64];
    (void)state;
    atomic_store(&ranks_seen, 0);
    for (int rank = 0; rank < COME; rank++)
        atomic_store(&requests_by[rank], 0);
    world_init(ranks, COME, world_tcp_url(url), 1000);
    ranks[0].timeout_ms = 20000;
    for (int rank = 0; rank < COME; rank++) {
        ranks[rank].nranks = RANKS;
        world_start(&ranks[rank]);
    }
    for (int rank = 0; rank < COME; rank++)
        world_finish(&ranks[rank]);
    assert_non_null(strstr(ranks[0].error.text, "ranks 10-1999 of 2000 (joined: 0-9 on "));
    assert_non_null(strstr(ranks[0].error.text, ") did not come to tcp://"));
    assert_non_null(strstr(ranks[0].error.text, " within 1."));
    for (int rank = 0; rank < COME; rank++) {
        assert_int_equal(ranks[rank].status, DDL_ETIMEDOUT);
        assert_int_equal(ranks[rank].error.culprit, COME);
        assert_string_equal(ranks[rank].error.text, ranks[0].error.text);
        assert_in_range(atomic_load(&requests_by[rank]), 0, MOST);
    }
}

/* Where the file server is slow, it takes longer to ask of all ranks than lies between two looks at who
 * lives; and yet rank 0 asks once of each other, as those do of rank 0. */
static void the_host_of_each_rank_is_read_once(void **state)
{
    enum { RANKS = 32, SLOWNESS_MS = 8, MOST = 2 * RANKS };
    char folder[] = "/tmp/ddl-test-XXXXXX", url[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(url, sizeof url, "file://%s", folder);
    atomic_store(&hosts_read, 0);
    atomic_store(&slowness_ms, SLOWNESS_MS);
    start_up(RANKS, url);
    atomic_store(&slowness_ms, 0);
    assert_in_range(atomic_load(&hosts_read), RANKS, MOST);
    assert_int_equal(rmdir(folder), 0);
}

/* However slow the file server is, or was once. */
static void who_lives_is_looked_at_again_before_long(void **state)
{
    (void)state;
    assert_int_equal(ddl_file_run_life_pause_ms(0), 200);
    assert_int_equal(ddl_file_run_life_pause_ms(100 * DDL_NS_PER_MS), 1000);
    assert_int_equal(ddl_file_run_life_pause_ms(30000 * DDL_NS_PER_MS), 5000);
}

/* Also with a slow file server: those who have come are found by name, nothing is read for each of the
 * others, and there is time to clear up. */
static void over_files_too_all_say_who_is_missing(void **state)
{
    static const struct {
        int nranks, come, slowness_ms, most_reads;
        const char *missing;
    } cases[] = {
        { 200000, 2, 0, 1000, "ranks 2-199999 of 200000 (joined: 0-1 on " },
        { 33, 32, 30, INT_MAX, "rank 32 of 33 (joined: 0-31" },
    };
    static struct world_rank ranks[WORLD_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[] = "/tmp/ddl-test-XXXXXX", url[64];
        assert_non_null(mkdtemp(folder));
        snprintf(url, sizeof url, "file://%s", folder);
        atomic_store(&reads, 0);
        atomic_store(&slowness_ms, cases[i].slowness_ms);
        world_init(ranks, cases[i].come, url, 2000);
        for (int rank = 0; rank < cases[i].come; rank++) {
            ranks[rank].nranks = cases[i].nranks;
            world_start(&ranks[rank]);
        }
        for (int rank = 0; rank < cases[i].come; rank++)
            world_finish(&ranks[rank]);
        atomic_store(&slowness_ms, 0);
        for (int rank = 0; rank < cases[i].come; rank++)
            if (ranks[rank].status != DDL_ETIMEDOUT ||
                strstr(ranks[rank].error.text, cases[i].missing) == NULL)
                fail_msg("rank %d: %s", rank, ranks[rank].error.text);
        assert_in_range(atomic_load(&reads), 0, cases[i].most_reads);
        assert_int_equal(rmdir(folder), 0);
    }
}

static int commands(void)
{
    static const char label[] = "total_commands_processed:";
    static char reply[16 << 10];
    const ddl_view words[] = { { "INFO", 4 }, { "stats", 5 } };
    redis_server_ask(words, 2, reply, sizeof reply);
    const char *at = strstr(reply, label);
    assert_non_null(at);
    return atoi(at + strlen(label));
}

/* 39 where nothing else runs; who waits for longer asks again. */
static void redis_is_asked_for_so_much_by_each_rank(void **state)
{
    enum { MOST = 60 };
    (void)state;
    if (redis_server_port() == 0)
        skip();
    for (int i = 0; i < SIZES; i++) {
        char url[64];
        const int before = commands();
        snprintf(url, sizeof url, "redis://127.0.0.1:%d", redis_server_port());
        start_up(sizes[i], url);
        const int sent = commands() - before;
        if (sent > MOST * sizes[i])
            fail_msg("%d commands of %d ranks", sent, sizes[i]);
    }
}

/* Whether the system has room for so many descriptors of this process. */
static bool has_room_for(int descriptors)
{
    char line[200];
    int room = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && room < 0 && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "FDSize: %d", &room);
    if (file != NULL)
        fclose(file);
    return room >= descriptors;
}

static void a_low_limit_is_raised_before_room_is_made(void **state)
{
    enum { RANKS = 100, EACH = 4 };
    int status;
    (void)state;
    pid_t pid = fork(); /* the table of this process keeps its size */
    if (pid == 0) {
        struct rlimit limit;
        ddl_error error;
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
            _exit(1);
        limit.rlim_cur = 100;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            _exit(2);
        if (ddl_bootstrap_need_descriptors(0, RANKS, DDL_CONNECT_EAGER, &error) != DDL_OK)
            _exit(3);
        _exit(has_room_for(RANKS * EACH) ? 0 : 4);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int end(void **state)
{
    (void)state;
    world_end();
    redis_server_stop();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_low_limit_is_raised_before_room_is_made), /* forks: before any thread has run */
        cmocka_unit_test(the_tcp_store_is_asked_for_what_the_model_says),
        cmocka_unit_test(whose_time_is_over_asks_once_who_is_missing),
        cmocka_unit_test(the_host_of_each_rank_is_read_once),
        cmocka_unit_test(who_lives_is_looked_at_again_before_long),
        cmocka_unit_test(over_files_too_all_say_who_is_missing),
        cmocka_unit_test(redis_is_asked_for_so_much_by_each_rank),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
