/* config.c - options and environment to one ddl_config. */
#include "api/config.h"

#include "api/settings.h"
#include "backend/profile.h"
#include "base/assert.h"
#include "base/decimal.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "io/host.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pieces of messages that go through shared memory, where asking for each costs little: what is copied in and
 * out, and reduced, is to stay in a cache of 1 MiB. */
enum { LANE_PIECE_BYTES = 256 * 1024, LONG_LANES_BYTES = 4 * 1024 * 1024 };

enum {
    DEFAULT_TIMEOUT_MS = 300 * 1000,
    LEAST_PATIENCE_MS = 1000,
    DEFAULT_UNREACH_MS = 15 * 1000,
    DEFAULT_UNRESP_MS = 30 * 1000,
    DEFAULT_WARN_MS = 10 * 1000,
    RANKS_MAX = 1 << 20
};

/* Up to so many ranks all pairs are connected at the start: that takes a second for 128 ranks on two cores,
 * and grows with the square. */
enum { EAGER_RANKS = 128 };

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

/* An unset variable and an empty one are the same. */
static const char *env(const char *name)
{
    DDL_ASSERT(strncmp(name, "DDL_", 4) != 0 || ddl_setting_is_known(name));
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static ddl_status parse_int(const char *name, const char *value, long least, long most, int *result,
                            ddl_error *err)
{
    char *end;
    errno = 0;
    long number = strtol(value, &end, 10);
    if (!(isdigit((unsigned char)value[0]) || value[0] == '-') || *end != '\0' || errno != 0 ||
        number < least || number > most)
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: a whole number from %ld to %ld is needed", name, value,
                        least, most);
    *result = (int)number;
    return DDL_OK;
}

static ddl_status parse_duration(const char *name, const char *value, int64_t *result_ms, ddl_error *err)
{
    if (ddl_duration_parse(value, result_ms) && *result_ms > 0)
        return DDL_OK;
    return DDL_FAIL(err, DDL_ECONFIG,
                    "%s=%s: a time greater than zero is needed, in seconds or as 500ms, 30s, 5min, 2h", name,
                    value);
}

/* Of a setting of ddl_options, where it was given there. */
#define GIVEN_AS(options, field, variable) ((options)->field != NULL ? "ddl_options." #field : (variable))

static ddl_status one_of(const char *name, const char *value, const char *const accepted[], ddl_error *err)
{
    char list[256] = "";
    for (int i = 0; accepted[i] != NULL; i++) {
        if (strcmp(value, accepted[i]) == 0)
            return DDL_OK;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", accepted[i]);
    }
    return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: accepted are %s", name, value, list);
}

/* ---- rank and size ---- */

static bool is_complete(const struct family *family)
{
    return family->size != NULL && env(family->rank) != NULL && env(family->size) != NULL;
}

