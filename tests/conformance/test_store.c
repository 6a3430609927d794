/* test_store.c - what every store promises, asked of each of them. */
#include "rendezvous/store.h"

#include "../rendezvous/redis_server.h"

#include "base/failpoint.h"
#include "io/socket.h"
#include "protocol/store_wire.h"
#include "rendezvous/proof.h"
#include "rendezvous/store_file_record.h"
#include "rendezvous/store_meeting_record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 24, SOON_MS = 20000 };

static const struct kind {
    const char *name;
} kinds[] = { { "tcp" }, { "file" }, { "redis" }, { "tcp at level tls" }, { "rediss" }, { "mem" } };

enum { KINDS = sizeof kinds / sizeof kinds[0] };

#ifdef DDL_TEST_TLS
static const bool has_tls = true;
#else
static const bool has_tls = false;
#endif

static bool is(const struct kind *kind, const char *name)
{
    return strcmp(kind->name, name) == 0;
}

/* A Redis server may not be installed; a build may be without TLS. */
static bool is_possible(const struct kind *kind)
{
    return (!is(kind, "redis") || redis_server_port() != 0) &&
           (!is(kind, "rediss") || redis_server_tls_port() != 0) &&
           (!is(kind, "tcp at level tls") || has_tls);
}

#define FOR_EACH_KIND(kind)                                             \
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++) \
        if (is_possible(kind))

/* A meeting place with some of its ranks in it. Stores block, so those that wait have a thread. */
struct place {
    ddl_service *service;
    char url[128], folder[64];
    bool has_keys;  /* in a Redis server, which has to be empty at the end */
    bool is_at_tls; /* the level of its job */
    int nranks;
    ddl_store *stores[MANY];
};

static ddl_deadline soon(void)
{
    return ddl_deadline_in_ms(SOON_MS);
}

static ddl_prover *ours, *theirs; /* of the job that is tested, and of another */
static struct tls_job {
    ddl_prover *prover;
    ddl_encryption *encryption;
} ours_at_tls, theirs_at_tls;

static ddl_hello_party party(int rank, int nranks)
{
    return (ddl_hello_party){ .rank = rank,
                              .nranks = nranks,
                              .nonce = { 1, (uint8_t)rank },
                              .pid = 1000 + rank,
                              .library = ddl_hello_library(1, 2, 3),
                              .host = "host",
                              .level = DDL_SECURITY_AUTH,
                              .prover = ours };
}

static ddl_status enter_as(struct place *place, const ddl_hello_party *self, ddl_deadline deadline,
                           ddl_store **store, ddl_error *err)
{
    ddl_store_options options = {
        .url = place->url, .place = "127.0.0.1:29500", .self = self, .service = place->service
    };
    if (self->level == DDL_SECURITY_TLS)
        options.encryption =
            self->prover == ours_at_tls.prover ? ours_at_tls.encryption : theirs_at_tls.encryption;
    return ddl_store_open(&options, deadline, store, err);
}

static ddl_status enter(struct place *place, int rank, int nranks, ddl_deadline deadline, ddl_store **store,
                        ddl_error *err)
{
    ddl_hello_party self = party(rank, nranks);
    if (place->is_at_tls) {
        self.level = DDL_SECURITY_TLS;
        self.prover = ours_at_tls.prover;
    }
    return enter_as(place, &self, deadline, store, err);
}

static void place_name(struct place *place, const struct kind *kind)
{
    place->folder[0] = '\0';
    place->has_keys = is(kind, "redis") || is(kind, "rediss");
    place->is_at_tls = is(kind, "tcp at level tls");
    if (is(kind, "mem")) {
        snprintf(place->url, sizeof place->url, "mem://conformance");
    } else if (is(kind, "redis")) {
        snprintf(place->url, sizeof place->url, "redis://127.0.0.1:%d", redis_server_port());
    } else if (is(kind, "rediss")) {
        snprintf(place->url, sizeof place->url, "rediss://127.0.0.1:%d?cacert=%s", redis_server_tls_port(),
                 redis_server_authority());
    } else if (is(kind, "file")) {
        snprintf(place->folder, sizeof place->folder, "/tmp/ddl-store-XXXXXX");
        assert_non_null(mkdtemp(place->folder));
        snprintf(place->url, sizeof place->url, "file://%s", place->folder);
    } else if (is(kind, "tcp") || is(kind, "tcp at level tls")) {
        ddl_address address, bound;
        int fd = -1;
        assert_true(ddl_address_parse("127.0.0.1", 0, &address));
        assert_int_equal(ddl_socket_listen(&address, 1, &fd, &bound, NULL), DDL_OK);
        ddl_socket_close(&fd);
        snprintf(place->url, sizeof place->url, "tcp://127.0.0.1:%u", ddl_address_port(&bound));
    } else {
        fail_msg("there is no place for a store of the kind %s", kind->name);
    }
}

/* Rank 0 in this thread first, the others in threads of their own, as entering may need rank 0's help. */
struct entering {
    struct place *place;
    int rank;
    ddl_status status;
    atomic_bool done; /* stored by the thread, read by place_open */
};

static void *enter_rank(void *arg)
{
    struct entering *entering = arg;
    ddl_error error;
    struct place *place = entering->place;
    entering->status =
        enter(place, entering->rank, place->nranks, soon(), &place->stores[entering->rank], &error);
    if (entering->status != DDL_OK)
        fprintf(stderr, "%s: rank %d: %s\n", place->url, entering->rank, error.text);
    atomic_store(&entering->done, true);
    return NULL;
}

static void place_open(struct place *place, const struct kind *kind, int nranks)
{
    struct entering entering[MANY];
    pthread_t threads[MANY];
    bool all = false;
    memset(place, 0, sizeof *place);
    place->nranks = nranks;
    assert_int_equal(ddl_service_create(&place->service, NULL), DDL_OK);
    place_name(place, kind);
    assert_int_equal(enter(place, 0, nranks, soon(), &place->stores[0], NULL), DDL_OK);
    for (int rank = 1; rank < nranks; rank++) {
        entering[rank] = (struct entering){ .place = place, .rank = rank, .status = DDL_EINTERNAL };
        assert_int_equal(pthread_create(&threads[rank], NULL, enter_rank, &entering[rank]), 0);
    }
    /* Rank 0 looks at its store all the while, as it does in a start-up. */
    for (ddl_deadline deadline = soon(); !all && !ddl_deadline_passed(deadline);) {
        ddl_bytes value = { 0 };
        (void)!ddl_store_get(place->stores[0], "nothing", ddl_deadline_in_ms(5), &value, NULL);
        all = true;
        for (int rank = 1; rank < nranks; rank++)
            all = all && atomic_load(&entering[rank].done);
    }
    for (int rank = 1; rank < nranks; rank++) {
        pthread_join(threads[rank], NULL);
        assert_int_equal(entering[rank].status, DDL_OK);
    }
}

/* Nothing may be left behind. */
static void place_check_empty(const struct place *place)
{
    if (place->folder[0] != '\0')
        assert_int_equal(rmdir(place->folder), 0);
    if (place->has_keys)
        assert_int_equal(redis_server_keys(), 0);
}

static void place_close(struct place *place)
{
    for (int rank = place->nranks - 1; rank >= 0; rank--)
        ddl_store_destroy(place->stores[rank], soon());
    ddl_service_destroy(place->service);
    place_check_empty(place);
}

static ddl_view text_view(const char *text)
{
    return (ddl_view){ text, strlen(text) };
}

static void set(ddl_store *store, const char *key, ddl_view value)
{
    ddl_store_outcome outcome;
    ddl_bytes existing = { 0 };
    assert_int_equal(ddl_store_set_new(store, key, value, soon(), &outcome, &existing, NULL), DDL_OK);
    assert_int_equal(outcome, DDL_STORE_CREATED);
}

static void check_value(ddl_store *store, const char *key, ddl_view expected)
{
    ddl_bytes value = { 0 };
    ddl_error error;
    if (ddl_store_get(store, key, soon(), &value, &error) != DDL_OK)
        fail_msg("%s: %s", key, error.text);
    assert_int_equal(value.bytes, expected.bytes);
    if (expected.bytes > 0)
        assert_memory_equal(value.data, expected.data, expected.bytes);
    ddl_bytes_fini(&value);
}

/* ---- a get in a thread of its own ---- */

struct getter {
    ddl_store *store;
    const char *key;
    ddl_deadline deadline;
    ddl_status status;
    ddl_error error;
    ddl_bytes value;
    int64_t done_ns;
    pthread_t thread;
};

static void *get_in_thread(void *arg)
{
    struct getter *getter = arg;
    getter->status =
        ddl_store_get(getter->store, getter->key, getter->deadline, &getter->value, &getter->error);
    getter->done_ns = ddl_now_ns();
    return NULL;
}

static void getter_start(struct getter *getter, ddl_store *store, const char *key, ddl_deadline deadline)
{
    *getter = (struct getter){ .store = store, .key = key, .deadline = deadline };
    assert_int_equal(pthread_create(&getter->thread, NULL, get_in_thread, getter), 0);
}

static void getter_join(struct getter *getter)
{
    pthread_join(getter->thread, NULL);
    ddl_bytes_fini(&getter->value);
}

/* ---- behaviours ---- */

static void a_run_has_one_id_for_all_its_ranks(void **state)
{
    static const uint8_t none[DDL_RUN_ID_BYTES];
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        uint8_t first[DDL_RUN_ID_BYTES];
        place_open(&place, kind, 3);
        memcpy(first, ddl_store_run_id(place.stores[0]), sizeof first);
        assert_memory_not_equal(first, none, sizeof first);
        for (int rank = 1; rank < 3; rank++)
            assert_memory_equal(ddl_store_run_id(place.stores[rank]), first, sizeof first);
        place_close(&place);
        place_open(&place, kind, 1);
        assert_memory_not_equal(ddl_store_run_id(place.stores[0]), first, sizeof first);
        place_close(&place);
    }
}

static void values_come_back_as_they_were_set(void **state)
{
    static uint8_t large[DDL_STORE_VALUE_LIMIT], roster[DDL_STORE_ROSTER_LIMIT];
    (void)state;
    for (size_t i = 0; i < sizeof roster; i++)
        roster[i] = (uint8_t)(i * 7 + i / 256);
    memcpy(large, roster + 1000, sizeof large);
    FOR_EACH_KIND(kind)
    {
        struct place place;
        const ddl_view values[] = {
            { "", 0 }, { "x", 1 }, { "\0\n\xff", 3 }, { large, 4096 }, { large, sizeof large }
        };
        place_open(&place, kind, 3);
        for (int i = 0; i < 5; i++) {
            char key[32];
            snprintf(key, sizeof key, "key.%d", i);
            set(place.stores[1], key, values[i]);
            for (int rank = 0; rank < 3; rank++)
                check_value(place.stores[rank], key, values[i]);
        }
        set(place.stores[0], "roster", (ddl_view){ roster, sizeof roster });
        check_value(place.stores[2], "roster", (ddl_view){ roster, sizeof roster });
        place_close(&place);
    }
}

