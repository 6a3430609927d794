/* cuda_runtime.h - what nccl.h needs of it. */
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
