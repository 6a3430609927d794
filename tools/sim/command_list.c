/* command_list.c - ddl-sim list: the catalogue, a line per algorithm. */
#include "sim.h"

#include "base/bytes.h"

#include <stdio.h>
#include <unistd.h>

static void print_row(const ddl_algorithm *row)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%s", ddl_collective_name(row->collective), row->name);
    printf("%-28s %-8s %s (%s)\n", name, row->takes == NULL ? "any p" : "p = 2^k", row->summary, row->source);
}

/* Of each name what it means; false if one means nothing, which has been told. */
static bool print_named(char *const names[], int nnames, const ddl_algorithm *rows[])
{
    for (int i = 0; i < nnames; i++) {
        const size_t found = sim_find(names[i], rows);
        for (size_t k = 0; k < found; k++)
            print_row(rows[k]);
        if (found == 0)
            return false;
    }
    return true;
}

static void print_help(void)
{
    puts("usage: ddl-sim list [NAME...]\n\nPrints algorithms, or all: name, for how many ranks, cost and "
         "source.\n"
         "p is the number of ranks, n the bytes of the vector or of all blocks.");
}

int sim_list(int argc, char **argv)
{
    static const sim_option options[] = { { NULL, 0, NULL, NULL, NULL } };
    const int code = sim_read_options(argc, argv, options, print_help);
    if (code != SIM_GO_ON)
        return code;
    size_t count;
    const ddl_algorithm *all = ddl_catalogue(&count);
    if (optind < argc) {
        const ddl_algorithm **rows = ddl_alloc_array(count, sizeof *rows);
        if (rows == NULL) {
            fputs("ddl-sim: out of memory\n", stderr);
            return SIM_FAILED;
        }
        const bool is_right = print_named(argv + optind, argc - optind, rows);
        ddl_free(rows);
        return is_right ? SIM_OK : SIM_USAGE;
    }
    for (size_t i = 0; i < count; i++)
        print_row(&all[i]);
    return SIM_OK;
}
