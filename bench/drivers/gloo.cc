/*
 * gloo.cc - the driver of Gloo, over TCP on the loopback.
 *
 * RANK and WORLD_SIZE are the launcher's; BENCH_STORE is an empty directory in which the ranks meet.
 * Algorithms are those that Gloo takes when none is asked for. Its newer interface has no reduce_scatter;
 * the class that once did it shrinks the sockets' buffers, which slows whatever runs after it.
 */
#include "driver.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static std::shared_ptr<gloo::rendezvous::Context> context;

static std::string environment(const char *name)
{
    const char *value = std::getenv(name);
    if (value == nullptr)
        throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

static void join(int *, char ***, int *rank, int *nranks)
{
    *rank = std::stoi(environment("RANK"));
    *nranks = std::stoi(environment("WORLD_SIZE"));
    context = std::make_shared<gloo::rendezvous::Context>(*rank, *nranks);
    context->setTimeout(std::chrono::hours(1)); /* the driver has its own limit */
    gloo::rendezvous::FileStore store(environment("BENCH_STORE"));
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    context->connectFullMesh(store, device);
}

static void barrier(const float *, float *, size_t)
{
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
}

static void leave()
{
    barrier(nullptr, nullptr, 0); /* whoever closes first would take the others' last bytes away */
    context.reset();
}

/* Gloo takes what it only reads as a pointer to what may change. */
static float *input(const float *in)
{
    return const_cast<float *>(in);
}

static void (*const add)(void *, const void *, const void *, size_t) = &gloo::sum<float>;

static void allreduce(const float *in, float *out, size_t count)
{
    gloo::AllreduceOptions options(context);
    if (in != out)
        options.setInput(input(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(add);
    gloo::allreduce(options);
}

/* All ranks need room for the result. */
static void reduce(const float *in, float *out, size_t count)
{
    gloo::ReduceOptions options(context);
    options.setInput(input(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(add);
    options.setRoot(0);
    gloo::reduce(options);
}

static void gather(const float *in, float *out, size_t count)
{
    gloo::GatherOptions options(context);
    options.setInput(input(in), count);
    if (context->rank == 0)
        options.setOutput(out, count * static_cast<size_t>(context->size));
    options.setRoot(0);
    gloo::gather(options);
}

static void scatter(const float *in, float *out, size_t count)
{
    gloo::ScatterOptions options(context);
    std::vector<float *> blocks;
    for (int rank = 0; context->rank == 0 && rank < context->size; rank++)
        blocks.push_back(input(in) + static_cast<size_t>(rank) * count);
    if (context->rank == 0)
        options.setInputs(blocks, count);
    options.setOutput(out, count);
    options.setRoot(0);
    gloo::scatter(options);
}

static void allgather(const float *in, float *out, size_t count)
{
    gloo::AllgatherOptions options(context);
    options.setInput(input(in), count);
    options.setOutput(out, count * static_cast<size_t>(context->size));
    gloo::allgather(options);
}

static void alltoall(const float *in, float *out, size_t count)
{
    gloo::AlltoallOptions options(context);
    options.setInput(input(in), count * static_cast<size_t>(context->size));
    options.setOutput(out, count * static_cast<size_t>(context->size));
    gloo::alltoall(options);
}

static void broadcast(const float *, float *out, size_t count)
{
    gloo::BroadcastOptions options(context);
    options.setOutput(out, count);
    options.setRoot(0);
    gloo::broadcast(options);
}

#define TEXT_(number) #number
#define TEXT(number)  TEXT_(number)

const struct library measured = {
    "Gloo " TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR) "." TEXT(GLOO_VERSION_PATCH),
    join,
    leave,
    allreduce,
    allgather,
    nullptr,
    alltoall,
    broadcast,
    barrier,
    reduce,
    gather,
    scatter,
};
