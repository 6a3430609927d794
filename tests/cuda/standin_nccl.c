/*
 * standin_nccl - an NCCL without GPUs, for tests: calls run in streams of the stand-in for the driver, and
 * may be slow, fail or never end.
 *
 * Processes meet in a file, whose name is the unique id, and hand each other bytes in files of their own; all
 * lose their names once all have come. Every other call is put into its stream only when somebody has asked
 * for the state twice, as a communicator that does not block may do. Calls in a group are put there once the
 * outermost one ends.
 *
 * DDL_TEST_STANDIN_NCCL, and DDL_TEST_STANDIN_NCCL_<RANK> for one, say how it behaves, with commas between.
 *     version=22606  that of the library (22703)
 *     init=fail      meeting the others fails; init=hang: it never ends, init=id: there is no unique id,
 *                    init=name: making that never ends; init=block: beginning to meet does not
 *     delay=300      each call takes up to so many microseconds more
 *     fail=3         the third call of the process is refused
 *     break=3        the third one does not end, and the state says that it failed
 *     remote=3       the same, but another rank's part is said to have failed
 *     hang=3         the third one does not end
 *     die=3          the process is killed in the third one
 *     dies_parting   the process is killed when it begins to part from the others
 *     stuck          what was aborted does not stop
 *     stop=300       it stops after so many milliseconds, and has written to its output by then
 *     part=600       the end of a communicator takes so many milliseconds
 *     endless        the end of a communicator does not come, unless it is aborted
 *     frees          it gives memory back when it stops, and so waits for all that is under way on the GPU
 *     late=50000     what a call has received gets to its output so many microseconds after others may have
 *                    ended
 *     gate           finding the version, and then making an id, wait for standin_nccl_let_on
 *     exclusive      calls of the process run one at a time, as where each takes all of a GPU
 *
 * Two ranks on one GPU are refused, but from version 2.30 on with NCCL_MULTI_RANK_GPU_ENABLE.
 *
 * A thread of the library that may be given signals of the program is a reason to die.
 */
#include "standin.h"

#include "../support/now.h"
#include "compute/half.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RANKS_AT_MOST = 32,
    QUEUED_AT_MOST = 16,
    TYPES = 10,
    ID_BYTES = 128,
    MAGIC = (int)0xcafebeef,
    SHARES_GPUS = 23000,
    GATE_MS = 60000
};

/* As in NCCL's documentation. */
typedef enum outcome {
    SUCCESS,
    CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL,
    BAD_ARGUMENT,
    BAD_USAGE,
    REMOTE,
    IN_PROGRESS
} outcome;
typedef enum number { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 } number;
typedef enum reducer { SUM, PROD, MAX, MIN } reducer;

typedef struct unique_id {
    char name[ID_BYTES];
} unique_id;

typedef struct settings {
    size_t bytes;
    unsigned magic, version;
    int blocking;
} settings;

struct shared { /* by the processes of a communicator */
    atomic_ulong round[RANKS_AT_MOST];
    CUdevice gpu[RANKS_AT_MOST];
    atomic_bool parts[RANKS_AT_MOST];
    size_t offset[RANKS_AT_MOST][RANKS_AT_MOST]; /* of what a rank has for another, in its file */
    size_t bytes[RANKS_AT_MOST][RANKS_AT_MOST];
    /* How often a rank has had something for another by ncclSend, and how often that has taken it. */
    atomic_ulong sent[RANKS_AT_MOST][RANKS_AT_MOST], taken[RANKS_AT_MOST][RANKS_AT_MOST];
};

struct comm {
    struct shared *shared;
    unique_id id;
    int rank, nranks;
    bool blocks; /* calls are in their stream when they return */
    CUdevice gpu;
    CUcontext context;
    int files[RANKS_AT_MOST];
    unsigned long round, nsent[RANKS_AT_MOST], ntaken[RANKS_AT_MOST];
    atomic_bool aborted, parts;
    atomic_int state;
    atomic_bool met; /* or given up */
    pthread_t meeting, parting;
    bool has_begun_to_part;
    struct call *held; /* to be put into its stream */
    int looks;
    CUstream stream;
};

/* The last two are groups: of sends and receives, and of reductions to different roots. */
typedef enum kind { ALLREDUCE, REDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, MOVES, REDUCTIONS } kind;

