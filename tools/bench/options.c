/* options.c - the command line of ddl-bench. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workload.h"

const char bench_usage[] =
    "usage: ddl-launch -np N ddl-bench COLLECTIVE [FLAGS]\n"
    "       ddl-launch -np N ddl-bench --calibrate FILE [--seconds S]\n"
    "       ddl-launch -np N ddl-bench --consistency [FLAGS]\n"
    "\n"
    "Time a collective over sizes; rank 0 prints a table. COLLECTIVE is one of\n"
    "  allreduce reduce_scatter allgather broadcast reduce alltoall gather scatter\n"
    "  reduce_scatterv allgatherv gatherv scatterv alltoallv barrier sendrecv\n"
    "\n"
    "  --calibrate FILE   measure what links and reductions cost, and write a profile for\n"
    "                     DDL_PROFILE\n"
    "  --consistency      time collectives beside pairs of others that do the same\n"
    "  --min BYTES        least size, 4 unless given; sizes take k, M or G (1024-fold),\n"
    "                     and B or iB after it\n"
    "  --max BYTES        greatest size, 256M unless given\n"
    "  --factor N         from one size to the next, 4 unless given\n"
    "  --dtype TYPE       int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16\n"
    "                     float32 float64; float32 unless given\n"
    "  --op OP            sum prod min max avg band bor bxor; sum unless given\n"
    "  --algorithm NAME   force one; all: measure each, mark the one that the library\n"
    "                     chooses by * and compare it with the best\n"
    "  --rounds N         over all algorithms, or over what is compared; the best counts.\n"
    "                     1 unless given, 5 with --consistency\n"
    "  --tolerance P      of --consistency: percent that one may take longer than two, 50\n"
    "                     unless given\n"
    "  --seconds S        to spend on each size, 0.25 unless given\n"
    "  --iters N          measure so many operations instead\n"
    "  --warmup N         operations before those that are measured, 5 unless given\n"
    "  --root R           of broadcast, reduce, gather(v) and scatter(v), 0 unless given\n"
    "  --inplace 0|1      whether send and receive buffers are the same, 0 unless given\n"
    "  --memory KIND      of the buffers: plain, or shared (from ddl_mem_alloc); plain unless\n"
    "                     given\n"
    "  --json FILE        write the results there too\n"
    "  --help, --version\n"
    "\n"
    "-b, -e, -f, -d, -o, -n, -w and -r, as nccl-tests have them, are --min, --max, --factor,\n"
    "--dtype, --op, --iters, --warmup and --root; float, double and half are types too. Their\n"
    "other flags are accepted where they ask for what is done anyway, such as -g 1 and -c 1.\n"
    "\n"
    "Size is that of the greater buffer of a rank: all that allgather receives, all that\n"
    "reduce_scatter sends. The v forms have blocks from none to twice the mean. Every rank times\n"
    "each of its operations, which run back to back; the table has the greatest median and 99th\n"
    "percentile over the ranks. Results are checked once per size; a wrong one ends the run with\n"
    "exit code 1.\n";

static const struct {
    const char *name;
    ddl_dtype dtype;
} dtypes[] = {
    { "int8", DDL_INT8 },         { "uint8", DDL_UINT8 },     { "int16", DDL_INT16 },
    { "uint16", DDL_UINT16 },     { "int32", DDL_INT32 },     { "uint32", DDL_UINT32 },
    { "int64", DDL_INT64 },       { "uint64", DDL_UINT64 },   { "float16", DDL_FLOAT16 },
    { "bfloat16", DDL_BFLOAT16 }, { "float32", DDL_FLOAT32 }, { "float64", DDL_FLOAT64 },
    { "half", DDL_FLOAT16 },      { "float", DDL_FLOAT32 },   { "double", DDL_FLOAT64 },
};

static const struct {
    const char *name;
    ddl_op op;
} ops[] = {
    { "sum", DDL_SUM }, { "prod", DDL_PROD }, { "min", DDL_MIN }, { "max", DDL_MAX },
    { "avg", DDL_AVG }, { "band", DDL_BAND }, { "bor", DDL_BOR }, { "bxor", DDL_BXOR },
};

static bool wrong(const char *flag, const char *value, const char *expected)
{
    fprintf(stderr, "ddl-bench: --%s %s: expected %s\n", flag, value, expected);
    return false;
}

static bool parse_number(const char *flag, const char *text, long least, int *number)
{
    char *end, expected[64];
    errno = 0;
    long value = strtol(text, &end, 10);
    snprintf(expected, sizeof expected, "a whole number from %ld to %ld", least, (long)INT32_MAX);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > INT32_MAX)
        return wrong(flag, text, expected);
    *number = (int)value;
    return true;
}

static bool parse_decimal(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0';
}

/* Whether it is the second of two words. */
static bool parse_either(const char *flag, const char *text, const char *no, const char *yes, bool *value)
{
    char expected[64];
    *value = strcmp(text, yes) == 0;
    snprintf(expected, sizeof expected, "%s or %s", no, yes);
    return *value || strcmp(text, no) == 0 || wrong(flag, text, expected);
}

