/* test_base.c - sizes, copies, outlets, processors, lists, tables, bytes, errors, names, spellings, times,
 * log lines and failpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/decimal.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "base/outlet.h"
#include "base/processor.h"
#include "base/size.h"
#include "base/spelling.h"
#include "base/table.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void copy_is_exact(uint8_t *to, uint8_t *expected, size_t room, size_t at, const uint8_t *from,
                          size_t bytes, bool past_caches)
{
    memset(to, 0xa5, room);
    memset(expected, 0xa5, room);
    memcpy(expected + at, from, bytes);
    ddl_copy(to + at, from, bytes, past_caches);
    assert_memory_equal(to, expected, room);
}

/* Every length and alignment around lines, of what is short and what is long, either way; and nothing beside
 * them. */
static void copies_are_exact_past_the_caches_too(void **state)
{
    (void)state;
    enum { LINE = 64, LONG = 2048, MOST = LONG + 2 * LINE, ROOM = MOST + 2 * LINE };
    static uint8_t from[ROOM], to[ROOM], expected[ROOM];
    for (int i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t at = 0; at < LINE; at++)
        for (size_t bytes = 0; bytes <= MOST; bytes += bytes == 2 * LINE ? LONG - 3 * LINE : 1)
            for (int way = 0; way < 2; way++)
                copy_is_exact(to, expected, ROOM, at, from + bytes % 5, bytes, way == 1);
    ddl_copy(NULL, NULL, 0, true);
}

/* For each way in which one place may lie behind the other in its page. */
static void long_copies_are_exact_wherever_they_lie(void **state)
{
    (void)state;
    enum { LONG = 5000, OFFSETS = 40 };
    static uint8_t from[LONG + OFFSETS], to[LONG + OFFSETS + 8192], expected[sizeof to];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    uint8_t *alike = to + ((uintptr_t)from - (uintptr_t)to) % 4096; /* in its page */
    for (size_t behind = 0; behind < OFFSETS; behind++) {
        const size_t at = (size_t)(alike - to) + behind;
        copy_is_exact(to, expected, sizeof to, at, from, LONG, false);
        copy_is_exact(to, expected, sizeof to, at, from, LONG, true);
    }
}

/* Of which some are timed, whichever stores they go by. */
static void copies_for_other_cores_are_exact(void **state)
{
    (void)state;
    enum { MOST = 96 * 1024, ROUNDS = 200 };
    static uint8_t from[MOST + 64], to[MOST + 64], expected[MOST + 64];
    const size_t lengths[] = { 0,     1,     4096, DDL_OUTLET_LEAST_BYTES - 1, DDL_OUTLET_LEAST_BYTES, 16384,
                               16385, 65536, MOST };
    ddl_outlet outlet = { .streams = false };
    size_t timed = 0, before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t bytes = lengths[round % (int)(sizeof lengths / sizeof *lengths)],
                     at = (size_t)round % 64;
        for (size_t i = 0; i < sizeof from; i++)
            from[i] = (uint8_t)(i * 7 + (size_t)round);
        memset(to, 0xa5, sizeof to);
        memset(expected, 0xa5, sizeof expected);
        memcpy(expected + at, from + round % 5, bytes);
        outlet.streams = round / 20 % 2 != 0;
        ddl_outlet_copy(&outlet, to + at, from + round % 5, bytes);
        assert_memory_equal(to, expected, sizeof to);
        timed += outlet.until_timed > before;
        before = outlet.until_timed;
    }
#ifdef __x86_64__
    if (__builtin_cpu_is("amd"))
        assert_in_range(timed, 5, ROUNDS);
#endif
}

/* In a cycle of about as many bytes as lie between two timed copies: each of it has other readers. */
static void all_copies_of_a_cycle_are_timed_at_times(void **state)
{
    (void)state;
    enum { BYTES = 43 * 1024, CYCLE = 6, ROUNDS = 100 };
    static uint8_t from[BYTES], to[BYTES];
    ddl_outlet outlet = { .streams = false };
    int timed[CYCLE] = { 0 };
    for (int i = 0; i < CYCLE * ROUNDS; i++) {
        const uint32_t before = outlet.chance;
        outlet.streams = false;
        outlet.ordinary_ps = 0;
        ddl_outlet_copy(&outlet, to, from, BYTES);
        timed[i % CYCLE] += outlet.chance != before;
    }
#ifdef __x86_64__
    for (int i = 0; __builtin_cpu_is("amd") && i < CYCLE; i++)
        assert_in_range(timed[i], ROUNDS / 20, ROUNDS / 2);
#endif
}