static bool is_group(kind of)
{
    return of == MOVES || of == REDUCTIONS;
}

struct move {
    const char *from;
    char *to;
    size_t sent, received;
};

struct call {
    struct comm *comm;
    CUcontext context;
    CUstream stream;
    kind kind;
    const char *in;
    char *out;
    size_t count, element;
    number type;
    reducer op;
    int root;
    long ordinal;
    struct move moves[RANKS_AT_MOST];
};

static struct {
    pthread_mutex_t lock;
    bool is_read;
    long version, delay, fail, break_, remote, hang, die, stop, late, part, calls;
    bool init_fails, init_hangs, init_blocks, has_no_id, names_nothing, dies_parting, stuck, endless, frees,
        exclusive, has_gate;
    atomic_int ncame, nlet_on; /* at the gate, and from there */
    pthread_mutex_t gpu;
} nccl = { .lock = PTHREAD_MUTEX_INITIALIZER, .version = 22703, .gpu = PTHREAD_MUTEX_INITIALIZER };

/* What a thread calls between the start of its outermost group and the end of that, and what begins only
 * then: sends and receives, or reductions, as one call, and others in their order. */
static _Thread_local struct {
    int depth;
    struct call *gathered;
    struct call *queue[QUEUED_AT_MOST];
    int nqueued;
} group;

/* ---- how it behaves ---- */

static void read_words(const char *words)
{
    struct {
        const char *name;
        long *value;
    } known[] = { { "version=", &nccl.version }, { "delay=", &nccl.delay },   { "fail=", &nccl.fail },
                  { "break=", &nccl.break_ },    { "remote=", &nccl.remote }, { "hang=", &nccl.hang },
                  { "die=", &nccl.die },         { "stop=", &nccl.stop },     { "late=", &nccl.late },
                  { "part=", &nccl.part } };
    for (const char *word = words; word != NULL;
         word = strchr(word, ',') != NULL ? strchr(word, ',') + 1 : NULL) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strncmp(word, known[i].name, strlen(known[i].name)) == 0)
                *known[i].value = atol(word + strlen(known[i].name));
        nccl.init_fails = nccl.init_fails || strncmp(word, "init=fail", 9) == 0;
        nccl.init_hangs = nccl.init_hangs || strncmp(word, "init=hang", 9) == 0;
        nccl.init_blocks = nccl.init_blocks || strncmp(word, "init=block", 10) == 0;
        nccl.has_no_id = nccl.has_no_id || strncmp(word, "init=id", 7) == 0;
        nccl.names_nothing = nccl.names_nothing || strncmp(word, "init=name", 9) == 0;
        nccl.dies_parting = nccl.dies_parting || strncmp(word, "dies_parting", 12) == 0;
        nccl.stuck = nccl.stuck || strncmp(word, "stuck", 5) == 0;
        nccl.endless = nccl.endless || strncmp(word, "endless", 7) == 0;
        nccl.frees = nccl.frees || strncmp(word, "frees", 5) == 0;
        nccl.has_gate = nccl.has_gate || strncmp(word, "gate", 4) == 0;
        nccl.exclusive = nccl.exclusive || strncmp(word, "exclusive", 9) == 0;
    }
}

static void set_up(void)
{
    char variable[64] = "";
    const char *rank = getenv("RANK");
    pthread_mutex_lock(&nccl.lock);
    if (!nccl.is_read) {
        nccl.is_read = true;
        read_words(getenv("DDL_TEST_STANDIN_NCCL"));
        if (rank != NULL)
            snprintf(variable, sizeof variable, "DDL_TEST_STANDIN_NCCL_%.20s", rank);
        read_words(rank != NULL ? getenv(variable) : NULL);
    }
    pthread_mutex_unlock(&nccl.lock);
}

/* A function that the library has, but no header that is known here. */
#define EXPORT(...) \
    __VA_ARGS__;    \
    __VA_ARGS__

static void need_quiet_thread(void)
{
    sigset_t blocked;
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 || sigismember(&blocked, SIGUSR1) != 1)
        abort();
}

/* Whoever has the baton would keep it here. */
static void wait_at_gate(void)
{
    if (!nccl.has_gate)
        return;
    need_quiet_thread();
    int place = atomic_fetch_add(&nccl.ncame, 1);
    for (int ms = 0; atomic_load(&nccl.nlet_on) <= place; ms++) {
        if (ms == GATE_MS)
            abort();
        nap_us(1000);
    }
}

