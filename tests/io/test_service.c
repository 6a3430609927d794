/* test_service.c - the service loop, what it watches, lookups, sockets and facts about the host. */
#include "io/service.h"

#include "../support/eventually.h"
#include "io/host.h"
#include "io/resolve.h"
#include "io/socket.h"
#include "io/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static ddl_service *create(void)
{
    ddl_service *service = NULL;
    assert_int_equal(ddl_service_create(&service, NULL), DDL_OK);
    return service;
}

static void call(ddl_service *service, void (*function)(void *arg), void *arg)
{
    if (ddl_service_call(service, "a test", function, arg, ddl_deadline_in_ms(60000), NULL) != DDL_OK)
        abort(); /* on any thread */
}

struct visit {
    pthread_t thread;
    bool blocked;
    int count;
};

static void visit(void *arg)
{
    struct visit *seen = arg;
    sigset_t mask;
    seen->thread = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    seen->blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) && sigismember(&mask, SIGCHLD);
    seen->count++;
}

static void calls_run_on_the_service_thread_with_signals_blocked(void **state)
{
    ddl_service *service = create();
    struct visit seen = { .count = 0 };
    (void)state;
    for (int i = 0; i < 100; i++)
        call(service, visit, &seen);
    assert_int_equal(seen.count, 100);
    assert_false(pthread_equal(seen.thread, pthread_self()));
    assert_true(seen.blocked);
    ddl_service_destroy(service);
    ddl_service_destroy(NULL);
}

static void *call_often(void *arg)
{
    void **pair = arg;
    for (int i = 0; i < 200; i++)
        call(pair[0], visit, pair[1]);
    return NULL;
}

static void many_threads_may_call_at_once(void **state)
{
    ddl_service *service = create();
    struct visit seen = { .count = 0 };
    void *pair[2] = { service, &seen };
    pthread_t threads[8];
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, pair), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(seen.count, 1600);
    ddl_service_destroy(service);
}

/* ---- a thread that is stuck ---- */

struct stall {
    ddl_service *service;
    int go[2]; /* it is stuck until it reads a byte here */
    ddl_status status;
    ddl_error error;
    int64_t took_ns;
};

static void be_stuck(void *arg)
{
    struct stall *stall = arg;
    char byte;
    (void)!read(stall->go[0], &byte, 1);
}

static void *call_what_is_stuck(void *arg)
{
    struct stall *stall = arg;
    const int64_t start_ns = ddl_now_ns();
    stall->status = ddl_service_call(stall->service, "being stuck", be_stuck, stall, start_ns, &stall->error);
    stall->took_ns = ddl_now_ns() - start_ns;
    return NULL;
}

/* A process that is stopped as a whole, and goes on: its thread has had no more of that time than its waiter.
 */
static void work_a_little(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++)
        (void)poll(NULL, 0, 30);
}

static void stop_for_a_second(pid_t pid)
{
    (void)poll(NULL, 0, 50); /* by then it waits, as a rule */
    kill(pid, SIGSTOP);
    (void)poll(NULL, 0, 1000);
    kill(pid, SIGCONT);
    _exit(0);
}

static void a_process_that_was_stopped_has_lost_nothing(void **state)
{
    (void)state;
    ddl_service *service = create();
    const pid_t self = getpid(), pid = fork();
    if (pid == 0)
        stop_for_a_second(self);
    const int64_t start_ns = ddl_now_ns();
    assert_int_equal(ddl_service_call(service, "a test", work_a_little, NULL, start_ns, NULL), DDL_OK);
    while (waitpid(pid, NULL, 0) != pid)
        assert_int_equal(errno, EINTR);
    assert_true(ddl_now_ns() - start_ns >= DDL_NS_PER_S);
    assert_true(ddl_service_destroy(service));
}

/* ---- an echo on the loop, and an alarm that ends it ---- */

struct echo {
    ddl_service *service;
    int fd;
    ddl_watch *watch;
    ddl_alarm *alarm;
    int out; /* a byte is written here when the alarm rings */
    ddl_status status;
};

static void echo_back(void *arg, int events)
{
    struct echo *echo = arg;
    char data[64];
    (void)events;
    ssize_t count = ddl_socket_read(echo->fd, data, sizeof data);
    if (count > 0)
        (void)!ddl_socket_write(echo->fd, data, (size_t)count);
}

static void ring(void *arg)
{
    struct echo *echo = arg;
    (void)!write(echo->out, "!", 1);
}

static void open_echo(void *arg)
{
    struct echo *echo = arg;
    echo->status = ddl_watch_open(echo->service, echo->fd, echo_back, echo, &echo->watch, NULL);
    if (echo->status == DDL_OK)
        echo->status = ddl_alarm_open(echo->service, ring, echo, &echo->alarm, NULL);
    if (echo->status == DDL_OK) {
        ddl_watch_set(echo->watch, DDL_READABLE);
        ddl_alarm_set(echo->alarm, 10);
    }
}

