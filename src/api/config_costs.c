/* config_costs.c - the constants of the cost model: defaults for this machine, and what a profile says. */
#include "api/config_parts.h"

#include "backend/profile.h"
#include "base/aside.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "io/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pieces of messages that go through shared memory, where asking for each costs little: what is copied in and
 * out, and reduced, is to stay in a cache of 1 MiB. */
enum { LANE_PIECE_BYTES = 256 * 1024, LONG_LANES_BYTES = 4 * 1024 * 1024 };

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

struct profile {
    char path[4096];
    char text[DDL_PROFILE_LIMIT];
    ddl_cost_model model; /* as it is, and then with what the file says */
};

static ddl_status read_profile(void *state, ddl_error *err)
{
    struct profile *profile = state;
    const char *path = profile->path;
    int fd = -1, read_errno = 0;
    size_t bytes = 0;
    DDL_TRY(open_profile(path, &fd, err));
    for (ssize_t count = 1; count > 0 && bytes < DDL_PROFILE_LIMIT; bytes += (size_t)count) {
        count = DDL_FAILPOINT_OS("config.read", EIO)
                    ? -1
                    : read(fd, profile->text + bytes, DDL_PROFILE_LIMIT - bytes);
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
    return ddl_profile_parse(name, (ddl_view){ profile->text, bytes }, &profile->model, err);
}

/* Where a file server does not answer, until the time to start is over. */
static ddl_status ask_profile(const ddl_config *config, const char *path, ddl_cost_model *model,
                              ddl_error *err)
{
    char what[256];
    bool lost;
    if (strlen(path) >= sizeof((struct profile *)NULL)->path)
        return DDL_FAIL_OS(err, DDL_ECONFIG, ENAMETOOLONG, "DDL_PROFILE=%.200s cannot be opened", path);
    struct profile *profile = ddl_alloc(sizeof *profile);
    if (profile == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a cost profile");
    snprintf(profile->path, sizeof profile->path, "%s", path);
    snprintf(what, sizeof what, "reading DDL_PROFILE=%.200s", path);
    profile->model = *model;
    const ddl_aside reading = { read_profile, ddl_free, profile, what };
    const ddl_status status = ddl_aside_run(&reading, config->start_until, &lost, err);
    if (lost)
        return ddl_error_blame(err, config->rank);
    if (status == DDL_OK)
        *model = profile->model;
    ddl_free(profile);
    return status;
}

ddl_status ddl_config_read_costs(ddl_config *config, ddl_error *err)
{
    const char *path = ddl_config_env("DDL_PROFILE");
    ddl_cost_model model = ddl_cost_model_default(1);
#ifndef DDL_PORTABLE /* which has no shared memory */
    if (config->local_transport != DDL_LOCAL_TCP)
        model.piece_bytes = LANE_PIECE_BYTES;
    if (ddl_host_cores_are_far())
        model.pull_bytes = 1; /* all that may be; the small ones never are */
    if (ddl_host_lines_return_late())
        model.lane_bytes = LONG_LANES_BYTES;
#endif
    if (path != NULL && config->rank == 0)
        DDL_TRY(ask_profile(config, path, &model, err));
    ddl_cost_model_pack(&model, config->costs);
    return DDL_OK;
}