EXPORT(int standin_nccl_came(void))
{
    return atomic_load(&nccl.ncame);
}

EXPORT(void standin_nccl_let_on(void))
{
    atomic_fetch_add(&nccl.nlet_on, 1);
}

EXPORT(outcome ncclGetVersion(int *version))
{
    set_up();
    wait_at_gate();
    *version = (int)nccl.version;
    return SUCCESS;
}

EXPORT(const char *ncclGetErrorString(outcome error))
{
    if (error == BAD_USAGE)
        return "invalid usage";
    return error == REMOTE ? "remote process exited or there was a network error" : "unhandled system error";
}

EXPORT(const char *ncclGetLastError(struct comm *comm))
{
    (void)comm;
    return "the stand-in\nwas told\x1bto fail";
}

/* ---- meeting ---- */

static void name_file(const struct comm *comm, int rank, char path[ID_BYTES + 16])
{
    snprintf(path, ID_BYTES + 16, "%s.%d", comm->id.name, rank);
}

/* Until all have come so far. False: it was aborted. */
static bool meet(struct comm *comm)
{
    comm->round++;
    atomic_store(&comm->shared->round[comm->rank], comm->round);
    for (int rank = 0; rank < comm->nranks; rank++)
        while (atomic_load(&comm->shared->round[rank]) < comm->round) {
            if (atomic_load(&comm->aborted))
                return false;
            nap_us(50);
        }
    return true;
}

static unique_id unused[RANKS_AT_MOST * 8];
static atomic_int nunused;

static void forget(void)
{
    for (int i = 0; i < atomic_load(&nunused); i++)
        unlink(unused[i].name);
}

/* Ranks may never meet by it. */
static void forget_at_exit(const unique_id *made)
{
    int place = atomic_load(&nunused);
    if (place == RANKS_AT_MOST * 8 || (place == 0 && atexit(forget) != 0))
        return;
    unused[place] = *made;
    atomic_store(&nunused, place + 1);
}

EXPORT(outcome ncclGetUniqueId(unique_id *made))
{
    set_up();
    wait_at_gate();
    while (nccl.names_nothing)
        nap_us(100000);
    if (nccl.has_no_id)
        return SYSTEM_ERROR;
    const char *folder = getenv("TMPDIR");
    memset(made, 0, sizeof *made);
    snprintf(made->name, sizeof made->name, "%.80s/ddl-standin-nccl-XXXXXX",
             folder != NULL ? folder : "/tmp");
    int file = mkstemp(made->name);
    if (file < 0 || ftruncate(file, sizeof(struct shared)) != 0)
        return SYSTEM_ERROR;
    close(file);
    forget_at_exit(made);
    return SUCCESS;
}

