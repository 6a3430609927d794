/* options.c - the table of flags, its parser and its help text. */
#include "options.h"

#include "foreign_flags.h"
#include "gpus.h"
#include "options_guess.h"

#include "base/assert.h"
#include "base/decimal.h"
#include "io/host.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool read_whole(const char *value, long least, long most, int *number)
{
    char *end;
    errno = 0;
    long parsed = strtol(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno != 0 || parsed < least || parsed > most)
        return false;
    *number = (int)parsed;
    return true;
}

static bool read_word(const char *value, const char **word)
{
    for (const char *at = value; *at != '\0'; at++)
        if (isspace((unsigned char)*at) || iscntrl((unsigned char)*at))
            return false;
    *word = value;
    return value[0] != '\0';
}

static bool read_nproc(launch_options *options, const char *value)
{
    static const struct {
        const char *name;
        launch_nproc_rule rule;
    } names[] = { { "auto", LAUNCH_NPROC_AUTO }, { "cpu", LAUNCH_NPROC_CPUS }, { "gpu", LAUNCH_NPROC_GPUS } };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(value, names[i].name) == 0) {
            options->nproc_rule = names[i].rule;
            return true;
        }
    options->nproc_rule = LAUNCH_NPROC_NUMBER;
    return read_whole(value, 1, LAUNCH_MAX_NPROC, &options->nproc_per_node);
}

static bool read_nnodes(launch_options *options, const char *value)
{
    options->nnodes_given = true;
    return read_whole(value, 1, LAUNCH_MAX_NODES, &options->nnodes);
}

static const char *const gpu_policies[] = { NULL, "local_rank", "exclusive", "none" };

const char *launch_gpu_policy_name(launch_gpu_policy policy)
{
    return gpu_policies[policy];
}

static bool read_gpu_policy(launch_options *options, const char *value)
{
    for (int i = LAUNCH_GPU_LOCAL_RANK; i <= LAUNCH_GPU_NONE; i++)
        if (strcmp(value, gpu_policies[i]) == 0) {
            options->gpu_policy = (launch_gpu_policy)i;
            return true;
        }
    return false;
}

static bool read_security(launch_options *options, const char *value)
{
    options->security = value;
    return strcmp(value, "auth") == 0 || strcmp(value, "tls") == 0 || strcmp(value, "off") == 0;
}

static bool read_on_failure(launch_options *options, const char *value)
{
    options->stop_on_failure = strcmp(value, "stop") == 0;
    return options->stop_on_failure || strcmp(value, "continue") == 0;
}

static bool read_grace(launch_options *options, const char *value)
{
    return ddl_duration_parse(value, &options->grace_ms);
}

static bool read_timeout(launch_options *options, const char *value)
{
    return ddl_duration_parse(value, &options->timeout_ms) && options->timeout_ms > 0;
}

static bool read_run_id(launch_options *options, const char *value)
{
    if (strcmp(value, "none") == 0) {
        options->run_id = NULL;
        return true;
    }
    return read_word(value, &options->run_id);
}

static bool read_max_restarts(launch_options *options, const char *value)
{
    (void)options;
    return strcmp(value, "0") == 0;
}

enum kind {
    FLAG_IGNORED, /* takes no value, as the next two */
    FLAG_BOOL,
    FLAG_ACTION,
    FLAG_TEXT, /* anything but nothing */
    FLAG_WORD,
    FLAG_WHOLE,
    FLAG_CALL, /* a function reads it */
};

