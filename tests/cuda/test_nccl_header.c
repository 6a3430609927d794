/*
 * test_nccl_header.c - what nccl_library.h declares is what NCCL's own header does.
 *
 * The compiler says so, or it says what is not; there is nothing to run.
 */
#include "cuda/nccl_library.h"

#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is " #theirs)

SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);

SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_INT32, ncclInt32);
SAME(NCCL_UINT32, ncclUint32);
SAME(NCCL_INT64, ncclInt64);
SAME(NCCL_UINT64, ncclUint64);
SAME(NCCL_FLOAT16, ncclFloat16);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_BFLOAT16, ncclBfloat16);

SAME(NCCL_SUM, ncclSum);
SAME(NCCL_PROD, ncclProd);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_MIN, ncclMin);

SAME(sizeof(nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(((nccl_config *)NULL)->bytes), sizeof(((ncclConfig_t *)NULL)->size));
SAME(offsetof(nccl_config, bytes), offsetof(ncclConfig_t, size));
SAME(offsetof(nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(nccl_config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(sizeof(nccl_config) <= sizeof(ncclConfig_t), "a later library knows a longer one");
_Static_assert(NCCL_VERSION_CODE >= NCCL_OLDEST, "the header is of a version that is taken");

static const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

/* Each function takes and gives what is declared here, under the names that it has there. */
#define nccl_comm   struct ncclComm
#define nccl_id     ncclUniqueId
#define nccl_result ncclResult_t
#define nccl_type   ncclDataType_t
#define nccl_op     ncclRedOp_t
#define nccl_config ncclConfig_t
#define TAKEN(function, result, arguments) \
    _Static_assert(_Generic(&function, result(*) arguments : 1), #function);
DDL_NCCL_FUNCTIONS(TAKEN)

/* The only thing that no constant tells. */
int main(void)
{
    return theirs.magic == (unsigned)NCCL_MAGIC ? 0 : 1;
}