static void close_echo(void *arg)
{
    struct echo *echo = arg;
    ddl_watch_close(echo->watch);
    ddl_alarm_close(echo->alarm);
}

static void connect_pair(int pair[2])
{
    ddl_address address, bound, from;
    int listener = -1;
    assert_true(ddl_address_parse("127.0.0.1", 0, &address));
    assert_int_equal(ddl_socket_listen(&address, 1, &listener, &bound, NULL), DDL_OK);
    assert_int_equal(ddl_socket_connect(&bound, &pair[0], NULL), DDL_OK);
    assert_true(ddl_socket_wait(listener, POLLIN, ddl_deadline_in_ms(5000)));
    assert_int_equal(ddl_socket_accept(listener, &pair[1], &from), 0);
    assert_true(ddl_socket_wait(pair[0], POLLOUT, ddl_deadline_in_ms(5000)));
    assert_int_equal(ddl_socket_error(pair[0]), 0);
    ddl_socket_close(&listener);
}

/* Reads a byte at each event, and asks for more until the connection is seen to be broken. */
static void read_to_the_end(void *arg, int events)
{
    struct echo *echo = arg;
    char byte;
    (void)events;
    if (ddl_socket_read(echo->fd, &byte, 1) > 0)
        ddl_watch_set(echo->watch, DDL_READABLE);
    else
        (void)!write(echo->out, "!", 1);
}

static void open_reader(void *arg)
{
    struct echo *echo = arg;
    echo->status = ddl_watch_open(echo->service, echo->fd, read_to_the_end, echo, &echo->watch, NULL);
    if (echo->status == DDL_OK)
        ddl_watch_set(echo->watch, DDL_READABLE);
}

static void close_reader(void *arg)
{
    struct echo *echo = arg;
    ddl_watch_set(echo->watch, 0);
    ddl_watch_close(echo->watch);
}

/* libuv does not go on to watch what has an error; here data comes before it. */
static void what_has_an_error_is_watched_again(void **state)
{
    const struct linger reset = { .l_onoff = 1 };
    int pair[2], ended[2];
    struct pollfd broken;
    (void)state;
    connect_pair(pair);
    assert_int_equal(pipe(ended), 0);
    assert_int_equal(write(pair[1], "x", 1), 1);
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(pair[1]);
    broken = (struct pollfd){ .fd = pair[0] };
    assert_int_equal(poll(&broken, 1, 5000), 1);
    struct echo echo = { .service = create(), .fd = pair[0], .out = ended[1] };
    call(echo.service, open_reader, &echo);
    assert_int_equal(echo.status, DDL_OK);
    assert_true(ddl_socket_wait(ended[0], POLLIN, ddl_deadline_in_ms(5000)));
    call(echo.service, close_reader, &echo);
    ddl_service_destroy(echo.service);
    close(pair[0]), close(ended[0]), close(ended[1]);
}

static void descriptors_and_alarms_are_served(void **state)
{
    int pair[2], rung[2];
    char data[8];
    (void)state;
    connect_pair(pair);
    assert_int_equal(pipe(rung), 0);
    struct echo echo = { .service = create(), .fd = pair[1], .out = rung[1] };
    call(echo.service, open_echo, &echo);
    assert_int_equal(echo.status, DDL_OK);
    assert_int_equal(ddl_socket_write(pair[0], "hello", 5), 5);
    assert_true(ddl_socket_wait(pair[0], POLLIN, ddl_deadline_in_ms(5000)));
    assert_int_equal(ddl_socket_read(pair[0], data, sizeof data), 5);
    assert_memory_equal(data, "hello", 5);
    assert_true(ddl_socket_wait(rung[0], POLLIN, ddl_deadline_in_ms(5000)));
    call(echo.service, close_echo, &echo);
    ddl_service_destroy(echo.service);
    for (int i = 0; i < 2; i++) {
        ddl_socket_close(&pair[i]);
        ddl_socket_close(&rung[i]);
    }
}

