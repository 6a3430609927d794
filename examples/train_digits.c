/*
 * train_digits.c - a small neural network learns handwritten digits, on any number of processes at once.
 *
 *     ddl-launch -np 4 train_digits --epochs 30 --checkpoint digits.checkpoint
 *
 * Each process holds the whole network and works on its share of every batch. What the shares say about the
 * weights, the gradients, is added up over all processes: one ddl_allreduce per layer, issued as soon as the
 * backward pass is through with that layer, so that the sum travels while the layer below is worked on.
 *
 * Gradients are summed in float64. The sum then does not depend on how the batch was cut into shares, and
 * training goes the same way on one process as on many.
 *
 * Only rank 0 touches files. It decides whether there is anything to do, and tells the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <ddl/ddl.h>

enum { EDGE = 8, PIXELS = EDGE * EDGE, GREYS = 16, CLASSES = 10, LINE_BYTES = PIXELS + 1, TEST_DIGITS = 297 };
enum { LAYERS = 3 };
static const int units[LAYERS + 1] = { PIXELS, 128, 64, CLASSES };
enum { PARAMETERS = (PIXELS + 1) * 128 + (128 + 1) * 64 + (64 + 1) * CLASSES };

static const float learning_rate = 0.2f, rate_decay = 0.9f, momentum = 0.9f;

/* What the flags say; rank 0's count. */
struct settings {
    int64_t epochs, batch, seed;
    bool batch_given, seed_given;
    const char *data, *checkpoint;
    bool resume;
};

/* What rank 0 found out before training, as it tells the others. */
struct plan {
    int64_t ready; /* 0: rank 0 failed and said why */
    int64_t epochs, epochs_done, batch, seed, lines, saves;
};
enum { PLAN_FIELDS = sizeof(struct plan) / sizeof(int64_t) };

/* A layer's weights lie input by input, outputs together, and its biases after them. */
struct network {
    float parameters[PARAMETERS];
    float velocities[PARAMETERS];
    double gradients[PARAMETERS];
};

struct training {
    ddl_comm *world;
    int rank, size;
    struct plan plan;
    struct network *network;
    uint8_t *digits;                /* lines of 64 greys and the digit that they show */
    float *activations[LAYERS + 1]; /* of this rank's share of a batch, one row per sample */
    float *deltas[LAYERS + 1];      /* how the loss changes with each of them, before the rectifier */
    double waited_s;                /* in communication, since the epoch began */
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Whether a call of ddl went well; if not, say what happened. */
static bool good(ddl_status status)
{
    if (status != DDL_OK)
        fprintf(stderr, "train_digits: %s\n", ddl_last_error()->text);
    return status == DDL_OK;
}

/* Whether all that was printed has been written, now or before; if not, say so. */
static bool ended_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "train_digits: cannot write to standard output\n");
    return false;
}

/* ---- random numbers: the same on every machine ---- */

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The order in which an epoch visits the training digits; depends on nothing but its arguments. */
static void shuffle(int order[], int count, int64_t seed, int64_t epoch)
{
    uint64_t state = (uint64_t)seed;
    state = next_random(&state) + (uint64_t)epoch;
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(next_random(&state) % (uint64_t)(i + 1));
        int other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}

/* ---- the network ---- */

static size_t layer_size(int layer)
{
    return (size_t)(units[layer] + 1) * (size_t)units[layer + 1];
}

static size_t layer_offset(int layer)
{
    return layer == 0 ? 0 : layer_offset(layer - 1) + layer_size(layer - 1);
}

/* Uniform within a range that keeps the size of signals from layer to layer (He et al., 2015). */
static void network_init(struct network *network, int64_t seed)
{
    uint64_t state = (uint64_t)seed;
    for (int layer = 0; layer < LAYERS; layer++) {
        float *weights = network->parameters + layer_offset(layer);
        float range = sqrtf(6.0f / (float)units[layer]);
        for (int i = 0; i < units[layer] * units[layer + 1]; i++)
            weights[i] = range * ((float)(next_random(&state) >> 40) * 0x1p-23f - 1.0f);
    }
}

