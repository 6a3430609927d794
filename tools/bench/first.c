/* first.c - rank 0 by its variables, and a standard error that leads nowhere. */
#include "first.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As ddl looks for them. A rank alone may be left over in the environment of a shell. RANK and WORLD_SIZE may
 * be set by hand for each rank, on a terminal of its own, unless ddl-launch has set them. */
static const struct {
    const char *rank, *size;
} names[] = {
    { "RANK", "WORLD_SIZE" },
    { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
    { "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE" },
    { "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE" },
    { "HOROVOD_RANK", "HOROVOD_SIZE" },
    { "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE" },
    { "FLUX_TASK_RANK", "FLUX_JOB_SIZE" },
    { "PALS_RANKID", "PMI_SIZE" },
    { "PMI_RANK", "PMI_SIZE" },
    { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" },
};

enum { BY_HAND = 0 };

static bool is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

bool first_may_be_here(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i].rank), *size = getenv(names[i].size);
        if (is_set(rank) && is_set(size))
            return strcmp(rank, "0") == 0 || (i == BY_HAND && !is_set(getenv("DDL_LAUNCH")));
    }
    return true;
}

int first_hush_others(void)
{
    if (first_may_be_here())
        return -1;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int hush = nowhere >= 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : -1;
    if (hush >= 0)
        dup2(nowhere, STDERR_FILENO);
    if (nowhere >= 0)
        close(nowhere);
    return hush;
}

void first_end_hush(int hush)
{
    if (hush >= 0) {
        dup2(hush, STDERR_FILENO);
        close(hush);
    }
}
