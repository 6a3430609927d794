/* test_mismatch.c - what is said of calls that differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/comm.h"
#include "api/failure_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 300, SEQUENCE = 7 };

/* How many ranks the text speaks of: with each count, in order, or as "N more". */
static int ranks_spoken_of(const char *text, const size_t counts[])
{
    static const char begins[] = "; the counts of this rank are ";
    const char *at = strstr(text, begins);
    int nranks = 0, more = 0;
    assert_non_null(at);
    for (at += strlen(begins); sscanf(at, "and %d more", &more) != 1; at += 2) {
        char *end;
        assert_int_equal(strtoull(at, &end, 10), counts[nranks]);
        nranks++;
        if (*end == '\0')
            return nranks;
        assert_memory_equal(end, ", ", 2);
        at = end;
    }
    return nranks + more;
}

static void of_own_counts_those_that_do_not_fit_are_counted(void **state)
{
    static size_t counts[MOST_RANKS];
    ddl_comm *comm = calloc(1, sizeof *comm);
    ddl_request *request = calloc(1, sizeof *request);
    (void)state;
    assert_non_null(comm);
    assert_non_null(request);
    for (size_t rank = 0; rank < MOST_RANKS; rank++)
        counts[rank] = rank * rank;
    ddl_list_init(&comm->in_flight);
    ddl_list_append(&comm->in_flight, &request->link);
    request->task.channel = ddl_channel_of(1, DDL_CHANNEL_COLLECTIVE);
    request->task.sequence = SEQUENCE;
    request->task.shape.blocks.counts = counts;
    for (comm->nranks = 1; comm->nranks <= MOST_RANKS; comm->nranks++) {
        ddl_notice cause = { .sequence = SEQUENCE,
                             .text = "counts #0123456789abcdef here, counts #fedcba9876543210 there" };
        ddl_failure_add_own_counts(comm, &cause);
        assert_int_equal(ranks_spoken_of(cause.text, counts), comm->nranks);
    }
    free(request);
    free(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_own_counts_those_that_do_not_fit_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