/* It wakes up when nobody expects that any more. */
static void who_waits_for_a_stuck_thread_waits_no_longer_than_it_may(void **state)
{
    static struct stall stall; /* stays, as the service does */
    static struct visit seen;
    int pair[2];
    ddl_error error;
    pthread_t caller;
    (void)state;
    connect_pair(pair);
    assert_int_equal(pipe(stall.go), 0);
    struct echo echo = { .service = create(), .fd = pair[1], .out = -1 };
    stall.service = echo.service;
    call(stall.service, open_echo, &echo);
    assert_int_equal(echo.status, DDL_OK);
    assert_int_equal(ddl_service_check(stall.service, ddl_now_ns(), NULL), DDL_OK);
    assert_false(ddl_service_is_lost(stall.service, NULL));

    assert_int_equal(pthread_create(&caller, NULL, call_what_is_stuck, &stall), 0);
    EVENTUALLY(ddl_service_may_use(stall.service, &stall));
    const int64_t start_ns = ddl_now_ns();
    assert_int_equal(
        ddl_service_call(stall.service, "a visit", visit, &seen, ddl_deadline_in_ms(60000), &error),
        DDL_ETIMEDOUT);
    assert_true(ddl_now_ns() - start_ns < 5 * DDL_NS_PER_S); /* once the other has waited in vain */
    assert_non_null(strstr(error.text, " in being stuck; "));
    assert_false(ddl_service_may_use(stall.service, &seen));
    pthread_join(caller, NULL);
    assert_int_equal(stall.status, DDL_ETIMEDOUT);
    assert_true(ddl_service_is_lost(stall.service, &error));
    assert_string_equal(error.text, stall.error.text);
    assert_true(stall.took_ns < 5 * DDL_NS_PER_S);
    assert_non_null(strstr(stall.error.text, " in being stuck; "));
    assert_true(ddl_service_may_use(stall.service, &stall));

    const int64_t again_ns = ddl_now_ns();
    assert_int_equal(ddl_service_check(stall.service, ddl_deadline_in_ms(60000), &error), DDL_ETIMEDOUT);
    assert_false(ddl_service_destroy(stall.service));
    assert_true(ddl_now_ns() - again_ns < 5 * DDL_NS_PER_S);

    assert_int_equal(write(stall.go[1], "x", 1), 1);
    assert_true(ddl_socket_wait(pair[0], POLLIN, ddl_deadline_in_ms(60000)));
    assert_int_equal(ddl_socket_read(pair[0], &(char){ 0 }, 1), 0); /* it has closed what it held */
    assert_int_equal(seen.count, 0);
    ddl_socket_close(&pair[0]);
    close(stall.go[1]); /* the other end is the thread's, which nobody waits for */
}