static const struct flag {
    const char *name;     /* without dashes, with underscores */
    const char *shorts;   /* other spellings, each between blanks; "" if none */
    const char *value;    /* what --help calls its value; NULL if it takes none */
    const char *accepted; /* which values, in words; NULL if it takes none */
    const char *help;
    enum kind kind;
    size_t offset; /* in launch_options: of the bool, text or int that it sets */
    int least, most;
    launch_action action;
    bool (*read)(launch_options *options, const char *value); /* false: it does not accept that value */
} flags[] = {
#define SETS(kind_, field) .kind = FLAG_##kind_, .offset = offsetof(launch_options, field)
#define ACTS(action_)      .kind = FLAG_ACTION, .action = action_
#define CALLS(function)    .kind = FLAG_CALL, .read = function
    { "nproc_per_node", " -np -n ", "N|auto|gpu|cpu",
      "a number from 1 to 4096, gpu (the GPUs), cpu (the usable CPUs), or auto (the GPUs if there are any, "
      "else the "
      "CPUs)",
      "processes to start on this node; auto: as many as it has GPUs, or usable CPUs without any (1)",
      CALLS(read_nproc) },
    { "nnodes", "", "N", "a number from 1 to 65536", "nodes of the job; ddl-launch runs once on each (1)",
      CALLS(read_nnodes) },
    { "node_rank", "", "I", "a number from 0 to nnodes - 1",
      "which of the nodes this is; needed with several", SETS(WHOLE, node_rank), .least = 0,
      .most = LAUNCH_MAX_NODES - 1 },
    { "master_addr", "", "ADDRESS", "a host name or address",
      "where rank 0 can be reached; needed with several nodes (127.0.0.1 with one)",
      SETS(WORD, master_addr) },
    { "master_port", "", "PORT", "a number from 1 to 65535, or with one node 0 for any free port",
      "port on which rank 0 can be reached (one node: any free one; several: 29500)",
      SETS(WHOLE, master_port), .least = 0, .most = 65535 },
    { "standalone", "", NULL, NULL, "one node, with an address and port of its own; the default",
      SETS(BOOL, standalone) },
    { "gloo", "", NULL, NULL, "CPU only: hide GPUs from the processes (CUDA_VISIBLE_DEVICES is empty)",
      SETS(BOOL, cpu_only) },
    { "gpu_policy", "", "WHICH", "local_rank, exclusive or none",
      "the GPUs of a process. local_rank: it sees all, and LOCAL_RANK tells ddl_local_device its own (the "
      "default); "
      "exclusive: it sees its own alone; none: it sees all, and has none of its own",
      CALLS(read_gpu_policy) },
    { "on_failure", "", "stop|continue", "stop or continue",
      "when a process fails: stop the others after 1 s (the default), or let them go on",
      CALLS(read_on_failure) },
    { "grace", "", "SECONDS", "seconds, or a number with a unit: 500ms, 5min",
      "time between asking a process to end (SIGTERM) and killing it (10)", CALLS(read_grace) },
    { "timeout", "", "SECONDS", "seconds above 0, or a number with a unit: 500ms, 5min",
      "stop the job after this time, with exit code 124 (no limit)", CALLS(read_timeout) },
    { "no_prefix", "", NULL, NULL, "pass output on without \"[rank] \" before each line",
      SETS(BOOL, no_prefix) },
    { "log_dir", "", "DIR", "the name of a directory", "also write DIR/rank_N/stdout and DIR/rank_N/stderr",
      SETS(TEXT, log_dir) },
    { "security", "", "auth|tls|off", "auth, tls or off",
      "whether ranks prove to each other that they belong to the job, and encrypt (auth, or as DDL_SECURITY "
      "says)",
      CALLS(read_security) },
    { "secret_file", "", "FILE", "the name of a file",
      "the secret with which they do; one node: made by itself; several: ~/.ddl/secret of this user",
      SETS(TEXT, secret_file) },
    { "role", "", "NAME", "a word", "value of ROLE_NAME (default)", SETS(WORD, role) },
    { "rdzv_id", "", "ID", "a word",
      "the job's name, the same on every node, by which jobs with one address and one secret are told apart; "
      "value of TORCHELASTIC_RUN_ID (none)",
      CALLS(read_run_id) },
    { "max_restarts", "", "0", "0: a job that failed is not restarted", "accepted for scripts that pass it",
      CALLS(read_max_restarts) },
    { "no_python", "", NULL, NULL, "accepted for scripts that pass it: PROGRAM is always run as it is",
      .kind = FLAG_IGNORED },
    { "check", "", NULL, NULL,
      "instead of a PROGRAM: look whether a job started so could run, and how fast its links are",
      SETS(BOOL, check) },
    { "dry_run", "", NULL, NULL, "print the environment and command of each process, and start nothing",
      ACTS(LAUNCH_ACTION_DRY_RUN) },
    { "help", " -h ", NULL, NULL, "this text", ACTS(LAUNCH_ACTION_HELP) },
    { "version", " -V ", NULL, NULL, "the version", ACTS(LAUNCH_ACTION_VERSION) },
#undef SETS
#undef ACTS
#undef CALLS
};

