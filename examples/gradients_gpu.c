/*
 * gradients_gpu.c - a step of data-parallel training on GPUs, as the host sees it: gradients are averaged
 * layer by layer, each while the layer below is worked on, and the host waits once a step.
 *
 *     ddl-launch --nproc_per_node gpu ./gradients_gpu          a process for each GPU
 *     ddl-launch -np 4 ./gradients_gpu --steps 100             four, on the GPUs that there are
 *
 * Two streams: `compute` has the work of the model, `exchange` the averages. Events tie them to each other,
 * so the top layer's average is on its way while compute is with the layers below it.
 *
 * backward and update are where a program launches its kernels. Here the driver fills and copies in their
 * place: that needs no compiler but that of C, and since everybody knows all gradients, the averages can be
 * checked.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>
#include <ddl/cuda.h>

enum { LAYERS = 4, GREATEST_PARAMETERS = 1 << 20 };
static const size_t parameters[LAYERS] = { 784 << 10, GREATEST_PARAMETERS, GREATEST_PARAMETERS, 10 << 10 };

struct training {
    ddl_comm *world;
    CUdeviceptr weights[LAYERS], gradients[LAYERS];
    CUstream compute, exchange;
    CUevent ready[LAYERS]; /* the gradient of a layer, in compute */
    CUevent averaged;      /* all of them, in exchange */
};

static void must(ddl_status status)
{
    if (status == DDL_OK)
        return;
    fprintf(stderr, "gradients_gpu: %s\n", ddl_last_error()->text);
    exit(EXIT_FAILURE);
}

static void gpu_must(CUresult result)
{
    const char *name = NULL, *text = NULL;
    if (result == CUDA_SUCCESS)
        return;
    (void)cuGetErrorName(result, &name);
    (void)cuGetErrorString(result, &text);
    fprintf(stderr, "gradients_gpu: %s: %s\n", name != NULL ? name : "CUDA",
            text != NULL ? text : "unknown error");
    exit(EXIT_FAILURE);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- in the place of kernels ---- */

/* Small enough for sums of them to be exact. */
static float gradient_of(int rank, int step, int layer)
{
    return (float)(step % 100 * LAYERS + layer + rank);
}

static void backward(struct training *t, int step, int layer)
{
    float gradient = gradient_of(ddl_rank(t->world), step, layer);
    unsigned bits;
    memcpy(&bits, &gradient, sizeof bits);
    gpu_must(cuMemsetD32Async(t->gradients[layer], bits, parameters[layer], t->compute));
}

static void update(struct training *t, int layer)
{
    gpu_must(
        cuMemcpyAsync(t->weights[layer], t->gradients[layer], parameters[layer] * sizeof(float), t->compute));
}

/* ---- training ---- */

/* Puts all of it into the streams. */
static void begin_step(struct training *t, int step)
{
    must(ddl_stream_begin(t->world, t->exchange));
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        void *gradient = (void *)(uintptr_t)t->gradients[layer];
        backward(t, step, layer);
        gpu_must(cuEventRecord(t->ready[layer], t->compute));
        gpu_must(cuStreamWaitEvent(t->exchange, t->ready[layer], 0));
        must(ddl_allreduce(gradient, gradient, parameters[layer], DDL_FLOAT32, DDL_AVG, t->world, NULL));
    }
    gpu_must(cuEventRecord(t->averaged, t->exchange));
    gpu_must(cuStreamWaitEvent(t->compute, t->averaged, 0));
    for (int layer = 0; layer < LAYERS; layer++)
        update(t, layer);
}

/* Where a training looks at its loss. An average that went wrong lets its stream go on, and is told here; if
 * the GPU failed as well, ddl says in which of them. */
static void end_step(struct training *t)
{
    CUresult result = cuStreamSynchronize(t->compute);
    must(ddl_stream_end(t->world));
    gpu_must(result);
}

