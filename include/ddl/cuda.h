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
 * Groups of NCCL: a thread must not call ddl (this header or ddl.h) between ncclGroupStart and ncclGroupEnd.
 * NCCL would put what ddl hands to it on that thread into the group, and ddl's calls would return DDL_OK with
 * wrong results (docs/gpu.md).
 */
#ifndef DDL_CUDA_H
#define DDL_CUDA_H

#include <ddl/ddl.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * From here to ddl_stream_end, calls on this communicator with buffers in memory of a GPU are operations of
 * this stream: each starts after the work that was in the stream when it was called, and work that is put
 * into the stream afterwards runs after it. The call waits for neither.
 *
 * stream: a cudaStream_t or CUstream of the GPU of the buffers, in its primary context; NULL is CUDA's
 * default stream. It lives until the operations have ended. While it is in use it must not be captured into
 * a graph; nor, if it is the default stream, may any stream that waits for it. A call with buffers of another
 * GPU is refused with DDL_EINVAL and changes nothing.
 *
 * Requests: with request NULL a call only begins the operation, and its buffers belong to the stream until
 * the operation has ended. With a request the order in the stream is the same, and the request tells when the
 * operation has ended; a world of one rank then waits for the stream within the call. Calls with host memory,
 * and barriers, are not part of any stream.
 *
 * Deadlines start with the call, as always, so the time that earlier work in the stream takes counts too. If
 * an operation fails, is aborted, runs out of time or is cut off by the end of the process, the stream goes
 * on and the buffers are undefined. The next call on the communicator returns the failure; ddl_stream_end and
 * ddl_comm_free are such calls. So after cudaStreamSynchronize, ddl_stream_end tells whether all operations
 * before it went well.
 *
 * ddl_comm_free waits 4 s for operations, as for anything else; those that have not ended by then end with
 * DDL_EABORTED, which it returns. It returns a failure that no call has returned yet even if that is
 * DDL_EABORTED. ddl_comm_shrink takes such failures as known.
 *
 * ddl_send and ddl_recv with memory of a GPU are refused with DDL_EUNSUPPORTED and change nothing: a receive
 * would start after the send before it in the stream, so two ranks that exchange would wait for ever.
 *
 * What must not wait for what: operations of one communicator may begin in order. So work that is in the
 * stream before an operation must not wait for a later operation of the same communicator (calls with host
 * memory and barriers included), nor for anything that the host does only after such an operation. For the
 * same reason a call with host memory, or a barrier, may block until the streams have reached the operations
 * before it; where the host must not wait for a stream, give the stream's operations a communicator of their
 * own (ddl_comm_split). The first launch of a kernel may wait for the whole GPU, since CUDA loads it then:
 * launch each once beforehand, or set CUDA_MODULE_LOADING=EAGER; else such a wait can last until 2 s after
 * the deadline (docs/gpu.md).
 *
 * Errors: DDL_EINVAL: comm is NULL, or has a stream already. DDL_EUNSUPPORTED: a build without CUDA, or its
 * plugin is missing. DDL_EDEVICE: there is no driver.
 * Local. Thread: the one that issues on comm.
 */
DDL_API ddl_status ddl_stream_begin(ddl_comm *comm, void *stream);

/*
 * Calls are as always again. Operations that have begun keep their order in the stream. Returns the failure
 * of the first operation without a request that failed and that no call has returned yet. Does not wait,
 * except, where a stream had to go on without its operation, for the end of that (docs/gpu.md).
 *
 * Errors: DDL_EINVAL: comm is NULL, or has no stream; else as above.
 * Local. Thread: the one that issues on comm.
 */
DDL_API ddl_status ddl_stream_end(ddl_comm *comm);

/*
 * The GPU that this rank takes unless the program knows better, as cudaSetDevice counts. It is LOCAL_RANK (or
 * what other launchers call it) if the environment has it beside the rank, else this rank's ddl_local_rank in
 * the world, whichever part of it comm is; in both cases modulo the number of GPUs that the process sees, so
 * ranks share GPUs where there are fewer. -1: there is none, the driver cannot tell, or DDL_GPU_POLICY is
 * none; ddl_last_error says why. Loads the driver.
 * Local. Thread: any.
 */
DDL_API int ddl_local_device(const ddl_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