enum { NFLAGS = sizeof flags / sizeof flags[0] };

/* Whether the first bytes of text are name, with '-' and '_' taken as the same letter. */
static bool same_name(const char *text, size_t bytes, const char *name)
{
    if (strlen(name) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != name[i] && !(text[i] == '-' && name[i] == '_'))
            return false;
    return true;
}

static bool among(const char *words, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at++)
        if (at > words && at[-1] == ' ' && at[bytes] == ' ')
            return true;
    return false;
}

/* The flag that argument spells, and in *value what follows its '=' (else NULL). NULL: no such flag. */
static const struct flag *find_flag(const char *argument, const char **value)
{
    *value = NULL;
    if (strncmp(argument, "--", 2) != 0) { /* -n 4, -n4, -n=4 */
        char letters[8];
        size_t bytes = strcspn(argument, "=0123456789");
        if (bytes >= sizeof letters)
            return NULL;
        snprintf(letters, sizeof letters, "%.*s", (int)bytes, argument);
        for (int i = 0; i < NFLAGS; i++)
            if (among(flags[i].shorts, letters)) {
                *value = argument[bytes] == '\0' ? NULL : argument + bytes + (argument[bytes] == '=');
                return &flags[i];
            }
        return NULL;
    }
    const char *name = argument + 2;
    size_t bytes = strcspn(name, "=");
    for (int i = 0; i < NFLAGS; i++) {
        if (same_name(name, bytes, flags[i].name)) {
            *value = name[bytes] == '=' ? name + bytes + 1 : NULL;
            return &flags[i];
        }
    }
    return NULL;
}

static ddl_status unknown_flag(const char *argument, ddl_error *err)
{
    char known[360] = "", guess[64] = "";
    const char *instead = launch_instead_of_foreign(argument);
    if (instead != NULL)
        return DDL_FAIL(err, DDL_EINVAL, "%.60s is another launcher's; here: %s", argument, instead);
    const char *names[NFLAGS];
    for (int i = 0; i < NFLAGS; i++)
        names[i] = flags[i].name;
    const int meant = launch_options_guess(argument, names, NFLAGS);
    if (meant >= 0)
        snprintf(guess, sizeof guess, " (did you mean --%s?)", names[meant]);
    for (int i = 0; i < NFLAGS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%.*s --%s",
                 flags[i].shorts[0] != '\0' ? (int)strlen(flags[i].shorts) - 1 : 0, flags[i].shorts,
                 flags[i].name);
    }
    return DDL_FAIL(err, DDL_EINVAL, "unknown flag %.60s%s; accepted are%s", argument, guess, known);
}

/* False: it is not what the flag accepts. */
static bool apply(const struct flag *flag, const char *value, launch_options *options)
{
    void *field = (char *)options + flag->offset;
    switch (flag->kind) {
    case FLAG_IGNORED:
        return true;
    case FLAG_BOOL:
        return *(bool *)field = true;
    case FLAG_ACTION:
        options->action = flag->action;
        return true;
    case FLAG_TEXT:
        *(const char **)field = value;
        return value[0] != '\0';
    case FLAG_WORD:
        return read_word(value, field);
    case FLAG_WHOLE:
        return read_whole(value, flag->least, flag->most, field);
    case FLAG_CALL:
        return flag->read(options, value);
    }
    DDL_ASSERT(!"a kind of flag");
    return false;
}