/* Who is one of several ought to know of how many, or each would be a world of its own. */
static ddl_status refuse_half_a_launcher(ddl_error *err)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *family = &families[i];
        const char *rank_text = env(family->rank);
        char unset[64] = "nothing tells of how many";
        int rank;
        if (family->size != NULL)
            snprintf(unset, sizeof unset, "%s is not", family->size);
        if (rank_text != NULL &&
            parse_int(family->rank, rank_text, family->least_of_several, INT_MAX, &rank, NULL) == DDL_OK)
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
        const char *rank_text = env(family->rank), *size_text = env(family->size);
        int size;
        DDL_TRY(parse_int(family->size, size_text, 1, RANKS_MAX, &size, err));
        DDL_TRY(parse_int(family->rank, rank_text, 0, size - 1, rank, err));
        if (size > 1 && options->store == NULL && env("DDL_STORE") == NULL &&
            (env("MASTER_ADDR") == NULL || env("MASTER_PORT") == NULL))
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
    const char *launched = env("DDL_LAUNCH");
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
    const char *rank_text = env("RANK"), *size_text = env("WORLD_SIZE");
    if (rank_text == NULL && size_text == NULL)
        return foreign_launcher(options, rank, nranks, err);
    if (size_text != NULL)
        DDL_TRY(parse_int("WORLD_SIZE", size_text, 1, RANKS_MAX, nranks, err));
    else if (options->world_size < 0)
        return DDL_FAIL(err, DDL_ECONFIG, half_set, "RANK", "WORLD_SIZE");
    if (rank_text == NULL)
        return options->rank >= 0 ? DDL_OK : DDL_FAIL(err, DDL_ECONFIG, half_set, "WORLD_SIZE", "RANK");
    int given;
    const int most = *nranks > 0 ? *nranks : options->world_size;
    if (parse_int("RANK", rank_text, INT_MIN, INT_MAX, &given, NULL) != DDL_OK)
        return parse_int("RANK", rank_text, 0, most - 1, &given, err);
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
    const char *name = env("RANK") != NULL ? "LOCAL_RANK" : NULL;
    for (size_t i = 0; name == NULL && i < sizeof families / sizeof *families; i++)
        if (is_complete(&families[i]))
            name = families[i].local_rank;
    const char *text = name != NULL ? env(name) : NULL;
    int local = -1;
    return text != NULL && parse_int(name, text, 0, RANKS_MAX, &local, NULL) == DDL_OK ? local : -1;
}

/* It may be what is meant, and others may see to it that there is no rank; but N such worlds train N times.
 */
static void warn_of_a_place_for_one(const ddl_options *options)
{
    static const char *const names[] = { "DDL_STORE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK",
                                         "PMIX_RANK" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (env(names[i]) != NULL || options->store != NULL) {
            ddl_log(DDL_LOG_WARNING,
                    "a world of one: %s is set, but neither RANK nor WORLD_SIZE, which ddl-launch sets",
                    options->store != NULL ? "ddl_options.store" : names[i]);
            return;
        }
}

static ddl_status read_ranks(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    if (options->world_size == 0 || options->world_size < -1 || options->rank < -1 ||
        (options->rank >= 0 && options->world_size > 0 && options->rank >= options->world_size))
        return DDL_FAIL(err, DDL_ECONFIG, "the program gives rank %d of %d", options->rank,
                        options->world_size);
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
    config->rank = rank >= 0 ? rank : 0;
    config->nranks = nranks >= 0 ? nranks : 1;
    return DDL_OK;
}

/* Whether launchers say that the ranks are on one host, or on several. */
static ddl_spread find_spread(int nranks)
{
    static const char *const local_sizes[] = { "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                               "MPI_LOCALNRANKS" };
    for (size_t i = 0; i < sizeof local_sizes / sizeof *local_sizes; i++) {
        int local;
        const char *text = env(local_sizes[i]);
        if (text != NULL && parse_int(local_sizes[i], text, 1, RANKS_MAX, &local, NULL) == DDL_OK)
            return local < nranks ? DDL_SPREAD_SEVERAL : DDL_SPREAD_ONE;
    }
    const char *nodes = env("SLURM_STEP_NUM_NODES");
    if (nodes == NULL)
        return DDL_SPREAD_UNKNOWN;
    return strcmp(nodes, "1") == 0 ? DDL_SPREAD_ONE : DDL_SPREAD_SEVERAL;
}

/* ---- where to meet ---- */

static ddl_status read_store(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    if (config->nranks == 1)
        return DDL_OK;
    const char *address = env("MASTER_ADDR"), *port_text = env("MASTER_PORT");
    const char *store = options->store != NULL ? options->store : env("DDL_STORE");
    /* Who meets elsewhere needs neither, whoever has set them for whatever. */
    int port = 0;
    ddl_status sound = port_text != NULL ? parse_int("MASTER_PORT", port_text, 1, 65535, &port, err) : DDL_OK;
    if (store == NULL)
        DDL_TRY(sound);
    const char *bracket = address != NULL ? strchr(address, ']') : NULL; /* of IPv6, which has more colons */
    const char *colon = address != NULL ? strchr(bracket != NULL ? bracket : address, ':') : NULL;
    if (store == NULL && colon != NULL && strchr(colon + 1, ':') == NULL)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "MASTER_ADDR=%.200s has a port in it; set MASTER_ADDR=%.*s and MASTER_PORT=%.10s",
                        address, (int)(colon - address), address, colon + 1);
    if (address != NULL && port > 0) {
        /* An IPv6 address goes into brackets, as in any URL. */
        bool is_ipv6 = strchr(address, ':') != NULL && address[0] != '[';
        int used = snprintf(config->master, sizeof config->master, is_ipv6 ? "[%s]:%s" : "%s:%s", address,
                            port_text);
        if (used < 0 || (size_t)used >= sizeof config->master)
            return DDL_FAIL(err, DDL_ECONFIG, "MASTER_ADDR is longer than %zu characters",
                            sizeof config->master - 16);
    }
    if (store != NULL) {
        if (strlen(store) >= sizeof config->store)
            return DDL_FAIL(err, DDL_ECONFIG, "%s: the URL is longer than %zu characters",
                            GIVEN_AS(options, store, "DDL_STORE"), sizeof config->store - 1);
        snprintf(config->store, sizeof config->store, "%s", store);
        return DDL_OK;
    }
    if (address == NULL || port_text == NULL)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "rank %d of %d has nowhere to meet the others: set MASTER_ADDR and MASTER_PORT (%s not set), or "
            "DDL_STORE; ddl-launch sets them",
            config->rank, config->nranks, address == NULL ? "MASTER_ADDR is" : "MASTER_PORT is");
    snprintf(config->store, sizeof config->store, "tcp://%s", config->master);
    return DDL_OK;
}

