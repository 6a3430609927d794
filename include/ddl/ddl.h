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
 * Start it with ddl-launch, or with any scheduler that sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE,
 * or that has names of its own for rank and size. Where neither a rank nor a size is set, the world has one
 * rank and every collective is the identity; if the environment names a place to meet nevertheless, a
 * warning says so.
 *
 * Rules that hold for every call, unless its own text says otherwise:
 *
 * Matching.  Operations on one communicator match by the order in which each rank issues them; sends and
 *   receives between two ranks match in an order of their own. Several operations may be in flight at once;
 *   they may complete, and be waited for, in any order. Ranks whose calls do not match get DDL_EMISMATCH.
 *   A mismatch can go unnoticed where it moves no message: an allreduce of 0 elements beside an allgather
 *   of 0, or a gatherv whose counts differ on a rank that sends an empty block. If a rank is sent elements
 *   where it counts 0, that may be noticed only when the two next exchange a message.
 * Threads.   The caller serialises the issuing of operations per communicator. Waiting and testing may
 *   happen on any thread. Different communicators are independent of each other.
 * Buffers.   Counts are elements, not bytes. In one call all buffers of a rank are host memory, or all are
 *   memory of one CUDA GPU. What is sent must be in its buffer when the call is made; only calls in the order
 *   of a CUDA stream may leave it to the stream (cuda.h, docs/gpu.md). If a GPU fails, or cannot be used,
 *   every rank gets DDL_EDEVICE or DDL_EUNSUPPORTED. A buffer that a rank's role does not use may be NULL.
 *   Elements that are reduced must be aligned as C aligns their type; elements that are only moved may
 *   lie anywhere. Counts of zero are legal. Once a call or a wait has returned, also with an error, the
 *   library does not touch the buffers again.
 * In place.  Either send == recv (allreduce, alltoall, alltoallv; reduce at the root), or one buffer is the
 *   rank's own block inside the other: send inside recv (allgather; gather at the root), or recv inside send
 *   (reduce_scatter; scatter at the root). The same holds for the v forms, whose own block begins after the
 *   counts of the lower ranks. Broadcast has one buffer. Any other overlap of send and recv is DDL_EINVAL.
 * Completion. Is local: this rank's part is done and its buffers are free to use. Only a barrier says
 *   anything about other ranks. The last message that a rank sends may leave up to 2 ms after the call has
 *   returned, and may be lost if the process ends before that.
 * Requests.  With request == NULL a call blocks until the operation is done. Otherwise the call sets *request
 *   and returns at once; the request must be waited for, or tested until it is done.
 * Deadlines. Every operation ends by its deadline, which starts when the operation is issued
 *   (ddl_comm_set_timeout, ddl_options.timeout_ms, DDL_TIMEOUT; 300 s). If the own process is stopped for
 *   more than a second, as by Ctrl-Z, the deadline is put off by that time (not again within a second, and
 *   not for operations of a CUDA stream, of ddl_comm_shrink and of ddl_comm_free). No call waits for ever.
 *   An operation ends earlier if a rank that it waits for is gone (DDL_EPEERLOST), has given no sign of life
 *   for 30 s, as when its process is stopped (DDL_EUNRESPONSIVE, DDL_UNRESP_TIMEOUT), or is on a host that
 *   has acknowledged nothing for 15 s (DDL_EUNREACHABLE, DDL_UNREACH_TIMEOUT).
 * Errors.    A negative ddl_status; ddl_last_error has the details for the calling thread. An argument
 *   error (DDL_EINVAL) changes nothing on this rank; the other ranks then wait for it, and time out. Any
 *   other failure of an operation, running out of memory included, breaks its communicator: all operations in
 *   flight, or the first later one where none was, return the root cause with the same culprit on every
 *   rank. Calls after that return DDL_EABORTED until the communicator is freed. (In a world of one, a call on
 *   host memory that returns DDL_ENOMEM changes nothing.)
 * Exit.      A process that exits without ddl_comm_free says goodbye to the others from an exit handler. Exit
 *   handlers and C++ destructors that run later may free what they have. Calls that they make and that need
 *   other ranks return DDL_EABORTED at once, as does a call that another thread is in. Log sinks hear nothing
 *   any more.
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

