/*
 * rounding - ranks whose threads round otherwise than to the nearest make the same calls as the others: they
 * choose the same algorithms, and cut what is large into the same pieces.
 *
 * The first rank rounds upward and the last one downward from before ddl_init on, which leaves that as it is.
 */
#include <ddl/ddl.h>

#include <fenv.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL_CALLS = 300, LARGEST = 1400000, APART = 9999 };

static int own_direction(int rank, int nranks)
{
    return rank == 0 ? FE_UPWARD : rank == nranks - 1 ? FE_DOWNWARD : FE_TONEAREST;
}

static ddl_status call_all(ddl_comm *comm, float *in, float *out)
{
    ddl_status status = DDL_OK;
    for (size_t count = 1; status == DDL_OK && count <= SMALL_CALLS; count++) {
        status = ddl_allgather(in, out, count, DDL_FLOAT32, comm, NULL);
        if (status == DDL_OK)
            status = ddl_allreduce(in, out, count * 37, DDL_FLOAT32, DDL_SUM, comm, NULL);
    }
    for (size_t count = 1000; status == DDL_OK && count <= LARGEST; count += APART) {
        status = ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, comm, NULL);
        if (status == DDL_OK)
            status = ddl_broadcast(out, count, DDL_FLOAT32, 1, comm, NULL);
    }
    return status;
}

int main(void)
{
    const char *own = getenv("RANK"), *all = getenv("WORLD_SIZE");
    const int rank = own != NULL ? atoi(own) : 0, nranks = all != NULL ? atoi(all) : 1;
    const int direction = own_direction(rank, nranks);
    float *in = calloc(LARGEST, sizeof *in), *out = calloc(LARGEST, sizeof *out);
    ddl_comm *world = NULL;
    if (in == NULL || out == NULL || fesetround(direction) != 0)
        return 1;
    ddl_status status = ddl_init(&world, NULL);
    if (status == DDL_OK)
        status = call_all(world, in, out);
    if (status == DDL_OK)
        status = ddl_comm_free(&world);
    const bool is_kept = fegetround() == direction;
    if (!is_kept)
        fprintf(stderr, "rank %d rounds in another direction than before\n", rank);
    free(in);
    free(out);
    return status == DDL_OK && is_kept ? 0 : 1;
}
