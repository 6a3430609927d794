/*
 * ddl.h - processes find each other and run collective operations, without MPI.
 *
 * A program calls ddl_init once, then any collectives, then ddl_comm_free:
 *
 *     ddl_comm *world = NULL;
 *     if (ddl_init(&world, NULL) != DDL_OK) { fputs(ddl_last_error()->text, stderr); return 1; }
 *     ddl_allreduce(x, x, count, DDL_FLOAT32, DDL_SUM, world, NULL);
 *     ddl_comm_free(&world);
 *
 * Start it with ddl-launch, or with any scheduler that sets MASTER_ADDR, MASTER_PORT, RANK and
 * WORLD_SIZE, or a rank and a size under a name of its own. With no rank and no size set the world has one
 * rank and every collective is the identity; where the environment names a place to meet all the same a
 * warning says so.
 *
 * Rules that hold for every call, unless its own text says otherwise:
 *
 * Matching.  Operations on one communicator match by the order in which each rank issues them; sends
 *   and receives between two ranks match in their own order. Several operations may be in flight and
 *   may complete, and be waited for, in any order. Ranks whose calls do not match get DDL_EMISMATCH; but
 *   where no message goes between them it may not be noticed, as in an allreduce of 0 elements beside an
 *   allgather of 0, or in a gatherv whose arrays differ on a rank that has an empty block, so sends nothing;
 *   and what a rank is sent where it counts 0 may be noticed only when the two next talk.
 * Threads.   The caller serialises the issuing of operations per communicator. Waiting and testing may
 *   happen on any thread. Different communicators are independent of each other.
 * Buffers.   Elements, not bytes, are counted. Buffers are host memory, or, all of a rank's in one call,
 *   memory of one CUDA GPU: what is sent is there when the call is made, not still to come in some stream,
 *   but for calls in the order of a stream (cuda.h, docs/gpu.md). That the GPU fails, or cannot be used, is
 *   DDL_EDEVICE, or DDL_EUNSUPPORTED, on every rank. A buffer that a rank's role does not use may be NULL.
 *   What is reduced has to be aligned as C aligns its type; what is only moved may lie anywhere. Zero counts
 *   are legal. Once a call or wait has returned, also with an error, the library does not touch
 *   the buffers again.
 * In place.  Equal pointers (allreduce, alltoall and alltoallv; reduce at the root), or the own block of the
 *   buffer that holds one for each rank: as send (allgather; gather at the root) or as recv (reduce_scatter;
 *   scatter at the root), and so in their v forms, where it begins after the counts of the ranks before. A
 *   broadcast has one buffer. Any other overlap of send and recv is DDL_EINVAL.
 * Completion. Is local: this rank's part is done and its buffers are free to use. Only a barrier says
 *   anything about other ranks. What a rank was the last to send may leave up to 2 ms later, and need not
 *   arrive if its process ends before that.
 * Requests.  With request == NULL a call blocks until the operation is done. Otherwise *request is set
 *   and the call returns at once; the request must be waited for or tested until done.
 * Deadlines. Every operation ends by its deadline, which starts when it is issued (ddl_comm_set_timeout,
 *   ddl_options.timeout_ms, DDL_TIMEOUT; 300 s). None waits for ever. It ends before that if a rank that it
 *   waits for has gone (DDL_EPEERLOST), has given no sign of life for 30 s, as its process is stopped
 *   (DDL_EUNRESPONSIVE, DDL_UNRESP_TIMEOUT), or its host has acknowledged nothing for 15 s
 *   (DDL_EUNREACHABLE, DDL_UNREACH_TIMEOUT).
 * Errors.    A negative ddl_status; ddl_last_error has the details for the calling thread. An argument
 *   error (DDL_EINVAL) changes nothing; the other ranks then wait for this one and time out. Any other
 *   failure of an operation, be it for want of memory, breaks its communicator: all operations in flight, or
 *   else the first later one, return the root cause with the same culprit on every rank; calls that follow a
 *   return of it get DDL_EABORTED until the communicator is freed. (In a world of one DDL_ENOMEM from a call
 *   on host memory changes nothing.)
 * Exit.      A process that exits without ddl_comm_free says goodbye to the others from an exit handler.
 *   Handlers that come later, and destructors of C++, may free what they have; a call that needs other ranks
 *   is DDL_EABORTED at once, and one that another thread is in ends so. No line is told to a sink any more.
 * Fork.      A forked child must not use the library (DDL_EUNSUPPORTED); it does not disturb its parent.
 */