static bool open_files(struct comm *comm)
{
    char path[ID_BYTES + 16];
    int file = open(comm->id.name, O_RDWR);
    if (file < 0)
        return false;
    comm->shared = mmap(NULL, sizeof *comm->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    name_file(comm, comm->rank, path);
    comm->files[comm->rank] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (comm->shared == MAP_FAILED || comm->files[comm->rank] < 0)
        return false;
    comm->shared->gpu[comm->rank] = comm->gpu;
    if (!meet(comm))
        return false;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (rank != comm->rank) {
            name_file(comm, rank, path);
            comm->files[rank] = open(path, O_RDWR);
            if (comm->files[rank] < 0)
                return false;
        }
    return meet(comm);
}

static bool takes_gpus(const struct comm *comm)
{
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (nccl.version >= SHARES_GPUS && shares != NULL && atoi(shares) != 0)
        return true;
    for (int high = 1; high < comm->nranks; high++)
        for (int low = 0; low < high; low++)
            if (comm->shared->gpu[low] == comm->shared->gpu[high])
                return false;
    return true;
}

/* Threads of the real one wait for streams when it comes up and ends, in the mode of captures in which a
 * thread begins. */
static bool wait_for_stream(const struct comm *comm)
{
    CUcontext own;
    CUstream stream = NULL;
    (void)cuCtxPushCurrent(comm->context);
    CUresult result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = cuStreamSynchronize(stream);
    if (stream != NULL)
        (void)cuStreamDestroy(stream);
    (void)cuCtxPopCurrent(&own);
    return result == CUDA_SUCCESS;
}

static void *come_up(void *arg)
{
    struct comm *comm = arg;
    char path[ID_BYTES + 16];
    while (nccl.init_hangs && !atomic_load(&comm->aborted))
        nap_us(1000);
    bool well = !nccl.init_fails && !nccl.init_hangs && open_files(comm);
    name_file(comm, comm->rank, path);
    unlink(path);
    if (comm->rank == 0)
        unlink(comm->id.name);
    outcome state = well ? SUCCESS : SYSTEM_ERROR;
    if (well && !takes_gpus(comm))
        state = BAD_USAGE;
    else if (well && !wait_for_stream(comm))
        state = CUDA_ERROR;
    atomic_store(&comm->state, state);
    atomic_store(&comm->met, true);
    return NULL;
}

/* NCCL uses the context that its caller has. */
static CUcontext current(void)
{
    CUcontext context = NULL;
    if (cuCtxPopCurrent(&context) != CUDA_SUCCESS || cuCtxPushCurrent(context) != CUDA_SUCCESS)
        abort();
    return context;
}

static struct comm *make(int nranks, unique_id id, int rank)
{
    struct comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL || nranks > RANKS_AT_MOST || cuCtxGetDevice(&comm->gpu) != CUDA_SUCCESS)
        abort();
    comm->context = current();
    comm->id = id;
    comm->rank = rank;
    comm->nranks = nranks;
    for (int i = 0; i < nranks; i++)
        comm->files[i] = -1;
    atomic_init(&comm->state, IN_PROGRESS);
    if (pthread_create(&comm->meeting, NULL, come_up, comm) != 0)
        abort();
    return comm;
}

EXPORT(outcome ncclCommInitRank(struct comm **out, int nranks, unique_id id, int rank))
{
    set_up();
    *out = make(nranks, id, rank);
    (*out)->blocks = true;
    while (!atomic_load(&(*out)->met))
        nap_us(100);
    return (outcome)atomic_load(&(*out)->state);
}

EXPORT(outcome ncclCommInitRankConfig(struct comm **out, int nranks, unique_id id, int rank,
                                      settings *config))
{
    set_up();
    if (config->magic != (unsigned)MAGIC || config->bytes < sizeof *config || config->blocking != 0 ||
        nranks > RANKS_AT_MOST)
        return BAD_ARGUMENT;
    if (nccl.init_blocks)
        need_quiet_thread();
    while (nccl.init_blocks)
        nap_us(100000);
    *out = make(nranks, id, rank);
    return IN_PROGRESS;
}

static void destroy(struct comm *comm)
{
    pthread_join(comm->meeting, NULL);
    if (comm->has_begun_to_part)
        pthread_join(comm->parting, NULL);
    if (comm->stream != NULL) { /* its calls are over soon, and use the communicator until then */
        CUresult left = CUDA_ERROR_NOT_READY;
        while (left == CUDA_ERROR_NOT_READY) {
            left = cuStreamQuery(comm->stream);
            if (left == CUDA_ERROR_DEINITIALIZED) /* the real one may crash */
                abort();
            nap_us(100);
        }
    }
    free(comm->held);
    for (int rank = 0; rank < comm->nranks; rank++)
        if (comm->files[rank] >= 0)
            close(comm->files[rank]);
    if (comm->shared != NULL && comm->shared != MAP_FAILED)
        munmap(comm->shared, sizeof *comm->shared);
    free(comm);
}

static void *part(void *arg)
{
    struct comm *comm = arg;
    (void)wait_for_stream(comm);
    atomic_store(&comm->shared->parts[comm->rank], true);
    atomic_store(&comm->parts, !nccl.endless);
    return NULL;
}

EXPORT(outcome ncclCommFinalize(struct comm *comm))
{
    int ready = SUCCESS;
    need_quiet_thread();
    if (nccl.dies_parting)
        kill(getpid(), SIGKILL);
    if (!atomic_compare_exchange_strong(&comm->state, &ready, IN_PROGRESS))
        return (outcome)ready;
    comm->has_begun_to_part = pthread_create(&comm->parting, NULL, part, comm) == 0;
    return comm->has_begun_to_part ? IN_PROGRESS : SYSTEM_ERROR;
}

EXPORT(outcome ncclCommDestroy(struct comm *comm))
{
    nap_us(1000 * nccl.part);
    destroy(comm);
    return SUCCESS;
}

