/*
 * network.h - a small network of layers that are fully connected, with a rectifier between them, and how it
 * learns. Knows nothing of other processes: whoever adds up gradients does so between the calls here.
 */
#ifndef TRAIN_DIGITS_NETWORK_H
#define TRAIN_DIGITS_NETWORK_H

#include "digits_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LAYERS = 3, PARAMETERS = (PIXELS + 1) * 128 + (128 + 1) * 64 + (64 + 1) * CLASSES };
extern const int units[LAYERS + 1]; /* of the input, and of each layer */

/* A layer's weights lie input by input, outputs together, and its biases after them. */
struct network {
    float parameters[PARAMETERS];
    float velocities[PARAMETERS];
    double gradients[PARAMETERS]; /* sums over samples */
    /* Of the samples it works on, one row per sample: */
    float *activations[LAYERS + 1];
    float *deltas[LAYERS + 1]; /* how the loss changes with each activation, before the rectifier */
    uint8_t *labels;           /* which digit it is */
};

/* Where a layer's parameters and gradients begin, and how many there are. */
size_t layer_offset(int layer);
size_t layer_size(int layer);

/* All zero, and without room for samples; NULL: no memory. */
struct network *network_create(void);
void network_destroy(struct network *network);

/* The first weights. */
void network_init(struct network *network, int64_t seed);

/* Make room for so many samples at once; false: no memory. */
bool network_make_room(struct network *network, int samples);

/* Take a line of the file as a sample; the second moves every third by a pixel, as the random number says. */
void network_show(struct network *network, int sample, const uint8_t digit[LINE_BYTES]);
void network_show_moved(struct network *network, int sample, const uint8_t digit[LINE_BYTES],
                        uint64_t random);

/* From the samples to the scores of the classes. */
void network_forward(struct network *network, int samples);

/* After that: how many samples the network reads right. */
int network_count_right(const struct network *network, int samples);

/* After that, too: the sum of the losses, with which the way back begins. */
double network_loss(struct network *network, int samples);

/* The way back, from the top layer: a layer's gradients, which are ready then, and on to the layer below. */
void layer_gradient(struct network *network, int layer, int samples);
void layer_backward(struct network *network, int layer, int samples);

/* Let a layer learn from the sum of the gradients of batch samples. */
void layer_update(struct network *network, int layer, int batch, float rate);

#endif
