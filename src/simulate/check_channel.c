/* check_channel.c - messages sent and expected agree in number, order and bytes, for each pair of ranks. */
#include "simulate/check_plan.h"

#include <string.h>

/* Stable sort of indices of messages by one of their ranks. */
static void sort_by_rank(ddl_checker *c, const message *messages, uint32_t count, bool by_receiver,
                         const uint32_t *from, uint32_t *to)
{
    uint32_t *starts = c->starts.data;
    memset(starts, 0, ((size_t)c->shape.nranks + 1) * sizeof *starts);
    for (uint32_t i = 0; i < count; i++)
        starts[(by_receiver ? messages[i].to : messages[i].from) + 1]++;
    for (int i = 0; i < c->shape.nranks; i++)
        starts[i + 1] += starts[i];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t m = from != NULL ? from[i] : i;
        to[starts[by_receiver ? messages[m].to : messages[m].from]++] = m;
    }
}

/*
 * Both lists by receiver, then sender, then the order of steps; they must then go hand in hand. Where the
 * two ends of a message are cut differently, the missing cuts are noted.
 */
ddl_status ddl_checker_prove_channels(ddl_checker *c, bool *alike, ddl_error *err)
{
    if (!ddl_checker_reserve(&c->sorted_sends, c->nsends, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->spare, c->nrecvs, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->sorted_recvs, c->nrecvs, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
    const message *sends = c->sends.data, *recvs = c->recvs.data;
    uint32_t *sorted_sends = c->sorted_sends.data, *sorted_recvs = c->sorted_recvs.data;
    sort_by_rank(c, sends, c->nsends, true, NULL, sorted_sends); /* they are by sender already */
    sort_by_rank(c, recvs, c->nrecvs, false, NULL, c->spare.data);
    sort_by_rank(c, recvs, c->nrecvs, true, c->spare.data, sorted_recvs);
    const action *actions = c->actions.data;
    uint32_t *partners = c->partners.data;
    for (uint32_t i = 0; i < c->nsends || i < c->nrecvs; i++) {
        const message *s = i < c->nsends ? &sends[sorted_sends[i]] : NULL;
        const message *r = i < c->nrecvs ? &recvs[sorted_recvs[i]] : NULL;
        bool same_pair = s != NULL && r != NULL && s->to == r->to && s->from == r->from;
        if (!same_pair) {
            bool send_is_first =
                r == NULL || (s != NULL && (s->to < r->to || (s->to == r->to && s->from < r->from)));
            if (send_is_first)
                return FAILED(c, err, DDL_PROOF_CHANNEL,
                              "channel: rank %d sends message %u to rank %d, which does not expect it",
                              s->from, s->number, s->to);
            return FAILED(c, err, DDL_PROOF_CHANNEL,
                          "channel: rank %d expects message %u from rank %d, which does not send it", r->to,
                          r->number, r->from);
        }
        const message *before = i > 0 ? &sends[sorted_sends[i - 1]] : NULL;
        bool continues = before != NULL && before->to == s->to && before->from == s->from;
        uint32_t number = continues ? before->number + 1 : 0;
        if (s->number != number || r->number != number)
            return FAILED(c, err, DDL_PROOF_CHANNEL,
                          "channel: message %u from rank %d to rank %d is number %u where it is sent and %u "
                          "where it is received",
                          number, s->from, s->to, s->number, r->number);
        if (s->elements != r->elements)
            return FAILED(c, err, DDL_PROOF_CHANNEL,
                          "channel: message %u from rank %d to rank %d has %zu bytes where it is sent and "
                          "%zu where it is received",
                          number, s->from, s->to, s->elements * c->shape.element_bytes,
                          r->elements * c->shape.element_bytes);
        partners[s->action] = r->action;
        partners[r->action] = s->action;
        /* A recv_reduce's landing is cut like its target. */
        side from = side_of(s->from, actions[s->action].target),
             to = side_of(s->to, actions[r->action].target);
        if (!single_atoms(&from, &to))
            DDL_TRY(ddl_checker_compare_cuts(c, &from, &to, alike, err));
    }
    return DDL_OK;
}
