/*
 * gpu_rank - a rank with buffers in memory of a GPU, for tests of what breaks: gpu_rank DRIVER CALLS COUNT
 * [again|host|stream|ordered|loading|aborting|exiting|away|parts|many|leaving|pair], or gpu_rank DRIVER
 * device
 *
 * Makes that many allreduce of COUNT floats until one fails, and tells the end of it in a line of JSON, with
 * how many streams and events there are then.
 * device: tells ddl_local_device only.
 * again: and one more in another world. host: the buffers are in host memory, though the driver is loaded.
 * stream: they are begun in a stream that is busy for BUSY_MS, with a request. ordered: in one that is not.
 * loading: in one that is, without a request; then a kernel is loaded, and the stream waited for. aborting:
 * so that all of it has to end by ddl_comm_abort, which each rank calls 2 BUSY_MS after the first. exiting:
 * so that the process ends meanwhile. away: makes none, for long.
 * parts: in the order of one stream, on the world and on parts of it.
 * many: with requests, on many parts at a time. leaving: so that the world is freed while they are in flight,
 * and then waited for. pair: two with requests, of which the second is begun before the first is waited for.
 */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../support/now.h"

#include <ddl/cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell(const char *event, ddl_status status)
{
    const ddl_error *error = ddl_last_error();
    printf("{\"event\": \"%s\", \"status\": \"%s\", \"culprit\": %d, \"text\": \"%s\", \"end_ns\": %lld, "
           "\"alive\": %lu}\n",
           event, ddl_status_name(status), status != DDL_OK ? error->culprit : -1,
           status != DDL_OK ? error->text : "", (long long)now_ns(), gpu_memory_alive());
    fflush(stdout);
}

enum { BUSY_MS = 450, AWAY = 20 /* so many times that */, MANY = 24 };

static void nap(void *arg)
{
    (void)arg;
    nap_us(BUSY_MS * 1000);
}

static void *begin_stream(ddl_comm *world, bool is_busy)
{
    void *stream = gpu_stream_open() ? gpu_stream_create() : NULL;
    const bool begun = stream != NULL && (!is_busy || gpu_stream_call(stream, nap, NULL)) &&
                       ddl_stream_begin(world, stream) == DDL_OK;
    return begun ? stream : NULL;
}

static void *abort_soon(void *world)
{
    nap(NULL);
    nap(NULL);
    tell("abort", ddl_comm_abort(world, "enough"));
    return world;
}

/* What came of it is told by the end of the stream. */
static ddl_status load_behind(const void *in, void *out, size_t count, ddl_comm *world, void *stream,
                              bool is_aborting)
{
    pthread_t thread;
    ddl_status status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL);
    if (is_aborting && pthread_create(&thread, NULL, abort_soon, world) != 0)
        return DDL_ERESOURCE;
    if (status == DDL_OK && (!gpu_stream_load_kernels() || !gpu_stream_wait(stream)))
        return DDL_EDEVICE;
    if (is_aborting)
        pthread_join(thread, NULL);
    return ddl_stream_end(world);
}

static void *load(void *unused)
{
    (void)gpu_stream_load_kernels();
    return unused;
}

static void exit_behind(const void *in, void *out, size_t count, ddl_comm *world)
{
    pthread_t thread;
    if (ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL) != DDL_OK ||
        pthread_create(&thread, NULL, load, NULL) != 0)
        exit(2);
    nap(NULL);
    nap(NULL);
    tell("exit", DDL_OK);
    exit(0);
}

/* Each part is new to the GPU when the stream waits for the operations of those before. */
static ddl_status reduce_in_parts(const void *in, void *out, size_t count, ddl_comm *world, void *stream)
{
    enum { PARTS = 3 };
    ddl_comm *parts[PARTS] = { NULL };
    ddl_status status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL);
    for (int i = 0; status == DDL_OK && i < PARTS; i++) {
        status = ddl_comm_split(world, 0, 0, &parts[i]);
        if (status == DDL_OK)
            status = ddl_stream_begin(parts[i], stream);
        if (status == DDL_OK)
            status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, parts[i], NULL);
    }
    if (status == DDL_OK && !gpu_stream_wait(stream))
        return DDL_EDEVICE;
    for (int i = 0; status == DDL_OK && i < PARTS; i++)
        status = ddl_stream_end(parts[i]);
    return status != DDL_OK ? status : ddl_stream_end(world);
}

