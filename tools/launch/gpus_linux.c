/* gpus_linux.c - asks the CUDA driver in a child, which the launcher must not have in itself: it makes
 * threads, and may crash or hang. */
#define _GNU_SOURCE
#include "gpus.h"

#include "signals.h"

#include "base/clock.h"
#include "base/failpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"

enum {
    NOTICE_MS = 2000,  /* until somebody who waits should know why */
    ANSWER_MS = 20000, /* it may have to wake GPUs up */
    END_MS = 1000,     /* a process that hangs in the kernel's driver cannot be killed */
    SUCCESS = 0,
    NO_DEVICE = 100
};

__attribute__((format(printf, 1, 2))) static launch_gpu_answer no_answer(const char *format, ...)
{
    launch_gpu_answer answer = { .gpus = 0 };
    va_list values;
    va_start(values, format);
    vsnprintf(answer.failure, sizeof answer.failure, format, values);
    va_end(values);
    return answer;
}

/* ---- in the child ---- */

typedef int init_function(unsigned flags);
typedef int count_function(int *count);
typedef int name_function(int error, const char **name);

/* POSIX has it so: an object pointer that is one to a function. */
static bool find(void *driver, const char *name, void *function)
{
    void *symbol = dlsym(driver, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static launch_gpu_answer driver_failed(void *driver, const char *call, int error)
{
    name_function *name;
    const char *text = NULL;
    bool named = find(driver, "cuGetErrorName", &name) && name(error, &text) == SUCCESS && text != NULL;
    return no_answer("the CUDA driver failed (%s: error %d%s%.80s)", call, error, named ? ", " : "",
                     named ? text : "");
}

static launch_gpu_answer ask_driver(void)
{
    void *driver = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    init_function *init;
    count_function *count;
    int error, gpus = 0;
    if (driver == NULL)
        return no_answer("there is no CUDA driver (%s)", dlerror());
    if (!find(driver, "cuInit", &init) || !find(driver, "cuDeviceGetCount", &count))
        return no_answer("the CUDA driver failed (%s has no cuInit or cuDeviceGetCount)", LIBRARY);
    if ((error = init(0)) != SUCCESS && error != NO_DEVICE)
        return driver_failed(driver, "cuInit", error);
    if (error == SUCCESS && (error = count(&gpus)) != SUCCESS)
        return driver_failed(driver, "cuDeviceGetCount", error);
    return (launch_gpu_answer){ .gpus = gpus };
}

/* Whatever the driver does, this process does not outlive the launcher. */
static void answer_launcher(int fd, pid_t launcher)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher)
        _exit(1);
    launch_gpu_answer answer = ask_driver();
    _exit(write(fd, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
}

/* ---- in the launcher ---- */

static bool is_readable(int fd, int64_t within_ms)
{
    struct pollfd end = { .fd = fd, .events = POLLIN };
    bool is_late = DDL_FAILPOINT("launch.gpus_late") || DDL_FAILPOINT("launch.gpus_unkillable");
    ddl_deadline deadline = ddl_deadline_in_ms(is_late ? 0 : within_ms);
    int ready;
    do
        ready = poll(&end, 1, ddl_deadline_left_ms(deadline));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* False: it has not said anything in time. */
static bool await_answer(int fd)
{
    if (is_readable(fd, NOTICE_MS))
        return true;
    fprintf(stderr, "ddl-launch: waiting for the CUDA driver to count GPUs, %d s at most\n",
            ANSWER_MS / 1000);
    return is_readable(fd, ANSWER_MS - NOTICE_MS);
}

/* False: it has not ended in time. */
static bool await_end(pid_t child, int *status)
{
    ddl_deadline deadline = ddl_deadline_in_ms(DDL_FAILPOINT("launch.gpus_unkillable") ? 0 : END_MS);
    pid_t ended;
    while ((ended = waitpid(child, status, WNOHANG)) == 0 && !ddl_deadline_passed(deadline))
        poll(NULL, 0, 1);
    return ended == child;
}

/* It is not needed any more. One that cannot be killed is left alone: it dies as soon as the kernel lets it.
 */
static void end(pid_t child)
{
    int status;
    if (!DDL_FAILPOINT("launch.gpus_unkillable"))
        kill(child, SIGKILL);
    await_end(child, &status);
}

/* It closed its end without an answer, as processes do when they end. */
static launch_gpu_answer tell_end(pid_t child)
{
    char name[32];
    int status;
    if (!await_end(child, &status)) {
        end(child);
        return no_answer("the CUDA driver failed (it closed the pipe to ddl-launch)");
    }
    if (WIFSIGNALED(status))
        return no_answer("the CUDA driver failed (its process was killed by %s)",
                         launch_signal_name(WTERMSIG(status), name, sizeof name));
    return no_answer("the CUDA driver failed (it ended its process with exit code %d)", WEXITSTATUS(status));
}

static launch_gpu_answer hear(pid_t child, int fd)
{
    launch_gpu_answer answer;
    if (!await_answer(fd)) {
        end(child);
        return no_answer("the CUDA driver failed (no answer within %d s)", ANSWER_MS / 1000);
    }
    if (read(fd, &answer, sizeof answer) != (ssize_t)sizeof answer)
        return tell_end(child);
    end(child);
    return answer;
}

launch_gpu_answer launch_gpus(void)
{
    int ends[2];
    pid_t launcher = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return no_answer("the CUDA driver could not be asked (cannot make a pipe: %s)", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        answer_launcher(ends[1], launcher);
    close(ends[1]);
    launch_gpu_answer answer =
        child > 0
            ? hear(child, ends[0])
            : no_answer("the CUDA driver could not be asked (cannot start a process: %s)", strerror(errno));
    close(ends[0]);
    return answer;
}
