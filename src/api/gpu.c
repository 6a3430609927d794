/* gpu.c - asks the driver that the program has loaded, and loads the plugin. */
#include "api/gpu.h"

#include "api/last_error.h"
#include "base/bytes.h"
#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* As cuda.h has them: this file is built without it. */
typedef int pointer_attributes(unsigned count, int *attributes, void **data, uintptr_t pointer);
enum {
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_IS_MANAGED = 8,
    ATTRIBUTE_DEVICE_ORDINAL = 9,
    MEMORY_TYPE_HOST = 1,
    MEMORY_TYPE_DEVICE = 2,
    INVALID_VALUE = 1, /* results */
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    STUB_LIBRARY = 34,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    SYSTEM_NOT_READY = 802, /* from here to the last: what keeps a driver from coming up */
    MPS_RPC_FAILURE = 806,  /* but this, which may come later */
    MPS_MAX_CONNECTIONS_REACHED = 809
};

/* What this process has loaded; one of the few mutable globals. */
static struct {
    pthread_mutex_t lock;
    _Atomic(pointer_attributes *) attributes;          /* NULL: no driver is loaded */
    _Atomic(const struct ddl_device_ops *) device_ops; /* NULL: no plugin is loaded */
} loaded = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Held while a library for GPUs is loaded, which may take long: for nothing else. Another one. */
static pthread_mutex_t offload_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- which memory ---- */

typedef enum memory_kind { MEMORY_HOST, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_MANAGED } memory_kind;

typedef struct memory {
    memory_kind kind;
    int gpu; /* of device and managed memory; -1 */
} memory;

static pointer_attributes *function_of(void *driver)
{
    /* POSIX has it so: an object pointer that is one to a function. */
    union {
        void *object;
        pointer_attributes *function;
    } symbol = { .object = dlsym(driver, "cuPointerGetAttributes") };
    return symbol.function;
}

/* NULL: there is no driver. What is loaded after this is seen by the next look. */
static pointer_attributes *find_driver(void)
{
    pthread_mutex_lock(&loaded.lock);
    pointer_attributes *attributes = atomic_load(&loaded.attributes);
    if (attributes == NULL) {
        const uint64_t count = ddl_loaded_count();
        void *driver = ddl_loaded_find("libcuda.so.1");
        attributes = driver != NULL ? function_of(driver) : NULL;
        atomic_store(&loaded.attributes, attributes);
        if (attributes != NULL)
            ddl_loaded_forget();
        else
            ddl_loaded_remember(count); /* not before: another thread would take what it has for known */
    }
    pthread_mutex_unlock(&loaded.lock);
    return attributes;
}

bool ddl_gpu_may_be_there(void)
{
    static const char *const places[] = { "/dev/nvidiactl", "/dev/dxg" }; /* the second in Windows' Linux */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], F_OK) == 0)
            return true;
    return ddl_loaded_find("libcuda.so.1") != NULL;
}

bool ddl_gpu_is_likely(void)
{
#ifdef DDL_WITHOUT_NCCL
    return false;
#else
    return ddl_gpu_may_be_there();
#endif
}

/* Of what the driver does not know it says nothing, or fails so: it is memory of the host. So is everything
 * where the driver is a stub, or has never come up. */
static bool is_of_host(int result)
{
    switch (result) {
    case INVALID_VALUE:
    case NOT_INITIALIZED:
    case DEINITIALIZED:
    case INVALID_CONTEXT:
    case STUB_LIBRARY:
    case DEVICE_UNAVAILABLE:
    case NO_DEVICE:
    case INVALID_DEVICE:
        return true;
    default:
        return result >= SYSTEM_NOT_READY && result <= MPS_MAX_CONNECTIONS_REACHED &&
               result != MPS_RPC_FAILURE;
    }
}

