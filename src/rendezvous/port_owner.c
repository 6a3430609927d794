/* port_owner.c - a hello that goes no further than the server's answer. */
#include "rendezvous/port_owner.h"

#include "base/clock.h"
#include "io/connect.h"
#include "io/host.h"
#include "io/socket.h"
#include "rendezvous/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { ASK_LIMIT_MS = 500, PREFIX_TEXT = 8 };

/* False: no answer of ddl's came. */
static bool hear_answer(int fd, ddl_hello *hello, ddl_deadline deadline)
{
    uint8_t data[DDL_HELLO_SERVER_BYTES];
    ddl_view out = ddl_hello_output(hello);
    /* A connection takes that much that has not sent anything. */
    if (ddl_socket_write(fd, out.data, out.bytes) != (ssize_t)out.bytes)
        return false;
    ddl_hello_sent(hello, out.bytes);
    while (hello->state == DDL_HELLO_TALKING) {
        size_t wanted = ddl_hello_wants(hello);
        if (!ddl_socket_wait(fd, POLLIN, deadline))
            return false;
        ssize_t count = ddl_socket_read(fd, data, wanted < sizeof data ? wanted : sizeof data);
        if (count == 0 || (count < 0 && errno != EAGAIN))
            return false;
        if (count > 0)
            ddl_hello_feed(hello, data, (size_t)count);
    }
    return hello->verdict != DDL_HELLO_NOT_DDL;
}

void ddl_port_owner_text(const ddl_hello_party *self, const ddl_address *at, char text[DDL_PORT_OWNER_TEXT])
{
    static const uint8_t untold[DDL_RUN_ID_BYTES];
    const ddl_deadline deadline = ddl_deadline_in_ms(ASK_LIMIT_MS);
    ddl_hello_party asking = *self;
    ddl_hello hello;
    char run[DDL_RUN_TEXT];
    int fd = -1, which;
    snprintf(text, DDL_PORT_OWNER_TEXT, "another program");
    if (ddl_prover_level(self->prover) ==
        DDL_SECURITY_TLS) /* a hello in clear would alarm a run of that level */
        return;
    asking.channel = DDL_CHANNEL_STORE;
    asking.peer = 0;
    memset(asking.run_id, 0, sizeof asking.run_id);
    if (ddl_host_random(asking.nonce, sizeof asking.nonce, NULL) != DDL_OK ||
        ddl_connect_any(at, 1, deadline, &fd, &which, NULL) != DDL_OK)
        return;
    ddl_hello_start_client(&hello, &asking);
    bool answered = hear_answer(fd, &hello, deadline);
    ddl_socket_close(&fd);
    if (!answered)
        return;
    ddl_meet_hex(hello.peer.run_id, DDL_RUN_ID_BYTES, run);
    if (memcmp(hello.peer.run_id, untold, sizeof untold) != 0)
        snprintf(text, DDL_PORT_OWNER_TEXT, "rank %d of run %.*s of ddl (%d ranks)", hello.peer.rank,
                 PREFIX_TEXT, run, hello.peer.nranks);
    else if (hello.verdict == DDL_HELLO_OTHER_LEVEL)
        snprintf(text, DDL_PORT_OWNER_TEXT, "another run of ddl, of security level %s",
                 ddl_security_name(hello.peer.level));
    else
        snprintf(text, DDL_PORT_OWNER_TEXT, "another run of ddl");
}
