/* host.c - the facts about a machine that every POSIX system tells alike. */
#include "io/host.h"

#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* As a UUID has its version: 4, at random, as boot ids have; 5, of a name; 8, as one likes. */
enum { VERSION_BYTE = 6, NAMED = 0x50, GUESSED = 0x80 };

void ddl_host_id_of(const char *text, uint8_t id[16])
{
    /* FNV-1a, from two starting points. */
    uint64_t hash[2] = { UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4) };
    for (int half = 0; half < 2; half++) {
        for (const char *at = text; *at != '\0'; at++)
            hash[half] = (hash[half] ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
        for (int i = 0; i < 8; i++)
            id[8 * half + i] = (uint8_t)(hash[half] >> (8 * i));
    }
}

void ddl_host_id_mark(uint8_t id[16], bool sure)
{
    id[VERSION_BYTE] = (uint8_t)((id[VERSION_BYTE] & 0x0f) | (sure ? NAMED : GUESSED));
}

bool ddl_host_id_is_sure(const uint8_t id[16])
{
    return (id[VERSION_BYTE] & 0xf0) != GUESSED;
}

void ddl_host_name(char name[DDL_HOST_NAME_TEXT])
{
    char full[256];
    if (gethostname(full, sizeof full) != 0)
        full[0] = '\0';
    full[sizeof full - 1] = '\0';
    for (char *at = full; *at != '\0'; at++) /* it is written to terminals and logs */
        *at = (unsigned char)*at < ' ' || *at == 127 ? '?' : *at;
    snprintf(name, DDL_HOST_NAME_TEXT, "%.*s", DDL_HOST_NAME_TEXT - 1, full[0] != '\0' ? full : "?");
}

uint64_t ddl_host_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
}

/* It loads a library of its own before all others. */
static bool is_under_valgrind(void)
{
    const char *first = getenv("LD_PRELOAD");
    return first != NULL && strstr(first, "/vgpreload_") != NULL;
}

bool ddl_host_limits_addresses(void)
{
    struct rlimit limit;
    if (is_under_valgrind())
        return true;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

bool ddl_host_may_write(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* Of descriptors below limit; of a larger table, those in a part that is taken to hold all. Asking with poll
 * takes a few calls where fcntl takes one for each. */
enum { TABLE_LOOKED_AT = 4096, ASKED_AT_ONCE = 256 };

static int open_descriptors(rlim_t limit)
{
    struct pollfd asked[ASKED_AT_ONCE];
    int count = 0, last = limit > TABLE_LOOKED_AT ? TABLE_LOOKED_AT : (int)limit;
    for (int fd = 0; fd < last;) {
        nfds_t n = 0;
        for (; n < ASKED_AT_ONCE && fd < last; n++, fd++)
            asked[n] = (struct pollfd){ .fd = fd };
        bool known = poll(asked, n, 0) >= 0;
        for (nfds_t i = 0; i < n; i++)
            count += !known || (asked[i].revents & POLLNVAL) == 0;
    }
    return count;
}

/* Whether so many more can be opened without a look at those that are open; *limit: what else there is. */
static bool has_plenty(int more, struct rlimit *limit)
{
    return getrlimit(RLIMIT_NOFILE, limit) != 0 || limit->rlim_cur == RLIM_INFINITY ||
           limit->rlim_cur >= TABLE_LOOKED_AT + (rlim_t)more;
}

static bool is_allowed(const struct rlimit *limit, rlim_t total)
{
    return limit->rlim_max == RLIM_INFINITY || limit->rlim_max >= total;
}

static bool raise_to(const struct rlimit *limit, rlim_t total)
{
    const struct rlimit raised = { .rlim_cur = total, .rlim_max = limit->rlim_max };
    if (limit->rlim_cur >= total)
        return true;
    return is_allowed(limit, total) && !DDL_FAILPOINT_OS("io.setrlimit", EPERM) &&
           setrlimit(RLIMIT_NOFILE, &raised) == 0;
}

ddl_status ddl_host_need_descriptors(int needed, const char *what, ddl_error *err)
{
    struct rlimit limit;
    if (has_plenty(needed, &limit))
        return DDL_OK;
    int used = open_descriptors(limit.rlim_cur);
    rlim_t total = (rlim_t)used + (rlim_t)needed;
    if (raise_to(&limit, total))
        return DDL_OK;
    return DDL_FAIL(
        err, DDL_ERESOURCE,
        "%s need %d more descriptors, %d are in use, and this process may have %llu (hard limit %llu); "
        "raise it with ulimit -n %llu",
        what, needed, used, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max,
        (unsigned long long)total);
}

int ddl_host_free_descriptors(int wanted)
{
    struct rlimit limit;
    if (has_plenty(wanted, &limit))
        return wanted;
    const rlim_t used = (rlim_t)open_descriptors(limit.rlim_cur), all = used + (rlim_t)wanted;
    const rlim_t allowed = is_allowed(&limit, all) ? all : limit.rlim_max;
    const rlim_t total = raise_to(&limit, allowed) ? allowed : limit.rlim_cur;
    return total > used ? (int)(total - used) : 0;
}

void ddl_host_expect_descriptors(int expected)
{
    struct rlimit limit;
    const int low = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest that is free */
    if (low < 0)
        return;
    rlim_t last = (rlim_t)low + (rlim_t)expected;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && last >= limit.rlim_cur)
        last = limit.rlim_cur - 1;
    const int high = fcntl(low, F_DUPFD_CLOEXEC, (int)last);
    if (high >= 0)
        close(high);
    close(low);
}

void ddl_host_fill_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", O_RDWR); /* which takes the lowest that is free */
}
