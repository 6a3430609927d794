/* network.c - forward, backward and update, in plain loops. */
#include "network.h"

#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const int units[LAYERS + 1] = { PIXELS, 128, 64, CLASSES };
static const float momentum = 0.9f;

size_t layer_size(int layer)
{
    return (size_t)(units[layer] + 1) * (size_t)units[layer + 1];
}

size_t layer_offset(int layer)
{
    return layer == 0 ? 0 : layer_offset(layer - 1) + layer_size(layer - 1);
}

struct network *network_create(void)
{
    return calloc(1, sizeof(struct network));
}

void network_destroy(struct network *network)
{
    if (network == NULL)
        return;
    for (int layer = 0; layer <= LAYERS; layer++) {
        free(network->activations[layer]);
        free(network->deltas[layer]);
    }
    free(network->labels);
    free(network);
}

/* Uniform within a range that keeps the size of signals from layer to layer (He et al., 2015). */
void network_init(struct network *network, int64_t seed)
{
    uint64_t state = (uint64_t)seed;
    for (int layer = 0; layer < LAYERS; layer++) {
        float *weights = network->parameters + layer_offset(layer);
        float range = sqrtf(6.0f / (float)units[layer]);
        for (int i = 0; i < units[layer] * units[layer + 1]; i++)
            weights[i] = range * ((float)(next_random(&state) >> 40) * 0x1p-23f - 1.0f);
    }
}

bool network_make_room(struct network *network, int samples)
{
    bool ok = (network->labels = malloc((size_t)samples)) != NULL;
    for (int layer = 0; layer <= LAYERS && ok; layer++) {
        size_t bytes = (size_t)samples * (size_t)units[layer] * sizeof(float);
        network->activations[layer] = malloc(bytes);
        network->deltas[layer] = malloc(bytes);
        ok = network->activations[layer] != NULL && network->deltas[layer] != NULL;
    }
    return ok;
}

static void show(struct network *network, int sample, const uint8_t digit[LINE_BYTES], int right, int down)
{
    float *input = network->activations[0] + sample * PIXELS;
    for (int y = 0; y < EDGE; y++)
        for (int x = 0; x < EDGE; x++) {
            bool inside = x >= right && x < EDGE + right && y >= down && y < EDGE + down;
            input[y * EDGE + x] = inside ? (float)digit[(y - down) * EDGE + x - right] / GREYS : 0;
        }
    network->labels[sample] = digit[PIXELS];
}

void network_show(struct network *network, int sample, const uint8_t digit[LINE_BYTES])
{
    show(network, sample, digit, 0, 0);
}

/* What is moved makes up for the small number of digits. */
void network_show_moved(struct network *network, int sample, const uint8_t digit[LINE_BYTES], uint64_t random)
{
    static const int moves[4][2] = { { 1, 0 }, { -1, 0 }, { 0, 1 }, { 0, -1 } };
    uint64_t choice = random % 12;
    const int *move = moves[choice % 4];
    show(network, sample, digit, choice < 4 ? move[0] : 0, choice < 4 ? move[1] : 0);
}

void network_forward(struct network *network, int samples)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        int inputs = units[layer], outputs = units[layer + 1];
        const float *weights = network->parameters + layer_offset(layer);
        const float *biases = weights + inputs * outputs;
        for (int sample = 0; sample < samples; sample++) {
            const float *in = network->activations[layer] + sample * inputs;
            float *out = network->activations[layer + 1] + sample * outputs;
            memcpy(out, biases, (size_t)outputs * sizeof *out);
            for (int i = 0; i < inputs; i++)
                for (int o = 0; o < outputs; o++)
                    out[o] += in[i] * weights[i * outputs + o];
            for (int o = 0; o < outputs && layer < LAYERS - 1; o++)
                out[o] = out[o] > 0 ? out[o] : 0;
        }
    }
}

int network_count_right(const struct network *network, int samples)
{
    int right = 0;
    for (int sample = 0; sample < samples; sample++) {
        const float *scores = network->activations[LAYERS] + sample * CLASSES;
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            best = scores[c] > scores[best] ? c : best;
        right += best == network->labels[sample];
    }
    return right;
}

/* Softmax and cross-entropy: the sum of the losses, and deltas[LAYERS]. */
double network_loss(struct network *network, int samples)
{
    double loss = 0;
    for (int sample = 0; sample < samples; sample++) {
        const float *scores = network->activations[LAYERS] + sample * CLASSES;
        float *delta = network->deltas[LAYERS] + sample * CLASSES;
        float greatest = scores[0], sum = 0;
        for (int c = 1; c < CLASSES; c++)
            greatest = scores[c] > greatest ? scores[c] : greatest;
        for (int c = 0; c < CLASSES; c++)
            sum += delta[c] = expf(scores[c] - greatest);
        for (int c = 0; c < CLASSES; c++)
            delta[c] /= sum;
        loss += log((double)sum) + (double)(greatest - scores[network->labels[sample]]);
        delta[network->labels[sample]] -= 1;
    }
    return loss;
}

/* From the layer's inputs and the deltas of its outputs. */
void layer_gradient(struct network *network, int layer, int samples)
{
    int inputs = units[layer], outputs = units[layer + 1];
    double *weights = network->gradients + layer_offset(layer);
    double *biases = weights + inputs * outputs;
    memset(weights, 0, layer_size(layer) * sizeof *weights);
    for (int sample = 0; sample < samples; sample++) {
        const float *in = network->activations[layer] + sample * inputs;
        const float *delta = network->deltas[layer + 1] + sample * outputs;
        for (int i = 0; i < inputs; i++)
            for (int o = 0; o < outputs && in[i] != 0; o++)
                weights[i * outputs + o] += (double)in[i] * (double)delta[o];
        for (int o = 0; o < outputs; o++)
            biases[o] += (double)delta[o];
    }
}

/* Deltas of a layer's inputs from those of its outputs, back through the rectifier between. */
void layer_backward(struct network *network, int layer, int samples)
{
    int inputs = units[layer], outputs = units[layer + 1];
    const float *weights = network->parameters + layer_offset(layer);
    for (int sample = 0; sample < samples; sample++) {
        const float *in = network->activations[layer] + sample * inputs;
        const float *delta = network->deltas[layer + 1] + sample * outputs;
        float *below = network->deltas[layer] + sample * inputs;
        for (int i = 0; i < inputs; i++) {
            float sum = 0;
            for (int o = 0; o < outputs && in[i] > 0; o++)
                sum += weights[i * outputs + o] * delta[o];
            below[i] = sum;
        }
    }
}

/* Gradient descent with momentum, by the mean gradient over the whole batch. */
void layer_update(struct network *network, int layer, int batch, float rate)
{
    for (size_t i = layer_offset(layer); i < layer_offset(layer) + layer_size(layer); i++) {
        float gradient = (float)(network->gradients[i] / batch);
        network->velocities[i] = momentum * network->velocities[i] - rate * gradient;
        network->parameters[i] += network->velocities[i];
    }
}
