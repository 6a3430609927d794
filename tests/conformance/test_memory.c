/* test_memory.c - ddl_mem_alloc as programs see it: alone, among ranks, in failures and in children. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1 << 18, PAGE = 4096 };

static bool sums(ddl_comm *world, float *from, float *to)
{
    int nranks = ddl_size(world);
    for (size_t i = 0; i < COUNT; i++)
        from[i] = (float)(ddl_rank(world) + (int)(i % 100));
    if (ddl_allreduce(from, to, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL) != DDL_OK)
        return false;
    for (size_t i = 0; i < COUNT; i++)
        if (to[i] != (float)(nranks * (nranks - 1) / 2 + nranks * (int)(i % 100)))
            return false;
    return true;
}

static void use_memory(rank_thread *me)
{
    void *from = NULL, *to = NULL, *nothing = &from;
    EXPECT(me, ddl_mem_alloc(me->world, COUNT * sizeof(float) + PAGE, &from) == DDL_OK);
    EXPECT(me, ddl_mem_alloc(me->world, COUNT * sizeof(float), &to) == DDL_OK);
    EXPECT(me, ddl_mem_alloc(me->world, 0, &nothing) == DDL_OK && nothing == NULL);
    if (me->complained)
        return;
    EXPECT(me, (uintptr_t)from % PAGE == 0 && (uintptr_t)to % PAGE == 0);
    for (size_t i = 0; i < COUNT * sizeof(float); i++)
        if (((const char *)from)[i] != 0)
            ranks_complain(me, "byte %zu of fresh memory is not zero", i);
    EXPECT(me, sums(me->world, from, to));
    EXPECT(me, sums(me->world, from, from));
    EXPECT(me, sums(me->world, (float *)from + 3, to)); /* part of it, not at a page */
    ddl_comm *part = NULL; /* a part uses the memory of its world, which takes it back by either */
    EXPECT(me, ddl_comm_split(me->world, me->rank % 2, 0, &part) == DDL_OK);
    EXPECT(me, sums(part, to, from));
    EXPECT(me, ddl_mem_free(part, from) == DDL_OK);
    EXPECT(me, ddl_mem_free(me->world, from) == DDL_EINVAL);
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
    EXPECT(me, ddl_mem_free(me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_barrier(me->world, NULL) == DDL_OK);
    /* `to` goes with the world. */
}

static void any_call_takes_it(void **state)
{
    (void)state;
    ranks_play("mem://memory-1", 1, use_memory, NULL);
    ranks_play("mem://memory-2", 2, use_memory, NULL);
    ranks_play("mem://memory-5", 5, use_memory, NULL);
}

static void over_tcp_it_is_ordinary(void **state)
{
    (void)state;
    setenv("DDL_TRANSPORT", "tcp", 1);
    ranks_play("mem://memory-tcp", 3, use_memory, NULL);
    unsetenv("DDL_TRANSPORT");
}

static void one_rank_uses_it(rank_thread *me)
{
    void *memory = malloc(COUNT * sizeof(float));
    if (me->rank == 1) {
        free(memory);
        EXPECT(me, ddl_mem_alloc(me->world, COUNT * sizeof(float), &memory) == DDL_OK);
    }
    EXPECT(me, sums(me->world, memory, memory));
    if (me->rank != 1)
        free(memory);
}

