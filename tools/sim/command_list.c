/* command_list.c - ddl-sim list: the catalogue, a line per algorithm. */
#include "sim.h"

#include <getopt.h>
#include <stdio.h>

int sim_list(int argc, char **argv)
{
    static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 } };
    int option;
    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (option != 'h')
            return sim_bad_option(argc, argv, option);
        puts("usage: ddl-sim list\n\nPrints every algorithm: its name, for how many ranks, its cost and its "
             "source.\n"
             "p is the number of ranks, n the bytes of the vector or of all blocks.");
        return SIM_OK;
    }
    if (optind < argc)
        return sim_usage_error("list takes no '%s'", argv[optind]);
    size_t count;
    const ddl_algorithm *rows = ddl_catalogue(&count);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", ddl_collective_name(rows[i].collective), rows[i].name);
        printf("%-28s %-8s %s (%s)\n", name, rows[i].takes == NULL ? "any p" : "p = 2^k", rows[i].summary,
               rows[i].source);
    }
    return SIM_OK;
}
