/*
 * cuda.h - operations in the order of a CUDA stream, and which GPU a rank takes.
 *
 * An extension of ddl.h for programs with buffers in memory of a GPU. It needs no header of CUDA, and is
 * there in builds without it too, where ddl_stream_begin fails with DDL_EUNSUPPORTED.
 *
 *     kernel<<<grid, block, 0, stream>>>(gradients);
 *     ddl_stream_begin(world, stream);
 *     ddl_allreduce(gradients, gradients, count, DDL_FLOAT32, DDL_AVG, world, NULL);
 *     ddl_stream_end(world);
 *     update<<<grid, block, 0, stream>>>(weights, gradients);
 *
 * The host is done with all five lines before the first kernel has run.
 *
 * Threads: one that has begun a group of NCCL (ncclGroupStart) calls nothing of ddl, of this header or of
 * ddl.h, until it has ended it (ncclGroupEnd). Whatever ddl hands to NCCL on that thread would else be kept
 * in that group, and calls would return DDL_OK with wrong results (docs/gpu.md).
 */
#ifndef DDL_CUDA_H
#define DDL_CUDA_H

#include <ddl/ddl.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * From here to ddl_stream_end the calls of this communicator whose buffers are memory of a GPU are operations
 * of this stream: each starts after the work that was in the stream when it was called, and what is put into
 * the stream afterwards runs after it. The call returns without waiting for either.
 *
 * stream: a cudaStream_t or CUstream of the GPU of the buffers, in its primary context; NULL is CUDA's
 * default stream. It must not be captured into a graph, nor, for the default stream, any that waits for it,
 * and lives until the operations have ended. A call with buffers of another GPU is refused with DDL_EINVAL,
 * and nothing else happens.
 *
 * Request NULL: the call only begins the operation, and the buffers are the stream's until the operation has
 * ended. With a request the stream is ordered in the same way, and the request tells when the operation has
 * ended; a world of one rank then waits for the stream in the call. Calls with host memory, and barriers,
 * know of no stream.
 *
 * Deadlines start with the call as always, so the time that the stream takes before it counts. An operation
 * that fails, or is aborted, or runs out of time, or that the process exits amid, lets the stream go on, with
 * its buffers undefined; the next call on the communicator returns the failure, ddl_stream_end and
 * ddl_comm_free among them. So after cudaStreamSynchronize ddl_stream_end tells whether the operations before
 * it went well.
 *
 * ddl_comm_free waits for operations as long as for anything else, 4 s; those that have not ended then end
 * with DDL_EABORTED, which it returns. It returns what failed and was not told even where that is
 * DDL_EABORTED. ddl_comm_shrink takes such failures as told.
 *
 * ddl_send and ddl_recv with memory of a GPU are refused with DDL_EUNSUPPORTED, and nothing else happens: a
 * receive would start after the send before it in the stream, so ranks that exchange would wait for ever.
 *
 * Work before an operation must not wait for a later operation of the same communicator, a call with host
 * memory or a barrier included, nor for what the host does only after one: operations of a communicator may
 * begin in order. So such a call may block until the streams have come to the operations before it. Where
 * the host must not wait for a stream, have the stream's operations on a communicator of their own
 * (ddl_comm_split). The first launch of a kernel may wait for the whole GPU, as CUDA loads it then: launch
 * each once before, or set CUDA_MODULE_LOADING=EAGER; otherwise that may last until 2 s after the deadline
 * (docs/gpu.md).
 *
 * Local; the thread that issues. DDL_EINVAL: comm is NULL, or has a stream already. DDL_EUNSUPPORTED: a build
 * without CUDA, or its plugin is missing. DDL_EDEVICE: there is no driver.
 */
DDL_API ddl_status ddl_stream_begin(ddl_comm *comm, void *stream);

/*
 * Calls are as always again. Does not wait, but where a stream had to go on without its operation, for the
 * end of that (docs/gpu.md); operations that have been begun stay in the order of the stream. Returns the
 * failure of the first operation without a request that has ended badly and was not told yet. Local; the
 * thread that issues. DDL_EINVAL: comm is NULL, or has no stream.
 */
DDL_API ddl_status ddl_stream_end(ddl_comm *comm);

/*
 * The GPU that this rank takes unless the program knows better, as cudaSetDevice counts: LOCAL_RANK, or what
 * other launchers call it, where the environment tells that beside the rank, else its ddl_local_rank in the
 * world, whichever part of it comm is, modulo the number that the process sees. Ranks share GPUs where there
 * are fewer. -1: there is none, the driver cannot tell, or DDL_GPU_POLICY is none; ddl_last_error says why.
 * Loads the driver. Local; any thread.
 */
DDL_API int ddl_local_device(const ddl_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