static void each_rank_may_have_its_buffers_elsewhere(void **state)
{
    (void)state;
    ranks_play("mem://memory-mixed", 3, one_rank_uses_it, NULL);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    ddl_comm *world = NULL;
    ddl_options options = DDL_OPTIONS_INIT;
    void *memory = &options;
    assert_int_equal(ddl_init(&world, &options), DDL_OK);
    assert_int_equal(ddl_mem_alloc(NULL, 1, &memory), DDL_EINVAL);
    assert_int_equal(ddl_mem_alloc(world, 1, NULL), DDL_EINVAL);
    assert_string_equal(ddl_last_error()->operation, "mem_alloc");
    assert_int_equal(ddl_mem_alloc(world, SIZE_MAX, &memory), DDL_ENOMEM);
    assert_int_equal(ddl_mem_alloc(world, SIZE_MAX / 2 + 2, &memory), DDL_ENOMEM);
    assert_ptr_equal(memory, &options);
    assert_int_equal(ddl_mem_free(NULL, NULL), DDL_EINVAL);
    assert_int_equal(ddl_mem_free(world, memory), DDL_EINVAL);
    assert_string_equal(ddl_last_error()->operation, "mem_free");
    assert_int_equal(ddl_mem_alloc(world, 1, &memory), DDL_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(ddl_mem_alloc(world, 1, &memory) == DDL_EUNSUPPORTED &&
                      ddl_mem_free(world, memory) == DDL_EUNSUPPORTED
                  ? 0
                  : 1);
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(ddl_mem_free(world, memory), DDL_OK);
    assert_int_equal(ddl_comm_free(&world), DDL_OK);
}

/* A child of fork has the buffers of its parent: a loader of data, for one. */
static void read_in_a_child(rank_thread *me)
{
    void *memory = NULL;
    EXPECT(me, ddl_mem_alloc(me->world, PAGE, &memory) == DDL_OK);
    if (me->complained)
        return;
    memset(memory, 7, PAGE);
    if (me->rank == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(((const char *)memory)[PAGE - 1] == 7 ? 0 : 1);
        int result = -1;
        EXPECT(me, waitpid(child, &result, 0) == child && result == 0);
    }
    EXPECT(me, ddl_barrier(me->world, NULL) == DDL_OK);
}

static void children_have_it(void **state)
{
    (void)state;
    ranks_play("mem://memory-fork", 2, read_in_a_child, NULL);
}

static void call_differently(rank_thread *me)
{
    ddl_comm *part = NULL;
    void *memory = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    EXPECT(me, ddl_mem_alloc(me->world, COUNT * sizeof(float), &memory) == DDL_OK);
    if (me->complained)
        return;
    EXPECT(me, ddl_allreduce(memory, memory, COUNT - (size_t)me->rank * 1000, DDL_FLOAT32, DDL_SUM, part,
                             NULL) == DDL_EMISMATCH);
    EXPECT(me, sums(me->world, memory, memory)); /* which is none the worse for it */
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
    EXPECT(me, ddl_mem_free(me->world, memory) == DDL_OK);
}

static void calls_that_differ_break_one_communicator(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        ranks_play("mem://memory-differ", 2, call_differently, NULL);
    ranks_play("mem://memory-differ-3", 3, call_differently, NULL);
}

/* Whether others may have these pages, which they have from the start. */
static bool is_shared(const void *memory)
{
    char line[512];
    bool shared = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        char how[8];
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, how) == 3 && (uintptr_t)memory >= begin &&
            (uintptr_t)memory < end)
            shared = how[3] == 's';
    }
    if (maps != NULL)
        fclose(maps);
    return shared;
}

/* As far as they are many for their CPUs. */
static bool is_at_a_board(const rank_thread *me)
{
    const bool is_one_host = getenv("DDL_TEST_HOSTS") == NULL; /* on_hosts.py */
    return is_one_host && ddl_size(me->world) > sysconf(_SC_NPROCESSORS_ONLN);
}

static void give_up(rank_thread *me)
{
    enum { LARGE = 1 << 24 };
    void *memory = NULL;
    EXPECT(me, ddl_mem_alloc(me->world, LARGE, &memory) == DDL_OK);
    EXPECT(me, ddl_comm_set_timeout(me->world, 200) == DDL_OK);
    if (me->complained)
        return;
    memset(memory, me->rank, LARGE);
    const bool goes_by_board = is_at_a_board(me) && is_shared(memory);
    if (me->rank == 0) {
        EXPECT(me,
               ddl_allreduce(memory, memory, LARGE, DDL_UINT8, DDL_SUM, me->world, NULL) == DDL_ETIMEDOUT);
        /* The others were told where it is, and come when nobody is there any more. */
        EXPECT(me, !goes_by_board || !is_shared(memory));
    }
    ranks_meet(me);
    if (me->rank > 0)
        EXPECT(me, ddl_allreduce(memory, memory, LARGE, DDL_UINT8, DDL_SUM, me->world, NULL) != DDL_OK);
    EXPECT(me, ddl_mem_free(me->world, memory) == DDL_OK);
    EXPECT(me, ddl_mem_alloc(me->world, LARGE, &memory) == DDL_OK);
    for (size_t i = 0; i < LARGE; i++)
        if (((const char *)memory)[i] != 0) {
            ranks_complain(me, "byte %zu of fresh memory is not zero", i);
            return;
        }
}