static void a_value_over_the_limit_is_refused(void **state)
{
    static uint8_t large[DDL_STORE_ROSTER_LIMIT + 1];
    static const struct {
        const char *key, *limit;
        size_t bytes;
    } cases[] = { { "k", "65536", DDL_STORE_VALUE_LIMIT + 1 },
                  { "roster.1", "65536", DDL_STORE_ROSTER_LIMIT },
                  { "roster", "1048576", DDL_STORE_ROSTER_LIMIT + 1 } };
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind, 1);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            ddl_store_outcome outcome;
            ddl_bytes existing = { 0 };
            ddl_error error;
            assert_int_equal(ddl_store_set_new(place.stores[0], cases[i].key,
                                               (ddl_view){ large, cases[i].bytes }, soon(), &outcome,
                                               &existing, &error),
                             DDL_EINVAL);
            assert_non_null(strstr(error.text, cases[i].limit));
            set(place.stores[0], cases[i].key, text_view("v"));
            check_value(place.stores[0], cases[i].key, text_view("v"));
        }
        place_close(&place);
    }
}

static void keys_may_hold_any_text(void **state)
{
    char longest[DDL_STORE_KEY_LIMIT + 1];
    (void)state;
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const keys[] = { "a", "..", ".", "a.b", "with space", "=", longest, "../../etc" };
    FOR_EACH_KIND(kind)
    {
        struct place place;
        place_open(&place, kind, 1);
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            set(place.stores[0], keys[i], text_view(keys[i]));
            check_value(place.stores[0], keys[i], text_view(keys[i]));
        }
        place_close(&place);
    }
}

static void a_key_is_set_once(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        ddl_store_outcome outcome;
        ddl_bytes existing = { 0 };
        place_open(&place, kind, 3);
        set(place.stores[1], "who", text_view("rank 1"));
        assert_int_equal(
            ddl_store_set_new(place.stores[2], "who", text_view("rank 2"), soon(), &outcome, &existing, NULL),
            DDL_OK);
        assert_int_equal(outcome, DDL_STORE_TAKEN);
        assert_int_equal(existing.bytes, 6);
        assert_memory_equal(existing.data, "rank 1", 6);
        ddl_bytes_fini(&existing);
        check_value(place.stores[0], "who", text_view("rank 1"));
        place_close(&place);
    }
}

static void a_key_whose_owner_left_is_abandoned(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        ddl_store_outcome outcome = DDL_STORE_CREATED;
        ddl_bytes existing = { 0 };
        place_open(&place, kind, 3);
        set(place.stores[1], "who", text_view("rank 1"));
        ddl_store_destroy(place.stores[1], soon());
        place.stores[1] = NULL;
        /* A server hears of it a moment later than it happens. */
        for (ddl_deadline deadline = soon();
             outcome != DDL_STORE_ABANDONED && !ddl_deadline_passed(deadline);) {
            assert_int_equal(ddl_store_set_new(place.stores[2], "who", text_view("rank 2"), soon(), &outcome,
                                               &existing, NULL),
                             DDL_OK);
            ddl_bytes_fini(&existing);
        }
        assert_int_equal(outcome, DDL_STORE_ABANDONED);
        place_close(&place);
    }
}

static void get_waits_until_the_key_is_set(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct getter getters[MANY];
        place_open(&place, kind, 4);
        for (int rank = 0; rank < 3; rank++)
            getter_start(&getters[rank], place.stores[rank], "later", soon());
        int64_t set_ns = ddl_now_ns();
        set(place.stores[3], "later", text_view("now"));
        for (int rank = 0; rank < 3; rank++) {
            pthread_join(getters[rank].thread, NULL);
            assert_int_equal(getters[rank].status, DDL_OK);
            assert_true(getters[rank].done_ns >= set_ns);
            assert_int_equal(getters[rank].value.bytes, 3);
            assert_memory_equal(getters[rank].value.data, "now", 3);
            ddl_bytes_fini(&getters[rank].value);
        }
        place_close(&place);
    }
}

static void get_ends_by_its_deadline(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        ddl_bytes value = { 0 };
        ddl_error error;
        place_open(&place, kind, 2);
        for (int ms = 0; ms <= 60; ms += 20) {
            int64_t start_ns = ddl_now_ns();
            assert_int_equal(ddl_store_get(place.stores[1], "never", ddl_deadline_in_ms(ms), &value, &error),
                             DDL_ETIMEDOUT);
            int64_t took_ns = ddl_now_ns() - start_ns;
            assert_true(took_ns >= ms * DDL_NS_PER_MS);
            assert_true(took_ns < (ms + 1000) * DDL_NS_PER_MS);
        }
        /* A get that was given up does not disturb what comes after. */
        set(place.stores[0], "never", text_view("after all"));
        check_value(place.stores[1], "never", text_view("after all"));
        assert_int_equal(ddl_store_get(place.stores[1], "never", ddl_now_ns() - 1, &value, &error), DDL_OK);
        ddl_bytes_fini(&value);
        place_close(&place);
    }
}

/* ---- a server that does not read for a while ---- */

struct stop {
    ddl_service *service;
    sem_t begun, over;
    pthread_t thread;
};

static void stand_still(void *arg)
{
    struct stop *stop = arg;
    sem_post(&stop->begun);
    while (sem_wait(&stop->over) != 0)
        continue;
}

static void *stop_service(void *arg)
{
    struct stop *stop = arg;
    (void)!ddl_service_call(stop->service, "standing still", stand_still, stop, soon(), NULL);
    return NULL;
}

static void a_request_cut_by_its_deadline_does_not_spoil_the_next(void **state)
{
    static uint8_t large[DDL_STORE_VALUE_LIMIT];
    enum { MORE_THAN_SOCKETS_HOLD = 600 };
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct stop stop;
        char key[32];
        if (!is(kind, "tcp") && !is(kind, "tcp at level tls"))
            continue;
        place_open(&place, kind, 2);
        stop.service = place.service;
        assert_int_equal(sem_init(&stop.begun, 0, 0), 0);
        assert_int_equal(sem_init(&stop.over, 0, 0), 0);
        assert_int_equal(pthread_create(&stop.thread, NULL, stop_service, &stop), 0);
        while (sem_wait(&stop.begun) != 0)
            continue;
        for (int i = 0; i < MORE_THAN_SOCKETS_HOLD; i++) {
            ddl_store_outcome outcome;
            ddl_bytes existing = { 0 };
            snprintf(key, sizeof key, "large.%d", i);
            assert_int_equal(ddl_store_set_new(place.stores[1], key, (ddl_view){ large, sizeof large },
                                               ddl_deadline_in_ms(1), &outcome, &existing, NULL),
                             DDL_ETIMEDOUT);
        }
        sem_post(&stop.over);
        pthread_join(stop.thread, NULL);
        set(place.stores[1], "after", text_view("all"));
        check_value(place.stores[1], "after", text_view("all"));
        check_value(place.stores[0], "large.0", (ddl_view){ large, sizeof large });
        place_close(&place);
        sem_destroy(&stop.begun);
        sem_destroy(&stop.over);
    }
}

/* What rank 0 does with what ranks say of themselves, here for keys that are set late. */
struct many_getter {
    ddl_store *store;
    ddl_store_many many;
    ddl_status status;
    ddl_error error;
    pthread_t thread;
};

static void *get_many_in_thread(void *arg)
{
    struct many_getter *getter = arg;
    getter->status = ddl_store_get_many(getter->store, &getter->many, soon(), &getter->error);
    return NULL;
}

static void keys_of_all_ranks_are_got_together(void **state)
{
    enum {
        KEYS = 150
    }; /* more than a request to Redis holds, and more than are asked for at once over tcp */
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        bool present[KEYS] = { false };
        ddl_bytes values[KEYS] = { { 0 } };
        ddl_error error;
        place_open(&place, kind, 3);
        struct many_getter getter = { .store = place.stores[0], .many = { "kind", KEYS, present, values } };
        char key[32], text[32];
        for (int i = 0; i < KEYS; i += 2) {
            snprintf(key, sizeof key, "kind.%d", i);
            snprintf(text, sizeof text, "value %d", i);
            set(place.stores[2], key, text_view(text));
        }
        set(place.stores[2], "kind.999", text_view("of nobody"));
        set(place.stores[2], "kin.1", text_view("of another kind"));
        int64_t start_ns = ddl_now_ns();
        for (int ms = 0; ms <= 20; ms += 20)
            assert_int_equal(ddl_store_get_many(getter.store, &getter.many, ddl_deadline_in_ms(ms), &error),
                             DDL_ETIMEDOUT);
        assert_true(ddl_now_ns() - start_ns >= 20 * DDL_NS_PER_MS);
        bool seen[KEYS] = { false };
        const ddl_store_many look = { "kind", KEYS, seen, NULL, false };
        assert_int_equal(ddl_store_get_many(place.stores[1], &look, ddl_now_ns(), &error), DDL_ETIMEDOUT);
        for (int i = 0; i < KEYS; i++) {
            assert_int_equal(present[i], i % 2 == 0);
            assert_int_equal(seen[i], i % 2 == 0);
        }
        assert_int_equal(pthread_create(&getter.thread, NULL, get_many_in_thread, &getter), 0);
        set(place.stores[2], "kind.998", text_view("of nobody"));
        for (int i = 1; i < KEYS; i += 2) {
            snprintf(key, sizeof key, "kind.%d", i);
            snprintf(text, sizeof text, "value %d", i);
            set(place.stores[2], key, text_view(text));
        }
        pthread_join(getter.thread, NULL);
        assert_int_equal(getter.status, DDL_OK);
        assert_int_equal(ddl_store_get_many(place.stores[1], &look, ddl_now_ns(), &error), DDL_OK);
        for (int i = 0; i < KEYS; i++) {
            snprintf(text, sizeof text, "value %d", i);
            assert_true(seen[i]);
            assert_true(present[i]);
            assert_int_equal(values[i].bytes, strlen(text));
            assert_memory_equal(values[i].data, text, strlen(text));
            ddl_bytes_fini(&values[i]);
        }
        /* What fails the run ends the waiting for what will not come. */
        bool absent[2] = { false, false };
        getter.many = (ddl_store_many){ "other", 2, absent, NULL, false };
        assert_int_equal(pthread_create(&getter.thread, NULL, get_many_in_thread, &getter), 0);
        for (int i = 0; i < 100; i++) { /* by then it waits, as a rule */
            ddl_bytes value = { 0 };
            (void)!ddl_store_get(place.stores[2], "nothing", ddl_now_ns(), &value, NULL);
        }
        ddl_error first;
        (void)ddl_error_set(&error, DDL_EPEERLOST, "the cause");
        ddl_store_fail(place.stores[2], &error, soon(), &first);
        pthread_join(getter.thread, NULL);
        assert_int_equal(getter.status, DDL_EPEERLOST);
        assert_non_null(strstr(getter.error.text, "the cause"));
        assert_true(ddl_now_ns() - start_ns < SOON_MS / 2 * DDL_NS_PER_MS); /* nobody slept on */
        place_close(&place);
    }
}

