/*
 * test_strangers.c - what a door gives to who has proved nothing: bytes read, memory, time, places, lines in
 * the log; at each level.
 *
 * The clock stands still but for what a test lets pass, so bounds of seconds are met to the millisecond.
 */
#include "rendezvous/listener.h"

#include "../support/eventually.h"
#include "../support/folder.h"
#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/proof.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef DDL_TEST_TLS
#include <openssl/ssl.h>
#endif

enum { DESCRIPTORS = 400, GENERATOR = 5, KIB = 1024 };

/* In the places of libc's, for the library and for libuv too. */

static atomic_size_t taken; /* by recv, in this process */

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    struct iovec part = { data, bytes };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t count = recvmsg(fd, &message, flags);
    if (count > 0 && (flags & MSG_PEEK) == 0)
        atomic_fetch_add(&taken, (size_t)count);
    return count;
}

static atomic_llong passed_ms = 1000000;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, now);
    long long ms = atomic_load(&passed_ms);
    *now = (struct timespec){ ms / 1000, ms % 1000 * 1000000 };
    return 0;
}

/* ---- the door ---- */

enum level { AUTH, KEYS, CERTIFICATES };

struct door {
    enum level level;
    int nranks;
    ddl_service *service;
    ddl_prover *prover;
    ddl_encryption *encryption;
    ddl_listener *listener;
    ddl_address bound;
    int descriptors; /* of this process, with nobody at the door */
    ddl_status status;
    ddl_error error;
};

static char folder[] = "/tmp/ddl-strangers-XXXXXX";

static const char *file(const char *name, char path[64])
{
    snprintf(path, 64, "%s/%s", folder, name);
    return path;
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    (void)arg, (void)from;
    ddl_hello_judge(hello, DDL_HELLO_WELCOME);
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    (void)arg, (void)wire, (void)hello, (void)from;
    abort(); /* nobody proves anything here */
}

static void open_on_loop(void *arg)
{
    static const ddl_listener_events events = { judge, NULL, entered };
    struct door *door = arg;
    const ddl_listener_options options = {
        .service = door->service,
        .self = { .channel = DDL_HELLO_FOR_STORE,
                  .nranks = door->nranks,
                  .generator = GENERATOR,
                  .prover = door->prover },
        .encryption = door->encryption,
        .events = &events,
    };
    ddl_address address;
    assert_true(ddl_address_parse("127.0.0.1", 0, &address));
    door->status = ddl_listener_open(&options, &address, &door->bound, &door->listener, &door->error);
}

static void close_on_loop(void *arg)
{
    ddl_listener_close(((struct door *)arg)->listener);
}

static void call(ddl_service *service, void (*function)(void *arg), void *arg)
{
    if (ddl_service_call(service, "a test", function, arg, ddl_deadline_in_ms(60000), NULL) != DDL_OK)
        abort(); /* on any thread */
}

static int own; /* descriptors of strangers, at their own ends */

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void door_open_to(struct door *door, enum level level, int nranks, int strangers)
{
    static const uint8_t secret[32] = "the secret that no stranger has";
    char certificate[64], key[64];
    ddl_encryption_options options = { 0 };
    *door = (struct door){ .level = level, .nranks = nranks };
    ddl_security security = level == AUTH ? DDL_SECURITY_AUTH : DDL_SECURITY_TLS;
    assert_int_equal(
        ddl_proof_create((ddl_view){ secret, sizeof secret }, "a test", security, &door->prover, NULL),
        DDL_OK);
    if (level == CERTIFICATES)
        options = (ddl_encryption_options){ .ca_file = file("good.pem", certificate),
                                            .cert_file = certificate,
                                            .key_file = file("good.key", key) };
    if (level != AUTH)
        assert_int_equal(ddl_encryption_create(&options, door->prover, &door->encryption, NULL), DDL_OK);
    assert_int_equal(ddl_service_create(&door->service, NULL), DDL_OK);
    ddl_service_set_strangers(door->service, strangers);
    call(door->service, open_on_loop, door);
    assert_int_equal(door->status, DDL_OK);
    door->descriptors = open_descriptors() - own;
}

static void door_open(struct door *door, enum level level, int nranks)
{
    door_open_to(door, level, nranks, 0);
}

