/*
 * mpi.c - the driver of any MPI. An error ends the job, which is what MPI does unless told otherwise.
 */
#include "driver.h"

#include <limits.h>
#include <mpi.h>

#define TEXT_(number) #number
#define TEXT(number)  TEXT_(number)
#ifdef OPEN_MPI
#define NAME "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define NAME "MPICH " MPICH_VERSION
#else
#define NAME "MPI"
#endif

/* MPI counts in int. */
static int narrow(size_t count)
{
    if (count > INT_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return (int)count;
}

static void join(int *argc, char ***argv, int *rank, int *nranks)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, nranks);
}

static void leave(void)
{
    MPI_Finalize();
}

static void allreduce(const float *in, float *out, size_t count)
{
    MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, narrow(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(const float *in, float *out, size_t count)
{
    MPI_Allgather(in, narrow(count), MPI_FLOAT, out, narrow(count), MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(const float *in, float *out, size_t count)
{
    MPI_Reduce_scatter_block(in, out, narrow(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(const float *in, float *out, size_t count)
{
    MPI_Alltoall(in, narrow(count), MPI_FLOAT, out, narrow(count), MPI_FLOAT, MPI_COMM_WORLD);
}

static void broadcast(const float *in, float *out, size_t count)
{
    (void)in;
    MPI_Bcast(out, narrow(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void reduce(const float *in, float *out, size_t count)
{
    MPI_Reduce(in, out, narrow(count), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void gather(const float *in, float *out, size_t count)
{
    MPI_Gather(in, narrow(count), MPI_FLOAT, out, narrow(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void scatter(const float *in, float *out, size_t count)
{
    MPI_Scatter(in, narrow(count), MPI_FLOAT, out, narrow(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void barrier(const float *in, float *out, size_t count)
{
    (void)in;
    (void)out;
    (void)count;
    MPI_Barrier(MPI_COMM_WORLD);
}

const struct library measured = {
    .name = NAME,
    .join = join,
    .leave = leave,
    .allreduce = allreduce,
    .allgather = allgather,
    .reduce_scatter = reduce_scatter,
    .alltoall = alltoall,
    .broadcast = broadcast,
    .barrier = barrier,
    .reduce = reduce,
    .gather = gather,
    .scatter = scatter,
};
