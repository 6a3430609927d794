/* config_ranks.c - which rank this is and of how many, by whichever launcher has started it. */
#include "api/config_parts.h"

#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 1 << 20 };

/* Launchers that set rank and size under names of their own; the first that is complete counts. Those that
 * set PMI's names, too, come before that, and those that start processes before those that allot machines. */
static const struct family {
    const char *name, *rank, *size, *local_rank, *hint; /* size NULL: it does not tell */
    int least_of_several; /* a rank that is set alone: from this one on there are others */
} families[] = {
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "mpirun -x MASTER_ADDR=... -x MASTER_PORT=...", 0 },
    { "MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
      "mpirun_rsh ... MASTER_ADDR=... MASTER_PORT=... program", 0 },
    { "MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK",
      "mpirun_rsh ... MASTER_ADDR=... MASTER_PORT=... program", 0 },
    { "Horovod", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "export both before horovodrun", 0 },
    { "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
      "jsrun -E MASTER_ADDR=... -E MASTER_PORT=...", 0 },
    { "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID",
      "flux run --env=MASTER_ADDR=... --env=MASTER_PORT=...", 0 },
    { "PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID",
      "mpiexec --env MASTER_ADDR=... --env MASTER_PORT=...", 0 },
    { "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "mpiexec -genv MASTER_ADDR ... -genv MASTER_PORT ...",
      0 },
    { "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
      "export MASTER_ADDR=$(scontrol show hostnames | head -n 1) MASTER_PORT=29500 before srun",
      1 /* a batch script, which is one process, has rank 0 */ },
    { "PMIx", "PMIX_RANK", NULL, NULL, "", 1 /* it may be the only one */ },
};

static bool is_complete(const struct family *family)
{
    return family->size != NULL && ddl_config_env(family->rank) != NULL &&
           ddl_config_env(family->size) != NULL;
}

/* Who is one of several ought to know of how many, or each would be a world of its own. */
static ddl_status refuse_half_a_launcher(ddl_error *err)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *family = &families[i];
        const char *rank_text = ddl_config_env(family->rank);
        char unset[64] = "nothing tells of how many";
        int rank;
        if (family->size != NULL)
            snprintf(unset, sizeof unset, "%s is not", family->size);
        if (rank_text != NULL && ddl_config_parse_int(family->rank, rank_text, family->least_of_several,
                                                      INT_MAX, &rank, NULL) == DDL_OK)
            return DDL_FAIL(err, DDL_ECONFIG,
                            "%s=%d is set, as by %s, but %s; set RANK and WORLD_SIZE, MASTER_ADDR and "
                            "MASTER_PORT, or use ddl-launch; for a world of one unset %s",
                            family->rank, rank, family->name, unset, family->rank);
    }
    return DDL_OK;
}

/* A launcher's variables when RANK and WORLD_SIZE are not set. Leaves both at -1 if there is no launcher. */
static ddl_status foreign_launcher(const ddl_options *options, int *rank, int *nranks, ddl_error *err)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *family = &families[i];
        if (!is_complete(family))
            continue;
        const char *rank_text = ddl_config_env(family->rank), *size_text = ddl_config_env(family->size);
        int size;
        DDL_TRY(ddl_config_parse_int(family->size, size_text, 1, RANKS_MAX, &size, err));
        DDL_TRY(ddl_config_parse_int(family->rank, rank_text, 0, size - 1, rank, err));
        if (size > 1 && options->store == NULL && ddl_config_env("DDL_STORE") == NULL &&
            (ddl_config_env("MASTER_ADDR") == NULL || ddl_config_env("MASTER_PORT") == NULL))
            return DDL_FAIL(
                err, DDL_ECONFIG,
                "started by %s as rank %d of %d, but with no address to meet at; set MASTER_ADDR and "
                "MASTER_PORT (%s), or use ddl-launch",
                family->name, *rank, size, family->hint);
        *nranks = size;
        return DDL_OK;
    }
    return options->rank < 0 || options->world_size < 0 ? refuse_half_a_launcher(err) : DDL_OK;
}

