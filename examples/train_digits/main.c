/*
 * train_digits - a small neural network learns handwritten digits, on any number of processes at once.
 *
 *     ddl-launch -np 4 ./train_digits --epochs 30 --checkpoint digits.checkpoint
 *
 * Each process holds the whole network and works on its share of every batch. What the shares say about the
 * weights, the gradients, is added up over all processes: one ddl_allreduce per layer, issued as soon as the
 * backward pass is through with that layer, so that the sum travels while the layer below is worked on.
 *
 * Gradients are summed in float64. The sum then does not depend on how the batch was cut into shares, and
 * training goes the same way on one process as on many.
 *
 * Only rank 0 touches files. It decides whether there is anything to do, and tells the others.
 *
 * All calls of ddl are in this file: train_batch() is the pattern to copy.
 */
#include "checkpoint.h"
#include "digits_file.h"
#include "network.h"
#include "options.h"
#include "random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ddl/ddl.h>

static const float learning_rate = 0.2f, rate_decay = 0.9f;

/* What rank 0 found out before training, as it tells the others. */
struct plan {
    int64_t ready; /* 0: rank 0 failed and said why */
    int64_t epochs, lines, saves;
    struct progress progress;
};
enum { PLAN_FIELDS = sizeof(struct plan) / sizeof(int64_t) };

struct training {
    ddl_comm *world;
    int rank, size;
    struct plan plan;
    struct network *network;
    uint8_t *digits; /* the lines of the file */
    int *order;      /* in which an epoch visits those to train on */
    double loss;     /* of this rank's shares, since the epoch began */
    double waited_s; /* in communication, since the epoch began */
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

/* Whether there is memory; if not, say so. */
static bool got(bool memory)
{
    if (!memory)
        fprintf(stderr, "train_digits: out of memory\n");
    return memory;
}

/* Whether all that was printed has been written, now or before; if not, say so. */
static bool ended_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "train_digits: cannot write to standard output\n");
    return false;
}

/* ---- training ---- */

/* How many digits there are to train on. */
static int training_digits(const struct training *t)
{
    return (int)t->plan.lines - TEST_DIGITS;
}

/* Of count samples, rank r works on those from here to where the next rank begins. */
static int share_begin(const struct training *t, int count, int rank)
{
    return (int)((int64_t)count * rank / t->size);
}

/* This rank's share of the samples order[0..count). How each is shown does not depend on who gets it. */
static int take_share(struct training *t, const int order[], int count)
{
    const struct progress *progress = &t->plan.progress;
    int begin = share_begin(t, count, t->rank), end = share_begin(t, count, t->rank + 1);
    for (int i = begin; i < end; i++) {
        uint64_t state =
            (uint64_t)progress->seed + ((uint64_t)progress->epochs_done << 32) + (uint64_t)order[i];
        network_show_moved(t->network, i - begin, t->digits + (size_t)order[i] * LINE_BYTES,
                           next_random(&state));
    }
    return end - begin;
}

static bool train_batch(struct training *t, const int order[], int count, float rate)
{
    ddl_request *requests[LAYERS] = { NULL };
    int samples = take_share(t, order, count);
    network_forward(t->network, samples);
    t->loss += network_loss(t->network, samples);
    bool ok = true;
    for (int layer = LAYERS - 1; layer >= 0 && ok; layer--) {
        double *gradient = t->network->gradients + layer_offset(layer);
        layer_gradient(t->network, layer, samples);
        ok = good(ddl_allreduce(gradient, gradient, layer_size(layer), DDL_FLOAT64, DDL_SUM, t->world,
                                &requests[layer]));
        if (layer > 0)
            layer_backward(t->network, layer, samples);
    }
    /* The top layer's sum was asked for first. */
    for (int layer = LAYERS - 1; layer >= 0 && ok; layer--) {
        double start_s = now_s();
        ok = good(ddl_wait(&requests[layer]));
        t->waited_s += now_s() - start_s;
        if (ok)
            layer_update(t->network, layer, count, rate);
    }
    if (!ok) /* the buffers stay the library's until their requests are done */
        (void)ddl_wait_all(LAYERS, requests);
    return ok;
}

/* How many of this rank's share of the test digits the network reads right. */
static int count_right(struct training *t)
{
    int begin = share_begin(t, TEST_DIGITS, t->rank), end = share_begin(t, TEST_DIGITS, t->rank + 1);
    const uint8_t *tests = t->digits + (size_t)training_digits(t) * LINE_BYTES;
    for (int i = begin; i < end; i++)
        network_show(t->network, i - begin, tests + i * LINE_BYTES);
    network_forward(t->network, end - begin);
    return network_count_right(t->network, end - begin);
}

/* Add up, over all ranks, the loss and the number of test digits read right. */
static bool sum_up(struct training *t, double *loss, double *right)
{
    double sums[2] = { t->loss, count_right(t) };
    double start_s = now_s();
    bool ok = good(ddl_allreduce(sums, sums, 2, DDL_FLOAT64, DDL_SUM, t->world, NULL));
    t->waited_s += now_s() - start_s;
    *loss = sums[0];
    *right = sums[1];
    return ok;
}

