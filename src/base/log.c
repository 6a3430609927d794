/* log.c - which lines there are, and those for stderr. */
#include "base/log.h"

#include "base/clock.h"
#include "base/crier.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 500 /* with who reads stderr; then the line is lost */
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* who has it writes */
static atomic_int current_level = DDL_LOG_INFO;

static const char *const level_names[] = { "error", "warning", "info", "debug", "trace" };

static bool take_turn(void)
{
    for (int ms = 0; pthread_mutex_trylock(&turn) != 0; ms++) {
        if (ms == PATIENCE_MS)
            return false;
        ddl_pause_us(1000);
    }
    return true;
}

void ddl_set_log(ddl_log_sink *sink, void *arg)
{
    ddl_crier_set(sink, arg);
}

void ddl_log_set_level(ddl_log_level level)
{
    atomic_store(&current_level, (int)level);
}

int ddl_log_parse_level(const char *name)
{
    for (int level = DDL_LOG_ERROR; level <= DDL_LOG_TRACE; level++)
        if (strcmp(name, level_names[level]) == 0)
            return level;
    return -1;
}

/* In one piece, which lines of other threads do not break; never waits for long. */
static void write_if_read(const char *text, size_t bytes)
{
    struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
    const ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    int ready;
    while ((ready = poll(&out, 1, ddl_deadline_left_ms(deadline))) < 0 && errno == EINTR)
        continue;
    while (ready > 0 && write(STDERR_FILENO, text, bytes) < 0 && errno == EINTR)
        continue;
}

/* Where nobody reads stderr any more that is not the program's end: a signal of the write is taken back. */
static void write_to_stderr(const char *text, size_t bytes)
{
    sigset_t broken, before, pending;
    int taken;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    write_if_read(text, bytes);
    sigpending(&pending);
    if (!was_pending && sigismember(&pending, SIGPIPE) == 1)
        sigwait(&broken, &taken);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ddl_log(ddl_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load(&current_level))
        return;
    const int os_errno = errno;
    char line[DDL_CRIER_LINE] = "ddl: ";
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (!ddl_crier_tell(line) && take_turn()) {
        used = strlen(line);
        line[used++] = '\n';
        write_to_stderr(line, used);
        pthread_mutex_unlock(&turn);
    }
    errno = os_errno;
}
