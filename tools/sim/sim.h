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

/* After getopt_long returned '?' or ':' : tells which option; returns SIM_USAGE. */
int sim_bad_option(int argc, char **argv, int result);

/*
 * The rows that NAME stands for: "ring" and "allreduce" can be several, "allreduce/ring" is one. rows has
 * room for the whole catalogue. 0, with a message on stderr that lists what exists, if there are none.
 */
size_t sim_find(const char *name, const ddl_algorithm *rows[]);

/* Numbers with units. False: not a number of this kind. */
bool sim_parse_int(const char *text, int lowest, int highest, int *value);
bool sim_parse_size(const char *text, size_t *value); /* "1M", "64KiB", "1000": powers of 1024 */
bool sim_parse_time_ns(const char *text, double *ns); /* "20us", "1.5ms"; plain: seconds */
bool sim_parse_rate(const char *text,
                    double *bytes_per_ns); /* "25Gbit", "10GB", "800Mbit/s": powers of 1000 */

/* "2x4": two hosts of four ranks; "4,3,1": three hosts. Writes the host of each rank, SIM_MOST_RANKS at most.
 */
bool sim_parse_hosts(const char *text, int node_of[], ddl_placement *placement);

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