static void a_failure_reaches_everyone_and_the_first_stands(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct getter getters[2];
        ddl_error cause, other, first;
        ddl_bytes value = { 0 };
        ddl_store_outcome outcome;
        (void)ddl_error_set(&cause, DDL_ECONFIG, "rank 2 is odd");
        cause.culprit = 2;
        cause.os_errno = 7;
        (void)ddl_error_set(&other, DDL_ETIMEDOUT, "too late");
        place_open(&place, kind, 4);
        getter_start(&getters[0], place.stores[0], "never", soon());
        getter_start(&getters[1], place.stores[1], "never", soon());
        ddl_store_fail(place.stores[2], &cause, soon(), &first);
        int64_t failed_ns = ddl_now_ns();
        assert_string_equal(first.text, "rank 2 is odd");
        for (int i = 0; i < 2; i++) {
            getter_join(&getters[i]);
            assert_int_equal(getters[i].status, DDL_ECONFIG);
            assert_int_equal(getters[i].error.culprit, 2);
            assert_int_equal(getters[i].error.os_errno, 7);
            assert_string_equal(getters[i].error.text, "rank 2 is odd");
            assert_true(getters[i].done_ns < failed_ns + DDL_NS_PER_S);
        }
        ddl_store_fail(place.stores[3], &other, soon(), &first);
        assert_int_equal(first.code, DDL_ECONFIG);
        assert_string_equal(first.text, "rank 2 is odd");
        for (int rank = 0; rank < 4; rank++) {
            ddl_error error;
            assert_int_equal(ddl_store_check(place.stores[rank], &error), DDL_ECONFIG);
            assert_int_equal(ddl_store_get(place.stores[rank], "x", soon(), &value, &error), DDL_ECONFIG);
            assert_int_equal(
                ddl_store_set_new(place.stores[rank], "x", text_view("y"), soon(), &outcome, &value, &error),
                DDL_ECONFIG);
            assert_string_equal(error.text, "rank 2 is odd");
        }
        place_close(&place);
    }
}

static void a_settled_run_cannot_fail(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        ddl_error cause, first;
        place_open(&place, kind, 3);
        (void)ddl_error_set(&cause, DDL_EPEERLOST, "gone");
        set(place.stores[1], "mine", text_view("1"));
        assert_int_equal(ddl_store_will(place.stores[1], &cause, soon(), NULL), DDL_OK);
        set(place.stores[0], DDL_STORE_SETTLED, (ddl_view){ NULL, 0 });
        ddl_store_fail(place.stores[2], &cause, soon(), &first);
        assert_string_equal(first.text, "gone"); /* to whom it happened it did happen */
        ddl_store_destroy(place.stores[1], soon());
        place.stores[1] = NULL;
        assert_int_equal(ddl_store_check(place.stores[0], NULL), DDL_OK);
        check_value(place.stores[0], "mine", text_view("1"));
        check_value(place.stores[0], DDL_STORE_SETTLED, (ddl_view){ NULL, 0 });
        place_close(&place);
    }
}

static void a_will_is_executed_when_its_rank_leaves(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct getter getter;
        ddl_error will;
        place_open(&place, kind, 3);
        (void)ddl_error_set(&will, DDL_EPEERLOST, "rank 2 went away");
        will.culprit = 2;
        assert_int_equal(ddl_store_will(place.stores[2], &will, soon(), NULL), DDL_OK);
        set(place.stores[2], "mine", text_view("2"));
        getter_start(&getter, place.stores[1], "never", soon());
        ddl_store_destroy(place.stores[2], soon());
        place.stores[2] = NULL;
        int64_t left_ns = ddl_now_ns();
        getter_join(&getter);
        assert_int_equal(getter.status, DDL_EPEERLOST);
        assert_int_equal(getter.error.culprit, 2);
        assert_string_equal(getter.error.text, "rank 2 went away");
        assert_true(getter.done_ns < left_ns + DDL_NS_PER_S);
        place_close(&place);
    }
}

static void the_will_of_a_rank_that_set_nothing_does_not_count(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        ddl_error will;
        ddl_store_outcome outcome;
        ddl_bytes existing = { 0 };
        place_open(&place, kind, 3);
        (void)ddl_error_set(&will, DDL_EPEERLOST, "rank 2 went away");
        set(place.stores[1], "taken", text_view("1"));
        assert_int_equal(ddl_store_will(place.stores[2], &will, soon(), NULL), DDL_OK);
        assert_int_equal(
            ddl_store_set_new(place.stores[2], "taken", text_view("2"), soon(), &outcome, &existing, NULL),
            DDL_OK);
        assert_int_equal(outcome, DDL_STORE_TAKEN);
        ddl_bytes_fini(&existing);
        ddl_store_destroy(place.stores[2], soon());
        place.stores[2] = NULL;
        /* Time for the news to travel, were there any. */
        assert_int_equal(ddl_store_get(place.stores[0], "never", ddl_deadline_in_ms(300), &existing, NULL),
                         DDL_ETIMEDOUT);
        assert_int_equal(ddl_store_check(place.stores[1], NULL), DDL_OK);
        place_close(&place);
    }
}

static void waiting_calls_end_when_rank_0_goes(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct getter getter;
        ddl_error will;
        place_open(&place, kind, 2);
        (void)ddl_error_set(&will, DDL_EPEERLOST, "rank 0 went away");
        will.culprit = 0;
        assert_int_equal(ddl_store_will(place.stores[0], &will, soon(), NULL), DDL_OK);
        set(place.stores[0], "mine", text_view("0"));
        getter_start(&getter, place.stores[1], "never", soon());
        ddl_store_destroy(place.stores[0], ddl_deadline_in_ms(300));
        place.stores[0] = NULL;
        int64_t left_ns = ddl_now_ns();
        getter_join(&getter);
        assert_int_equal(getter.status, DDL_EPEERLOST);
        assert_int_equal(getter.error.culprit, 0);
        /* In Redis, who begins to wait when all keys are gone looks twice, in about a second. */
        assert_true(getter.done_ns < left_ns + 2 * DDL_NS_PER_S);
        place_close(&place);
    }
}

static void many_ranks_share_a_store(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct getter getters[MANY];
        place_open(&place, kind, MANY);
        for (int rank = 0; rank + 1 < MANY; rank++)
            getter_start(&getters[rank], place.stores[rank], "go", soon());
        for (int i = 0; i < MANY; i++) {
            char key[32];
            snprintf(key, sizeof key, "many.%d", i);
            set(place.stores[MANY - 1], key, text_view(key));
        }
        set(place.stores[MANY - 1], "go", text_view("now"));
        for (int rank = 0; rank + 1 < MANY; rank++) {
            getter_join(&getters[rank]);
            assert_int_equal(getters[rank].status, DDL_OK);
        }
        for (int rank = 0; rank < MANY; rank++)
            check_value(place.stores[rank], "many.7", text_view("many.7"));
        place_close(&place);
    }
}

static void of_all_who_set_a_key_one_succeeds(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        int created = 0;
        place_open(&place, kind, 8);
        for (int rank = 0; rank < 8; rank++) {
            ddl_store_outcome outcome;
            ddl_bytes existing = { 0 };
            char value[16];
            snprintf(value, sizeof value, "%d", rank);
            assert_int_equal(ddl_store_set_new(place.stores[rank], "race", text_view(value), soon(), &outcome,
                                               &existing, NULL),
                             DDL_OK);
            created += outcome == DDL_STORE_CREATED;
            if (outcome != DDL_STORE_CREATED)
                assert_memory_equal(existing.data, "0", 1);
            ddl_bytes_fini(&existing);
        }
        assert_int_equal(created, 1);
        place_close(&place);
    }
}

static void another_world_size_is_told_and_fails_the_run(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place;
        struct getter getter;
        ddl_store *odd = NULL;
        ddl_error error;
        place_open(&place, kind, 3);
        getter_start(&getter, place.stores[0], "never", soon()); /* and so rank 0 answers whoever comes */
        assert_int_equal(enter(&place, 2, 4, soon(), &odd, &error), DDL_ECONFIG);
        assert_non_null(strstr(error.text, "world size 4"));
        assert_non_null(strstr(error.text, "world size 3"));
        getter_join(&getter);
        assert_int_equal(getter.status, DDL_ECONFIG);
        assert_non_null(strstr(getter.error.text, "world size 4"));
        place_close(&place);
    }
}

static void opening_ends_by_its_deadline_where_nobody_serves(void **state)
{
    (void)state;
    FOR_EACH_KIND(kind)
    {
        struct place place = { .nranks = 0 };
        ddl_store *store = NULL;
        ddl_error error;
        place_name(&place, kind);
        int64_t start_ns = ddl_now_ns();
        assert_int_equal(enter(&place, 1, 2, ddl_deadline_in_ms(200), &store, &error), DDL_ETIMEDOUT);
        assert_true(ddl_now_ns() - start_ns < 1200 * DDL_NS_PER_MS);
        assert_int_equal(error.culprit, 0);
        place_check_empty(&place); /* whoever came in vain leaves nothing behind */
    }
}

/* ---- a client of a tcp store without manners ---- */

static void wait_for(int fd, short events)
{
    if (!ddl_socket_wait(fd, events, soon()))
        fail_msg("the store moves no bytes");
}

static void write_all(int fd, ddl_view data)
{
    const uint8_t *at = data.data;
    for (size_t sent = 0; sent < data.bytes;) {
        ssize_t count = ddl_socket_write(fd, at + sent, data.bytes - sent);
        if (count < 0)
            wait_for(fd, POLLOUT);
        else
            sent += (size_t)count;
    }
}

static size_t read_some(int fd, uint8_t *data, size_t bytes)
{
    ssize_t count;
    while ((count = ddl_socket_read(fd, data, bytes)) < 0) {
        assert_int_equal(errno, EAGAIN);
        wait_for(fd, POLLIN);
    }
    return (size_t)count;
}

static void shake_hands(int fd, ddl_hello *hello)
{
    uint8_t data[512];
    for (;;) {
        ddl_view out = ddl_hello_output(hello);
        size_t wanted = ddl_hello_wants(hello);
        if (out.bytes == 0 && wanted == 0)
            break;
        if (out.bytes > 0) {
            write_all(fd, out);
            ddl_hello_sent(hello, out.bytes);
        } else {
            size_t count = read_some(fd, data, wanted);
            assert_true(count > 0);
            ddl_hello_feed(hello, data, count);
        }
        if (hello->state == DDL_HELLO_JUDGING)
            ddl_hello_judge(hello, DDL_HELLO_WELCOME);
    }
    assert_int_equal(hello->state, DDL_HELLO_ACCEPTED);
}

