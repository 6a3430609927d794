/* test_bootstrap.c - ranks meet, or are told precisely why not. */
#include "redis_server.h"
#include "world.h"

#include "../support/eventually.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "io/address.h"
#include "io/host.h"
#include "io/local.h"
#include "io/service.h"
#include "io/socket.h"

#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <cmocka.h>

/* A store of each kind, fresh for every use. */
static const struct kind {
    const char *name;
} kinds[] = { { "tcp" }, { "file" }, { "redis" }, { "mem" } };

enum { KINDS = sizeof kinds / sizeof kinds[0], BETWEEN_PROCESSES = KINDS - 1 };

/* A Redis server may not be installed. */
static bool is_possible(const struct kind *kind)
{
    return strcmp(kind->name, "redis") != 0 || redis_server_port() != 0;
}

#define FOR_EACH_KIND(kind)                                             \
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++) \
        if (is_possible(kind))

struct place {
    char url[128], folder[64];
    bool has_keys; /* in a Redis server, which has to be empty at the end */
};

static void place_open(struct place *place, const struct kind *kind)
{
    place->folder[0] = '\0';
    place->has_keys = strcmp(kind->name, "redis") == 0;
    if (place->has_keys) {
        snprintf(place->url, sizeof place->url, "redis://127.0.0.1:%d", redis_server_port());
    } else if (strcmp(kind->name, "tcp") == 0) {
        world_tcp_url(place->url);
    } else if (strcmp(kind->name, "mem") == 0) {
        snprintf(place->url, sizeof place->url, "mem://test");
    } else if (strcmp(kind->name, "file") == 0) {
        snprintf(place->folder, sizeof place->folder, "/tmp/ddl-test-XXXXXX");
        assert_non_null(mkdtemp(place->folder));
        snprintf(place->url, sizeof place->url, "file://%s", place->folder);
    } else {
        fail_msg("there is no place for a store of the kind %s", kind->name);
    }
}

/* Nothing may be left in the directory of a file store, or in Redis. */
static void place_close(const struct place *place)
{
    if (place->folder[0] != '\0')
        assert_int_equal(rmdir(place->folder), 0);
    if (place->has_keys)
        assert_int_equal(redis_server_keys(), 0);
}

static void expect(const struct world_rank *rank, ddl_status status, int culprit, double within_s,
                   const char *first, const char *second)
{
    const ddl_error *error = &rank->error;
    if (rank->status != status || error->culprit != culprit || rank->seconds > within_s ||
        strstr(error->text, first) == NULL || strstr(error->text, second) == NULL)
        fail_msg("rank %d: %s, culprit %d, after %.2f s: %s; expected %s, %d, %.2f s, '%s', '%s'", rank->rank,
                 ddl_status_name(rank->status), error->culprit, rank->seconds, error->text,
                 ddl_status_name(status), culprit, within_s, first, second);
}

static void expect_joined(const struct world_rank ranks[], int nranks)
{
    for (int rank = 0; rank < nranks; rank++) {
        if (ranks[rank].status != DDL_OK)
            fail_msg("rank %d of %d: %s", rank, nranks, ranks[rank].error.text);
        assert_true(ranks[rank].links_work);
        assert_int_equal(ranks[rank].run_id_first, ranks[0].run_id_first);
        assert_int_equal(ranks[rank].node_count, 1);
        assert_int_equal(ranks[rank].local_size, nranks);
    }
}

static void start_all(struct world_rank ranks[], int nranks)
{
    for (int rank = 0; rank < nranks; rank++)
        world_start(&ranks[rank]);
}

static void finish_all(struct world_rank ranks[], int nranks)
{
    for (int rank = 0; rank < nranks; rank++)
        world_finish(&ranks[rank]);
}

static void worlds_of_every_size_meet_in_any_order(void **state)
{
    static struct world_rank ranks[WORLD_MAX];
    static const int sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 32 };
    (void)state;
    FOR_EACH_KIND(kind)
    {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct place place;
            int nranks = sizes[i], stride = nranks == 7 ? 3 : 7; /* coprime: visits every rank once */
            place_open(&place, kind);
            world_init(ranks, nranks, place.url, 30000);
            for (int k = 0; k < nranks; k++)
                world_start(&ranks[i % 2 == 0 ? nranks - 1 - k : k * stride % nranks]);
            finish_all(ranks, nranks);
            expect_joined(ranks, nranks);
            place_close(&place);
        }
    }
}

/* Of the connections of a rank: how many are Unix sockets. */
static int count_local(const struct world_rank *rank)
{
    int count = 0;
    for (int peer = 0; peer < rank->nranks; peer++) {
        ddl_address own;
        if (peer == rank->rank)
            continue;
        ddl_socket_local(rank->wires[peer].fd, &own);
        count += own.socket.ss_family == AF_UNIX;
    }
    return count;
}

/* By the lowest rank of their host, but for who wants none of it; if that is the lowest rank itself, nobody.
 */