#ifndef DDL_DDL_H
#define DDL_DDL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDL_VERSION_MAJOR 0
#define DDL_VERSION_MINOR 1
#define DDL_VERSION_PATCH 0

#if defined(__GNUC__) || defined(__clang__)
#define DDL_API __attribute__((visibility("default")))
#else
#define DDL_API
#endif

/* What a call came to. Negative is failure; ddl_status_name and ddl_status_text tell it in words. */
typedef enum ddl_status {
    DDL_OK = 0,
    DDL_EINVAL = -1,        /* an argument makes no sense; nothing was done */
    DDL_ETIMEDOUT = -2,     /* a deadline passed; everyone may be alive */
    DDL_EPEERLOST = -3,     /* a peer process ended or its connection broke */
    DDL_EUNREACHABLE = -4,  /* a peer's host stopped answering */
    DDL_EUNRESPONSIVE = -5, /* a peer's host answers, its process does not */
    DDL_EMISMATCH = -6,     /* ranks called different operations, counts, types, ...; see Matching above */
    DDL_EABORTED = -7,      /* this communicator was aborted */
    DDL_ECONFIG = -8,       /* environment or options wrong or in conflict between ranks */
    DDL_EAUTH = -9,         /* a peer could not prove that it belongs to this job */
    DDL_ESTORE = -10,       /* the rendezvous store failed */
    DDL_ENETWORK = -11,     /* cannot listen, resolve or connect */
    DDL_EPROTO = -12,       /* malformed or unexpected bytes, or another version */
    DDL_ENOMEM = -13,       /* out of memory */
    DDL_ERESOURCE = -14,    /* out of descriptors, shared memory, threads */
    DDL_EUNSUPPORTED = -15, /* not possible here, or not in this build */
    DDL_EDEVICE = -16,      /* CUDA or NCCL failed */
    DDL_EINTERNAL = -17     /* a defect of ddl */
} ddl_status;

/* Type of an element. float16 is IEEE binary16; bfloat16 is the upper half of an IEEE binary32. */
typedef enum ddl_dtype {
    DDL_INT8,
    DDL_UINT8,
    DDL_INT16,
    DDL_UINT16,
    DDL_INT32,
    DDL_UINT32,
    DDL_INT64,
    DDL_UINT64,
    DDL_FLOAT16,
    DDL_BFLOAT16,
    DDL_FLOAT32,
    DDL_FLOAT64
} ddl_dtype;

/*
 * How elements are combined. Integers wrap. DDL_AVG divides the finished sum once (16-bit floats in
 * float32; integers truncate toward zero). That sum is one of the type: integers have wrapped in it, and of
 * floats one that is too large is an infinity, and so is its average, though that would not be: the average
 * of 65504 and 65504 in float16. 16-bit sums are rounded to 16 bits before they are divided. MIN and MAX
 * propagate NaN and take -0 as less than +0. Bitwise operators on floats are DDL_EINVAL.
 */
typedef enum ddl_op { DDL_SUM, DDL_PROD, DDL_MIN, DDL_MAX, DDL_AVG, DDL_BAND, DDL_BOR, DDL_BXOR } ddl_op;

typedef struct ddl_comm ddl_comm;       /* a set of ranks with its own order of operations */
typedef struct ddl_request ddl_request; /* one operation in flight */