/* How many weights of all ranks are not the mean gradient of this step. */
static int64_t count_wrong(struct training *t, int step)
{
    int64_t wrong = 0;
    float *seen = malloc(GREATEST_PARAMETERS * sizeof *seen);
    if (seen == NULL) {
        fprintf(stderr, "gradients_gpu: no memory\n");
        exit(EXIT_FAILURE);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        float mean = gradient_of(0, step, layer) + (float)(ddl_size(t->world) - 1) / 2;
        gpu_must(cuMemcpyDtoH(seen, t->weights[layer], parameters[layer] * sizeof *seen));
        for (size_t i = 0; i < parameters[layer]; i++)
            wrong += seen[i] != mean;
    }
    free(seen);
    must(ddl_allreduce(&wrong, &wrong, 1, DDL_INT64, DDL_SUM, t->world, NULL));
    return wrong;
}

static void training_init(struct training *t)
{
    CUdevice device;
    CUcontext context;
    int gpu = ddl_local_device(t->world);
    if (gpu < 0)
        must(DDL_EDEVICE);
    gpu_must(cuDeviceGet(&device, gpu));
    gpu_must(cuDevicePrimaryCtxRetain(&context, device));
    gpu_must(cuCtxSetCurrent(context));
    gpu_must(cuStreamCreate(&t->compute, CU_STREAM_NON_BLOCKING));
    gpu_must(cuStreamCreate(&t->exchange, CU_STREAM_NON_BLOCKING));
    gpu_must(cuEventCreate(&t->averaged, CU_EVENT_DISABLE_TIMING));
    for (int layer = 0; layer < LAYERS; layer++) {
        gpu_must(cuEventCreate(&t->ready[layer], CU_EVENT_DISABLE_TIMING));
        gpu_must(cuMemAlloc(&t->weights[layer], parameters[layer] * sizeof(float)));
        gpu_must(cuMemAlloc(&t->gradients[layer], parameters[layer] * sizeof(float)));
    }
}

/* After the communicator, which may use what is freed here until then. */
static void training_fini(struct training *t)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        gpu_must(cuEventDestroy(t->ready[layer]));
        gpu_must(cuMemFree(t->weights[layer]));
        gpu_must(cuMemFree(t->gradients[layer]));
    }
    gpu_must(cuEventDestroy(t->averaged));
    gpu_must(cuStreamDestroy(t->exchange));
    gpu_must(cuStreamDestroy(t->compute));
}

/* -1: that is no number of steps. */
static int parse_steps(int argc, char **argv)
{
    char *end = NULL;
    if (argc == 1)
        return 20;
    long steps = argc == 3 && strcmp(argv[1], "--steps") == 0 ? strtol(argv[2], &end, 10) : -1;
    return end != NULL && *end == '\0' && steps > 0 && steps <= 1000000 ? (int)steps : -1;
}

int main(int argc, char **argv)
{
    struct training t = { .world = NULL };
    int steps = parse_steps(argc, argv);
    if (steps < 0) {
        fprintf(stderr, "usage: gradients_gpu [--steps N]\n");
        return 2;
    }
    must(ddl_init(&t.world, NULL));
    training_init(&t);
    double issued_ms = 0, began_ms = 0;
    for (int step = 0; step <= steps; step++) {
        if (step == 1) /* the first step was for warming up */
            began_ms = now_ms();
        double step_ms = now_ms();
        begin_step(&t, step);
        issued_ms += step > 0 ? now_ms() - step_ms : 0;
        end_step(&t);
    }
    double taken_ms = (now_ms() - began_ms) / steps;
    int64_t wrong = count_wrong(&t, steps);
    if (ddl_rank(t.world) == 0)
        printf("%d processes, %d layers: %.2f ms per step, the host busy for %.3f ms of them; %lld averages "
               "wrong\n",
               ddl_size(t.world), LAYERS, taken_ms, issued_ms / steps, (long long)wrong);
    must(ddl_comm_free(&t.world));
    training_fini(&t);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