static void ranks_of_a_host_are_introduced_to_each_other(void **state)
{
    static struct world_rank ranks[WORLD_MAX];
    static const int sizes[] = { 2, 3, 11, 32 };
    const uint8_t id[DDL_LOCAL_ID_BYTES] = { 0 };
    ddl_address unused;
    const bool can = ddl_local_address(id, 0, &unused);
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int which = 0; which < 4; which++) {
            struct place place;
            const int nranks = sizes[i];
            const int apart = which < 3 ? which - 1 : nranks - 1; /* who calls the others before the usher */
            const bool introduced = can && nranks > 2 && apart != 0;
            place_open(&place, &kinds[0]);
            world_init(ranks, nranks, place.url, 30000);
            for (int rank = 0; rank < nranks; rank++) {
                ranks[rank].stays = true;
                ranks[rank].apart = rank == apart;
                world_start(&ranks[rank]);
            }
            for (int rank = 0; rank < nranks; rank++)
                world_rest(&ranks[rank]);
            for (int rank = 0; rank < nranks; rank++) {
                const int others = apart < 0 ? nranks - 1 : nranks - 2;
                assert_int_equal(ranks[rank].status, DDL_OK);
                assert_true(ranks[rank].links_work);
                assert_int_equal(count_local(&ranks[rank]), introduced && rank != apart ? others : 0);
            }
            finish_all(ranks, nranks);
            place_close(&place);
        }
}

static void a_place_can_be_used_again_at_once(void **state)
{
    struct world_rank ranks[4];
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind);
        world_init(ranks, 4, place.url, 30000);
        for (int rank = 0; rank < 4; rank++)
            ranks[rank].rounds = 10; /* each goes on when it has left, whatever the others still do */
        start_all(ranks, 4);
        finish_all(ranks, 4);
        expect_joined(ranks, 4);
        for (int rank = 0; rank < 4; rank++)
            assert_int_equal(ranks[rank].rounds_done, 10);
        place_close(&place);
    }
}

static void a_second_rank_of_a_number_is_refused_and_harms_nobody(void **state)
{
    struct world_rank ranks[4], second;
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        char first[80];
        place_open(&place, kind);
        world_init(ranks, 4, place.url, 20000);
        second = ranks[2];
        for (int rank = 0; rank < 3; rank++)
            world_start(&ranks[rank]);
        (void)world_await_member(&ranks[0], 3, 2);
        world_start(&second);
        world_finish(&second);
        snprintf(first, sizeof first, "[%d]", (int)getpid());
        expect(&second, DDL_ECONFIG, 2, 2.0, "rank 2 is here already", first);
        world_start(&ranks[3]);
        finish_all(ranks, 4);
        expect_joined(ranks, 4);
        place_close(&place);
    }
}

static void a_latecomer_is_refused_while_the_others_work(void **state)
{
    struct world_rank ranks[3], second;
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind);
        world_init(ranks, 3, place.url, 20000);
        for (int rank = 0; rank < 3; rank++)
            ranks[rank].stays = true;
        start_all(ranks, 3);
        for (int rank = 0; rank < 3; rank++) {
            pthread_join(ranks[rank].thread, NULL);
            ranks[rank].running = false;
        }
        expect_joined(ranks, 3);
        second = ranks[1];
        world_start(&second);
        world_finish(&second);
        expect(&second, DDL_ECONFIG, 1, 2.0, "rank 1 is here already", "");
        finish_all(ranks, 3);
        place_close(&place);
    }
}

static void a_second_rank_0_is_refused(void **state)
{
    static const struct {
        ddl_status status;
        const char *text;
    } expected[] = { { DDL_ENETWORK, "in use by" },
                     { DDL_ECONFIG, "rank 0 is" },
                     { DDL_ECONFIG, "rank 0 is" },
                     { DDL_ECONFIG, "rank 0 is" } };
    struct world_rank ranks[2], second;
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind);
        world_init(ranks, 2, place.url, 20000);
        second = ranks[0];
        world_start(&ranks[0]);
        (void)world_await_member(&ranks[0], 1, 0);
        world_start(&second);
        world_finish(&second);
        assert_int_equal(second.status, expected[kind - kinds].status);
        assert_non_null(strstr(second.error.text, expected[kind - kinds].text));
        world_start(&ranks[1]);
        finish_all(ranks, 2);
        expect_joined(ranks, 2);
        place_close(&place);
    }
}

/* Three ranks are there when another comes that is not like them: all fail at once, and hear both sides. */
static void expect_all_told(const struct kind *kind, int nranks, uint32_t generator, ddl_status status,
                            const char *theirs, const char *ours)
{
    struct world_rank ranks[4];
    struct place place;
    char who[80], whom[80];
    place_open(&place, kind);
    world_init(ranks, 4, place.url, 20000);
    for (int rank = 0; rank < 3; rank++)
        world_start(&ranks[rank]);
    (void)world_await_member(&ranks[0], 3, 1);
    (void)world_await_member(&ranks[0], 3, 2);
    ranks[3].nranks = nranks;
    ranks[3].generator = generator;
    int64_t contact_ns = ddl_now_ns();
    world_start(&ranks[3]);
    finish_all(ranks, 4);
    assert_true(ddl_now_ns() - contact_ns < 2 * DDL_NS_PER_S);
    for (int rank = 0; rank < 4; rank++) {
        snprintf(who, sizeof who, "[%d] has %s", (int)getpid(), theirs);
        snprintf(whom, sizeof whom, "[%d] has %s", (int)getpid(), ours);
        expect(&ranks[rank], status, 3, 10.0, "rank 3 on", who);
        assert_non_null(strstr(ranks[rank].error.text, "rank 0"));
        assert_non_null(strstr(ranks[rank].error.text, whom));
    }
    place_close(&place);
}

static void another_world_size_is_told_to_everyone(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    expect_all_told(kind, 5, 0, DDL_ECONFIG, "world size 5", "world size 4");
}

static void another_generator_is_told_to_everyone(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    expect_all_told(kind, 4, 2, DDL_EPROTO, "version 2 of ddl's algorithms", "version 0");
}

