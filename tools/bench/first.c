/* first.c - rank 0 by its variables, and a standard error that leads nowhere. */
#include "first.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As ddl looks for them. */
static const char *const ranks[] = {
    "RANK",         "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK",
    "HOROVOD_RANK", "JSM_NAMESPACE_RANK",   "FLUX_TASK_RANK",      "PALS_RANKID",
    "PMI_RANK",     "SLURM_PROCID",         "PMIX_RANK",
};

bool first_may_be_here(void)
{
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank != NULL && *rank != '\0')
            return strcmp(rank, "0") == 0;
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
