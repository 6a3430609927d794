/* world.c - threads as ranks. */
#include "world.h"

#include "io/host.h"
#include "io/socket.h"
#include "rendezvous/proof.h"
#include "rendezvous/store.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static bool set_up_right(int fd)
{
    int on = 0;
    socklen_t bytes = sizeof on;
    ddl_address own;
    ddl_socket_local(fd, &own);
    if (own.socket.ss_family == AF_UNIX)
        return (fcntl(fd, F_GETFL) & O_NONBLOCK) && (fcntl(fd, F_GETFD) & FD_CLOEXEC);
    return (fcntl(fd, F_GETFL) & O_NONBLOCK) && (fcntl(fd, F_GETFD) & FD_CLOEXEC) &&
           getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &bytes) == 0 && on;
}

/* Tell every peer who I am, and hear from each who it is. */
static bool links_work(const struct world_rank *self)
{
    ddl_deadline deadline = ddl_deadline_in_ms(10000);
    for (int peer = 0; peer < self->nranks; peer++) {
        int hello[2] = { self->rank, peer };
        if (peer == self->rank
                ? self->wires[peer].fd != -1
                : !set_up_right(self->wires[peer].fd) ||
                      ddl_socket_write(self->wires[peer].fd, hello, sizeof hello) != sizeof hello)
            return false;
    }
    for (int peer = 0; peer < self->nranks; peer++) {
        int hello[2];
        if (peer == self->rank)
            continue;
        if (!ddl_socket_wait(self->wires[peer].fd, POLLIN, deadline) ||
            ddl_socket_read(self->wires[peer].fd, hello, sizeof hello) != sizeof hello || hello[0] != peer ||
            hello[1] != self->rank)
            return false;
    }
    return true;
}

static void leave(struct world_rank *self)
{
    for (int peer = 0; peer < self->nranks && self->bootstrap != NULL; peer++)
        ddl_wire_close(&self->wires[peer]);
    ddl_bootstrap_leave(self->bootstrap);
    ddl_proof_destroy(self->prover);
    ddl_roster_destroy(self->roster);
    self->prover = NULL;
    self->bootstrap = NULL;
    self->roster = NULL;
}

/*
 * Services are made and destroyed by the test's main thread only, and kept in between: libuv closes its
 * descriptors in a way that the thread sanitizer does not see, so it would take their numbers' next use on
 * another thread for a race.
 */
static ddl_service *idle[WORLD_MAX + 8];
static int idle_count;

static ddl_service *take_service(void)
{
    ddl_service *service = NULL;
    if (idle_count > 0)
        return idle[--idle_count];
    if (ddl_service_create(&service, NULL) != DDL_OK)
        abort();
    return service;
}

void world_end(void)
{
    while (idle_count > 0)
        ddl_service_destroy(idle[--idle_count]);
}

static ddl_prover *make_prover(const char *secret)
{
    ddl_prover *prover = NULL;
    if (secret != NULL && ddl_proof_create((ddl_view){ secret, strlen(secret) }, "given by the test",
                                           DDL_SECURITY_AUTH, &prover, NULL) != DDL_OK)
        abort();
    return prover;
}

static void join(struct world_rank *self)
{
    int64_t start_ns = ddl_now_ns();
    ddl_network network = { .iface = "" };
    if (self->iface != NULL)
        snprintf(network.iface, sizeof network.iface, "%s", self->iface);
    self->prover = make_prover(self->secret);
    ddl_bootstrap_options options = {
        .rank = self->rank,
        .nranks = self->nranks,
        .store = self->store,
        .master = self->master,
        .network = &network,
        .local = !self->apart,
        .quiet = self->quiet,
        .generator = self->generator,
        .prover = self->prover,
        .costs = self->costs,
        .ncosts = self->ncosts,
        .service = self->service,
        .deadline = ddl_deadline_in_ms(self->timeout_ms),
    };
    self->status = ddl_bootstrap_join(&options, &self->bootstrap, &self->roster, self->wires, &self->error);
    self->seconds = (double)(ddl_now_ns() - start_ns) / 1e9;
}

static void *run(void *arg)
{
    struct world_rank *self = arg;
    int rounds = self->rounds > 0 ? self->rounds : 1;
    for (int round = 0; round < rounds; round++) {
        join(self);
        if (self->status != DDL_OK)
            break;
        self->run_id_first = self->roster->run_id[0] << 8 | self->roster->run_id[1];
        self->node_count = self->roster->node_count;
        self->local_size = self->roster->local_size_of[self->rank];
        self->links_work = (round == 0 || self->links_work) && links_work(self);
        self->rounds_done++;
        if (!self->stays)
            leave(self);
    }
    if (self->status != DDL_OK)
        leave(self);
    return NULL;
}