/* What was logged while a sink was set; the lock of the log keeps lines apart. */
struct lines {
    int count;
    char text[8][512];
};

static void keep_line(void *arg, const char *line)
{
    struct lines *lines = arg;
    if (lines->count < 8)
        snprintf(lines->text[lines->count++], sizeof lines->text[0], "%s", line);
}

/* What is said of ranks that have joined on this host. */
static const char *joined_here(const char *before, const char *behind)
{
    static char text[200];
    char host[DDL_HOST_NAME_TEXT];
    ddl_host_name(host);
    snprintf(text, sizeof text, "%s%s%s", before, host, behind);
    return text;
}

static void missing_ranks_are_named_while_waiting_and_at_the_end(void **state)
{
    struct world_rank ranks[8], others[3];
    static struct lines lines;
    struct place place, elsewhere; /* where rank 0 itself is missing */
    (void)state;
    place_open(&place, &kinds[0]);
    place_open(&elsewhere, &kinds[0]);
    world_init(ranks, 8, place.url, 5600);
    world_init(others, 3, elsewhere.url, 5600);
    lines.count = 0;
    ddl_set_log(keep_line, &lines);
    for (int rank = 1; rank < 3; rank++) {
        others[rank].quiet = true; /* but rank 1 tells that rank 0 is missing */
        world_start(&others[rank]);
    }
    for (int rank = 0; rank < 5; rank++) {
        ranks[rank].quiet = rank % 2 == 1;
        if (rank != 2)
            world_start(&ranks[rank]);
    }
    finish_all(ranks, 8);
    finish_all(others, 3);
    ddl_set_log(NULL, NULL);
    for (int rank = 1; rank < 3; rank++)
        expect(&others[rank], DDL_ETIMEDOUT, 0, 6.6, "rank 0 did not", "DDL_START_TIMEOUT");
    for (int rank = 0; rank < 5; rank++)
        if (rank != 2)
            expect(&ranks[rank], DDL_ETIMEDOUT, 2, 6.6,
                   joined_here("ranks 2, 5-7 of 8 (joined: 0-1, 3-4 on ", ") did not come"),
                   "DDL_START_TIMEOUT");
    const char *within = strstr(ranks[0].error.text, " within ");
    assert_non_null(within);
    assert_true(strtod(within + sizeof " within " - 1, NULL) > 5.5); /* of the whole start */
    assert_int_equal(lines.count, 3);                                /* of ranks 0 and 4, and of one there */
    int elsewhere_count = 0;
    char expected[300];
    snprintf(expected, sizeof expected,
             "ddl: waiting for ranks 2, 5-7 of 8 (joined: 0-1, 3-4 on 1 host) at %s (which only this host "
             "reaches), 1 s left",
             place.url);
    for (int line = 0; line < 3; line++) {
        const bool is_there = strstr(lines.text[line], "ddl: waiting for rank 0 at ") != NULL;
        elsewhere_count += is_there;
        if (!is_there)
            assert_string_equal(lines.text[line], expected);
    }
    assert_int_equal(elsewhere_count, 1);
    place_close(&elsewhere);
    place_close(&place);
}

static void a_missing_rank_0_is_named(void **state)
{
    struct world_rank ranks[3];
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind);
        world_init(ranks, 3, place.url, 600);
        world_start(&ranks[1]);
        world_start(&ranks[2]);
        finish_all(ranks, 3);
        expect(&ranks[1], DDL_ETIMEDOUT, 0, 1.6, "rank 0 did not", "DDL_START_TIMEOUT");
        expect(&ranks[2], DDL_ETIMEDOUT, 0, 1.6, "rank 0 did not", "DDL_START_TIMEOUT");
        place_close(&place);
    }
}

#ifdef DDL_FAILPOINTS
static size_t count_files(const struct place *place, const char *pattern)
{
    char path[160];
    glob_t paths;
    snprintf(path, sizeof path, "%s/ddl-*/*/%s", place->folder, pattern);
    const size_t count = glob(path, 0, NULL, &paths) == 0 ? paths.gl_pathc : 0;
    globfree(&paths);
    return count;
}

/* Over a file store, while a third rank is missing. */
static void whose_call_on_a_file_fails_is_named_by_all(void **state)
{
    struct world_rank ranks[3];
    struct place place;
    (void)state;
    place_open(&place, &kinds[1]);
    world_init(ranks, 3, place.url, 10000);
    start_all(ranks, 2);
    for (int tries = 0; tries < 2000 && count_files(&place, "key/=member.?") < 2; tries++)
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(5));
    (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(50)); /* what was written last is read back */
    for (int tries = 0; tries < 9 && count_files(&place, "failed") == 0; tries++) {
        char setting[32]; /* reading who lives may fail; which of three in a row that is not, is luck */
        snprintf(setting, sizeof setting, "rendezvous.read:%d", 1 + tries % 3);
        ddl_failpoint_arm(setting);
        for (ddl_deadline end = ddl_deadline_in_ms(500);
             !ddl_deadline_passed(end) && count_files(&place, "failed") == 0;)
            (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(5));
    }
    ddl_failpoint_arm(NULL);
    finish_all(ranks, 2);
    const int culprit = ranks[0].error.culprit;
    for (int rank = 0; rank < 2; rank++) {
        expect(&ranks[rank], DDL_ESTORE, culprit, 8, culprit == 0 ? "rank 0 on " : "rank 1 on ",
               "]: file store: reading");
        assert_int_equal(ranks[rank].error.os_errno, EIO);
    }
    place_close(&place);
}
#endif

