/* cuda_fp16.h - nothing: nccl.h only names it. */