/* ---- the rest ---- */

/* What the options have is not looked for in the environment. */
static ddl_status read_timeout(const char *name, int64_t option_ms, int64_t *ms, ddl_error *err)
{
    const char *value = env(name);
    *ms = option_ms > 0 ? option_ms : DEFAULT_TIMEOUT_MS;
    return option_ms > 0 || value == NULL ? DDL_OK : parse_duration(name, value, ms, err);
}

static ddl_status read_time(const char *name, int64_t default_ms, int64_t *ms, ddl_error *err)
{
    const char *value = env(name);
    *ms = default_ms;
    return value != NULL ? parse_duration(name, value, ms, err) : DDL_OK;
}

/* A rank answers within a second, and a packet that is lost is sent again within one. */
static ddl_status read_patience(const char *name, int64_t default_ms, int64_t *ms, ddl_error *err)
{
    DDL_TRY(read_time(name, default_ms, ms, err));
    if (*ms < LEAST_PATIENCE_MS)
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: at least 1 s is needed", name, env(name));
    return DDL_OK;
}

static ddl_status read_timeouts(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    DDL_TRY(read_timeout("DDL_TIMEOUT", options->timeout_ms, &config->timeout_ms, err));
    config->timeout_is_given = options->timeout_ms != 0;
    DDL_TRY(read_patience("DDL_UNREACH_TIMEOUT", DEFAULT_UNREACH_MS, &config->unreachable_ms, err));
    DDL_TRY(read_patience("DDL_UNRESP_TIMEOUT", DEFAULT_UNRESP_MS, &config->unresponsive_ms, err));
    return read_time("DDL_WARN_AFTER", DEFAULT_WARN_MS, &config->warn_ms, err);
}

static ddl_status read_algorithms(ddl_config *config, ddl_error *err)
{
    for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++) {
        char variable[DDL_SETTING_NAME];
        ddl_setting_of((ddl_collective)collective, variable);
        const char *value = env(variable);
        if (value == NULL)
            continue;
        const ddl_algorithm *found = ddl_catalogue_find((ddl_collective)collective, value);
        if (found != NULL && found->takes != NULL && !found->takes(config->nranks))
            return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: that algorithm does not work for %d ranks", variable,
                            value, config->nranks);
        if (found == NULL) {
            char list[256] = "";
            size_t count;
            const ddl_algorithm *rows = ddl_catalogue(&count);
            for (size_t i = 0; i < count; i++)
                if ((int)rows[i].collective == collective) {
                    size_t used = strlen(list);
                    snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", rows[i].name);
                }
            return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: there is no such algorithm; accepted are %s", variable,
                            value, list);
        }
        config->forced[collective] = found;
    }
    return DDL_OK;
}

