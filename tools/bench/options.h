/* options.h - what ddl-bench's command line asks for. */
#ifndef DDL_BENCH_OPTIONS_H
#define DDL_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include <ddl/ddl.h>

enum { EXIT_WRONG_FLAGS = 2 }; /* also where only the job shows that they are */

enum bench_mode { BENCH_COLLECTIVE, BENCH_CALIBRATE, BENCH_CONSISTENCY };

struct bench_options {
    enum bench_mode mode;
    const char *collective; /* NULL in other modes */
    const char *profile;    /* file to write when calibrating */
    size_t min_bytes, max_bytes;
    int factor;
    ddl_dtype dtype;
    ddl_op op;
    const char *dtype_name, *op_name;
    const char *algorithm; /* NULL: the library chooses; "all" */
    int iterations;        /* 0: as many as fit into seconds */
    double seconds;        /* per size */
    int rounds;            /* over all algorithms, and over what is compared */
    double tolerance;      /* of --consistency, in percent */
    int warmup;
    const char *json; /* file to write, or NULL */
    int root;
    bool in_place;
    bool shared_memory; /* buffers from ddl_mem_alloc */
};

enum bench_parsed { BENCH_RUN, BENCH_HELP, BENCH_VERSION, BENCH_WRONG };

/* On BENCH_WRONG the reason is on stderr. Pointers in *options point into argv. */
enum bench_parsed bench_options_parse(int argc, char **argv, struct bench_options *options);

extern const char bench_usage[];

#endif