static void give_memory_back(CUdevice gpu)
{
    CUcontext context, own;
    CUdeviceptr memory;
    if (cuDevicePrimaryCtxRetain(&context, gpu) != CUDA_SUCCESS ||
        cuCtxPushCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, 1) != CUDA_SUCCESS ||
        cuMemFree(memory) != CUDA_SUCCESS || cuCtxPopCurrent(&own) != CUDA_SUCCESS)
        abort();
}

EXPORT(outcome ncclCommAbort(struct comm *comm))
{
    const CUdevice gpu = comm->gpu;
    need_quiet_thread();
    while (nccl.stuck)
        nap_us(100000);
    nap_us(nccl.stop * 1000);
    atomic_store(&comm->aborted, true);
    destroy(comm);
    if (nccl.frees)
        give_memory_back(gpu);
    return SUCCESS;
}

/* ---- calls ---- */

static const size_t bytes_of[TYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2 };

static float get_half(const char *at, number type)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return type == FLOAT16 ? ddl_float_of_float16(half) : ddl_float_of_bfloat16(half);
}

static void combine_halves(char *at, const char *other, number type, reducer op)
{
    float a = get_half(at, type), b = get_half(other, type), both = op == SUM ? a + b : a * b;
    uint16_t half = type == FLOAT16 ? ddl_float16_of_float(both) : ddl_bfloat16_of_float(both);
    memcpy(at, &half, sizeof half);
}

#define COMBINE(kind, wide)                \
    do {                                   \
        kind a, b;                         \
        memcpy(&a, at, sizeof a);          \
        memcpy(&b, other, sizeof b);       \
        switch (op) {                      \
        case SUM:                          \
            a = (kind)((wide)a + (wide)b); \
            break;                         \
        case PROD:                         \
            a = (kind)((wide)a * (wide)b); \
            break;                         \
        case MAX:                          \
            a = a > b ? a : b;             \
            break;                         \
        case MIN:                          \
            a = a < b ? a : b;             \
            break;                         \
        }                                  \
        memcpy(at, &a, sizeof a);          \
    } while (0)

static void combine(char *at, const char *other, number type, reducer op)
{
    switch (type) {
    case INT8:
        COMBINE(int8_t, uint64_t);
        break;
    case UINT8:
        COMBINE(uint8_t, uint64_t);
        break;
    case INT32:
        COMBINE(int32_t, uint64_t);
        break;
    case UINT32:
        COMBINE(uint32_t, uint64_t);
        break;
    case INT64:
        COMBINE(int64_t, uint64_t);
        break;
    case UINT64:
        COMBINE(uint64_t, uint64_t);
        break;
    case FLOAT32:
        COMBINE(float, float);
        break;
    case FLOAT64:
        COMBINE(double, double);
        break;
    case FLOAT16:
    case BFLOAT16:
        combine_halves(at, other, type, op);
        break;
    }
}

static void put(int file, const char *bytes, size_t count, size_t offset)
{
    for (ssize_t done; count > 0; bytes += done, count -= (size_t)done, offset += (size_t)done)
        if ((done = pwrite(file, bytes, count, (off_t)offset)) <= 0)
            abort();
}

static void get(int file, char *bytes, size_t count, size_t offset)
{
    for (ssize_t done; count > 0; bytes += done, count -= (size_t)done, offset += (size_t)done)
        if ((done = pread(file, bytes, count, (off_t)offset)) <= 0)
            abort();
}

/* How many elements a rank has to give, for all alike. */
static size_t given(const struct call *call)
{
    return call->kind == REDUCE_SCATTER ? call->count * (size_t)call->comm->nranks : call->count;
}

static void hand_out(const struct call *call)
{
    struct comm *comm = call->comm;
    size_t offset = 0;
    if (!is_group(call->kind)) {
        put(comm->files[comm->rank], standin_bytes(call->in, given(call) * call->element),
            given(call) * call->element, 0);
        return;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        const struct move *move = &call->moves[rank];
        comm->shared->offset[comm->rank][rank] = offset;
        comm->shared->bytes[comm->rank][rank] = move->sent;
        if (move->sent > 0)
            put(comm->files[comm->rank], standin_bytes(move->from, move->sent), move->sent, offset);
        offset += move->sent;
    }
}

