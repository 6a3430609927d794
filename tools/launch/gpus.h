/* gpus.h - how many GPUs processes of this node would see. */
#ifndef DDL_LAUNCH_GPUS_H
#define DDL_LAUNCH_GPUS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * As the CUDA driver says, which heeds CUDA_VISIBLE_DEVICES; it is asked in a process of its own. Where there
 * is a driver in the kernel but none to ask, as the kernel's says. 0: there are none.
 */
int launch_gpus(void);

/* Of a list as in CUDA_VISIBLE_DEVICES: how many it names before one that is none; and the name at a place
 * among them, which is not ended by a zero. */
int launch_gpu_names(const char *list);
const char *launch_gpu_name(const char *list, int place, size_t *bytes);

#ifndef DDL_PORTABLE
/* Folders in this one, as /proc/driver/nvidia/gpus. */
int launch_gpu_folders(const char *path);
#endif

#endif
