/* cost_model.c - the constants of the cost model. */
#include "backend/choice.h"

const char *const ddl_cost_names[DDL_COST_CONSTANTS] = {
    "local.latency_ns",  "local.message_ns",  "local.byte_ns",     "remote.latency_ns", "remote.message_ns",
    "remote.byte_ns",    "shared.latency_ns", "shared.message_ns", "shared.byte_ns",    "reduce_ns",
    "local.piece_bytes", "local.pull_bytes",  "local.lane_bytes",
};

ddl_cost_model ddl_cost_model_default(double crowding)
{
    return (ddl_cost_model){
        .links = {
            /* Loopback TCP on a 2.6 GHz server core: 3.5 us one way when polled, 4 us of CPU per message,
             * 3 GB/s. */
            [DDL_LINK_LOCAL] = { .latency_ns = 4000, .message_ns = 4000, .byte_ns = 0.33 },
            /* 10 Gbit/s Ethernet through a switch. */
            [DDL_LINK_REMOTE] = { .latency_ns = 20000, .message_ns = 4000, .byte_ns = 0.85 },
            /* Fitted to the times of all algorithms with 2, 3, 4, 6 and 8 ranks on two CPUs (docs/choice.md). */
            [DDL_LINK_SHARED] = { .latency_ns = 900, .message_ns = 1200, .byte_ns = 0.27 },
        },
        /* What is in L2 anyway, at 50 GB/s. */
        .reduce_ns = 0.02,
        .piece_bytes = DDL_PIECE_BYTES,
        .pull_bytes = DDL_NEVER_PULL,
        .lane_bytes = 1,
        .crowding = crowding > 1 ? crowding : 1,
    };
}

void ddl_cost_model_pack(const ddl_cost_model *model, double constants[DDL_COST_CONSTANTS])
{
    for (int kind = 0; kind < DDL_LINK_KINDS; kind++) {
        constants[3 * kind] = model->links[kind].latency_ns;
        constants[3 * kind + 1] = model->links[kind].message_ns;
        constants[3 * kind + 2] = model->links[kind].byte_ns;
    }
    constants[3 * DDL_LINK_KINDS] = model->reduce_ns;
    constants[3 * DDL_LINK_KINDS + 1] = model->piece_bytes;
    constants[3 * DDL_LINK_KINDS + 2] = model->pull_bytes;
    constants[3 * DDL_LINK_KINDS + 3] = model->lane_bytes;
}

ddl_status ddl_cost_model_unpack(const double constants[], int count, double crowding, ddl_cost_model *model,
                                 ddl_error *err)
{
    if (count != DDL_COST_CONSTANTS)
        return DDL_FAIL(err, DDL_EPROTO, "rank 0 chooses algorithms by %d constants, this rank by %d", count,
                        (int)DDL_COST_CONSTANTS);
    for (int i = 0; i < count; i++)
        if (!(constants[i] > 0 && constants[i] < DDL_COST_LIMIT)) /* NaN is neither */
            return DDL_FAIL(err, DDL_EPROTO, "rank 0 has %g for %s", constants[i], ddl_cost_names[i]);
    *model = (ddl_cost_model){ .reduce_ns = constants[3 * DDL_LINK_KINDS],
                               .piece_bytes = constants[3 * DDL_LINK_KINDS + 1],
                               .pull_bytes = constants[3 * DDL_LINK_KINDS + 2],
                               .lane_bytes = constants[3 * DDL_LINK_KINDS + 3],
                               .crowding = crowding > 1 ? crowding : 1 };
    for (int kind = 0; kind < DDL_LINK_KINDS; kind++)
        model->links[kind] =
            (ddl_link_cost){ constants[3 * kind], constants[3 * kind + 1], constants[3 * kind + 2] };
    return DDL_OK;
}
