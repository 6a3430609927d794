/*
 * ddl_check.c - a job that looks at its own connections: what ddl-launch --check runs as each rank.
 *
 * Any launcher will do (srun ddl-check). First a survey, which finds every pair that cannot connect; if all
 * that a job needs can, the ranks start as any program does and measure. Rank 0 writes on stdout, and all
 * exit with 0 if a job would run here, else with 1.
 */
#include "check_measure.h"
#include "check_report.h"
#include "check_survey.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The exit code, now that all is written; 2, and a word of it, if that is lost. */
static int end_output(int exit_code)
{
    bool lost = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost)
        return exit_code;
    perror("ddl-check: cannot write to standard output");
    return 2;
}

static int fail(const ddl_config *config, const ddl_error *error)
{
    if (config->rank == 0)
        printf("verdict: no job can run like this: %s: %s\n", ddl_status_name(error->code), error->text);
    else
        fprintf(stderr, "ddl-check: rank %d: %s: %s\n", config->rank, ddl_status_name(error->code),
                error->text);
    return 1;
}

static int fail_below_tables(const ddl_config *config, const ddl_error *error)
{
    if (config->rank == 0)
        printf("\n");
    return fail(config, error);
}

/* As any program: start, use, free. */
static int measure(const ddl_config *config, const check_survey *survey)
{
    ddl_comm *world = NULL;
    check_measured measured = { .facts = NULL };
    if (ddl_init(&world, NULL) != DDL_OK)
        return fail_below_tables(config, ddl_last_error());
    ddl_status status = check_measure(world, &measured);
    if (status == DDL_ENOMEM && ddl_last_error()->code != DDL_ENOMEM) {
        ddl_error error = { .code = DDL_ENOMEM, .text = "no memory for what is measured" };
        (void)ddl_comm_abort(world, error.text);
        (void)ddl_comm_free(&world);
        check_measured_fini(&measured);
        return fail_below_tables(config, &error);
    }
    int exit_code = status == DDL_OK ? 0 : fail_below_tables(config, ddl_last_error());
    if (status == DDL_OK && config->rank == 0) {
        int warnings = check_report_measured(survey, &measured);
        printf("\nverdict: fine, a job can run like this");
        if (warnings > 0)
            printf(", with %d warning%s", warnings, warnings == 1 ? "" : "s");
        printf("\n");
    }
    check_measured_fini(&measured);
    if (ddl_comm_free(&world) != DDL_OK && exit_code == 0)
        exit_code = fail_below_tables(config, ddl_last_error());
    return exit_code;
}

static const char usage[] =
    "usage: ddl-launch [FLAGS] --check, or ddl-check as the program of any other launcher\n";

/* The exit code for a command line that starts no check. */
static int answer(int argc, char **argv)
{
    const char *flag = argv[1];
    bool is_help = strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0;
    bool is_version = strcmp(flag, "--version") == 0 || strcmp(flag, "-V") == 0;
    if (argc > 2 || (!is_help && !is_version)) {
        fprintf(stderr, "ddl-check: it does not take %s; %s", is_help || is_version ? argv[2] : flag, usage);
        return 2;
    }
    if (is_version)
        printf("ddl-check %s\n", ddl_version());
    else
        printf("%s\n"
               "Each rank looks whether it reaches the others, and they measure how fast. Rank 0 writes\n"
               "what was found on standard output. It takes no flags but --help and --version; variables\n"
               "say which ranks there are, as for any program that uses ddl.\n\n"
               "Exit code: 0 if a job would run like this, else 1; 2 for a wrong command line, or if output "
               "is lost.\n",
               usage);
    return 0;
}

static int check(const ddl_config *config)
{
    ddl_error error;
    check_survey survey;
    if (config->nranks == 1) {
        printf("ddl %s, a world of one: there are no connections to check\n", ddl_version());
        return 0;
    }
    if (check_survey_run(config, &survey, &error) != DDL_OK)
        return fail(config, &error);
    if (config->rank == 0) {
        check_report_ranks(config, &survey);
        int failures = check_report_reach(&survey);
        if (!survey.goes_on)
            printf("\nverdict: no job can run like this: %d connection%s cannot be made\n", failures,
                   failures == 1 ? "" : "s");
        fflush(stdout);
    }
    if (!survey.goes_on && config->rank != 0 && config->local_rank == 0)
        fprintf(stderr, "ddl-check: no job can run like this; rank 0 says why\n");
    int exit_code = survey.goes_on ? measure(config, &survey) : 1;
    check_survey_fini(&survey);
    return exit_code;
}

int main(int argc, char **argv)
{
    ddl_config config = { .rank = 0 };
    ddl_error error;
    if (argc > 1)
        return end_output(answer(argc, argv));
    if (ddl_config_read(NULL, &config, &error) != DDL_OK)
        return end_output(fail(&config, &error));
    return end_output(check(&config));
}
