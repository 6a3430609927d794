/* occasion.c - where and when something was measured. */
#include "occasion.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <time.h>

struct occasion occasion_now(void)
{
    struct occasion occasion = { 0 };
    const time_t now = time(NULL);
    struct utsname host;
    struct tm utc;
    if (uname(&host) == 0)
        snprintf(occasion.host, sizeof occasion.host, "%s", host.nodename);
    if (gmtime_r(&now, &utc) != NULL)
        (void)strftime(occasion.date, sizeof occasion.date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return occasion;
}
