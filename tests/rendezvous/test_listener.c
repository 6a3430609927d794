/* test_listener.c - the door takes turns with what else is on its loop. */
#include "rendezvous/listener.h"

#include "base/log.h"
#include "io/socket.h"
#include "io/watch.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { CALLERS = 200, ACCEPTS_PER_TURN = 64, PATIENCE_MS = 20000 };

/* Who calls says what is no hello, so whoever is accepted is refused on the spot, and counts. */
struct crowd {
    ddl_service *service;
    ddl_listener *listener;
    ddl_watch *other;    /* on the same loop, and always ready */
    int always[2], done; /* done: written to when all were seen */
    int callers[CALLERS];
    int refused, refused_before, most, turns; /* between two events of other */
    ddl_status status;
};

static void on_other(void *arg, int events)
{
    struct crowd *crowd = arg;
    int since = crowd->refused - crowd->refused_before;
    (void)events;
    crowd->most = since > crowd->most ? since : crowd->most;
    crowd->turns += since > 0 ? 1 : 0;
    crowd->refused_before = crowd->refused;
    if (crowd->refused == CALLERS) {
        ddl_watch_set(crowd->other, 0);
        (void)!write(crowd->done, "x", 1);
    }
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    (void)arg, (void)from;
    ddl_hello_judge(hello, DDL_HELLO_NOT_DDL);
}

static void refused(void *arg, const ddl_hello *hello, const ddl_address *from)
{
    (void)hello, (void)from;
    ((struct crowd *)arg)->refused++;
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    (void)arg, (void)hello, (void)from;
    ddl_wire_close(&wire);
}

/* All have called, and spoken, before the loop has its first turn. */
static void gather(void *arg)
{
    static const ddl_listener_events events = { judge, refused, entered };
    static const char nonsense[DDL_HELLO_CLIENT_BYTES] = "nonsense";
    struct crowd *crowd = arg;
    const ddl_listener_options options = {
        .service = crowd->service,
        .self = { .channel = DDL_HELLO_FOR_MESH, .nranks = CALLERS }, /* so many may wait to be accepted */
        .events = &events,
        .arg = crowd,
    };
    ddl_address address, bound;
    bool well =
        ddl_address_parse("127.0.0.1", 0, &address) &&
        ddl_listener_open(&options, &address, &bound, &crowd->listener, NULL) == DDL_OK &&
        ddl_watch_open(crowd->service, crowd->always[0], on_other, crowd, &crowd->other, NULL) == DDL_OK;
    for (int i = 0; i < CALLERS && well; i++) {
        int fd = crowd->callers[i] = socket(AF_INET, SOCK_STREAM, 0);
        well = fd >= 0 && connect(fd, (struct sockaddr *)&bound.socket, bound.bytes) == 0 &&
               write(fd, nonsense, sizeof nonsense) == (ssize_t)sizeof nonsense;
    }
    if (well)
        ddl_watch_set(crowd->other, DDL_READABLE);
    crowd->status = well ? DDL_OK : DDL_ENETWORK;
}

static void disperse(void *arg)
{
    struct crowd *crowd = arg;
    ddl_watch_close(crowd->other);
    ddl_listener_close(crowd->listener);
}

static void call(ddl_service *service, void (*function)(void *arg), void *arg)
{
    if (ddl_service_call(service, "a test", function, arg, ddl_deadline_in_ms(60000), NULL) != DDL_OK)
        abort(); /* on any thread */
}

static void a_crowd_at_the_door_leaves_others_their_turns(void **state)
{
    static struct crowd crowd;
    int done[2];
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR); /* not of each whom it turns away */
    assert_int_equal(pipe(crowd.always), 0);
    assert_int_equal(write(crowd.always[1], "x", 1), 1);
    assert_int_equal(pipe(done), 0);
    crowd.done = done[1];
    assert_int_equal(ddl_service_create(&crowd.service, NULL), DDL_OK);
    call(crowd.service, gather, &crowd);
    assert_int_equal(crowd.status, DDL_OK);
    struct pollfd all_seen = { .fd = done[0], .events = POLLIN };
    assert_int_equal(poll(&all_seen, 1, PATIENCE_MS), 1);
    call(crowd.service, disperse, &crowd);
    ddl_service_destroy(crowd.service);
    assert_int_equal(crowd.refused, CALLERS);
    assert_in_range(crowd.most, 1, ACCEPTS_PER_TURN);
    assert_true(crowd.turns >= CALLERS / ACCEPTS_PER_TURN);
    for (int i = 0; i < CALLERS; i++)
        close(crowd.callers[i]);
    for (int i = 0; i < 2; i++) {
        close(crowd.always[i]);
        close(done[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_at_the_door_leaves_others_their_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