/* ---- costs ---- */

/* Only a file is read: a directory cannot be, and a pipe might never end. */
static ddl_status open_profile(const char *path, int *fd, ddl_error *err)
{
    static const char accepted[] = "a file that ddl-bench --calibrate wrote is accepted";
    struct stat facts;
    if (DDL_FAILPOINT_OS("config.open", EMFILE) || (*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "DDL_PROFILE=%.200s cannot be opened; %s", path,
                           accepted);
    if (fstat(*fd, &facts) == 0 && S_ISREG(facts.st_mode))
        return DDL_OK;
    close(*fd);
    return DDL_FAIL(err, DDL_ECONFIG, "DDL_PROFILE=%.200s is %s; %s", path,
                    S_ISDIR(facts.st_mode) ? "a directory" : "no regular file", accepted);
}

static ddl_status read_profile(const char *path, char text[DDL_PROFILE_LIMIT], ddl_cost_model *model,
                               ddl_error *err)
{
    int fd = -1, read_errno = 0;
    size_t bytes = 0;
    DDL_TRY(open_profile(path, &fd, err));
    for (ssize_t count = 1; count > 0 && bytes < DDL_PROFILE_LIMIT; bytes += (size_t)count) {
        count = DDL_FAILPOINT_OS("config.read", EIO) ? -1 : read(fd, text + bytes, DDL_PROFILE_LIMIT - bytes);
        if (count < 0) {
            read_errno = errno;
            count = 0;
        }
    }
    close(fd);
    if (read_errno != 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, read_errno, "DDL_PROFILE=%.200s cannot be read", path);
    if (bytes == DDL_PROFILE_LIMIT)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_PROFILE=%.200s is too large; a profile has less than %d bytes",
                        path, (int)DDL_PROFILE_LIMIT);
    char name[256];
    snprintf(name, sizeof name, "DDL_PROFILE=%.200s", path);
    return ddl_profile_parse(name, (ddl_view){ text, bytes }, model, err);
}

/* Everybody has the defaults; rank 0's constants, which the profile may change, then go to all. */
static ddl_status read_costs(ddl_config *config, ddl_error *err)
{
    const char *path = env("DDL_PROFILE");
    ddl_cost_model model = ddl_cost_model_default(1);
#ifndef DDL_PORTABLE /* which has no shared memory */
    if (config->local_transport != DDL_LOCAL_TCP)
        model.piece_bytes = LANE_PIECE_BYTES;
    if (ddl_host_cores_are_far())
        model.pull_bytes = 1; /* all that may be; the small ones never are */
    if (ddl_host_lines_return_late())
        model.lane_bytes = LONG_LANES_BYTES;
#endif
    if (path != NULL && config->rank == 0) {
        char *text = ddl_alloc(DDL_PROFILE_LIMIT);
        if (text == NULL)
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for a cost profile");
        ddl_status status = read_profile(path, text, &model, err);
        ddl_free(text);
        if (status != DDL_OK)
            return status;
    }
    ddl_cost_model_pack(&model, config->costs);
    return DDL_OK;
}

static ddl_status read_text(const char *variable, char *text, size_t text_bytes, ddl_error *err)
{
    const char *value = env(variable);
    if (value == NULL)
        return DDL_OK;
    if (strlen(value) >= text_bytes)
        return DDL_FAIL(err, DDL_ECONFIG, "%s is longer than %zu characters", variable, text_bytes - 1);
    memcpy(text, value, strlen(value) + 1);
    return DDL_OK;
}

