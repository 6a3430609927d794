/* signals.c - handlers that write a byte, and the table of names. */
#include "signals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const int forwarded[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT };

enum { NFORWARDED = sizeof forwarded / sizeof forwarded[0] };

static volatile sig_atomic_t handler_fd = -1;
static volatile sig_atomic_t came[NSIG];

static void write_byte(int signal)
{
    unsigned char byte = (unsigned char)signal;
    /* The descriptor does not block; when it is full there is more to be told than anybody wants to know. */
    ssize_t written = write(handler_fd, &byte, 1);
    (void)written;
}

/*
 * As if it had no handler: where no shell could continue us, in an orphaned process group or as the first
 * process of a container, the kernel discards the signal, which it would not do with SIGSTOP.
 */
static void stop_by_default(void)
{
    struct sigaction by_default, ours;
    sigset_t stop, before;
    memset(&by_default, 0, sizeof by_default);
    by_default.sa_handler = SIG_DFL;
    sigemptyset(&by_default.sa_mask);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaction(SIGTSTP, &by_default, &ours);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, &before); /* here it comes */
    sigprocmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGTSTP, &ours, NULL);
    write_byte(SIGCONT); /* if it was discarded nobody else says that the ranks are to go on */
}

static void write_number(int signal)
{
    int saved = errno;
    came[signal] = 1;
    write_byte(signal);
    if (signal == SIGTSTP)
        stop_by_default();
    errno = saved;
}

static void set_action(int signal, void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGCONT); /* the ranks go on once the handler of SIGTSTP is there again */
    sigaction(signal, &action, NULL);
}

void launch_signals_note(launch_signals *found)
{
    sigemptyset(&found->ignored);
    for (int i = 0; i <= NFORWARDED; i++) {
        int signal = i < NFORWARDED ? forwarded[i] : SIGPIPE;
        struct sigaction action;
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(&found->ignored, signal);
    }
    /* What ranks are asked to end with reaches them, whoever has held it back here. */
    sigprocmask(SIG_BLOCK, NULL, &found->blocked);
    for (int i = 0; i < NFORWARDED; i++)
        sigdelset(&found->blocked, forwarded[i]);
    set_action(SIGCHLD, SIG_DFL, 0);
}

void launch_signals_forward(const launch_signals *found, int to)
{
    handler_fd = to;
    set_action(SIGPIPE, SIG_IGN, 0); /* that a handler may write when nobody reads any more */
    for (int i = 0; i < NFORWARDED; i++)
        if (sigismember(&found->ignored, forwarded[i]) != 1)
            set_action(forwarded[i], write_number, SA_RESTART);
}

bool launch_signals_came(int signal)
{
    return came[signal] != 0;
}

void launch_signals_end_by(int signal)
{
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max > 0) {
        core.rlim_cur = 1; /* nothing fits in; 0 would not hold back a program that takes cores from a pipe */
        setrlimit(RLIMIT_CORE, &core);
    }
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    set_action(signal, SIG_DFL, 0);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &only, NULL); /* here it comes, where it was held back */
}

void launch_signals_children(int to)
{
    handler_fd = to;
    for (int i = 0; i < NFORWARDED; i++) {
        set_action(forwarded[i], SIG_IGN, 0);
        came[forwarded[i]] = 0; /* to its parent */
    }
    set_action(SIGPIPE, SIG_IGN, 0);
    set_action(SIGCHLD, write_number, SA_RESTART | SA_NOCLDSTOP);
    sigset_t too_large;
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    sigprocmask(SIG_SETMASK, &too_large, NULL);
}

void launch_signals_restore(const launch_signals *found)
{
    for (int i = 0; i <= NFORWARDED; i++) {
        int signal = i < NFORWARDED ? forwarded[i] : SIGPIPE;
        set_action(signal, sigismember(&found->ignored, signal) == 1 ? SIG_IGN : SIG_DFL, 0);
    }
    set_action(SIGCHLD, SIG_DFL, 0);
    sigprocmask(SIG_SETMASK, &found->blocked, NULL);
}

const char *launch_signal_name(int signal, char *name, size_t bytes)
{
#define NAMED(signal)   \
    {                   \
        signal, #signal \
    }
    static const struct {
        int signal;
        const char *name;
    } names[] = {
        NAMED(SIGHUP),  NAMED(SIGINT),  NAMED(SIGQUIT), NAMED(SIGILL),  NAMED(SIGTRAP),
        NAMED(SIGABRT), NAMED(SIGBUS),  NAMED(SIGFPE),  NAMED(SIGKILL), NAMED(SIGUSR1),
        NAMED(SIGSEGV), NAMED(SIGUSR2), NAMED(SIGPIPE), NAMED(SIGALRM), NAMED(SIGTERM),
        NAMED(SIGXCPU), NAMED(SIGXFSZ), NAMED(SIGSYS),  NAMED(SIGPROF), NAMED(SIGIO),
    };
#undef NAMED
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].signal == signal)
            return names[i].name;
    snprintf(name, bytes, "signal %d", signal);
    return name;
}
