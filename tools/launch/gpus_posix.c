/* gpus_posix.c - where there is no CUDA. */
#include "gpus.h"

launch_gpu_answer launch_gpus(void)
{
    return (launch_gpu_answer){ .failure = "there is no CUDA driver for this system" };
}