static void stores_that_stay_dear_go_past_the_caches(void **state)
{
    (void)state;
    ddl_outlet outlet = { .streams = false };
    const ddl_outlet_limits limits = ddl_outlet_find_limits();
    const int near = limits.cheap_ps * 4 / 5, between = (limits.cheap_ps + limits.dear_ps) / 2,
              far = limits.dear_ps * 17 / 10;
    /* The cores share a cache, and now and then another process has the CPU. */
    for (int i = 0; i < 200; i++) {
        ddl_outlet_time(&outlet, i % 20 == 10 ? 1000000 : i < 100 ? near * i / 100 : near);
        assert_false(outlet.streams);
    }
    for (int i = 0; i < 100; i++) {
        ddl_outlet_time(&outlet, i < 50 ? between : near); /* which is enough to go on, but not to begin */
        assert_false(outlet.streams);
    }
    int dear = 0;
    for (; !outlet.streams && dear < 100; dear++)
        ddl_outlet_time(&outlet, far);
    assert_in_range(dear, 2, 6);
    for (int i = 0; i < 100; i++) {
        ddl_outlet_time(&outlet, far + i);
        assert_true(outlet.streams);
    }
    for (int i = 0; i < 100; i++) {
        ddl_outlet_time(&outlet, between);
        assert_true(outlet.streams);
    }
    int quick = 0;
    for (; outlet.streams && quick < 100; quick++)
        ddl_outlet_time(&outlet, near);
    assert_in_range(quick, 2, 10);
}

static void sizes_that_overflow_are_refused_and_leave_the_result_alone(void **state)
{
    (void)state;
    size_t result = 7;
    assert_true(ddl_size_mul(SIZE_MAX / 2, 2, &result));
    assert_true(result == SIZE_MAX - 1);
    assert_false(ddl_size_mul(SIZE_MAX / 2 + 1, 2, &result));
    assert_true(result == SIZE_MAX - 1);
    assert_true(ddl_size_mul(0, SIZE_MAX, &result));
    assert_true(result == 0);
    assert_true(ddl_size_add(SIZE_MAX - 1, 1, &result));
    assert_true(result == SIZE_MAX);
    assert_false(ddl_size_add(SIZE_MAX, 1, &result));
    assert_true(result == SIZE_MAX);
}

typedef struct item {
    int value;
    ddl_link link;
} item;

static void list_keeps_order_and_its_body_may_remove(void **state)
{
    (void)state;
    ddl_list list;
    ddl_list_init(&list);
    assert_null(ddl_list_take_first(&list));
    item items[4] = { { .value = 0 }, { .value = 1 }, { .value = 2 }, { .value = 3 } };
    for (int i = 0; i < 4; i++)
        ddl_list_append(&list, &items[i].link);
    DDL_LIST_FOR_EACH (link, &list)
        if (DDL_CONTAINER(link, item, link)->value % 2 == 1)
            ddl_list_remove(link);
    assert_false(ddl_link_linked(&items[1].link));
    assert_true(ddl_link_linked(&items[2].link));
    assert_ptr_equal(ddl_list_take_first(&list), &items[0].link);
    assert_ptr_equal(ddl_list_take_first(&list), &items[2].link);
    assert_true(ddl_list_empty(&list));
}

static void bytes_grow_and_keep_what_they_held(void **state)
{
    (void)state;
    ddl_bytes bytes = { 0 };
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t value = (uint8_t)i;
        assert_true(ddl_bytes_append(&bytes, &value, 1));
    }
    assert_int_equal(bytes.bytes, 1000);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(bytes.data[i], (uint8_t)i);
    assert_true(ddl_bytes_append(&bytes, NULL, 0));
    assert_false(ddl_bytes_append(&bytes, bytes.data, SIZE_MAX));
    assert_int_equal(bytes.bytes, 1000);
    ddl_bytes_fini(&bytes);
    assert_null(bytes.data);
}

