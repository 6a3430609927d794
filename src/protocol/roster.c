/*
 * roster.c - the roster and its wire form.
 *
 * Member, little endian: 0 rank 4 | 4 pid 4 | 8 cpus 2 | 10 first cpu 2 | 12 port 2 | 14 host bytes 1 | 15
 * address bytes 1 | 16 host id 16 | 32 other port 2 | 34 other bytes 1 | 35 other is inner, asks for NCCL,
 * declines shared memory, insists on it, may use NCCL: a bit each | 36 host | address | other. Roster: 0
 * magic 4 | 4 ranks 4 | 8 run id 16 | 24 constants 2 | 26 who connects 1 | 27 streams 1 | then the constants,
 * 8 each, as IEEE binary64 | then for each rank a length 2 and its member, in rank order.
 */
#include "protocol/roster.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/floating.h"
#include "protocol/overlay.h"

#include <stdlib.h>
#include <string.h>

enum {
    MEMBER_HEAD_BYTES = 36,
    ROSTER_HEAD_BYTES = 28,
    RANKS_LIMIT = 1 << 20,
    INNER = 1,
    NCCL = 2,
    DECLINES = 4,
    INSISTS = 8,
    MAY_USE_NCCL = 16,
    DECLINES_STREAMS = 32,
    MAY_HAVE_GPU = 64,
    CHECKS = 128,
    CHOOSES = 128 /* in the roster's byte of streams */
};

static const uint8_t magic[4] = { 'd', 'd', 'l', 'R' };

bool ddl_member_encode(const ddl_member *member, ddl_bytes *bytes)
{
    uint8_t record[MEMBER_HEAD_BYTES + DDL_HOST_TEXT + 2 * DDL_ADDRESS_TEXT];
    size_t host_bytes = strlen(member->host), address_bytes = strlen(member->address),
           other_bytes = strlen(member->other);
    DDL_ASSERT(host_bytes < DDL_HOST_TEXT);
    DDL_ASSERT(address_bytes < DDL_ADDRESS_TEXT);
    DDL_ASSERT(other_bytes < DDL_ADDRESS_TEXT);
    ddl_put_u32(record, (uint32_t)member->rank);
    ddl_put_u32(record + 4, (uint32_t)member->pid);
    ddl_put_u16(record + 8, member->cpus);
    ddl_put_u16(record + 10, member->first_cpu);
    ddl_put_u16(record + 12, member->port);
    record[14] = (uint8_t)host_bytes;
    record[15] = (uint8_t)address_bytes;
    memcpy(record + 16, member->host_id, DDL_HOST_ID_BYTES);
    ddl_put_u16(record + 32, other_bytes > 0 ? member->other_port : 0);
    record[34] = (uint8_t)other_bytes;
    record[35] =
        (uint8_t)((other_bytes > 0 && member->is_inner ? INNER : 0) | (member->asks_nccl ? NCCL : 0) |
                  (member->declines_memory ? DECLINES : 0) | (member->insists_on_memory ? INSISTS : 0) |
                  (member->may_use_nccl ? MAY_USE_NCCL : 0) | (member->may_have_gpu ? MAY_HAVE_GPU : 0) |
                  (member->declines_streams ? DECLINES_STREAMS : 0) | (member->is_check ? CHECKS : 0));
    uint8_t *texts = record + MEMBER_HEAD_BYTES;
    memcpy(texts, member->host, host_bytes);
    memcpy(texts + host_bytes, member->address, address_bytes);
    memcpy(texts + host_bytes + address_bytes, member->other, other_bytes);
    return ddl_bytes_append(bytes, record, MEMBER_HEAD_BYTES + host_bytes + address_bytes + other_bytes);
}

/* Copy count bytes as text; false if they hold anything but printable ASCII. */
static bool take_text(const uint8_t *from, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        if (from[i] < ' ' || from[i] > '~')
            return false;
    memcpy(text, from, count);
    text[count] = '\0';
    return true;
}

