/* test_roster.c - the roster's wire form, and what is derived from it. */
#include "protocol/roster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* host_of[rank] numbers the host of each rank. */
static ddl_roster *make(const int host_of[], int nranks)
{
    ddl_roster *roster = NULL;
    assert_int_equal(ddl_roster_create(0, nranks, &roster, NULL), DDL_OK);
    for (int rank = 0; rank < nranks; rank++) {
        ddl_member *member = &roster->members[rank];
        member->rank = rank;
        member->pid = 1000 + rank;
        member->asks_nccl = rank % 2 == 0;
        member->may_use_nccl = rank != 1;
        member->may_have_gpu = rank == 1;
        member->declines_memory = rank % 3 == 0;
        member->insists_on_memory = rank == 2;
        member->cpus = 2;
        member->first_cpu = (uint16_t)(7 + host_of[rank]);
        member->port = (uint16_t)(40000 + rank);
        member->host_id[3] = (uint8_t)(1 + host_of[rank]);
        snprintf(member->host, sizeof member->host, "host%d", host_of[rank]);
        snprintf(member->address, sizeof member->address, "10.0.0.%d", host_of[rank]);
        if (host_of[rank] == 1) {
            snprintf(member->other, sizeof member->other, "fd77::%d", host_of[rank]);
            member->other_port = (uint16_t)(50000 + rank);
            member->is_inner = rank == 1;
        }
    }
    roster->run_id[0] = 42;
    roster->ncosts = 3;
    memcpy(roster->costs, (const double[]){ 4000, 0.33, 5e-324 }, 3 * sizeof(double));
    ddl_roster_derive(roster);
    return roster;
}

