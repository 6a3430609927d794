/* main.c - ddl-sim: list, prove, show and time the collective algorithms, and price a start-up, without any
 * network. */
#include "sim.h"

#include <ddl/ddl.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *arguments, *purpose;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "list", "[NAME...]", "print algorithms, their cost and their source", sim_list },
    { "check", "[NAME] [-p RANGE]", "prove algorithms: matching, deadlock, values, order of operands",
      sim_check },
    { "show", "NAME -p RANKS [--rank R] [--dot]", "print the steps of a schedule", sim_show },
    { "cost", "NAME -p RANKS --bytes SIZE [...]", "time an algorithm on a virtual network", sim_cost },
    { "startup", "[-p RANKS,...] [...]", "say what it takes to start so many ranks", sim_startup },
};

static void print_help(FILE *to)
{
    fprintf(to, "usage: ddl-sim COMMAND [ARGUMENTS]\n\n"
                "Proves and times ddl's collective algorithms, all ranks in this process.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(to, "  %-7s %-34s %s\n", commands[i].name, commands[i].arguments, commands[i].purpose);
    fprintf(to, "\nNAME is an algorithm (ring), a collective (allreduce) or both (allreduce/ring).\n"
                "ddl-sim COMMAND --help tells more. Exit code: 0 good, 1 a proof failed, 2 wrong usage.\n");
}

int sim_usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("ddl-sim: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return SIM_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return SIM_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return SIM_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("ddl-sim %d.%d.%d\n", DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH);
        return SIM_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return sim_usage_error("no command '%s'; there are list, check, show, cost and startup (ddl-sim --help)",
                           argv[1]);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("ddl-sim: cannot write standard output\n", stderr);
        return SIM_FAILED;
    }
    return code;
}