ddl_status ddl_member_decode(ddl_view bytes, ddl_member *out, ddl_error *err)
{
    const uint8_t *at = bytes.data;
    ddl_member member = { .rank = -1 };
    if (bytes.bytes < MEMBER_HEAD_BYTES)
        return DDL_FAIL(err, DDL_EPROTO, "a rank's record has %zu bytes, at least %d were expected",
                        bytes.bytes, MEMBER_HEAD_BYTES);
    uint32_t rank = ddl_get_u32(at);
    size_t host_bytes = at[14], address_bytes = at[15], other_bytes = at[34];
    if (rank >= RANKS_LIMIT)
        return DDL_FAIL(err, DDL_EPROTO, "a rank's record names rank %u", (unsigned)rank);
    if (host_bytes >= DDL_HOST_TEXT || address_bytes == 0 || address_bytes >= DDL_ADDRESS_TEXT ||
        other_bytes >= DDL_ADDRESS_TEXT || (at[35] & (NCCL | MAY_USE_NCCL)) == NCCL ||
        ((at[35] & INNER) != 0 && other_bytes == 0) ||
        (at[35] & (DECLINES | INSISTS)) == (DECLINES | INSISTS) ||
        bytes.bytes != MEMBER_HEAD_BYTES + host_bytes + address_bytes + other_bytes)
        return DDL_FAIL(err, DDL_EPROTO,
                        "the record of rank %u has %zu bytes, and fields that do not fit them",
                        (unsigned)rank, bytes.bytes);
    member.rank = (int)rank;
    member.pid = (int32_t)ddl_get_u32(at + 4);
    member.cpus = ddl_get_u16(at + 8);
    member.first_cpu = ddl_get_u16(at + 10);
    member.port = ddl_get_u16(at + 12);
    memcpy(member.host_id, at + 16, DDL_HOST_ID_BYTES);
    member.other_port = ddl_get_u16(at + 32);
    member.is_inner = (at[35] & INNER) != 0;
    member.asks_nccl = (at[35] & NCCL) != 0;
    member.declines_memory = (at[35] & DECLINES) != 0;
    member.insists_on_memory = (at[35] & INSISTS) != 0;
    member.may_use_nccl = (at[35] & MAY_USE_NCCL) != 0;
    member.may_have_gpu = (at[35] & MAY_HAVE_GPU) != 0;
    member.declines_streams = (at[35] & DECLINES_STREAMS) != 0;
    member.is_check = (at[35] & CHECKS) != 0;
    const uint8_t *texts = at + MEMBER_HEAD_BYTES;
    if (!take_text(texts, host_bytes, member.host) ||
        !take_text(texts + host_bytes, address_bytes, member.address) ||
        !take_text(texts + host_bytes + address_bytes, other_bytes, member.other))
        return DDL_FAIL(err, DDL_EPROTO, "the record of rank %u holds text that is not printable",
                        (unsigned)rank);
    if (member.port == 0 || (member.other_port == 0) != (other_bytes == 0))
        return DDL_FAIL(err, DDL_EPROTO, "the record of rank %u has port 0", (unsigned)rank);
    *out = member;
    return DDL_OK;
}

ddl_status ddl_member_suits(const ddl_member *member, bool is_check, ddl_error *err)
{
    if (member->is_check == is_check)
        return DDL_OK;
    (void)DDL_FAIL(err, DDL_ECONFIG,
                   "rank %d on %s runs %s, and rank 0 %s; start ddl-launch on all nodes alike", member->rank,
                   member->host, member->is_check ? "a check (--check)" : "a program",
                   is_check ? "a check (--check)" : "a program");
    (void)ddl_error_blame(err, member->rank);
    return DDL_ECONFIG;
}

static bool is_cost(double value)
{
    return value > 0 && value < DDL_ROSTER_COST_LIMIT; /* NaN is neither */
}

/* As IEEE binary64, which is what a double is here. */
static bool encode_costs(const ddl_roster *roster, ddl_bytes *bytes)
{
    for (int i = 0; i < roster->ncosts; i++) {
        uint64_t bits;
        uint8_t wire[sizeof bits];
        _Static_assert(sizeof bits == sizeof roster->costs[i], "double is no IEEE binary64");
        DDL_ASSERT(is_cost(roster->costs[i]));
        memcpy(&bits, &roster->costs[i], sizeof bits);
        ddl_put_u64(wire, bits);
        if (!ddl_bytes_append(bytes, wire, sizeof wire))
            return false;
    }
    return true;
}