static void a_failed_communicator_still_serves(void **state)
{
    (void)state;
    ranks_play("mem://memory-late", 2, give_up, NULL);
    ranks_play("mem://memory-late-4", 4, give_up, NULL);
}

/* The same call again, of other buffers, which is given up: it is of these that places were told. */
static void give_up_in_a_page(rank_thread *me, size_t into_page)
{
    enum { LARGE = 1 << 20 };
    char *first = NULL, *second = NULL;
    ddl_comm *part = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    EXPECT(me, ddl_mem_alloc(me->world, LARGE, (void **)&first) == DDL_OK);
    EXPECT(me, ddl_mem_alloc(me->world, LARGE + PAGE, (void **)&second) == DDL_OK);
    if (me->complained)
        return;
    for (int i = 0; i < 2; i++)
        EXPECT(me, ddl_allreduce(first, first, LARGE, DDL_UINT8, DDL_SUM, part, NULL) == DDL_OK);
    EXPECT(me, ddl_comm_set_timeout(part, 100) == DDL_OK);
    const bool was_shared = is_shared(second);
    char *from = second + into_page;
    if (me->rank > 0)
        EXPECT(me, ddl_allreduce(from, from, LARGE, DDL_UINT8, DDL_SUM, part, NULL) == DDL_ETIMEDOUT);
    const bool was_told = me->rank > 0 && into_page == 0;
    EXPECT(me, !is_at_a_board(me) || is_shared(second) == (was_shared && !was_told));
    ranks_meet(me);
    EXPECT(me, ddl_comm_free(&part) != DDL_EINVAL);
}

static void give_up_whole_pages(rank_thread *me)
{
    give_up_in_a_page(me, 0);
}

static void give_up_behind_something_else(rank_thread *me)
{
    give_up_in_a_page(me, 64);
}

static void no_page_with_something_else_is_given_up(void **state)
{
    (void)state;
    ranks_play("mem://memory-page", 4, give_up_whole_pages, NULL);
    ranks_play("mem://memory-beside", 4, give_up_behind_something_else, NULL);
}

/* Who is done has the result, whatever others do by then; and what a rank has in its buffers once it has
 * given up stays there. Ranks come at most as late as they wait, so some calls succeed, and some in some
 * ranks. */
static void give_up_now_and_then(rank_thread *me)
{
#ifdef __SANITIZE_THREAD__ /* takes ten times as long */
    enum { TRIES = 5, WAIT_MS = 4, LARGE = 1 << 19 };
#else
    enum { TRIES = 12, WAIT_MS = 4, LARGE = 1 << 19 };
#endif
    for (int i = 0; i < TRIES && !me->complained; i++) {
        ddl_comm *part = NULL;
        void *memory = NULL;
        EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
        EXPECT(me, ddl_mem_alloc(me->world, LARGE * sizeof(int32_t), &memory) == DDL_OK);
        if (me->complained)
            return;
        int32_t *numbers = memory;
        for (int k = 0; k < LARGE; k++)
            numbers[k] = k + i;
        EXPECT(me, ddl_comm_set_timeout(part, WAIT_MS) == DDL_OK);
        EXPECT(me, ddl_barrier(me->world, NULL) == DDL_OK);
        usleep((useconds_t)((me->rank * 7 + i * 5) % 9 * WAIT_MS * 1000 / 8));
        const bool is_done = ddl_allreduce(memory, memory, LARGE, DDL_INT32, DDL_SUM, part, NULL) == DDL_OK;
        const int32_t times = is_done ? ddl_size(me->world) : 0;
        for (int k = 0; !is_done && k < LARGE; k++)
            numbers[k] = 0;
        EXPECT(me, ddl_barrier(me->world, NULL) == DDL_OK);
        for (int k = 0; k < LARGE && !me->complained; k++)
            if (numbers[k] != times * (k + i))
                ranks_complain(me, "try %d, %s: %d at %d", i, is_done ? "done" : "given up", (int)numbers[k],
                               k);
        EXPECT(me, ddl_comm_free(&part) != DDL_EINVAL);
        EXPECT(me, ddl_mem_free(me->world, memory) == DDL_OK);
    }
}

static void whoever_gives_up_leaves_the_others_with_nothing_wrong(void **state)
{
    (void)state;
    ranks_play("mem://memory-early-2", 2, give_up_now_and_then, NULL);
    ranks_play("mem://memory-early-4", 4, give_up_now_and_then, NULL);
    ranks_play("mem://memory-early-5", 5, give_up_now_and_then, NULL);
}

