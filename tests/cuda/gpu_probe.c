/*
 * gpu_probe - what waits, in this driver, for a stream that waits itself: gpu_probe DRIVER
 *
 * For tools/gpu_check. Prints a line of JSON with the milliseconds that each of the steps below takes
 * meanwhile. A thread that does not call the driver lets the stream go on after OPEN_MS, so whatever waits
 * for the stream takes that long. A kernel is loaded last, as that may wait for most.
 */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../support/now.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MS = 1000, BYTES = 1 << 20 };

static struct {
    void *waiting, *other, *urgent; /* streams; urgent: of the highest priority, as ddl's own are */
    gpu_door door;
    float *near;
    void *x;
    atomic_bool is_done;
} gear;

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "gpu_probe: %s failed\n", what);
    exit(1);
}

static bool make_pinned(void)
{
    return gpu_memory_alloc_pinned(BYTES) != NULL;
}

static bool make_event(void)
{
    int (*create)(void **event, unsigned flags);
    void *event;
    if (!gpu_memory_find("cuEventCreate", &create))
        return false;
    gpu_memory_enter();
    return gpu_memory_leave(create(&event, 0));
}

static bool copy(void)
{
    return gpu_stream_copy(gear.other, gear.x, gear.near, BYTES) && gpu_stream_wait(gear.other);
}

static bool copy_urgently(void)
{
    return gpu_stream_copy(gear.urgent, gear.x, gear.near, BYTES) && gpu_stream_wait(gear.urgent);
}

static bool launch(void)
{
    return gpu_stream_load_kernels() && gpu_stream_add(gear.other, gear.x, 1, 1) &&
           gpu_stream_wait(gear.other);
}

static const struct {
    const char *name;
    bool (*run)(void);
} steps[] = { { "urgent_copy", copy_urgently },
              { "copy", copy },
              { "event", make_event },
              { "pinned", make_pinned },
              { "launch", launch } };

static void *open_late(void *unused)
{
    for (int ms = 0; ms < OPEN_MS && !atomic_load(&gear.is_done); ms++)
        nap_us(1000);
    gpu_door_open(&gear.door);
    return unused;
}

static double run_beside(bool (*run)(void), const char *name)
{
    pthread_t opener;
    gpu_door_shut(&gear.door);
    atomic_store(&gear.is_done, false);
    must(gpu_stream_wait_at(gear.waiting, &gear.door), "to have a stream wait");
    must(pthread_create(&opener, NULL, open_late, NULL) == 0, "a thread");
    double begun = now_s();
    must(run(), name);
    double ms = (now_s() - begun) * 1e3;
    fprintf(stderr, "gpu_probe: %s: %.2f ms\n", name, ms);
    atomic_store(&gear.is_done, true);
    pthread_join(opener, NULL);
    must(gpu_stream_wait(gear.waiting), "a stream");
    return ms;
}

static void *create_urgent(void)
{
    int (*range)(int *least, int *greatest), (*create)(void **stream, unsigned flags, int priority);
    int least = 0, greatest = 0;
    void *stream = NULL;
    must(gpu_memory_find("cuCtxGetStreamPriorityRange", &range) &&
             gpu_memory_find("cuStreamCreateWithPriority", &create),
         "to find priorities");
    gpu_memory_enter();
    int result = range(&least, &greatest);
    if (result == 0)
        result = create(&stream, 1 /* waits for no other one */, greatest);
    return gpu_memory_leave(result) ? stream : NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    must(gpu_memory_open(argv[1]) && gpu_stream_open() && gpu_door_make(&gear.door), "opening the driver");
    gear.waiting = gpu_stream_create();
    gear.other = gpu_stream_create();
    gear.urgent = create_urgent();
    gear.near = gpu_memory_alloc_pinned(BYTES);
    gear.x = gpu_memory_alloc(BYTES);
    must(gear.waiting != NULL && gear.other != NULL && gear.urgent != NULL && gear.near != NULL &&
             gear.x != NULL,
         "allocating");
    memset(gear.near, 0, BYTES);
    must(gpu_memory_write(gear.x, gear.near, BYTES) && copy() && copy_urgently(), "copying"); /* warms up */
    double ms[sizeof steps / sizeof *steps];
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        ms[i] = run_beside(steps[i].run, steps[i].name);
    printf("{\"open_ms\": %d, \"word\": %s", OPEN_MS, gpu_stream_waits_at_words() ? "true" : "false");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        printf(", \"%s\": %.2f", steps[i].name, ms[i]);
    puts("}");
    return 0;
}