/* From the input in activations[0] to the scores of the classes in activations[LAYERS]. */
static void forward(struct training *t, int samples)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        int inputs = units[layer], outputs = units[layer + 1];
        const float *weights = t->network->parameters + layer_offset(layer);
        const float *biases = weights + inputs * outputs;
        for (int sample = 0; sample < samples; sample++) {
            const float *in = t->activations[layer] + sample * inputs;
            float *out = t->activations[layer + 1] + sample * outputs;
            memcpy(out, biases, (size_t)outputs * sizeof *out);
            for (int i = 0; i < inputs; i++)
                for (int o = 0; o < outputs; o++)
                    out[o] += in[i] * weights[i * outputs + o];
            for (int o = 0; o < outputs && layer < LAYERS - 1; o++)
                out[o] = out[o] > 0 ? out[o] : 0;
        }
    }
}

/* Softmax and cross-entropy: the sum of the losses, and deltas[LAYERS]. */
static double loss_of(struct training *t, const uint8_t labels[], int samples)
{
    double loss = 0;
    for (int sample = 0; sample < samples; sample++) {
        const float *scores = t->activations[LAYERS] + sample * CLASSES;
        float *delta = t->deltas[LAYERS] + sample * CLASSES;
        float greatest = scores[0], sum = 0;
        for (int c = 1; c < CLASSES; c++)
            greatest = scores[c] > greatest ? scores[c] : greatest;
        for (int c = 0; c < CLASSES; c++)
            sum += delta[c] = expf(scores[c] - greatest);
        for (int c = 0; c < CLASSES; c++)
            delta[c] /= sum;
        loss += log((double)sum) + (double)(greatest - scores[labels[sample]]);
        delta[labels[sample]] -= 1;
    }
    return loss;
}

/* This rank's part of a layer's gradient, from the layer's inputs and the deltas of its outputs. */
static void layer_gradient(struct training *t, int layer, int samples)
{
    int inputs = units[layer], outputs = units[layer + 1];
    double *weights = t->network->gradients + layer_offset(layer);
    double *biases = weights + inputs * outputs;
    memset(weights, 0, layer_size(layer) * sizeof *weights);
    for (int sample = 0; sample < samples; sample++) {
        const float *in = t->activations[layer] + sample * inputs;
        const float *delta = t->deltas[layer + 1] + sample * outputs;
        for (int i = 0; i < inputs; i++)
            for (int o = 0; o < outputs && in[i] != 0; o++)
                weights[i * outputs + o] += (double)in[i] * (double)delta[o];
        for (int o = 0; o < outputs; o++)
            biases[o] += (double)delta[o];
    }
}

/* Deltas of a layer's inputs from those of its outputs, back through the rectifier between. */
static void layer_backward(struct training *t, int layer, int samples)
{
    int inputs = units[layer], outputs = units[layer + 1];
    const float *weights = t->network->parameters + layer_offset(layer);
    for (int sample = 0; sample < samples; sample++) {
        const float *in = t->activations[layer] + sample * inputs;
        const float *delta = t->deltas[layer + 1] + sample * outputs;
        float *below = t->deltas[layer] + sample * inputs;
        for (int i = 0; i < inputs; i++) {
            float sum = 0;
            for (int o = 0; o < outputs && in[i] > 0; o++)
                sum += weights[i * outputs + o] * delta[o];
            below[i] = sum;
        }
    }
}

/* Gradient descent with momentum, by the mean gradient over the whole batch. */
static void layer_update(struct training *t, int layer, int batch, float rate)
{
    struct network *network = t->network;
    for (size_t i = layer_offset(layer); i < layer_offset(layer) + layer_size(layer); i++) {
        float gradient = (float)(network->gradients[i] / batch);
        network->velocities[i] = momentum * network->velocities[i] - rate * gradient;
        network->parameters[i] += network->velocities[i];
    }
}

/* ---- training ---- */

/* Of count samples, rank r works on those from here to where the next rank begins. */
static int share_begin(const struct training *t, int count, int rank)
{
    return (int)((int64_t)count * rank / t->size);
}

/* A digit as the network sees it, moved by so many pixels. */
static void show_digit(float input[PIXELS], const uint8_t digit[PIXELS], int right, int down)
{
    for (int y = 0; y < EDGE; y++)
        for (int x = 0; x < EDGE; x++) {
            bool inside = x >= right && x < EDGE + right && y >= down && y < EDGE + down;
            input[y * EDGE + x] = inside ? (float)digit[(y - down) * EDGE + x - right] / GREYS : 0;
        }
}