/* The last failed call of a thread, as ddl_last_error gives it. */
typedef struct ddl_error {
    ddl_status code;
    int rank;           /* of this process in the communicator, or -1 */
    int culprit;        /* rank at fault, or -1 */
    uint64_t sequence;  /* of the operation in its communicator, from 1; 0 if none */
    char operation[32]; /* "allreduce", "init", "" if none */
    int os_errno;       /* 0 if none */
    char text[512];     /* one line a person can act on */
} ddl_error;

/*
 * Settings of ddl_init. Start from DDL_OPTIONS_INIT; a field left as it is there means: from the
 * environment. A value set here wins over the environment, but a rank or size that contradicts the
 * launcher's is DDL_ECONFIG.
 */
typedef struct ddl_options {
    size_t struct_size;       /* of this struct as the program knows it */
    int rank, world_size;     /* -1: from the environment; at most 1048576 ranks */
    const char *store;        /* "tcp://host:port", "file:///dir", "redis://host:port"; NULL: DDL_STORE, else
                                 MASTER_ADDR:MASTER_PORT */
    int64_t start_timeout_ms; /* rendezvous and connecting; 0: DDL_START_TIMEOUT, else 300 s */
    int64_t timeout_ms;       /* default per operation; 0: DDL_TIMEOUT, else 300 s */
    const char *
        interface; /* interfaces or networks to use, as in "eth0,10.0.0.0/8" or "^docker0"; NULL: DDL_IFACE */
    const char *security;  /* "auth", "tls", "off"; NULL: DDL_SECURITY, else auth */
    const char *transport; /* of ranks of one host: "auto", "tcp", "shm"; NULL: DDL_TRANSPORT */
} ddl_options;

#define DDL_OPTIONS_INIT                                          \
    {                                                             \
        sizeof(ddl_options), -1, -1, NULL, 0, 0, NULL, NULL, NULL \
    }

/* ---- life cycle ---- */

/*
 * Meet the other ranks and connect to each of them. *world is written on success only. options may be
 * NULL. Blocks at most the start timeout. Freeing and calling it again works, on the same address too.
 * Standard descriptors that are closed are opened on /dev/null, as else a connection might get their number.
 * At level "auth" every rank proves that it has the job's secret: ddl-launch hands it over, DDL_SECRET_FILE
 * names it, or else a file of this user is made on first use (docs/security.md). At level "tls" connections
 * between ranks are encrypted as well.
 * DDL_ECONFIG: environment or options wrong, duplicate rank, differing world size, no secret to be had.
 * DDL_EAUTH: what answers, or comes, has another secret or level, or belongs to another run.
 * DDL_ETIMEDOUT: some ranks did not come; the text names them. DDL_ENETWORK, DDL_ESTORE: cannot listen,
 * resolve or connect. DDL_EPEERLOST: a rank ended during start-up. Thread: any.
 */
DDL_API ddl_status ddl_init(ddl_comm **world, const ddl_options *options);

/*
 * Make communicators of parts of comm: ranks that give the same color are together, ordered by key and then
 * by their rank in comm. color < 0 takes no part: *part is set to NULL. Collective. The part uses the
 * connections of comm; operations on both, and on other parts, are independent of each other and may run at
 * once, from any threads. Errors as of a collective; DDL_ENOMEM on one rank is told to all.
 */
DDL_API ddl_status ddl_comm_split(ddl_comm *comm, int color, int key, ddl_comm **part);

/*
 * After a failure of comm: the ranks that are left agree on who is gone and make a communicator of the rest,
 * in the same order, over the connections that they have. Only ranks whose processes or connections were
 * lost are left out, those that gave no sign of life (DDL_EUNRESPONSIVE, DDL_EUNREACHABLE), before this call
 * or while it waited for them, and those that have freed comm instead. At least half of comm must be left (of
 * exactly half, the one with its lowest rank goes on); otherwise, and on a rank that the others have given
 * up, DDL_EABORTED. Every remaining rank calls it; comm still is to be freed. Bounded by the time limit of
 * comm: DDL_ETIMEDOUT names who has not called it.
 */