/* What ddl-launch has said is final: two ranks of one number would hold the whole job up. */
static ddl_status check_launched(int rank, int nranks, ddl_error *err)
{
    const char *launched = ddl_config_env("DDL_LAUNCH");
    char given[32];
    snprintf(given, sizeof given, "%d/%d", rank < 0 ? 0 : rank, rank < 0 ? 1 : nranks);
    if (launched == NULL || strcmp(launched, given) == 0)
        return DDL_OK;
    if (rank < 0)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "RANK and WORLD_SIZE are not set, but ddl-launch has started this process as %.20s; leave "
            "the variables as it set them, or unset DDL_LAUNCH for a job of your own",
            launched);
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "RANK=%d and WORLD_SIZE=%d, but ddl-launch has started this process as %.20s; leave the variables "
        "as it set them, and ddl_options without others, or unset DDL_LAUNCH for a job of your own",
        rank, nranks, launched);
}

static const char half_set[] =
    "%s is set but %s is not; set both (ddl-launch does), or neither for a world of one";

/* What is not set is left at -1. */
static ddl_status read_environment_ranks(const ddl_options *options, int *rank, int *nranks, ddl_error *err)
{
    const char *rank_text = ddl_config_env("RANK"), *size_text = ddl_config_env("WORLD_SIZE");
    if (rank_text == NULL && size_text == NULL)
        return foreign_launcher(options, rank, nranks, err);
    if (size_text != NULL)
        DDL_TRY(ddl_config_parse_int("WORLD_SIZE", size_text, 1, RANKS_MAX, nranks, err));
    else if (options->world_size < 0)
        return DDL_FAIL(err, DDL_ECONFIG, half_set, "RANK", "WORLD_SIZE");
    if (rank_text == NULL)
        return options->rank >= 0 ? DDL_OK : DDL_FAIL(err, DDL_ECONFIG, half_set, "WORLD_SIZE", "RANK");
    int given;
    const int most = *nranks > 0 ? *nranks : options->world_size;
    if (ddl_config_parse_int("RANK", rank_text, INT_MIN, INT_MAX, &given, NULL) != DDL_OK)
        return ddl_config_parse_int("RANK", rank_text, 0, most - 1, &given, err);
    if (given < 0 || given >= most)
        return DDL_FAIL(err, DDL_ECONFIG, "RANK=%d is not in a world of WORLD_SIZE=%d: 0 to %d is", given,
                        most, most - 1);
    *rank = given;
    return DDL_OK;
}

/* Among those of its host, as whoever has told the rank says; -1: it does not. Another launcher's is of an
 * outer job. No variable of ddl's, so where it makes no sense that is nobody's error. */
static int find_local_rank(void)
{
    const char *name = ddl_config_env("RANK") != NULL ? "LOCAL_RANK" : NULL;
    for (size_t i = 0; name == NULL && i < sizeof families / sizeof *families; i++)
        if (is_complete(&families[i]))
            name = families[i].local_rank;
    const char *text = name != NULL ? ddl_config_env(name) : NULL;
    int local = -1;
    return text != NULL && ddl_config_parse_int(name, text, 0, RANKS_MAX, &local, NULL) == DDL_OK ? local
                                                                                                  : -1;
}

/* It may be what is meant, and others may see to it that there is no rank; but N such worlds train N times.
 */
static void warn_of_a_place_for_one(const ddl_options *options)
{
    static const char *const names[] = { "DDL_STORE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK",
                                         "PMIX_RANK" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ddl_config_env(names[i]) != NULL || options->store != NULL) {
            ddl_log(DDL_LOG_WARNING,
                    "a world of one: %s is set, but neither RANK nor WORLD_SIZE, which ddl-launch sets",
                    options->store != NULL ? "ddl_options.store" : names[i]);
            return;
        }
}

