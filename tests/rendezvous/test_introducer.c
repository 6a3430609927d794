/*
 * test_introducer.c - whoever comes to an usher, in whatever order and way, is connected to all others or
 * told to call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/eventually.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "io/local.h"
#include "io/socket.h"
#include "rendezvous/meshing_introducer.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUESTS = 20, RANKS = 1 + GUESTS, WAIT_MS = 20000 };

/* One host. Guest i is rank i + 1. */
struct host {
    ddl_service *service;
    ddl_roster *rosters[RANKS]; /* as each rank sees it */
    ddl_introducer *introducer;
    int usher_ends[GUESTS], guest_ends[GUESTS];
    int fds[GUESTS][RANKS]; /* what each guest was handed for each rank; -1: nothing */
    bool is_to_call[GUESTS][RANKS];
    int nsigns[GUESTS];
    int rank, fd; /* of the call to the service thread */
    atomic_int told, left, denied;
};

static ddl_deadline soon(void)
{
    return ddl_deadline_in_ms(WAIT_MS);
}

static void told(void *arg, int left, const ddl_error *denied)
{
    struct host *host = arg;
    if (denied != NULL)
        atomic_store(&host->denied, denied->code == DDL_EUNSUPPORTED ? left : RANKS);
    atomic_store(&host->left, left);
    atomic_fetch_add(&host->told, left < 0);
}

static void open_on_service(void *arg)
{
    struct host *host = arg;
    if (ddl_introducer_open(host->service, host->rosters[0], told, host, &host->introducer, NULL) != DDL_OK)
        host->introducer = NULL;
}

static void welcome_on_service(void *arg)
{
    struct host *host = arg;
    ddl_introducer_welcome(host->introducer, host->rank, host->fd);
}

static void close_on_service(void *arg)
{
    struct host *host = arg;
    ddl_introducer_close(host->introducer);
}

static void open_host(struct host *host)
{
    memset(host, 0, sizeof *host);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(ddl_roster_create(rank, RANKS, &host->rosters[rank], NULL), DDL_OK);
        for (int member = 0; member < RANKS; member++) {
            snprintf(host->rosters[rank]->members[member].host, DDL_HOST_TEXT, "alone");
            memset(host->rosters[rank]->members[member].host_id, 7, DDL_HOST_ID_BYTES);
        }
        ddl_roster_derive(host->rosters[rank]);
    }
    for (int i = 0; i < GUESTS; i++) {
        int ends[2];
        assert_int_equal(ddl_local_pair(ends, NULL), DDL_OK);
        host->usher_ends[i] = ends[0];
        host->guest_ends[i] = ends[1];
        for (int rank = 0; rank < RANKS; rank++)
            host->fds[i][rank] = -1;
    }
    assert_int_equal(ddl_service_create(&host->service, NULL), DDL_OK);
    assert_int_equal(ddl_service_call(host->service, "opening", open_on_service, host, soon(), NULL), DDL_OK);
    assert_non_null(host->introducer);
}

static void close_host(struct host *host)
{
    assert_int_equal(ddl_service_call(host->service, "closing", close_on_service, host, soon(), NULL),
                     DDL_OK);
    ddl_service_destroy(host->service);
    for (int i = 0; i < GUESTS; i++) {
        ddl_socket_close(&host->usher_ends[i]);
        ddl_socket_close(&host->guest_ends[i]);
        for (int rank = 0; rank < RANKS; rank++)
            ddl_socket_close(&host->fds[i][rank]);
    }
    for (int rank = 0; rank < RANKS; rank++)
        ddl_roster_destroy(host->rosters[rank]);
}

static void come(struct host *host, int guest, bool by_socket)
{
    host->rank = guest + 1;
    host->fd = by_socket ? host->usher_ends[guest] : -1;
    assert_int_equal(ddl_service_call(host->service, "a guest", welcome_on_service, host, soon(), NULL),
                     DDL_OK);
}