/* Read argv up to the program; *next is where the program begins. */
static ddl_status read_flags(int argc, char **argv, launch_options *options, int *next, ddl_error *err)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        const char *argument = argv[at++];
        if (strcmp(argument, "--") == 0)
            break;
        const char *value;
        const struct flag *flag = find_flag(argument, &value);
        if (flag == NULL)
            return unknown_flag(argument, err);
        if (flag->value == NULL && value != NULL)
            return DDL_FAIL(err, DDL_EINVAL, "--%s takes no value", flag->name);
        if (flag->value != NULL && value == NULL) {
            if (at == argc)
                return DDL_FAIL(err, DDL_EINVAL, "--%s needs a value: %s", flag->name, flag->accepted);
            value = argv[at++];
        }
        if (!apply(flag, value, options))
            return DDL_FAIL(err, DDL_EINVAL, "--%s %.60s: accepted is %s", flag->name, value, flag->accepted);
        if (options->action == LAUNCH_ACTION_HELP || options->action == LAUNCH_ACTION_VERSION)
            break;
    }
    *next = at;
    if (options->secret_file != NULL && options->security != NULL && strcmp(options->security, "off") == 0)
        return DDL_FAIL(err, DDL_EINVAL, "--secret_file is of no use with --security off; give one of them");
    return DDL_OK;
}

/* One colon sets off a port; an IPv6 address has more. A URL has both, behind its scheme. */
static ddl_status address_alone(const char *address, ddl_error *err)
{
    const char *scheme = strstr(address, "://"), *host = scheme != NULL ? scheme + strlen("://") : address;
    const char *bracket = strchr(host, ']'), *colon = strchr(bracket != NULL ? bracket : host, ':');
    if (colon != NULL && strchr(colon + 1, ':') != NULL)
        colon = NULL;
    if (scheme == NULL && colon == NULL)
        return DDL_OK;
    const char *port = colon != NULL ? colon + 1 : "";
    const int host_bytes = colon != NULL ? (int)(colon - host) : (int)strcspn(host, "/");
    return DDL_FAIL(err, DDL_EINVAL, "--master_addr %.60s: write --master_addr %.*s%s%.*s", address,
                    host_bytes, host, port[0] != '\0' && port[0] != '/' ? " --master_port " : "",
                    (int)strcspn(port, "/"), port);
}

/* Fill in what was not given, and refuse what does not fit together. */
static ddl_status settle(launch_options *options, bool port_given, ddl_error *err)
{
    if (options->nnodes == 1) {
        if (options->node_rank > 0)
            return DDL_FAIL(err, DDL_EINVAL, "--node_rank %d: with one node it is 0; is --nnodes missing?",
                            options->node_rank);
        options->node_rank = 0;
        if (options->master_addr == NULL)
            options->master_addr = "127.0.0.1";
        return address_alone(options->master_addr, err);
    }
    if (options->standalone)
        return DDL_FAIL(err, DDL_EINVAL, "--standalone means one node, but --nnodes is %d", options->nnodes);
    if (options->node_rank < 0)
        return DDL_FAIL(err, DDL_EINVAL,
                        "--nnodes %d needs --node_rank, from 0 to %d, which differs on each node",
                        options->nnodes, options->nnodes - 1);
    if (options->node_rank >= options->nnodes)
        return DDL_FAIL(err, DDL_EINVAL,
                        "--node_rank %d: accepted is a number from 0 to %d, as --nnodes is %d",
                        options->node_rank, options->nnodes - 1, options->nnodes);
    if (options->master_addr == NULL)
        return DDL_FAIL(err, DDL_EINVAL, "--nnodes %d needs --master_addr, where all nodes reach node 0",
                        options->nnodes);
    DDL_TRY(address_alone(options->master_addr, err));
    if (!port_given)
        options->master_port = LAUNCH_DEFAULT_PORT;
    if (options->master_port == 0)
        return DDL_FAIL(err, DDL_EINVAL,
                        "--master_port 0: with several nodes accepted is a number from 1 to 65535, "
                        "the same on each node");
    return DDL_OK;
}