/* How a call ended. Negative is failure; ddl_status_name and ddl_status_text give it in words. */
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
 * How elements are combined. Integers wrap. DDL_AVG divides the finished sum by the number of ranks, once;
 * integers truncate toward zero, 16-bit floats are rounded to 16 bits as a sum and then divided in float32.
 * The sum itself can leave the range of the type: integers wrap, floats become infinite, and the average
 * with them (in float16 the average of 65504 and 65504 is infinity). MIN and MAX propagate NaN and take -0
 * as less than +0. Bitwise operators on floats are DDL_EINVAL.
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
 * Settings of ddl_init. Start from DDL_OPTIONS_INIT; a field left as it is there is taken from the
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
    const char *transport; /* between ranks of one host: "auto", "tcp", "shm"; NULL: DDL_TRANSPORT */
} ddl_options;

#define DDL_OPTIONS_INIT                                          \
    {                                                             \
        sizeof(ddl_options), -1, -1, NULL, 0, 0, NULL, NULL, NULL \
    }

/* ---- life cycle ---- */

/*
 * Meets the other ranks and connects to each of them. Blocks for at most the start timeout. *world is written
 * on success only; options may be NULL. After ddl_comm_free it may be called again, also with the same
 * address.
 *
 * At level "auth" every rank proves that it has the job's secret: ddl-launch hands the secret over, or
 * DDL_SECRET_FILE names a file with it, or a file of this user is made on first use (docs/security.md). At
 * level "tls" connections between ranks are encrypted as well.
 *
 * A standard descriptor (0, 1, 2) that is closed is opened on /dev/null, lest a connection get its number.
 *
 * Errors: DDL_ECONFIG: environment or options are wrong, two ranks have one number, world sizes differ, or
 * there is no secret. DDL_EAUTH: who answers or comes has another secret or level, or belongs to another
 * run. DDL_ETIMEDOUT: some ranks did not come; the text names them. DDL_ENETWORK, DDL_ESTORE: cannot listen,
 * resolve or connect, or the store failed. DDL_EPEERLOST: a rank ended during start-up. The culprit is this
 * rank where it lacks something itself: its settings, memory or descriptors are wrong or too few, or a call
 * on its files or its network failed. It is -1 where nobody is known to be at fault, or all are, as when a
 * server is gone, where the world has one rank, and where this rank or the world's size is not known.
 * Thread: any.
 */
DDL_API ddl_status ddl_init(ddl_comm **world, const ddl_options *options);

/*
 * Splits comm into parts: ranks that give the same color get a communicator together, in which they are
 * ordered by key, and by their rank in comm where keys are equal. With color < 0 a rank takes no part and
 * *part becomes NULL. A part uses the connections of comm. Operations on comm and on parts are independent of
 * each other and may run at once, from any threads.
 *
 * Collective on comm; matches, ends and fails as collective operations do. DDL_ENOMEM on one rank is
 * DDL_ENOMEM on all.
 * Thread: the one that issues on comm.
 */
DDL_API ddl_status ddl_comm_split(ddl_comm *comm, int color, int key, ddl_comm **part);

/*
 * After a failure of comm: the remaining ranks agree on who is gone, and get a communicator of the rest, in
 * the same order, over the connections that they have. Left out are only ranks that were lost (their process
 * ended or their connection broke), that gave no sign of life (DDL_EUNRESPONSIVE, DDL_EUNREACHABLE) before
 * this call or while it waited for them, and that have freed comm instead. At least half of comm must remain;
 * of two halves the one with the lowest rank goes on.
 *
 * Every remaining rank calls it; comm is still to be freed. Ends by the time limit of comm.
 * Errors: DDL_EABORTED: fewer remain, or the others have given this rank up. DDL_ETIMEDOUT: names who has not
 * called it.
 * Thread: the one that issues on comm.
 */