static void all_come(struct host *host)
{
    for (int i = 0; i < GUESTS; i++)
        come(host, i, true);
}

/* What has come for a guest, until it has been told of so many others. */
static void hear(struct host *host, int guest, int count)
{
    for (int known = 0; known < count;) {
        ddl_introductions some;
        ddl_error error;
        ddl_status status =
            ddl_introductions_take(host->rosters[guest + 1], host->guest_ends[guest], &some, &error);
        if (status == DDL_ETIMEDOUT) {
            assert_true(ddl_socket_wait(host->guest_ends[guest], POLLIN, soon()));
            continue;
        }
        if (status != DDL_OK)
            fail_msg("guest %d: %s", guest, error.text);
        host->nsigns[guest] += some.count == 0;
        for (int i = 0; i < some.count; i++) {
            const int rank = some.ranks[i];
            assert_int_not_equal(rank, guest + 1);
            assert_true(host->fds[guest][rank] < 0 && !host->is_to_call[guest][rank]); /* once each */
            host->fds[guest][rank] = some.fds[i];
            host->is_to_call[guest][rank] = some.fds[i] < 0;
        }
        known += some.count;
    }
}

static void all_hear(struct host *host)
{
    for (int i = 0; i < GUESTS; i++)
        hear(host, i, GUESTS - 1);
}

/* That both hold the ends of one connection, which nobody else has. */
static void expect_connected(const struct host *host, int one, int other)
{
    const char said[2] = { (char)one, (char)other };
    char heard[2] = { 0, 0 };
    const int from = host->fds[one][other + 1], to = host->fds[other][one + 1];
    assert_true(from >= 0 && to >= 0);
    assert_int_equal(ddl_socket_write(from, said, sizeof said), sizeof said);
    assert_int_equal(ddl_socket_read(to, heard, sizeof heard), sizeof heard);
    assert_memory_equal(said, heard, sizeof said);
}

static void expect_all_connected(const struct host *host)
{
    for (int one = 0; one < GUESTS; one++)
        for (int other = 0; other < GUESTS; other++)
            if (one != other)
                expect_connected(host, one, other);
}

static void expect_told(struct host *host)
{
    char byte;
    EVENTUALLY(atomic_load(&host->told) != 0);
    assert_int_equal(atomic_load(&host->told), 1);
    assert_int_equal(atomic_load(&host->left), -1);
    assert_int_equal(atomic_load(&host->denied), 0);
    for (int i = 0; i < GUESTS; i++) /* what comes now is for the owners of the connections */
        if (host->guest_ends[i] >= 0)
            assert_int_equal(ddl_socket_read(host->guest_ends[i], &byte, 1), -1);
}

static void all_are_connected_to_all(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    for (int k = 0; k < GUESTS; k++)
        come(&host, k * 7 % GUESTS, true);
    all_hear(&host);
    expect_all_connected(&host);
    expect_told(&host);
    close_host(&host);
}

static void who_comes_late_is_introduced_too(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    for (int i = 0; i < GUESTS; i++)
        if (i != 3 && i != 17)
            come(&host, i, true);
    for (int i = 0; i < GUESTS; i++)
        if (i != 3 && i != 17)
            hear(&host, i, GUESTS - 3); /* of those who are there, though others are not */
    come(&host, 17, true);
    hear(&host, 17, GUESTS - 2);
    assert_int_equal(atomic_load(&host.told), 0);
    come(&host, 3, true);
    for (int i = 0; i < GUESTS; i++)
        hear(&host, i, i == 3 ? GUESTS - 1 : i == 17 ? 1 : 2);
    expect_all_connected(&host);
    expect_told(&host);
    close_host(&host);
}

static void who_waits_hears_that_the_usher_is_there(void **state)
{
    static struct host host;
    ddl_introductions some;
    (void)state;
    open_host(&host);
    come(&host, 0, true);
    for (int signs = 0; signs < 3; signs++) {
        assert_true(ddl_socket_wait(host.guest_ends[0], POLLIN, soon()));
        assert_int_equal(ddl_introductions_take(host.rosters[1], host.guest_ends[0], &some, NULL), DDL_OK);
        assert_int_equal(some.count, 0);
    }
    close_host(&host);
}