/* A connected socket that has shaken hands as this rank. */
static int connect_raw(const struct place *place, int rank)
{
    ddl_hello_party self = party(rank, place->nranks);
    self.channel = DDL_HELLO_FOR_STORE;
    ddl_hello hello;
    ddl_address address;
    int fd = -1;
    assert_true(ddl_address_parse("127.0.0.1", (uint16_t)atoi(strrchr(place->url, ':') + 1), &address));
    assert_int_equal(ddl_socket_connect(&address, &fd, NULL), DDL_OK);
    wait_for(fd, POLLOUT);
    ddl_hello_start_client(&hello, &self);
    shake_hands(fd, &hello);
    return fd;
}

/* Set values of this size under names of their own until no more are taken; how many were. */
static int fill(struct place *place, ddl_view value, int most)
{
    for (int count = 0; count <= most; count++) {
        ddl_store_outcome outcome;
        ddl_bytes existing = { 0 };
        ddl_error error;
        char key[32];
        snprintf(key, sizeof key, "x.%d", count);
        ddl_status status =
            ddl_store_set_new(place->stores[1], key, value, soon(), &outcome, &existing, &error);
        ddl_bytes_fini(&existing);
        if (status == DDL_OK)
            continue;
        assert_int_equal(status, DDL_ESTORE);
        if (strstr(error.text, "takes no more") == NULL)
            fail_msg("%s", error.text);
        return count;
    }
    fail_msg("the store took more than %d values of %zu bytes", most, value.bytes);
    return 0;
}

/* A rank gone bad fills neither the memory of rank 0 nor takes what others need to read. */
static void a_store_takes_only_so_much(void **state)
{
    enum { KEYS = 16 * 2 + 1024, STORED = 64 << 20 };
    static uint8_t large[DDL_STORE_VALUE_LIMIT];
    const ddl_view values[] = { text_view("1"), { large, sizeof large } };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct place place;
        place_open(&place, &kinds[0], 2);
        set(place.stores[0], "first", text_view("1"));
        int most = i == 0 ? KEYS - 1 : STORED / DDL_STORE_VALUE_LIMIT, count = fill(&place, values[i], most);
        assert_in_range(count, most - 1, most); /* large ones carry a proof as well */
        check_value(place.stores[0], "x.1", values[i]);
        check_value(place.stores[1], "first", text_view("1"));
        place_close(&place);
    }
}

static void a_rank_waits_for_so_many_keys_only(void **state)
{
    enum { WAITS = 64 };
    uint8_t data[1024];
    struct place place;
    ddl_bytes requests = { 0 };
    ddl_store_inbox inbox = { .value_limit = DDL_STORE_VALUE_LIMIT + DDL_STORE_SEAL_ROOM };
    ddl_store_message reply;
    ddl_error refusal;
    (void)state;
    place_open(&place, &kinds[0], 2);
    for (uint32_t id = 1; id <= WAITS + 1; id++) {
        char key[32];
        snprintf(key, sizeof key, "x.%u", (unsigned)id);
        ddl_store_message get = {
            .kind = DDL_STORE_GET, .flags = DDL_STORE_WAIT, .id = id, .key = text_view(key)
        };
        assert_true(ddl_store_message_encode(&get, &requests));
    }
    int fd = connect_raw(&place, 1);
    write_all(fd, ddl_bytes_view(&requests));
    for (bool found = false; !found;) {
        size_t count = read_some(fd, data, sizeof data);
        assert_true(count > 0);
        assert_int_equal(ddl_store_inbox_feed(&inbox, data, count, NULL), DDL_OK);
        assert_int_equal(ddl_store_inbox_next(&inbox, &reply, &found, NULL), DDL_OK);
    }
    assert_int_equal(reply.kind, DDL_STORE_REFUSED);
    assert_int_equal(reply.id, WAITS + 1);
    assert_int_equal(ddl_store_error_decode(reply.value, &refusal, NULL), DDL_OK);
    assert_int_equal(refusal.code, DDL_ESTORE);
    assert_non_null(strstr(refusal.text, "64 waiting requests"));
    set(place.stores[0], "first", text_view("1"));
    check_value(place.stores[1], "first", text_view("1"));
    ddl_socket_close(&fd);
    ddl_store_inbox_fini(&inbox);
    ddl_bytes_fini(&requests);
    place_close(&place);
}

/* The reply to a message that rank 1 sends by itself; release what the inbox holds. */
static ddl_store_message ask_raw(int fd, const ddl_store_message *message, ddl_store_inbox *inbox)
{
    ddl_bytes request = { 0 };
    ddl_store_message reply;
    uint8_t data[1024];
    *inbox = (ddl_store_inbox){ .value_limit = DDL_STORE_VALUE_LIMIT + DDL_STORE_SEAL_ROOM };
    assert_true(ddl_store_message_encode(message, &request));
    write_all(fd, ddl_bytes_view(&request));
    for (bool found = false; !found;) {
        const size_t count = read_some(fd, data, sizeof data);
        assert_true(count > 0);
        assert_int_equal(ddl_store_inbox_feed(inbox, data, count, NULL), DDL_OK);
        assert_int_equal(ddl_store_inbox_next(inbox, &reply, &found, NULL), DDL_OK);
    }
    ddl_bytes_fini(&request);
    assert_int_equal(reply.id, message->id);
    return reply;
}

static void a_look_is_for_so_many_keys_only(void **state)
{
    static const char long_kind[] = "a kind with a name that no kind of ours has";
    const uint8_t ten[] = { 10, 0, 0, 0 }, most[] = { 2, 4, 0, 0 }, more[] = { 3, 4, 0, 0 };
    const struct {
        ddl_view kind, count;
        size_t bytes; /* of the answer; 0: it is refused */
    } looks[] = { { text_view("k"), { ten, 4 }, 2 },    { text_view("k"), { most, 4 }, 129 },
                  { text_view("k"), { more, 4 }, 0 },   { text_view("k"), { ten, 3 }, 0 },
                  { text_view("k"), { NULL, 0 }, 0 },   { text_view(long_kind), { ten, 4 }, 0 },
                  { text_view("other"), { ten, 4 }, 2 } };
    struct place place;
    (void)state;
    place_open(&place, &kinds[0], 2);
    set(place.stores[0], "k.0", text_view("1"));
    set(place.stores[0], "k.9", text_view("1"));
    set(place.stores[0], "k.10", text_view("1"));
    set(place.stores[0], "k", text_view("1"));
    int fd = connect_raw(&place, 1);
    for (uint32_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        const ddl_store_message look = {
            .kind = DDL_STORE_LOOK, .id = i + 1, .key = looks[i].kind, .value = looks[i].count
        };
        ddl_store_inbox inbox;
        const ddl_store_message reply = ask_raw(fd, &look, &inbox);
        assert_int_equal(reply.kind, looks[i].bytes > 0 ? DDL_STORE_VALUE : DDL_STORE_REFUSED);
        if (looks[i].bytes > 0) {
            const uint8_t *bits = reply.value.data;
            assert_int_equal(reply.value.bytes, looks[i].bytes);
            assert_int_equal(bits[0], *(const char *)looks[i].kind.data == 'k' ? 1 : 0);
            assert_int_equal(bits[1], i == 0 ? 2 : i == 1 ? 6 : 0);
        }
        ddl_store_inbox_fini(&inbox);
    }
    ddl_socket_close(&fd);
    place_close(&place);
}

/*
 * Replies that are not read stay requests. What the server has made of them is seen by a failure of the run,
 * which comes behind the replies that were made before.
 */
static void replies_that_nobody_reads_are_not_made(void **state)
{
    enum { REQUESTS = 900, FEW = REQUESTS / 2 }; /* FEW: with room for what the kernel holds */
    static uint8_t large[DDL_STORE_VALUE_LIMIT], data[1 << 16];
    struct place place;
    ddl_bytes requests = { 0 };
    ddl_store_inbox inbox = { .value_limit = DDL_STORE_VALUE_LIMIT + DDL_STORE_SEAL_ROOM };
    ddl_error cause, first;
    int values = 0, failures = 0;
    (void)state;
    place_open(&place, &kinds[0], 2);
    set(place.stores[0], "x", (ddl_view){ large, sizeof large });
    for (uint32_t id = 1; id <= REQUESTS; id++) {
        ddl_store_message get = { .kind = DDL_STORE_GET, .id = id, .key = text_view("x") };
        assert_true(ddl_store_message_encode(&get, &requests));
    }
    int fd = connect_raw(&place, 1);
    write_all(fd, ddl_bytes_view(&requests));
    /* Twice round the server's loop: by then it has looked at the requests. */
    for (int i = 0; i < 2; i++)
        check_value(place.stores[1], "x", (ddl_view){ large, sizeof large });
    (void)ddl_error_set(&cause, DDL_ESTORE, "enough");
    ddl_store_fail(place.stores[0], &cause, soon(), &first);
    while (values + failures < REQUESTS + 1) {
        ddl_store_message reply;
        bool found;
        assert_int_equal(ddl_store_inbox_next(&inbox, &reply, &found, NULL), DDL_OK);
        if (!found) {
            size_t count = read_some(fd, data, sizeof data);
            assert_true(count > 0);
            assert_int_equal(ddl_store_inbox_feed(&inbox, data, count, NULL), DDL_OK);
        } else if (reply.kind == DDL_STORE_VALUE) {
            values++;
        } else {
            assert_int_equal(reply.kind, DDL_STORE_FAILED);
            failures++;
        }
    }
    assert_in_range(values, 1, FEW);
    ddl_socket_close(&fd);
    ddl_store_inbox_fini(&inbox);
    ddl_bytes_fini(&requests);
    place_close(&place);
}

/* Of these looks, which come all at once; what is asked by others, and then fails the run, comes after them.
 */
static int looks_before_others(int looks)
{
    const uint8_t most[] = { 2, 4, 0, 0 };
    static uint8_t data[1 << 16];
    struct place place;
    ddl_bytes requests = { 0 };
    ddl_store_inbox inbox = { .value_limit = DDL_STORE_VALUE_LIMIT + DDL_STORE_SEAL_ROOM };
    ddl_error cause, first;
    int answers = 0, failures = 0;
    place_open(&place, &kinds[0], 2);
    set(place.stores[0], "x", text_view("1"));
    for (uint32_t id = 1; id <= (uint32_t)looks; id++) {
        const ddl_store_message look = {
            .kind = DDL_STORE_LOOK, .id = id, .key = text_view("k"), .value = { most, sizeof most }
        };
        assert_true(ddl_store_message_encode(&look, &requests));
    }
    int fd = connect_raw(&place, 1);
    write_all(fd, ddl_bytes_view(&requests));
    for (int i = 0; i < 2; i++) /* twice round the server's loop: by then it has looked at them */
        check_value(place.stores[1], "x", text_view("1"));
    (void)ddl_error_set(&cause, DDL_ESTORE, "enough");
    ddl_store_fail(place.stores[0], &cause, soon(), &first);
    while (answers + failures < looks + 1) {
        ddl_store_message reply;
        bool found;
        assert_int_equal(ddl_store_inbox_next(&inbox, &reply, &found, NULL), DDL_OK);
        if (found && reply.kind == DDL_STORE_VALUE)
            answers++;
        else if (found)
            failures++;
        else
            assert_int_equal(ddl_store_inbox_feed(&inbox, data, read_some(fd, data, sizeof data), NULL),
                             DDL_OK);
    }
    ddl_socket_close(&fd);
    ddl_store_inbox_fini(&inbox);
    ddl_bytes_fini(&requests);
    place_close(&place);
    return answers;
}

