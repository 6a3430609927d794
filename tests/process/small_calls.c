/*
 * small_calls - a rank that makes so many calls of a few bytes: small_calls allreduce|broadcast COUNT
 *
 * On a communicator that comes after more others than there are boards, each freed before the next one: it
 * has a board only if those were given back. All but rank 0 poll, so that nobody has to wake them, however
 * slow a tool makes rank 0. After so many calls each the function batch_ends is called, for that tool.
 */
#include <ddl/ddl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_BEFORE = 40, BATCH = 250 };

void batch_ends(void);

__attribute__((noinline)) void batch_ends(void)
{
    __asm__ volatile("");
}

static int fail(const char *what)
{
    fprintf(stderr, "small_calls: %s: %s\n", what, ddl_last_error()->text);
    return 1;
}

int main(int argc, char **argv)
{
    ddl_comm *world = NULL, *part = NULL;
    long count = argc == 3 ? atol(argv[2]) : 0;
    if (count <= 0) {
        fputs("small_calls: allreduce|broadcast COUNT\n", stderr);
        return 2;
    }
    bool broadcasts = strcmp(argv[1], "broadcast") == 0;
    if (ddl_init(&world, NULL) != DDL_OK)
        return fail("init");
    for (int i = 0; i <= PARTS_BEFORE; i++)
        if (ddl_comm_free(&part) != DDL_OK || ddl_comm_split(world, 0, 0, &part) != DDL_OK)
            return fail("split and free");
    int rank = ddl_rank(part), last = ddl_size(part) - 1;
    for (long i = 0; i < count; i++) {
        int64_t value = broadcasts && rank != last ? 0 : i;
        ddl_request *request = NULL, **polled = rank == 0 ? NULL : &request;
        ddl_status status = broadcasts ? ddl_broadcast(&value, 1, DDL_INT64, last, part, polled)
                                       : ddl_allreduce(&value, &value, 1, DDL_INT64, DDL_MAX, part, polled);
        for (bool done = polled == NULL; status == DDL_OK && !done;)
            status = ddl_test(polled, &done);
        if (status != DDL_OK)
            return fail(argv[1]);
        if (value != i) {
            fprintf(stderr, "small_calls: call %ld gave %lld\n", i, (long long)value);
            return 1;
        }
        if (i % BATCH == BATCH - 1)
            batch_ends();
    }
    return ddl_comm_free(&world) == DDL_OK ? 0 : fail("free");
}
