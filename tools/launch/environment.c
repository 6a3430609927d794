/* environment.c - the variables of one rank. */
#include "environment.h"

#include "gpus.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <stdarg.h>
#include <string.h>

enum { MOST_SET = 32 };

/* A process's own place in another launcher's job; a trailing '*' stands for the rest of a name. */
static const char *const dropped[] = {
    "TORCHELASTIC_*",    "HOROVOD_RANK",    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_*",   "HOROVOD_CROSS_*", "HOROVOD_GLOO_RENDEZVOUS_*",
    "OMPI_COMM_WORLD_*", "PMIX_*",          "PMI_*",
    "MPI_LOCALRANKID",   "MPI_LOCALNRANKS", "MV2_COMM_WORLD_*",
    "MVP_COMM_WORLD_*",  "PALS_RANKID",     "PALS_LOCAL_*",
    "JSM_NAMESPACE_*",   "FLUX_TASK_*",     "SLURM_PROCID",
    "SLURM_LOCALID",     "DDL_SECRET",      "DDL_SECRET_FD",
    "DDL_SECRET_FILE",
};

bool launch_environment_drops(const char *entry)
{
    size_t name_bytes = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++) {
        size_t bytes = strlen(dropped[i]);
        bool open_ended = dropped[i][bytes - 1] == '*';
        if (open_ended ? strncmp(entry, dropped[i], bytes - 1) == 0
                       : name_bytes == bytes && strncmp(entry, dropped[i], bytes) == 0)
            return true;
    }
    return false;
}

static bool same_variable(const char *entry, const char *other)
{
    size_t bytes = strcspn(entry, "=");
    return strncmp(entry, other, bytes) == 0 && other[bytes] == '=' && entry[bytes] == '=';
}

static bool is_set(const launch_environment *environment, const char *entry)
{
    for (int i = 0; i < environment->nset; i++)
        if (same_variable(environment->entries[i], entry))
            return true;
    return false;
}

static bool inherits(char *const *inherited, const char *name)
{
    size_t bytes = strlen(name);
    for (; *inherited != NULL; inherited++)
        if (strncmp(*inherited, name, bytes) == 0 && (*inherited)[bytes] == '=')
            return true;
    return false;
}

/* Add "NAME=value"; false when out of memory. */
__attribute__((format(printf, 2, 3))) static bool set(launch_environment *environment, const char *format,
                                                      ...)
{
    DDL_ASSERT(environment->nset < MOST_SET);
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *entry = ddl_text_copy(text);
    if (entry == NULL)
        return false;
    environment->entries[environment->nset++] = entry;
    return true;
}

static bool set_text(launch_environment *environment, const char *name, const char *value)
{
    DDL_ASSERT(environment->nset < MOST_SET);
    size_t bytes = strlen(name) + 1 + strlen(value) + 1;
    char *entry = ddl_alloc(bytes);
    if (entry == NULL)
        return false;
    snprintf(entry, bytes, "%s=%s", name, value);
    environment->entries[environment->nset++] = entry;
    return true;
}

static const char *value_of(char *const *inherited, const char *name)
{
    size_t bytes = strlen(name);
    for (; *inherited != NULL; inherited++)
        if (strncmp(*inherited, name, bytes) == 0 && (*inherited)[bytes] == '=')
            return *inherited + bytes + 1;
    return NULL;
}

/* Of what ddl-launch itself sees, one for each rank; there are enough, or the options would have been
 * refused. */
static bool set_gpus(const launch_options *options, int local_rank, char *const *inherited,
                     launch_environment *to)
{
    const char *visible = value_of(inherited, "CUDA_VISIBLE_DEVICES");
    const char *policy = launch_gpu_policy_name(options->gpu_policy);
    size_t bytes = 0;
    if (options->cpu_only && !set(to, "CUDA_VISIBLE_DEVICES="))
        return false;
    if (policy != NULL && !set(to, "DDL_GPU_POLICY=%s", policy))
        return false;
    if (options->gpu_policy != LAUNCH_GPU_EXCLUSIVE)
        return true;
    if (visible == NULL)
        return set(to, "CUDA_VISIBLE_DEVICES=%d", local_rank);
    const char *name = launch_gpu_name(visible, local_rank, &bytes);
    return set(to, "CUDA_VISIBLE_DEVICES=%.*s", (int)bytes, name);
}

static bool set_all(const launch_options *options, int local_rank, int port, int cpus, int secret_fd,
                    char *const *inherited, launch_environment *to)
{
    int nlocal = options->nproc_per_node, node = options->node_rank, nodes = options->nnodes;
    int rank = node * nlocal + local_rank, size = nodes * nlocal;
    int threads = cpus / nlocal > 0 ? cpus / nlocal : 1;
    return set(to, "RANK=%d", rank) && set(to, "WORLD_SIZE=%d", size) &&
           set(to, "LOCAL_RANK=%d", local_rank) && set(to, "LOCAL_WORLD_SIZE=%d", nlocal) &&
           set(to, "NODE_RANK=%d", node) && set(to, "GROUP_RANK=%d", node) &&
           set(to, "GROUP_WORLD_SIZE=%d", nodes) && set_text(to, "MASTER_ADDR", options->master_addr) &&
           set(to, "MASTER_PORT=%d", port) && set(to, "ROLE_RANK=%d", rank) &&
           set(to, "ROLE_WORLD_SIZE=%d", size) && set_text(to, "ROLE_NAME", options->role) &&
           set_text(to, "TORCHELASTIC_RUN_ID", options->run_id != NULL ? options->run_id : "none") &&
           set(to, "TORCHELASTIC_RESTART_COUNT=0") && set(to, "TORCHELASTIC_MAX_RESTARTS=0") &&
           set(to, "DDL_LAUNCH=%d/%d", rank, size) &&
           (options->security == NULL || set_text(to, "DDL_SECURITY", options->security)) &&
           (secret_fd < 0 || set(to, "DDL_SECRET_FD=%d", secret_fd)) &&
           set_gpus(options, local_rank, inherited, to) &&
           (inherits(inherited, "OMP_NUM_THREADS") || set(to, "OMP_NUM_THREADS=%d", threads)) &&
           /* Python holds back output to a pipe until 8 KiB have come together. */
           (inherits(inherited, "PYTHONUNBUFFERED") || set(to, "PYTHONUNBUFFERED=1"));
}

ddl_status launch_environment_create(const launch_options *options, int local_rank, int port, int cpus,
                                     int secret_fd, char *const *inherited, launch_environment *environment,
                                     ddl_error *err)
{
    DDL_ASSERT(local_rank >= 0);
    DDL_ASSERT(local_rank < options->nproc_per_node);
    size_t ninherited = 0;
    while (inherited[ninherited] != NULL)
        ninherited++;
    launch_environment made = { ddl_alloc_array(ninherited + MOST_SET + 1, sizeof(char *)), 0 };
    if (made.entries == NULL || !set_all(options, local_rank, port, cpus, secret_fd, inherited, &made)) {
        launch_environment_destroy(&made);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the environment of a rank");
    }
    char **end = made.entries + made.nset;
    for (size_t i = 0; i < ninherited; i++)
        if (!launch_environment_drops(inherited[i]) && !is_set(&made, inherited[i]))
            *end++ = inherited[i];
    *environment = made;
    return DDL_OK;
}

void launch_environment_destroy(launch_environment *environment)
{
    for (int i = 0; i < environment->nset; i++)
        ddl_free(environment->entries[i]);
    ddl_free(environment->entries);
    *environment = (launch_environment){ NULL, 0 };
}