/* Each goes over a thousand keys. Who is to ask in time may get no CPU for as long as all of them take. */
static void looks_let_others_have_their_turn(void **state)
{
    enum { LOOKS = 600 }; /* as many as the server reads at once */
    int fewest = LOOKS;
    (void)state;
    for (int tries = 0; tries < 20 && fewest >= LOOKS / 4; tries++) {
        const int looks = looks_before_others(LOOKS);
        fewest = looks < fewest ? looks : fewest;
    }
    assert_in_range(fewest, 0, LOOKS / 4 - 1);
}

/* What rank 0 said before its connection broke counts, whatever it said before that. */
static void a_failure_is_heard_though_rank_0_has_gone(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct place place = { .nranks = 2 };
        struct entering client = { .place = &place, .rank = 1 };
        pthread_t thread;
        const struct linger at_once = { .l_onoff = 1 };
        ddl_hello_party self = party(0, 2);
        ddl_hello hello;
        ddl_address any, bound, from;
        ddl_bytes words = { 0 }, value = { 0 };
        ddl_error cause, error;
        uint8_t coded[DDL_STORE_ERROR_BYTES];
        int listener = -1, fd = -1;
        self.channel = DDL_HELLO_FOR_STORE;
        assert_true(ddl_address_parse("127.0.0.1", 0, &any));
        assert_int_equal(ddl_socket_listen(&any, 1, &listener, &bound, NULL), DDL_OK);
        snprintf(place.url, sizeof place.url, "tcp://127.0.0.1:%u", ddl_address_port(&bound));
        assert_int_equal(pthread_create(&thread, NULL, enter_rank, &client), 0);
        wait_for(listener, POLLIN);
        assert_int_equal(ddl_socket_accept(listener, &fd, &from), 0);
        ddl_hello_start_server(&hello, &self);
        shake_hands(fd, &hello);
        pthread_join(thread, NULL);
        ddl_store *store = place.stores[1];
        assert_int_equal(client.status, DDL_OK);
        (void)ddl_error_set(&cause, DDL_ESTORE, "enough");
        const ddl_store_message old = { .kind = DDL_STORE_DONE, .id = 1000 };
        const ddl_store_message last = { .kind = DDL_STORE_FAILED,
                                         .value = { coded, ddl_store_error_encode(&cause, coded) } };
        assert_true(ddl_store_message_encode(&old, &words) && ddl_store_message_encode(&last, &words));
        write_all(fd, ddl_bytes_view(&words));
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        ddl_socket_close(&fd);
        ddl_socket_close(&listener);
        ddl_status status = ddl_store_get(store, "x", waits ? soon() : ddl_now_ns(), &value, &error);
        if (status != DDL_ESTORE || strcmp(error.text, "enough") != 0)
            fail_msg("%s: %s", ddl_status_name(status), error.text);
        assert_false(ddl_store_is_lost(store));
        ddl_bytes_fini(&words);
        ddl_store_destroy(store, soon());
    }
}

/* Whoever fills the table without taking part makes room for a rank that comes. */
static void clients_that_take_no_part_make_room(void **state)
{
    enum { STRANGERS = 4 * 2 + 64 };
    struct place place;
    ddl_store *late = NULL;
    ddl_error error;
    int fds[STRANGERS];
    (void)state;
    place_open(&place, &kinds[0], 2);
    set(place.stores[0], "member.0", text_view("0"));
    set(place.stores[1], "member.1", text_view("1"));
    for (int i = 0; i < STRANGERS; i++)
        fds[i] = connect_raw(&place, 1);
    if (enter(&place, 1, 2, soon(), &late, &error) != DDL_OK)
        fail_msg("%s", error.text);
    check_value(late, "member.1", text_view("1"));
    check_value(place.stores[0], "member.1", text_view("1"));
    check_value(place.stores[1], "member.0", text_view("0"));
    ddl_store_destroy(late, soon());
    for (int i = 0; i < STRANGERS; i++)
        ddl_socket_close(&fds[i]);
    place_close(&place);
}

static ddl_prover *prover(const char *secret, ddl_security level)
{
    ddl_prover *made = NULL;
    assert_int_equal(ddl_proof_create((ddl_view){ secret, strlen(secret) }, secret, level, &made, NULL),
                     DDL_OK);
    return made;
}

static void tls_job_create(struct tls_job *job, const char *secret)
{
    static const ddl_encryption_options keys;
    if (!has_tls)
        return;
    job->prover = prover(secret, DDL_SECURITY_TLS);
    assert_int_equal(ddl_encryption_create(&keys, job->prover, &job->encryption, NULL), DDL_OK);
}

static void tls_job_destroy(struct tls_job *job)
{
    ddl_encryption_destroy(job->encryption);
    ddl_proof_destroy(job->prover);
}

/* ---- proofs ---- */

struct knocking {
    struct place *place;
    ddl_hello_party party;
    ddl_status status;
    ddl_error error;
    double seconds;
    atomic_bool done; /* stored by the thread, read by the test */
};

static void *knock(void *arg)
{
    struct knocking *knocking = arg;
    ddl_store *store;
    int64_t start_ns = ddl_now_ns();
    knocking->status = enter_as(knocking->place, &knocking->party, soon(), &store, &knocking->error);
    if (knocking->status == DDL_OK)
        ddl_store_destroy(store, soon());
    knocking->seconds = (double)(ddl_now_ns() - start_ns) / 1e9;
    atomic_store(&knocking->done, true);
    return NULL;
}

/* Whoever has another secret, or none, is told so at once, and does not disturb those who are in. */
static void another_secret_or_level_is_told_and_harms_nobody(void **state)
{
    (void)state;
    for (const struct kind *kind = kinds; kind < kinds + KINDS - 1; kind++) { /* mem is within one process */
        for (int off = 0; off < 2 && is_possible(kind); off++) {
            struct place place;
            ddl_error error;
            struct knocking knocking = { .place = &place, .party = party(1, 2) };
            place_open(&place, kind, 2);
            knocking.party.prover = off ? NULL : place.is_at_tls ? theirs_at_tls.prover : theirs;
            knocking.party.level = off               ? DDL_SECURITY_OFF
                                   : place.is_at_tls ? DDL_SECURITY_TLS
                                                     : DDL_SECURITY_AUTH;
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, knock, &knocking), 0);
            while (!atomic_load(&knocking.done)) /* in some stores rank 0 answers when it looks */
                assert_int_equal(ddl_store_check(place.stores[0], &error), DDL_OK);
            pthread_join(thread, NULL);
            assert_int_equal(knocking.status, DDL_EAUTH);
            const char *said = off ? "has security level off" : "does not know the secret that rank 1 has";
            if (strstr(knocking.error.text, said) == NULL)
                fail_msg("%s: %s", kind->name, knocking.error.text);
            assert_true(knocking.seconds < 2);
            set(place.stores[1], "k", text_view("v"));
            check_value(place.stores[0], "k", text_view("v"));
            place_close(&place);
        }
    }
}

/* Where the file store keeps an item of its run. */
static void path_of(const struct place *place, const char *item, char path[DDL_RECORD_PATH])
{
    int used = snprintf(path, DDL_RECORD_PATH, "%s/ddl-127.0.0.1_29500/", place->folder);
    const uint8_t *run_id = ddl_store_run_id(place->stores[0]);
    for (int i = 0; i < DDL_RUN_ID_BYTES; i++)
        used += snprintf(path + used, 3, "%02x", run_id[i]);
    snprintf(path + used, DDL_RECORD_PATH - (size_t)used, "/%s", item);
}

static void read_item(const struct place *place, const char *item, ddl_bytes *content)
{
    char path[DDL_RECORD_PATH];
    bool found = false;
    path_of(place, item, path);
    assert_int_equal(ddl_record_read(path, 1000, content, &found, NULL), DDL_OK);
    assert_true(found);
}

static void forge_item(const struct place *place, const char *item, const ddl_bytes *content)
{
    char path[DDL_RECORD_PATH];
    path_of(place, item, path);
    assert_int_equal(ddl_record_replace(path, ddl_bytes_view(content), NULL), DDL_OK);
}

/* What others left or put under a key is told within a second, however long one could wait for that key. */
static void expect_odd(ddl_store *store, const char *key, ddl_status status, const char *name,
                       const char *text)
{
    const int64_t begin_ns = ddl_now_ns();
    ddl_bytes value = { 0 };
    ddl_error error;
    assert_int_equal(ddl_store_get(store, key, soon(), &value, &error), status);
    assert_true(ddl_now_ns() - begin_ns < DDL_NS_PER_S);
    assert_non_null(strstr(error.text, name));
    assert_non_null(strstr(error.text, text));
    assert_int_equal(value.bytes, 0);
}

static void expect_forgery(ddl_store *store, const char *key)
{
    expect_odd(store, key, DDL_EAUTH, key, "was not written by a rank of this job");
}

/* An empty file, as whoever can write there can make it, is a key for those only who tell what is there. */
static void names_of_the_file_store_suffice_for_what_is_told(void **state)
{
    struct place place;
    char path[DDL_RECORD_PATH];
    ddl_error error;
    (void)state;
    place_open(&place, &kinds[1], 2);
    set(place.stores[0], "k.0", text_view("10.0.0.1"));
    path_of(&place, "key/=k.1", path);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
    for (int told = 0; told < 2; told++) {
        bool present[3] = { false };
        const ddl_store_many many = { "k", 3, present, NULL, told };
        for (int look = 0; look < 2; look++)
            assert_int_equal(ddl_store_get_many(place.stores[1], &many, ddl_now_ns(), &error), DDL_ETIMEDOUT);
        assert_true(present[0]);
        assert_int_equal(present[1], told);
        assert_false(present[2]);
    }
    place_close(&place);
}