DDL_API ddl_status ddl_comm_shrink(ddl_comm *comm, ddl_comm **survivors);

/*
 * Ends every operation on comm on every rank. They return DDL_EABORTED with `reason` (NULL: none) and this
 * rank as the culprit. Where no operation was in flight the next call returns so, once the news has come: a
 * rank whose calls never have to wait hears it within 0.5 s. comm is still to be freed.
 *
 * Local; waits for no other rank.
 * Thread: any.
 */
DDL_API ddl_status ddl_comm_abort(ddl_comm *comm, const char *reason);

/*
 * Leaves the communicator and sets *comm to NULL, whatever is returned. *comm == NULL is DDL_OK.
 *
 * Collective while the communicator is healthy: operations in flight complete first (their requests can still
 * be waited for), then all ranks leave together. Local after a failure. Takes at most 5 s.
 *
 * All ranks free their communicators in the same order. Ranks that free two in opposite orders wait for each
 * other until DDL_ETIMEDOUT, or DDL_EPEERLOST if one of them has left the world with it.
 *
 * Freeing the communicator of ddl_init frees everything split from it, and what came from shrinking such a
 * part. A communicator that came from shrinking that of ddl_init stands on its own, with what was split from
 * it. A handle of a communicator that was freed so may still be given to ddl_comm_free, until the next
 * ddl_init, and to nothing else.
 *
 * Errors: DDL_ETIMEDOUT: not all of it was possible in time, since another rank did not come, or did not do
 * its part of an operation that nobody has waited for (whoever waits for such a request later gets its
 * failure), or since a thread of the library is stuck (which may take a second more to find out). Results
 * of operations that have completed are not touched by that, and a rank that comes after the others have left
 * gets DDL_OK. So what one rank does alone for long, such as saving a model, is best done after this call.
 * If comm has failed, as a part does when one of its ranks is lost, and no call of this rank has told that
 * yet: that failure. It is freed all the same.
 * Thread: any; no other call on comm may be running but waits and tests.
 */
DDL_API ddl_status ddl_comm_free(ddl_comm **comm);

/* Sets the time limit, in milliseconds and greater than zero, of operations that this rank issues from now
 * on. Local. DDL_EINVAL: timeout_ms is not positive. Thread: the one that issues on comm. */
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
 * A call may return before other ranks have begun theirs, or may wait for all of them, in this operation or
 * in an earlier one. Which it is depends on sizes and on the machine, so a program must be right with both.
 *
 * What they have in common: buffers as in Buffers and In place above, with `count` elements of `dtype`.
 * Errors: DDL_EINVAL for arguments; else how the operation failed (Errors, Deadlines, Matching above).
 * Thread: the one that issues on comm.
 */

/* recv[0..count) = the combination over all ranks of send[0..count). In place: send == recv. */
DDL_API ddl_status ddl_allreduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                                 ddl_comm *comm, ddl_request **request);

/* As allreduce, but only root receives; recv may be NULL elsewhere. In place at the root: send == recv. */
DDL_API ddl_status ddl_reduce(const void *send, void *recv, size_t count, ddl_dtype dtype, ddl_op op,
                              int root, ddl_comm *comm, ddl_request **request);

/*
 * send holds size * recv_count elements. Rank r receives elements [r * recv_count, (r+1) * recv_count) of
 * the combination over all ranks. In place: recv == send + rank * recv_count elements; the rest of send
 * keeps what it held.
 */
DDL_API ddl_status ddl_reduce_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype,
                                      ddl_op op, ddl_comm *comm, ddl_request **request);

/*
 * recv holds size * send_count elements, and receives every rank's send_count elements in rank order.
 * In place: send == recv + rank * send_count elements.
 */
DDL_API ddl_status ddl_allgather(const void *send, void *recv, size_t send_count, ddl_dtype dtype,
                                 ddl_comm *comm, ddl_request **request);

