/* world_settings.c - what follows from the settings of all ranks together. */
#include "api/world_parts.h"

#include "base/log.h"
#include "io/host.h"

/* Ranks vote on what goes to NCCL, and all must take part. */
static ddl_status check_all_ask(const ddl_roster *roster, ddl_error *err)
{
    const ddl_member *first = &roster->members[0];
    int rank = 1;
    while (rank < roster->nranks && roster->members[rank].asks_nccl == first->asks_nccl)
        rank++;
    if (rank == roster->nranks)
        return DDL_OK;
    const ddl_member *other = &roster->members[rank];
    const ddl_member *has = first->asks_nccl ? first : other, *has_not = first->asks_nccl ? other : first;
    (void)DDL_FAIL(
        err, DDL_ECONFIG,
        "rank %d on %s[%d] has DDL_GPU=nccl, and rank %d on %s[%d] has not; set it for all ranks or "
        "for none",
        has->rank, has->host, (int)has->pid, has_not->rank, has_not->host, (int)has_not->pid);
    return ddl_error_blame(err, rank), DDL_ECONFIG;
}

/* NCCL knows no encryption. */
static bool may_not_send_in_clear(const ddl_world *world)
{
    const ddl_roster *roster = world->roster;
    bool one_host = roster->node_count == 1 && ddl_host_id_is_sure(roster->members[0].host_id);
    return world->config.security == DDL_SECURITY_TLS && !one_host;
}

static ddl_status insist_on_nccl(const ddl_world *world, ddl_error *err)
{
    if (ddl_roster_is_sparse(world->roster))
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_GPU=nccl, but not all pairs of the %d ranks are connected at the start; set "
                        "DDL_CONNECT=eager on rank 0, or DDL_GPU=staged",
                        world->roster->nranks);
    if (may_not_send_in_clear(world))
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "DDL_GPU=nccl and DDL_SECURITY=tls, with ranks on several hosts, or where that is not "
            "known as /proc is hidden: NCCL would send between them in clear; set DDL_GPU=staged, "
            "or another level");
    return DDL_OK;
}

static ddl_status choose_voting(ddl_world *world, ddl_error *err)
{
    const ddl_roster *roster = world->roster;
    DDL_TRY(check_all_ask(roster, err));
    for (int rank = 0; rank < roster->nranks; rank++)
        world->may_have_gpus = world->may_have_gpus || roster->members[rank].may_have_gpu;
    if (world->config.gpu == DDL_GPU_NCCL) {
        world->voting_rule = DDL_VOTING_ALWAYS;
        return insist_on_nccl(world, err) == DDL_OK ? DDL_OK : ddl_error_blame(err, 0);
    }
    bool all_may = !ddl_roster_is_sparse(roster) && !may_not_send_in_clear(world);
    for (int rank = 0; rank < roster->nranks; rank++)
        all_may = all_may && roster->members[rank].may_use_nccl;
    world->voting_rule = all_may ? DDL_VOTING_SAMPLED : DDL_VOTING_NEVER;
    if (!all_may && roster->members[roster->rank].may_use_nccl)
        ddl_log(
            DDL_LOG_DEBUG,
            "rank %d: calls on buffers of GPUs go through the hosts: a rank declines NCCL or has no driver, "
            "pairs connect late, or DDL_SECURITY=tls is set on several hosts",
            roster->rank);
    return DDL_OK;
}

/* Who cannot share, for another reason than that it does not want to, tells that
 * later. */
static ddl_status check_transports(const ddl_roster *roster, ddl_error *err)
{
    for (int i = 0; i < roster->nranks; i++)
        for (int k = 0; roster->members[i].insists_on_memory && k < roster->nranks; k++) {
            const ddl_member *insists = &roster->members[i], *declines = &roster->members[k];
            if (!declines->declines_memory || roster->node_of[i] != roster->node_of[k])
                continue;
            (void)DDL_FAIL(err, DDL_ECONFIG,
                           "rank %d on %s[%d] has DDL_TRANSPORT=shm, but rank %d on %s[%d] has "
                           "DDL_TRANSPORT=tcp; set the same for both",
                           i, insists->host, (int)insists->pid, k, declines->host, (int)declines->pid);
            return ddl_error_blame(err, k), DDL_ECONFIG;
        }
    return DDL_OK;
}

ddl_status ddl_world_check_settings(ddl_world *world, ddl_error *err)
{
    DDL_TRY(choose_voting(world, err));
    return check_transports(world->roster, err);
}