static void fields_are_little_endian_at_any_alignment(void **state)
{
    (void)state;
    uint8_t bytes[16] = { 0 };
    ddl_put_u64(bytes + 1, UINT64_C(0x1122334455667788));
    static const uint8_t expected[] = { 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0 };
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_true(ddl_get_u64(bytes + 1) == UINT64_C(0x1122334455667788));
    assert_int_equal(ddl_get_u32(bytes + 1), 0x55667788);
    assert_int_equal(ddl_get_u16(bytes + 1), 0x7788);
}

static void array_whose_size_overflows_is_not_allocated(void **state)
{
    (void)state;
    assert_null(ddl_alloc_array(SIZE_MAX / 4, 8));
    char *memory = ddl_alloc(64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(memory[i], 0);
    ddl_free(memory);
}

static void error_keeps_code_errno_and_text(void **state)
{
    (void)state;
    ddl_error error;
    assert_int_equal(DDL_FAIL(&error, DDL_EPROTO, "rank %d is odd", 3), DDL_EPROTO);
    assert_int_equal(error.code, DDL_EPROTO);
    assert_int_equal(error.rank, -1);
    assert_int_equal(error.culprit, -1);
    assert_string_equal(error.text, "rank 3 is odd");
    assert_int_equal(ddl_error_blame(&error, 3), DDL_EPROTO);
    assert_int_equal(error.culprit, 3);
    assert_int_equal(DDL_FAIL_OS(&error, DDL_ENETWORK, ECONNREFUSED, "cannot connect"), DDL_ENETWORK);
    assert_int_equal(error.os_errno, ECONNREFUSED);
    assert_string_equal(error.text, "cannot connect: Connection refused");
    assert_int_equal(DDL_FAIL(NULL, DDL_ENOMEM, "nobody listens"), DDL_ENOMEM);
}

static void error_text_is_one_line(void **state)
{
    (void)state;
    ddl_error error;
    DDL_FAIL(&error, DDL_ECONFIG, "NAME=%s: odd", "a\nb\r\x1b[31m\x7f\xc3\xa4");
    assert_string_equal(error.text, "NAME=a b??[31m?\xc3\xa4: odd");
    DDL_FAIL_OS(&error, DDL_ENETWORK, ECONNREFUSED, "cannot connect to %s", "a\tb");
    assert_string_equal(error.text, "cannot connect to a?b: Connection refused");
}

static void error_text_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    ddl_error error;
    DDL_FAIL_OS(&error, DDL_ENETWORK, EPERM, "%s", text);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_non_null(strstr(error.text, "x: Operation not permitted")); /* which is not cut */
    text[sizeof error.text - 10] = '\0';
    DDL_FAIL_OS(&error, DDL_ENETWORK, EPERM, "%s", text);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_non_null(strstr(error.text, "x: Operation not permitted"));
}

static void every_status_has_a_name_and_a_meaning(void **state)
{
    (void)state;
    assert_string_equal(ddl_status_name(DDL_EPEERLOST), "DDL_EPEERLOST");
    for (int code = DDL_EINTERNAL; code <= DDL_OK; code++) {
        assert_memory_equal(ddl_status_name((ddl_status)code), "DDL_", 4);
        assert_string_not_equal(ddl_status_name((ddl_status)code), "DDL_UNKNOWN");
        assert_true(strlen(ddl_status_text((ddl_status)code)) > 5);
    }
    assert_string_equal(ddl_status_name((ddl_status)1), "DDL_UNKNOWN");
}

static void types_and_operators_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < DDL_DTYPE_COUNT; i++) {
        assert_string_not_equal(ddl_dtype_name((ddl_dtype)i), "?");
        assert_true(ddl_dtype_bytes((ddl_dtype)i) > 0);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(ddl_dtype_name((ddl_dtype)i), ddl_dtype_name((ddl_dtype)k));
    }
    for (int i = 0; i < DDL_OP_COUNT; i++) {
        assert_string_not_equal(ddl_op_name((ddl_op)i), "?");
        for (int k = 0; k < i; k++)
            assert_string_not_equal(ddl_op_name((ddl_op)i), ddl_op_name((ddl_op)k));
    }
    assert_int_equal(ddl_dtype_bytes((ddl_dtype)99), 0);
    assert_int_equal(ddl_dtype_bytes((ddl_dtype)-1), 0);
    assert_string_equal(ddl_dtype_name((ddl_dtype)99), "?");
    assert_true(ddl_op_takes(DDL_BXOR, DDL_INT8));
    assert_false(ddl_op_takes(DDL_BXOR, DDL_BFLOAT16));
    assert_true(ddl_op_takes(DDL_AVG, DDL_BFLOAT16));
    assert_false(ddl_op_takes((ddl_op)42, DDL_INT8));
}