static const char *because(const launch_gpu_answer *shown)
{
    return shown->failure[0] != '\0' ? ": " : "";
}

static ddl_status count_processes(launch_options *options, const launch_gpu_answer *shown, ddl_error *err)
{
    const bool none = shown->gpus == 0;
    const int cpus = ddl_host_cpus(NULL), cpus_used = cpus < LAUNCH_MAX_NPROC ? cpus : LAUNCH_MAX_NPROC;
    switch (options->nproc_rule) {
    case LAUNCH_NPROC_NOT_GIVEN:
        options->nproc_per_node = 1;
        break;
    case LAUNCH_NPROC_NUMBER:
        break;
    case LAUNCH_NPROC_AUTO:
        options->nproc_per_node = none ? cpus_used : shown->gpus;
        break;
    case LAUNCH_NPROC_CPUS:
        options->nproc_per_node = cpus_used;
        break;
    case LAUNCH_NPROC_GPUS:
        if (none)
            return DDL_FAIL(
                err, DDL_EINVAL,
                "--nproc_per_node gpu: this node has no GPU that CUDA shows to processes%s%s%s; auto takes "
                "the CPUs then",
                options->cpu_only ? " with --gloo" : "", because(shown), shown->failure);
        options->nproc_per_node = shown->gpus;
        break;
    }
    return DDL_OK;
}

/* Only where it matters: to ask the driver takes a moment. */
static ddl_status settle_processes(launch_options *options, ddl_error *err)
{
    bool exclusive = options->gpu_policy == LAUNCH_GPU_EXCLUSIVE;
    bool asks =
        exclusive || options->nproc_rule == LAUNCH_NPROC_AUTO || options->nproc_rule == LAUNCH_NPROC_GPUS;
    if (exclusive && options->cpu_only)
        return DDL_FAIL(err, DDL_EINVAL,
                        "--gpu_policy exclusive and --gloo contradict each other; give one of them");
    launch_gpu_answer shown = { .gpus = 0 };
    if (asks && !options->cpu_only)
        shown = launch_gpus();
    DDL_TRY(count_processes(options, &shown, err));
    if (exclusive && options->nproc_per_node > shown.gpus)
        return DDL_FAIL(err, DDL_EINVAL,
                        "--gpu_policy exclusive needs a GPU for each process (%d), and CUDA shows %d%s%s; "
                        "local_rank lets them share",
                        options->nproc_per_node, shown.gpus, because(&shown), shown.failure);
    return DDL_OK;
}

/* There is something to check between two processes at least. */
static ddl_status settle_check(launch_options *options, int nwords, char **words, ddl_error *err)
{
    if (nwords > 0)
        return DDL_FAIL(err, DDL_EINVAL,
                        "--check starts no program, but %.60s is given; leave one of them out", words[0]);
    if (options->nproc_rule == LAUNCH_NPROC_NOT_GIVEN && options->nnodes == 1)
        options->nproc_per_node = 2;
    options->no_prefix = true;
    options->check_command[0] = (char *)"ddl-check"; /* nobody writes into it */
    options->command = options->check_command;
    return DDL_OK;
}