static void forged_values_of_the_file_store_are_not_read(void **state)
{
    enum { TOKEN_BYTES = 16 };
    static const uint8_t other_run[DDL_RUN_ID_BYTES] = { 7 };
    struct place place;
    ddl_bytes k = { 0 }, j = { 0 }, made = { 0 };
    ddl_error error, first;
    (void)state;
    place_open(&place, &kinds[1], 2);
    set(place.stores[0], "k", text_view("10.0.0.1"));
    set(place.stores[0], "j", text_view("10.0.0.2"));
    check_value(place.stores[1], "k", text_view("10.0.0.1"));
    read_item(&place, "key/=k", &k);
    read_item(&place, "key/=j", &j);
    /* Changed anywhere behind the token of who set it. */
    for (size_t at = TOKEN_BYTES; at < k.bytes; at++) {
        k.data[at] ^= 1;
        forge_item(&place, "key/=k", &k);
        expect_forgery(place.stores[1], "k");
        k.data[at] ^= 1;
    }
    /* That of another key, its own without a proof, one of another run with the same secret, nothing. */
    forge_item(&place, "key/=k", &j);
    expect_forgery(place.stores[1], "k");
    const ddl_seal seals[] = { { NULL, other_run }, { ours, other_run }, { theirs, other_run } };
    for (int i = 0; i < 3; i++) {
        assert_true(ddl_bytes_append(&made, k.data, TOKEN_BYTES));
        assert_true(ddl_seal_put(&seals[i], 0, "k", text_view("10.9.9.9"), &made));
        forge_item(&place, "key/=k", &made);
        expect_forgery(place.stores[1], "k");
        ddl_bytes_fini(&made);
    }
    k.bytes = TOKEN_BYTES;
    forge_item(&place, "key/=k", &k);
    expect_forgery(place.stores[1], "k");
    k.bytes = TOKEN_BYTES - 1; /* so short that it is not even a forgery */
    forge_item(&place, "key/=k", &k);
    expect_odd(place.stores[1], "k", DDL_ESTORE, "/key/=k", "is no value of ours");
    /* A run that is said to be settled, and is not, can still fail. */
    forge_item(&place, "key/=settled", &j);
    ddl_error_set(&error, DDL_ENETWORK, "no way");
    ddl_store_fail(place.stores[0], &error, soon(), &first);
    assert_string_equal(first.text, "no way");
    assert_int_equal(ddl_store_check(place.stores[1], &error), DDL_ENETWORK);
    place_close(&place);
    /* A failure that nobody of the run has told ends it, but says so. */
    place_open(&place, &kinds[1], 2);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_error_set(&error, DDL_ENETWORK, "please connect to 10.9.9.9");
    assert_true(ddl_bytes_append(&made, value, ddl_store_error_encode(&error, value)));
    forge_item(&place, "failed", &made);
    assert_int_equal(ddl_store_check(place.stores[1], &error), DDL_EAUTH);
    assert_null(strstr(error.text, "please"));
    place_close(&place);
    /* A meeting record of any other size. */
    place_open(&place, &kinds[1], 1);
    char path[DDL_RECORD_PATH];
    snprintf(path, sizeof path, "%s/ddl-127.0.0.1_29500/meet", place.folder);
    made.bytes = 0;
    for (size_t bytes = 0; bytes < 160; bytes++) {
        static const uint8_t head[] = { DDL_HELLO_VERSION, 0, 0, 0, DDL_SECURITY_AUTH, 0, 0, 0 };
        ddl_store *store;
        assert_int_equal(ddl_record_replace(path, ddl_bytes_view(&made), NULL), DDL_OK);
        ddl_status status = enter(&place, 1, 2, ddl_now_ns(), &store, &error);
        assert_true(status == DDL_ESTORE || (bytes == 156 && status == DDL_ETIMEDOUT));
        assert_true(ddl_bytes_append(&made, bytes < sizeof head ? &head[bytes] : &head[0], 1));
    }
    assert_int_equal(unlink(path), 0);
    place_close(&place);
    ddl_bytes_fini(&k);
    ddl_bytes_fini(&j);
    ddl_bytes_fini(&made);
}

/* Somebody else's lock may seem free; so does that of who has a will, here. item becomes what tells his host.
 */
static void free_lock(const struct place *place, char item[64])
{
    char path[DDL_RECORD_PATH];
    path_of(place, "will", path);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *found; (found = readdir(folder)) != NULL;)
        if (found->d_name[0] != '.')
            snprintf(item, 64, "here/%.40s", found->d_name);
    closedir(folder);
    path_of(place, item, path);
    assert_int_equal(unlink(path), 0); /* and with the name the lock */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    strcat(item, ".host");
}

/* A lock that can be had proves a death on the own host alone: others may not be seen here. */
static void locks_of_other_hosts_prove_no_death(void **state)
{
    (void)state;
    for (int is_foreign = 0; is_foreign < 2; is_foreign++) {
        struct place place;
        char item[64] = "";
        ddl_bytes host = { 0 }, none = { 0 };
        ddl_error error;
        place_open(&place, &kinds[1], 2);
        ddl_error_set(&error, DDL_EPEERLOST, "rank 1 is gone");
        assert_int_equal(ddl_store_will(place.stores[1], &error, soon(), &error), DDL_OK);
        set(place.stores[1], "k", text_view("v"));
        free_lock(&place, item);
        read_item(&place, item, &host);
        host.data[0] ^= (uint8_t)is_foreign;
        forge_item(&place, item, &host);
        const ddl_deadline deadline = is_foreign ? ddl_deadline_in_ms(450) : soon();
        const ddl_status status = ddl_store_get(place.stores[0], "never", deadline, &none, &error);
        assert_int_equal(status, is_foreign ? DDL_ETIMEDOUT : DDL_EPEERLOST);
        if (!is_foreign)
            assert_string_equal(error.text, "rank 1 is gone");
        place_close(&place);
        ddl_bytes_fini(&host);
    }
}

#ifdef DDL_FAILPOINTS
/*
 * As NFS has it: link works and is reported as done by another; a file that was replaced cannot be opened,
 * nor looked at or read where it is open; what is new in a folder is not seen yet.
 */
static void the_file_store_survives_what_network_file_systems_do(void **state)
{
    char setting[32];
    (void)state;
    for (int nth = 1; nth <= 3; nth++) { /* rank 0 lists what old runs left, then, twice, who asks */
        struct place place;
        snprintf(setting, sizeof setting, "rendezvous.list:%d", nth);
        ddl_failpoint_arm(setting);
        place_open(&place, &kinds[1], 2);
        assert_true(ddl_failpoint_hits() > (uint64_t)nth);
        ddl_failpoint_arm("rendezvous.linked");
        set(place.stores[0], "k", text_view("v"));
        for (int stale = 1; stale <= 4; stale++) { /* what the run failed with is not there, the value is */
            snprintf(setting, sizeof setting, "rendezvous.stale:%d", stale);
            ddl_failpoint_arm(setting);
            check_value(place.stores[1], "k", text_view("v"));
        }
        ddl_failpoint_arm(NULL);
        place_close(&place);
    }
}

/* What says on which host each rank of the place is says another one. */
static void move_to_another_host(const struct place *place)
{
    char path[DDL_RECORD_PATH], item[DDL_RECORD_PATH];
    ddl_bytes host = { 0 };
    path_of(place, "here", path);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *found; (found = readdir(folder)) != NULL;) {
        if (strstr(found->d_name, ".host") == NULL)
            continue;
        snprintf(item, sizeof item, "here/%.60s", found->d_name);
        read_item(place, item, &host);
        host.data[0] ^= 1;
        forge_item(place, item, &host);
        ddl_bytes_fini(&host);
    }
    closedir(folder);
}

/* On a file system without locks, and where those of another host are not seen; also of another job, and
 * though nobody looks at the store, as in a run that is settled. */
static void a_rank_0_whose_lock_is_not_seen_keeps_its_place(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct place place;
        ddl_store *store = NULL;
        ddl_error error;
        ddl_hello_party second = party(0, 3);
        if (i == 2)
            second.prover = theirs;
        ddl_failpoint_arm("rendezvous.flock");
        place_open(&place, &kinds[1], 2);
        set(place.stores[1], "k", text_view("v"));
        if (i > 0)
            set(place.stores[0], DDL_STORE_SETTLED, (ddl_view){ NULL, 0 });
        if (i == 1) {
            ddl_failpoint_arm(NULL);
            move_to_another_host(&place);
        }
        assert_int_equal(enter_as(&place, &second, soon(), &store, &error), DDL_ECONFIG);
        if (strstr(error.text, "already: it is host[1000], and this is host[1000]; two processes") == NULL ||
            (i == 2) != (strstr(error.text, "does not have the secret of this job") != NULL))
            fail_msg("%s", error.text);
        ddl_failpoint_arm(NULL);
        check_value(place.stores[0], "k", text_view("v"));
        assert_int_equal(ddl_store_check(place.stores[1], &error), DDL_OK);
        place_close(&place);
    }
}

static void keep_line(void *text, const char *line)
{
    snprintf(text, 256, "%s", line);
}

/* A run that is settled needs its place no more: it may lose that while it cannot answer,
 * of which it warned, and takes nothing along that is another's by then. */
static void who_does_not_answer_loses_its_place_and_nothing_else(void **state)
{
    struct place place;
    char path[DDL_RECORD_PATH], elsewhere[DDL_RECORD_PATH + 16], warning[256] = "";
    ddl_store *second = NULL;
    ddl_bytes none = { 0 };
    ddl_error error;
    (void)state;
    ddl_failpoint_arm("rendezvous.thread");
    ddl_set_log(keep_line, warning);
    place_open(&place, &kinds[1], 2);
    ddl_set_log(NULL, NULL);
    ddl_failpoint_arm(NULL);
    assert_non_null(strstr(warning, "no thread to keep the meeting place"));
    set(place.stores[0], DDL_STORE_SETTLED, (ddl_view){ NULL, 0 });
    check_value(place.stores[1], DDL_STORE_SETTLED, (ddl_view){ NULL, 0 });
    move_to_another_host(&place);
    snprintf(path, sizeof path, "%s/ddl-127.0.0.1_29500/rank0", place.folder);
    assert_int_equal(unlink(path), 0); /* and with the name the lock */
    int64_t begin_ns = ddl_now_ns();
    assert_int_equal(enter(&place, 0, 1, soon(), &second, &error), DDL_OK);
    assert_true(ddl_now_ns() - begin_ns < 2 * DDL_NS_PER_S);
    for (int rank = 1; rank >= 0; rank--) {
        assert_int_equal(ddl_store_check(place.stores[rank], &error), DDL_OK);
        ddl_store_destroy(place.stores[rank], soon());
    }
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(ddl_store_get(second, "never", ddl_deadline_in_ms(250), &none, &error), DDL_ETIMEDOUT);
    place.stores[0] = second;
    path_of(&place, "here", path);
    *strrchr(path, '/') = '\0';
    snprintf(elsewhere, sizeof elsewhere, "%s-elsewhere", path);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(ddl_store_get(second, "never", soon(), &none, &error), DDL_ESTORE);
    assert_non_null(strstr(error.text, "has been removed"));
    assert_int_equal(rename(elsewhere, path), 0);
    ddl_store_destroy(second, soon());
    ddl_service_destroy(place.service);
    place_check_empty(&place);
}

static void without_a_thread_for_its_files_nobody_enters(void **state)
{
    struct place place;
    ddl_store *store = NULL;
    ddl_error error;
    (void)state;
    place_open(&place, &kinds[1], 1);
    ddl_failpoint_arm("rendezvous.clerk");
    assert_int_equal(enter(&place, 0, 1, soon(), &store, &error), DDL_ERESOURCE);
    ddl_failpoint_arm(NULL);
    assert_non_null(strstr(error.text, "cannot start a thread that does calls on files"));
    assert_null(store);
    place_close(&place);
}
#endif

/* ---- forging in Redis ---- */

