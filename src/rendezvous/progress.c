/* progress.c - telling people who is missing. */
#include "rendezvous/progress.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void ddl_progress_start(ddl_progress *progress, ddl_deadline deadline)
{
    progress->start_ns = ddl_now_ns();
    progress->next = progress->start_ns + DDL_PROGRESS_INTERVAL_NS;
    progress->deadline = deadline;
}

void ddl_progress_tell(ddl_progress *progress, const char *what, ...)
{
    char text[768];
    if (progress == NULL || !ddl_deadline_passed(progress->next))
        return;
    progress->next = ddl_now_ns() + DDL_PROGRESS_INTERVAL_NS;
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    const int64_t left_ns = progress->deadline - ddl_now_ns();
    if (progress->deadline == DDL_DEADLINE_NEVER)
        ddl_log(DDL_LOG_INFO, "waiting for %s", text);
    else
        ddl_log(DDL_LOG_INFO, "waiting for %s, %" PRId64 " s left", text,
                left_ns > 0 ? (left_ns - 1) / DDL_NS_PER_S + 1 : 0);
}

void ddl_progress_ranks(const bool in[], int nranks, bool wanted, char *text, size_t text_bytes)
{
    static const char more[] = ", ...";
    size_t used = 0;
    text[0] = '\0';
    for (int first = 0; first < nranks; first++) {
        if (in[first] != wanted)
            continue;
        int last = first;
        while (last + 1 < nranks && in[last + 1] == wanted)
            last++;
        char item[32];
        const char *comma = used > 0 ? ", " : "";
        int bytes = first == last ? snprintf(item, sizeof item, "%s%d", comma, first)
                                  : snprintf(item, sizeof item, "%s%d-%d", comma, first, last);
        if (used + (size_t)bytes + sizeof more > text_bytes) {
            snprintf(text + used, text_bytes - used, "%s", more);
            return;
        }
        used += (size_t)snprintf(text + used, text_bytes - used, "%s", item);
        first = last;
    }
    if (used == 0)
        snprintf(text, text_bytes, "none");
}