/* Copies buffer[0..count) of root to buffer[0..count) of every rank. */
DDL_API ddl_status ddl_broadcast(void *buffer, size_t count, ddl_dtype dtype, int root, ddl_comm *comm,
                                 ddl_request **request);

/*
 * send and recv hold size * count_per_rank elements. Block i of send goes to rank i; block i of recv comes
 * from rank i. In place: send == recv.
 */
DDL_API ddl_status ddl_alltoall(const void *send, void *recv, size_t count_per_rank, ddl_dtype dtype,
                                ddl_comm *comm, ddl_request **request);

/*
 * As allgather, but only root receives: recv holds size * send_count elements there, and may be NULL
 * elsewhere. In place at root: send == recv + root * send_count elements.
 */
DDL_API ddl_status ddl_gather(const void *send, void *recv, size_t send_count, ddl_dtype dtype, int root,
                              ddl_comm *comm, ddl_request **request);

/*
 * send of root holds size * recv_count elements, of which rank r receives block r. send may be NULL
 * elsewhere. In place at root: recv == send + root * recv_count elements.
 */
DDL_API ddl_status ddl_scatter(const void *send, void *recv, size_t recv_count, ddl_dtype dtype, int root,
                               ddl_comm *comm, ddl_request **request);

/*
 * The v forms: blocks of uneven size, packed in rank order. counts[r] is the number of elements of rank r's
 * block; the array is the same on every rank (else DDL_EMISMATCH) and is not read after the call has
 * returned. In place as without v, where the own block begins after the counts of the lower ranks.
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
 * comes from rank i; blocks are packed in rank order. What a rank sends to another must be what that one
 * expects (else DDL_EMISMATCH, naming both), and what it sends to itself what it receives from itself (else
 * DDL_EINVAL). In place: send == recv, with equal arrays of counts.
 */
DDL_API ddl_status ddl_alltoallv(const void *send, const size_t send_counts[], void *recv,
                                 const size_t recv_counts[], ddl_dtype dtype, ddl_comm *comm,
                                 ddl_request **request);

/* Is done only after every rank has entered it. */
DDL_API ddl_status ddl_barrier(ddl_comm *comm, ddl_request **request);

/*
 * ---- point to point; sends and receives match in order per pair of ranks ----
 *
 * Unlike in MPI there are no tags, and nobody sends to itself: peer == the own rank is DDL_EINVAL. A receive
 * must have the count and type of its send: any other is DDL_EMISMATCH, also one with room for more.
 * Other errors, and the thread, as of collective operations.
 */

/*
 * A send may complete before its receive is posted. A send of 0 elements sends no message: a receive with
 * another count is DDL_EMISMATCH if it was the last such send to that rank, and else ends by its deadline. A
 * receive that nobody answers cannot be taken back; its deadline breaks the communicator as that of any
 * operation does. Who receives what may come much later, as a server does, sets a limit for it first
 * (ddl_comm_set_timeout; with INT64_MAX it waits until the peer sends or is lost).
 */
DDL_API ddl_status ddl_send(const void *send, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                            ddl_request **request);
DDL_API ddl_status ddl_recv(void *recv, size_t count, ddl_dtype dtype, int peer, ddl_comm *comm,
                            ddl_request **request);

/* ---- completion; from any thread ---- */

/* Blocks until the operation is done, by its deadline. Returns how it ended; frees the request and sets it to
 * NULL, also on failure. With no request (NULL, or a pointer to NULL) it is DDL_OK. */
DDL_API ddl_status ddl_wait(ddl_request **request);

/* Waits for all n, also after a failure, and frees them; NULL entries are skipped. Returns the root cause of
 * the first failure. */
DDL_API ddl_status ddl_wait_all(size_t n, ddl_request *requests[]);

