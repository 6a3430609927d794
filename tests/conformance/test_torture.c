/*
 * test_torture.c - every call that can fail for a reason outside ddl is made to fail, one after the other.
 *
 * Two ranks, as threads, live a whole life: meet, reduce, exchange, split, shrink, part; over each kind of
 * store. Life n is lived with the nth fallible call failing; the lives end when there is no nth call any
 * more. Whatever fails, every call returns in time, results that are called a success are right, and nothing
 * leaks (the address sanitizer looks on), no descriptor either. DDL_TEST_STRIDE tortures every so many
 * calls only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "rendezvous/store_file_record.h"

#include <ddl/ddl.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef DDL_FAILPOINTS

enum { RANKS = 2, COUNT = 50000, TIMEOUT_MS = 400, LIFE_MS = 15000 };

typedef struct life {
    int rank;
    const char *store;
    pthread_t thread;
    bool wrong;   /* a success that was none */
    bool unnamed; /* a failure without a text */
} life;

static void judge(life *me, ddl_status status)
{
    if (status == DDL_OK)
        return;
    const ddl_error *error = ddl_last_error();
    me->unnamed = me->unnamed || error->code != status || error->text[0] == '\0';
}

static void reduce_and_exchange(life *me, ddl_comm *world, int32_t *in, int32_t *out)
{
    ddl_request *request = NULL;
    for (int i = 0; i < COUNT; i++)
        in[i] = i + me->rank;
    ddl_status status = ddl_allreduce(in, out, COUNT, DDL_INT32, DDL_SUM, world, NULL);
    judge(me, status);
    for (int i = 0; i < COUNT && status == DDL_OK; i++)
        me->wrong = me->wrong || out[i] != 2 * i + 1;

    status = ddl_allreduce(in, out, 3, DDL_INT32, DDL_SUM, world, NULL);
    judge(me, status);
    for (int i = 0; i < 3 && status == DDL_OK; i++)
        me->wrong = me->wrong || out[i] != 2 * i + 1;

    status = ddl_alltoall(in, out, COUNT / RANKS, DDL_INT32, world, &request);
    judge(me, status);
    if (status == DDL_OK) {
        status = ddl_wait(&request);
        judge(me, status);
        for (int i = 0; i < COUNT / RANKS && status == DDL_OK; i++)
            me->wrong = me->wrong || out[i] != i + me->rank * (COUNT / RANKS);
    }
    judge(me, ddl_barrier(world, NULL));
}

/* A part of all, in the other order of ranks; then the world without anybody lost. */
static void split_and_shrink(life *me, ddl_comm *world, int32_t *in, int32_t *out)
{
    static const size_t counts[RANKS][RANKS] = { { 3, 30000 }, { 0, 7 } }; /* from, to: ranks of the part */
    ddl_comm *part = NULL, *left = NULL;
    ddl_status status = ddl_comm_split(world, 7, -me->rank, &part);
    judge(me, status);
    if (status == DDL_OK) {
        int rank = ddl_rank(part);
        me->wrong = me->wrong || rank != RANKS - 1 - me->rank || ddl_size(part) != RANKS;
        size_t expected[RANKS] = { counts[0][rank], counts[1][rank] };
        for (int i = 0; i < COUNT; i++)
            in[i] = i + me->rank;
        status = ddl_alltoallv(in, counts[rank], out, expected, DDL_INT32, part, NULL);
        judge(me, status);
        /* The first that came from rank 0, which is rank 1 of the world. */
        size_t skipped = rank == 0 ? 0 : counts[0][0];
        for (size_t i = 0; i < expected[0] && status == DDL_OK; i++)
            me->wrong = me->wrong || out[i] != (int32_t)(skipped + i) + RANKS - 1;
        judge(me, ddl_comm_free(&part));
    }
    status = ddl_comm_shrink(world, &left);
    judge(me, status);
    if (status == DDL_OK) {
        /* The other may have given up and left; the half with the lowest rank goes on. */
        bool alone = ddl_size(left) == 1 && me->rank == 0;
        me->wrong = me->wrong || ddl_rank(left) != me->rank || (ddl_size(left) != RANKS && !alone);
        judge(me, ddl_barrier(left, NULL));
        judge(me, ddl_comm_free(&left));
    }
}

static void *live(void *arg)
{
    life *me = arg;
    ddl_options options = DDL_OPTIONS_INIT;
    options.rank = me->rank;
    options.world_size = RANKS;
    options.store = me->store;
    options.start_timeout_ms = TIMEOUT_MS;
    options.timeout_ms = TIMEOUT_MS;
    int32_t *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    ddl_comm *world = NULL;
    ddl_status status = ddl_init(&world, &options);
    judge(me, status);
    if (status == DDL_OK) {
        reduce_and_exchange(me, world, in, out);
        split_and_shrink(me, world, in, out);
        judge(me, ddl_comm_free(&world));
    }
    free(in);
    free(out);
    return NULL;
}

