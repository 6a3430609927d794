/* arguments.c - reads names, numbers and units, and says what is wrong with them. */
#include "sim.h"

#include "base/bytes.h"
#include "simulate/patterns.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- options ---- */

/* getopt_long returned '?' or ':'. */
static int bad_option(int argc, char **argv, int result)
{
    const char *option = optind >= 1 && optind <= argc ? argv[optind - 1] : "?";
    char letter[3] = { '-', (char)optopt, '\0' };
    if (optopt > 0 && optopt < 128 && isprint(optopt) && strncmp(option, "--", 2) != 0)
        option = letter;
    if (result == ':')
        return sim_usage_error("%s needs a value (ddl-sim %s --help)", option, argv[0]);
    return sim_usage_error("no option %s (ddl-sim %s --help)", option, argv[0]);
}

/* What getopt_long returns for the option with this index. */
static int code_of(const sim_option options[], int index)
{
    return options[index].letter != 0 ? options[index].letter : UCHAR_MAX + 1 + index;
}

/* As getopt_long takes them, with help as the last; returns how many there are without that. */
static int list_options(const sim_option options[], struct option list[], char letters[])
{
    int count = 0;
    *letters++ = ':'; /* so that a value that is missing is told apart */
    *letters++ = 'h';
    for (; options[count].name != NULL; count++) {
        const int has_value = options[count].read != NULL ? required_argument : no_argument;
        list[count] = (struct option){ options[count].name, has_value, NULL, code_of(options, count) };
        if (options[count].letter == 0)
            continue;
        *letters++ = (char)options[count].letter;
        if (has_value == required_argument)
            *letters++ = ':';
    }
    *letters = '\0';
    list[count] = (struct option){ "help", no_argument, NULL, 'h' };
    list[count + 1] = (struct option){ NULL, 0, NULL, 0 };
    return count;
}

int sim_read_options(int argc, char **argv, const sim_option options[], void (*help)(void))
{
    struct option list[SIM_MOST_OPTIONS];
    char letters[3 + 2 * SIM_MOST_OPTIONS];
    const int count = list_options(options, list, letters);
    optind = 1;
    opterr = 0;
    for (int code; (code = getopt_long(argc, argv, letters, list, NULL)) != -1;) {
        int index = 0;
        if (code == 'h') {
            help();
            return SIM_OK;
        }
        while (index < count && code_of(options, index) != code)
            index++;
        if (index == count)
            return bad_option(argc, argv, code);
        if (options[index].read == NULL)
            *(bool *)options[index].target = true;
        else if (!options[index].read(optarg, options[index].target))
            return sim_usage_error("'%s' is not %s", optarg, options[index].wanted);
    }
    return SIM_GO_ON;
}

/* ---- names ---- */

/* "collective/name": whether it is of that collective. */
static bool is_of(const char *name, const ddl_algorithm *row)
{
    const char *collective = ddl_collective_name(row->collective);
    const size_t prefix = strlen(collective);
    return strncmp(name, collective, prefix) == 0 && name[prefix] == '/';
}

size_t sim_find(const char *name, const ddl_algorithm *rows[])
{
    size_t count, found = 0;
    const ddl_algorithm *all = ddl_catalogue(&count);
    bool is_known = false; /* the collective */
    for (size_t i = 0; i < count; i++) {
        const char *collective = ddl_collective_name(all[i].collective);
        bool whole = is_of(name, &all[i]) && strcmp(strchr(name, '/') + 1, all[i].name) == 0;
        if (whole || strcmp(name, collective) == 0 || strcmp(name, all[i].name) == 0)
            rows[found++] = &all[i];
        is_known = is_known || is_of(name, &all[i]);
    }
    if (found > 0)
        return found;
    fprintf(stderr, "ddl-sim: no algorithm '%s'; there are:", name);
    for (size_t i = 0; i < count; i++)
        if (!is_known || is_of(name, &all[i]))
            fprintf(stderr, " %s/%s", ddl_collective_name(all[i].collective), all[i].name);
    fputc('\n', stderr);
    return 0;
}

int sim_visit(const char *name, int nranks, int (*visit)(void *arg, const ddl_algorithm *row), void *arg)
{
    size_t count;
    ddl_catalogue(&count);
    const ddl_algorithm **rows = ddl_alloc_array(count, sizeof *rows);
    if (rows == NULL)
        return sim_usage_error("out of memory");
    const size_t found = sim_find(name, rows);
    int code = found > 0 ? SIM_OK : SIM_USAGE;
    bool any = false;
    for (size_t i = 0; i < found && code == SIM_OK; i++) {
        const bool needs_two = ddl_collective_is_point_to_point(rows[i]->collective);
        if (!ddl_algorithm_takes(rows[i], nranks) || (needs_two && nranks == 1))
            continue;
        any = true;
        code = visit(arg, rows[i]);
    }
    if (code == SIM_OK && !any)
        code = sim_usage_error("%s does not work for %d ranks", name, nranks);
    ddl_free(rows);
    return code;
}

/* ---- numbers and units ---- */

bool sim_parse_int(const char *text, int lowest, int highest, int *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < lowest || number > highest)
        return false;
    *value = (int)number;
    return true;
}

bool sim_read_ranks(const char *text, void *nranks)
{
    return sim_parse_int(text, 1, SIM_MOST_RANKS, nranks);
}