/*
 * Waits until any of n is done, writes its index, frees it and sets it to NULL. NULL entries are skipped; all
 * NULL, or n == 0, is DDL_EINVAL. A failed operation counts as done: *index is set and its status returned.
 * Of several that are done it is the first in the array. Takes time in proportion to n.
 */
DDL_API ddl_status ddl_wait_any(size_t n, ddl_request *requests[], size_t *index);

/* Makes progress and tells whether the operation is done; never blocks. Where ranks share CPUs it yields the
 * CPU once if it found nothing to do. A request that is done, or has failed, is freed and set to NULL; *done
 * is true whenever this fails. */
DDL_API ddl_status ddl_test(ddl_request **request, bool *done);

/* ---- memory ---- */

/*
 * Allocates memory that the other ranks on this host can read and write directly: large messages from it and
 * to it are copied once instead of twice, or reduced where they lie. Every call takes any host memory; calls
 * with 64 KiB per message and more are faster with this, most where all ranks have their buffers in it. Where
 * ranks share no memory (one rank on the host, DDL_TRANSPORT=tcp, ulimit -v), it is ordinary memory.
 *
 * *memory becomes the address of at least `bytes` bytes, all zero, aligned to a page, or NULL if bytes is 0.
 * The memory may be used with every communicator of the world, and in parts. It exists until ddl_mem_free, or
 * until the world is freed. A forked child shares it with its parent rather than having a copy.
 *
 * Local; comm may have failed. DDL_ENOMEM: there is not so much, or (on Linux) a limit of this process's
 * cgroup leaves less.
 * Thread: any.
 */
DDL_API ddl_status ddl_mem_alloc(ddl_comm *comm, size_t bytes, void **memory);

/* Gives back what ddl_mem_alloc gave; no operation may be using it. NULL is fine. DDL_EINVAL: it is not such
 * memory. Local. Thread: any. */
DDL_API ddl_status ddl_mem_free(ddl_comm *comm, void *memory);

/* ---- errors, facts, log ---- */

/* Of the last failed call on this thread; its code is DDL_OK before the first. Never NULL; valid until the
 * next failure on this thread. */
DDL_API const ddl_error *ddl_last_error(void);
DDL_API const char *ddl_status_name(ddl_status status); /* "DDL_EPEERLOST" */
DDL_API const char *ddl_status_text(ddl_status status); /* what it means, in a sentence */
DDL_API size_t ddl_dtype_bytes(ddl_dtype dtype);        /* of one element; 0 if there is no such type */
DDL_API const char *ddl_version(void);                  /* "0.1.0" */

/*
 * Name of the algorithm that this rank would run for a call of this collective ("allreduce", "broadcast",
 * ...) with count elements of dtype, where count is what the call would be given; of a v form, the count of
 * each block, as if all were even. NULL if there is no such collective.
 */
DDL_API const char *ddl_algorithm_name(const ddl_comm *comm, const char *collective, size_t count,
                                       ddl_dtype dtype);

/*
 * Names of all algorithms of a collective; writes at most capacity of them and returns how many there are.
 * DDL_ALLREDUCE, DDL_BROADCAST, ... in the environment of ddl_init force one by name; if a part has a number
 * of ranks that the forced algorithm cannot do, calls on it are DDL_ECONFIG.
 */
DDL_API size_t ddl_algorithm_names(const char *collective, const char *names[], size_t capacity);

/* Receives one whole line, without its end, at a time, on a thread of the library's own (if none can be
 * started, on any). A sink that does not return, or a stderr that nobody reads, holds up callers for at most
 * half a second; up to 16 lines then wait for it, and further ones are dropped. The sink must not call the
 * library: what it would wait for may be waiting for the sink. */
typedef void ddl_log_sink(void *arg, const char *line);

/* Sends log lines to sink instead of stderr; NULL restores stderr. Set it before ddl_init. Waits until the
 * previous sink is in no call any more, however long that takes, so that what it was given may be freed. */
DDL_API void ddl_set_log(ddl_log_sink *sink, void *arg);

#ifdef __cplusplus
}
#endif

#endif