/*
 * This rank's share of the training samples order[0..count). One in three is shown a pixel off, which makes
 * up for their small number; which one and where to depends on the epoch, and not on who gets the sample.
 */
static int take_training_share(struct training *t, const int order[], int count, uint8_t labels[])
{
    static const int moves[4][2] = { { 1, 0 }, { -1, 0 }, { 0, 1 }, { 0, -1 } };
    int begin = share_begin(t, count, t->rank), end = share_begin(t, count, t->rank + 1);
    for (int i = begin; i < end; i++) {
        const uint8_t *digit = t->digits + (size_t)order[i] * LINE_BYTES;
        uint64_t state = (uint64_t)t->plan.seed + ((uint64_t)t->plan.epochs_done << 32) + (uint64_t)order[i];
        uint64_t choice = next_random(&state) % 12;
        const int *move = moves[choice % 4];
        show_digit(t->activations[0] + (i - begin) * PIXELS, digit, choice < 4 ? move[0] : 0,
                   choice < 4 ? move[1] : 0);
        labels[i - begin] = digit[PIXELS];
    }
    return end - begin;
}

static bool train_batch(struct training *t, const int order[], int count, uint8_t labels[], float rate,
                        double *loss)
{
    ddl_request *requests[LAYERS] = { NULL };
    int samples = take_training_share(t, order, count, labels);
    forward(t, samples);
    *loss += loss_of(t, labels, samples);
    bool ok = true;
    for (int layer = LAYERS - 1; layer >= 0 && ok; layer--) {
        double *gradient = t->network->gradients + layer_offset(layer);
        layer_gradient(t, layer, samples);
        ok = good(ddl_allreduce(gradient, gradient, layer_size(layer), DDL_FLOAT64, DDL_SUM, t->world,
                                &requests[layer]));
        if (layer > 0)
            layer_backward(t, layer, samples);
    }
    /* The top layer's sum was asked for first. */
    for (int layer = LAYERS - 1; layer >= 0 && ok; layer--) {
        double start_s = now_s();
        ok = good(ddl_wait(&requests[layer]));
        t->waited_s += now_s() - start_s;
        if (ok)
            layer_update(t, layer, count, rate);
    }
    if (!ok) /* the buffers stay the library's until their requests are done */
        (void)ddl_wait_all(LAYERS, requests);
    return ok;
}

/* How many of this rank's share of the test digits the network reads right. */
static int count_right(struct training *t, uint8_t labels[])
{
    int begin = share_begin(t, TEST_DIGITS, t->rank),
        samples = share_begin(t, TEST_DIGITS, t->rank + 1) - begin;
    const uint8_t *digits = t->digits + (size_t)(t->plan.lines - TEST_DIGITS + begin) * LINE_BYTES;
    for (int i = 0; i < samples; i++) {
        show_digit(t->activations[0] + i * PIXELS, digits + i * LINE_BYTES, 0, 0);
        labels[i] = digits[i * LINE_BYTES + PIXELS];
    }
    forward(t, samples);
    int right = 0;
    for (int sample = 0; sample < samples; sample++) {
        const float *scores = t->activations[LAYERS] + sample * CLASSES;
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            best = scores[c] > scores[best] ? c : best;
        right += best == labels[sample];
    }
    return right;
}

/* Add up, over all ranks, the loss and the number of test digits read right. */
static bool sum_up(struct training *t, double *loss, double *right)
{
    double sums[2] = { *loss, *right };
    double start_s = now_s();
    bool ok = good(ddl_allreduce(sums, sums, 2, DDL_FLOAT64, DDL_SUM, t->world, NULL));
    t->waited_s += now_s() - start_s;
    *loss = sums[0];
    *right = sums[1];
    return ok;
}

static bool save_checkpoint(const char *path, const struct plan *plan, const struct network *network);