/* Digits, then nothing or one of k, M, G, after which B or iB may stand. */
static bool parse_bytes(const char *flag, const char *text, size_t *bytes)
{
    static const char expected[] = "a size such as 4, 64k, 256M or 1GiB";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0)
        return wrong(flag, text, expected);
    unsigned shift = 0;
    const char *unit = *end != '\0' ? strchr("kKmMgG", *end) : NULL;
    if (unit != NULL) {
        shift = 10 * ((unsigned)(unit - "kKmMgG") / 2 + 1);
        end += strncasecmp(end + 1, "iB", 2) == 0 ? 2 : 1;
    }
    if (strcasecmp(end, "B") != 0 && *end != '\0')
        return wrong(flag, text, expected);
    if (value == 0 || value > (SIZE_MAX / 2) >> shift)
        return wrong(flag, text, expected);
    *bytes = (size_t)value << shift;
    return true;
}

/* The first one that it has. */
static const char *name_of(ddl_dtype dtype)
{
    size_t i = 0;
    while (dtypes[i].dtype != dtype)
        i++;
    return dtypes[i].name;
}

static bool parse_dtype(const char *text, struct bench_options *options)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(text, dtypes[i].name) == 0) {
            options->dtype = dtypes[i].dtype;
            options->dtype_name = name_of(dtypes[i].dtype);
            return true;
        }
    return wrong("dtype", text, "a type; --help lists them");
}

static bool parse_op(const char *text, struct bench_options *options)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(text, ops[i].name) == 0) {
            options->op = ops[i].op;
            options->op_name = ops[i].name;
            return true;
        }
    return wrong("op", text, "an operator; --help lists them");
}

static bool parse_file(const char *flag, const char *text, const char **file)
{
    if (*text == '\0' || strcmp(text, "-") == 0) /* standard output has the table, or the profile as well */
        return wrong(flag, text, "the name of a file; ./- is one");
    *file = text;
    return true;
}

/* The letters of nccl-tests are flags too, and -V, as of the other programs. */
static const char letters[] = "b:e:f:d:o:n:w:r:hVg:t:c:p:i:m:a:z:G:F:";

/* Those of them that leave ddl-bench no choice: one that asks for what is done anyway is accepted. */
static const struct theirs {
    char letter;
    const char *accepted, *instead;
} of_nccl_tests[] = {
    { 'g', "1", "a process is one rank: leave it out, and start more processes" },
    { 't', "1", "a process is one rank: leave it out, and start more processes" },
    { 'c', "1", "leave it out, as results are checked once per size" },
    { 'p', "0", "leave it out, as a process starts one rank" },
    { 'i', "", "--factor, as sizes are multiplied" },
    { 'm', "1", "leave it out, as each operation is timed by itself" },
    { 'a', "3", "leave it out, as the table has the greatest of all ranks" },
    { 'z', "1", "leave it out, as calls block" },
    { 'G', "0", "leave it out, as there are no graphs" },
    { 'F', "", "--json FILE" },
};

