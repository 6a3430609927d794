/* secret.c - where the secret is looked for, and how a person is asked for it. */
#include "secret.h"

#include "base/clock.h"
#include "io/guarded.h"
#include "io/host.h"
#include "io/interface.h"
#include "io/note.h"
#include "io/resolve.h"
#include "rendezvous/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum {
    APPEAR_MS = 5000,       /* for a file that node 0, started at the same time, makes on first use */
    APPEAR_SHORT_MS = 1000, /* where it hardly can, or somebody can be asked */
    RESOLVE_MS = 1000,
    LOOK_MS = 100,
    SOURCE_MOST = DDL_NOTE_BYTES - DDL_SECRET_MOST - (int)sizeof DDL_NOTE_MAGIC
};

/* ---- asking ---- */

/* What whoever sits at the terminal did about a question. */
typedef enum reply { REPLY_LINE, REPLY_INTERRUPT, REPLY_NONE } reply;

/* A line typed at the terminal, without showing it. */
static reply read_line(int terminal, char *line, size_t room, size_t *bytes)
{
    enum { INTERRUPT = 3, END = 4, BACKSPACE = 8, DELETE = 127 };
    *bytes = 0;
    for (;;) {
        unsigned char typed;
        ssize_t count = read(terminal, &typed, 1);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0 || typed == END)
            return REPLY_NONE;
        if (typed == INTERRUPT)
            return REPLY_INTERRUPT;
        if (typed == '\n' || typed == '\r')
            return REPLY_LINE;
        if (typed == BACKSPACE || typed == DELETE)
            *bytes -= *bytes > 0;
        else if (*bytes < room)
            line[(*bytes)++] = (char)typed;
    }
}

static void say(int terminal, const char *text)
{
    ssize_t written = write(terminal, text, strlen(text));
    (void)written; /* whoever cannot see it will not answer */
}

/* The terminal of whoever started us; -1 if there is none, or it is not ours to read from, in the background.
 */
static int open_terminal(void)
{
    int terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal >= 0 && tcgetpgrp(terminal) != getpgrp()) {
        close(terminal);
        terminal = -1;
    }
    return terminal;
}

/* Whoever ends us meanwhile must not leave the terminal silent. */
static struct termios to_restore;
static int silent_terminal;

static void restore_and_end(int number)
{
    tcsetattr(silent_terminal, TCSANOW, &to_restore);
    signal(number, SIG_DFL);
    raise(number);
}

static const int ends[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT };

enum { NENDS = sizeof ends / sizeof *ends };

/* What is ignored (nohup) ends nobody, and stays ignored. */
static void catch_ends(struct sigaction found[])
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = restore_and_end;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < NENDS; i++) {
        sigaction(ends[i], NULL, &found[i]);
        if (found[i].sa_handler != SIG_IGN)
            sigaction(ends[i], &action, NULL);
    }
}

static void release_ends(const struct sigaction found[])
{
    for (int i = 0; i < NENDS; i++)
        sigaction(ends[i], &found[i], NULL);
}

/* Leaves *secret NULL if there is no answer. DDL_EABORTED at Ctrl-C. */
static ddl_status ask(const launch_options *options, int terminal, ddl_secret **secret, ddl_error *err)
{
    struct termios before, silent;
    struct sigaction found[NENDS];
    char question[160];
    char *line = ddl_guarded_alloc(DDL_SECRET_MOST);
    if (line == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
    if (tcgetattr(terminal, &before) != 0) {
        ddl_guarded_free(line, DDL_SECRET_MOST);
        return DDL_OK;
    }
    silent = before;
    silent.c_lflag &= ~(tcflag_t)(ECHO | ICANON | ISIG); /* an interrupt must not leave it silent */
    to_restore = before;
    silent_terminal = terminal;
    catch_ends(found);
    tcsetattr(terminal, TCSANOW, &silent);
    snprintf(
        question, sizeof question,
        "ddl-launch: secret of node 0 (the line in its ~/.ddl/secret), at %.64s: ", options->master_addr);
    say(terminal, question);
    size_t bytes;
    ddl_status status = DDL_OK;
    reply given = read_line(terminal, line, DDL_SECRET_MOST, &bytes);
    say(terminal, "\n");
    tcsetattr(terminal, TCSANOW, &before);
    release_ends(found);
    if (given == REPLY_INTERRUPT)
        status = DDL_FAIL(err, DDL_EABORTED, "interrupted at the question for the secret");
    else if (given == REPLY_LINE && bytes > 0)
        status = ddl_secret_create((ddl_view){ line, bytes }, "that was typed", secret, err);
    ddl_guarded_free(line, DDL_SECRET_MOST);
    return status;
}

/* ---- looking ---- */

/* Wherever there is no shared home, somebody has to carry the file over; but he need not know where from. */
static void tell_of_new_file(const launch_options *options, const char *path)
{
    char command[DDL_SECRET_COPY_COMMAND];
    ddl_secret_copy_command(options->master_addr, path, command);
    fprintf(
        stderr,
        "ddl-launch: made %s, by which the nodes of your jobs know each other\n"
        "ddl-launch: nodes that do not share this home directory need that file too; on each of them run:\n"
        "    %s\n",
        path, command);
}

/* Whether node 0 is on this host, as far as can be told. */
static bool may_be_here(const char *master)
{
    ddl_address addresses[DDL_RESOLVE_MAX];
    int count = 0;
    if (ddl_resolve(master, 1, ddl_deadline_in_ms(RESOLVE_MS), addresses, &count, NULL) != DDL_OK)
        return true;
    for (int i = 0; i < count; i++)
        if (ddl_address_is_loopback(&addresses[i]) || ddl_interface_is_local(&addresses[i]))
            return true;
    return false;
}

/* Whether what node 0 makes may come to be seen here. */
static bool may_share_home(const launch_options *options, const char *path)
{
    char home[DDL_SECRET_PATH];
    snprintf(home, sizeof home, "%s", path);
    for (int i = 0; i < 2; i++) /* less .ddl/secret */
        *strrchr(home, '/') = '\0';
    return !ddl_host_keeps(home[0] != '\0' ? home : "/") || may_be_here(options->master_addr);
}

static ddl_status of_home(const launch_options *options, ddl_secret **secret, ddl_error *err)
{
    char path[DDL_SECRET_PATH] = "";
    bool made = false;
    DDL_TRY(ddl_secret_of_home(options->node_rank == 0, path, &made, secret, err));
    if (made)
        tell_of_new_file(options, path);
    if (*secret != NULL)
        return DDL_OK;
    int terminal = open_terminal();
    /* On a disk of its own there is nothing to be waited for, unless a container shares it with others. */
    int wait_ms = terminal < 0 && may_share_home(options, path) ? APPEAR_MS : APPEAR_SHORT_MS;
    ddl_deadline deadline = ddl_deadline_in_ms(wait_ms);
    ddl_status status = DDL_OK;
    while (status == DDL_OK && *secret == NULL && !ddl_deadline_passed(deadline)) {
        poll(NULL, 0, LOOK_MS);
        status = ddl_secret_of_home(false, path, NULL, secret, err);
    }
    if (status == DDL_OK && *secret == NULL && terminal >= 0)
        status = ask(options, terminal, secret, err);
    if (terminal >= 0)
        close(terminal);
    if (status == DDL_OK && *secret == NULL) {
        char command[DDL_SECRET_COPY_COMMAND];
        ddl_secret_copy_command(options->master_addr, ".ddl/secret", command);
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "node %d has no secret by which the nodes of this job know each other, and node 0 made none "
            "that is seen here within %d s%s: copy that of node 0 %.200s, name a file with --secret_file, "
            "%sor use --security off on all nodes",
            options->node_rank, wait_ms / 1000, terminal >= 0 ? ", and none was typed" : "", command,
            terminal >= 0 ? "" : "start at a terminal to be asked for it, ");
    }
    return status;
}