/* All operands, in the order of ranks. */
static void reduce(const struct call *call, size_t first, char *into)
{
    struct comm *comm = call->comm;
    size_t bytes = call->count * call->element;
    char *operand = malloc(bytes + 1);
    if (operand == NULL)
        abort();
    get(comm->files[0], into, bytes, first * call->element);
    for (int rank = 1; rank < comm->nranks; rank++) {
        get(comm->files[rank], operand, bytes, first * call->element);
        for (size_t i = 0; i < bytes; i += call->element)
            combine(into + i, operand + i, call->type, call->op);
    }
    free(operand);
}

/* False: it was aborted. */
static bool await(const struct comm *comm, const atomic_ulong *counter, unsigned long least)
{
    while (atomic_load(counter) < least) {
        if (atomic_load(&comm->aborted))
            return false;
        nap_us(50);
    }
    return true;
}

/* Who has nothing for another, and expects nothing of it, does not meet it: with neither for anybody it may
 * leave out the call. *broke: what was sent is not what is received. False: it was aborted. */
static bool exchange(const struct call *call, char *into, bool *broke)
{
    struct comm *comm = call->comm;
    struct shared *shared = comm->shared;
    const int self = comm->rank;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (call->moves[rank].sent > 0)
            atomic_store(&shared->sent[self][rank], ++comm->nsent[rank]);
    for (int rank = 0; rank < comm->nranks; rank++) {
        size_t wanted = call->moves[rank].received;
        if (wanted == 0)
            continue;
        if (!await(comm, &shared->sent[rank][self], ++comm->ntaken[rank]))
            return false;
        *broke = *broke || shared->bytes[rank][self] != wanted;
        if (!*broke)
            get(comm->files[rank], into, wanted, shared->offset[rank][self]);
        into += wanted;
        atomic_store(&shared->taken[rank][self], comm->ntaken[rank]);
    }
    for (int rank = 0; rank < comm->nranks; rank++)
        if (call->moves[rank].sent > 0 && !await(comm, &shared->taken[self][rank], comm->nsent[rank]))
            return false;
    return true;
}

/* What all have for this rank, in the order of ranks. False: they have not the same amount. */
static bool collect_reduction(const struct call *call, char *into)
{
    struct comm *comm = call->comm;
    size_t wanted = call->moves[comm->rank].received;
    char *operand = malloc(wanted + 1);
    bool is_same = true;
    if (operand == NULL)
        abort();
    for (int rank = 0; rank < comm->nranks; rank++) {
        is_same = is_same && comm->shared->bytes[rank][comm->rank] == wanted;
        if (!is_same)
            break;
        get(comm->files[rank], rank == 0 ? into : operand, wanted, comm->shared->offset[rank][comm->rank]);
        for (size_t i = 0; rank > 0 && i < wanted; i += call->element)
            combine(into + i, operand + i, call->type, call->op);
    }
    free(operand);
    return is_same;
}

static size_t collected(const struct call *call)
{
    size_t bytes = call->count * call->element;
    if (call->kind == ALLGATHER)
        return bytes * (size_t)call->comm->nranks;
    if (call->kind == REDUCE && call->comm->rank != call->root)
        return 0;
    for (int rank = 0; is_group(call->kind) && rank < call->comm->nranks; rank++)
        bytes += call->moves[rank].received;
    return bytes;
}

static bool collect(const struct call *call, char *into)
{
    struct comm *comm = call->comm;
    size_t bytes = call->count * call->element;
    switch (call->kind) {
    case ALLREDUCE:
        reduce(call, 0, into);
        break;
    case REDUCE:
        if (comm->rank == call->root)
            reduce(call, 0, into);
        break;
    case REDUCE_SCATTER:
        reduce(call, call->count * (size_t)comm->rank, into);
        break;
    case ALLGATHER:
        for (int rank = 0; rank < comm->nranks; rank++)
            get(comm->files[rank], into + bytes * (size_t)rank, bytes, 0);
        break;
    case BROADCAST:
        get(comm->files[call->root], into, bytes, 0);
        break;
    case MOVES: /* exchange has done it */
        break;
    case REDUCTIONS:
        return collect_reduction(call, into);
    }
    return true;
}