static const struct option flags[] = {
    { "min", required_argument, NULL, 'b' },       { "max", required_argument, NULL, 'e' },
    { "factor", required_argument, NULL, 'f' },    { "dtype", required_argument, NULL, 'd' },
    { "op", required_argument, NULL, 'o' },        { "algorithm", required_argument, NULL, 'a' },
    { "calibrate", required_argument, NULL, 'c' }, { "consistency", no_argument, NULL, 'C' },
    { "rounds", required_argument, NULL, 'N' },    { "tolerance", required_argument, NULL, 't' },
    { "seconds", required_argument, NULL, 's' },   { "iters", required_argument, NULL, 'n' },
    { "warmup", required_argument, NULL, 'w' },    { "root", required_argument, NULL, 'r' },
    { "inplace", required_argument, NULL, 'p' },   { "memory", required_argument, NULL, 'm' },
    { "json", required_argument, NULL, 'j' },      { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'V' },         { NULL, 0, NULL, 0 },
};

/* NULL: it is a letter of ours. */
static const struct theirs *find_theirs(int letter)
{
    for (size_t i = 0; i < sizeof of_nccl_tests / sizeof *of_nccl_tests; i++)
        if (letter == of_nccl_tests[i].letter)
            return &of_nccl_tests[i];
    return NULL;
}

static bool accept_theirs(const struct theirs *theirs, const char *value)
{
    const bool is_fine = *value != '\0' && strcmp(value, theirs->accepted) == 0;
    if (!is_fine)
        fprintf(stderr, "ddl-bench: -%c %s: %s\n", theirs->letter, value, theirs->instead);
    return is_fine;
}

static bool has_meaning(int flag, const struct bench_options *options, const struct workload_kind *kind)
{
    switch (options->mode) {
    case BENCH_CALIBRATE:
        return strchr("cs", flag) != NULL;
    case BENCH_CONSISTENCY: /* of what is compared some have a root, and some an operator */
        return strchr("cajpm", flag) == NULL;
    default:
        return flag != 't' && (flag != 'r' || kind->has_root) && (flag != 'o' || kind->reduces);
    }
}

/* A flag of another mode, or of other collectives, is a mistake. */
static bool check_meaning(const bool given[], const struct bench_options *options,
                          const struct workload_kind *kind)
{
    static const char *const modes[] = {
        [BENCH_CALIBRATE] = "--calibrate", [BENCH_CONSISTENCY] = "--consistency"
    };
    for (const struct option *flag = flags; flag->name != NULL; flag++)
        if (given[flag->val] && !has_meaning(flag->val, options, kind)) {
            fprintf(stderr, "ddl-bench: --%s has no meaning for %s\n", flag->name,
                    options->mode == BENCH_COLLECTIVE ? options->collective : modes[options->mode]);
            return false;
        }
    return true;
}

/* What no single flag can tell. */
static bool check_together(const bool given[], const struct bench_options *options)
{
    const struct workload_kind *kind =
        workload_kind_find(options->mode == BENCH_COLLECTIVE ? options->collective : "allreduce");
    if (kind == NULL) {
        fprintf(stderr, "ddl-bench: %s: there is no such collective; there are", options->collective);
        workload_list_kinds(stderr);
        return false;
    }
    if (!check_meaning(given, options, kind))
        return false;
    const bool is_of_all = options->algorithm != NULL && strcmp(options->algorithm, "all") == 0;
    if (given['N'] && options->mode == BENCH_COLLECTIVE && !is_of_all) {
        fprintf(stderr, "ddl-bench: --rounds has no meaning without --algorithm all\n");
        return false;
    }
    if (given['s'] && given['n']) {
        fprintf(stderr, "ddl-bench: --seconds and --iters exclude each other\n");
        return false;
    }
    if (options->min_bytes > options->max_bytes) {
        fprintf(stderr, "ddl-bench: --min %zu is more than --max %zu\n", options->min_bytes,
                options->max_bytes);
        return false;
    }
    bool is_float = options->dtype >= DDL_FLOAT16;
    if (kind->reduces && is_float && options->op >= DDL_BAND) {
        fprintf(stderr, "ddl-bench: --op %s is not defined on %s\n", options->op_name, options->dtype_name);
        return false;
    }
    if (options->in_place && !kind->in_place) {
        fprintf(stderr, "ddl-bench: --inplace 1: %s has no pair of buffers that could be one\n",
                options->collective);
        return false;
    }
    return true;
}

