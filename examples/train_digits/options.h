/* options.h - what the command line says. */
#ifndef TRAIN_DIGITS_OPTIONS_H
#define TRAIN_DIGITS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    int64_t epochs, batch, seed;
    bool batch_given, seed_given;
    const char *data, *checkpoint;
    bool resume;
};

enum parsed { PARSED_RUN, PARSED_HELP, PARSED_WRONG };

/* Fill in options. PARSED_WRONG: it was said what is wrong. */
enum parsed options_parse(int argc, char **argv, struct options *options);

/* What --help prints. */
extern const char options_usage[];

#endif
