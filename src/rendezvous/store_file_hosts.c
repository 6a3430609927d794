/* store_file_hosts.c - tokens, sorted, each with whether its process is on this host. */
#include "rendezvous/store_file_hosts.h"

#include <stdio.h>
#include <string.h>

struct process {
    char token[DDL_TOKEN_TEXT];
    bool is_ours;
};

static struct process *first(const ddl_file_hosts *hosts)
{
    return (struct process *)hosts->known.data;
}

static size_t count(const ddl_file_hosts *hosts)
{
    return hosts->known.bytes / sizeof(struct process);
}

/* Where this token is, or belongs. */
static size_t spot_of(const ddl_file_hosts *hosts, const char *token)
{
    size_t low = 0, high = count(hosts);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(first(hosts)[middle].token, token) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ddl_file_hosts_find(const ddl_file_hosts *hosts, const char *token, bool *is_ours)
{
    const size_t spot = spot_of(hosts, token);
    if (spot == count(hosts) || strcmp(first(hosts)[spot].token, token) != 0)
        return false;
    *is_ours = first(hosts)[spot].is_ours;
    return true;
}

void ddl_file_hosts_add(ddl_file_hosts *hosts, const char *token, bool is_ours)
{
    struct process process = { .is_ours = is_ours };
    const size_t spot = spot_of(hosts, token), behind = count(hosts) - spot;
    snprintf(process.token, sizeof process.token, "%s", token);
    if (!ddl_bytes_append(&hosts->known, &process, sizeof process) || behind == 0)
        return;
    memmove(first(hosts) + spot + 1, first(hosts) + spot, behind * sizeof process);
    first(hosts)[spot] = process;
}

void ddl_file_hosts_fini(ddl_file_hosts *hosts)
{
    ddl_bytes_fini(&hosts->known);
}
