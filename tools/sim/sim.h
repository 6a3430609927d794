/* sim.h - what the commands of ddl-sim share: the list of commands, and how arguments are read. */
#ifndef DDL_TOOLS_SIM_H
#define DDL_TOOLS_SIM_H

#include "algorithms/catalogue.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_MOST_RANKS = 1024 };
enum { SIM_OK = 0, SIM_FAILED = 1, SIM_USAGE = 2 }; /* exit codes */

/* Each is given its own argument vector, argv[0] being its name; returns an exit code. */
int sim_list(int argc, char **argv);
int sim_check(int argc, char **argv);
int sim_show(int argc, char **argv);
int sim_cost(int argc, char **argv);
int sim_startup(int argc, char **argv);

/* "ddl-sim: ..." on stderr; returns SIM_USAGE. */
__attribute__((format(printf, 1, 2))) int sim_usage_error(const char *format, ...);

/* An option of a command; the last of a list has no name. */
typedef struct sim_option {
    const char *name;
    int letter;                                   /* 0: none */
    bool (*read)(const char *text, void *target); /* NULL: it takes no value, and target is a bool */
    void *target;
    const char *wanted; /* "a rank": what its value has to be */
} sim_option;

enum { SIM_MOST_OPTIONS = 16, SIM_GO_ON = -1 };

/* Sets optind to the first argument that is no option. SIM_GO_ON, or the exit code: help was asked for, or
 * what is wrong is told. */
int sim_read_options(int argc, char **argv, const sim_option options[], void (*help)(void));

/* For options. False: the text is not of this kind. */
bool sim_read_ranks(const char *text, void *nranks);      /* an int, from 1 to SIM_MOST_RANKS */
bool sim_read_rank(const char *text, void *rank);         /* an int from 0 on, less than that */
bool sim_read_size(const char *text, void *bytes);        /* a size_t; "1M", "64KiB": powers of 1024 */
bool sim_read_time_ns(const char *text, void *ns);        /* a double; "20us"; plain: seconds */
bool sim_read_rate(const char *text, void *bytes_per_ns); /* a double; "25Gbit", "10GB": powers of 1000 */

/* A ddl_placement of at most SIM_MOST_RANKS; "2x4": two hosts of four ranks; "4,3,1": three hosts. What it
 * points to lasts, until another one is read. */
bool sim_read_hosts(const char *text, void *placement);

/*
 * The rows that NAME stands for: "ring" and "allreduce" can be several, "allreduce/ring" is one. rows has
 * room for the whole catalogue. 0, with a message on stderr that lists what exists, if there are none.
 */
size_t sim_find(const char *name, const ddl_algorithm *rows[]);

/* Those of them that work for so many ranks, one after the other, until a visit is not SIM_OK. The exit code;
 * there being none is told. */
int sim_visit(const char *name, int nranks, int (*visit)(void *arg, const ddl_algorithm *row), void *arg);

/* False: not a number between these. */
bool sim_parse_int(const char *text, int lowest, int highest, int *value);
/* After all options: the placement must fit the number of ranks, or says it. An exit code; tells what is
 * wrong. */
int sim_place(const char *command, const ddl_placement *placement, int *nranks);

/* "1.25 MiB", "20 us", into text. */
void sim_print_bytes(double bytes, char *text, size_t text_bytes);
void sim_print_time(double ns, char *text, size_t text_bytes);

/* A shape with `count` elements as the public call counts them, blocks without gaps. */
ddl_shape sim_shape(const ddl_algorithm *row, int nranks, size_t count);

bool sim_has_root_or_peer(ddl_collective collective);

#endif