static bool train(struct training *t, const char *checkpoint)
{
    int digits = (int)t->plan.lines - TEST_DIGITS, batch = (int)t->plan.batch;
    int most = (batch > TEST_DIGITS ? batch : TEST_DIGITS) / t->size + 1; /* samples in a share */
    int *order = malloc((size_t)digits * sizeof *order);
    uint8_t *labels = malloc((size_t)most);
    bool ok = order != NULL && labels != NULL;
    for (int layer = 0; layer <= LAYERS && ok; layer++) {
        t->activations[layer] = malloc((size_t)most * (size_t)units[layer] * sizeof(float));
        t->deltas[layer] = malloc((size_t)most * (size_t)units[layer] * sizeof(float));
        ok = t->activations[layer] != NULL && t->deltas[layer] != NULL;
    }
    if (!ok)
        fprintf(stderr, "train_digits: out of memory\n");

    bool trained = t->plan.epochs_done < t->plan.epochs;
    double loss = 0, right = 0;
    float rate = learning_rate;
    for (int64_t epoch = 0; epoch < t->plan.epochs && ok; epoch++, rate *= rate_decay) {
        if (epoch < t->plan.epochs_done)
            continue;
        double start_s = now_s();
        loss = t->waited_s = 0;
        shuffle(order, digits, t->plan.seed, epoch);
        for (int first = 0; first < digits && ok; first += batch)
            ok = train_batch(t, order + first, digits - first < batch ? digits - first : batch, labels, rate,
                             &loss);
        double trained_s = now_s() - start_s;
        right = count_right(t, labels);
        if (!ok || !(ok = sum_up(t, &loss, &right)))
            break;
        if (t->rank == 0) {
            printf("epoch %2" PRId64
                   "  loss %#.6g  test accuracy %.1f %%  %.0f samples/s  communication %.1f %%\n",
                   epoch + 1, loss / digits, 100 * right / TEST_DIGITS, digits / trained_s,
                   100 * t->waited_s / (now_s() - start_s));
            fflush(stdout);
        }
        t->plan.epochs_done = epoch + 1;
        if (t->plan.saves) {
            int64_t saved = t->rank != 0 || save_checkpoint(checkpoint, &t->plan, t->network);
            ok = good(ddl_broadcast(&saved, 1, DDL_INT64, 0, t->world, NULL)) && saved;
        }
    }
    if (ok && !trained) { /* a finished run was resumed */
        right = count_right(t, labels);
        ok = sum_up(t, &loss, &right);
    }
    if (ok && t->rank == 0)
        printf("test accuracy %.1f %% (%d digits)\n", 100 * right / TEST_DIGITS, TEST_DIGITS);
    for (int layer = 0; layer <= LAYERS; layer++) {
        free(t->activations[layer]);
        free(t->deltas[layer]);
    }
    free(order);
    free(labels);
    return ok;
}

/* ---- files; rank 0 only ---- */

static bool parse_digit(const char *text, const char *path, int64_t line, uint8_t digit[LINE_BYTES])
{
    for (int i = 0; i < LINE_BYTES; i++) {
        char *end;
        long value = strtol(text, &end, 10);
        bool fits = end != text && value >= 0 && value <= (i < PIXELS ? GREYS : CLASSES - 1);
        if (!fits || (i < PIXELS ? *end != ',' : *end != '\n' && *end != '\r' && *end != '\0')) {
            fprintf(stderr, "train_digits: %s, line %" PRId64 ", field %d: expected %s\n", path, line, i + 1,
                    i < PIXELS ? "a grey of 0 to 16 and a comma" : "a digit and the end of the line");
            return false;
        }
        digit[i] = (uint8_t)value;
        text = end + 1;
    }
    return true;
}

