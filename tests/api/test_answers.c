/* test_answers.c - a rank that asks again and again, and does not read, is answered no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../rendezvous/world.h"
#include "api/comm.h"
#include "base/assert.h"
#include "base/size.h"
#include "protocol/agreement.h"
#include "transport/mesh_link.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    QUESTIONS = 400000, /* their answers are 25 MiB */
    AT_ONCE = 1000,
    MOST_BYTES = 2048 * 1024, /* that may wait for whoever does not read */
    LOOK_US = 2000,
    QUESTION_BYTES = DDL_FRAME_BYTES + DDL_FRAME_NOTICE_LIMIT
};

/* Each writes a question about world, or about a communicator of this id that was freed, and return its
 * bytes.
 */
typedef size_t asking(const ddl_comm *world, uint32_t freed, uint8_t *question);

/* In the barrier, which is done. */
static size_t ask_who_is_in(const ddl_comm *world, uint32_t freed, uint8_t *question)
{
    (void)freed;
    const ddl_frame frame = { .type = DDL_FRAME_ENTER,
                              .channel = ddl_channel_of(world->id, DDL_CHANNEL_COLLECTIVE),
                              .sequence = world->issued,
                              .signature = world->history[world->issued % DDL_HISTORY].signature };
    ddl_frame_encode(&frame, question);
    return DDL_FRAME_BYTES;
}

static size_t ask_for_life(const ddl_comm *world, uint32_t freed, uint8_t *question)
{
    (void)world;
    (void)freed;
    const ddl_frame frame = { .type = DDL_FRAME_PING };
    ddl_frame_encode(&frame, question);
    return DDL_FRAME_BYTES;
}

static size_t ask_who_is_left(const ddl_comm *world, uint32_t freed, uint8_t *question)
{
    (void)world;
    ddl_agreement *agreement;
    ddl_error error;
    ddl_bytes report = { 0 };
    DDL_ASSERT(ddl_agreement_create(1, 2, 0, &agreement, &error) == DDL_OK);
    ddl_agreement_enter(agreement);
    DDL_ASSERT(ddl_agreement_report(agreement, &report));
    const ddl_frame frame = {
        .type = DDL_FRAME_AGREE, .channel = freed * 2, .sequence = 1, .bytes = (uint32_t)report.bytes
    };
    const size_t bytes = DDL_FRAME_BYTES + report.bytes;
    ddl_frame_encode(&frame, question);
    memcpy(question + DDL_FRAME_BYTES, report.data, report.bytes);
    ddl_bytes_fini(&report);
    ddl_agreement_destroy(agreement);
    return bytes;
}

/* Returns the id of a communicator that was freed. */
static uint32_t begin(int rank, ddl_comm **world)
{
    ddl_comm *part;
    char digit[2] = { (char)('0' + rank), 0 };
    setenv("RANK", digit, 1);
    setenv("LOCAL_RANK", digit, 1);
    DDL_ASSERT(ddl_init(world, NULL) == DDL_OK);
    DDL_ASSERT(ddl_comm_split(*world, 0, 0, &part) == DDL_OK);
    const uint32_t id = part->id;
    DDL_ASSERT(ddl_comm_free(&part) == DDL_OK);
    DDL_ASSERT(ddl_barrier(*world, NULL) == DDL_OK);
    return id;
}

/* Rank 1, in whose process nobody reads from now on. */
static void ask_again_and_again(asking *ask, int told)
{
    ddl_comm *world;
    static uint8_t questions[AT_ONCE * QUESTION_BYTES];
    const uint32_t freed = begin(1, &world);
    DDL_ASSERT(ddl_engine_enter(world->engine, ddl_deadline_in_ms(5000)));
    const int fd = world->mesh->links[0].wire.fd;
    const size_t bytes = ask(world, freed, questions);
    for (size_t i = 1; i < AT_ONCE; i++)
        memcpy(questions + i * bytes, questions, bytes);
    fcntl(fd, F_SETFL, 0); /* each write waits until all of it is taken */
    for (int i = 0; i < QUESTIONS / AT_ONCE; i++)
        DDL_ASSERT(send(fd, questions, AT_ONCE * bytes, MSG_NOSIGNAL) == (ssize_t)(AT_ONCE * bytes));
    DDL_ASSERT(write(told, "", 1) == 1);
    pause();
}

static void check(asking *ask)
{
    char port[16], byte;
    int told[2];
    ddl_comm *world;
    snprintf(port, sizeof port, "%d", world_free_port());
    setenv("MASTER_PORT", port, 1);
    assert_int_equal(pipe(told), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        ask_again_and_again(ask, told[1]);
        _exit(0);
    }
    close(told[1]);
    begin(0, &world);
    size_t most = 0;
    fcntl(told[0], F_SETFL, O_NONBLOCK);
    ssize_t asked = -1;
    for (; asked < 0; asked = read(told[0], &byte, 1)) {
        DDL_ASSERT(ddl_engine_enter(world->engine, ddl_deadline_in_ms(5000)));
        const ddl_mesh_link *link = &world->mesh->links[1];
        most = ddl_size_max(most, link->control.bytes - link->control_sent);
        ddl_engine_leave(world->engine);
        usleep(LOOK_US);
    }
    kill(child, SIGKILL);
    DDL_ASSERT(waitpid(child, NULL, 0) == child);
    (void)ddl_comm_free(&world);
    close(told[0]);
    assert_int_equal(asked, 1); /* all of it */
    assert_in_range(most, 0, MOST_BYTES);
}

static void whoever_asks_who_is_in_a_call_and_does_not_read_is_answered_no_more(void **state)
{
    (void)state;
    check(ask_who_is_in);
}

static void whoever_asks_for_life_and_does_not_read_is_answered_no_more(void **state)
{
    (void)state;
    check(ask_for_life);
}

static void whoever_asks_who_is_left_and_does_not_read_is_answered_no_more(void **state)
{
    (void)state;
    check(ask_who_is_left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_asks_who_is_in_a_call_and_does_not_read_is_answered_no_more),
        cmocka_unit_test(whoever_asks_for_life_and_does_not_read_is_answered_no_more),
        cmocka_unit_test(whoever_asks_who_is_left_and_does_not_read_is_answered_no_more),
    };
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("DDL_TRANSPORT", "tcp", 1);
    setenv("DDL_SECURITY", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