static ddl_status decode_costs(const uint8_t *at, ddl_roster *roster, ddl_error *err)
{
    for (int i = 0; i < roster->ncosts; i++) {
        uint64_t bits = ddl_get_u64(at + 8 * i);
        memcpy(&roster->costs[i], &bits, sizeof bits);
        if (!is_cost(roster->costs[i]))
            return DDL_FAIL(err, DDL_EPROTO, "the roster has %g for constant %d of the cost model",
                            roster->costs[i], i);
    }
    return DDL_OK;
}

bool ddl_roster_encode(const ddl_roster *roster, ddl_bytes *bytes)
{
    uint8_t head[ROSTER_HEAD_BYTES];
    DDL_ASSERT(roster->ncosts >= 0);
    DDL_ASSERT(roster->ncosts <= DDL_ROSTER_COSTS);
    DDL_ASSERT(roster->nstreams >= 0);
    DDL_ASSERT(roster->nstreams <= DDL_STREAMS_MAX);
    ddl_bytes member = { 0 };
    memcpy(head, magic, sizeof magic);
    ddl_put_u32(head + 4, (uint32_t)roster->nranks);
    memcpy(head + 8, roster->run_id, DDL_RUN_ID_BYTES);
    ddl_put_u16(head + 24, (uint16_t)roster->ncosts);
    head[26] = (uint8_t)roster->connect;
    head[27] = (uint8_t)(roster->nstreams | (roster->chooses_streams ? CHOOSES : 0));
    bool fits = ddl_bytes_append(bytes, head, sizeof head) && encode_costs(roster, bytes);
    for (int rank = 0; fits && rank < roster->nranks; rank++) {
        uint8_t length[2];
        member.bytes = 0;
        fits = ddl_member_encode(&roster->members[rank], &member);
        ddl_put_u16(length, (uint16_t)member.bytes);
        fits = fits && ddl_bytes_append(bytes, length, sizeof length) &&
               ddl_bytes_append(bytes, member.data, member.bytes);
    }
    ddl_bytes_fini(&member);
    return fits;
}

static ddl_status decode_members(ddl_view rest, ddl_roster *roster, ddl_error *err)
{
    const uint8_t *at = rest.data;
    size_t left = rest.bytes;
    for (int rank = 0; rank < roster->nranks; rank++) {
        if (left < 2 || left - 2 < ddl_get_u16(at))
            return DDL_FAIL(err, DDL_EPROTO, "the roster ends within the record of rank %d", rank);
        size_t bytes = ddl_get_u16(at);
        DDL_TRY(ddl_member_decode((ddl_view){ at + 2, bytes }, &roster->members[rank], err));
        if (roster->members[rank].rank != rank)
            return DDL_FAIL(err, DDL_EPROTO, "the roster has rank %d where rank %d belongs",
                            roster->members[rank].rank, rank);
        at += 2 + bytes;
        left -= 2 + bytes;
    }
    if (left > 0)
        return DDL_FAIL(err, DDL_EPROTO, "the roster has %zu bytes too many", left);
    return DDL_OK;
}

static bool is_power_of_two(int number)
{
    return number > 0 && (number & (number - 1)) == 0;
}