static ddl_request *requests[MANY];

static ddl_status reduce_in_many(const void *in, size_t count, ddl_comm *world, bool is_leaving)
{
    ddl_status status = DDL_OK;
    for (int i = 0; status == DDL_OK && i < MANY; i++) {
        ddl_comm *part = NULL;
        void *out = gpu_memory_alloc(count * sizeof(float));
        status = out != NULL ? ddl_comm_split(world, 0, 0, &part) : DDL_ENOMEM;
        if (status == DDL_OK)
            status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, part, &requests[i]);
    }
    return status != DDL_OK || is_leaving ? status : ddl_wait_all(MANY, requests);
}

static ddl_status reduce(const void *in, void *out, size_t count, ddl_comm *world, bool in_stream)
{
    ddl_request *request = NULL;
    ddl_status status =
        ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, in_stream ? &request : NULL);
    return status == DDL_OK && in_stream ? ddl_wait(&request) : status;
}

static ddl_status reduce_pair(const void *in, void *out, size_t count, ddl_comm *world)
{
    ddl_request *first = NULL, *second = NULL;
    ddl_status status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, &first);
    if (status == DDL_OK)
        status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, &second);
    tell("first", ddl_wait(&first));
    return status == DDL_OK ? ddl_wait(&second) : status;
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
    if (argc > 1)
        gpu_memory_expect(argv[1]);
    ddl_status status = ddl_init(&world, NULL);
    tell("init", status);
    if (argc < 4 || status != DDL_OK)
        return 2;
    size_t count = (size_t)atol(argv[3]);
    const char *how = argc > 4 ? argv[4] : "";
    bool is_aborting = strcmp(how, "aborting") == 0, is_loading = is_aborting || strcmp(how, "loading") == 0;
    const bool is_exiting = strcmp(how, "exiting") == 0, is_in_parts = strcmp(how, "parts") == 0;
    bool is_busy = is_loading || strcmp(how, "stream") == 0,
         in_stream = is_busy || is_exiting || is_in_parts || strcmp(how, "ordered") == 0;
    void *stream = NULL;
    void *(*alloc)(size_t) = strcmp(how, "host") == 0 ? malloc : gpu_memory_alloc;
    void *in = gpu_memory_open(argv[1]) ? alloc(count * sizeof(float)) : NULL;
    void *out = in != NULL ? alloc(count * sizeof(float)) : NULL;
    if (out == NULL || (in_stream && (stream = begin_stream(world, is_busy)) == NULL))
        return 2;
    for (int i = 0; strcmp(how, "away") == 0 && i < AWAY; i++)
        nap(NULL);
    if (is_exiting)
        exit_behind(in, out, count, world);
    if (is_in_parts)
        status = reduce_in_parts(in, out, count, world, stream);
    if (is_loading)
        status = load_behind(in, out, count, world, stream, is_aborting);
    if (strcmp(how, "many") == 0 || strcmp(how, "leaving") == 0)
        status = reduce_in_many(in, count, world, strcmp(how, "leaving") == 0);
    if (strcmp(how, "pair") == 0)
        status = reduce_pair(in, out, count, world);
    for (int i = 0; status == DDL_OK && i < atoi(argv[2]); i++)
        status = reduce(in, out, count, world, in_stream);
    tell("allreduce", status);
    if (status != DDL_OK) /* the second one only says that there was a first */
        tell("after", reduce(in, out, count, world, in_stream));
    tell("free", ddl_comm_free(&world));
    if (strcmp(how, "leaving") == 0)
        tell("waited", ddl_wait_all(MANY, requests));
    if (strcmp(how, "again") == 0 && ddl_init(&world, NULL) == DDL_OK) {
        tell("again", ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL));
        ddl_comm_free(&world);
    }
    return 0;
}
