/* test_neighbours.c - ranks of one host hand each other descriptors, and agree on what they share. */
#include "rendezvous/neighbours.h"

#include "base/bytes.h"
#include "io/local.h"
#include "io/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 8, PATIENT_MS = 60000 };

enum conduct { MEETS, HAS_NOTHING, ENDS, IS_SILENT, ENDS_LATER, IS_SILENT_LATER };

/* A thread as a rank. The threads only record. */
struct rank {
    enum conduct conduct;
    int64_t timeout_ms, agree_ms;
    int cannot_map; /* a rank whose heap it has no addresses for; -1: none */
    ddl_roster *roster;
    ddl_wire wires[MOST];
    ddl_neighbour own, others[MOST];
    uint8_t shares[MOST];
    uint8_t common;
    ddl_status status;
    ddl_error error;
    int64_t took_ms;
    pthread_t thread;
};

static ddl_roster *roster_of(int rank, int nranks, ddl_connect connect)
{
    ddl_roster *roster = NULL;
    assert_int_equal(ddl_roster_create(rank, nranks, &roster, NULL), DDL_OK);
    roster->connect = connect;
    ddl_roster_derive(roster);
    return roster;
}

static void connect_pair(ddl_wire *one, ddl_wire *other)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fcntl(ends[i], F_SETFL, O_NONBLOCK), 0);
    *one = (ddl_wire){ ends[0], NULL };
    *other = (ddl_wire){ ends[1], NULL };
}

static ddl_neighbour make_own(void)
{
    ddl_neighbour own;
    assert_int_equal(ddl_local_memory_create(4096, &own.memory_fd, NULL), DDL_OK);
    assert_int_equal(ddl_local_bell_create(&own.bell_fd, NULL), DDL_OK);
    return own;
}

static void make_world(struct rank ranks[], int nranks, ddl_connect connect)
{
    memset(ranks, 0, (size_t)nranks * sizeof *ranks);
    for (int r = 0; r < nranks; r++) {
        ranks[r].roster = roster_of(r, nranks, connect);
        ranks[r].timeout_ms = ranks[r].agree_ms = PATIENT_MS;
        ranks[r].cannot_map = -1;
        ranks[r].own = make_own();
        for (int peer = 0; peer < nranks; peer++)
            ranks[r].wires[peer] = ddl_no_wire;
    }
    for (int r = 0; r < nranks; r++)
        for (int peer = 0; peer < r; peer++)
            if (ddl_roster_connects(ranks[r].roster, peer))
                connect_pair(&ranks[r].wires[peer], &ranks[peer].wires[r]);
}

static void hang_up(struct rank *self)
{
    for (int peer = 0; peer < self->roster->nranks; peer++)
        ddl_wire_close(&self->wires[peer]);
}

static void meet(struct rank *self)
{
    ddl_neighbour none = { -1, -1 };
    bool without[MOST] = { false };
    ddl_apart apart = { .nranks = self->roster->nranks, .ranks = without };
    self->status =
        ddl_neighbours_meet(self->roster, self->wires, self->conduct == HAS_NOTHING ? none : self->own,
                            ddl_deadline_in_ms(self->timeout_ms), self->others, &apart, &self->error);
    if (self->status != DDL_OK || self->conduct == IS_SILENT_LATER)
        return;
    for (int peer = 0; peer < self->roster->nranks; peer++)
        if (self->others[peer].memory_fd >= 0)
            self->shares[peer] =
                peer == self->cannot_map ? DDL_SHARES_LANES : DDL_SHARES_LANES | DDL_SHARES_HEAPS;
    if (self->conduct == ENDS_LATER)
        hang_up(self);
    else
        self->status = ddl_neighbours_agree(self->roster, self->wires, ddl_deadline_in_ms(self->agree_ms),
                                            self->shares, &self->common, &self->error);
}

static void *run(void *arg)
{
    struct rank *self = arg;
    int64_t begin_ns = ddl_now_ns();
    if (self->conduct == ENDS)
        hang_up(self);
    else if (self->conduct != IS_SILENT)
        meet(self);
    self->took_ms = (ddl_now_ns() - begin_ns) / DDL_NS_PER_MS;
    if (self->status != DDL_OK) /* as a start-up that fails does */
        hang_up(self);
    return NULL;
}