static ddl_status read_certificates(ddl_config *config, ddl_error *err)
{
    DDL_TRY(read_text("DDL_TLS_CA", config->tls_ca, sizeof config->tls_ca, err));
    DDL_TRY(read_text("DDL_TLS_CERT", config->tls_cert, sizeof config->tls_cert, err));
    DDL_TRY(read_text("DDL_TLS_KEY", config->tls_key, sizeof config->tls_key, err));
    return read_text("DDL_TLS_JOB", config->tls_job, sizeof config->tls_job, err);
}

/* Who has set certificates takes the job for encrypted. */
static ddl_status refuse_unused_certificates(ddl_error *err)
{
    static const char *const variables[] = { "DDL_TLS_CERT", "DDL_TLS_KEY", "DDL_TLS_CA", "DDL_TLS_JOB" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (env(variables[i]) != NULL)
            return DDL_FAIL(
                err, DDL_ECONFIG,
                "%s is set, but nothing would be encrypted, as DDL_SECURITY is not set; set it to tls, "
                "or, if that is meant, to auth",
                variables[i]);
    return DDL_OK;
}

static ddl_status read_gpu(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "nccl", "staged", NULL }; /* as ddl_gpu_use */
    const char *use = env("DDL_GPU");
    if (use == NULL)
        return DDL_OK;
    DDL_TRY(one_of("DDL_GPU", use, accepted, err));
#ifdef DDL_WITHOUT_NCCL
    if (strcmp(use, "nccl") == 0)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "DDL_GPU=nccl: this ddl was built without NCCL (" DDL_WITHOUT_NCCL
                        "); build it with -Dcuda=enabled -Dnccl=enabled, or set DDL_GPU=staged");
#endif
    for (int i = 0; accepted[i] != NULL; i++)
        if (strcmp(use, accepted[i]) == 0)
            config->gpu = (ddl_gpu_use)i;
    return DDL_OK;
}

static ddl_status read_aes(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "openssl", NULL };
    const char *aes = env("DDL_TLS_AES");
    if (aes == NULL)
        return DDL_OK;
    config->openssl_aes = strcmp(aes, "openssl") == 0;
    return one_of("DDL_TLS_AES", aes, accepted, err);
}

static ddl_status read_security(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    static const char *const levels[] = { "auth", "tls", "off", NULL };
    const char *security = options->security != NULL ? options->security : env("DDL_SECURITY");
    config->security = DDL_SECURITY_AUTH;
    if (security == NULL)
        return config->nranks > 1 ? refuse_unused_certificates(err) : DDL_OK;
    DDL_TRY(one_of(GIVEN_AS(options, security, "DDL_SECURITY"), security, levels, err));
    if (strcmp(security, "tls") == 0) {
        config->security = DDL_SECURITY_TLS;
        DDL_TRY(read_certificates(config, err));
        DDL_TRY(read_aes(config, err));
    }
    if (strcmp(security, "off") == 0)
        config->security = DDL_SECURITY_OFF;
    return DDL_OK;
}

static ddl_status read_transport(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "tcp", "shm", NULL }; /* as ddl_local_transport */
    const char *transport = options->transport != NULL ? options->transport : env("DDL_TRANSPORT");
    if (transport == NULL)
        return DDL_OK;
    DDL_TRY(one_of(GIVEN_AS(options, transport, "DDL_TRANSPORT"), transport, accepted, err));
    for (int i = 0; accepted[i] != NULL; i++)
        if (strcmp(transport, accepted[i]) == 0)
            config->local_transport = (ddl_local_transport)i;
    return DDL_OK;
}

/* Takes effect at once. */
static ddl_status read_log_level(ddl_error *err)
{
    const char *level = env("DDL_LOG");
    const int parsed = level != NULL ? ddl_log_parse_level(level) : 0;
    if (parsed < 0)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_LOG=%s: accepted are error, warning, info, debug, trace",
                        level);
    if (level != NULL)
        ddl_log_set_level((ddl_log_level)parsed);
    return DDL_OK;
}