/* All lines of a file, compressed or not; NULL after saying why. */
static uint8_t *load_digits(const char *path, int64_t *lines)
{
    char text[512];
    uint8_t *digits = NULL;
    int64_t count = 0, room = 0;
    int code = Z_OK;
    gzFile file = gzopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "train_digits: cannot read %s: %s\n", path, strerror(errno));
        return NULL;
    }
    const char *reason = NULL;
    while (gzgets(file, text, sizeof text) != NULL) {
        if ((reason = gzerror(file, &code)) != NULL && code < 0)
            break; /* what is in text may be half a line */
        if (count == room) {
            room = 2 * room + 1024;
            uint8_t *more = realloc(digits, (size_t)room * LINE_BYTES);
            if (more == NULL) {
                fprintf(stderr, "train_digits: out of memory\n");
                goto fail;
            }
            digits = more;
        }
        if (!parse_digit(text, path, count + 1, digits + count * LINE_BYTES))
            goto fail;
        count++;
    }
    if ((reason = gzerror(file, &code)) != NULL && code < 0) {
        fprintf(stderr, "train_digits: %s\n",
                code == Z_ERRNO ? strerror(errno) : reason); /* names the file */
        goto fail;
    }
    if (count <= TEST_DIGITS) {
        fprintf(stderr,
                "train_digits: %s has %" PRId64 " lines; the last %d are for testing, so it takes more\n",
                path, count, TEST_DIGITS);
        goto fail;
    }
    gzclose(file);
    *lines = count;
    return digits;
fail:
    gzclose(file);
    free(digits);
    return NULL;
}

/* A checkpoint: this, parameters, velocities, and a checksum of all before it. In the machine's byte order.
 */
struct checkpoint_head {
    char magic[8];
    uint32_t version, units[LAYERS + 1];
    uint32_t reserved;
    int64_t epochs_done, batch, seed;
};
static const char checkpoint_magic[8] = "digits\r\n";
enum { CHECKPOINT_VERSION = 1, CHECKPOINT_FLOATS = 2 * PARAMETERS * sizeof(float) };
enum { CHECKPOINT_BYTES = sizeof(struct checkpoint_head) + CHECKPOINT_FLOATS + sizeof(uint64_t) };

/* FNV-1a */
static uint64_t checksum(const uint8_t *data, size_t bytes)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static bool write_all(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            data += written;
            bytes -= (size_t)written;
        }
    }
    return true;
}

/* Make a rename in the file's directory last. */
static bool sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int fd = directory != NULL ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    free(directory);
    return ok;
}