bool sim_read_rank(const char *text, void *rank)
{
    return sim_parse_int(text, 0, SIM_MOST_RANKS - 1, rank);
}

typedef struct unit {
    const char *name;
    double factor;
} unit;

static bool parse_with_unit(const char *text, const unit units[], size_t nunits, double *value)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    errno = 0;
    double number = strtod(text, &end);
    if (errno != 0 || end == text || !isfinite(number) || number < 0)
        return false;
    for (size_t i = 0; i < nunits; i++)
        if (strcasecmp(end, units[i].name) == 0) {
            *value = number * units[i].factor;
            return true;
        }
    return false;
}

bool sim_read_size(const char *text, void *value)
{
    static const unit units[] = {
        { "", 1 },           { "B", 1 },           { "K", 1024 },         { "KB", 1024 },
        { "KiB", 1024 },     { "M", 1048576 },     { "MB", 1048576 },     { "MiB", 1048576 },
        { "G", 1073741824 }, { "GB", 1073741824 }, { "GiB", 1073741824 },
    };
    double bytes;
    if (!parse_with_unit(text, units, sizeof units / sizeof units[0], &bytes) || bytes > 1e15)
        return false;
    *(size_t *)value = (size_t)bytes;
    return true;
}

bool sim_read_time_ns(const char *text, void *ns)
{
    static const unit units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "", 1e9 } };
    return parse_with_unit(text, units, sizeof units / sizeof units[0], ns);
}

bool sim_read_rate(const char *text, void *bytes_per_ns)
{
    static const unit units[] = {
        { "Kbit", 1e3 / 8e9 },   { "Mbit", 1e6 / 8e9 }, { "Gbit", 1 / 8.0 }, { "Kbit/s", 1e3 / 8e9 },
        { "Mbit/s", 1e6 / 8e9 }, { "Gbit/s", 1 / 8.0 }, { "MB", 1e-3 },      { "GB", 1 },
        { "MB/s", 1e-3 },        { "GB/s", 1 },
    };
    return parse_with_unit(text, units, sizeof units / sizeof units[0], bytes_per_ns) &&
           *(double *)bytes_per_ns > 0;
}

/* Some more ranks on the next host. */
static bool add_host(long nlocal, int node_of[], ddl_placement *placement)
{
    if (nlocal < 1 || nlocal > SIM_MOST_RANKS - placement->nranks)
        return false;
    for (long i = 0; i < nlocal; i++)
        node_of[placement->nranks++] = placement->nnodes;
    placement->nnodes++;
    return true;
}

bool sim_read_hosts(const char *text, void *placement)
{
    static int node_of[SIM_MOST_RANKS];
    ddl_placement found = { 0, 0, node_of };
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    long number = strtol(text, &end, 10);
    if (*end == 'x') {
        long nhosts = number, nlocal = isdigit((unsigned char)end[1]) ? strtol(end + 1, &end, 10) : 0;
        if (*end != '\0' || nhosts < 1 || nhosts > SIM_MOST_RANKS)
            return false;
        for (long i = 0; i < nhosts; i++)
            if (!add_host(nlocal, node_of, &found))
                return false;
    } else {
        bool has_room = add_host(number, node_of, &found);
        while (has_room && *end == ',' && isdigit((unsigned char)end[1])) {
            number = strtol(end + 1, &end, 10);
            has_room = add_host(number, node_of, &found);
        }
        if (!has_room || *end != '\0')
            return false;
    }
    *(ddl_placement *)placement = found;
    return true;
}

int sim_place(const char *command, const ddl_placement *placement, int *nranks)
{
    if (placement->nranks > 0 && *nranks == 0)
        *nranks = placement->nranks;
    if (*nranks == 0)
        return sim_usage_error("%s needs a number of ranks: -p 8", command);
    if (placement->nranks > 0 && placement->nranks != *nranks)
        return sim_usage_error("--hosts places %d ranks, not %d", placement->nranks, *nranks);
    return SIM_OK;
}

static void print_with_unit(double value, const unit units[], size_t nunits, char *text, size_t text_bytes)
{
    size_t i = 0;
    while (i + 1 < nunits && value < units[i].factor)
        i++;
    snprintf(text, text_bytes, "%.4g %s", value / units[i].factor, units[i].name);
}

void sim_print_bytes(double bytes, char *text, size_t text_bytes)
{
    static const unit units[] = { { "GiB", 1073741824 }, { "MiB", 1048576 }, { "KiB", 1024 }, { "B", 1 } };
    print_with_unit(bytes, units, sizeof units / sizeof units[0], text, text_bytes);
}

void sim_print_time(double ns, char *text, size_t text_bytes)
{
    static const unit units[] = { { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 } };
    print_with_unit(ns, units, sizeof units / sizeof units[0], text, text_bytes);
}

bool sim_has_root_or_peer(ddl_collective collective)
{
    return ddl_collective_is_rooted(collective) || ddl_collective_is_point_to_point(collective);
}

ddl_shape sim_shape(const ddl_algorithm *row, int nranks, size_t count)
{
    bool barrier = row->collective == DDL_COLLECTIVE_BARRIER;
    return (ddl_shape){ .nranks = nranks,
                        .count = barrier ? 0 : count,
                        .stride = barrier ? 0 : count,
                        .element_bytes = barrier ? 1 : 4,
                        .in_place = row->collective == DDL_COLLECTIVE_BROADCAST };
}
