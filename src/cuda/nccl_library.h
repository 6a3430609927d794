/*
 * nccl_library.h - the functions of NCCL that are used here, found at run time.
 *
 * Nothing is linked with NCCL, and its header is not needed: what is declared here has been as it is since
 * NCCL 2.14, and later versions keep it. The oldest that is taken is 2.27.3: before that, what goes on behind
 * a call of a communicator that does not block is kept in memory of the calling thread (NVIDIA/nccl issue
 * 1753 tells since when not), which here is whoever drives, or one that only opens the communicator, and may
 * end before that does; and before 2.19.1 ncclCommAbort is not for another thread than the one whose call is
 * to end (issue 992). The library that the program has loaded is taken, and only where there is none, one
 * that the system finds.
 */
#ifndef DDL_CUDA_NCCL_LIBRARY_H
#define DDL_CUDA_NCCL_LIBRARY_H

#include "base/error.h"

#include <cuda.h>

#include <stddef.h>

enum { NCCL_OLDEST = 22703, NCCL_CONFIG_VERSION = 21400, NCCL_MAGIC = (int)0xcafebeef };

#define NCCL_OLDEST_TEXT "2.27.3"

typedef struct nccl_comm nccl_comm;

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

typedef enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
} nccl_result;

typedef enum nccl_type {
    NCCL_INT8 = 0,
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_UINT32 = 3,
    NCCL_INT64 = 4,
    NCCL_UINT64 = 5,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9
} nccl_type;

typedef enum nccl_op { NCCL_SUM = 0, NCCL_PROD = 1, NCCL_MAX = 2, NCCL_MIN = 3 } nccl_op;

/* As in 2.14. A later library takes what it lacks for unset, by its size and version. */
typedef struct nccl_config {
    size_t bytes;
    unsigned magic, version;
    int blocking, unset;
} nccl_config;

/* Function, its result, its arguments. */
#define DDL_NCCL_FUNCTIONS(X)                                                                                \
    X(ncclGetVersion, nccl_result, (int *version))                                                           \
    X(ncclGetErrorString, const char *, (nccl_result result))                                                \
    X(ncclGetLastError, const char *, (nccl_comm * comm))                                                    \
    X(ncclGetUniqueId, nccl_result, (nccl_id * id))                                                          \
    X(ncclCommInitRankConfig, nccl_result,                                                                   \
      (nccl_comm * *comm, int nranks, nccl_id id, int rank, nccl_config *config))                            \
    X(ncclCommGetAsyncError, nccl_result, (nccl_comm * comm, nccl_result * state))                           \
    X(ncclCommFinalize, nccl_result, (nccl_comm * comm))                                                     \
    X(ncclCommDestroy, nccl_result, (nccl_comm * comm))                                                      \
    X(ncclCommAbort, nccl_result, (nccl_comm * comm))                                                        \
    X(ncclGroupStart, nccl_result, (void))                                                                   \
    X(ncclGroupEnd, nccl_result, (void))                                                                     \
    X(ncclAllReduce, nccl_result,                                                                            \
      (const void *in, void *out, size_t count, nccl_type type, nccl_op op, nccl_comm *comm,                 \
       CUstream stream))                                                                                     \
    X(ncclReduce, nccl_result,                                                                               \
      (const void *in, void *out, size_t count, nccl_type type, nccl_op op, int root, nccl_comm *comm,       \
       CUstream stream))                                                                                     \
    X(ncclReduceScatter, nccl_result,                                                                        \
      (const void *in, void *out, size_t count, nccl_type type, nccl_op op, nccl_comm *comm,                 \
       CUstream stream))                                                                                     \
    X(ncclAllGather, nccl_result,                                                                            \
      (const void *in, void *out, size_t count, nccl_type type, nccl_comm *comm, CUstream stream))           \
    X(ncclBroadcast, nccl_result,                                                                            \
      (const void *in, void *out, size_t count, nccl_type type, int root, nccl_comm *comm, CUstream stream)) \
    X(ncclSend, nccl_result,                                                                                 \
      (const void *in, size_t count, nccl_type type, int peer, nccl_comm *comm, CUstream stream))            \
    X(ncclRecv, nccl_result,                                                                                 \
      (void *out, size_t count, nccl_type type, int peer, nccl_comm *comm, CUstream stream))

typedef struct nccl_library {
    int version;
#define DDL_NCCL_MEMBER(function, result, arguments) result(*function) arguments;
    DDL_NCCL_FUNCTIONS(DDL_NCCL_MEMBER)
#undef DDL_NCCL_MEMBER
} nccl_library;

/* Find it, once in a process. DDL_EUNSUPPORTED: there is none, it lacks something, or is too old; the text
 * says what, and where it was looked for. Not for two threads at once. */
DDL_MUST_USE ddl_status ddl_nccl_find(const nccl_library **library, ddl_error *err);

#endif