static void who_came_another_way_calls_and_is_called(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    for (int i = 0; i < GUESTS; i++)
        come(&host, i, i != 2 && i != 11);
    for (int i = 0; i < GUESTS; i++) {
        if (i == 2 || i == 11)
            continue;
        hear(&host, i, GUESTS - 1);
    }
    for (int i = 0; i < GUESTS; i++) {
        if (i == 2 || i == 11)
            continue;
        for (int other = 0; other < GUESTS; other++) {
            if (other == 2 || other == 11)
                assert_true(host.is_to_call[i][other + 1]);
            else if (other != i)
                expect_connected(&host, i, other);
        }
    }
    expect_told(&host);
    close_host(&host);
}

static void who_has_gone_keeps_nobody(void **state)
{
    static struct host host;
    char byte;
    (void)state;
    open_host(&host);
    ddl_socket_close(&host.guest_ends[5]);
    all_come(&host);
    for (int i = 0; i < GUESTS; i++)
        if (i != 5)
            hear(&host, i, GUESTS - 1);
    expect_told(&host);
    for (int i = 0; i < GUESTS; i++) /* is seen by the end of what connects to it, or cannot be called */
        if (i != 5 && !host.is_to_call[i][6])
            assert_int_equal(ddl_socket_read(host.fds[i][6], &byte, 1), 0);
    close_host(&host);
}

/* As the note of meshing_introducer.c. */
struct note {
    uint8_t magic[4];
    uint32_t count;
    uint32_t others[DDL_INTRODUCTIONS][2];
};

#ifdef DDL_FAILPOINTS
static void a_pair_without_sockets_calls(void **state)
{
    static struct host host;
    int ncalls = 0;
    (void)state;
    open_host(&host);
    ddl_failpoint_arm("io.unix_pair:25");
    all_come(&host);
    all_hear(&host);
    ddl_failpoint_arm(NULL);
    for (int one = 0; one < GUESTS; one++)
        for (int other = 0; other < GUESTS; other++) {
            assert_int_equal(host.is_to_call[one][other + 1], host.is_to_call[other][one + 1]);
            ncalls += host.is_to_call[one][other + 1];
            if (one != other && !host.is_to_call[one][other + 1])
                expect_connected(&host, one, other);
        }
    assert_int_equal(ncalls, 2);
    close_host(&host);
}

static void what_is_refused_for_a_while_is_told_later(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    ddl_failpoint_arm("io.unix_send:11");
    all_come(&host);
    all_hear(&host);
    ddl_failpoint_arm(NULL);
    expect_all_connected(&host);
    expect_told(&host);
    close_host(&host);
}

/* Too many are under way, of this user's other jobs for one. */
static void where_no_descriptors_are_taken_all_call(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    ddl_failpoint_arm("io.unix_send");
    all_come(&host);
    for (int i = 0; i < GUESTS; i++) {
        hear(&host, i, GUESTS - 1);
        assert_true(host.nsigns[i] > 0);
        for (int other = 0; other < GUESTS; other++)
            assert_true(other == i || host.is_to_call[i][other + 1]);
    }
    ddl_failpoint_arm(NULL);
    expect_told(&host);
    close_host(&host);
}