static void door_close(struct door *door)
{
    call(door->service, close_on_loop, door);
    ddl_service_destroy(door->service);
    ddl_encryption_destroy(door->encryption);
    ddl_proof_destroy(door->prover);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Until the door has seen what time it is, and dealt with all that was there. */
static void settle(const struct door *door)
{
    for (int turn = 0; turn < 4; turn++)
        call(door->service, nothing, NULL);
}

static void pass(const struct door *door, int ms)
{
    atomic_fetch_add(&passed_ms, ms);
    settle(door);
}

/* ---- strangers ---- */

/* How many the door has let come, and not sent away. */
static int at_door(const struct door *door)
{
    settle(door);
    return open_descriptors() - door->descriptors - own;
}

static int approach(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_return_code(fd, errno);
    own++;
    return fd;
}

static void knock(const struct door *door, int fd)
{
    assert_return_code(connect(fd, (const struct sockaddr *)&door->bound.socket, door->bound.bytes), errno);
}

static int come_from(const struct door *door, const char *source)
{
    struct sockaddr_in from = { .sin_family = AF_INET };
    int fd = approach();
    assert_int_equal(inet_pton(AF_INET, source, &from.sin_addr), 1);
    assert_return_code(bind(fd, (const struct sockaddr *)&from, sizeof from), errno);
    knock(door, fd);
    return fd;
}

static int come(const struct door *door)
{
    return come_from(door, "127.0.0.1");
}

static void say(int fd, const void *data, size_t bytes)
{
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
}

/* All leave, and the door has seen it. */
static void leave(const struct door *door, const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
    own -= count;
    EVENTUALLY(at_door(door) == 0);
}

/* The first message of a client, in clear; another version's is refused, and its end awaited. */
static void clear_hello(uint8_t said[DDL_HELLO_CLIENT_BYTES], bool is_newer)
{
    const ddl_hello_party self = {
        .channel = DDL_HELLO_FOR_STORE, .rank = 1, .nranks = 2, .generator = GENERATOR
    };
    ddl_hello hello;
    ddl_hello_start_client(&hello, &self);
    memcpy(said, ddl_hello_output(&hello).data, DDL_HELLO_CLIENT_BYTES);
    said[8] = (uint8_t)(is_newer ? DDL_HELLO_VERSION + 1 : DDL_HELLO_VERSION);
}

/* The beginning of a client's first message in TLS, in records of 1 KiB, and zeros. */
enum { RECORD_HEAD = 5, RECORD_BODY = 1 << 10 };

static void announce(uint8_t *said, size_t bytes, size_t message_bytes)
{
    memset(said, 0, bytes);
    for (size_t at = 0; at + RECORD_HEAD + 4 <= bytes; at += RECORD_HEAD + RECORD_BODY)
        memcpy(said + at, (const uint8_t[]){ 0x16, 3, 1, RECORD_BODY >> 8, 0 }, RECORD_HEAD);
    memcpy(said + RECORD_HEAD,
           (const uint8_t[]){ 1, (uint8_t)(message_bytes >> 16), (uint8_t)(message_bytes >> 8),
                              (uint8_t)message_bytes },
           4);
}

/* Every level that this build has. */
static const enum level levels[] = { AUTH,
#ifdef DDL_TEST_TLS
                                     KEYS,
#endif
#ifdef DDL_TEST_CERTIFICATES
                                     CERTIFICATES
#endif
};
enum { LEVELS = sizeof levels / sizeof levels[0] };

#ifdef DDL_TEST_CERTIFICATES
static SSL_CTX *with_certificate(const char *name)
{
    char certificate[64], key[64];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    assert_int_equal(SSL_CTX_use_certificate_chain_file(context, file(name, certificate)), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(context, file("good.key", key), SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_CTX_set_alpn_protos(context, ddl_tls_protocol, DDL_TLS_PROTOCOL_BYTES), 0);
    /* Of these the door does not take the first, so it has to ask for a second first message. */
    assert_int_equal(SSL_CTX_set1_groups_list(context, "P-384:X25519"), 1);
    return context;
}

/* One that finishes the handshake of TLS, and then changes its keys so often. */
static int come_in_tls(const struct door *door, SSL_CTX *context, int key_changes)
{
    int fd = come(door);
    SSL *session = SSL_new(context);
    SSL_set_fd(session, fd);
    assert_int_equal(SSL_connect(session), 1);
    for (int i = 0; i < key_changes; i++)
        if (SSL_key_update(session, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(session) != 1)
            break;
    SSL_free(session);
    return fd;
}
#endif

/* ---- bytes ---- */

/* Of one that says this, and goes on, in pieces, after the door has closed on it too. */
static size_t taken_of(const struct door *door, const uint8_t *said, size_t bytes, size_t piece)
{
    int fd = come(door);
    atomic_store(&taken, 0);
    for (size_t at = 0; at < bytes; at += piece) {
        if (send(fd, said + at, piece < bytes - at ? piece : bytes - at, MSG_NOSIGNAL) < 0)
            break;
        call(door->service, nothing, NULL);
    }
    EVENTUALLY(at_door(door) == 0);
    leave(door, &fd, 1);
    return atomic_load(&taken);
}

static void of_what_it_says_little_is_read(void **state)
{
    static uint8_t said[64 * KIB];
    static const size_t pieces[] = { 500, sizeof said };
    static const size_t most[] = { [AUTH] = 512, [KEYS] = 4 * KIB, [CERTIFICATES] = 32 * KIB };
    struct door door;
    char turned_away[DDL_SERVICE_TURNED_AWAY];
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    for (int i = 0; i < LEVELS; i++) {
        door_open(&door, levels[i], 2);
        const bool encrypts = levels[i] != AUTH;
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            memset(said, 0, sizeof said);
            clear_hello(said, true);
            assert_int_equal(taken_of(&door, said, 4 * KIB, pieces[p]), 512);
            ddl_service_turned_away(door.service, turned_away);
            assert_non_null(strstr(turned_away, "), but what calls has version "));
            clear_hello(said, false); /* which has no proof to follow it, or comes at the wrong level */
            assert_in_range(taken_of(&door, said, 4 * KIB, pieces[p]), 1, 512);
            memset(said, 'x', sizeof said);
            assert_in_range(taken_of(&door, said, 4 * KIB, pieces[p]), 1, 512);
            /* A first message in TLS without an end, of what length it is said to have; then what is read to
             * tell that it was refused. */
            announce(said, sizeof said, most[levels[i]]);
            if (encrypts)
                assert_int_equal(taken_of(&door, said, sizeof said, pieces[p]), most[levels[i]] + KIB);
            announce(said, sizeof said, 128 * KIB);
            assert_in_range(taken_of(&door, said, sizeof said, pieces[p]), 1,
                            most[levels[i]] + (encrypts ? KIB : 0));
        }
#ifdef DDL_TEST_CERTIFICATES
        if (levels[i] == CERTIFICATES) {
            atomic_store(&taken, 0);
            SSL_CTX *context = with_certificate("good.pem");
            int fd = come_in_tls(&door, context, 2000);
            SSL_CTX_free(context);
            EVENTUALLY(at_door(&door) == 0);
            assert_int_equal(atomic_load(&taken), most[CERTIFICATES]);
            leave(&door, &fd, 1);
        }
#endif
        door_close(&door);
    }
}

/* ---- memory ---- */

enum { CROWD = 16, CERTIFIED = 6 };

static size_t held(void)
{
#ifdef DDL_TEST_MALLINFO2
    const struct mallinfo2 info = mallinfo2(); /* zeros under sanitizers, which bring their own */
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* For each of a crowd of these, once all have been heard. */
static size_t held_for(struct door *door, const uint8_t *said, size_t bytes)
{
    int fds[CROWD];
    size_t before = 0, after = 0;
    for (int round = 0; round < 2; round++) { /* the first brings what is needed once */
        settle(door);
        before = held();
        atomic_store(&taken, 0);
        for (int i = 0; i < CROWD; i++) {
            fds[i] = come(door);
            say(fds[i], said, bytes);
        }
        EVENTUALLY(atomic_load(&taken) == CROWD * bytes);
        settle(door);
        after = held();
        leave(door, fds, CROWD);
    }
    return after > before ? (after - before) / CROWD : 0;
}

static void for_it_little_memory_is_held(void **state)
{
    static uint8_t said[32 * KIB];
    struct door door;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    for (int i = 0; i < LEVELS; i++) {
        const size_t limit = levels[i] == KEYS ? 4 * KIB : sizeof said;
        const size_t most = levels[i] == KEYS ? 112 * KIB : 144 * KIB;
        door_open(&door, levels[i], 2);
        clear_hello(said, false);
        assert_in_range(held_for(&door, said, DDL_HELLO_CLIENT_BYTES - 1), 0, 4 * KIB);
        announce(said, sizeof said, limit);
        for (size_t bytes = 1; bytes < limit && levels[i] != AUTH; bytes += limit - 100)
            assert_in_range(held_for(&door, said, bytes), 0, most);
        /* As long as a message in TLS may be, for which there would be room as soon as that is known. */
        for (size_t length = 4 * KIB; length <= 128 * KIB && levels[i] != AUTH; length *= 2) {
            announce(said, sizeof said, length);
            assert_in_range(held_for(&door, said, RECORD_HEAD + RECORD_BODY), 0, most);
        }
        door_close(&door);
    }
}

#ifdef DDL_TEST_CERTIFICATES
/* With as many certificates behind it as are taken, which nobody needs. */
static void for_a_certificate_more_memory_is_held(void **state)
{
    static const struct {
        const char *name;
        size_t most;
    } cases[] = { { "foreign.pem", 144 * KIB }, { "many.pem", 1024 * KIB } };
    int fds[CERTIFIED];
    struct door door;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    door_open(&door, CERTIFICATES, 2);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t before = 0, after = 0;
        SSL_CTX *context = with_certificate(cases[c].name);
        for (int round = 0; round < 2; round++) {
            settle(&door);
            before = held();
            atomic_store(&taken, 0);
            for (int i = 0; i < CERTIFIED; i++)
                fds[i] = come_in_tls(&door, context, 0);
            /* All of it, and not compressed, whatever OpenSSL can do. */
            EVENTUALLY(atomic_load(&taken) > (size_t)CERTIFIED * 24 * KIB);
            assert_int_equal(at_door(&door), CERTIFIED);
            after = held();
            leave(&door, fds, CERTIFIED);
        }
        SSL_CTX_free(context);
        assert_in_range(after > before ? (after - before) / CERTIFIED : 0, 0, cases[c].most);
    }
    door_close(&door);
}
#endif

/* ---- time ---- */

static void its_time_is_short(void **state)
{
    uint8_t hello[DDL_HELLO_CLIENT_BYTES], tls[RECORD_HEAD + RECORD_BODY];
    struct door door;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    clear_hello(hello, false);
    announce(tls, sizeof tls, RECORD_BODY - 4);
    for (int i = 0; i < LEVELS; i++) {
        int fds[4] = { 0 }, count = 0;
        door_open(&door, levels[i], 2);
        for (; count < 3; count++)
            fds[count] = come(&door); /* one that says nothing, and two that say a byte a second */
#ifdef DDL_TEST_CERTIFICATES
        if (levels[i] == CERTIFICATES) {
            SSL_CTX *context = with_certificate("good.pem");
            fds[count++] = come_in_tls(&door, context, 0);
            SSL_CTX_free(context);
        }
#endif
        EVENTUALLY(at_door(&door) == count);
        for (int second = 0; second < 5; second++) {
            say(fds[1], hello + second, 1);
            say(fds[2], tls + second, 1);
            pass(&door, second < 4 ? 1000 : 900);
            assert_int_equal(at_door(&door), levels[i] == AUTH ? 3 : count);
        }
        pass(&door, 200);
        EVENTUALLY(at_door(&door) == 0);
        leave(&door, fds, count);
        /* Who is refused, and does not leave. */
        clear_hello(hello, true);
        fds[0] = come(&door);
        say(fds[0], hello, sizeof hello);
        assert_int_equal(read(fds[0], tls, sizeof tls), DDL_HELLO_SERVER_BYTES);
        settle(&door);
        pass(&door, 900);
        assert_int_equal(at_door(&door), 1);
        pass(&door, 200);
        EVENTUALLY(at_door(&door) == 0);
        leave(&door, fds, 1);
        /* Late in its time it has no more than the rest of that. */
        fds[0] = come(&door);
        EVENTUALLY(at_door(&door) == 1);
        for (int second = 0; second < 5; second++)
            pass(&door, second < 4 ? 1000 : 800);
        say(fds[0], hello, sizeof hello);
        assert_int_equal(read(fds[0], tls, sizeof tls), DDL_HELLO_SERVER_BYTES);
        settle(&door);
        assert_int_equal(at_door(&door), 1);
        pass(&door, 300);
        EVENTUALLY(at_door(&door) == 0);
        leave(&door, fds, 1);
        clear_hello(hello, false);
        door_close(&door);
    }
}

/* ---- places ---- */

static void its_places_are_few(void **state)
{
    static const struct {
        int nranks, allowed, places, from_one;
    } cases[] = {
        { 2, 0, 64, 20 }, { 40, 0, 80, 60 }, { 40, 100, 80, 60 }, { 2, 12, 12, 9 }, { 40, 4, 4, 3 }
    };
    static int fds[256];
    struct door door;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    for (int i = 0; i < LEVELS; i++) {
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            const int from_one = cases[c].from_one;
            int count = 0, here = 0;
            door_open_to(&door, levels[i], cases[c].nranks, cases[c].allowed);
            for (int source = 2; here < cases[c].places; source++) {
                char address[32];
                snprintf(address, sizeof address, "127.0.0.%d", source);
                for (int n = 0; n < from_one + 5; n++) {
                    fds[count] = come_from(&door, address);
                    say(fds[count++], "\x16", 1); /* a session, if there are any */
                }
                here = here + from_one < cases[c].places ? here + from_one : cases[c].places;
                EVENTUALLY(at_door(&door) == here);
            }
            leave(&door, fds, count);
            door_close(&door);
        }
    }
}

/* On the loop, so that the door sees it when it has said all that it says. */
struct caller {
    const struct door *door;
    const uint8_t *said;
    size_t bytes;
    int fd;
};

static void knock_speaking(void *arg)
{
    const struct caller *caller = arg;
    knock(caller->door, caller->fd);
    if (caller->bytes > 0)
        say(caller->fd, caller->said, caller->bytes);
}

static void come_speaking(void *arg)
{
    struct caller *caller = arg;
    caller->fd = approach();
    knock_speaking(caller);
}

static int come_and_say(const struct door *door, const uint8_t *said, size_t bytes)
{
    struct caller caller = { door, said, bytes, -1 };
    call(door->service, come_speaking, &caller);
    settle(door);
    return caller.fd;
}

/* Nothing more has come, and not the end. */
static bool is_there(int fd)
{
    uint8_t data[DDL_HELLO_SERVER_BYTES];
    ssize_t got;
    while ((got = recv(fd, data, sizeof data, MSG_DONTWAIT)) > 0)
        ;
    return got < 0 && errno == EAGAIN;
}

static int count_there(const int *fds, int count)
{
    int there = 0;
    for (int i = 0; i < count; i++)
        there += is_there(fds[i]);
    return there;
}

enum { WHOLE = DDL_HELLO_CLIENT_BYTES };

/* What they say is so that the door answers, and waits for the proof. */
static void open_to_speakers(struct door *door, uint8_t hello[WHOLE])
{
    enum { LEVEL_AT = 11 };
    door_open(door, AUTH, 2);
    clear_hello(hello, false);
    hello[LEVEL_AT] = DDL_SECURITY_AUTH;
}

static void who_speaks_finds_a_place(void **state)
{
    enum { PLACES = 20, MORE = 200 };
    static int fds[2 * PLACES + 3 + MORE + 3];
    uint8_t hello[WHOLE];
    struct door door;
    int count = 0;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    open_to_speakers(&door, hello);
    for (; count < PLACES; count++)
        fds[count] = come_and_say(&door, hello, count % 2 == 0 ? 0 : WHOLE - 1); /* half a hello is none */
    assert_int_equal(at_door(&door), PLACES);
    /* Among those who have said nothing, one more of them comes in when they have been so for 20 ms. */
    fds[count++] = come_and_say(&door, hello, 0);
    EVENTUALLY(!is_there(fds[count - 1]));
    assert_int_equal(count_there(fds, PLACES), PLACES);
    pass(&door, 20);
    fds[count++] = come_and_say(&door, hello, 0);
    EVENTUALLY(!is_there(fds[0]));
    assert_true(is_there(fds[count - 1]));
    /* Who speaks, at once. */
    for (int i = 1; i <= PLACES; i++) {
        fds[count++] = come_and_say(&door, hello, WHOLE);
        EVENTUALLY(!is_there(fds[i < PLACES ? i : PLACES + 1]));
        assert_true(is_there(fds[count - 1]));
    }
    assert_int_equal(at_door(&door), PLACES);
    /* And so when all have spoken, in the place of one of the younger half that nobody can foretell. */
    const int first = count - PLACES;
    for (int i = 0; i < MORE; i++) {
        fds[count++] = come_and_say(&door, hello, WHOLE);
        assert_true(is_there(fds[count - 1]));
    }
    assert_int_equal(at_door(&door), PLACES);
    assert_int_equal(count_there(fds, count), PLACES);
    assert_int_equal(count_there(fds + first, PLACES / 2), PLACES / 2);
    assert_in_range(count_there(fds + count - PLACES / 2, PLACES / 2), 1, PLACES / 2 - 1);
    /* The older half has its time. Who is silent takes nobody's place who has spoken, not even then. */
    pass(&door, 300);
    fds[count++] = come_and_say(&door, hello, 0);
    EVENTUALLY(!is_there(fds[count - 1]));
    assert_int_equal(count_there(fds + first, PLACES / 2), PLACES / 2);
    fds[count++] = come_and_say(&door, hello, WHOLE);
    EVENTUALLY(!is_there(fds[first]));
    assert_true(is_there(fds[count - 1]));
    assert_int_equal(at_door(&door), PLACES);
    leave(&door, fds, count);
    door_close(&door);
}

#ifdef DDL_TEST_CERTIFICATES
/* In a crowd of those who only begin a session, as anybody can who has heard another do so. */
static void who_has_shaken_hands_keeps_the_place(void **state)
{
    enum { PLACES = 20, MORE = 100 };
    static int fds[PLACES + MORE];
    struct door door;
    int count = 0;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    door_open(&door, CERTIFICATES, 2);
    for (; count < PLACES - 1; count++)
        fds[count] = come_and_say(&door, (const uint8_t *)"\x16", 1);
    SSL_CTX *context = with_certificate("good.pem");
    const int shaken = fds[count++] = come_in_tls(&door, context, 0);
    SSL_CTX_free(context);
    for (; count < PLACES + MORE; count++)
        fds[count] = come_and_say(&door, (const uint8_t *)"\x16", 1);
    assert_int_equal(at_door(&door), PLACES);
    assert_true(is_there(shaken));
    pass(&door, 700); /* now the oldest goes first, of the others */
    int last = come_and_say(&door, (const uint8_t *)"\x16", 1);
    assert_int_equal(at_door(&door), PLACES);
    assert_true(is_there(shaken));
    close(last);
    own--;
    leave(&door, fds, count);
    door_close(&door);
}
#endif

/* Take all descriptors but as many as are open already, up to this one; how many that took. */
static int take_descriptors(int taken_by[DESCRIPTORS], rlim_t limit)
{
    int count = 0;
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = (struct rlimit){ limit, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    while ((taken_by[count] = dup(STDERR_FILENO)) >= 0)
        count++;
    own += count;
    return count;
}

static void give_descriptors(const int taken_by[DESCRIPTORS], int count)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < count; i++)
        close(taken_by[i]);
    own -= count;
}

