/*
 * changing - small calls that differ from the one before in nothing but their buffers: these are checked, and
 * used, as if each call were the first.
 */
#include <ddl/ddl.h>

#include <stdint.h>
#include <stdio.h>

enum { COUNT = 8, PLACES = 4, TIMES = 50 };

static ddl_comm *world;
static int rank, nranks;
static int32_t memory[PLACES][2 * COUNT];

static int wrong(int call, const char *what)
{
    fprintf(stderr, "changing: rank %d: call %d: %s: %s\n", rank, call, what, ddl_last_error()->text);
    return 1;
}

static int32_t value_of(int call, int r, int i)
{
    return call * 100 + r * 10 + i;
}

static ddl_status sum(const int32_t *in, int32_t *out)
{
    return ddl_allreduce(in, out, COUNT, DDL_INT32, DDL_SUM, world, NULL);
}

static bool is_summed(const int32_t *out, int call)
{
    for (int i = 0; i < COUNT; i++) {
        int32_t expected = 0;
        for (int r = 0; r < nranks; r++)
            expected += value_of(call, r, i);
        if (out[i] != expected)
            return false;
    }
    return true;
}

static int call_with(int call, int32_t *in, int32_t *out)
{
    for (int i = 0; i < COUNT; i++)
        in[i] = value_of(call, rank, i);
    if (sum(in, in + 1) != DDL_EINVAL || sum(in + COUNT - 1, in) != DDL_EINVAL)
        return wrong(call, "took buffers that overlap");
    if (sum(in, NULL) != DDL_EINVAL || sum(NULL, out) != DDL_EINVAL)
        return wrong(call, "took no buffer");
    if (sum(in, out) != DDL_OK)
        return wrong(call, "failed");
    if (!is_summed(out, call))
        return wrong(call, "is not the sum");
    for (int i = 0; i < COUNT && in != out; i++)
        if (in[i] != value_of(call, rank, i))
            return wrong(call, "changed what it was given");
    return 0;
}

int main(void)
{
    if (ddl_init(&world, NULL) != DDL_OK)
        return wrong(0, "init");
    rank = ddl_rank(world);
    nranks = ddl_size(world);
    for (int call = 0; call < TIMES * PLACES * PLACES; call++) /* each pair twice in a row, also in place */
        if (call_with(call, memory[call / 2 % PLACES], memory[call / 2 / PLACES % PLACES]) != 0)
            return 1;
    return ddl_comm_free(&world) == DDL_OK ? 0 : wrong(0, "free");
}