ddl_status ddl_roster_decode(ddl_view bytes, int rank, ddl_roster **out, ddl_error *err)
{
    const uint8_t *at = bytes.data;
    ddl_roster *roster = NULL;
    if (bytes.bytes < ROSTER_HEAD_BYTES || memcmp(at, magic, sizeof magic) != 0)
        return DDL_FAIL(err, DDL_EPROTO, "these %zu bytes are no roster", bytes.bytes);
    uint32_t nranks = ddl_get_u32(at + 4), ncosts = ddl_get_u16(at + 24);
    size_t left = bytes.bytes - ROSTER_HEAD_BYTES;
    if (ncosts > DDL_ROSTER_COSTS || left < 8 * ncosts)
        return DDL_FAIL(err, DDL_EPROTO, "a roster of %zu bytes says that it has %u constants", bytes.bytes,
                        (unsigned)ncosts);
    const uint8_t nstreams = at[27] & (uint8_t)~CHOOSES;
    const bool chooses = (at[27] & CHOOSES) != 0;
    if (at[26] > DDL_CONNECT_LAZY_REMOTE || nstreams > DDL_STREAMS_MAX ||
        (chooses && !is_power_of_two(nstreams)))
        return DDL_FAIL(err, DDL_EPROTO, "the roster has %u for who connects when, and %u streams%s", at[26],
                        nstreams, chooses ? " to choose from" : "");
    left -= 8 * ncosts;
    /* Each member takes its length and head at least, so the count is bounded by what is really there. */
    if (nranks == 0 || nranks > left / (2 + MEMBER_HEAD_BYTES) || rank < 0 || (uint32_t)rank >= nranks)
        return DDL_FAIL(err, DDL_EPROTO, "a roster of %zu bytes says that it has %u ranks, this one being %d",
                        bytes.bytes, (unsigned)nranks, rank);
    DDL_TRY(ddl_roster_create(rank, (int)nranks, &roster, err));
    memcpy(roster->run_id, at + 8, DDL_RUN_ID_BYTES);
    roster->ncosts = (int)ncosts;
    roster->connect = (ddl_connect)at[26];
    roster->nstreams = nstreams;
    roster->chooses_streams = chooses;
    at += ROSTER_HEAD_BYTES;
    ddl_status status = decode_costs(at, roster, err);
    if (status == DDL_OK)
        status = decode_members((ddl_view){ at + 8 * ncosts, left }, roster, err);
    if (status != DDL_OK) {
        ddl_roster_destroy(roster);
        return status;
    }
    ddl_roster_derive(roster);
    *out = roster;
    return DDL_OK;
}