static void be_quiet(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

/* ---- where to meet ---- */

static const char *const kinds[] = { "mem", "file", "tcp" };

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/*
 * Below those that the system gives out, so that no connection gets it meanwhile, and below those of
 * tests/process/world.py.
 */
static int free_port(void)
{
    enum { FIRST_PORT = 16384, LAST_PORT = 20479 };
    for (;;) {
        struct sockaddr_in address = { .sin_family = AF_INET };
        uint16_t wanted;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fd >= 0);
        assert_int_equal(getrandom(&wanted, sizeof wanted, 0), sizeof wanted);
        wanted = (uint16_t)(FIRST_PORT + wanted % (LAST_PORT - FIRST_PORT + 1));
        address.sin_port = htons(wanted);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (bound == 0)
            return wanted;
    }
}

static void name_store(const char *kind, const char *folder, uint64_t nth, char url[96])
{
    if (strcmp(kind, "tcp") == 0)
        snprintf(url, 96, "tcp://127.0.0.1:%d", free_port());
    else if (strcmp(kind, "file") == 0)
        snprintf(url, 96, "file://%s", folder);
    else
        snprintf(url, 96, "mem://torture-%llu", (unsigned long long)nth);
}

/* Descriptors that are open; 0 where the system does not tell. */
static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* What each is, so that a leak tells whose it is. */
static void print_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char target[128];
        ssize_t bytes = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);
        if (bytes > 0)
            print_message("descriptor %s: %.*s\n", entry->d_name, (int)bytes, target);
    }
    if (folder != NULL)
        closedir(folder);
}

/* ---- lives ---- */

/* Live once with the nth call failing (0: none); returns how many calls there were. */
static uint64_t live_with(const char *store, uint64_t nth)
{
    char setting[32];
    snprintf(setting, sizeof setting, "*:%llu", (unsigned long long)nth);
    ddl_failpoint_arm(nth > 0 ? setting : NULL);
    life lives[RANKS] = { { 0 } };
    int64_t before_ns = ddl_now_ns();
    for (int rank = 0; rank < RANKS; rank++) {
        lives[rank].rank = rank;
        lives[rank].store = store;
        assert_int_equal(pthread_create(&lives[rank].thread, NULL, live, &lives[rank]), 0);
    }
    for (int rank = 0; rank < RANKS; rank++)
        pthread_join(lives[rank].thread, NULL);
    int64_t took_ms = (ddl_now_ns() - before_ns) / DDL_NS_PER_MS;
    uint64_t hits = ddl_failpoint_hits();
    ddl_failpoint_arm(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        if (lives[rank].wrong)
            fail_msg("%s, call %d failing: rank %d got a wrong result and was told success", store, (int)nth,
                     rank);
        if (lives[rank].unnamed)
            fail_msg("%s, call %d failing: rank %d got a failure without a text", store, (int)nth, rank);
    }
    if (took_ms > LIFE_MS)
        fail_msg("%s, call %d failing: a life of %d ms", store, (int)nth, (int)took_ms);
    return hits;
}

/*
 * Each store starts elsewhere, and the first goes with another stride, so that between them they leave out
 * less of what they have in common.
 */
static void every_failing_call_is_survived(void **state)
{
    (void)state;
    const char *text = getenv("DDL_TEST_STRIDE");
    uint64_t first_stride = text != NULL && strtoull(text, NULL, 10) > 0 ? strtoull(text, NULL, 10) : 1;
    ddl_set_log(be_quiet, NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        char store[96], folder[] = "/tmp/ddl-torture-XXXXXX";
        uint64_t stride = kind == 0 ? first_stride : 2 * first_stride - 1;
        uint64_t nth = 1 + (uint64_t)kind * stride / KINDS, hits;
        int count = 0;
        assert_non_null(mkdtemp(folder));
        name_store(kinds[kind], folder, 0, store);
        live_with(store, 0);
        int descriptors = open_descriptors();
        do {
            name_store(kinds[kind], folder, nth, store);
            hits = live_with(store, nth);
            if (open_descriptors() != descriptors) {
                print_descriptors();
                fail_msg("%s, call %d failing: there were %d descriptors before", store, (int)nth,
                         descriptors);
            }
            nth += stride;
            count++;
        } while (hits >= nth - stride);
        ddl_record_remove_tree(folder); /* what failed calls have left there is no harm */
        assert_int_not_equal(access(folder, F_OK), 0);
        print_message("%s: %d calls were made to fail\n", kinds[kind], count - 1);
        assert_true(nth > 50);
    }
    ddl_set_log(NULL, NULL);
}

#endif

#ifdef DDL_FAILPOINTS

/* With the secrets that were made there. */
static void remove_places(const char *places)
{
    static const char *const inside[] = { "ddl/secret", "ddl", ".ddl/secret", ".ddl", "" };
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", places, inside[i]);
        remove(path);
    }
}

#endif

int main(void)
{
#ifdef DDL_FAILPOINTS
    char places[] = "/tmp/ddl-torture-home-XXXXXX"; /* where ddl keeps secrets */
    if (mkdtemp(places) == NULL)
        return EXIT_FAILURE;
    setenv("HOME", places, 1);
    setenv("XDG_RUNTIME_DIR", places, 1);
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_failing_call_is_survived) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_places(places);
    return failed;
#else
    return 77; /* meson: skipped; built without -Dfailpoints=true */
#endif
}