/* Add an entry, with this id, to a stream of the run: two fields. What was there under that name is gone. */
static void forge_entry(const char *name, const char *id, const char *field, ddl_view value, char *by)
{
    char reply[256];
    const ddl_view gone[] = { text_view("DEL"), text_view(name) };
    const ddl_view words[] = { text_view("XADD"), text_view(name),  text_view(id), text_view("by"),
                               text_view(by),     text_view(field), value };
    if (strcmp(id, "*") != 0)
        redis_server_ask(gone, 2, reply, sizeof reply);
    redis_server_ask(words, 7, reply, sizeof reply);
    assert_int_equal(reply[0], '$');
}

static const char *run_key(const struct place *place, const char *item, char name[256])
{
    int used = snprintf(name, 256, "ddl:");
    const uint8_t *run_id = ddl_store_run_id(place->stores[0]);
    for (int i = 0; i < DDL_RUN_ID_BYTES; i++)
        used += snprintf(name + used, 3, "%02x", run_id[i]);
    snprintf(name + used, 256 - (size_t)used, ":%s", item);
    return name;
}

static char nobody[] = "33333333333333333333333333333333";

static void forged_values_in_redis_are_not_read(void **state)
{
    static const uint8_t other_run[DDL_RUN_ID_BYTES] = { 7 };
    struct place place;
    ddl_bytes k = { 0 }, made = { 0 };
    char name[256];
    (void)state;
    if (redis_server_port() == 0)
        skip();
    place_open(&place, &kinds[2], 2);
    set(place.stores[0], "k", text_view("10.0.0.1"));
    check_value(place.stores[1], "k", text_view("10.0.0.1"));
    (void)run_key(&place, "k:k", name);
    const uint8_t *run = ddl_store_run_id(place.stores[0]);
    const ddl_seal right = { ours, run };
    assert_true(ddl_seal_put(&right, 0, "k", text_view("10.0.0.1"), &k));
    forge_entry(name, "1-1", "value", ddl_bytes_view(&k), nobody);
    check_value(place.stores[1], "k", text_view("10.0.0.1")); /* this is how it has to look */
    for (size_t at = 0; at < k.bytes; at++) {
        k.data[at] ^= 1;
        forge_entry(name, "1-1", "value", ddl_bytes_view(&k), nobody);
        expect_forgery(place.stores[1], "k");
        k.data[at] ^= 1;
    }
    /* That of another key, its own without a proof, of another run, with another secret, nothing. */
    const struct {
        ddl_seal seal;
        const char *key, *value;
    } cases[] = { { right, "j", "10.9.9.9" },
                  { { NULL, run }, "k", "10.9.9.9" },
                  { { ours, other_run }, "k", "10.9.9.9" },
                  { { theirs, run }, "k", "10.9.9.9" },
                  { { NULL, run }, "k", "" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(ddl_seal_put(&cases[i].seal, 0, cases[i].key, text_view(cases[i].value), &made));
        forge_entry(name, "1-1", "value", ddl_bytes_view(&made), nobody);
        expect_forgery(place.stores[1], "k");
        ddl_bytes_fini(&made);
    }
    forge_entry(name, "1-1", "worth", text_view("10.9.9.9"), nobody);
    expect_odd(place.stores[1], "k", DDL_ESTORE, "the key k of this run", "holds no value of ours");
    /* The run is none the worse. */
    set(place.stores[1], "i", text_view("v"));
    check_value(place.stores[0], "i", text_view("v"));
    ddl_bytes_fini(&k);
    place_close(&place);
}

/* That the run has failed, or is settled, is believed of its ranks alone; else it is told what was found. */
static void forged_ends_in_redis_are_told_and_not_passed_on(void **state)
{
    static const char *const fields[] = { "failed", "settled", "nonsense" };
    uint8_t value[DDL_STORE_ERROR_BYTES];
    char name[256];
    ddl_error error, first;
    (void)state;
    if (redis_server_port() == 0)
        skip();
    ddl_error_set(&error, DDL_ENETWORK, "please connect to 10.9.9.9");
    const ddl_view said = { value, ddl_store_error_encode(&error, value) };
    for (int i = 0; i < 6; i++) {
        struct place place;
        ddl_bytes made = { 0 }, none = { 0 };
        place_open(&place, &kinds[2], 2);
        const ddl_seal seal = { i < 3 ? NULL : theirs, ddl_store_run_id(place.stores[0]) };
        assert_true(ddl_seal_put(&seal, 0, fields[i % 3], said, &made));
        forge_entry(run_key(&place, "end", name), "1-1", fields[i % 3], ddl_bytes_view(&made), nobody);
        const int64_t begin_ns = ddl_now_ns();
        assert_int_equal(ddl_store_get(place.stores[1], "never", soon(), &none, &error), DDL_EAUTH);
        assert_true(ddl_now_ns() - begin_ns < DDL_NS_PER_S);
        assert_null(strstr(error.text, "please"));
        assert_non_null(strstr(error.text, name));
        assert_non_null(strstr(error.text, "redis://127.0.0.1:"));
        assert_non_null(strstr(error.text, "was not written by a rank of this job"));
        ddl_error_set(&error, DDL_ENETWORK, "no way"); /* what happened at a rank stands there */
        ddl_store_fail(place.stores[0], &error, soon(), &first);
        assert_string_equal(first.text, "no way");
        ddl_bytes_fini(&made);
        place_close(&place);
    }
}

/* Nobody can leave a will for another; nor say for a rank that it needs nothing more. */
static void forged_wills_in_redis_are_passed_over(void **state)
{
    struct place place;
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_error error;
    ddl_bytes made = { 0 }, none = { 0 };
    char name[256];
    (void)state;
    if (redis_server_port() == 0)
        skip();
    place_open(&place, &kinds[2], 2);
    ddl_error_set(&error, DDL_ENETWORK, "please connect to 10.9.9.9");
    const ddl_view said = { value, ddl_store_error_encode(&error, value) };
    const ddl_seal seal = { theirs, ddl_store_run_id(place.stores[0]) };
    assert_true(ddl_seal_put(&seal, 1, "will/33333333333333333333333333333333", said, &made));
    (void)run_key(&place, "wills", name);
    forge_entry(name, "*", "will", said, nobody);
    forge_entry(name, "*", "will", ddl_bytes_view(&made), nobody);
    /* By then it was looked for twice whether the one who left it is there. */
    ddl_deadline looked = ddl_deadline_in_ms(1300);
    assert_int_equal(ddl_store_get(place.stores[0], "never", looked, &none, &error), DDL_ETIMEDOUT);
    place_close(&place);
    ddl_bytes_fini(&made);
}

/* What others have put into the list of what rank 0 is to remove. */
static void only_keys_of_its_run_are_removed_in_redis(void **state)
{
    char reply[64], name[256], all[256];
    struct place place;
    (void)state;
    if (redis_server_port() == 0)
        skip();
    place_open(&place, &kinds[2], 1);
    (void)run_key(&place, "all", all);
    (void)run_key(&place, "", name);
    name[strlen(name) - 1] = 'x'; /* begins as those of the run do, and is none */
    const ddl_view names[] = { text_view("DEL"), text_view("precious"), text_view("ddl:k"), text_view(name) };
    for (int i = 1; i < 4; i++) {
        const ddl_view make[] = { text_view("SET"), names[i], text_view("v") };
        const ddl_view list[] = { text_view("SADD"), text_view(all), names[i] };
        redis_server_ask(make, 3, reply, sizeof reply);
        redis_server_ask(list, 3, reply, sizeof reply);
        assert_string_equal(reply, ":1\r\n");
    }
    ddl_store_destroy(place.stores[0], soon());
    place.stores[0] = NULL;
    redis_server_ask(names, 4, reply, sizeof reply);
    assert_string_equal(reply, ":3\r\n");
    place_close(&place);
}

/* The token with which somebody has asked last, as whoever reads along knows it. */
static void overhear_token(char token[DDL_TOKEN_TEXT])
{
    static const char mark[] = "\r\n$2\r\nby\r\n$32\r\n";
    const ddl_view words[] = { text_view("XREVRANGE"), text_view("ddl:127.0.0.1:29500:ask"),
                               text_view("+"),         text_view("-"),
                               text_view("COUNT"),     text_view("1") };
    for (ddl_deadline deadline = soon();;) {
        char reply[1024];
        redis_server_ask(words, 6, reply, sizeof reply);
        const char *at = strstr(reply, mark);
        if (at != NULL && strlen(at) >= sizeof mark + DDL_TOKEN_TEXT) {
            memcpy(token, at + sizeof mark - 1, DDL_TOKEN_TEXT - 1);
            token[DDL_TOKEN_TEXT - 1] = '\0';
            return;
        }
        assert_false(ddl_deadline_passed(deadline));
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(2));
    }
}

/* Remove what earlier ranks have asked, so that the next one is heard. */
static void forget_asks(void)
{
    char reply[64];
    const ddl_view words[] = { text_view("DEL"), text_view("ddl:127.0.0.1:29500:ask") };
    redis_server_ask(words, 2, reply, sizeof reply);
}

static void forged_echoes_in_redis_are_told_and_harm_nobody(void **state)
{
    struct place place;
    char name[256], item[64], token[DDL_TOKEN_TEXT];
    (void)state;
    if (redis_server_port() == 0)
        skip();
    place_open(&place, &kinds[2], 2);
    for (int i = 0; i < 4; i++) { /* rank 0 does not look meanwhile, so it does not answer */
        struct knocking knocking = { .place = &place, .party = party(1, 2) };
        ddl_bytes made = { 0 };
        pthread_t thread;
        forget_asks();
        assert_int_equal(pthread_create(&thread, NULL, knock, &knocking), 0);
        overhear_token(token);
        /* Nothing; with another secret; of our job, for another token; too long. */
        const ddl_seal seal = { i == 1 ? theirs : ours, ddl_store_run_id(place.stores[0]) };
        if (i > 0)
            assert_true(ddl_meet_echo(&seal, i == 2 ? nobody : token, &made));
        if (i == 3)
            assert_true(ddl_bytes_append(&made, "x", 1));
        snprintf(item, sizeof item, "echo:%s", token);
        forge_entry(run_key(&place, item, name), "1-1", "echo", ddl_bytes_view(&made), nobody);
        pthread_join(thread, NULL);
        assert_int_equal(knocking.status, DDL_EAUTH);
        assert_non_null(strstr(knocking.error.text, "does not know the secret that rank 1 has"));
        assert_non_null(strstr(knocking.error.text, "redis://127.0.0.1:"));
        ddl_bytes_fini(&made);
        const ddl_view words[] = { text_view("DEL"), text_view(name) };
        redis_server_ask(words, 2, (char[64]){ 0 }, 64);
    }
    set(place.stores[1], "k", text_view("v"));
    check_value(place.stores[0], "k", text_view("v"));
    place_close(&place);
}

