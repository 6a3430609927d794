/* options.c - the flags; DIGITS_DATA is the file that comes with this program. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char options_usage[] =
    "usage: train_digits [--epochs N] [--batch N] [--seed N] [--data FILE] [--checkpoint FILE [--resume]]\n"
    "\n"
    "Train a small neural network on handwritten digits, on all processes of the job:\n"
    "    ddl-launch -np 4 ./train_digits\n"
    "\n"
    "  --epochs N         passes over the training digits, 30 unless given\n"
    "  --batch N          samples per step, over all processes together, 60 unless given\n"
    "  --seed N           of the first weights and of the order of samples, 1 unless given\n"
    "  --data FILE        lines of 64 greys (0 to 16) and a digit, may be compressed by gzip;\n"
    "                     the last 297 are for testing\n"
    "  --checkpoint FILE  save after each epoch; what is there already is replaced\n"
    "  --resume           go on from the checkpoint, up to --epochs in all\n"
    "  --help             this text\n"
    "\n"
    "Rank 0's flags count. Only rank 0 reads and writes files.\n";

static bool parse_number(const char *flag, const char *text, int64_t least, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > 1000000000) {
        fprintf(stderr, "train_digits: --%s %s: expected a whole number from %" PRId64 " to 1000000000\n",
                flag, text, least);
        return false;
    }
    *number = value;
    return true;
}

enum parsed options_parse(int argc, char **argv, struct options *options)
{
    static const struct option flags[] = {
        { "epochs", required_argument, NULL, 'e' }, { "batch", required_argument, NULL, 'b' },
        { "seed", required_argument, NULL, 's' },   { "data", required_argument, NULL, 'd' },
        { "resume", no_argument, NULL, 'r' },       { "checkpoint", required_argument, NULL, 'c' },
        { "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
    };
    bool ok = true;
    *options = (struct options){ .epochs = 30, .batch = 60, .seed = 1, .data = DIGITS_DATA };
    for (int flag; ok && (flag = getopt_long(argc, argv, "h", flags, NULL)) != -1;) {
        switch (flag) {
        case 'e':
            ok = parse_number("epochs", optarg, 1, &options->epochs);
            break;
        case 'b':
            ok = options->batch_given = parse_number("batch", optarg, 1, &options->batch);
            break;
        case 's':
            ok = options->seed_given = parse_number("seed", optarg, 0, &options->seed);
            break;
        case 'd':
            options->data = optarg;
            break;
        case 'c':
            options->checkpoint = optarg;
            break;
        case 'r':
            options->resume = true;
            break;
        case 'h':
            return PARSED_HELP;
        default: /* getopt_long has said what is wrong */
            ok = false;
        }
    }
    if (ok && optind < argc) {
        fprintf(stderr, "train_digits: %s: there is nothing but flags to give\n", argv[optind]);
        ok = false;
    }
    if (ok && options->resume && options->checkpoint == NULL) {
        fprintf(stderr, "train_digits: --resume needs --checkpoint FILE, to say from where\n");
        ok = false;
    }
    return ok ? PARSED_RUN : PARSED_WRONG;
}