/* Where these have run out all places are taken. */
static void without_descriptors_who_speaks_finds_a_place(void **state)
{
    enum { SILENT = 4, THERE = 2 * SILENT, NEXT = SILENT + 3 };
    int fds[THERE + NEXT], taken_by[DESCRIPTORS];
    uint8_t hello[WHOLE];
    struct door door;
    int count = 0;
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    open_to_speakers(&door, hello);
    for (; count < THERE; count++)
        fds[count] = come_and_say(&door, hello, count < SILENT ? 0 : WHOLE);
    for (; count < THERE + NEXT; count++)
        fds[count] = approach();
    assert_int_equal(at_door(&door), THERE);
    pass(&door, 20);
    const int ntaken = take_descriptors(taken_by, DESCRIPTORS - 100);
    for (int i = 0; i < SILENT; i++) {
        knock(&door, fds[THERE + i]);
        EVENTUALLY(!is_there(fds[i]));
        assert_int_equal(at_door(&door), THERE);
    }
    /* All who are silent have just come, so one more of them does not come in, and who speaks does. */
    int *next = fds + THERE + SILENT;
    knock(&door, next[0]);
    EVENTUALLY(!is_there(next[0]));
    assert_int_equal(count_there(fds + SILENT, THERE), THERE);
    for (int i = 1; i <= 2; i++) {
        struct caller caller = { &door, hello, WHOLE, next[i] };
        call(door.service, knock_speaking, &caller);
        EVENTUALLY(!is_there(fds[THERE + i - 1]));
        assert_true(is_there(next[i]));
    }
    assert_int_equal(count_there(fds + SILENT, SILENT), SILENT);
    assert_int_equal(at_door(&door), THERE);
    give_descriptors(taken_by, ntaken);
    leave(&door, fds, count);
    door_close(&door);
}