DDL_API ddl_status ddl_comm_shrink(ddl_comm *comm, ddl_comm **survivors);

/*
 * End every operation on comm on every rank: they return DDL_EABORTED with `reason` (NULL: none) and this
 * rank as the culprit, and so does the next call where none was in flight (once that rank has heard of it:
 * where its calls never have to wait, within 0.5 s). Local and immediate; comm is still to be freed.
 */
DDL_API ddl_status ddl_comm_abort(ddl_comm *comm, const char *reason);

/*
 * Leave the communicator and set *comm to NULL, whatever is returned. Collective and graceful while the
 * communicator is healthy: operations in flight complete first (their requests can still be waited
 * for), then ranks part. Local after a failure. Bounded by 5 s. *comm == NULL is DDL_OK. DDL_ETIMEDOUT: not
 * all of it was possible by then, as another rank did not come, or did not do its part of an operation that
 * nobody has waited for (one that fails meanwhile says so to whoever waits for it); or a thread of the
 * library is stuck, which may take a second more to tell. What operations have given before is not touched by
 * that, and a rank that comes after others have left so gets DDL_OK. So what one rank alone does for long, as
 * saving a model, is best done after this.
 * As ranks meet in it, all free their communicators in the same order: ranks that free two in opposite orders
 * wait for each other until DDL_ETIMEDOUT, or DDL_EPEERLOST if one of them has left the world with it.
 * With the communicator of ddl_init everything that was split from it is freed too, if it is not yet, and so
 * is what came from shrinking such a part; one that came from shrinking the communicator of ddl_init itself
 * stands on its own, with what was split from it. A handle of a communicator that went so may still be given
 * to ddl_comm_free, until the next ddl_init, and to nothing else.
 */
DDL_API ddl_status ddl_comm_free(ddl_comm **comm);

/* Time limit, in milliseconds and greater than zero, of operations that this rank issues from now on. Local.
 */
DDL_API ddl_status ddl_comm_set_timeout(ddl_comm *comm, int64_t timeout_ms);

DDL_API int ddl_rank(const ddl_comm *comm);       /* 0 .. size-1; -1 if comm is NULL */
DDL_API int ddl_size(const ddl_comm *comm);       /* ranks in the communicator; -1 if comm is NULL */
DDL_API int ddl_local_rank(const ddl_comm *comm); /* among the ranks on this host, by rank order */
DDL_API int ddl_local_size(const ddl_comm *comm); /* ranks on this host */
DDL_API int ddl_node_rank(const ddl_comm *comm);  /* this host among hosts, ordered by their lowest rank */
DDL_API int ddl_node_count(const ddl_comm *comm); /* hosts */

/*
 * ---- collective operations; every rank calls each of them with matching arguments ----
 *
 * A call may be done before others have begun theirs, or wait for all of them, in this or in an earlier one:
 * which it is depends on sizes and on the machine, so a program must be right with both.
 */

/* recv[0..count) = the combination over all ranks of send[0..count). In place: send == recv. */
DDL_API ddl_status ddl_allreduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                                 ddl_comm *comm, ddl_request **request);

/* As allreduce, but only root receives; recv may be NULL elsewhere. In place at the root: send == recv. */
DDL_API ddl_status ddl_reduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                              int root, ddl_comm *comm, ddl_request **request);

/*
 * send holds size * recv_count elements; rank r receives elements [r * recv_count, (r+1) * recv_count) of
 * the combination over all ranks. In place: recv == send + rank * recv_count elements; the rest of send
 * is left as it was.
 */
DDL_API ddl_status ddl_reduce_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype,
                                      ddl_op op, ddl_comm *comm, ddl_request **request);

/*
 * recv, of size * send_count elements, receives every rank's send_count elements in rank order.
 * In place: send == recv + rank * send_count elements.
 */
