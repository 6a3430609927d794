/* gate_posix.c - a gate made of poll on the loop's descriptor and a pipe. */
#include "io/gate.h"

#include "base/bytes.h"
#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

struct ddl_gate {
    int loop_fd, bell[2];
    bool one_shot;
    /* ddl_gate_watch stores the first and then loads the second, the sleeper the other way round, both
     * sequentially consistently: one of them sees the other, and who arms its own gate need not be rung. */
    atomic_bool watched;
    atomic_int sleep; /* enum sleep */
};

/* Whether a sleeper watches the loop was settled when it fell asleep. One that does so in vain, as watching
 * was switched off since, is left asleep: it wakes at most once for nothing, and to wake it at each change
 * would cost two switches of threads for each call of ddl_test. */
enum sleep { AWAKE, ASLEEP, ASLEEP_WATCHING };

static bool set_flags(int fd)
{
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

ddl_status ddl_gate_create(int loop_fd, bool one_shot, ddl_gate **out, ddl_error *err)
{
    ddl_gate *gate = ddl_alloc(sizeof *gate);
    if (gate == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a gate");
    gate->loop_fd = loop_fd;
    gate->one_shot = one_shot;
    atomic_init(&gate->watched, !one_shot);
    atomic_init(&gate->sleep, AWAKE);
    if (DDL_FAILPOINT_OS("io.pipe", EMFILE) || pipe(gate->bell) != 0) {
        int cause = errno;
        ddl_free(gate);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, cause, "cannot make a pipe (see ulimit -n)");
    }
    if (!set_flags(gate->bell[0]) || !set_flags(gate->bell[1])) {
        int cause = errno;
        ddl_gate_destroy(gate);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, cause, "cannot set up a pipe");
    }
    *out = gate;
    return DDL_OK;
}

void ddl_gate_destroy(ddl_gate *gate)
{
    if (gate == NULL)
        return;
    ddl_gate_close_in_child(gate);
    ddl_free(gate);
}

ddl_gate_end ddl_gate_wait(ddl_gate *gate, int timeout_ms)
{
    atomic_store(&gate->sleep, ASLEEP);
    bool watched = atomic_load(&gate->watched);
    if (watched)
        atomic_store(&gate->sleep, ASLEEP_WATCHING);
    struct pollfd fds[2] = { { .fd = gate->bell[0], .events = POLLIN },
                             { .fd = watched ? gate->loop_fd : -1, .events = POLLIN } };
    int ready = poll(fds, 2, timeout_ms);
    atomic_store(&gate->sleep, AWAKE);
    if (ready <= 0)
        return ready == 0 ? DDL_GATE_TIME : DDL_GATE_EVENT;
    if (fds[1].revents != 0 && gate->one_shot)
        atomic_store(&gate->watched, false);
    char rings[64];
    while (fds[0].revents != 0 && read(gate->bell[0], rings, sizeof rings) == (ssize_t)sizeof rings)
        ;
    return DDL_GATE_EVENT;
}

void ddl_gate_ring(ddl_gate *gate)
{
    ssize_t put = write(gate->bell[1], "", 1);
    (void)put; /* EAGAIN: it rings already */
}

bool ddl_gate_set_alarm(ddl_gate *gate, long ns)
{
    (void)gate, (void)ns;
    return false;
}

bool ddl_gate_rest(ddl_gate *gate, long ns)
{
    struct timespec pause = { 0, ns };
    (void)gate;
    nanosleep(&pause, NULL);
    return false;
}

void ddl_gate_watch(ddl_gate *gate, bool on)
{
    bool before = atomic_exchange(&gate->watched, on);
    if (on && !before && atomic_load(&gate->sleep) == ASLEEP)
        ddl_gate_ring(gate); /* it polls an old set; let it look again */
}

void ddl_gate_close_in_child(ddl_gate *gate)
{
    if (gate->bell[0] >= 0)
        close(gate->bell[0]);
    if (gate->bell[1] >= 0)
        close(gate->bell[1]);
    gate->bell[0] = gate->bell[1] = -1;
}