/* ---- the log ---- */

/* The lines that came in the meantime. */
static int lines(FILE *log, char last[512])
{
    char line[512];
    int count = 0;
    clearerr(log);
    while (fgets(line, sizeof line, log) != NULL) {
        memcpy(last, line, sizeof line);
        count++;
    }
    return count;
}

static void the_log_has_a_line_in_ten_seconds(void **state)
{
    static const uint8_t nonsense[DDL_HELLO_CLIENT_BYTES] = "nonsense";
    char path[64], last[512] = "";
    struct door door;
    (void)state;
    ddl_log_set_level(DDL_LOG_WARNING);
    FILE *log = fopen(file("log", path), "w+");
    assert_non_null(log);
    int usual = dup(STDERR_FILENO), seen[5];
    assert_return_code(dup2(fileno(log), STDERR_FILENO), errno);
    FILE *reader = fopen(path, "r");
    door_open(&door, AUTH, 2);
    for (int i = 0; i < 5; i++)
        (void)taken_of(&door, nonsense, sizeof nonsense, sizeof nonsense);
    seen[0] = lines(reader, last);
    pass(&door, 9900);
    usleep(150000); /* it looks ten times a second */
    seen[1] = lines(reader, last);
    pass(&door, 200);
    EVENTUALLY((seen[2] = lines(reader, last)) != 0);
    bool counts = strstr(last, "turned away 4 more, the last of them 127.0.0.1:") != NULL;
    for (int i = 0; i < 3; i++)
        (void)taken_of(&door, nonsense, sizeof nonsense, sizeof nonsense);
    seen[3] = lines(reader, last);
    door_close(&door);
    seen[4] = lines(reader, last);
    dup2(usual, STDERR_FILENO);
    close(usual);
    fclose(reader);
    fclose(log);
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 0);
    assert_int_equal(seen[2], 1);
    assert_true(counts);
    assert_int_equal(seen[3], 0);
    assert_int_equal(seen[4], 1);
    assert_non_null(strstr(last, "turned away 3 more"));
}