static void deliver(const struct call *call, const char *from)
{
    if (!is_group(call->kind) && collected(call) > 0)
        memcpy(standin_bytes(call->out, collected(call)), from, collected(call));
    for (int rank = 0; is_group(call->kind) && rank < call->comm->nranks; rank++) {
        size_t bytes = call->moves[rank].received;
        if (bytes > 0)
            memcpy(standin_bytes(call->moves[rank].to, bytes), from, bytes);
        from += bytes;
    }
}

/* In its stream; inputs are read by all before outputs are written, as they may be the same. */
static bool run(void *arg)
{
    struct call *call = arg;
    struct comm *comm = call->comm;
    bool hangs = call->ordinal == nccl.hang || call->ordinal == nccl.break_ || call->ordinal == nccl.remote;
    unsigned seed = (unsigned)call->ordinal * 31 + (unsigned)comm->rank;
    if (call->ordinal == nccl.die)
        kill(getpid(), SIGKILL);
    if (nccl.delay > 0)
        nap_us((long)rand_r(&seed) % nccl.delay);
    if (nccl.exclusive)
        pthread_mutex_lock(&nccl.gpu);
    while (hangs && !atomic_load(&comm->aborted))
        nap_us(1000);
    if (hangs && nccl.stop > 0)
        memset(standin_bytes(call->out, collected(call)), 0xee, collected(call));
    char *into = malloc(collected(call) + 1);
    if (into == NULL)
        abort();
    bool goes = !hangs;
    bool broke = false;
    if (goes) {
        hand_out(call);
        goes = call->kind == MOVES ? exchange(call, into, &broke) : meet(comm);
    }
    if (goes && call->kind != MOVES) {
        broke = !collect(call, into);
        goes = meet(comm);
    }
    if (goes && !broke) {
        nap_us(nccl.late);
        deliver(call, into);
    }
    if (nccl.exclusive)
        pthread_mutex_unlock(&nccl.gpu);
    free(into);
    free(call);
    return broke;
}

static void put_into_stream(struct call *call)
{
    CUcontext own;
    struct comm *comm = call->comm;
    comm->stream = call->stream;
    if (call->ordinal == nccl.break_)
        atomic_store(&comm->state, CUDA_ERROR);
    if (call->ordinal == nccl.remote)
        atomic_store(&comm->state, REMOTE);
    (void)cuCtxPushCurrent(call->context);
    if (standin_run(call->stream, run, call) != CUDA_SUCCESS)
        free(call);
    (void)cuCtxPopCurrent(&own);
}

static bool have_all_parted(const struct comm *comm)
{
    for (int rank = 0; rank < comm->nranks; rank++)
        if (!atomic_load(&comm->shared->parts[rank]))
            return false;
    return true;
}

EXPORT(outcome ncclCommGetAsyncError(struct comm *comm, outcome *state))
{
    if (comm->held != NULL && ++comm->looks == 2) {
        struct call *call = comm->held;
        comm->held = NULL;
        atomic_store(&comm->state, SUCCESS);
        put_into_stream(call);
    }
    if (atomic_load(&comm->parts) && have_all_parted(comm))
        atomic_store(&comm->state, SUCCESS);
    *state = (outcome)atomic_load(&comm->state);
    return SUCCESS;
}

/* Takes the call. */
static outcome begin(struct call *call, bool may_be_late)
{
    struct comm *comm = call->comm;
    if (comm->held != NULL || atomic_load(&comm->state) != SUCCESS) {
        free(call);
        return BAD_USAGE;
    }
    pthread_mutex_lock(&nccl.lock);
    call->ordinal = ++nccl.calls;
    pthread_mutex_unlock(&nccl.lock);
    if (call->ordinal == nccl.fail) {
        free(call);
        return SYSTEM_ERROR;
    }
    if (comm->blocks || !may_be_late || call->ordinal % 2 == 0) {
        put_into_stream(call);
        return SUCCESS;
    }
    comm->held = call;
    comm->looks = 0;
    atomic_store(&comm->state, IN_PROGRESS);
    return IN_PROGRESS;
}

static outcome issue(struct call what)
{
    struct call *call = malloc(sizeof *call);
    if (call == NULL)
        abort();
    *call = what;
    call->context = current();
    call->element = bytes_of[what.type];
    if (group.depth == 0)
        return begin(call, true);
    if (group.nqueued == QUEUED_AT_MOST)
        abort(); /* nothing here has so many */
    group.queue[group.nqueued++] = call;
    return SUCCESS;
}

/* ---- groups ---- */