/* A number of /proc/cpuinfo; of "AMD" whether it is one. */
static int told_by_system(const char *name)
{
    int value = -1;
    char line[256], format[64];
    FILE *file = fopen("/proc/cpuinfo", "r");
    assert_non_null(file);
    snprintf(format, sizeof format, "%s : %%d", name);
    while (value == -1 && fgets(line, sizeof line, file) != NULL)
        if (strcmp(name, "AMD") != 0)
            (void)sscanf(line, format, &value);
        else if (strncmp(line, "vendor_id", strlen("vendor_id")) == 0)
            value = strstr(line, "AuthenticAMD") != NULL;
    fclose(file);
    assert_int_not_equal(value, -1);
    return value;
}

static void processors_are_those_that_the_system_tells(void **state)
{
    (void)state;
#if !defined(__linux__) || !defined(__x86_64__)
    (void)told_by_system;
    skip();
#endif
    const bool is_amd = told_by_system("AMD") == 1, is_amd_25 = is_amd && told_by_system("cpu family") == 25;
    const bool is_epyc_3 = is_amd_25 && told_by_system("model") < 16;
    assert_int_equal(ddl_processor_is_amd_25(), is_amd_25);
    assert_int_equal(ddl_processor_is_epyc_3(), is_epyc_3);
    assert_false(ddl_processor_is_intel_server() && is_amd);
    const size_t mib = 1024 * 1024, elsewhere = ddl_processor_is_intel_server() ? 4 : 32;
    const size_t stays = (size_t)(sysconf(_SC_NPROCESSORS_ONLN) + 7) / 8 * 20;
    assert_int_equal(ddl_copy_cached_bytes(false), (is_epyc_3 && stays < 32 ? stays : elsewhere) * mib);
    assert_int_equal(ddl_copy_cached_bytes(true), (is_epyc_3 && stays < 128 ? stays : 128) * mib);
}

