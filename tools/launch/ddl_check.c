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

#include <stdio.h>
#include <string.h>

static int fail(const ddl_config *config, const ddl_error *error)
{
    if (config->rank == 0)
        printf("\nverdict: no job can run like this: %s: %s\n", ddl_status_name(error->code), error->text);
    else
        fprintf(stderr, "ddl-check: rank %d: %s: %s\n", config->rank, ddl_status_name(error->code),
                error->text);
    return fflush(stdout) == 0 ? 1 : 2;
}

/* As any program: start, use, free. */
static int measure(const ddl_config *config, const check_survey *survey)
{
    ddl_comm *world = NULL;
    check_measured measured = { .facts = NULL };
    if (ddl_init(&world, NULL) != DDL_OK)
        return fail(config, ddl_last_error());
    ddl_status status = check_measure(world, &measured);
    if (status == DDL_ENOMEM && ddl_last_error()->code != DDL_ENOMEM) {
        ddl_error error = { .code = DDL_ENOMEM, .text = "no memory for what is measured" };
        (void)ddl_comm_abort(world, error.text);
        (void)ddl_comm_free(&world);
        check_measured_fini(&measured);
        return fail(config, &error);
    }
    int exit_code = status == DDL_OK ? 0 : fail(config, ddl_last_error());
    if (status == DDL_OK && config->rank == 0) {
        int warnings = check_report_measured(survey, &measured);
        printf("\nverdict: fine, a job can run like this");
        if (warnings > 0)
            printf(", with %d warning%s", warnings, warnings == 1 ? "" : "s");
        printf("\n");
    }
    check_measured_fini(&measured);
    if (ddl_comm_free(&world) != DDL_OK && exit_code == 0)
        exit_code = fail(config, ddl_last_error());
    return fflush(stdout) == 0 ? exit_code : 2;
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
        fputs(usage, stderr);
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
    if (fflush(stdout) == 0)
        return 0;
    perror("ddl-check: cannot write to standard output");
    return 2;
}

int main(int argc, char **argv)
{
    ddl_config config = { .rank = 0 };
    ddl_error error;
    check_survey survey;
    if (argc > 1)
        return answer(argc, argv);
    if (ddl_config_read(NULL, &config, &error) != DDL_OK)
        return fail(&config, &error);
    if (config.nranks == 1) {
        printf("ddl %s, a world of one: there are no connections to check\n", ddl_version());
        return fflush(stdout) == 0 ? 0 : 2;
    }
    if (check_survey_run(&config, &survey, &error) != DDL_OK)
        return fail(&config, &error);
    int failures = 0;
    if (config.rank == 0) {
        check_report_ranks(&config, &survey);
        failures = check_report_reach(&survey);
        if (!survey.goes_on)
            printf("\nverdict: no job can run like this: %d connection%s cannot be made\n", failures,
                   failures == 1 ? "" : "s");
        fflush(stdout);
    }
    if (!survey.goes_on && config.rank != 0 && config.local_rank == 0)
        fprintf(stderr, "ddl-check: no job can run like this; rank 0 says why\n");
    int exit_code = survey.goes_on ? measure(&config, &survey) : 1;
    check_survey_fini(&survey);
    return exit_code;
}