static void run_world(struct rank ranks[], int nranks)
{
    for (int r = 0; r < nranks; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
    for (int r = 0; r < nranks; r++)
        assert_int_equal(pthread_join(ranks[r].thread, NULL), 0);
}

static void end_world(struct rank ranks[], int nranks)
{
    for (int r = 0; r < nranks; r++) {
        for (int peer = 0; peer < nranks && ranks[r].conduct != ENDS && ranks[r].conduct != IS_SILENT;
             peer++) {
            ddl_socket_close(&ranks[r].others[peer].memory_fd);
            ddl_socket_close(&ranks[r].others[peer].bell_fd);
        }
        hang_up(&ranks[r]);
        ddl_socket_close(&ranks[r].own.memory_fd);
        ddl_socket_close(&ranks[r].own.bell_fd);
        ddl_roster_destroy(ranks[r].roster);
    }
}

static bool is_same(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_ino == other.st_ino;
}

static void each_gets_what_the_others_have(void **state)
{
    static const struct {
        const char *name;
        int nranks;
        ddl_connect connect;
        int without; /* has nothing to hand over; -1: none */
        int blind;   /* cannot map the heap of rank 1; -1: none */
    } cases[] = {
        { "two", 2, DDL_CONNECT_EAGER, -1, -1 },
        { "more", 7, DDL_CONNECT_EAGER, -1, -1 },
        { "one has nothing", 4, DDL_CONNECT_EAGER, 2, -1 },
        { "the usher has nothing", 4, DDL_CONNECT_EAGER, 0, -1 },
        { "only one of two has", 2, DDL_CONNECT_EAGER, 1, -1 },
        { "a heap cannot be mapped", 5, DDL_CONNECT_LAZY_REMOTE, -1, 3 },
        { "not all are connected", 8, DDL_CONNECT_LAZY, -1, -1 },
        { "not all are connected, one has nothing", 8, DDL_CONNECT_LAZY, 5, 2 },
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rank ranks[MOST];
        const int nranks = cases[c].nranks;
        uint8_t common = DDL_SHARES_LANES | DDL_SHARES_HEAPS;
        make_world(ranks, nranks, cases[c].connect);
        if (cases[c].without >= 0)
            ranks[cases[c].without].conduct = HAS_NOTHING;
        if (cases[c].blind >= 0)
            ranks[cases[c].blind].cannot_map = 1;
        run_world(ranks, nranks);
        for (int r = 0; r < nranks; r++)
            for (int peer = 0; peer < nranks; peer++) {
                bool meets = peer != r && ddl_roster_connects(ranks[r].roster, peer);
                bool shares = meets && r != cases[c].without && peer != cases[c].without;
                bool blind = (r == cases[c].blind && peer == 1) || (r == 1 && peer == cases[c].blind);
                const uint8_t both = !shares ? 0
                                     : blind ? DDL_SHARES_LANES
                                             : DDL_SHARES_LANES | DDL_SHARES_HEAPS;
                common &= peer != r ? both : common;
                if (ranks[r].status != DDL_OK)
                    fail_msg("%s: rank %d: %s", cases[c].name, r, ranks[r].error.text);
                if (ranks[r].shares[peer] != both)
                    fail_msg("%s: ranks %d and %d share %d", cases[c].name, r, peer, ranks[r].shares[peer]);
                if (shares && (!is_same(ranks[r].others[peer].memory_fd, ranks[peer].own.memory_fd) ||
                               ranks[r].others[peer].bell_fd < 0))
                    fail_msg("%s: rank %d has something else of rank %d", cases[c].name, r, peer);
            }
        for (int r = 0; r < nranks; r++)
            if (ranks[r].common != common)
                fail_msg("%s: rank %d is told that all pairs share %d, not %d", cases[c].name, r,
                         ranks[r].common, common);
        end_world(ranks, nranks);
    }
}

/* Of those that are late the lowest is blamed, so rank 1 is the one, whatever the machine does to the others.
 */
static void all_blame_the_rank_that_fails(void **state)
{
    static const struct {
        const char *name;
        enum conduct conduct;
        int culprit;
        int64_t meet_ms, agree_ms; /* that the usher has */
        ddl_status status;
        ddl_connect connect;
    } cases[] = {
        { "ends", ENDS, 3, PATIENT_MS, PATIENT_MS, DDL_EPEERLOST, DDL_CONNECT_EAGER },
        { "ends after it has met the others", ENDS_LATER, 2, PATIENT_MS, PATIENT_MS, DDL_EPEERLOST,
          DDL_CONNECT_EAGER },
        { "the usher ends", ENDS, 0, PATIENT_MS, PATIENT_MS, DDL_EPEERLOST, DDL_CONNECT_EAGER },
        { "the usher ends after it has met the others", ENDS_LATER, 0, PATIENT_MS, PATIENT_MS, DDL_EPEERLOST,
          DDL_CONNECT_EAGER },
        { "is stopped", IS_SILENT, 1, 100, PATIENT_MS, DDL_ETIMEDOUT, DDL_CONNECT_EAGER },
        { "is stopped after it has met the others", IS_SILENT_LATER, 1, PATIENT_MS, 100, DDL_ETIMEDOUT,
          DDL_CONNECT_EAGER },
        { "ends, and not all are connected to it", ENDS, 3, PATIENT_MS, PATIENT_MS, DDL_EPEERLOST,
          DDL_CONNECT_LAZY },
        { "is stopped, and not all are connected to it", IS_SILENT, 1, 100, PATIENT_MS, DDL_ETIMEDOUT,
          DDL_CONNECT_LAZY },
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rank ranks[MOST];
        const int nranks = 8;
        make_world(ranks, nranks, cases[c].connect);
        ranks[0].timeout_ms = cases[c].meet_ms;
        ranks[0].agree_ms = cases[c].agree_ms;
        ranks[cases[c].culprit].conduct = cases[c].conduct;
        run_world(ranks, nranks);
        for (int r = 0; r < nranks; r++)
            if (r != cases[c].culprit &&
                (ranks[r].status != cases[c].status || ranks[r].error.culprit != cases[c].culprit))
                fail_msg("%s: rank %d has %s, and blames %d: %s", cases[c].name, r,
                         ddl_status_name(ranks[r].status), ranks[r].error.culprit, ranks[r].error.text);
        end_world(ranks, nranks);
    }
}

/* Others have less time than the usher: it tells them whom all wait for while they still listen. */
static void the_usher_gives_up_before_the_others_would(void **state)
{
    struct rank ranks[MOST];
    (void)state;
    make_world(ranks, 4, DDL_CONNECT_EAGER);
    ranks[1].conduct = IS_SILENT;
    ranks[3].timeout_ms = 400;
    run_world(ranks, 4);
    assert_int_equal(ranks[0].status, DDL_ETIMEDOUT);
    assert_int_equal(ranks[0].error.culprit, 1);
    assert_in_range(ranks[0].took_ms, 0, PATIENT_MS / 2);
    assert_int_equal(ranks[2].status, DDL_ETIMEDOUT);
    assert_int_equal(ranks[2].error.culprit, 1);
    end_world(ranks, 4);
}

/* ---- ranks that the test plays, to an usher that is a thread ---- */

static void arrive(const struct rank *played);

/* The usher comes when its time is over: who has spoken is not blamed. */
static void what_had_come_is_heard_however_late_the_usher_is(void **state)
{
    struct rank ranks[MOST];
    (void)state;
    make_world(ranks, 4, DDL_CONNECT_EAGER);
    ranks[0].timeout_ms = 0;
    arrive(&ranks[1]);
    arrive(&ranks[3]);
    meet(&ranks[0]);
    assert_int_equal(ranks[0].status, DDL_ETIMEDOUT);
    assert_int_equal(ranks[0].error.culprit, 2);
    ranks[0].conduct = ranks[1].conduct = ranks[2].conduct = ranks[3].conduct = IS_SILENT;
    end_world(ranks, 4);
}

static void send_all(int fd, const void *data, size_t bytes)
{
    assert_int_equal(ddl_socket_write(fd, data, bytes), (ssize_t)bytes);
}

static void receive_all(int fd, void *data, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        assert_true(ddl_socket_wait(fd, POLLIN, ddl_deadline_in_ms(PATIENT_MS)));
        ssize_t got = ddl_socket_read(fd, (uint8_t *)data + have, bytes - have);
        assert_true(got > 0);
        have += (size_t)got;
    }
}

