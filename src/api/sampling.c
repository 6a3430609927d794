/* sampling.c - sparse votes that double their distance, and a long row of them once one has succeeded. */
#include "api/sampling.h"

enum { MOST_GAP = 256, MOST_HOSTS = 8 };

void ddl_sampling_init(ddl_sampling *sampling, bool always)
{
    *sampling = (ddl_sampling){ .sure_until = always ? UINT64_MAX : 0, .next = 1, .gap = 1 };
}

ddl_sampled ddl_sampling_of(const ddl_sampling *sampling, uint64_t candidate, bool all_decided)
{
    if (candidate <= sampling->sure_until)
        return DDL_SAMPLED_IN;
    if (!all_decided)
        return DDL_SAMPLED_OPEN;
    return candidate >= sampling->next ? DDL_SAMPLED_IN : DDL_SAMPLED_OUT;
}

void ddl_sampling_decided(ddl_sampling *sampling, uint64_t candidate, bool for_gpus, uint64_t ahead)
{
    if (for_gpus) {
        ddl_sampling_init(sampling, true);
    } else if (sampling->sure_until == UINT64_MAX) {
        if (++sampling->nhosts < MOST_HOSTS)
            return;
        sampling->sure_until = candidate + ahead;
        sampling->next = sampling->sure_until + 1;
    } else if (candidate > sampling->sure_until) {
        sampling->next = candidate + sampling->gap;
        sampling->gap = sampling->gap < MOST_GAP ? 2 * sampling->gap : MOST_GAP;
    }
}