/* As ddl-launch takes away what an outer launcher said, what another says was started below a rank, and each
 * of its processes has that rank. Where ranks meet that is found, but worlds of one do not. */
static void warn_of_a_launcher_below(void)
{
    for (size_t i = 0; ddl_config_env("DDL_LAUNCH") != NULL && i < sizeof families / sizeof *families; i++) {
        const struct family *family = &families[i];
        if (!is_complete(family) || strcmp(ddl_config_env(family->size), "1") == 0)
            continue;
        ddl_log(DDL_LOG_WARNING,
                "a world of one: ddl-launch has started one rank, and %s below it %.20s processes, each of "
                "which is that "
                "rank; start the program by one of them alone",
                family->name, ddl_config_env(family->size));
        return;
    }
}

ddl_status ddl_config_read_ranks(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    if (options->world_size == 0 || options->world_size < -1 || options->rank < -1 ||
        (options->rank >= 0 && options->world_size > 0 && options->rank >= options->world_size))
        return DDL_FAIL(err, DDL_ECONFIG, "the program gives rank %d of %d", options->rank,
                        options->world_size);
    if (options->world_size > RANKS_MAX)
        return DDL_FAIL(err, DDL_ECONFIG, "ddl_options.world_size=%d: there are %d ranks at most",
                        options->world_size, RANKS_MAX);
    int rank = -1, nranks = -1;
    DDL_TRY(read_environment_ranks(options, &rank, &nranks, err));
    if ((options->rank >= 0 && rank >= 0 && rank != options->rank) ||
        (options->world_size > 0 && nranks > 0 && nranks != options->world_size))
        return DDL_FAIL(err, DDL_ECONFIG, "the program says rank %d of %d, but its launcher rank %d of %d",
                        options->rank >= 0 ? options->rank : rank,
                        options->world_size > 0 ? options->world_size : nranks, rank, nranks);
    /* Where the environment does not tell the rank, that is of another job, or of a process with several. */
    config->local_rank = rank >= 0 ? find_local_rank() : -1;
    rank = options->rank >= 0 ? options->rank : rank;
    nranks = options->world_size > 0 ? options->world_size : nranks;
    if ((rank < 0) != (nranks < 0))
        return DDL_FAIL(err, DDL_ECONFIG, "the program gives %s but neither it nor the environment %s",
                        rank < 0 ? "a world size" : "a rank",
                        rank < 0 ? "a rank (RANK)" : "a world size (WORLD_SIZE)");
    if (rank >= nranks && rank >= 0)
        return DDL_FAIL(err, DDL_ECONFIG, "rank %d is not in a world of %d: 0 to %d is", rank, nranks,
                        nranks - 1);
    DDL_TRY(check_launched(rank, nranks, err));
    if (rank < 0)
        warn_of_a_place_for_one(options);
    if (nranks == 1)
        warn_of_a_launcher_below();
    config->rank = rank >= 0 ? rank : 0;
    config->nranks = nranks >= 0 ? nranks : 1;
    return DDL_OK;
}

ddl_spread ddl_config_find_spread(int nranks)
{
    static const char *const local_sizes[] = { "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                               "MPI_LOCALNRANKS" };
    for (size_t i = 0; i < sizeof local_sizes / sizeof *local_sizes; i++) {
        int local;
        const char *text = ddl_config_env(local_sizes[i]);
        if (text != NULL && ddl_config_parse_int(local_sizes[i], text, 1, RANKS_MAX, &local, NULL) == DDL_OK)
            return local < nranks ? DDL_SPREAD_SEVERAL : DDL_SPREAD_ONE;
    }
    const char *nodes = ddl_config_env("SLURM_STEP_NUM_NODES");
    if (nodes == NULL)
        return DDL_SPREAD_UNKNOWN;
    return strcmp(nodes, "1") == 0 ? DDL_SPREAD_ONE : DDL_SPREAD_SEVERAL;
}