/* "-np 1 ONE : -np 2 OTHER", as mpirun has several programs, would be one with odd arguments. */
static ddl_status one_program(char **words, ddl_error *err)
{
    for (; words[0] != NULL && words[1] != NULL; words++)
        if (strcmp(words[0], ":") == 0 &&
            (strncmp(words[1], "-n", 2) == 0 || strncmp(words[1], "--np", 4) == 0))
            return DDL_FAIL(
                err, DDL_EINVAL,
                "': %.30s' is how mpirun begins another program, but a job is one program here; let "
                "a shell choose: sh -c 'case $RANK in 0) exec ONE;; *) exec OTHER;; esac' (if it is "
                "for the program, write -- before that)",
                words[1]);
    return DDL_OK;
}

ddl_status launch_options_parse(int argc, char **argv, launch_options *options, ddl_error *err)
{
    DDL_ASSERT(argc >= 0);
    enum { PORT_NOT_GIVEN = -1 };
    *options = (launch_options){ .action = LAUNCH_ACTION_RUN,
                                 .nnodes = 1,
                                 .node_rank = -1,
                                 .master_port = PORT_NOT_GIVEN,
                                 .role = "default",
                                 .stop_on_failure = true,
                                 .grace_ms = 10000 };
    int next = 1;
    DDL_TRY(read_flags(argc, argv, options, &next, err));
    if (options->action == LAUNCH_ACTION_HELP || options->action == LAUNCH_ACTION_VERSION)
        return DDL_OK;
    DDL_TRY(settle_processes(options, err));
    bool port_given = options->master_port != PORT_NOT_GIVEN;
    if (!port_given)
        options->master_port = 0;
    DDL_TRY(settle(options, port_given, err));
    if (options->check)
        return settle_check(options, argc - next, argv + next, err);
    if (next >= argc)
        return DDL_FAIL(err, DDL_EINVAL,
                        "no program to start; use: ddl-launch [FLAGS] PROGRAM [ARGUMENTS] "
                        "(ddl-launch --help)");
    if (strcmp(argv[next - 1], "--") != 0)
        DDL_TRY(one_program(argv + next, err));
    options->command = argv + next;
    return DDL_OK;
}

/* Columns of --help: where what a flag does begins, and where it ends. */
enum { HELP_INDENT = 32, HELP_WIDTH = 100 };

/* Write text in lines, each after the first indented. */
static void print_wrapped(FILE *to, const char *text)
{
    size_t column = HELP_INDENT;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > HELP_INDENT && column + 1 + word > HELP_WIDTH) {
            fprintf(to, "\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        } else if (column > HELP_INDENT) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, word, to);
        column += word;
        text += word + (text[word] == ' ');
    }
    fputc('\n', to);
}

void launch_options_help(FILE *to)
{
    fputs("usage: ddl-launch [FLAGS] [--] PROGRAM [ARGUMENTS]\n"
          "       ddl-launch [FLAGS] --check\n\n"
          "Start PROGRAM as several processes that work together, and see them to their end.\n"
          "Example: ddl-launch --nproc_per_node 4 ./train --epochs 10\n\n"
          "Flags may be written with hyphens or underscores, as --flag VALUE or --flag=VALUE.\n",
          to);
    for (int i = 0; i < NFLAGS; i++) {
        int column = fprintf(to, "  --%s", flags[i].name);
        for (const char *at = flags[i].shorts; at[0] != '\0' && at[1] != '\0'; at = strchr(at + 1, ' '))
            column += fprintf(to, ", %.*s", (int)strcspn(at + 1, " "), at + 1);
        if (flags[i].value != NULL)
            column += fprintf(to, " %s", flags[i].value);
        if (column >= HELP_INDENT) {
            fputc('\n', to);
            column = 0;
        }
        fprintf(to, "%*s", HELP_INDENT - column, "");
        print_wrapped(to, flags[i].help);
    }
    fputs("\nExit code: 0 if every process ended with 0, else that of the first process that failed (128 + N "
          "if\n"
          "signal N ended it); 2 for a wrong command line, 124 at the time limit, 125 if ddl-launch itself\n"
          "failed, 126 if PROGRAM cannot be executed, 127 if there is none.\n",
          to);
}