static ddl_status of_environment(ddl_secret **secret, ddl_error *err)
{
    char *value = getenv("DDL_SECRET");
    size_t bytes = strlen(value);
    ddl_status status = ddl_secret_create((ddl_view){ value, bytes }, "from DDL_SECRET", secret, err);
    if (status == DDL_OK)
        fputs("ddl-launch: DDL_SECRET was in the environment, where this user's other processes can read it; "
              "a file "
              "named by --secret_file is better\n",
              stderr);
    return status;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

static ddl_status look(const launch_options *options, ddl_secret **secret, ddl_error *err)
{
    if (options->secret_file != NULL)
        return ddl_secret_read(options->secret_file, secret, err);
    if (is_set("DDL_SECRET_FILE"))
        return ddl_secret_read(getenv("DDL_SECRET_FILE"), secret, err);
    if (is_set("DDL_SECRET"))
        return of_environment(secret, err);
    if (options->nnodes == 1)
        return ddl_secret_make("of this job", secret, err);
    return of_home(options, secret, err);
}

/* Also if it is not used. */
static void clear_environment(void)
{
    char *value = getenv("DDL_SECRET");
    if (value != NULL)
        ddl_clear(value, strlen(value)); /* where it is also seen from outside: /proc/PID/environ */
    unsetenv("DDL_SECRET");
}

ddl_status launch_secret_find(const launch_options *options, launch_secret *out, ddl_error *err)
{
    const char *level = options->security != NULL ? options->security : getenv("DDL_SECURITY");
    ddl_secret *secret = NULL;
    ddl_status status = DDL_OK;
    *out = (launch_secret){ NULL, 0 };
    bool is_off = level != NULL && strcmp(level, "off") == 0;
    if (!is_off)
        status = look(options, &secret, err);
    clear_environment();
    if (!is_off && status == DDL_OK)
        status = ddl_secret_name_job(&secret, options->run_id, err);
    if (is_off || status != DDL_OK)
        return status;
    ddl_view content = ddl_secret_view(secret);
    uint8_t *note = ddl_guarded_alloc(DDL_NOTE_BYTES);
    if (note == NULL) {
        ddl_secret_destroy(secret);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
    }
    int head = snprintf((char *)note, DDL_NOTE_BYTES, "%s%.*s\n", DDL_NOTE_MAGIC, SOURCE_MOST,
                        ddl_secret_source(secret));
    memcpy(note + head, content.data, content.bytes);
    *out = (launch_secret){ note, (size_t)head + content.bytes };
    ddl_secret_destroy(secret);
    return DDL_OK;
}

void launch_secret_fini(launch_secret *secret)
{
    ddl_guarded_free(secret->note, DDL_NOTE_BYTES);
    *secret = (launch_secret){ NULL, 0 };
}

ddl_status launch_secret_hand_over(const launch_secret *secret, int *fd, ddl_error *err)
{
    int low;
    *fd = -1;
    if (secret->note == NULL)
        return DDL_OK;
    DDL_TRY(ddl_note_create(secret->note, secret->bytes, &low, err));
    int high = fcntl(low, F_DUPFD_CLOEXEC, LAUNCH_SECRET_LOWEST);
    if (high >= 0)
        close(low);
    *fd = high >= 0 ? high : low; /* where there are not that many */
    return DDL_OK;
}
