/* host_posix.c - the same facts as host_linux.c, as far as POSIX alone can tell them. */
#include "io/host.h"

#include "base/failpoint.h"

#include <fcntl.h>
#include <unistd.h>

void ddl_host_id(uint8_t id[16])
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    ddl_host_id_of(name, id);
    ddl_host_id_mark(id, true);
}

int ddl_host_cpu(void)
{
    return -1;
}

int ddl_host_list_cpus(int cpus[], int most)
{
    (void)cpus;
    (void)most;
    return 0;
}

int ddl_host_thread(void)
{
    return 0;
}

void ddl_host_move_thread(int thread, int cpu)
{
    (void)thread;
    (void)cpu;
}

uint16_t ddl_host_cpus(uint16_t *first)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    if (first != NULL)
        *first = 0;
    return count < 1 ? 1 : count > UINT16_MAX ? UINT16_MAX : (uint16_t)count;
}

ddl_status ddl_host_random(void *data, size_t bytes, ddl_error *err)
{
    int fd = -1;
    if (DDL_FAILPOINT_OS("io.random", ENOENT) || (fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC)) < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot open /dev/urandom");
    for (size_t have = 0; have < bytes;) {
        ssize_t count = read(fd, (uint8_t *)data + have, bytes - have);
        if (count == 0 || (count < 0 && errno != EINTR)) {
            ddl_status status =
                DDL_FAIL_OS(err, DDL_ERESOURCE, count == 0 ? EIO : errno, "cannot read /dev/urandom");
            close(fd);
            return status;
        }
        if (count > 0)
            have += (size_t)count;
    }
    close(fd);
    return DDL_OK;
}

bool ddl_host_keeps(const char *folder)
{
    (void)folder;
    return false;
}

ddl_status ddl_host_need_memory(uint64_t bytes, ddl_error *err)
{
    (void)bytes;
    (void)err;
    return DDL_OK;
}

bool ddl_host_cores_are_far(void)
{
    return false; /* nor is there another way */
}

bool ddl_host_lines_return_late(void)
{
    return false;
}