/* One flag and its argument, of which getopt_long has seen that there is one. */
static bool take_flag(int flag, struct bench_options *options)
{
    switch (flag) {
    case 'b':
        return parse_bytes("min", optarg, &options->min_bytes);
    case 'e':
        return parse_bytes("max", optarg, &options->max_bytes);
    case 'f':
        return parse_number("factor", optarg, 2, &options->factor);
    case 'd':
        return parse_dtype(optarg, options);
    case 'o':
        return parse_op(optarg, options);
    case 'a':
        options->algorithm = optarg;
        return true;
    case 'c':
        options->mode = BENCH_CALIBRATE;
        return parse_file("calibrate", optarg, &options->profile);
    case 'C':
        options->mode = BENCH_CONSISTENCY;
        return true;
    case 'N':
        return parse_number("rounds", optarg, 1, &options->rounds);
    case 't':
        return (parse_decimal(optarg, &options->tolerance) && options->tolerance >= 0 &&
                options->tolerance <= 1000) ||
               wrong("tolerance", optarg, "percent from 0 to 1000");
    case 's':
        return (parse_decimal(optarg, &options->seconds) && options->seconds > 0 &&
                options->seconds <= 3600) ||
               wrong("seconds", optarg, "more than 0, and 3600 at most");
    case 'n':
        return parse_number("iters", optarg, 1, &options->iterations);
    case 'w':
        return parse_number("warmup", optarg, 0, &options->warmup);
    case 'r':
        return parse_number("root", optarg, 0, &options->root);
    case 'p':
        return parse_either("inplace", optarg, "0", "1", &options->in_place);
    case 'm':
        return parse_either("memory", optarg, "plain", "shared", &options->shared_memory);
    case 'j':
        return parse_file("json", optarg, &options->json);
    default: /* getopt_long has said what is wrong */
        return false;
    }
}

/* What stands beside the flags: the collective, where the mode has one. */
static bool take_words(int nwords, char **words, struct bench_options *options)
{
    if (options->mode != BENCH_COLLECTIVE) {
        if (nwords != 0)
            fprintf(stderr, "ddl-bench: %s: --calibrate and --consistency take no collective\n", words[0]);
        return nwords == 0;
    }
    if (nwords != 1) {
        fprintf(stderr, nwords == 0 ? "ddl-bench: name a collective\n" : "ddl-bench: name one collective\n");
        return false;
    }
    options->collective = words[0];
    return true;
}

enum bench_parsed bench_options_parse(int argc, char **argv, struct bench_options *options)
{
    *options = (struct bench_options){ .min_bytes = 4,
                                       .max_bytes = (size_t)256 << 20,
                                       .factor = 4,
                                       .dtype = DDL_FLOAT32,
                                       .op = DDL_SUM,
                                       .dtype_name = "float32",
                                       .op_name = "sum",
                                       .seconds = 0.25,
                                       .tolerance = 50,
                                       .warmup = 5 };
    bool given[UCHAR_MAX + 1] = { false };
    for (int flag, index = -1; (flag = getopt_long(argc, argv, letters, flags, &index)) != -1; index = -1) {
        /* Some of their letters stand for others in the table of long flags, of which index tells. */
        const struct theirs *theirs = index < 0 ? find_theirs(flag) : NULL;
        if (theirs != NULL && !accept_theirs(theirs, optarg))
            return BENCH_WRONG;
        if (theirs != NULL)
            continue;
        given[flag] = true;
        if (flag == 'h')
            return BENCH_HELP;
        if (flag == 'V')
            return BENCH_VERSION;
        if (!take_flag(flag, options))
            return BENCH_WRONG;
    }
    if (options->rounds == 0)
        options->rounds = options->mode == BENCH_CONSISTENCY ? 5 : 1;
    return take_words(argc - optind, argv + optind, options) && check_together(given, options) ? BENCH_RUN
                                                                                               : BENCH_WRONG;
}