DDL_API ddl_status ddl_allgather(const void *send, void *recv, size_t send_count, ddl_dtype dtype,
                                 ddl_comm *comm, ddl_request **request);

/* buffer[0..count) of root is copied to every rank. */
DDL_API ddl_status ddl_broadcast(void *buffer, size_t count, ddl_dtype dtype, int root, ddl_comm *comm,
                                 ddl_request **request);

/*
 * send and recv hold size * count_per_rank elements; block i of send goes to rank i, block i of recv
 * comes from rank i. In place: send == recv.
 */
DDL_API ddl_status ddl_alltoall(const void *send, void *recv, size_t count_per_rank, ddl_dtype dtype,
                                ddl_comm *comm, ddl_request **request);

/*
 * recv of root, of size * send_count elements, receives every rank's send_count elements in rank order; recv
 * may be NULL elsewhere. In place at root: send == recv + root * send_count elements.
 */
DDL_API ddl_status ddl_gather(const void *send, void *recv, size_t send_count, ddl_dtype dtype, int root,
                              ddl_comm *comm, ddl_request **request);

/*
 * send of root holds size * recv_count elements; rank r receives block r of it. send may be NULL elsewhere.
 * In place at root: recv == send + root * recv_count elements.
 */
DDL_API ddl_status ddl_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype, int root,
                               ddl_comm *comm, ddl_request **request);

/*
 * The v forms: blocks of uneven size, packed in rank order. counts holds one number of elements per rank and
 * is the same on every rank (DDL_EMISMATCH otherwise); the array is not read after the call has returned.
 * Zero is a count like any other. In place as without v, the offset being the sum of the counts before.
 */
DDL_API ddl_status ddl_allgatherv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype,
                                  ddl_comm *comm, ddl_request **request);
DDL_API ddl_status ddl_reduce_scatterv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype,
                                       ddl_op op, ddl_comm *comm, ddl_request **request);
DDL_API ddl_status ddl_gatherv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype, int root,
                               ddl_comm *comm, ddl_request **request);
DDL_API ddl_status ddl_scatterv(const void *send, void *recv, const size_t counts[], ddl_dtype dtype,
                                int root, ddl_comm *comm, ddl_request **request);

/*
 * Block i of send, of send_counts[i] elements, goes to rank i; block i of recv, of recv_counts[i] elements,
 * comes from rank i. What a rank sends to another must be what that one expects (DDL_EMISMATCH otherwise,
 * naming both), and what it sends to itself what it receives from itself (DDL_EINVAL). In place:
 * send == recv, with equal arrays of counts.
 */
DDL_API ddl_status ddl_alltoallv(const void *send, const size_t send_counts[], void *recv,
                                 const size_t recv_counts[], ddl_dtype dtype, ddl_comm *comm,
                                 ddl_request **request);

/* Done only after every rank has entered it. */
DDL_API ddl_status ddl_barrier(ddl_comm *comm, ddl_request **request);

/*
 * ---- point to point; a send and a receive match in order per pair of ranks ----
 *
 * Unlike in MPI there are no tags, a receive has the count and type of its send (DDL_EMISMATCH, also where
 * there would be room for more), and nobody sends to himself: peer == the own rank is DDL_EINVAL.
 */

/*
 * A send may complete before its receive is posted. With a count of 0 nothing is sent, so nothing can tell
 * the other end if it has another count: its receive then ends by its deadline.
 */
DDL_API ddl_status ddl_send(const void *send, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                            ddl_request **request);
DDL_API ddl_status ddl_recv(void *recv, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                            ddl_request **request);

/* ---- completion ---- */

/* Block until done or until the operation's deadline. Frees the request and sets it to NULL, also on failure.
 * Of no request (NULL, or a pointer to NULL) it is DDL_OK. */
DDL_API ddl_status ddl_wait(ddl_request **request);

/* Wait for all n, even after a failure; NULL entries are skipped. Returns the root cause of the first
 * failure. */
DDL_API ddl_status ddl_wait_all(size_t n, ddl_request *requests[]);