static void a_store_at_all_addresses_is_warned_of(void **state)
{
    struct world_rank rank;
    static struct lines lines;
    char url[64];
    (void)state;
    snprintf(url, sizeof url, "tcp://0.0.0.0:%d", world_free_port());
    world_init(&rank, 1, url, 300);
    rank.nranks = 2;
    lines.count = 0;
    ddl_set_log(keep_line, &lines);
    world_start(&rank);
    world_finish(&rank);
    ddl_set_log(NULL, NULL);
    expect(&rank, DDL_ETIMEDOUT, 1, 1.3, "did not come", "");
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.text[0], "MASTER_ADDR 0.0.0.0: rank 0 listens on all addresses"));
}

static void a_store_for_threads_is_refused_to_processes(void **state)
{
    struct world_rank rank;
    (void)state;
    world_init(&rank, 1, "mem://test", 300);
    rank.nranks = 2;
    assert_int_equal(setenv("DDL_LAUNCH", "1", 1), 0);
    world_start(&rank);
    world_finish(&rank);
    assert_int_equal(unsetenv("DDL_LAUNCH"), 0);
    expect(&rank, DDL_ECONFIG, -1, 0.3, "threads of one process", "tcp://");
}

#ifdef DDL_FAILPOINTS
static void a_rank_that_cannot_let_others_in_does_not_blame_them(void **state)
{
    struct world_rank rank;
    static struct lines lines;
    struct place place;
    char own[80];
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(&rank, 1, place.url, 1000);
    rank.nranks = 2;
    lines.count = 0;
    ddl_set_log(keep_line, &lines);
    ddl_failpoint_arm("io.accept");
    world_start(&rank);
    world_finish(&rank);
    ddl_failpoint_arm(NULL);
    ddl_set_log(NULL, NULL);
    snprintf(own, sizeof own, "[%d]: it cannot let others in", (int)getpid());
    expect(&rank, DDL_ERESOURCE, 0, 3, own, "ulimit -n: Too many open files");
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.text[0], "rank 0 cannot let anybody in for now: Too many open files"));
    place_close(&place);
}

static void who_waited_is_let_in_once_there_are_descriptors_again(void **state)
{
    struct world_rank ranks[2];
    static struct lines lines;
    struct place place;
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(ranks, 2, place.url, 20000);
    lines.count = 0;
    ddl_set_log(keep_line, &lines);
    ddl_failpoint_arm("io.accept");
    start_all(ranks, 2);
    ddl_service *service = ranks[0].service; /* which outlives the start */
    EVENTUALLY(ddl_service_lack(service) != 0);
    assert_int_equal(ddl_service_lack(service), EMFILE);
    ddl_failpoint_arm(NULL);
    finish_all(ranks, 2);
    ddl_set_log(NULL, NULL);
    for (int rank = 0; rank < 2; rank++)
        if (ranks[rank].status != DDL_OK)
            fail_msg("rank %d: %s", rank, ranks[rank].error.text);
    assert_int_equal(ddl_service_lack(service), 0); /* nobody is blamed for it later on */
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.text[0], "rank 0 cannot let anybody in for now: Too many open files"));
    place_close(&place);
}
#endif

static void who_waits_for_rank_0_is_told_what_keeps_it_out(void **state)
{
    struct world_rank rank;
    static struct lines lines;
    struct place place;
    char expected[400];
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(&rank, 1, place.url, 5800);
    rank.rank = 1;
    rank.nranks = 2;
    lines.count = 0;
    ddl_set_log(keep_line, &lines);
    world_start(&rank);
    world_finish(&rank);
    ddl_set_log(NULL, NULL);
    expect(&rank, DDL_ETIMEDOUT, 0, 6.8, "rank 0 did not", "refused");
    snprintf(expected, sizeof expected,
             "ddl: waiting for rank 0 at %s (connection refused; that is this host itself), 1 s left",
             place.url + strlen("tcp://"));
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.text[0], expected);
    place_close(&place);
}

static void a_missing_rank_is_named_in_every_store(void **state)
{
    struct world_rank ranks[4];
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind);
        world_init(ranks, 4, place.url, 1000);
        for (int rank = 0; rank < 4; rank++)
            if (rank != 2)
                world_start(&ranks[rank]);
        finish_all(ranks, 4);
        for (int rank = 0; rank < 4; rank++)
            if (rank != 2)
                expect(&ranks[rank], DDL_ETIMEDOUT, 2, 2.0,
                       joined_here("rank 2 of 4 (joined: 0-1, 3 on ", ") did not come to "), place.url);
        place_close(&place);
    }
}

static void a_rank_killed_while_the_others_wait_is_named_by_all(void **state)
{
    struct world_rank ranks[4];
    (void)state;
    for (const struct kind *kind = kinds; kind < kinds + BETWEEN_PROCESSES; kind++) {
        if (!is_possible(kind))
            continue;
        for (int victim = 0; victim < 3; victim++) {
            struct place place;
            place_open(&place, kind);
            world_init(ranks, 4, place.url, 20000);
            pid_t pid = world_fork(&ranks[victim]);
            for (int rank = 0; rank < 3; rank++)
                if (rank != victim)
                    world_start(&ranks[rank]);
            for (int rank = 0; rank < 3; rank++)
                (void)world_await_member(&ranks[0], 3, rank);
            int64_t death_ns = ddl_now_ns();
            world_kill(pid);
            finish_all(ranks, 4);
            assert_true(ddl_now_ns() - death_ns < 1500 * DDL_NS_PER_MS);
            for (int rank = 0; rank < 3; rank++)
                if (rank != victim)
                    expect(&ranks[rank], DDL_EPEERLOST, victim, 20.0, "rank", "output");
            if ((place.folder[0] != '\0' || place.has_keys) && victim == 0) { /* the next rank 0 cleans up */
                world_init(ranks, 1, place.url, 1000);
                ranks[0].nranks = 2;
                world_start(&ranks[0]);
                world_finish(&ranks[0]);
                assert_int_equal(ranks[0].status, DDL_ETIMEDOUT);
            }
            place_close(&place);
        }
    }
}