/* As docs/wire.md tells it. */
struct arrival {
    uint32_t left_ms;
    uint8_t magic[4], has, zero[3];
};

struct word {
    uint8_t magic[4], kind, whole, zero[2];
    uint32_t culprit;
    uint8_t token[16];
    char door[DDL_LOCAL_NAME_BYTES];
};

struct note {
    uint32_t rank;
    uint8_t token[16];
};

struct batch {
    uint32_t count, more, ranks[125];
};

static void arrive(const struct rank *played)
{
    const struct arrival arrival = { PATIENT_MS, { 'd', 'd', 'l', 4 }, 1, { 0 } };
    send_all(played->wires[0].fd, &arrival, sizeof arrival);
}

/* Call the usher's door with a note of this rank and token. */
static int call(const struct word *word, uint32_t rank, const uint8_t token[16], const ddl_neighbour *own)
{
    const int descriptors[] = { own->memory_fd, own->bell_fd };
    struct note note = { .rank = rank };
    int fd = -1;
    memcpy(note.token, token, sizeof note.token);
    assert_int_equal(ddl_local_connect(word->door, &fd, NULL), DDL_OK);
    assert_int_equal(ddl_local_send(fd, &note, sizeof note, descriptors, 2, NULL), DDL_OK);
    return fd;
}