static ddl_status read_gpu_policy(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "local_rank", "exclusive", "none", NULL }; /* as of ddl-launch */
    const char *policy = env("DDL_GPU_POLICY");
    if (policy != NULL)
        DDL_TRY(one_of("DDL_GPU_POLICY", policy, accepted, err));
    config->has_gpu = policy == NULL || strcmp(policy, "none") != 0;
    return DDL_OK;
}

/* With DDL_TRANSPORT=shm no pair of a host may be without shared memory, which is shared at the start. */
static ddl_status read_connect(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "eager", "lazy", NULL };
    const char *connect = env("DDL_CONNECT");
    if (connect == NULL)
        connect = "auto";
    DDL_TRY(one_of("DDL_CONNECT", connect, accepted, err));
    bool lazy =
        strcmp(connect, "lazy") == 0 || (strcmp(connect, "auto") == 0 && config->nranks > EAGER_RANKS);
    ddl_connect how = config->local_transport == DDL_LOCAL_SHM ? DDL_CONNECT_LAZY_REMOTE : DDL_CONNECT_LAZY;
    config->connect = lazy ? how : DDL_CONNECT_EAGER;
    return DDL_OK;
}

/* One stream is the first connection itself. */
static ddl_status read_streams(ddl_config *config, ddl_error *err)
{
    const char *streams = env("DDL_STREAMS");
    int count;
    if (streams == NULL || strcmp(streams, "auto") == 0) {
        config->nstreams = -1;
        return DDL_OK;
    }
    if (parse_int("DDL_STREAMS", streams, 1, DDL_STREAMS_MAX, &count, NULL) != DDL_OK)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STREAMS=%s: auto, or a whole number from 1 to %d is needed",
                        streams, DDL_STREAMS_MAX);
    config->nstreams = count > 1 ? count : 0;
    return DDL_OK;
}

/* Without this nothing can be told to anybody. */
static ddl_status read_place(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    const char *iface = options->interface != NULL ? options->interface : env("DDL_IFACE");
    if (options->start_timeout_ms < 0 || options->timeout_ms < 0)
        return DDL_FAIL(err, DDL_EINVAL, "a timeout in ddl_options is negative");
    DDL_TRY(read_ranks(options, config, err));
    DDL_TRY(read_security(options, config, err));
    DDL_TRY(ddl_network_parse(iface, env("DDL_ADVERTISE"), env("DDL_PORT_RANGE"), &config->network, err));
    config->network.spread = find_spread(config->nranks);
    DDL_TRY(read_timeout("DDL_START_TIMEOUT", options->start_timeout_ms, &config->start_timeout_ms, err));
    return read_store(options, config, err);
}

static ddl_status read_rest(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    DDL_TRY(read_log_level(err));
    DDL_TRY(read_gpu(config, err));
    DDL_TRY(read_transport(options, config, err));
    DDL_TRY(read_connect(config, err));
    DDL_TRY(read_streams(config, err));
    DDL_TRY(read_gpu_policy(config, err));
    DDL_TRY(read_timeouts(options, config, err));
    DDL_TRY(read_costs(config, err));
    return read_algorithms(config, err);
}

ddl_status ddl_config_read(const ddl_options *given, ddl_config *config, ddl_error *err)
{
    ddl_options options = DDL_OPTIONS_INIT;
    if (given != NULL) {
        /* An older program's struct is shorter: what it does not know stays as it is by default. */
        if (given->struct_size < offsetof(ddl_options, store) || given->struct_size > 4096)
            return DDL_FAIL(err, DDL_EINVAL, "ddl_options.struct_size is %zu; start from DDL_OPTIONS_INIT",
                            given->struct_size);
        memcpy(&options, given, given->struct_size < sizeof options ? given->struct_size : sizeof options);
    }
    memset(config, 0, sizeof *config);
    (void)!read_log_level(NULL); /* of what is told meanwhile; a wrong one is told below */
    DDL_TRY(read_place(&options, config, err));
    config->knows_place = true;
    return read_rest(&options, config, err);
}
