/*
 * output.h - one output stream of one rank: from its pipe, as whole lines with a prefix, to a sink.
 *
 * The beginning of a line is held until its end comes, but not for long: a prompt has none, and a bar that
 * shows progress a late one.
 *
 * What is read also goes, as it is, to the rank's log file, and the end of it to the rank's tail, so that
 * the last lines of a rank that failed can be shown again.
 */
#ifndef DDL_LAUNCH_OUTPUT_H
#define DDL_LAUNCH_OUTPUT_H

#include "sink.h"

#include <stdbool.h>

enum { LAUNCH_LONGEST_LINE = 1 << 20, LAUNCH_READ_BYTES = 1 << 16, LAUNCH_TAIL_BYTES = 8192 };

/*
 * How long the beginning of a line is held: since anything came last, from any stream, for where others
 * write, its rank may only be short of a CPU; and since it began.
 */
enum { LAUNCH_HELD_MS = 300, LAUNCH_HELD_LONGEST_MS = 1000 };

/* The last output of a rank, both streams. All zero is empty. */
typedef struct launch_tail {
    char text[LAUNCH_TAIL_BYTES];
    size_t bytes;
    bool cut;           /* something came before text */
    const void *author; /* the stream that wrote the end of text */
} launch_tail;

/* Memory that all streams share while they are read; release with launch_scratch_destroy. */
typedef struct launch_scratch {
    uint8_t chunk[LAUNCH_READ_BYTES];
    ddl_bytes lines;
} launch_scratch;

typedef struct launch_output {
    int fd;     /* read end of the pipe, not blocking; -1 once closed */
    int log_fd; /* -1: none */
    int log_error;
    launch_sink *sink;
    launch_tail *tail;
    bool raw;                 /* pass on at once, lines or not */
    const char *prefix;       /* "" for none */
    ddl_bytes held;           /* the beginning of a line, or more of one that is begun */
    int64_t held_ns, more_ns; /* since when, and when more of it came last */
    bool begun;               /* a part of the line has been passed on */
} launch_output;

/*
 * Read once and pass on what makes whole lines; lines of more than LAUNCH_LONGEST_LINE bytes are split.
 * False: there was nothing to read, or the stream ended, which closes it. DDL_ENOMEM counts as its end.
 */
bool launch_output_read(launch_output *output, launch_scratch *scratch, int64_t now_ns);

/*
 * When what is held is to be passed on though its line has no end, if something came from some stream last
 * at any_ns; DDL_DEADLINE_NEVER: nothing is held.
 */
int64_t launch_output_due(const launch_output *output, int64_t any_ns);

/* Nothing could be read until now, so it says nothing that no more came. */
void launch_output_defer(launch_output *output, int64_t now_ns);

/* Pass on what is held as the beginning of a line. */
void launch_output_pass(launch_output *output, launch_scratch *scratch);

/* Pass on what is held, completing its line, and close both descriptors. */
void launch_output_close(launch_output *output, launch_scratch *scratch);

void launch_scratch_destroy(launch_scratch *scratch);

/* The last lines of tail, at most so many; lines[0 .. count). Returns count. */
int launch_tail_lines(const launch_tail *tail, ddl_view *lines, int most);

#endif