static void words_are_near_that_differ_in_few_letters(void **state)
{
    static const struct {
        const char *one, *other;
        int distance;
    } pairs[] = {
        { "", "", 0 },
        { "", "RANK", 4 },
        { "RANK", "", 4 },
        { "RANK", "rank", 0 },
        { "RANK", "RNAK", 2 },
        { "STREAM", "STREAMS", 1 },
        { "IFACES", "IFACE", 1 },
        { "kitten", "sitting", 3 },
        { "flaw", "lawn", 2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(ddl_spelling_distance(pairs[i].one, pairs[i].other), pairs[i].distance);
        assert_int_equal(ddl_spelling_distance(pairs[i].other, pairs[i].one), pairs[i].distance);
    }
    char longest[DDL_SPELLING_BYTES + 1];
    memset(longest, 'A', sizeof longest);
    longest[DDL_SPELLING_BYTES - 1] = '\0';
    assert_int_equal(ddl_spelling_distance(longest, "A"), DDL_SPELLING_BYTES - 2);
    longest[DDL_SPELLING_BYTES - 1] = 'A';
    longest[DDL_SPELLING_BYTES] = '\0';
    assert_int_equal(ddl_spelling_distance(longest, "A"), INT_MAX);
    assert_int_equal(ddl_spelling_distance("A", longest), INT_MAX);
    assert_true(ddl_spelling_is_near(1, 3));
    assert_false(ddl_spelling_is_near(1, 2));
    assert_true(ddl_spelling_is_near(2, 5));
    assert_false(ddl_spelling_is_near(2, 4));
    assert_false(ddl_spelling_is_near(3, 40));
    assert_false(ddl_spelling_is_near(INT_MAX, 40));
}

static void deadlines_saturate_and_pass(void **state)
{
    (void)state;
    assert_true(ddl_deadline_in_ms(INT64_MAX) == DDL_DEADLINE_NEVER);
    assert_false(ddl_deadline_passed(DDL_DEADLINE_NEVER));
    assert_int_equal(ddl_deadline_left_ms(DDL_DEADLINE_NEVER), INT_MAX);
    assert_true(ddl_deadline_passed(ddl_now_ns()));
    assert_int_equal(ddl_deadline_left_ms(0), 0);
    int left_ms = ddl_deadline_left_ms(ddl_deadline_in_ms(10000));
    assert_in_range(left_ms, 5000, 10000);
}

static char logged[256];

static void keep_line(void *arg, const char *line)
{
    ++*(int *)arg;
    strncpy(logged, line, sizeof logged - 1);
}

static void log_lines_go_to_the_sink_and_stop_at_the_level(void **state)
{
    (void)state;
    int lines = 0;
    ddl_set_log(keep_line, &lines);
    ddl_log(DDL_LOG_WARNING, "rank %d is late", 2);
    assert_int_equal(lines, 1);
    assert_string_equal(logged, "ddl: rank 2 is late");
    ddl_log(DDL_LOG_DEBUG, "not at this level");
    assert_int_equal(lines, 1);
    ddl_log_set_level(DDL_LOG_TRACE);
    ddl_log(DDL_LOG_DEBUG, "now");
    assert_int_equal(lines, 2);
    ddl_log_set_level(DDL_LOG_INFO);
    ddl_set_log(NULL, NULL);
    assert_int_equal(ddl_log_parse_level("debug"), DDL_LOG_DEBUG);
    assert_int_equal(ddl_log_parse_level("loud"), -1);
}

/* A child whose stderr is this pipe logs a line; how it ended. */
static int log_in_a_child(const int ends[2])
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int64_t begin_ns = ddl_now_ns();
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        if (ends[0] >= 0)
            close(ends[0]);
        ddl_log(DDL_LOG_ERROR, "for nobody");
        _exit(ddl_now_ns() - begin_ns < 2 * DDL_NS_PER_S ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void nobody_who_reads_the_log_is_no_harm(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    ends[0] = -1;
    assert_int_equal(log_in_a_child(ends), 0); /* not by SIGPIPE, which is as it was */
    close(ends[1]);
}

static void who_does_not_read_the_log_is_not_waited_for(void **state)
{
    (void)state;
    int ends[2];
    static const char block[4096];
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], block, sizeof block) > 0)
        continue;
    fcntl(ends[1], F_SETFL, 0);
    assert_int_equal(log_in_a_child(ends), 0);
    close(ends[0]);
    close(ends[1]);
}

typedef struct stuck_sink {
    atomic_bool entered, leave;
    atomic_int lines;
} stuck_sink;

static void get_stuck(void *arg, const char *line)
{
    stuck_sink *sink = arg;
    (void)line;
    atomic_store(&sink->entered, true);
    while (!atomic_load(&sink->leave))
        sched_yield();
    atomic_fetch_add(&sink->lines, 1);
}

static int64_t ms_to_log(const char *line)
{
    const int64_t begin_ns = ddl_now_ns();
    ddl_log(DDL_LOG_ERROR, "%s", line);
    return (ddl_now_ns() - begin_ns) / DDL_NS_PER_MS;
}

/* Who logs waits for half a second, but for one such only, and other lines come once it goes on. */
static void a_sink_that_hangs_holds_nobody_up(void **state)
{
    (void)state;
    stuck_sink sink = { false, false, 0 };
    ddl_set_log(get_stuck, &sink);
    assert_in_range(ms_to_log("a line"), 400, 3000);
    assert_true(atomic_load(&sink.entered));
    int64_t ms = 0;
    for (int i = 0; i < 100; i++)
        ms += ms_to_log("another");
    assert_true(ms < 300);
    atomic_store(&sink.leave, true);
    assert_true(ms_to_log("the last") < 3000);
    while (atomic_load(&sink.lines) < 16)
        sched_yield();
    ddl_set_log(NULL, NULL);
    assert_in_range(atomic_load(&sink.lines), 16, 17); /* those that had room, and the last if it had, too */
}