static int set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (mkdtemp(folder) == NULL)
        return -1;
#ifdef DDL_TEST_CERTIFICATES
    /* good.pem is its own authority; two have as many others behind them as are taken. Of what lengths those
     * are must not be left to this version of OpenSSL, which may write a subjectKeyIdentifier by itself. */
    char command[800];
    snprintf(
        command, sizeof command,
        "cd '%s' && exec 2>/dev/null && printf '[req]\ndistinguished_name=d\nx509_extensions=e\n[d]\n[e]\n"
        "subjectKeyIdentifier=none\n' >small.conf && "
        "small='openssl req -config small.conf -x509 -nodes -subj' && "
        "$small /CN=good -newkey ec -pkeyopt ec_paramgen_curve:P-256 -keyout good.key -out good.pem && "
        "$small / -key good.key -out foreign.pem && "
        "$small / -newkey ed25519 -keyout small.key -out small.pem && cp good.pem many.pem && "
        "for i in $(seq 135); do cat small.pem >>many.pem; cat small.pem >>foreign.pem; done",
        folder);
    return system(command);
#else
    return 0;
#endif
}

static int clean_up(void **state)
{
    (void)state;
    return remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_what_it_says_little_is_read),
        cmocka_unit_test(for_it_little_memory_is_held),
#ifdef DDL_TEST_CERTIFICATES
        cmocka_unit_test(for_a_certificate_more_memory_is_held),
#endif
        cmocka_unit_test(its_time_is_short),
        cmocka_unit_test(its_places_are_few),
        cmocka_unit_test(who_speaks_finds_a_place),
        cmocka_unit_test(without_descriptors_who_speaks_finds_a_place),
#ifdef DDL_TEST_CERTIFICATES
        cmocka_unit_test(who_has_shaken_hands_keeps_the_place),
#endif
        cmocka_unit_test(the_log_has_a_line_in_ten_seconds),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