/* In the file store, whose place has another name in each test. */
static void make_meet_older(const struct place *place, int seconds)
{
    char pattern[128];
    glob_t found;
    struct stat info;
    snprintf(pattern, sizeof pattern, "%s/*/meet", place->folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_int_equal(lstat(found.gl_pathv[0], &info), 0);
    struct utimbuf times = { info.st_mtime - seconds, info.st_mtime - seconds };
    assert_int_equal(utime(found.gl_pathv[0], &times), 0);
    globfree(&found);
}

static void expect_leftover_told(const struct lines *lines, int seconds)
{
    int age = -1;
    for (int i = 0; i < lines->count; i++) {
        const char *told = strstr(lines->text[i], "rank 0 replaces ");
        const char *at = told != NULL ? strstr(told, "meet") : NULL;
        at = at != NULL ? strchr(at, '(') : NULL;
        if (at != NULL)
            age = atoi(at + 1);
    }
    if (age < seconds || age > seconds + 100)
        fail_msg("%d lines, a leftover of %d s was said to be of %d s: %s", lines->count, seconds, age,
                 lines->count > 0 ? lines->text[0] : "");
}

/* How long it took until the last of them had joined. */
static double slowest(const struct world_rank ranks[], int nranks)
{
    double most = 0;
    for (int rank = 0; rank < nranks; rank++)
        most = ranks[rank].seconds > most ? ranks[rank].seconds : most;
    return most;
}

static void what_a_killed_run_left_behind_is_not_trusted(void **state)
{
    static const char *const secrets[] = { "a secret of the tests, and no other", "that of a job before",
                                           NULL };
    struct world_rank ranks[3], dead;
    static struct lines lines;
    (void)state;
    for (int i = 0; i < 3 * (BETWEEN_PROCESSES - 1); i++) {
        const struct kind *kind = &kinds[1 + i / 3];
        struct place place;
        if (!is_possible(kind))
            continue;
        place_open(&place, kind);
        world_init(ranks, 3, place.url, 20000);
        /* Rank 0 and rank 1 of the dead run have published their records; even its size differs. */
        world_init(&dead, 1, place.url, 20000);
        dead.nranks = 5;
        dead.secret = secrets[i % 3];
        pid_t pid = world_fork(&dead);
        dead.rank = 1;
        pid_t other = world_fork(&dead);
        (void)world_await_member(&dead, 4, 1);
        world_kill(pid);
        world_kill(other);
        if (place.folder[0] != '\0') {
            make_meet_older(&place, 3600);
            world_init(&dead, 1, place.url, 100);
            dead.rank = 1;
            dead.nranks = 3;
            world_start(&dead); /* nobody comes */
            world_finish(&dead);
            expect(&dead, DDL_ETIMEDOUT, 0, 1.1, "/meet (36", " s old) names a run that does not answer");
        }
        lines.count = 0;
        ddl_set_log(keep_line, &lines);
        double took[2];
        for (int clean = 0; clean < 2; clean++) { /* the first of the two removes what was left */
            world_start(&ranks[1]);               /* finds the leftovers, and must wait */
            world_start(&ranks[2]);
            world_start(&ranks[0]);
            finish_all(ranks, 3);
            expect_joined(ranks, 3);
            took[clean] = slowest(ranks, 3);
            ddl_set_log(NULL, NULL);
        }
        expect_leftover_told(&lines, place.folder[0] != '\0' ? 3600 : 0);
        if (took[0] > took[1] + 1.0)
            fail_msg("%s: %.2f s beside what was left, %.2f s without", place.url, took[0], took[1]);
        place_close(&place);
    }
}

#ifdef DDL_TEST_TLS
#define REDISS_STATUS DDL_ECONFIG
#define REDISS_TEXT   "from /no/such"
#else
#define REDISS_STATUS DDL_EUNSUPPORTED
#define REDISS_TEXT   "built without TLS"
#endif

static void bad_settings_are_told_at_once(void **state)
{
    static const struct {
        const char *url, *iface;
        int rank;
        ddl_status status;
        const char *text;
    } cases[] = {
        { "nonsense", NULL, 0, DDL_ECONFIG, "DDL_STORE=nonsense is no URL; there are tcp://" },
        { "127.0.0.1:6399", NULL, 0, DDL_ECONFIG, "DDL_STORE=127.0.0.1:6399 is no URL; there are tcp://" },
        { "tcp:127.0.0.1:6399", NULL, 0, DDL_ECONFIG,
          "DDL_STORE=tcp:127.0.0.1:6399 is no URL: write tcp://; there are tcp://" },
        { "redis:me:secret@h:1", NULL, 0, DDL_ECONFIG,
          "DDL_STORE=redis is no URL: write redis://; there are tcp://" },
        { "gopher://x", NULL, 1, DDL_ECONFIG,
          "no store gopher://; there are tcp://host:port, file:///directory, redis://host:port" },
        { "tcp://127.0.0.1", NULL, 0, DDL_ECONFIG, "DDL_STORE=tcp://ADDRESS: ADDRESS=127.0.0.1 is not" },
        { "tcp://:29500", NULL, 0, DDL_ECONFIG, "host:port" },
        { "tcp://127.0.0.1:0", NULL, 0, DDL_ECONFIG, "1 to 65535" },
        { "tcp://127.0.0.1:http", NULL, 1, DDL_ECONFIG, "1 to 65535" },
        { "tcp://127.0.0.1:65536", NULL, 0, DDL_ECONFIG, "1 to 65535" },
        { "tcp://127.0.0.1:29500x", NULL, 0, DDL_ECONFIG, "1 to 65535" },
        { "tcp://me:secret@127.0.0.1:29500", NULL, 1, DDL_ECONFIG, "has no @ in it" },
        { "tcp://::1:29500", NULL, 0, DDL_ECONFIG, "brackets" },
        { "tcp://[fe80::1]:29500", NULL, 0, DDL_ECONFIG, "write fe80::1%INTERFACE" },
        { "tcp://[fe80::1]:29500", NULL, 1, DDL_ECONFIG, "write fe80::1%INTERFACE" },
        { "tcp://192.0.2.1:29500", NULL, 0, DDL_ENETWORK,
          "is no address of this machine; it has: lo 127.0.0.1" },
        { "file://relative/path", NULL, 0, DDL_ECONFIG, "three slashes: file:///shared/directory" },
        { "file:relative", NULL, 0, DDL_ECONFIG, "DDL_STORE=file:relative is no URL: write the whole path" },
        { "file:/absolute", NULL, 0, DDL_ECONFIG, "as in file:///shared/directory" },
        { "file:///no/such/directory", NULL, 1, DDL_ESTORE, "make that directory" },
        { "file:///dev/null", NULL, 0, DDL_ESTORE, "/dev/null" },
#ifdef DDL_TEST_REDIS
        { "redis://127.0.0.1", NULL, 0, DDL_ECONFIG, "not host:port" },
        { "redis://me:secret@127.0.0.1:6379", NULL, 1, DDL_ECONFIG, "never the password itself" },
        { "rediss://127.0.0.1:6379?cacert=/no/such", NULL, 1, REDISS_STATUS, REDISS_TEXT },
#else
        { "redis://127.0.0.1:6379", NULL, 0, DDL_EUNSUPPORTED, "built without Redis" },
        { "rediss://127.0.0.1:6379", NULL, 1, DDL_EUNSUPPORTED, "built without Redis" },
#endif
        { "mem://", NULL, 0, DDL_ECONFIG, "lacks a name" },
        { "mem://x", "nosuch0", 0, DDL_ENETWORK, "there are: lo 127.0.0.1" },
        { "mem://x", "203.0.113.0/24", 0, DDL_ENETWORK, "there are: lo 127.0.0.1" },
        { "mem://x", "10.0.0.0/33", 0, DDL_ECONFIG, "neither an interface nor a network" },
        { "mem://x", "10.0.0/8", 0, DDL_ECONFIG, "neither an interface nor a network" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world_rank rank;
        world_init(&rank, 1, cases[i].url, 20000);
        rank.rank = cases[i].rank;
        rank.nranks = 2;
        rank.iface = cases[i].iface;
        world_start(&rank);
        world_finish(&rank);
        if (rank.status != cases[i].status || strstr(rank.error.text, cases[i].text) == NULL)
            fail_msg("%s: %s: %s", cases[i].url, ddl_status_name(rank.status), rank.error.text);
        assert_true(rank.seconds < 1.0);
    }
}

static void an_unknown_host_is_told(void **state)
{
    struct world_rank rank;
    (void)state;
    world_init(&rank, 1, "tcp://no-such-host.invalid:29500", 3000);
    rank.nranks = 2;
    world_start(&rank);
    world_finish(&rank);
    expect(&rank, DDL_ENETWORK, -1, 4.0, "no-such-host.invalid", "numeric address");
}

static void a_port_in_use_is_told(void **state)
{
    struct world_rank rank;
    char url[64];
    ddl_address address, bound;
    int fd = -1;
    (void)state;
    assert_true(ddl_address_parse("127.0.0.1", 0, &address));
    assert_int_equal(ddl_socket_listen(&address, 1, &fd, &bound, NULL), DDL_OK);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", ddl_address_port(&bound));
    world_init(&rank, 1, url, 20000);
    rank.nranks = 2;
    world_start(&rank);
    world_finish(&rank);
    expect(&rank, DDL_ENETWORK, -1, 1.0, "in use", "--master_port");
    ddl_socket_close(&fd);
}

static void interfaces_can_be_chosen(void **state)
{
    static const char *const choices[] = { "lo", "127.0.0.0/8", "127.0.0.1" };
    struct world_rank ranks[3];
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        struct place place;
        place_open(&place, &kinds[1]);
        world_init(ranks, 3, place.url, 20000);
        for (int rank = 0; rank < 3; rank++)
            ranks[rank].iface = choices[i];
        start_all(ranks, 3);
        finish_all(ranks, 3);
        expect_joined(ranks, 3);
        place_close(&place);
    }
}

/* ---- strangers ---- */

static int knock(int port, const void *data, size_t bytes)
{
    ddl_address address;
    int fd = -1;
    assert_true(ddl_address_parse("127.0.0.1", (uint16_t)port, &address));
    assert_int_equal(ddl_socket_connect(&address, &fd, NULL), DDL_OK);
    assert_true(ddl_socket_wait(fd, POLLOUT, ddl_deadline_in_ms(5000)));
    if (bytes > 0 && ddl_socket_error(fd) == 0)
        (void)!ddl_socket_write(fd, data, bytes);
    return fd;
}

static void throw_garbage(int port)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", ssh[] = "SSH-2.0-OpenSSH_9.2\r\n",
                      resp[] = "*1\r\n$4\r\nPING\r\n";
    static const unsigned char tls[] = { 0x16, 0x03, 0x01, 0x02, 0x00, 0x01,
                                         0x00, 0x01, 0xfc, 0x03, 0x03, 0x5a };
    static unsigned char noise[70000];
    unsigned seed = 12345;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)((seed = seed * 1103515245u + 12345u) >> 16);
    const struct {
        const void *data;
        size_t bytes;
    } pieces[] = { { http, sizeof http - 1 },
                   { ssh, sizeof ssh - 1 },
                   { resp, sizeof resp - 1 },
                   { tls, sizeof tls },
                   { noise, sizeof noise },
                   { noise, 1 },
                   { noise, 0 },
                   { "ddl\r\n\x1a\n\0\1\0", 10 } };
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            int fd = knock(port, pieces[i].data, pieces[i].bytes);
            ddl_socket_close(&fd);
        }
    }
}