static void take_a_moment(void *arg, const char *line)
{
    (void)line;
    ddl_pause_us(5 * 1000);
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void *log_all_the_time(void *stop)
{
    while (!atomic_load((atomic_bool *)stop))
        ddl_log(DDL_LOG_ERROR, "and so on");
    return NULL;
}

static void a_sink_can_be_changed_at_any_time(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    atomic_bool stop = false;
    atomic_int first = 0, second = 0;
    ddl_set_log(take_a_moment, &first);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_all_the_time, &stop), 0);
    while (atomic_load(&first) < 5)
        sched_yield();
    const int64_t begin_ns = ddl_now_ns();
    ddl_set_log(take_a_moment, &second);
    assert_true(ddl_now_ns() - begin_ns < 400 * DDL_NS_PER_MS);
    const int told = atomic_load(&first);
    while (atomic_load(&second) < 5)
        sched_yield();
    assert_int_equal(atomic_load(&first), told);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ddl_set_log(NULL, NULL);
}

static void without_a_thread_lines_are_told_all_the_same(void **state)
{
    (void)state;
#ifdef DDL_FAILPOINTS
    int lines = 0;
    ddl_failpoint_arm("base.crier");
    ddl_set_log(keep_line, &lines);
    for (int i = 0; i < 100; i++) {
        assert_true(ms_to_log("here") < 400);
        assert_int_equal(lines, i + 1);
    }
    ddl_set_log(NULL, NULL);
    ddl_failpoint_arm(NULL);
#else
    skip();
#endif
}

static void a_forked_child_has_a_sink_of_its_own(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) /* which ends children that start threads */
    skip();
#endif
    int lines = 0, status = -1;
    ddl_set_log(keep_line, &lines);
    ddl_log(DDL_LOG_ERROR, "before");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ddl_log(DDL_LOG_ERROR, "in the child");
        _exit(lines == 2 && strcmp(logged, "ddl: in the child") == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ddl_set_log(NULL, NULL);
    assert_int_equal(lines, 1);
}

typedef struct thing {
    int value;
    ddl_hashed in_table;
} thing;

static int position(const ddl_table *table, const thing *wanted)
{
    int at = 0;
    DDL_LIST_FOR_EACH (link, ddl_table_row(table, wanted->in_table.hash)) {
        if (DDL_CONTAINER(link, thing, in_table.link) == wanted)
            return at;
        at++;
    }
    return -1;
}

/* Many of few hashes, and many hashes: all are there, those of one hash in order, and rows are short. */
static void a_table_has_rows_for_all_that_is_in_it(void **state)
{
    enum { THINGS = 5000, ALIKE = 5 };
    static thing things[THINGS];
    (void)state;
    memset(things, 0, sizeof things);
    ddl_table table;
    assert_true(ddl_table_init(&table, 4));
    for (int i = 0; i < THINGS; i++) {
        things[i].value = i;
        ddl_table_add(&table, &things[i].in_table, (uint64_t)(i / ALIKE));
    }
    assert_int_equal(table.nobjects, THINGS);
    for (int i = 0; i < THINGS; i++) {
        const int at = position(&table, &things[i]);
        assert_in_range(at, 0, 3 * ALIKE);
        assert_true(i % ALIKE == 0 || at > position(&table, &things[i - 1]));
    }
    for (int i = 0; i < THINGS; i += 2)
        ddl_table_remove(&table, &things[i].in_table);
    for (int i = 0; i < THINGS; i++)
        assert_true(i % 2 == 0 ? !ddl_link_linked(&things[i].in_table.link)
                               : position(&table, &things[i]) >= 0);
    assert_int_equal(table.nobjects, THINGS / 2);
#ifdef DDL_FAILPOINTS
    const size_t nrows = table.nrows;
    ddl_failpoint_arm("base.alloc");
    ddl_table_grow(&table);
    ddl_failpoint_arm(NULL);
    assert_int_equal(table.nrows, nrows);
    assert_true(position(&table, &things[1]) >= 0);
#endif
    ddl_table_fini(&table);
}

