/* store_tcp_port_owner.c - hellos that go no further than the server's answer. */
#include "rendezvous/store_tcp_port_owner.h"

#include "base/clock.h"
#include "io/connect.h"
#include "io/host.h"
#include "io/socket.h"
#include "rendezvous/store_meeting_record.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { LEVEL_LIMIT_MS = 500, RUN_LIMIT_MS = 400, PREFIX_TEXT = 8 };

/* False: nothing more comes, or not by the deadline. */
static bool read_whole(int fd, uint8_t *data, size_t bytes, ddl_deadline deadline)
{
    for (size_t at = 0; at < bytes;) {
        if (!ddl_socket_wait(fd, POLLIN, deadline))
            return false;
        ssize_t count = ddl_socket_read(fd, data + at, bytes - at);
        if (count == 0 || (count < 0 && errno != EAGAIN))
            return false;
        at += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* A connection on which this was said; -1: there is none. */
static int say(const ddl_address *at, ddl_view words, ddl_deadline deadline)
{
    int fd = -1, which;
    if (ddl_connect_any(at, 1, deadline, &fd, &which, NULL) != DDL_OK)
        return -1;
    /* A connection takes that much that has not sent anything. */
    if (ddl_socket_write(fd, words.data, words.bytes) != (ssize_t)words.bytes)
        ddl_socket_close(&fd);
    return fd;
}

/* A hello of another level would alarm a run, so this comes first. False: no answer of ddl's came. */
static bool hear_level(const ddl_address *at, ddl_security *level, ddl_deadline deadline)
{
    uint8_t question[DDL_HELLO_PREFIX_BYTES], answer[DDL_HELLO_PREFIX_BYTES];
    ddl_hello_question(question);
    int fd = say(at, (ddl_view){ question, sizeof question }, deadline);
    bool told = fd >= 0 && read_whole(fd, answer, sizeof answer, deadline) &&
                memcmp(answer, question, sizeof answer) != 0 && /* which somebody may just give back */
                ddl_hello_tells_level((ddl_view){ answer, sizeof answer }, level);
    ddl_socket_close(&fd);
    return told;
}

/* False: no answer of ddl's came. */
static bool hear_run(const ddl_address *at, const ddl_hello_party *asking, ddl_hello *hello,
                     ddl_deadline deadline)
{
    uint8_t data[DDL_HELLO_SERVER_BYTES];
    ddl_hello_start_client(hello, asking);
    ddl_view out = ddl_hello_output(hello);
    int fd = say(at, out, deadline);
    ddl_hello_sent(hello, out.bytes);
    while (fd >= 0 && hello->state == DDL_HELLO_TALKING) {
        size_t wanted = ddl_hello_wants(hello);
        if (!read_whole(fd, data, wanted, deadline))
            break;
        ddl_hello_feed(hello, data, wanted);
    }
    ddl_socket_close(&fd);
    return hello->state != DDL_HELLO_TALKING && hello->verdict != DDL_HELLO_NOT_DDL;
}

bool ddl_port_owner_text(const ddl_hello_party *self, const ddl_address *at, char text[DDL_PORT_OWNER_TEXT])
{
    static const uint8_t untold[DDL_RUN_ID_BYTES];
    const ddl_security own = ddl_prover_level(self->prover);
    ddl_hello_party asking = *self;
    ddl_hello hello;
    ddl_security level;
    char run[DDL_RUN_TEXT];
    snprintf(text, DDL_PORT_OWNER_TEXT, "another program");
    if (!hear_level(at, &level, ddl_deadline_in_ms(LEVEL_LIMIT_MS)))
        return false;
    snprintf(text, DDL_PORT_OWNER_TEXT, "another run of ddl, of security level %s", ddl_security_name(level));
    asking.channel = DDL_HELLO_FOR_STORE;
    asking.peer = 0;
    memset(asking.run_id, 0, sizeof asking.run_id);
    if (level != own || level == DDL_SECURITY_TLS || /* which tells more in a session only */
        ddl_host_random(asking.nonce, sizeof asking.nonce, NULL) != DDL_OK ||
        !hear_run(at, &asking, &hello, ddl_deadline_in_ms(RUN_LIMIT_MS)) ||
        memcmp(hello.peer.run_id, untold, sizeof untold) == 0)
        return level == own;
    ddl_meet_hex(hello.peer.run_id, DDL_RUN_ID_BYTES, run);
    snprintf(text, DDL_PORT_OWNER_TEXT, "rank %d of run %.*s of ddl (%d ranks)", hello.peer.rank, PREFIX_TEXT,
             run, hello.peer.nranks);
    return true;
}