/* Where addresses are limited nothing is set aside, and all works as ever. */
static void limits_of_addresses_are_respected(void **state)
{
    (void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    pid_t child = fork();
    if (child == 0) {
        char complaint[1024];
        const rlim_t bytes = (rlim_t)4 << 30;
        setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, bytes });
        ranks_try("mem://memory-limit", 3, use_memory, NULL, complaint);
        if (complaint[0] != '\0')
            fprintf(stderr, "%s\n", complaint);
        _exit(complaint[0] == '\0' ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
#else
    skip();
#endif
}

/* ---- a cgroup of its own ---- */

enum { GROUP_BYTES = 256 << 20, NOT_HERE = 77 };

static bool put(const char *folder, const char *file, long long number)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *out = fopen(path, "w");
    bool written = out != NULL && fprintf(out, "%lld\n", number) > 0;
    return (out == NULL || fclose(out) == 0) && written;
}

/* In version 1 below the one of this process, in version 2 at the root, where processes and groups can be
 * beside each other. False: that is not possible here. */
static bool make_group(char folder[1000])
{
    char line[600];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    const char *file = "memory.max";
    snprintf(folder, 1000, "/sys/fs/cgroup/ddl-test-%d", (int)getpid());
    while (groups != NULL && fgets(line, sizeof line, groups) != NULL) {
        char *at = strstr(line, ":memory:");
        line[strcspn(line, "\n")] = '\0';
        if (at == NULL)
            continue;
        snprintf(folder, 1000, "/sys/fs/cgroup/memory%s/ddl-test-%d", at + strlen(":memory:"), (int)getpid());
        file = "memory.limit_in_bytes";
    }
    if (groups != NULL)
        fclose(groups);
    if (mkdir(folder, 0755) != 0)
        return false;
    if (put(folder, file, GROUP_BYTES))
        return true;
    rmdir(folder);
    return false;
}

static void take_too_much(rank_thread *me)
{
    void *memory = NULL, *some = NULL;
    EXPECT(me, ddl_mem_alloc(me->world, GROUP_BYTES / 8, &some) == DDL_OK);
    if (me->rank != 0)
        return;
    EXPECT(me, ddl_mem_alloc(me->world, 2 * (size_t)GROUP_BYTES, &memory) == DDL_ENOMEM);
    EXPECT(me, strstr(ddl_last_error()->text, "524288 KiB") != NULL);
    EXPECT(me, strstr(ddl_last_error()->text, "/ddl-test-") != NULL);
    EXPECT(me, strstr(ddl_last_error()->text, "allows 262144 KiB") != NULL);
}

static int take_in_group(const char *folder, int nranks)
{
    char complaint[1024] = "";
    if (!put(folder, "cgroup.procs", getpid()))
        return NOT_HERE;
    ranks_try("mem://memory-group", nranks, take_too_much, NULL, complaint);
    if (complaint[0] != '\0')
        fprintf(stderr, "%s\n", complaint);
    return complaint[0] == '\0' ? 0 : 1;
}

/* Touching more would end the process. */
static void what_a_cgroup_does_not_leave_is_refused(void **state)
{
    char folder[1000];
    (void)state;
#ifdef DDL_PORTABLE
    skip(); /* which does not look */
#endif
    if (!make_group(folder))
        skip();
    int results[2] = { -1, -1 };
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(take_in_group(folder, i + 1));
        waitpid(child, &results[i], 0);
    }
    rmdir(folder);
    if (WIFEXITED(results[0]) && WEXITSTATUS(results[0]) == NOT_HERE)
        skip();
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            limits_of_addresses_are_respected), /* first: a child must not have used the library */
        cmocka_unit_test(what_a_cgroup_does_not_leave_is_refused), /* likewise */
        cmocka_unit_test(any_call_takes_it),
        cmocka_unit_test(over_tcp_it_is_ordinary),
        cmocka_unit_test(each_rank_may_have_its_buffers_elsewhere),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(children_have_it),
        cmocka_unit_test(calls_that_differ_break_one_communicator),
        cmocka_unit_test(a_failed_communicator_still_serves),
        cmocka_unit_test(no_page_with_something_else_is_given_up),
        cmocka_unit_test(whoever_gives_up_leaves_the_others_with_nothing_wrong),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