static int port_of(const char *url)
{
    return atoi(strrchr(url, ':') + 1);
}

static void garbage_at_either_port_does_no_harm(void **state)
{
    struct world_rank ranks[3];
    struct place place;
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(ranks, 3, place.url, 20000);
    world_start(&ranks[0]);
    world_start(&ranks[1]);
    int store_port = port_of(place.url), mesh_ports[2];
    for (int rank = 0; rank < 2; rank++)
        mesh_ports[rank] = world_await_member(&ranks[0], 2, rank);
    throw_garbage(store_port);
    throw_garbage(mesh_ports[0]);
    throw_garbage(mesh_ports[1]);
    world_start(&ranks[2]);
    throw_garbage(store_port);
    finish_all(ranks, 3);
    expect_joined(ranks, 3);
}

static void a_stranger_who_babbles_is_cut_off(void **state)
{
    struct world_rank rank;
    struct place place;
    char reply[512];
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(&rank, 1, place.url, 20000);
    rank.nranks = 2;
    rank.timeout_ms = 3000;
    world_start(&rank);
    (void)world_await_member(&rank, 1, 0);
    int fd = knock(port_of(place.url), "GET / HTTP/1.0\r\n\r\n", 18);
    assert_true(ddl_socket_wait(fd, POLLIN, ddl_deadline_in_ms(1000)));
    assert_true(ddl_socket_read(fd, reply, sizeof reply) <= 0); /* closed, and not a word said */
    ddl_socket_close(&fd);
    world_finish(&rank);
    assert_int_equal(rank.status, DDL_ETIMEDOUT);
}

