/* redis_server.c - redis-server as a child of the test. */
#include "redis_server.h"

#include "../support/folder.h"
#include "world.h"

#include "io/address.h"
#include "io/socket.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static int port, tls_port; /* tls_port: 0 without certificates */
static pid_t server;
static char folder[64], authority[96];

#ifdef DDL_TEST_REDIS
static const char without[] = "redis-server is not installed";
static bool is_installed(void)
{
    char path[4096], *at = path;
    const char *places = getenv("PATH");
    snprintf(path, sizeof path, "%s", places != NULL ? places : "/usr/bin:/bin");
    for (char *place; (place = strtok_r(at, ":", &at)) != NULL;) {
        char program[4200];
        snprintf(program, sizeof program, "%s/redis-server", place);
        if (access(program, X_OK) == 0)
            return true;
    }
    return false;
}
#else
static const char without[] = "this build is without Redis";
static bool is_installed(void)
{
    return false;
}
#endif

/* A request as it goes over the wire, and the beginning of its reply; false if nobody answers. */
static bool ask(ddl_view request, char *reply, size_t reply_bytes)
{
    ddl_address address;
    int fd = -1;
    ssize_t got = 0;
    ddl_deadline soon = ddl_deadline_in_ms(5000);
    if (!ddl_address_parse("127.0.0.1", (uint16_t)port, &address) ||
        ddl_socket_connect(&address, &fd, NULL) != DDL_OK)
        return false;
    if (ddl_socket_wait(fd, POLLOUT, soon) && ddl_socket_error(fd) == 0 &&
        ddl_socket_write(fd, request.data, request.bytes) == (ssize_t)request.bytes &&
        ddl_socket_wait(fd, POLLIN, soon))
        got = ddl_socket_read(fd, reply, reply_bytes - 1);
    ddl_socket_close(&fd);
    reply[got > 0 ? got : 0] = '\0';
    return got > 0;
}

#ifdef MAKE_CERTIFICATES
static void make_certificates(void)
{
    char command[512];
    snprintf(command, sizeof command, "'%s' '%s' >'%s/log' 2>&1", MAKE_CERTIFICATES, folder, folder);
    if (system(command) != 0)
        abort();
    snprintf(authority, sizeof authority, "%s/ca.pem", folder);
    tls_port = world_free_port();
}
#else
static void make_certificates(void)
{
}
#endif

static void run_server(void)
{
    char text[16], tls_text[16], log[96], cert[96], key[96];
    const char *words[24] = { "redis-server", "--port", text,     "--bind", "127.0.0.1",    "--dir", folder,
                              "--logfile",    log,      "--save", "",       "--appendonly", "no" };
    const char *const with_tls[] = { "--tls-port",         tls_text, "--tls-cert-file",    cert,
                                     "--tls-key-file",     key,      "--tls-ca-cert-file", authority,
                                     "--tls-auth-clients", "no" };
    snprintf(text, sizeof text, "%d", port);
    snprintf(tls_text, sizeof tls_text, "%d", tls_port);
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(cert, sizeof cert, "%s/good.pem", folder);
    snprintf(key, sizeof key, "%s/good.key", folder);
    if (tls_port != 0)
        memcpy(words + 13, with_tls, sizeof with_tls);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is killed leaves no server */
#endif
    execvp(words[0], (char *const *)words);
    _exit(127);
}

int redis_server_port(void)
{
    static bool told;
    char reply[64];
    if (server > 0)
        return port;
    if (!is_installed()) {
        if (!told)
            fprintf(stderr, "%s: nothing is tested over redis://\n", without);
        told = true;
        return 0;
    }
    port = world_free_port();
    snprintf(folder, sizeof folder, "/tmp/ddl-redis-XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    make_certificates();
    if ((server = fork()) < 0)
        abort();
    if (server == 0)
        run_server();
    for (ddl_deadline soon = ddl_deadline_in_ms(20000);
         !ask((ddl_view){ "PING\r\n", 6 }, reply, sizeof reply);) {
        if (ddl_deadline_passed(soon)) {
            fprintf(stderr, "redis-server does not come up; see %s/log\n", folder);
            abort();
        }
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(5));
    }
    return port;
}

int redis_server_tls_port(void)
{
    return redis_server_port() != 0 ? tls_port : 0;
}

const char *redis_server_authority(void)
{
    return authority;
}

void redis_server_ask(const ddl_view words[], size_t count, char *reply, size_t reply_bytes)
{
    ddl_bytes request = { 0 };
    char line[32];
    int bytes = snprintf(line, sizeof line, "*%zu\r\n", count);
    bool whole = ddl_bytes_append(&request, line, (size_t)bytes);
    for (size_t i = 0; i < count; i++) {
        bytes = snprintf(line, sizeof line, "$%zu\r\n", words[i].bytes);
        whole = whole && ddl_bytes_append(&request, line, (size_t)bytes) &&
                ddl_bytes_append(&request, words[i].data, words[i].bytes) &&
                ddl_bytes_append(&request, "\r\n", 2);
    }
    if (!whole || !ask(ddl_bytes_view(&request), reply, reply_bytes))
        abort();
    ddl_bytes_fini(&request);
}

int redis_server_keys(void)
{
    char reply[64];
    if (!ask((ddl_view){ "DBSIZE\r\n", 8 }, reply, sizeof reply) || reply[0] != ':')
        abort();
    return atoi(reply + 1);
}

void redis_server_stop(void)
{
    if (server <= 0)
        return;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    server = 0;
    (void)!remove_folder(folder);
}