static struct batch take_batch(int fd)
{
    int descriptors[DDL_LOCAL_FDS_MOST], count = 0;
    struct batch batch;
    assert_true(ddl_socket_wait(fd, POLLIN, ddl_deadline_in_ms(PATIENT_MS)));
    assert_int_equal(
        ddl_local_receive(fd, &batch, sizeof batch, descriptors, DDL_LOCAL_FDS_MOST, &count, NULL), DDL_OK);
    assert_int_equal(count, 2 * (int)batch.count);
    for (int i = 0; i < count; i++)
        close(descriptors[i]);
    return batch;
}

static void who_does_not_know_the_token_is_turned_away(void **state)
{
    struct rank ranks[MOST];
    struct word word;
    (void)state;
    make_world(ranks, 3, DDL_CONNECT_EAGER);
    ranks[0].conduct = IS_SILENT_LATER;
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, run, &ranks[0]), 0);
    arrive(&ranks[1]);
    arrive(&ranks[2]);
    receive_all(ranks[1].wires[0].fd, &word, sizeof word);
    uint8_t guess[16];
    memcpy(guess, word.token, sizeof guess);
    guess[15] ^= 1;
    for (uint32_t rank = 0; rank < 4;
         rank++) { /* its own, another's, the usher's, and one that there is not */
        uint8_t byte;
        int fd = call(&word, rank, rank == 0 || rank == 3 ? word.token : guess, &ranks[1].own);
        assert_true(ddl_socket_wait(fd, POLLIN, ddl_deadline_in_ms(PATIENT_MS)));
        assert_true(ddl_socket_read(fd, &byte, 1) <= 0);
        close(fd);
    }
    int one = call(&word, 1, word.token, &ranks[1].own), two = call(&word, 2, word.token, &ranks[2].own);
    struct batch batch = take_batch(one);
    assert_int_equal(batch.count, 2);
    assert_int_equal(batch.more, 0);
    assert_int_equal(batch.ranks[0], 0);
    assert_int_equal(batch.ranks[1], 2);
    assert_int_equal(take_batch(two).count, 2);
    assert_int_equal(pthread_join(ranks[0].thread, NULL), 0);
    assert_int_equal(ranks[0].status, DDL_OK);
    assert_true(is_same(ranks[0].others[1].memory_fd, ranks[1].own.memory_fd));
    close(one);
    close(two);
    ranks[1].conduct = ranks[2].conduct = IS_SILENT;
    end_world(ranks, 3);
}