void world_init(struct world_rank ranks[], int nranks, const char *store, int64_t timeout_ms)
{
    for (int rank = 0; rank < nranks; rank++)
        ranks[rank] = (struct world_rank){ .rank = rank,
                                           .nranks = nranks,
                                           .store = store,
                                           .master = "127.0.0.1:29500",
                                           .secret = "a secret of the tests, and no other",
                                           .timeout_ms = timeout_ms };
}

void world_start(struct world_rank *rank)
{
    rank->status = DDL_EINTERNAL;
    rank->links_work = false;
    rank->rounds_done = 0;
    rank->prover = NULL;
    rank->bootstrap = NULL;
    rank->roster = NULL;
    rank->service = take_service();
    if (pthread_create(&rank->thread, NULL, run, rank) != 0)
        abort();
    rank->running = true;
}

void world_rest(struct world_rank *rank)
{
    if (rank->running)
        pthread_join(rank->thread, NULL);
    rank->running = false;
}

void world_finish(struct world_rank *rank)
{
    world_rest(rank);
    if (rank->service == NULL)
        return;
    leave(rank);
    idle[idle_count++] = rank->service;
    rank->service = NULL;
}

pid_t world_fork(const struct world_rank *rank)
{
    world_end();
    pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid > 0)
        return pid;
    struct world_rank self = *rank;
    self.service = take_service();
    join(&self);
    for (;;)
        pause();
}

void world_kill(pid_t pid)
{
    int status;
    if (kill(pid, SIGKILL) != 0 || waitpid(pid, &status, 0) != pid)
        abort();
}

int world_await_member(const struct world_rank *like, int observer, int rank)
{
    ddl_prover *prover = make_prover(like->secret);
    ddl_hello_party self = { .rank = observer,
                             .nranks = like->nranks,
                             .host = "observer",
                             .nonce = { 1 },
                             .level = ddl_prover_level(prover),
                             .prover = prover };
    ddl_store_options options = { .url = like->store, .place = like->master, .self = &self };
    ddl_deadline deadline = ddl_deadline_in_ms(like->timeout_ms);
    ddl_store *store = NULL;
    ddl_bytes value = { 0 };
    ddl_member member;
    ddl_error error;
    char key[32];
    snprintf(key, sizeof key, "member.%d", rank);
    if (ddl_store_open(&options, deadline, &store, &error) != DDL_OK ||
        ddl_store_get(store, key, deadline, &value, &error) != DDL_OK ||
        ddl_member_decode(ddl_bytes_view(&value), &member, &error) != DDL_OK) {
        fprintf(stderr, "cannot see rank %d: %s\n", rank, error.text);
        abort();
    }
    ddl_bytes_fini(&value);
    ddl_store_destroy(store, deadline);
    ddl_proof_destroy(prover);
    return member.port;
}

/* Whether no other test that runs now is about to use this port; from now on none is, for as long as this one
 * has not taken as many more as are kept. As free_port in tests/process/world.py. */
static bool claim_port(uint16_t port)
{
#ifdef __linux__ /* where sockets have names that are no files */
    enum { KEPT = 64 };
    static int kept[KEPT];
    static int next;
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int bytes = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "test-port-%u", (unsigned)port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, length) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (kept[next] > 0)
        close(kept[next]);
    kept[next] = fd;
    next = (next + 1) % KEPT;
#else
    (void)port;
#endif
    return true;
}

/*
 * Below those that the system gives out, so that no connection of another test gets it meanwhile, and below
 * those of tests/process/world.py.
 */
int world_free_port(void)
{
    enum { FIRST_PORT = 16384, LAST_PORT = 20479 };
    for (;;) {
        ddl_address address, bound;
        uint16_t wanted;
        int fd = -1;
        if (ddl_host_random(&wanted, sizeof wanted, NULL) != DDL_OK)
            abort();
        wanted = (uint16_t)(FIRST_PORT + wanted % (LAST_PORT - FIRST_PORT + 1));
        if (!ddl_address_parse("127.0.0.1", wanted, &address))
            abort();
        if (!claim_port(wanted) || ddl_socket_listen(&address, 1, &fd, &bound, NULL) != DDL_OK)
            continue;
        close(fd);
        return wanted;
    }
}

const char *world_tcp_url(char url[64])
{
    snprintf(url, 64, "tcp://127.0.0.1:%d", world_free_port());
    return url;
}
