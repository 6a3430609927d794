/* checkpoint.h - a training in a file, to go on from later. */
#ifndef TRAIN_DIGITS_CHECKPOINT_H
#define TRAIN_DIGITS_CHECKPOINT_H

#include "network.h"
#include "options.h"

#include <stdbool.h>
#include <stdint.h>

/* How far a training is, and what its way depends on. */
struct progress {
    int64_t epochs_done, batch, seed;
};

/* Whether its directory takes files, before an epoch is spent on what cannot be saved. False after saying
 * why. */
bool checkpoint_can_save(const char *path);

/* Replaces the checkpoint before it, if any. False after saying why; that one is kept then. */
bool checkpoint_save(const char *path, const struct progress *progress, const struct network *network);

/* Take parameters, velocities and progress from a checkpoint that options do not contradict. False after
 * saying why. */
bool checkpoint_load(const char *path, const struct options *options, struct progress *progress,
                     struct network *network);

#endif