/* A driver that has failed for good says that of everything, device memory too: not to be touched then. */
static ddl_status find_memory(pointer_attributes *attributes, const void *pointer, memory *where,
                              ddl_error *err)
{
    int wanted[] = { ATTRIBUTE_MEMORY_TYPE, ATTRIBUTE_IS_MANAGED, ATTRIBUTE_DEVICE_ORDINAL };
    int type = 0, gpu = -1;
    unsigned is_managed = 0;
    void *data[] = { &type, &is_managed, &gpu };
    int result = attributes(3, wanted, data, (uintptr_t)pointer);
    if (result != 0 && !is_of_host(result))
        return DDL_FAIL(err, DDL_EDEVICE,
                        "the CUDA driver has failed (error %d) and cannot say where the buffers are", result);
    bool is_device = result == 0 && type == MEMORY_TYPE_DEVICE;
    if (result == 0 && is_managed != 0)
        *where = (memory){ MEMORY_MANAGED, gpu };
    else if (is_device)
        *where = (memory){ MEMORY_DEVICE, gpu };
    else
        *where = (memory){ result == 0 && type == MEMORY_TYPE_HOST ? MEMORY_PINNED : MEMORY_HOST, -1 };
    return DDL_OK;
}

static bool is_gpus(memory where)
{
    return where.kind == MEMORY_DEVICE || where.kind == MEMORY_MANAGED;
}

static const char *describe(memory where, char *text, size_t capacity)
{
    if (!is_gpus(where))
        return where.kind == MEMORY_PINNED ? "pinned host memory" : "host memory";
    snprintf(text, capacity, "%s memory of GPU %d", where.kind == MEMORY_MANAGED ? "managed" : "device",
             where.gpu);
    return text;
}

static ddl_status refuse_mixed(const ddl_comm *comm, const ddl_call *call, memory in, memory out)
{
    char in_text[64], out_text[64];
    return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                              "send is %s, but recv is %s; both must be memory of one GPU, or of the host",
                              describe(in, in_text, sizeof in_text),
                              describe(out, out_text, sizeof out_text));
}

/* ---- the plugin ---- */

/* Beside libddl, as both are installed, else wherever the system looks. */
static void *open_plugin(char *tried, size_t capacity)
{
    static const char name[] = "libddl-cuda.so";
    char folder[4096], path[sizeof folder + sizeof name];
    ddl_loaded_own_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s%s", folder, name);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL)
        plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL)
        snprintf(tried, capacity, "looked for %.150s, then for %s where the system looks: %.160s", path, name,
                 dlerror());
    return plugin;
}

static ddl_status load_plugin(const struct ddl_device_ops **ops, ddl_error *err)
{
    char tried[400];
    void *plugin = open_plugin(tried, sizeof tried);
    if (plugin == NULL)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "no plugin for GPUs (%s); install it, or build ddl with -Dcuda=enabled", tried);
    union {
        void *object;
        ddl_device_plugin *function;
    } entry = { .object = dlsym(plugin, "ddl_cuda_plugin") };
    if (entry.function == NULL)
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "libddl-cuda.so is not ddl's: it has no ddl_cuda_plugin");
    const struct ddl_device_ops *found = entry.function(err);
    if (found == NULL)
        return err->code;
    if (found->interface != DDL_DEVICE_INTERFACE)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "libddl-cuda.so is of another version of ddl; install both from one build");
    *ops = found;
    return DDL_OK;
}

ddl_status ddl_gpu_plugin(const struct ddl_device_ops **ops, ddl_error *err)
{
    ddl_status status = DDL_OK;
    pthread_mutex_lock(&loaded.lock);
    *ops = atomic_load(&loaded.device_ops);
    if (*ops == NULL && (status = load_plugin(ops, err)) == DDL_OK)
        atomic_store(&loaded.device_ops, *ops);
    pthread_mutex_unlock(&loaded.lock);
    return status;
}

ddl_status ddl_gpu_find_offload(const struct ddl_offload_ops **ops, ddl_error *err)
{
    char tried[400];
    void *plugin = open_plugin(tried, sizeof tried); /* is loaded: there was device memory */
    union {
        void *object;
        ddl_offload_plugin *function;
    } entry = { .object = plugin != NULL ? dlsym(plugin, "ddl_cuda_offload") : NULL };
    if (entry.function == NULL)
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "libddl-cuda.so has no ddl_cuda_offload");
    pthread_mutex_lock(&offload_lock);
    const struct ddl_offload_ops *found = entry.function(err);
    pthread_mutex_unlock(&offload_lock);
    if (found == NULL)
        return err->code;
    if (found->interface != DDL_OFFLOAD_INTERFACE)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "libddl-cuda.so is of another version of ddl; install both from one build");
    *ops = found;
    return DDL_OK;
}

