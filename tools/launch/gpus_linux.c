/* gpus_linux.c - asks the CUDA driver in a child, which the launcher must not have in itself: it makes
 * threads. */
#define _GNU_SOURCE
#include "gpus.h"

#include "base/clock.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 20000 /* it may have to wake GPUs up */, NO_ANSWER = -1, SUCCESS = 0, NO_DEVICE = 100 };

/* ---- the driver ---- */

typedef int init_function(unsigned flags);
typedef int count_function(int *count);

static void *find(void *driver, const char *name)
{
    return driver != NULL ? dlsym(driver, name) : NULL;
}

static int ask_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *init_symbol = find(driver, "cuInit"), *count_symbol = find(driver, "cuDeviceGetCount");
    init_function *init;
    count_function *count;
    int result, gpus = 0;
    /* POSIX has it so: an object pointer that is one to a function. */
    memcpy(&init, &init_symbol, sizeof init);
    memcpy(&count, &count_symbol, sizeof count);
    if (init == NULL || count == NULL)
        return NO_ANSWER;
    if ((result = init(0)) == NO_DEVICE)
        return 0;
    return result == SUCCESS && count(&gpus) == SUCCESS ? gpus : NO_ANSWER;
}

static int read_answer(int fd)
{
    struct pollfd answer = { .fd = fd, .events = POLLIN };
    ddl_deadline deadline = ddl_deadline_in_ms(ANSWER_MS);
    int gpus, ready;
    do
        ready = poll(&answer, 1, ddl_deadline_left_ms(deadline));
    while (ready < 0 && errno == EINTR);
    return ready > 0 && read(fd, &gpus, sizeof gpus) == (ssize_t)sizeof gpus ? gpus : NO_ANSWER;
}

static int ask_in_child(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NO_ANSWER;
    pid_t child = fork();
    if (child == 0) {
        int gpus = ask_driver();
        _exit(write(ends[1], &gpus, sizeof gpus) == (ssize_t)sizeof gpus ? 0 : 1);
    }
    close(ends[1]);
    int gpus = child > 0 ? read_answer(ends[0]) : NO_ANSWER;
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL); /* it has said what it had to say, or hangs */
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    return gpus;
}

/* ---- the kernel ---- */

int launch_gpu_folders(const char *path)
{
    DIR *folder = opendir(path);
    int found = 0;
    if (folder == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        found += entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

int launch_gpus(void)
{
    int gpus = ask_in_child();
    if (gpus != NO_ANSWER)
        return gpus;
    gpus = launch_gpu_folders("/proc/driver/nvidia/gpus");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL && launch_gpu_names(visible) < gpus)
        gpus = launch_gpu_names(visible);
    return gpus;
}