static void slow_strangers_do_not_keep_ranks_out(void **state)
{
    enum { SLOW = 200 };
    struct world_rank ranks[4];
    int slow[SLOW];
    struct place place;
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(ranks, 4, place.url, 20000);
    world_start(&ranks[0]);
    int mesh_port = world_await_member(&ranks[0], 3, 0);
    for (int i = 0; i < SLOW; i++)
        slow[i] = knock(i % 2 == 0 ? port_of(place.url) : mesh_port, "ddl", i % 4 < 2 ? 3 : 0);
    for (int rank = 1; rank < 4; rank++)
        world_start(&ranks[rank]);
    finish_all(ranks, 4);
    expect_joined(ranks, 4);
    for (int rank = 0; rank < 4; rank++)
        assert_true(ranks[rank].seconds < 5.0);
    for (int i = 0; i < SLOW; i++)
        ddl_socket_close(&slow[i]);
}

/* A connection from this address of loopback, on which nothing is said. */
static int knock_from(const char *source, int port)
{
    ddl_address from, to;
    int fd = ddl_socket_new(AF_INET);
    assert_true(ddl_address_parse(source, 0, &from));
    assert_true(ddl_address_parse("127.0.0.1", (uint16_t)port, &to));
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&from.socket, from.bytes), 0);
    (void)!connect(fd, (const struct sockaddr *)&to.socket, to.bytes);
    assert_true(ddl_socket_wait(fd, POLLOUT, ddl_deadline_in_ms(5000)));
    assert_int_equal(ddl_socket_error(fd), 0);
    return fd;
}

static int count_open(const int fds[], int count)
{
    char byte;
    int open = 0;
    for (int i = 0; i < count; i++)
        open += ddl_socket_read(fds[i], &byte, 1) < 0 && errno == EAGAIN;
    return open;
}