/* A record at the place that names a run which is not ours. */
static void forge_meet(const ddl_prover *forger)
{
    ddl_meet meet = { .host = party(0, 2), .token = { 0x11 } };
    ddl_bytes record = { 0 };
    memset(meet.host.run_id, 0x22, DDL_RUN_ID_BYTES);
    meet.host.prover = forger;
    assert_true(ddl_meet_encode(&meet, &record));
    forge_entry("ddl:127.0.0.1:29500:meet", "1-1", "meet", ddl_bytes_view(&record), nobody);
    ddl_bytes_fini(&record);
}

static void forged_meeting_records_in_redis_are_told(void **state)
{
    char reply[64], name[128], token[DDL_TOKEN_TEXT];
    const ddl_view clean[] = { text_view("DEL"), text_view("ddl:127.0.0.1:29500:meet") };
    (void)state;
    if (redis_server_port() == 0)
        skip();
    for (int i = 0; i < 4; i++) {
        struct place place = { .nranks = 0 };
        ddl_store *store = NULL;
        ddl_error error;
        const ddl_prover *forger = i == 0 ? NULL : theirs; /* without a proof, or with that of others */
        place_name(&place, &kinds[2]);
        forget_asks();
        /* Nobody answers for it: it may be a leftover, and rank 0 is waited for. */
        forge_meet(forger);
        if (i < 2) {
            assert_int_equal(enter(&place, 1, 2, ddl_deadline_in_ms(100), &store, &error), DDL_ETIMEDOUT);
            assert_non_null(strstr(error.text, "a job with another secret was there"));
            forget_asks();
        }
        /* Somebody answers: whoever that is, it is not rank 0 of this job. */
        struct knocking knocking = { .place = &place, .party = party(1, 2) };
        ddl_bytes echo = { 0 };
        pthread_t thread;
        static uint8_t run[DDL_RUN_ID_BYTES];
        memset(run, 0x22, sizeof run);
        const ddl_seal seal = { i < 2 ? forger : ours, run };
        assert_int_equal(pthread_create(&thread, NULL, knock, &knocking), 0);
        overhear_token(token);
        if (i != 3) /* a proof that was overheard elsewhere does not help one who has no such record */
            assert_true(ddl_meet_echo(&seal, token, &echo));
        snprintf(name, sizeof name, "ddl:22222222222222222222222222222222:echo:%s", token);
        forge_entry(name, "1-1", "echo", ddl_bytes_view(&echo), nobody);
        pthread_join(thread, NULL);
        assert_int_equal(knocking.status, DDL_EAUTH);
        assert_non_null(strstr(knocking.error.text, i == 0 ? "has off" : "does not know the secret"));
        const ddl_view words[] = { text_view("DEL"), text_view(name) };
        redis_server_ask(words, 2, reply, sizeof reply);
        redis_server_ask(clean, 2, reply, sizeof reply);
        forget_asks();
        ddl_bytes_fini(&echo);
    }
    assert_int_equal(redis_server_keys(), 0);
}

/* What is at the place, as the version after ours would have left it; of a rank 0 that is not there any more.
 */
static void age_meet(const struct place *place, bool is_leftover)
{
    char path[DDL_RECORD_PATH], reply[1024];
    static const char key[] = "ddl:127.0.0.1:29500:meet", mark[] = "\r\n$4\r\nmeet\r\n$156\r\n";
    ddl_bytes record = { 0 };
    bool found = false;
    snprintf(path, sizeof path, "%s/ddl-127.0.0.1_29500/meet", place->folder);
    if (place->has_keys) {
        const ddl_view words[] = { text_view("XRANGE"), text_view(key), text_view("-"), text_view("+") };
        redis_server_ask(words, 4, reply, sizeof reply);
        const char *at = strstr(reply, mark);
        assert_non_null(at);
        assert_true(ddl_bytes_append(&record, at + sizeof mark - 1, 156));
    } else {
        assert_int_equal(ddl_record_read(path, 1000, &record, &found, NULL), DDL_OK);
        assert_true(found);
    }
    record.data[0] = DDL_HELLO_VERSION + 1;
    if (is_leftover) {
        record.data[72] ^= 1; /* the token */
        assert_true(ddl_bytes_append(&record, "and more", 8));
    }
    if (place->has_keys)
        forge_entry(key, "1-1", "meet", ddl_bytes_view(&record), nobody);
    else
        assert_int_equal(ddl_record_replace(path, ddl_bytes_view(&record), NULL), DDL_OK);
    ddl_bytes_fini(&record);
}

static void another_version_is_told_where_its_rank_0_lives(void **state)
{
    static const char told[] =
        "rank %d on host[%d] has version %d of the protocol (ddl 1.2.3), but what says it is rank 0 on "
        "host[1000] has version %d; install";
    (void)state;
    for (int i = 1; i <= 2; i++) {
        struct place place;
        ddl_store *store = NULL;
        ddl_error error;
        char words[160];
        if (is(&kinds[i], "redis") && redis_server_port() == 0)
            continue;
        place_open(&place, &kinds[i], 1);
        age_meet(&place, false);
        for (int rank = 0; rank < 2; rank++) {
            snprintf(words, sizeof words, told, rank, 1000 + rank, DDL_HELLO_VERSION, DDL_HELLO_VERSION + 1);
            assert_int_equal(enter(&place, rank, 2, soon(), &store, &error), DDL_EPROTO);
            assert_non_null(strstr(error.text, words));
        }
        age_meet(&place, true);
        ddl_store_destroy(place.stores[0], soon());
        assert_int_equal(enter(&place, 1, 2, ddl_deadline_in_ms(50), &store, &error), DDL_ETIMEDOUT);
        assert_non_null(strstr(error.text, words));
        assert_null(strstr(error.text, "another secret"));
        assert_int_equal(enter(&place, 0, 1, soon(), &place.stores[0], &error), DDL_OK);
        place_close(&place);
    }
}

/* How many say in Redis that they are here. */
static int count_present(void)
{
    const ddl_view words[] = { text_view("PUBSUB"), text_view("CHANNELS"), text_view("ddl:alive:*") };
    char reply[1024];
    redis_server_ask(words, 3, reply, sizeof reply);
    assert_int_equal(reply[0], '*');
    return atoi(reply + 1);
}

/* While the mesh is made ranks look at the store now and then; who looks for them does so twice in 0.2 s. */
static void who_looks_at_redis_without_waiting_is_made_present_at_once(void **state)
{
    const ddl_view words[] = { text_view("CLIENT"), text_view("KILL"), text_view("TYPE"),
                               text_view("pubsub") };
    struct place place;
    char reply[64];
    (void)state;
    if (redis_server_port() == 0)
        return;
    place_open(&place, &kinds[2], 2);
    for (int rank = 0; rank < 2; rank++) /* and so they have looked at who lives a moment ago */
        assert_int_equal(ddl_store_check(place.stores[rank], NULL), DDL_OK);
    redis_server_ask(words, 4, reply, sizeof reply);
    assert_string_equal(reply, ":2\r\n");
    const int64_t begin_ns = ddl_now_ns();
    do
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(ddl_store_check(place.stores[rank], NULL), DDL_OK);
    while (count_present() < 2 && ddl_now_ns() - begin_ns < 2 * DDL_NS_PER_S);
    assert_true(ddl_now_ns() - begin_ns < 700 * DDL_NS_PER_MS); /* the next of those looks is after 0.8 s */
    place_close(&place);
}

static int stop_server(void **state)
{
    (void)state;
    redis_server_stop();
    return 0;
}

int main(void)
{
    static const char our_secret[] = "the secret of the tests", their_secret[] = "the secret of another job";
    ours = prover(our_secret, DDL_SECURITY_AUTH);
    theirs = prover(their_secret, DDL_SECURITY_AUTH);
    tls_job_create(&ours_at_tls, our_secret);
    tls_job_create(&theirs_at_tls, their_secret);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_has_one_id_for_all_its_ranks),
        cmocka_unit_test(values_come_back_as_they_were_set),
        cmocka_unit_test(a_value_over_the_limit_is_refused),
        cmocka_unit_test(keys_may_hold_any_text),
        cmocka_unit_test(a_key_is_set_once),
        cmocka_unit_test(a_key_whose_owner_left_is_abandoned),
        cmocka_unit_test(get_waits_until_the_key_is_set),
        cmocka_unit_test(get_ends_by_its_deadline),
        cmocka_unit_test(a_request_cut_by_its_deadline_does_not_spoil_the_next),
        cmocka_unit_test(keys_of_all_ranks_are_got_together),
        cmocka_unit_test(a_failure_reaches_everyone_and_the_first_stands),
        cmocka_unit_test(a_settled_run_cannot_fail),
        cmocka_unit_test(a_will_is_executed_when_its_rank_leaves),
        cmocka_unit_test(the_will_of_a_rank_that_set_nothing_does_not_count),
        cmocka_unit_test(waiting_calls_end_when_rank_0_goes),
        cmocka_unit_test(many_ranks_share_a_store),
        cmocka_unit_test(of_all_who_set_a_key_one_succeeds),
        cmocka_unit_test(another_world_size_is_told_and_fails_the_run),
        cmocka_unit_test(opening_ends_by_its_deadline_where_nobody_serves),
        cmocka_unit_test(a_store_takes_only_so_much),
        cmocka_unit_test(a_rank_waits_for_so_many_keys_only),
        cmocka_unit_test(a_look_is_for_so_many_keys_only),
        cmocka_unit_test(looks_let_others_have_their_turn),
        cmocka_unit_test(replies_that_nobody_reads_are_not_made),
        cmocka_unit_test(a_failure_is_heard_though_rank_0_has_gone),
        cmocka_unit_test(clients_that_take_no_part_make_room),
        cmocka_unit_test(another_secret_or_level_is_told_and_harms_nobody),
        cmocka_unit_test(names_of_the_file_store_suffice_for_what_is_told),
        cmocka_unit_test(forged_values_of_the_file_store_are_not_read),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(the_file_store_survives_what_network_file_systems_do),
        cmocka_unit_test(a_rank_0_whose_lock_is_not_seen_keeps_its_place),
        cmocka_unit_test(who_does_not_answer_loses_its_place_and_nothing_else),
        cmocka_unit_test(without_a_thread_for_its_files_nobody_enters),
#endif
        cmocka_unit_test(forged_values_in_redis_are_not_read),
        cmocka_unit_test(forged_ends_in_redis_are_told_and_not_passed_on),
        cmocka_unit_test(forged_wills_in_redis_are_passed_over),
        cmocka_unit_test(forged_echoes_in_redis_are_told_and_harm_nobody),
        cmocka_unit_test(forged_meeting_records_in_redis_are_told),
        cmocka_unit_test(only_keys_of_its_run_are_removed_in_redis),
        cmocka_unit_test(who_looks_at_redis_without_waiting_is_made_present_at_once),
        cmocka_unit_test(locks_of_other_hosts_prove_no_death),
        cmocka_unit_test(another_version_is_told_where_its_rank_0_lives),
    };
    int failed = cmocka_run_group_tests(tests, NULL, stop_server);
    ddl_proof_destroy(ours);
    ddl_proof_destroy(theirs);
    tls_job_destroy(&ours_at_tls);
    tls_job_destroy(&theirs_at_tls);
    return failed;
}