/* A rank that did not call, as it has no descriptors left, goes on to agreeing; the others have not waited
 * for it. */
static void who_says_more_does_not_call_any_more(void **state)
{
    struct rank ranks[MOST];
    struct word word;
    const uint8_t report[4 + 3] = { 0xff, 0xff };
    (void)state;
    make_world(ranks, 3, DDL_CONNECT_EAGER);
    ranks[0].conduct = IS_SILENT_LATER;
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, run, &ranks[0]), 0);
    arrive(&ranks[1]);
    arrive(&ranks[2]);
    receive_all(ranks[1].wires[0].fd, &word, sizeof word);
    send_all(ranks[2].wires[0].fd, report, sizeof report);
    int one = call(&word, 1, word.token, &ranks[1].own);
    assert_int_equal(take_batch(one).count, 1);
    assert_int_equal(pthread_join(ranks[0].thread, NULL), 0);
    assert_int_equal(ranks[0].status, DDL_OK);
    assert_int_equal(ranks[0].others[2].memory_fd, -1);
    close(one);
    ranks[1].conduct = ranks[2].conduct = IS_SILENT;
    end_world(ranks, 3);
}

/* The usher has ended, and what it said before is still to be read. */
static void the_last_word_of_the_usher_counts(void **state)
{
    static const struct {
        const char *name;
        struct word word;
        ddl_status status;
        int culprit;
    } cases[] = {
        { "lost", { .magic = { 'd', 'd', 'l', 4 }, .kind = 4, .culprit = 2 }, DDL_EPEERLOST, 2 },
        { "late", { .magic = { 'd', 'd', 'l', 4 }, .kind = 5, .culprit = 2 }, DDL_ETIMEDOUT, 2 },
        { "foreign", { .magic = { 'd', 'd', 'l', 4 }, .kind = 6, .culprit = 2 }, DDL_EPROTO, 2 },
        { "a rank that there is not",
          { .magic = { 'd', 'd', 'l', 4 }, .kind = 4, .culprit = 3 },
          DDL_EPEERLOST,
          0 },
        { "something else", { .magic = { 'd', 'd', 'l', 3 }, .kind = 4, .culprit = 2 }, DDL_EPEERLOST, 0 },
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rank ranks[MOST];
        make_world(ranks, 3, DDL_CONNECT_EAGER);
        send_all(ranks[0].wires[1].fd, &cases[c].word, sizeof cases[c].word);
        ddl_wire_close(&ranks[0].wires[1]);
        meet(&ranks[1]);
        if (ranks[1].status != cases[c].status || ranks[1].error.culprit != cases[c].culprit)
            fail_msg("%s: %s, blames %d: %s", cases[c].name, ddl_status_name(ranks[1].status),
                     ranks[1].error.culprit, ranks[1].error.text);
        ranks[0].conduct = ranks[2].conduct = IS_SILENT;
        end_world(ranks, 3);
    }
}

/* It was about to say whom all wait for, and others had the CPU. So may this test: one try in time is enough.
 */
static void the_word_of_an_usher_that_is_a_little_late_counts(void **state)
{
    static const struct word word = { .magic = { 'd', 'd', 'l', 4 }, .kind = 5, .culprit = 2 };
    int blamed = -1;
    (void)state;
    for (int tries = 0; tries < 5 && blamed != 2; tries++) {
        struct rank ranks[MOST];
        struct arrival arrival;
        make_world(ranks, 3, DDL_CONNECT_EAGER);
        ranks[1].timeout_ms = 0;
        assert_int_equal(pthread_create(&ranks[1].thread, NULL, run, &ranks[1]), 0);
        receive_all(ranks[0].wires[1].fd, &arrival, sizeof arrival);
        (void)poll(NULL, 0, 20); /* its time is over, and it has looked for a word */
        (void)!ddl_socket_write(ranks[0].wires[1].fd, &word, sizeof word);
        assert_int_equal(pthread_join(ranks[1].thread, NULL), 0);
        assert_int_equal(ranks[1].status, DDL_ETIMEDOUT);
        blamed = ranks[1].error.culprit;
        ranks[0].conduct = ranks[2].conduct = IS_SILENT;
        end_world(ranks, 3);
    }
    assert_int_equal(blamed, 2);
}