static void ranks_are_placed_on_hosts_in_order(void **state)
{
    static const struct {
        int nranks, host_of[6], node_count, node_of[6], local_rank[6], local_size[6];
    } cases[] = {
        { 1, { 0 }, 1, { 0 }, { 0 }, { 1 } },
        { 4, { 0, 0, 0, 0 }, 1, { 0, 0, 0, 0 }, { 0, 1, 2, 3 }, { 4, 4, 4, 4 } },
        { 4, { 5, 5, 3, 3 }, 2, { 0, 0, 1, 1 }, { 0, 1, 0, 1 }, { 2, 2, 2, 2 } },
        { 6, { 9, 1, 9, 1, 2, 9 }, 3, { 0, 1, 0, 1, 2, 0 }, { 0, 0, 1, 1, 0, 2 }, { 3, 2, 3, 2, 1, 3 } },
        { 5, { 4, 3, 2, 1, 0 }, 5, { 0, 1, 2, 3, 4 }, { 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_roster *roster = make(cases[i].host_of, cases[i].nranks);
        assert_int_equal(roster->node_count, cases[i].node_count);
        for (int rank = 0; rank < cases[i].nranks; rank++) {
            assert_int_equal(roster->node_of[rank], cases[i].node_of[rank]);
            assert_int_equal(roster->local_rank_of[rank], cases[i].local_rank[rank]);
            assert_int_equal(roster->local_size_of[rank], cases[i].local_size[rank]);
        }
        ddl_roster_destroy(roster);
    }
}

/* Ranks that are bound to CPUs of their own are alone on them; what has more ranks than CPUs is crowded. */
static void ranks_share_the_cpus_that_they_may_use(void **state)
{
    static const struct {
        int nranks, host_of[6];
        uint16_t cpus[6], first_cpu[6];
        double crowding;
        int sharers_of[6];
    } cases[] = {
        { 2, { 0, 0 }, { 2, 2 }, { 0, 0 }, 1, { 2, 2 } },
        { 4, { 0, 0, 0, 0 }, { 2, 2, 2, 2 }, { 0, 0, 0, 0 }, 2, { 4, 4, 4, 4 } },
        { 2, { 0, 0 }, { 1, 1 }, { 0, 1 }, 1, { 1, 1 } },
        { 2, { 0, 0 }, { 1, 1 }, { 1, 1 }, 2, { 2, 2 } },
        { 3, { 0, 0, 0 }, { 2, 2, 2 }, { 0, 2, 2 }, 1, { 1, 2, 2 } },
        { 6, { 0, 0, 0, 0, 0, 0 }, { 2, 2, 2, 2, 2, 2 }, { 4, 0, 4, 0, 0, 2 }, 1.5, { 2, 3, 2, 3, 3, 1 } },
        { 4, { 0, 1, 0, 1 }, { 1, 1, 1, 1 }, { 0, 0, 0, 1 }, 2, { 2, 1, 2, 1 } },
        { 3, { 0, 0, 0 }, { 2, 2, 2 }, { 0xffff, 0xffff, 0xffff }, 1.5, { 3, 3, 3 } },
        { 3, { 0, 0, 0 }, { 64, 64, 1 }, { 0, 0, 0 }, 3, { 3, 3, 3 } },
        { 1, { 0 }, { 0 }, { 0 }, 1, { 1 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_roster *roster = make(cases[i].host_of, cases[i].nranks);
        for (int rank = 0; rank < cases[i].nranks; rank++) {
            roster->members[rank].cpus = cases[i].cpus[rank];
            roster->members[rank].first_cpu = cases[i].first_cpu[rank];
        }
        ddl_roster_derive(roster);
        assert_true(ddl_roster_crowding(roster) == cases[i].crowding);
        for (int rank = 0; rank < cases[i].nranks; rank++) {
            assert_int_equal(roster->sharers_of[rank], cases[i].sharers_of[rank]);
            roster->rank = rank;
            assert_true(ddl_roster_is_crowded(roster) ==
                        (cases[i].sharers_of[rank] > cases[i].cpus[rank] && cases[i].sharers_of[rank] > 1));
        }
        ddl_roster_destroy(roster);
    }
}

static void a_roster_comes_back_as_it_was(void **state)
{
    static const int hosts[] = { 0, 1, 0, 1, 2 };
    ddl_roster *roster = make(hosts, 5), *back = NULL;
    ddl_bytes bytes = { 0 };
    (void)state;
    roster->connect = DDL_CONNECT_LAZY;
    roster->nstreams = DDL_STREAMS_MAX;
    roster->chooses_streams = true;
    roster->members[2].declines_streams = true;
    roster->members[2].is_check = true;
    assert_true(ddl_roster_encode(roster, &bytes));
    assert_int_equal(ddl_roster_decode(ddl_bytes_view(&bytes), 3, &back, NULL), DDL_OK);
    assert_int_equal(back->nstreams, DDL_STREAMS_MAX);
    assert_true(back->chooses_streams);
    for (int rank = 0; rank < 5; rank++) { /* not to the own host, on which rank 1 is, too */
        const int most = rank == 1 || rank == 3 ? 0 : DDL_STREAMS_MAX;
        assert_int_equal(ddl_roster_most_streams(back, rank), most);
        assert_int_equal(ddl_roster_streams(back, rank), 0);
        back->chooses_streams = false;
        assert_int_equal(ddl_roster_streams(back, rank), most);
        back->chooses_streams = true;
    }
    assert_int_equal(back->connect, DDL_CONNECT_LAZY);
    assert_int_equal(back->rank, 3);
    assert_int_equal(back->nranks, 5);
    assert_int_equal(back->node_count, 3);
    assert_memory_equal(back->run_id, roster->run_id, DDL_RUN_ID_BYTES);
    assert_int_equal(back->ncosts, 3);
    assert_memory_equal(back->costs, roster->costs, sizeof roster->costs);
    for (int rank = 0; rank < 5; rank++) {
        const ddl_member *was = &roster->members[rank], *is = &back->members[rank];
        assert_int_equal(is->rank, rank);
        assert_int_equal(is->pid, was->pid);
        assert_int_equal(is->cpus, was->cpus);
        assert_int_equal(is->first_cpu, was->first_cpu);
        assert_int_equal(is->port, was->port);
        assert_memory_equal(is->host_id, was->host_id, DDL_HOST_ID_BYTES);
        assert_string_equal(is->host, was->host);
        assert_string_equal(is->address, was->address);
        assert_string_equal(is->other, was->other);
        assert_int_equal(is->other_port, was->other_port);
        assert_int_equal(is->is_inner, was->is_inner);
        assert_int_equal(is->asks_nccl, was->asks_nccl);
        assert_int_equal(is->may_use_nccl, was->may_use_nccl);
        assert_int_equal(is->may_have_gpu, was->may_have_gpu);
        assert_int_equal(is->declines_memory, was->declines_memory);
        assert_int_equal(is->insists_on_memory, was->insists_on_memory);
        assert_int_equal(is->declines_streams, was->declines_streams);
        assert_int_equal(is->is_check, was->is_check);
    }
    ddl_roster_destroy(back);
    ddl_roster_destroy(roster);
    ddl_bytes_fini(&bytes);
}

static ddl_status decode(const uint8_t *data, size_t bytes, int rank)
{
    ddl_roster *roster = NULL;
    ddl_error error;
    /* A copy of exactly this size, so that the sanitizer sees a read beyond it. */
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    ddl_status status = ddl_roster_decode((ddl_view){ copy, bytes }, rank, &roster, &error);
    if (status != DDL_OK)
        assert_true(error.text[0] != '\0');
    ddl_roster_destroy(roster);
    free(copy);
    return status;
}

/* To choose from there are powers of two. */
static void streams_that_there_cannot_be_are_refused(void **state)
{
    enum { CHOOSES = 128 };
    static const int hosts[] = { 0, 1, 0 };
    ddl_roster *roster = make(hosts, 3);
    ddl_bytes bytes = { 0 };
    (void)state;
    assert_true(ddl_roster_encode(roster, &bytes));
    for (int byte = 0; byte < 256; byte++) {
        const int nstreams = byte % CHOOSES;
        const bool is_power = nstreams > 0 && (nstreams & (nstreams - 1)) == 0;
        ((uint8_t *)bytes.data)[27] = (uint8_t)byte;
        assert_int_equal(decode(bytes.data, bytes.bytes, 0),
                         nstreams <= DDL_STREAMS_MAX && (byte < CHOOSES || is_power) ? DDL_OK : DDL_EPROTO);
    }
    ddl_roster_destroy(roster);
    ddl_bytes_fini(&bytes);
}

/* Eight between two hosts, in all, and 256 of a rank. */
static void few_ranks_are_offered_further_connections(void **state)
{
    static const struct {
        int nhosts, per_host, more_on_first, streams;
    } cases[] = {
        { 1, 4, 0, 0 },   { 2, 1, 0, 8 }, { 33, 1, 0, 8 }, { 34, 1, 0, 4 }, { 65, 1, 0, 4 }, { 129, 1, 0, 2 },
        { 130, 1, 0, 0 }, { 2, 2, 0, 4 }, { 33, 2, 0, 4 }, { 34, 2, 0, 2 }, { 2, 3, 0, 2 },  { 33, 4, 0, 2 },
        { 34, 4, 0, 0 },  { 2, 5, 0, 0 }, { 2, 1, 1, 4 },  { 2, 1, 4, 0 },  { 8, 8, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int nranks = cases[i].nhosts * cases[i].per_host + cases[i].more_on_first;
        int hosts[200] = { 0 };
        assert_true(nranks <= 200);
        for (int rank = 0; rank < cases[i].nhosts * cases[i].per_host; rank++)
            hosts[rank] = rank % cases[i].nhosts;
        ddl_roster *roster = make(hosts, nranks);
        ddl_roster_offer_streams(roster);
        if (roster->nstreams != cases[i].streams)
            fail_msg("%d hosts of %d: %d", cases[i].nhosts, cases[i].per_host, roster->nstreams);
        assert_true(roster->chooses_streams == (cases[i].streams > 0));
        roster->members[nranks - 1].declines_streams = true;
        ddl_roster_offer_streams(roster);
        assert_int_equal(roster->nstreams, 0);
        assert_false(roster->chooses_streams);
        ddl_roster_destroy(roster);
    }
}

static void a_cut_or_stretched_roster_is_refused(void **state)
{
    static const int hosts[] = { 0, 1, 0 };
    ddl_roster *roster = make(hosts, 3);
    ddl_bytes bytes = { 0 };
    (void)state;
    assert_true(ddl_roster_encode(roster, &bytes));
    for (size_t count = 0; count < bytes.bytes; count++)
        assert_int_equal(decode(bytes.data, count, 0), DDL_EPROTO);
    assert_int_equal(decode(bytes.data, bytes.bytes, 0), DDL_OK);
    assert_int_equal(decode(bytes.data, bytes.bytes, 3), DDL_EPROTO);
    assert_int_equal(decode(bytes.data, bytes.bytes, -1), DDL_EPROTO);
    assert_true(ddl_bytes_append(&bytes, "x", 1));
    assert_int_equal(decode(bytes.data, bytes.bytes, 0), DDL_EPROTO);
    ddl_roster_destroy(roster);
    ddl_bytes_fini(&bytes);
}

/* Of 8 ranks those at distances 3 and 5 are not neighbours in the overlay. */
static void who_is_connected_at_the_start_is_the_same_both_ways(void **state)
{
    static const int one_host[8], two_hosts[] = { 0, 0, 0, 0, 0, 1, 1, 1 };
    static const struct {
        const int *hosts;
        ddl_connect connect;
        bool sparse, ushered, near, far; /* whether 0 is connected to 3, 1 to 4, and 0 to 5 */
    } cases[] = {
        { one_host, DDL_CONNECT_EAGER, false, true, true, true },
        { one_host, DDL_CONNECT_LAZY, true, true, false, true },
        { one_host, DDL_CONNECT_LAZY_REMOTE, false, true, true, true },
        { two_hosts, DDL_CONNECT_LAZY, true, true, false, false },
        { two_hosts, DDL_CONNECT_LAZY_REMOTE, true, true, true, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_roster *roster = make(cases[i].hosts, 8);
        roster->connect = cases[i].connect;
        bool connects[8][8];
        for (roster->rank = 0; roster->rank < 8; roster->rank++) {
            assert_int_equal(ddl_roster_is_sparse(roster), cases[i].sparse);
            for (int rank = 0; rank < 8; rank++)
                connects[roster->rank][rank] = ddl_roster_connects(roster, rank);
        }
        for (int a = 0; a < 8; a++)
            for (int b = 0; b < 8; b++)
                assert_int_equal(connects[a][b], connects[b][a]);
        assert_false(connects[2][2]);
        assert_true(connects[0][1]);
        assert_int_equal(connects[0][3], cases[i].ushered);
        assert_int_equal(connects[1][4], cases[i].near);
        assert_int_equal(connects[0][5], cases[i].far);
        ddl_roster_destroy(roster);
    }
}

static void impossible_counts_are_refused_before_memory_is_taken(void **state)
{
    static const int hosts[] = { 0, 1 };
    static const uint32_t counts[] = { 0, 1, 3, 1u << 20, 1u << 31, UINT32_MAX };
    ddl_roster *roster = make(hosts, 2);
    ddl_bytes bytes = { 0 };
    (void)state;
    assert_true(ddl_roster_encode(roster, &bytes));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        ddl_put_u32(bytes.data + 4, counts[i]);
        assert_int_equal(decode(bytes.data, bytes.bytes, 0), DDL_EPROTO);
    }
    ddl_roster_destroy(roster);
    ddl_bytes_fini(&bytes);
}

static void constants_that_no_model_can_have_are_refused(void **state)
{
    static const struct {
        const char *name;
        uint64_t bits; /* of an IEEE binary64 */
        ddl_status status;
    } cases[] = {
        { "the least above zero", 1, DDL_OK },
        { "just below the limit", 0x426d1a94a1ffffff, DDL_OK },
        { "the limit, 1e12", 0x426d1a94a2000000, DDL_EPROTO },
        { "zero", 0, DDL_EPROTO },
        { "negative zero", UINT64_C(1) << 63, DDL_EPROTO },
        { "-1", 0xbff0000000000000, DDL_EPROTO },
        { "infinity", 0x7ff0000000000000, DDL_EPROTO },
        { "a quiet NaN", 0x7ff8000000000000, DDL_EPROTO },
        { "a signalling NaN", 0x7ff0000000000001, DDL_EPROTO },
    };
    static const int hosts[] = { 0, 1 };
    ddl_roster *roster = make(hosts, 2);
    ddl_bytes bytes = { 0 };
    (void)state;
    assert_true(ddl_roster_encode(roster, &bytes));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int index = 0; index < 3; index++) {
            uint64_t was = ddl_get_u64(bytes.data + 28 + 8 * index);
            ddl_put_u64(bytes.data + 28 + 8 * index, cases[i].bits);
            if (decode(bytes.data, bytes.bytes, 1) != cases[i].status)
                fail_msg("%s as constant %d", cases[i].name, index);
            ddl_put_u64(bytes.data + 28 + 8 * index, was);
        }
    static const uint32_t counts[] = {
        0, 2, 4, DDL_ROSTER_COSTS, DDL_ROSTER_COSTS + 1, 1u << 29, UINT32_MAX
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        ddl_put_u32(bytes.data + 24, counts[i]);
        assert_int_equal(decode(bytes.data, bytes.bytes, 0), DDL_EPROTO);
    }
    ddl_roster_destroy(roster);
    ddl_bytes_fini(&bytes);
}

static void as_many_constants_as_there_is_room_for_come_back(void **state)
{
    static const int hosts[] = { 0 };
    ddl_roster *roster = make(hosts, 1), *back = NULL;
    (void)state;
    for (int count = 0; count <= DDL_ROSTER_COSTS; count++) {
        ddl_bytes bytes = { 0 };
        roster->ncosts = count;
        for (int i = 0; i < count; i++)
            roster->costs[i] = 1.5 + i;
        assert_true(ddl_roster_encode(roster, &bytes));
        assert_int_equal(ddl_roster_decode(ddl_bytes_view(&bytes), 0, &back, NULL), DDL_OK);
        assert_int_equal(back->ncosts, count);
        assert_memory_equal(back->costs, roster->costs, (size_t)count * sizeof(double));
        ddl_roster_destroy(back);
        ddl_bytes_fini(&bytes);
    }
    ddl_roster_destroy(roster);
}

static void any_change_of_a_byte_leads_to_a_clean_end(void **state)
{
    static const int hosts[] = { 0, 1, 0 };
    ddl_roster *roster = make(hosts, 3);
    ddl_bytes bytes = { 0 };
    (void)state;
    assert_true(ddl_roster_encode(roster, &bytes));
    for (size_t at = 0; at < bytes.bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes.data[at] ^= (uint8_t)(1 << bit);
            ddl_status status = decode(bytes.data, bytes.bytes, 1);
            assert_true(status == DDL_OK || status == DDL_EPROTO);
            bytes.data[at] ^= (uint8_t)(1 << bit);
        }
    }
    ddl_roster_destroy(roster);
    ddl_bytes_fini(&bytes);
}

static void bad_members_are_refused(void **state)
{
    static const struct {
        const char *name;
        size_t at;
        uint8_t value;
    } cases[] = {
        { "a rank beyond any world", 3, 0x7f },
        { "a negative rank", 3, 0x80 },
        { "port 0", 12, 0 },
        { "a host that is too long", 14, 200 },
        { "no address", 15, 0 },
        { "an address that is too long", 15, 255 },
        { "another address without a port", 32, 0 },
        { "another address that is too long", 34, 200 },
        { "one more address than there is room for", 34, 9 },
        { "who asks for NCCL and may not use it", 35, 2 },
        { "who declines shared memory and insists on it", 35, 12 },
        { "a control character in the host", 36, 0x1b },
        { "a byte that is no ASCII in the address", 41, 0xff },
        { "a byte that is no ASCII in the other address", 49, 0xff },
    };
    ddl_member member = { .rank = 1,
                          .port = 256,
                          .host = "hosta",
                          .address = "10.0.0.1",
                          .other_port = 7,
                          .other = "fd77::1",
                          .is_inner = true },
               back;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_bytes bytes = { 0 };
        assert_true(ddl_member_encode(&member, &bytes));
        assert_int_equal(ddl_member_decode(ddl_bytes_view(&bytes), &back, NULL), DDL_OK);
        bytes.data[cases[i].at] = cases[i].value;
        bytes.data[13] = cases[i].at == 12 ? 0 : bytes.data[13];
        if (ddl_member_decode(ddl_bytes_view(&bytes), &back, NULL) != DDL_EPROTO)
            fail_msg("%s was accepted", cases[i].name);
        ddl_bytes_fini(&bytes);
    }
    ddl_bytes alone = { 0 };
    member.other[0] = '\0';
    assert_true(ddl_member_encode(&member, &alone));
    assert_int_equal(ddl_member_decode(ddl_bytes_view(&alone), &back, NULL), DDL_OK);
    alone.data[35] = 1; /* inner, and there is no other */
    assert_int_equal(ddl_member_decode(ddl_bytes_view(&alone), &back, NULL), DDL_EPROTO);
    ddl_bytes_fini(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_placed_on_hosts_in_order),
        cmocka_unit_test(ranks_share_the_cpus_that_they_may_use),
        cmocka_unit_test(a_roster_comes_back_as_it_was),
        cmocka_unit_test(streams_that_there_cannot_be_are_refused),
        cmocka_unit_test(few_ranks_are_offered_further_connections),
        cmocka_unit_test(a_cut_or_stretched_roster_is_refused),
        cmocka_unit_test(who_is_connected_at_the_start_is_the_same_both_ways),
        cmocka_unit_test(impossible_counts_are_refused_before_memory_is_taken),
        cmocka_unit_test(constants_that_no_model_can_have_are_refused),
        cmocka_unit_test(as_many_constants_as_there_is_room_for_come_back),
        cmocka_unit_test(any_change_of_a_byte_leads_to_a_clean_end),
        cmocka_unit_test(bad_members_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
