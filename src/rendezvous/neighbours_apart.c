/* neighbours_apart.c - collects ranks, and names them as a line about missing ranks does. */
#include "rendezvous/neighbours_apart.h"

#include "base/log.h"
#include "rendezvous/progress.h"

#include <string.h>

static void keep_first(ddl_apart *apart, const ddl_error *why)
{
    if (!apart->some && !apart->all)
        apart->why = *why;
}

void ddl_apart_add(ddl_apart *apart, int rank, const ddl_error *why)
{
    keep_first(apart, why);
    apart->some = true;
    apart->ranks[rank] = true;
}

void ddl_apart_add_all(ddl_apart *apart, const ddl_error *why)
{
    keep_first(apart, why);
    apart->all = true;
}

void ddl_apart_warn(const ddl_apart *apart)
{
    char ranks[200] = "";
    if (apart->all) {
        ddl_log(DDL_LOG_WARNING, "no shared memory, TCP instead: %s", apart->why.text);
    } else if (apart->some) {
        ddl_progress_ranks(apart->ranks, apart->nranks, true, ranks, sizeof ranks);
        ddl_log(DDL_LOG_WARNING, "no shared memory with rank%s %s, TCP instead: %s",
                strpbrk(ranks, ",-") != NULL ? "s" : "", ranks, apart->why.text);
    }
}