/* Write a new file beside the old one, and let it take its place when it is whole and on the disk. */
static bool save_checkpoint(const char *path, const struct plan *plan, const struct network *network)
{
    bool ok = false;
    int fd = -1;
    size_t path_bytes = strlen(path) + sizeof ".new";
    char *temporary = malloc(path_bytes);
    uint8_t *data = calloc(1, CHECKPOINT_BYTES);
    if (temporary == NULL || data == NULL) {
        errno = ENOMEM;
        goto done;
    }
    struct checkpoint_head head = { .version = CHECKPOINT_VERSION,
                                    .epochs_done = plan->epochs_done,
                                    .batch = plan->batch,
                                    .seed = plan->seed };
    memcpy(head.magic, checkpoint_magic, sizeof head.magic);
    for (int i = 0; i <= LAYERS; i++)
        head.units[i] = (uint32_t)units[i];
    memcpy(data, &head, sizeof head);
    memcpy(data + sizeof head, network->parameters, sizeof network->parameters);
    memcpy(data + sizeof head + sizeof network->parameters, network->velocities, sizeof network->velocities);
    uint64_t sum = checksum(data, CHECKPOINT_BYTES - sizeof sum);
    memcpy(data + CHECKPOINT_BYTES - sizeof sum, &sum, sizeof sum);

    snprintf(temporary, path_bytes, "%s.new", path);
    if ((fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        goto done;
    ok = write_all(fd, data, CHECKPOINT_BYTES) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    ok = ok && rename(temporary, path) == 0;
done:
    if (!ok) {
        fprintf(stderr, "train_digits: cannot write checkpoint %s: %s; what was there before still is\n",
                path, strerror(errno));
        if (fd >= 0)
            unlink(temporary);
    } else if (!sync_directory(path)) {
        fprintf(stderr, "train_digits: checkpoint %s is written, but may not outlast a power failure: %s\n",
                path, strerror(errno));
    }
    free(temporary);
    free(data);
    return ok;
}

/* Whether the bytes of a file are a checkpoint that this program can go on from; says why not. */
static bool check_checkpoint(const char *path, const uint8_t *data, size_t bytes)
{
    struct checkpoint_head head;
    uint64_t sum;
    if (bytes >= sizeof head.magic && memcmp(data, checkpoint_magic, sizeof head.magic) != 0) {
        fprintf(stderr, "train_digits: %s is no checkpoint of train_digits\n", path);
        return false;
    }
    if (bytes < sizeof head) {
        fprintf(stderr, "train_digits: checkpoint %s is cut short: %zu of %d bytes\n", path, bytes,
                CHECKPOINT_BYTES);
        return false;
    }
    memcpy(&head, data, sizeof head);
    if (head.version != CHECKPOINT_VERSION) {
        fprintf(stderr,
                "train_digits: checkpoint %s has version %" PRIu32 "; this program reads version %d\n", path,
                head.version, CHECKPOINT_VERSION);
        return false;
    }
    for (int i = 0; i <= LAYERS; i++)
        if (head.units[i] != (uint32_t)units[i]) {
            fprintf(stderr,
                    "train_digits: checkpoint %s is of another network: layer %d has %" PRIu32
                    " units, here it has %d\n",
                    path, i, head.units[i], units[i]);
            return false;
        }
    if (bytes != CHECKPOINT_BYTES) {
        fprintf(stderr, "train_digits: checkpoint %s is %s: %zu of %d bytes\n", path,
                bytes < CHECKPOINT_BYTES ? "cut short" : "too long", bytes, CHECKPOINT_BYTES);
        return false;
    }
    memcpy(&sum, data + CHECKPOINT_BYTES - sizeof sum, sizeof sum);
    if (sum != checksum(data, CHECKPOINT_BYTES - sizeof sum)) {
        fprintf(stderr, "train_digits: checkpoint %s is damaged: its checksum does not match\n", path);
        return false;
    }
    return true;
}

static bool load_checkpoint(const char *path, const struct settings *settings, struct plan *plan,
                            struct network *network)
{
    bool ok = false;
    struct checkpoint_head head;
    uint8_t *data = malloc(CHECKPOINT_BYTES + 1); /* one more, to see a file that is too long */
    FILE *file = fopen(path, "rb");
    if (file == NULL || data == NULL) {
        fprintf(stderr, "train_digits: cannot read checkpoint %s: %s\n", path, strerror(errno));
        goto done;
    }
    size_t bytes = fread(data, 1, CHECKPOINT_BYTES + 1, file);
    if (ferror(file)) {
        fprintf(stderr, "train_digits: cannot read checkpoint %s: %s\n", path, strerror(errno));
        goto done;
    }
    if (!check_checkpoint(path, data, bytes))
        goto done;
    memcpy(&head, data, sizeof head);
    if ((settings->batch_given && settings->batch != head.batch) ||
        (settings->seed_given && settings->seed != head.seed)) {
        fprintf(stderr,
                "train_digits: checkpoint %s was made with --batch %" PRId64 " --seed %" PRId64
                "; leave these flags out to go on\n",
                path, head.batch, head.seed);
        goto done;
    }
    if (head.epochs_done < 0 || head.batch < 1 || head.seed < 0) {
        fprintf(stderr, "train_digits: checkpoint %s makes no sense: a batch of %" PRId64 "\n", path,
                head.batch);
        goto done;
    }
    plan->epochs_done = head.epochs_done;
    plan->batch = head.batch;
    plan->seed = head.seed;
    memcpy(network->parameters, data + sizeof head, sizeof network->parameters);
    memcpy(network->velocities, data + sizeof head + sizeof network->parameters, sizeof network->velocities);
    ok = true;
done:
    if (file != NULL)
        fclose(file);
    free(data);
    return ok;
}

/* ---- start ---- */

/* What rank 0 does before the others need to know anything. */
static bool prepare(struct training *t, const struct settings *settings)
{
    struct plan *plan = &t->plan;
    plan->epochs = settings->epochs;
    plan->batch = settings->batch;
    plan->seed = settings->seed;
    plan->saves = settings->checkpoint != NULL;
    if ((t->digits = load_digits(settings->data, &plan->lines)) == NULL)
        return false;
    network_init(t->network, plan->seed);
    if (settings->resume && !load_checkpoint(settings->checkpoint, settings, plan, t->network))
        return false;
    if (plan->batch > plan->lines - TEST_DIGITS) {
        fprintf(stderr, "train_digits: --batch %" PRId64 " is more than the %" PRId64 " digits to train on\n",
                plan->batch, plan->lines - TEST_DIGITS);
        return false;
    }
    return true;
}

/* Rank 0 prepares, everybody learns what is to be done, and with what. */
static bool start(struct training *t, const struct settings *settings)
{
    if (t->rank == 0)
        t->plan.ready = prepare(t, settings);
    if (!good(ddl_broadcast(&t->plan, PLAN_FIELDS, DDL_INT64, 0, t->world, NULL)))
        return false;
    if (!t->plan.ready) {
        if (t->rank != 0)
            fprintf(stderr, "train_digits: rank %d ends, as rank 0 could not start; see its message\n",
                    t->rank);
        return false;
    }
    size_t bytes = (size_t)t->plan.lines * LINE_BYTES;
    if (t->rank != 0 && (t->digits = malloc(bytes)) == NULL) {
        fprintf(stderr, "train_digits: out of memory\n");
        return false;
    }
    struct network *network = t->network;
    return good(ddl_broadcast(t->digits, bytes, DDL_UINT8, 0, t->world, NULL)) &&
           good(ddl_broadcast(network->parameters, PARAMETERS, DDL_FLOAT32, 0, t->world, NULL)) &&
           good(ddl_broadcast(network->velocities, PARAMETERS, DDL_FLOAT32, 0, t->world, NULL));
}

static const char usage[] =
    "usage: train_digits [--epochs N] [--batch N] [--seed N] [--data FILE] [--checkpoint FILE [--resume]]\n"
    "\n"
    "Train a small neural network on handwritten digits, on all processes of the job:\n"
    "    ddl-launch -np 4 train_digits\n"
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

enum parsed { PARSED_RUN, PARSED_HELP, PARSED_WRONG };

static enum parsed parse_flags(int argc, char **argv, struct settings *settings)
{
    static const struct option flags[] = {
        { "epochs", required_argument, NULL, 'e' }, { "batch", required_argument, NULL, 'b' },
        { "seed", required_argument, NULL, 's' },   { "data", required_argument, NULL, 'd' },
        { "resume", no_argument, NULL, 'r' },       { "checkpoint", required_argument, NULL, 'c' },
        { "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
    };
    bool ok = true;
    for (int flag; ok && (flag = getopt_long(argc, argv, "h", flags, NULL)) != -1;) {
        switch (flag) {
        case 'e':
            ok = parse_number("epochs", optarg, 1, &settings->epochs);
            break;
        case 'b':
            ok = settings->batch_given = parse_number("batch", optarg, 1, &settings->batch);
            break;
        case 's':
            ok = settings->seed_given = parse_number("seed", optarg, 0, &settings->seed);
            break;
        case 'd':
            settings->data = optarg;
            break;
        case 'c':
            settings->checkpoint = optarg;
            break;
        case 'r':
            settings->resume = true;
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
    if (ok && settings->resume && settings->checkpoint == NULL) {
        fprintf(stderr, "train_digits: --resume needs --checkpoint FILE, to say from where\n");
        ok = false;
    }
    return ok ? PARSED_RUN : PARSED_WRONG;
}

int main(int argc, char **argv)
{
    struct settings settings = { .epochs = 30, .batch = 60, .seed = 1, .data = DIGITS_DATA };
    enum parsed parsed = parse_flags(argc, argv, &settings);
    if (parsed == PARSED_HELP) {
        fputs(usage, stdout);
        return ended_output() ? 0 : 1;
    }
    if (parsed == PARSED_WRONG) {
        fputs("train_digits: --help tells the flags\n", stderr);
        return 2;
    }

    struct training t = { .network = calloc(1, sizeof *t.network) };
    if (t.network == NULL) {
        fprintf(stderr, "train_digits: out of memory\n");
        return 1;
    }
    bool ok = good(ddl_init(&t.world, NULL));
    if (ok) {
        t.rank = ddl_rank(t.world);
        t.size = ddl_size(t.world);
        ok = start(&t, &settings) && train(&t, settings.checkpoint);
        ok = good(ddl_comm_free(&t.world)) && ok;
    }
    free(t.digits);
    free(t.network);
    return ended_output() && ok ? 0 : 1;
}