/*
 * Wait until any of n is done, write its index, free it and set it to NULL. NULL entries are skipped;
 * all NULL, or n == 0, is DDL_EINVAL. A failed operation is done too: *index is set, its status returned.
 */
DDL_API ddl_status ddl_wait_any(size_t n, ddl_request *requests[], size_t *index);

/* Make progress and tell whether the operation is done; never blocks. Where ranks share CPUs it lets others
 * have this one for a moment, if it finds nothing to do. When done (or failed) the request is freed; done is
 * set whenever this fails. */
DDL_API ddl_status ddl_test(ddl_request **request, bool *done);

/* ---- memory ---- */

/*
 * Memory that the other ranks on this host can read and write directly: large messages from it and to it are
 * copied once instead of twice, or reduced where they lie. Any host memory may be passed to any call; this
 * one makes calls of 64 KiB per message and more faster, where each rank has its buffers in it most. Where no
 * memory is shared (one rank on the host, DDL_TRANSPORT=tcp, ulimit -v), it is ordinary memory.
 *
 * *memory becomes the address of at least `bytes` bytes, all zero, aligned to a page; of NULL if bytes is 0.
 * It may be used with every communicator of the world, and in parts. It is there until ddl_mem_free, or until
 * the world is freed. A child of fork shares it with its parent rather than having a copy.
 *
 * Not collective; any thread; comm may have failed. DDL_ENOMEM: there is not so much, or on Linux a cgroup of
 * this process has a limit that leaves less.
 */
DDL_API ddl_status ddl_mem_alloc(ddl_comm *comm, size_t bytes, void **memory);

/* Give back what ddl_mem_alloc gave; no operation may be using it. NULL is fine. DDL_EINVAL: it is not such
 * memory. */
DDL_API ddl_status ddl_mem_free(ddl_comm *comm, void *memory);

/* ---- errors, facts, log ---- */

/* Of the last failed call on this thread; DDL_OK before the first. Never NULL; valid until the next failure.
 */
DDL_API const ddl_error *ddl_last_error(void);
DDL_API const char *ddl_status_name(ddl_status status); /* "DDL_EPEERLOST" */
DDL_API const char *ddl_status_text(ddl_status status); /* what it means, in a sentence */
DDL_API size_t ddl_dtype_bytes(ddl_dtype dtype);        /* of one element; 0 if there is no such type */
DDL_API const char *ddl_version(void);                  /* "0.1.0" */

/*
 * Name of the algorithm that this rank would run for a call of this collective ("allreduce", "broadcast",
 * ...) with count elements of dtype, count as in the call; NULL if there is no such collective. Of a v form
 * count is that of each block, as if all were even.
 */
DDL_API const char *ddl_algorithm_name(const ddl_comm *comm, const char *collective, size_t count,
                                       ddl_dtype dtype);

/*
 * Names of all algorithms of a collective; writes at most capacity of them and returns how many there
 * are. DDL_ALLREDUCE, DDL_BROADCAST, ... in the environment of ddl_init force one by name; on a part
 * with a number of ranks that it does not take, such a call is DDL_ECONFIG.
 */
DDL_API size_t ddl_algorithm_names(const char *collective, const char *names[], size_t capacity);

/* Called with one whole line, without line end, by a thread of its own (by any, where none can be started),
 * one at a time. The library is silent but for this. Nobody waits for a sink that does not return, or for who
 * does not read stderr, for longer than half a second; up to 16 lines wait for the sink then, and others are
 * lost. The sink must not call the library: what it would wait for may be what waits for it. */
typedef void ddl_log_sink(void *arg, const char *line);

/* Send log lines to sink instead of stderr; NULL restores stderr. Set it before ddl_init. Returns once the
 * one before is in no call any more, so that what it was given may be freed: it waits for one that does not
 * return. */
DDL_API void ddl_set_log(ddl_log_sink *sink, void *arg);

#ifdef __cplusplus
}
#endif

#endif
