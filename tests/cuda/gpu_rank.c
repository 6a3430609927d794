/*
 * gpu_rank - a rank with buffers in memory of a GPU, for tests of what breaks: gpu_rank DRIVER CALLS COUNT
 * [again|host], or gpu_rank DRIVER device
 *
 * Makes that many allreduce of COUNT floats until one fails, and tells the end of it in a line of JSON.
 * device: tells ddl_local_device only.
 * again: and one more in another world. host: the buffers are in host memory, though the driver is loaded.
 */
#include "../conformance/gpu_memory.h"

#include <ddl/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void tell(const char *event, ddl_status status)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const ddl_error *error = ddl_last_error();
    printf("{\"event\": \"%s\", \"status\": \"%s\", \"culprit\": %d, \"text\": \"%s\", \"end_ns\": %lld}\n",
           event, ddl_status_name(status), status != DDL_OK ? error->culprit : -1,
           status != DDL_OK ? error->text : "", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    fflush(stdout);
}

static int tell_device(void)
{
    ddl_comm *world = NULL;
    if (ddl_init(&world, NULL) != DDL_OK)
        return 2;
    int device = ddl_local_device(world);
    printf("{\"rank\": %d, \"device\": %d, \"text\": \"%s\"}\n", ddl_rank(world), device,
           device < 0 ? ddl_last_error()->text : "");
    return ddl_comm_free(&world) == DDL_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    ddl_comm *world = NULL;
    if (argc == 3 && strcmp(argv[2], "device") == 0)
        return tell_device();
    ddl_status status = ddl_init(&world, NULL);
    tell("init", status);
    if (argc < 4 || status != DDL_OK)
        return 2;
    size_t count = (size_t)atol(argv[3]);
    void *(*alloc)(size_t) = argc > 4 && strcmp(argv[4], "host") == 0 ? malloc : gpu_memory_alloc;
    void *in = gpu_memory_open(argv[1]) ? alloc(count * sizeof(float)) : NULL;
    void *out = in != NULL ? alloc(count * sizeof(float)) : NULL;
    if (out == NULL)
        return 2;
    for (int i = 0; status == DDL_OK && i < atoi(argv[2]); i++)
        status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL);
    tell("allreduce", status);
    if (status != DDL_OK) /* the second one only says that there was a first */
        tell("after", ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL));
    tell("free", ddl_comm_free(&world));
    if (argc > 4 && alloc != malloc && ddl_init(&world, NULL) == DDL_OK) {
        tell("again", ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL));
        ddl_comm_free(&world);
    }
    return 0;
}