static bool train_epoch(struct training *t, float rate, double *right)
{
    struct progress *progress = &t->plan.progress;
    int digits = training_digits(t), batch = (int)progress->batch;
    double loss, start_s = now_s();
    t->loss = t->waited_s = 0;
    shuffle(t->order, digits, progress->seed, progress->epochs_done);
    for (int first = 0; first < digits; first += batch)
        if (!train_batch(t, t->order + first, digits - first < batch ? digits - first : batch, rate))
            return false;
    double trained_s = now_s() - start_s;
    if (!sum_up(t, &loss, right))
        return false;
    progress->epochs_done++;
    if (t->rank == 0) {
        printf("epoch %2" PRId64
               "  loss %#.6g  test accuracy %.1f %%  %.0f samples/s  communication %.1f %%\n",
               progress->epochs_done, loss / digits, 100 * *right / TEST_DIGITS, digits / trained_s,
               100 * t->waited_s / (now_s() - start_s));
        fflush(stdout);
    }
    return true;
}

/* Rank 0 writes the checkpoint; whether it could, all learn. */
static bool save(struct training *t, const char *path)
{
    int64_t saved = t->rank != 0 || checkpoint_save(path, &t->plan.progress, t->network);
    return good(ddl_broadcast(&saved, 1, DDL_INT64, 0, t->world, NULL)) && saved;
}

static bool train(struct training *t, const char *checkpoint)
{
    const int64_t done_before = t->plan.progress.epochs_done;
    double loss, right;
    float rate = learning_rate;
    for (int64_t epoch = 0; epoch < t->plan.epochs; epoch++, rate *= rate_decay) {
        if (epoch < done_before)
            continue;
        if (!train_epoch(t, rate, &right) || (t->plan.saves && !save(t, checkpoint)))
            return false;
    }
    if (done_before >= t->plan.epochs && !sum_up(t, &loss, &right)) /* a finished run was resumed */
        return false;
    if (t->rank == 0)
        printf("test accuracy %.1f %% (%d digits)\n", 100 * right / TEST_DIGITS, TEST_DIGITS);
    return true;
}

/* ---- start ---- */

/* What rank 0 does before the others need to know anything. */
static bool prepare(struct training *t, const struct options *options)
{
    struct plan *plan = &t->plan;
    plan->epochs = options->epochs;
    plan->saves = options->checkpoint != NULL;
    plan->progress = (struct progress){ .batch = options->batch, .seed = options->seed };
    if ((t->digits = digits_file_load(options->data, &plan->lines)) == NULL)
        return false;
    network_init(t->network, options->seed);
    if (options->resume && !checkpoint_load(options->checkpoint, options, &plan->progress, t->network))
        return false;
    if (plan->saves && plan->progress.epochs_done < plan->epochs && !checkpoint_can_save(options->checkpoint))
        return false;
    if (plan->progress.batch > training_digits(t)) {
        fprintf(stderr, "train_digits: --batch %" PRId64 " is more than the %d digits to train on\n",
                plan->progress.batch, training_digits(t));
        return false;
    }
    return true;
}

/* Rank 0 prepares, everybody learns what is to be done, and with what. */
static bool start(struct training *t, const struct options *options)
{
    struct plan *plan = &t->plan;
    if (t->rank == 0)
        plan->ready = prepare(t, options);
    if (!good(ddl_broadcast(plan, PLAN_FIELDS, DDL_INT64, 0, t->world, NULL)))
        return false;
    if (!plan->ready) {
        if (t->rank != 0)
            fprintf(stderr, "train_digits: rank %d ends, as rank 0 could not start; see its message\n",
                    t->rank);
        return false;
    }
    size_t bytes = (size_t)plan->lines * LINE_BYTES;
    if (t->rank != 0 && !got((t->digits = malloc(bytes)) != NULL))
        return false;
    struct network *network = t->network;
    if (!good(ddl_broadcast(t->digits, bytes, DDL_UINT8, 0, t->world, NULL)) ||
        !good(ddl_broadcast(network->parameters, PARAMETERS, DDL_FLOAT32, 0, t->world, NULL)) ||
        !good(ddl_broadcast(network->velocities, PARAMETERS, DDL_FLOAT32, 0, t->world, NULL)))
        return false;
    /* The greatest share that a rank has of a batch, or of the test digits. */
    int batch = (int)plan->progress.batch, most = (batch > TEST_DIGITS ? batch : TEST_DIGITS) / t->size + 1;
    t->order = malloc((size_t)training_digits(t) * sizeof *t->order);
    return got(t->order != NULL && network_make_room(network, most));
}

int main(int argc, char **argv)
{
    struct options options;
    enum parsed parsed = options_parse(argc, argv, &options);
    if (parsed == PARSED_HELP) {
        fputs(options_usage, stdout);
        return ended_output() ? 0 : 1;
    }
    if (parsed == PARSED_WRONG) {
        fputs("train_digits: --help tells the flags\n", stderr);
        return 2;
    }

    struct training t = { .network = network_create() };
    if (!got(t.network != NULL))
        return 1;
    bool ok = good(ddl_init(&t.world, NULL));
    if (ok) {
        t.rank = ddl_rank(t.world);
        t.size = ddl_size(t.world);
        ok = start(&t, &options) && train(&t, options.checkpoint);
        ok = good(ddl_comm_free(&t.world)) && ok;
    }
    free(t.order);
    free(t.digits);
    network_destroy(t.network);
    return ended_output() && ok ? 0 : 1;
}