/* Nobody has an end that cannot be taken back; one only has to read what is under way to it. */
static void who_has_to_read_first_is_not_who_is_denied(void **state)
{
    static struct host host;
    static const struct note sign = { .magic = { 'd', 'd', 'l', 5 } };
    const int little = 4096;
    (void)state;
    open_host(&host);
    assert_int_equal(setsockopt(host.usher_ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    while (ddl_local_send(host.usher_ends[0], &sign, sizeof sign, NULL, 0, NULL) == DDL_OK) {
    }
    ddl_failpoint_arm("io.unix_deny");
    all_come(&host);
    EVENTUALLY(atomic_load(&host.left) == 1);
    (void)poll(NULL, 0, 100);
    assert_int_equal(atomic_load(&host.left), 1);
    assert_int_equal(atomic_load(&host.denied), 0);
    all_hear(&host);
    ddl_failpoint_arm(NULL);
    expect_told(&host);
    close_host(&host);
}

static void all_call_where_it_is_forbidden(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    ddl_failpoint_arm("io.unix_deny");
    all_come(&host);
    for (int i = 0; i < GUESTS; i++)
        hear(&host, i, GUESTS - 1);
    ddl_failpoint_arm(NULL);
    expect_told(&host);
    close_host(&host);
}

/* The ends that some have cannot be taken back: who lacks the other ones is named at once. */
static void what_is_forbidden_in_the_middle_is_said(void **state)
{
    static struct host host;
    (void)state;
    open_host(&host);
    ddl_failpoint_arm("io.unix_deny:4+");
    all_come(&host);
    EVENTUALLY(atomic_load(&host.denied) != 0);
    ddl_failpoint_arm(NULL);
    assert_int_equal(atomic_load(&host.denied), 4); /* the fourth guest */
    assert_int_equal(atomic_load(&host.told), 0);
    close_host(&host);
}
#endif

static void nonsense_is_refused(void **state)
{
    static struct host host;
    const struct note sound = { .magic = { 'd', 'd', 'l', 5 }, .count = 1, .others = { { 2, 1 } } };
    struct note notes[6];
    ddl_introductions some;
    ddl_error error;
    (void)state;
    open_host(&host);
    for (size_t i = 0; i < 6; i++)
        notes[i] = sound;
    notes[0].magic[3]++;
    notes[1].count = DDL_INTRODUCTIONS + 1;
    notes[2].others[0][0] = RANKS;
    notes[3].others[0][0] = 0; /* the usher */
    notes[4].others[0][0] = 1; /* the guest itself */
    notes[5].others[0][1] = 0; /* a descriptor came with it all the same */
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(
            ddl_local_send(host.usher_ends[0], &notes[i], sizeof notes[i], &host.usher_ends[1], 1, NULL),
            DDL_OK);
        assert_int_equal(ddl_introductions_take(host.rosters[1], host.guest_ends[0], &some, &error),
                         DDL_EPROTO);
    }
    assert_int_equal(ddl_local_send(host.usher_ends[0], &sound, sizeof sound, &host.usher_ends[1], 1, NULL),
                     DDL_OK);
    assert_int_equal(ddl_introductions_take(host.rosters[1], host.guest_ends[0], &some, &error), DDL_OK);
    assert_int_equal(some.count, 1);
    assert_int_equal(some.ranks[0], 2);
    ddl_socket_close(&some.fds[0]);
    assert_int_equal(ddl_introductions_take(host.rosters[1], host.guest_ends[0], &some, &error),
                     DDL_ETIMEDOUT);
    ddl_socket_close(&host.usher_ends[0]);
    assert_int_equal(ddl_introductions_take(host.rosters[1], host.guest_ends[0], &some, &error),
                     DDL_EPEERLOST);
    close_host(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_connected_to_all),
        cmocka_unit_test(who_comes_late_is_introduced_too),
        cmocka_unit_test(who_waits_hears_that_the_usher_is_there),
        cmocka_unit_test(who_came_another_way_calls_and_is_called),
        cmocka_unit_test(who_has_gone_keeps_nobody),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(a_pair_without_sockets_calls),
        cmocka_unit_test(what_is_refused_for_a_while_is_told_later),
        cmocka_unit_test(all_call_where_it_is_forbidden),
        cmocka_unit_test(who_has_to_read_first_is_not_who_is_denied),
        cmocka_unit_test(what_is_forbidden_in_the_middle_is_said),
        cmocka_unit_test(where_no_descriptors_are_taken_all_call),
#endif
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
