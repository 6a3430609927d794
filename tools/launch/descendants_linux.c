/* descendants_linux.c - adopting orphans, and reading the tree of processes from /proc. */
#define _GNU_SOURCE
#include "descendants.h"

#include "base/bytes.h"
#include "base/failpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FLAG_EXITING = 0x4 }; /* PF_EXITING of include/linux/sched.h, which proc(5) refers to */

struct process {
    pid_t pid, parent;
    bool is_exiting; /* the first of its threads */
    bool ended;      /* a zombie */
    bool below;      /* known to descend from this process */
};

bool launch_descendants_adopt(void)
{
    return !DDL_FAILPOINT("launch.subreaper") && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

void launch_die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(128 + SIGKILL); /* it was gone before that */
}

void launch_rename_process(const char *name)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

/* The process with this number; false if it is gone. */
static bool read_process(int proc, const char *number, struct process *process)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "%.20s/stat", number);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, line, sizeof line - 1);
    close(fd);
    if (bytes <= 0)
        return false;
    line[bytes] = '\0';
    /* "PID (NAME) STATE PARENT ... FLAGS ... THREADS ...", where NAME may hold anything, also ")". */
    const char *name_end = strrchr(line, ')');
    char state;
    int parent, nthreads;
    unsigned flags;
    if (name_end == NULL ||
        sscanf(name_end + 1, " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &state,
               &parent, &flags, &nthreads) != 4)
        return false;
    /* One whose first thread has ended, and not the others, is shown as a zombie too. */
    *process = (struct process){ .pid = (pid_t)atol(number),
                                 .parent = parent,
                                 .is_exiting = (flags & FLAG_EXITING) != 0,
                                 .ended = (state == 'Z' || state == 'X') && nthreads <= 1 };
    return true;
}

/* Whether numbers of processes there are those that this process knows: it may be that of another namespace
 * of them, in which any number is somebody else's. Linux before 4.1 does not tell which it is of. */
static bool is_own(int proc)
{
    char status[4096], link[32];
    const char *numbers = NULL;
    int fd = openat(proc, "self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, status, sizeof status - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (bytes > 0) {
        status[bytes] = '\0';
        numbers = strstr(status, "\nNSpid:");
    }
    if (numbers != NULL) { /* in that namespace, and in each below it */
        char *end;
        const long first = strtol(numbers + strlen("\nNSpid:"), &end, 10);
        return first == (long)getpid() && *end == '\n';
    }
    const ssize_t length = readlinkat(proc, "self", link, sizeof link - 1);
    if (length <= 0)
        return false;
    link[length] = '\0';
    return atol(link) == (long)getpid();
}

/* All processes, in *list (release with ddl_bytes_fini); false if they cannot be read. */
static bool read_processes(ddl_bytes *list)
{
    DIR *directory = DDL_FAILPOINT("launch.proc") ? NULL : opendir("/proc");
    if (directory == NULL)
        return false;
    bool complete = is_own(dirfd(directory));
    const struct dirent *entry;
    while (complete && (entry = readdir(directory)) != NULL) {
        struct process process;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            !read_process(dirfd(directory), entry->d_name, &process))
            continue;
        complete = ddl_bytes_append(list, &process, sizeof process);
    }
    closedir(directory);
    return complete;
}

static int by_pid(const void *a, const void *b)
{
    pid_t left = ((const struct process *)a)->pid, right = ((const struct process *)b)->pid;
    return (left > right) - (left < right);
}

/* Mark what descends from root; processes are sorted by number. */
static void mark_descendants(struct process *processes, size_t count, pid_t root)
{
    for (bool found = true; found;) { /* once per generation, as children mostly come after parents */
        found = false;
        for (size_t i = 0; i < count; i++) {
            if (processes[i].below)
                continue;
            struct process key = { .pid = processes[i].parent };
            const struct process *parent = bsearch(&key, processes, count, sizeof key, by_pid);
            processes[i].below = processes[i].parent == root || (parent != NULL && parent->below);
            found = found || processes[i].below;
        }
    }
}

int launch_descendants_signal(int signal, pid_t except, pid_t *pids, int most)
{
    ddl_bytes list = { NULL, 0, 0 };
    int found = -1;
    if (read_processes(&list)) {
        struct process *processes = (struct process *)(void *)list.data;
        size_t count = list.bytes / sizeof *processes;
        qsort(processes, count, sizeof *processes, by_pid);
        mark_descendants(processes, count, getpid());
        found = 0;
        for (size_t i = 0; i < count; i++) {
            if (!processes[i].below || processes[i].ended || processes[i].pid == except)
                continue;
            if (found < most)
                pids[found] = processes[i].pid;
            found++;
            if (signal != 0)
                kill(processes[i].pid, signal);
        }
    }
    ddl_bytes_fini(&list);
    return found;
}

/* Whether all of these are; with none left they were. */
static bool are_exiting(DIR *threads)
{
    struct process thread;
    const struct dirent *entry;
    while ((entry = readdir(threads)) != NULL)
        if (entry->d_name[0] != '.' && read_process(dirfd(threads), entry->d_name, &thread) &&
            !thread.is_exiting)
            return false;
    return true;
}

bool launch_is_exiting(pid_t pid)
{
    char path[48];
    const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_known = proc >= 0 && is_own(proc);
    if (proc >= 0)
        close(proc);
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *threads = is_known ? opendir(path) : NULL;
    if (threads == NULL)
        return false;
    const bool is_exiting = are_exiting(threads);
    closedir(threads);
    return is_exiting;
}