enum { MANY = 128 };

struct usher {
    ddl_roster *roster;
    ddl_wire *wires;
    ddl_neighbour own, *others;
    ddl_status status;
    pthread_t thread;
};

static void *usher_in(void *arg)
{
    struct usher *usher = arg;
    bool without[MANY] = { false };
    ddl_apart apart = { .nranks = MANY, .ranks = without };
    usher->status = ddl_neighbours_meet(usher->roster, usher->wires, usher->own,
                                        ddl_deadline_in_ms(PATIENT_MS), usher->others, &apart, NULL);
    return NULL;
}

/* More descriptors than one note can carry; all ranks but one have gone when their answers are sent. */
static void many_are_handed_over_in_parts(void **state)
{
    ddl_wire wires[MANY] = { ddl_no_wire }, played[MANY] = { ddl_no_wire };
    ddl_neighbour own = make_own(), others[MANY];
    struct usher usher = { roster_of(0, MANY, DDL_CONNECT_EAGER), wires, own, others, DDL_OK, 0 };
    const struct arrival arrival = { PATIENT_MS, { 'd', 'd', 'l', 4 }, 1, { 0 } };
    struct word word;
    bool told[MANY] = { false };
    int one = -1, total = 0;
    (void)state;
    for (int rank = 1; rank < MANY; rank++)
        connect_pair(&wires[rank], &played[rank]);
    assert_int_equal(pthread_create(&usher.thread, NULL, usher_in, &usher), 0);
    for (int rank = 1; rank < MANY; rank++)
        send_all(played[rank].fd, &arrival, sizeof arrival);
    receive_all(played[1].fd, &word, sizeof word);
    for (int rank = 1; rank < MANY; rank++) {
        int fd = call(&word, (uint32_t)rank, word.token, &own);
        if (rank == 1)
            one = fd;
        else
            close(fd);
    }
    for (uint32_t more = 1; more != 0;) {
        struct batch batch = take_batch(one);
        for (uint32_t i = 0; i < batch.count; i++, total++) {
            assert_in_range(batch.ranks[i], 0, MANY - 1);
            assert_false(told[batch.ranks[i]]);
            told[batch.ranks[i]] = true;
        }
        more = batch.more;
    }
    assert_int_equal(total, MANY - 1);
    assert_false(told[1]);
    assert_int_equal(pthread_join(usher.thread, NULL), 0);
    assert_int_equal(usher.status, DDL_OK);
    for (int rank = 0; rank < MANY; rank++) {
        assert_int_equal(others[rank].memory_fd >= 0, rank > 0);
        ddl_socket_close(&others[rank].memory_fd);
        ddl_socket_close(&others[rank].bell_fd);
        ddl_wire_close(&wires[rank]);
        ddl_wire_close(&played[rank]);
    }
    close(one);
    close(own.memory_fd);
    close(own.bell_fd);
    ddl_roster_destroy(usher.roster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gets_what_the_others_have),
        cmocka_unit_test(all_blame_the_rank_that_fails),
        cmocka_unit_test(the_usher_gives_up_before_the_others_would),
        cmocka_unit_test(what_had_come_is_heard_however_late_the_usher_is),
        cmocka_unit_test(who_does_not_know_the_token_is_turned_away),
        cmocka_unit_test(who_says_more_does_not_call_any_more),
        cmocka_unit_test(the_last_word_of_the_usher_counts),
        cmocka_unit_test(the_word_of_an_usher_that_is_a_little_late_counts),
        cmocka_unit_test(many_are_handed_over_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