ddl_status ddl_roster_create(int rank, int nranks, ddl_roster **out, ddl_error *err)
{
    DDL_ASSERT(nranks > 0);
    DDL_ASSERT(rank >= 0);
    DDL_ASSERT(rank < nranks);
    ddl_roster *roster = ddl_alloc(sizeof *roster);
    if (roster == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a roster");
    roster->rank = rank;
    roster->nranks = nranks;
    roster->members = ddl_alloc_array((size_t)nranks, sizeof *roster->members);
    roster->node_of = ddl_alloc_array((size_t)nranks, sizeof *roster->node_of);
    roster->local_rank_of = ddl_alloc_array((size_t)nranks, sizeof *roster->local_rank_of);
    roster->local_size_of = ddl_alloc_array((size_t)nranks, sizeof *roster->local_size_of);
    roster->sharers_of = ddl_alloc_array((size_t)nranks, sizeof *roster->sharers_of);
    roster->order = ddl_alloc_array((size_t)nranks, sizeof *roster->order);
    if (roster->members == NULL || roster->node_of == NULL || roster->local_rank_of == NULL ||
        roster->local_size_of == NULL || roster->sharers_of == NULL || roster->order == NULL) {
        ddl_roster_destroy(roster);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a roster of %d ranks", nranks);
    }
    *out = roster;
    return DDL_OK;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Ranks whose lowest CPU is the same share all of them; masks that overlap in another way are rare. */
static void count_sharers(ddl_roster *roster)
{
    enum { RANK_BITS = 20 };
    uint64_t *order = roster->order;
    int begin = 0;
    _Static_assert(1 << RANK_BITS >= RANKS_LIMIT, "a rank has more bits");
    for (int rank = 0; rank < roster->nranks; rank++)
        order[rank] = ((uint64_t)roster->node_of[rank] << 16 | roster->members[rank].first_cpu) << RANK_BITS |
                      (uint64_t)rank;
    qsort(order, (size_t)roster->nranks, sizeof *order, compare_keys);
    for (int i = 0; i < roster->nranks; i++) {
        if (i + 1 < roster->nranks && order[i + 1] >> RANK_BITS == order[begin] >> RANK_BITS)
            continue;
        for (int k = begin; k <= i; k++)
            roster->sharers_of[order[k] & ((1 << RANK_BITS) - 1)] = i + 1 - begin;
        begin = i + 1;
    }
}

static double crowding_of(const ddl_roster *roster, int rank)
{
    const int cpus = roster->members[rank].cpus > 0 ? roster->members[rank].cpus : 1;
    return (double)roster->sharers_of[rank] / cpus;
}

static __attribute__((noinline)) double most_crowded(const ddl_roster *roster)
{
    double most = 1;
    for (int rank = 0; rank < roster->nranks; rank++)
        most = crowding_of(roster, rank) > most ? crowding_of(roster, rank) : most;
    return most;
}

double ddl_roster_crowding(const ddl_roster *roster)
{
    const ddl_floating before = ddl_floating_enter();
    const double most = most_crowded(roster);
    ddl_floating_leave(before);
    return most;
}

bool ddl_roster_is_crowded(const ddl_roster *roster)
{
    return crowding_of(roster, roster->rank) > 1;
}

void ddl_roster_derive(ddl_roster *roster)
{
    const ddl_member *members = roster->members;
    int *size_of_node = roster->local_size_of;  /* by node first, spread to the ranks at the end */
    int *first_of_node = roster->local_rank_of; /* by node first: its lowest rank */
    roster->node_count = 0;
    for (int rank = 0; rank < roster->nranks; rank++) {
        int node = 0;
        while (node < roster->node_count &&
               memcmp(members[first_of_node[node]].host_id, members[rank].host_id, DDL_HOST_ID_BYTES) != 0)
            node++;
        if (node == roster->node_count) {
            first_of_node[node] = rank;
            roster->node_count++;
        }
        roster->node_of[rank] = node;
    }
    memset(size_of_node, 0, (size_t)roster->nranks * sizeof *size_of_node);
    for (int rank = 0; rank < roster->nranks; rank++)
        roster->local_rank_of[rank] = size_of_node[roster->node_of[rank]]++;
    /* From the highest rank down, so that no size by node is overwritten before its last use: node <= rank.
     */
    for (int rank = roster->nranks - 1; rank >= 0; rank--)
        size_of_node[rank] = size_of_node[roster->node_of[rank]];
    count_sharers(roster);
}

bool ddl_roster_connects_pair(const ddl_roster *roster, int one, int other)
{
    if (one == other)
        return false;
    if (roster->connect == DDL_CONNECT_EAGER || ddl_overlay_has(roster->nranks, one, other))
        return true;
    const bool has_usher = roster->local_rank_of[one] == 0 || roster->local_rank_of[other] == 0;
    return roster->node_of[one] == roster->node_of[other] &&
           (has_usher || roster->connect == DDL_CONNECT_LAZY_REMOTE);
}

int ddl_roster_streams(const ddl_roster *roster, int rank)
{
    return roster->chooses_streams ? 0 : ddl_roster_most_streams(roster, rank);
}

int ddl_roster_most_streams(const ddl_roster *roster, int rank)
{
    return rank == roster->rank || ddl_roster_is_neighbour(roster, rank) ? 0 : roster->nstreams;
}

bool ddl_roster_keeps_doors(const ddl_roster *roster)
{
    return ddl_roster_is_sparse(roster) || roster->chooses_streams;
}

void ddl_roster_offer_streams(ddl_roster *roster)
{
    int count = roster->node_count > 1 ? DDL_STREAMS_OF_HOSTS : 0;
    for (int rank = 0; rank < roster->nranks; rank++) {
        const int local = roster->local_size_of[rank], remote = roster->nranks - local;
        while (count * local > DDL_STREAMS_OF_HOSTS || count * remote > DDL_STREAMS_OF_RANK)
            count /= 2;
        if (roster->members[rank].declines_streams)
            count = 0;
    }
    roster->nstreams = count > 1 ? count : 0;
    roster->chooses_streams = count > 1;
}

bool ddl_roster_connects_hosts(const ddl_roster *roster)
{
    return roster->connect != DDL_CONNECT_LAZY || ddl_overlay_is_complete(roster->nranks);
}

bool ddl_roster_is_sparse(const ddl_roster *roster)
{
    if (roster->connect == DDL_CONNECT_LAZY_REMOTE && roster->node_count == 1)
        return false;
    return roster->connect != DDL_CONNECT_EAGER && !ddl_overlay_is_complete(roster->nranks);
}

void ddl_roster_destroy(ddl_roster *roster)
{
    if (roster == NULL)
        return;
    ddl_free(roster->members);
    ddl_free(roster->node_of);
    ddl_free(roster->local_rank_of);
    ddl_free(roster->local_size_of);
    ddl_free(roster->sharers_of);
    ddl_free(roster->order);
    ddl_free(roster);
}