static void failpoint_fails_the_hit_that_was_asked_for(void **state)
{
    (void)state;
#ifdef DDL_FAILPOINTS
    ddl_failpoint_arm("test.site:2");
    assert_false(DDL_FAILPOINT("test.site"));
    assert_false(DDL_FAILPOINT("test.other"));
    errno = 0;
    assert_true(DDL_FAILPOINT_OS("test.site", EMFILE));
    assert_int_equal(errno, EMFILE);
    assert_false(DDL_FAILPOINT("test.site"));
    assert_int_equal(ddl_failpoint_hits(), 4);
    ddl_failpoint_arm("test.site");
    assert_true(DDL_FAILPOINT("test.site"));
    assert_true(DDL_FAILPOINT("test.site"));
    ddl_failpoint_arm("*:3");
    assert_false(DDL_FAILPOINT("a"));
    assert_false(DDL_FAILPOINT("b"));
    assert_true(DDL_FAILPOINT("c"));
    ddl_failpoint_arm(NULL);
    assert_false(DDL_FAILPOINT("a"));
#else
    assert_false(DDL_FAILPOINT("test.site"));
    skip();
#endif
}

static void times_are_read_whatever_the_unit_and_the_locale(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1: it is none */
    } times[] = {
        { "300", 300000 },  { "0.5", 500 },
        { ".25", 250 },     { "1.", 1000 },
        { "500ms", 500 },   { "30s", 30000 },
        { "5min", 300000 }, { "2h", 7200000 },
        { "0.29s", 290 },   { "0", 0 },
        { "0.0004", 0 },    { "876600h", 3155760000000 },
        { "876601h", -1 },  { "", -1 },
        { ".", -1 },        { "s", -1 },
        { "-5s", -1 },      { "+5", -1 },
        { "1.2.3", -1 },    { "0,5", -1 },
        { "1e3", -1 },      { "0x10", -1 },
        { "5 s", -1 },      { " 5", -1 },
        { "5S", -1 },       { "5 lightyears", -1 },
        { "inf", -1 },      { "nan", -1 },
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        int64_t ms = -1;
        const bool is_time = ddl_duration_parse(times[i].text, &ms);
        if (is_time != (times[i].ms >= 0) || ms != times[i].ms)
            fail_msg("'%s' is %lld ms", times[i].text, (long long)ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_overflow_are_refused_and_leave_the_result_alone),
        cmocka_unit_test(list_keeps_order_and_its_body_may_remove),
        cmocka_unit_test(bytes_grow_and_keep_what_they_held),
        cmocka_unit_test(fields_are_little_endian_at_any_alignment),
        cmocka_unit_test(array_whose_size_overflows_is_not_allocated),
        cmocka_unit_test(error_keeps_code_errno_and_text),
        cmocka_unit_test(error_text_is_one_line),
        cmocka_unit_test(error_text_that_is_too_long_is_cut),
        cmocka_unit_test(every_status_has_a_name_and_a_meaning),
        cmocka_unit_test(types_and_operators_have_names),
        cmocka_unit_test(copies_are_exact_past_the_caches_too),
        cmocka_unit_test(long_copies_are_exact_wherever_they_lie),
        cmocka_unit_test(copies_for_other_cores_are_exact),
        cmocka_unit_test(all_copies_of_a_cycle_are_timed_at_times),
        cmocka_unit_test(stores_that_stay_dear_go_past_the_caches),
        cmocka_unit_test(processors_are_those_that_the_system_tells),
        cmocka_unit_test(words_are_near_that_differ_in_few_letters),
        cmocka_unit_test(times_are_read_whatever_the_unit_and_the_locale),
        cmocka_unit_test(deadlines_saturate_and_pass),
        cmocka_unit_test(log_lines_go_to_the_sink_and_stop_at_the_level),
        cmocka_unit_test(nobody_who_reads_the_log_is_no_harm),
        cmocka_unit_test(who_does_not_read_the_log_is_not_waited_for),
        cmocka_unit_test(a_sink_that_hangs_holds_nobody_up),
        cmocka_unit_test(a_sink_can_be_changed_at_any_time),
        cmocka_unit_test(without_a_thread_lines_are_told_all_the_same),
        cmocka_unit_test(a_forked_child_has_a_sink_of_its_own),
        cmocka_unit_test(a_table_has_rows_for_all_that_is_in_it),
        cmocka_unit_test(failpoint_fails_the_hit_that_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
