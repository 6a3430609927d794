/* gpus.h - how many GPUs processes of this node would see. */
#ifndef DDL_LAUNCH_GPUS_H
#define DDL_LAUNCH_GPUS_H

#include <stddef.h>

typedef struct launch_gpu_answer {
    int gpus;
    char failure[160]; /* why there is no answer, which counts as none; empty: there is one */
} launch_gpu_answer;

/*
 * As the CUDA driver says, which heeds CUDA_VISIBLE_DEVICES; it is asked in a process of its own. What it
 * does not show no process can use, so nothing else is looked at. Takes 20 s at most, and says so after 2 s.
 */
launch_gpu_answer launch_gpus(void);

/* Of a list as in CUDA_VISIBLE_DEVICES: how many it names before one that is none; and the name at a place
 * among them, which is not ended by a zero. */
int launch_gpu_names(const char *list);
const char *launch_gpu_name(const char *list, int place, size_t *bytes);

#endif