void ddl_gpu_warn(const char *line)
{
    ddl_log(DDL_LOG_WARNING, "%s", line);
}

/* ---- calls ---- */

static ddl_status find_staging(ddl_comm *comm, int gpu, ddl_staging **staging, ddl_error *err)
{
    const struct ddl_device_ops *ops = NULL;
    if (gpu < 0 || gpu >= DDL_COMM_GPUS)
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "GPU %d is beyond the %d that are supported", gpu,
                        DDL_COMM_GPUS);
    if (comm->stagings[gpu] == NULL) {
        DDL_TRY(ddl_gpu_plugin(&ops, err));
        const bool takes_turns = comm->engine != NULL;
        DDL_TRY(ddl_staging_create(ops, gpu, takes_turns ? &comm->world->staged : NULL,
                                   takes_turns ? &comm->world->hangs_until[gpu] : NULL, &comm->stagings[gpu],
                                   err));
    }
    *staging = comm->stagings[gpu];
    return DDL_OK;
}

static ddl_status find_buffers(pointer_attributes *attributes, const ddl_call *call, memory *in, memory *out,
                               ddl_error *err)
{
    if (call->extent.in_bytes > 0)
        DDL_TRY(find_memory(attributes, call->in, in, err));
    return call->extent.out_bytes > 0 ? find_memory(attributes, call->out, out, err) : DDL_OK;
}

/* The call is wrong on this rank alone: it is told to all as any other failure is. */
static void give_up(ddl_call *call, const char *buffer, const ddl_error *error)
{
    call->refusal = ddl_alloc(sizeof *call->refusal);
    call->lacks = call->refusal == NULL;
    call->is_repeated = false;
    if (!call->lacks)
        ddl_error_set(call->refusal, error->code, "%s%s", buffer, error->text);
}

void ddl_gpu_refuse(ddl_call *call, const ddl_error *error)
{
    call->staging = NULL;
    give_up(call, "", error);
}

ddl_status ddl_gpu_look(ddl_comm *comm, ddl_call *call)
{
    ddl_error error;
    pointer_attributes *attributes = atomic_load(&loaded.attributes);
    if (attributes == NULL && (attributes = find_driver()) == NULL)
        return DDL_OK;
    memory in = { MEMORY_HOST, -1 }, out = { MEMORY_HOST, -1 };
    if (find_buffers(attributes, call, &in, &out, &error) != DDL_OK) {
        give_up(call, "", &error);
        return DDL_OK;
    }
    if (!is_gpus(in) && !is_gpus(out))
        return DDL_OK;
    bool has_in = call->extent.in_bytes > 0, has_out = call->extent.out_bytes > 0;
    if (has_in && has_out && in.gpu != out.gpu)
        return refuse_mixed(comm, call, in, out);
    memory where = has_in ? in : out;
    if (find_staging(comm, where.gpu, &call->staging, &error) == DDL_OK)
        return DDL_OK;
    char text[64], buffer[96];
    snprintf(buffer, sizeof buffer, "%s is %s: ", has_in ? "send" : "recv",
             describe(where, text, sizeof text));
    give_up(call, buffer, &error);
    return DDL_OK;
}

bool ddl_gpu_is_managed(const void *pointer)
{
    memory where = { MEMORY_HOST, -1 };
    ddl_error ignored; /* the call itself has asked before */
    pointer_attributes *attributes = atomic_load(&loaded.attributes);
    if (pointer == NULL || attributes == NULL)
        return false;
    return find_memory(attributes, pointer, &where, &ignored) == DDL_OK && where.kind == MEMORY_MANAGED;
}

void ddl_gpu_let_go(const ddl_comm *comm)
{
    const struct ddl_device_ops *ops = atomic_load(&loaded.device_ops);
    if (ops != NULL)
        ops->open_latches(comm);
}

void ddl_gpu_forget(ddl_comm *comm)
{
    for (int gpu = 0; gpu < DDL_COMM_GPUS; gpu++) {
        ddl_staging_destroy(comm->stagings[gpu]);
        comm->stagings[gpu] = NULL;
    }
}