static void one_address_cannot_take_all_places_at_a_door(void **state)
{
    enum { RANKS = 4, MANY = 40, MAY_STAY = 2 * RANKS + 16 };
    struct world_rank ranks[RANKS];
    int from_one[MANY], from_another;
    struct place place;
    (void)state;
    place_open(&place, &kinds[0]);
    world_init(ranks, RANKS, place.url, 20000);
    world_start(&ranks[0]);
    (void)world_await_member(&ranks[0], 3, 0);
    from_another = knock_from("127.0.0.3", port_of(place.url));
    for (int i = 0; i < MANY; i++)
        from_one[i] = knock_from("127.0.0.2", port_of(place.url));
    /* Whether it is the last to come or the first that goes, so many stay; those of another address do. */
    ddl_deadline deadline = ddl_deadline_in_ms(4000);
    while (count_open(from_one, MANY) > MAY_STAY && !ddl_deadline_passed(deadline))
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(5));
    assert_int_equal(count_open(from_one, MANY), MAY_STAY);
    assert_int_equal(count_open(&from_another, 1), 1);
    for (int rank = 1; rank < RANKS; rank++)
        world_start(&ranks[rank]);
    finish_all(ranks, RANKS);
    expect_joined(ranks, RANKS);
    for (int i = 0; i < MANY; i++)
        ddl_socket_close(&from_one[i]);
    ddl_socket_close(&from_another);
}

/* A rank that waits so long for rank 0, where this test listens. */
static int listen_for(struct world_rank *rank, char url[64], int64_t timeout_ms)
{
    ddl_address address, bound;
    int listener = -1;
    assert_true(ddl_address_parse("127.0.0.1", 0, &address));
    assert_int_equal(ddl_socket_listen(&address, 8, &listener, &bound, NULL), DDL_OK);
    snprintf(url, 64, "tcp://127.0.0.1:%u", ddl_address_port(&bound));
    world_init(rank, 1, url, timeout_ms);
    rank->rank = 1;
    rank->nranks = 2;
    world_start(rank);
    return listener;
}

static int accept_one(int listener)
{
    ddl_address from;
    int fd = -1;
    assert_true(ddl_socket_wait(listener, POLLIN, ddl_deadline_in_ms(5000)));
    assert_int_equal(ddl_socket_accept(listener, &fd, &from), 0);
    return fd;
}

static void another_program_on_the_port_is_told(void **state)
{
    static const char *const answers[] = { "HTTP/1.1 400 Bad Request\r\n\r\n", NULL };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world_rank rank;
        char url[64], heard[256];
        int listener = listen_for(&rank, url, 20000), fd = accept_one(listener);
        assert_true(ddl_socket_wait(fd, POLLIN, ddl_deadline_in_ms(5000)));
        ssize_t count = ddl_socket_read(fd, heard, sizeof heard);
        assert_true(count > 0);
        const char *answer = answers[i] != NULL ? answers[i] : heard; /* as an echo server does */
        const size_t bytes = answers[i] != NULL ? strlen(answer) : (size_t)count;
        assert_int_equal(ddl_socket_write(fd, answer, bytes), bytes);
        world_finish(&rank);
        expect(&rank, DDL_EPROTO, -1, 6.0, "does not speak ddl", "another program");
        ddl_socket_close(&fd);
        ddl_socket_close(&listener);
    }
}

static void what_was_at_the_place_and_has_gone_is_told(void **state)
{
    struct world_rank rank;
    char url[64];
    (void)state;
    int listener = listen_for(&rank, url, 1500);
    int fd = accept_one(listener);
    ddl_socket_close(&listener);
    ddl_socket_close(&fd);
    world_finish(&rank);
    expect(&rank, DDL_ETIMEDOUT, 0, 2.5, "has gone before this rank came in", "Connection refused");
}

static int end_world(void **state)
{
    (void)state;
    world_end();
    redis_server_stop();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_rank_killed_while_the_others_wait_is_named_by_all), /* first: forks while no thread runs */
        cmocka_unit_test(what_a_killed_run_left_behind_is_not_trusted),
        cmocka_unit_test(worlds_of_every_size_meet_in_any_order),
        cmocka_unit_test(ranks_of_a_host_are_introduced_to_each_other),
        cmocka_unit_test(a_place_can_be_used_again_at_once),
        cmocka_unit_test(a_second_rank_of_a_number_is_refused_and_harms_nobody),
        cmocka_unit_test(a_latecomer_is_refused_while_the_others_work),
        cmocka_unit_test(a_second_rank_0_is_refused),
        cmocka_unit_test(another_world_size_is_told_to_everyone),
        cmocka_unit_test(another_generator_is_told_to_everyone),
        cmocka_unit_test(missing_ranks_are_named_while_waiting_and_at_the_end),
        cmocka_unit_test(a_missing_rank_0_is_named),
        cmocka_unit_test(a_store_at_all_addresses_is_warned_of),
        cmocka_unit_test(a_store_for_threads_is_refused_to_processes),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(whose_call_on_a_file_fails_is_named_by_all),
        cmocka_unit_test(who_waited_is_let_in_once_there_are_descriptors_again),
        /* Last of the two: its service says so until it is used again. */
        cmocka_unit_test(a_rank_that_cannot_let_others_in_does_not_blame_them),
#endif
        cmocka_unit_test(who_waits_for_rank_0_is_told_what_keeps_it_out),
        cmocka_unit_test(a_missing_rank_is_named_in_every_store),
        cmocka_unit_test(bad_settings_are_told_at_once),
        cmocka_unit_test(an_unknown_host_is_told),
        cmocka_unit_test(a_port_in_use_is_told),
        cmocka_unit_test(interfaces_can_be_chosen),
        cmocka_unit_test(garbage_at_either_port_does_no_harm),
        cmocka_unit_test(a_stranger_who_babbles_is_cut_off),
        cmocka_unit_test(slow_strangers_do_not_keep_ranks_out),
        cmocka_unit_test(one_address_cannot_take_all_places_at_a_door),
        cmocka_unit_test(another_program_on_the_port_is_told),
        cmocka_unit_test(what_was_at_the_place_and_has_gone_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, end_world);
}