EXPORT(outcome ncclGroupStart(void))
{
    group.depth++;
    return SUCCESS;
}

static struct call *in_its_group(struct comm *comm, CUstream stream, kind of, number type)
{
    struct call *call = group.gathered;
    if (group.depth == 0 || (call != NULL && (call->kind != of || call->type != type)))
        abort(); /* nothing here does that */
    if (call == NULL && (call = group.gathered = calloc(1, sizeof *call)) == NULL)
        abort();
    call->comm = comm;
    call->stream = stream;
    call->kind = of;
    call->type = type;
    return call;
}

static outcome reduce_in_group(const void *in, void *out, size_t count, number type, reducer op, int root,
                               struct comm *comm, CUstream stream)
{
    struct call *call = in_its_group(comm, stream, REDUCTIONS, type);
    size_t bytes = count * bytes_of[type];
    call->op = op;
    call->moves[root] =
        (struct move){ .from = in, .to = out, .sent = bytes, .received = root == comm->rank ? bytes : 0 };
    return SUCCESS;
}

/* ---- collectives ---- */

EXPORT(outcome ncclAllReduce(const void *in, void *out, size_t count, number type, reducer op,
                             struct comm *comm, CUstream stream))
{
    return issue((struct call){ .comm = comm,
                                .stream = stream,
                                .kind = ALLREDUCE,
                                .in = in,
                                .out = out,
                                .count = count,
                                .type = type,
                                .op = op });
}

EXPORT(outcome ncclReduce(const void *in, void *out, size_t count, number type, reducer op, int root,
                          struct comm *comm, CUstream stream))
{
    if (group.depth > 0)
        return reduce_in_group(in, out, count, type, op, root, comm, stream);
    return issue((struct call){ .comm = comm,
                                .stream = stream,
                                .kind = REDUCE,
                                .in = in,
                                .out = out,
                                .count = count,
                                .type = type,
                                .op = op,
                                .root = root });
}

EXPORT(outcome ncclReduceScatter(const void *in, void *out, size_t count, number type, reducer op,
                                 struct comm *comm, CUstream stream))
{
    return issue((struct call){ .comm = comm,
                                .stream = stream,
                                .kind = REDUCE_SCATTER,
                                .in = in,
                                .out = out,
                                .count = count,
                                .type = type,
                                .op = op });
}

EXPORT(outcome ncclAllGather(const void *in, void *out, size_t count, number type, struct comm *comm,
                             CUstream stream))
{
    return issue((struct call){ .comm = comm,
                                .stream = stream,
                                .kind = ALLGATHER,
                                .in = in,
                                .out = out,
                                .count = count,
                                .type = type });
}

EXPORT(outcome ncclBroadcast(const void *in, void *out, size_t count, number type, int root,
                             struct comm *comm, CUstream stream))
{
    return issue((struct call){ .comm = comm,
                                .stream = stream,
                                .kind = BROADCAST,
                                .in = in,
                                .out = out,
                                .count = count,
                                .type = type,
                                .root = root });
}

/* ---- sends and receives ---- */

EXPORT(outcome ncclSend(const void *in, size_t count, number type, int peer, struct comm *comm,
                        CUstream stream))
{
    struct move *move = &in_its_group(comm, stream, MOVES, type)->moves[peer];
    move->from = in;
    move->sent = count * bytes_of[type];
    return SUCCESS;
}

EXPORT(outcome ncclRecv(void *out, size_t count, number type, int peer, struct comm *comm, CUstream stream))
{
    struct move *move = &in_its_group(comm, stream, MOVES, type)->moves[peer];
    move->to = out;
    move->received = count * bytes_of[type];
    return SUCCESS;
}

static outcome worse(outcome one, outcome other)
{
    return one == SUCCESS || (one == IN_PROGRESS && other != SUCCESS) ? other : one;
}

EXPORT(outcome ncclGroupEnd(void))
{
    outcome ended = SUCCESS;
    if (group.depth == 0)
        return BAD_USAGE;
    if (--group.depth > 0)
        return SUCCESS;
    for (int i = 0; i < group.nqueued; i++)
        ended = worse(ended, begin(group.queue[i], false));
    group.nqueued = 0;
    struct call *gathered = group.gathered;
    group.gathered = NULL;
    if (gathered != NULL) {
        ended = worse(ended, issue(*gathered));
        free(gathered);
    }
    return ended;
}