static void a_forked_child_closes_what_the_loop_holds(void **state)
{
    int pair[2], rung[2], status;
    (void)state;
    connect_pair(pair);
    assert_int_equal(pipe(rung), 0);
    struct echo echo = { .service = create(), .fd = pair[1], .out = rung[1] };
    call(echo.service, open_echo, &echo);
    int backend = uv_backend_fd(ddl_service_loop(echo.service));
    pid_t pid = fork();
    if (pid == 0) {
        ddl_service_close_in_child(echo.service);
        _exit(fcntl(pair[1], F_GETFD) == -1 && fcntl(backend, F_GETFD) == -1 && fcntl(pair[0], F_GETFD) != -1
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    char data[8];
    assert_int_equal(ddl_socket_write(pair[0], "still", 5), 5); /* the parent's loop goes on */
    assert_true(ddl_socket_wait(pair[0], POLLIN, ddl_deadline_in_ms(5000)));
    assert_int_equal(ddl_socket_read(pair[0], data, sizeof data), 5);
    call(echo.service, close_echo, &echo);
    ddl_service_destroy(echo.service);
    for (int i = 0; i < 2; i++) {
        ddl_socket_close(&pair[i]);
        ddl_socket_close(&rung[i]);
    }
}

static void sockets_are_set_up_right(void **state)
{
    int pair[2];
    (void)state;
    connect_pair(pair);
    for (int i = 0; i < 2; i++) {
        assert_true(fcntl(pair[i], F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(pair[i], F_GETFD) & FD_CLOEXEC);
    }
    ddl_socket_close(&pair[1]);
    /* The first write may still succeed; none may raise SIGPIPE. */
    for (int i = 0; i < 3; i++) {
        (void)!ddl_socket_write(pair[0], "x", 1);
        (void)ddl_socket_wait(pair[0], POLLIN, ddl_deadline_in_ms(1000));
    }
    assert_int_equal(ddl_socket_write(pair[0], "x", 1), -1);
    ddl_socket_close(&pair[0]);
}

static void waiting_for_a_socket_ends_by_the_deadline(void **state)
{
    int pair[2];
    (void)state;
    connect_pair(pair);
    int64_t start_ns = ddl_now_ns();
    assert_false(ddl_socket_wait(pair[0], POLLIN, ddl_deadline_in_ms(30)));
    assert_true(ddl_now_ns() - start_ns >= 30 * DDL_NS_PER_MS);
    assert_false(ddl_socket_wait(pair[0], POLLIN, start_ns));
    ddl_socket_close(&pair[0]);
    ddl_socket_close(&pair[1]);
}

static void known_names_need_no_lookup(void **state)
{
    static const struct {
        const char *name;
        int count;
        const char *first;
    } cases[] = { { "10.1.2.3", 1, "10.1.2.3" }, { "::1", 1, "::1" }, { "localhost", 2, "127.0.0.1" } };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        ddl_address addresses[DDL_RESOLVE_MAX];
        char host[DDL_ADDRESS_HOST_TEXT];
        int count = 0;
        /* A deadline that has passed leaves no time to ask anybody. */
        assert_int_equal(ddl_resolve(cases[i].name, 7, 0, addresses, &count, NULL), DDL_OK);
        assert_int_equal(count, cases[i].count);
        ddl_address_host(&addresses[0], host);
        assert_string_equal(host, cases[i].first);
        assert_int_equal(ddl_address_port(&addresses[0]), 7);
    }
}

static void a_lookup_ends_by_its_deadline(void **state)
{
    ddl_address addresses[DDL_RESOLVE_MAX];
    ddl_error error;
    int count = 0;
    (void)state;
    int64_t start_ns = ddl_now_ns();
    assert_int_equal(
        ddl_resolve("no-such-host.invalid", 7, ddl_deadline_in_ms(500), addresses, &count, &error),
        DDL_ENETWORK);
    assert_true(ddl_now_ns() - start_ns < 1500 * DDL_NS_PER_MS);
    assert_non_null(strstr(error.text, "no-such-host.invalid"));
}

static void a_host_knows_itself(void **state)
{
    static const uint8_t none[16];
    uint8_t first[16], second[16];
    char name[DDL_HOST_NAME_TEXT], full[256];
    (void)state;
    ddl_host_id(first);
    ddl_host_id(second);
    assert_memory_equal(first, second, sizeof first);
    assert_memory_not_equal(first, none, sizeof first);
    uint16_t lowest, count = ddl_host_cpus(&lowest);
    assert_true(count >= 1);
    assert_true((long)count <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(lowest == DDL_HOST_ANY_CPU || lowest < sysconf(_SC_NPROCESSORS_CONF));
    ddl_host_name(name);
    assert_int_equal(gethostname(full, sizeof full), 0);
    assert_true(name[0] != '\0');
    assert_int_equal(strncmp(name, full, strlen(name)), 0);
    assert_true(strlen(name) == strlen(full) || strlen(name) == DDL_HOST_NAME_TEXT - 1);
    assert_int_equal(ddl_host_random(first, sizeof first, NULL), DDL_OK);
    assert_int_equal(ddl_host_random(second, sizeof second, NULL), DDL_OK);
    assert_memory_not_equal(first, second, sizeof first);
}

static void too_few_descriptors_are_told_with_numbers(void **state)
{
    struct rlimit before, tight;
    ddl_error error;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    /* In a child, as a hard limit cannot be raised again. */
    pid_t pid = fork();
    if (pid == 0) {
        tight = (struct rlimit){ .rlim_cur = 64, .rlim_max = 128 };
        if (setrlimit(RLIMIT_NOFILE, &tight) != 0)
            _exit(1);
        if (ddl_host_need_descriptors(80, "40 ranks", &error) != DDL_OK) /* by raising the soft limit */
            _exit(2);
        if (ddl_host_need_descriptors(1000, "500 ranks", &error) != DDL_ERESOURCE)
            _exit(3);
        if (ddl_host_free_descriptors(10) != 10)
            _exit(5);
        const int last = dup(STDERR_FILENO),
                  left = ddl_host_free_descriptors(1000); /* up to the hard limit */
        if (getrlimit(RLIMIT_NOFILE, &before) != 0 || before.rlim_cur != 128 || left <= 0 ||
            left >= 128 - last)
            _exit(6);
        for (int i = 0; i < left; i++)
            if (dup(STDERR_FILENO) < 0)
                _exit(7);
        if (dup(STDERR_FILENO) >= 0 || ddl_host_free_descriptors(1) != 0)
            _exit(8);
        _exit(strstr(error.text, "500 ranks need 1000") != NULL && strstr(error.text, "128") != NULL ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_few_descriptors_are_told_with_numbers), /* forks: before any thread has run */
        cmocka_unit_test(calls_run_on_the_service_thread_with_signals_blocked),
        cmocka_unit_test(many_threads_may_call_at_once),
        cmocka_unit_test(descriptors_and_alarms_are_served),
        cmocka_unit_test(who_waits_for_a_stuck_thread_waits_no_longer_than_it_may),
        cmocka_unit_test(a_process_that_was_stopped_has_lost_nothing),
        cmocka_unit_test(what_has_an_error_is_watched_again),
        cmocka_unit_test(a_forked_child_closes_what_the_loop_holds),
        cmocka_unit_test(sockets_are_set_up_right),
        cmocka_unit_test(waiting_for_a_socket_ends_by_the_deadline),
        cmocka_unit_test(known_names_need_no_lookup),
        cmocka_unit_test(a_lookup_ends_by_its_deadline),
        cmocka_unit_test(a_host_knows_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
