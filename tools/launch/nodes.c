/* nodes.c - variables by which others say that a job has several nodes. */
#include "nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The first that says so is told. A launcher's own rank and size come before what a scheduler says, as it may
 * have been started by that; but PMI's behind, which is what srun sets beside its own.
 */
static const struct sign {
    const char *variable;
    long least;         /* from this number on it speaks of several */
    const char *beside; /* and only where this is set too; NULL: alone */
    const char *flags;  /* behind --nnodes N */
    bool by_rank;       /* it counts processes, of which this launcher is one */
} signs[] = {
    { "PET_NNODES", 2, NULL, "--node_rank $PET_NODE_RANK --master_addr $PET_MASTER_ADDR", false },
#define OF_RANKS(size, rank)                                                                        \
    {                                                                                               \
        size, 2, rank, "--node_rank $" rank " --master_addr HOST (of rank 0), by sh -c '...'", true \
    }
    OF_RANKS("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    OF_RANKS("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    OF_RANKS("MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK"),
    OF_RANKS("HOROVOD_SIZE", "HOROVOD_RANK"),
    OF_RANKS("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    OF_RANKS("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    { "SLURM_STEP_NUM_NODES", 2, NULL,
      "--node_rank $SLURM_NODEID --master_addr HOST (of node 0), by srun sh -c '...'", false },
    OF_RANKS("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    OF_RANKS("PMI_SIZE", "PALS_RANKID"),
    OF_RANKS("PMI_SIZE", "PMI_RANK"),
#undef OF_RANKS
    { "NNODES", 2, "MASTER_ADDR", "--node_rank $NODE_RANK --master_addr $MASTER_ADDR", false },
    { "NODE_RANK", 1, "MASTER_ADDR", "--node_rank $NODE_RANK --master_addr $MASTER_ADDR", false },
};

/* Of 4, or of 1:4, as torchrun has the least and the most, the last; 0: it is neither. */
static long last_number(const char *text)
{
    const char *colon = strchr(text, ':');
    char *end;
    long number = strtol(colon != NULL ? colon + 1 : text, &end, 10);
    return *end == '\0' ? number : 0;
}

/* NULL: it is not set, or empty. */
static const char *value_of(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != '\0' ? value : NULL;
}

/* What it finds then is of that job. */
static bool is_in_a_rank(void)
{
    return value_of("DDL_LAUNCH") != NULL || value_of("TORCHELASTIC_RUN_ID") != NULL;
}

void launch_nodes_warn(const launch_options *options)
{
    if (is_in_a_rank() || options->nnodes_given || options->standalone)
        return;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const struct sign *sign = &signs[i];
        const char *text = value_of(sign->variable);
        char count[24] = "N";
        if (text == NULL || (sign->beside != NULL && value_of(sign->beside) == NULL) ||
            last_number(text) < sign->least)
            continue;
        if (sign->least > 1)
            snprintf(count, sizeof count, "%ld", last_number(text));
        fprintf(
            stderr,
            "ddl-launch: warning: %s=%.40s is set, but without --nnodes this is a job of one node; %sgive "
            "--nnodes %s %s, or --nnodes 1\n",
            sign->variable, text, sign->by_rank ? "start the program itself in place of ddl-launch, or " : "",
            count, sign->flags);
        return;
    }
}
