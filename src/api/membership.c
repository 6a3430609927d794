/*
 * membership.c - from the environment and the meeting place to a secret.
 *
 * What is read once has to stay for the next ddl_init: the secrets below are among the few mutable globals,
 * and stay within this file.
 */
#include "api/membership.h"

#include "base/aside.h"
#include "base/bytes.h"
#include "base/log.h"
#include "io/address.h"
#include "io/guarded.h"
#include "io/note.h"
#include "rendezvous/proof.h"
#include "rendezvous/secret.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char note_magic[] = DDL_NOTE_MAGIC;

enum { MAGIC_BYTES = sizeof note_magic - 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows, and the environment */
static ddl_secret *of_launcher, *of_environment, *of_process;
static bool launcher_lost; /* what it left could not be read */
static int unmarked = -1;  /* what it left, until this process joins its job */

/* An unset variable and an empty one are the same. */
static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

/* ---- taking; with the lock held ---- */

/* Whether fd holds a note of ddl-launch; then it is read, and kept to be marked. */
static bool take_note(int fd, uint8_t *data, size_t *bytes)
{
    bool taken = fd >= 0 && ddl_note_read(fd, data, bytes) && *bytes > MAGIC_BYTES &&
                 memcmp(data, note_magic, MAGIC_BYTES) == 0;
    if (taken) {
        if (unmarked >= 0)
            close(unmarked);
        unmarked = fd;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return taken;
}

/* Who has joined the launcher's job may end before the others; a world of one's own does not count. */
static void mark_note(void)
{
    if (unmarked < 0 || env("DDL_LAUNCH") == NULL)
        return;
    ddl_note_mark(unmarked);
    close(unmarked);
    unmarked = -1;
}

/* A note is the magic, where the secret came from, a line end, and the secret. */
static ddl_status read_note(const uint8_t *data, size_t bytes, ddl_secret **secret, ddl_error *err)
{
    char source[DDL_SECRET_SOURCE];
    const uint8_t *from = data + MAGIC_BYTES;
    const uint8_t *end = memchr(from, '\n', bytes - MAGIC_BYTES);
    if (end == NULL)
        return DDL_FAIL(err, DDL_ECONFIG, "ddl-launch left a note that is none");
    snprintf(source, sizeof source, "%.*s, handed over by ddl-launch", (int)(end - from), (const char *)from);
    return ddl_secret_create((ddl_view){ end + 1, bytes - (size_t)(end + 1 - data) }, source, secret, err);
}

static ddl_status fail_to_take(ddl_error *err)
{
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "ddl-launch left this job's secret in a descriptor that a program in between has closed; let "
        "it hand that on (in Python: close_fds=False), or have it set DDL_SECRET_FILE for all ranks");
}

static ddl_status take_from_launcher(ddl_error *err)
{
    const char *text = env("DDL_SECRET_FD");
    if (text == NULL)
        return launcher_lost ? fail_to_take(err) : DDL_OK;
    char *end;
    long number = strtol(text, &end, 10);
    int fd = *end == '\0' && number > STDERR_FILENO && number < 1 << 20 ? (int)number : -1;
    unsetenv("DDL_SECRET_FD");
    launcher_lost = true;
    uint8_t *data = ddl_guarded_alloc(DDL_NOTE_BYTES);
    size_t bytes = 0;
    if (data == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
    bool taken =
        take_note(fd, data, &bytes) || (fd >= 0 && take_note(ddl_note_of_ancestor(fd), data, &bytes));
    ddl_secret *secret = NULL;
    ddl_status status = taken ? read_note(data, bytes, &secret, err) : fail_to_take(err);
    if (status == DDL_OK) {
        ddl_secret_destroy(of_launcher);
        of_launcher = secret;
        launcher_lost = false;
    }
    ddl_guarded_free(data, DDL_NOTE_BYTES);
    return status;
}

static ddl_status take_from_environment(int rank, ddl_error *err)
{
    char *value = getenv("DDL_SECRET");
    if (value == NULL)
        return DDL_OK;
    ddl_secret *secret = NULL;
    ddl_status status = DDL_OK;
    size_t bytes = strlen(value);
    if (bytes > 0)
        status = ddl_secret_create((ddl_view){ value, bytes }, "from DDL_SECRET", &secret, err);
    ddl_clear(value, bytes); /* where it is also seen from outside: /proc/PID/environ */
    unsetenv("DDL_SECRET");
    if (secret == NULL)
        return status;
    ddl_secret_destroy(of_environment);
    of_environment = secret;
    if (rank == 0)
        ddl_log(DDL_LOG_WARNING, "DDL_SECRET was in the environment, where this user's other processes can "
                                 "read it; a file named by "
                                 "DDL_SECRET_FILE is better");
    return DDL_OK;
}

/* ---- choosing ---- */

static bool is_loopback_place(const char *store)
{
    static const char tcp[] = "tcp://";
    char host[256];
    uint16_t port;
    ddl_address address;
    if (strncmp(store, tcp, sizeof tcp - 1) != 0 ||
        ddl_address_split("ADDRESS", store + sizeof tcp - 1, host, sizeof host, &port, NULL) != DDL_OK)
        return false;
    return strcasecmp(host, "localhost") == 0 ||
           (ddl_address_parse(host, port, &address) && ddl_address_is_loopback(&address));
}

/* In a forked child what its parent kept is wiped. */
static bool is_wiped(const ddl_secret *secret)
{
    return secret != NULL && ddl_secret_view(secret).bytes == 0;
}

/* Of a job of ddl-launch that has one: it is behind the secrets that are handed over. */
static const char *job_name(void)
{
    const char *name = env("TORCHELASTIC_RUN_ID");
    return env("DDL_LAUNCH") != NULL && name != NULL && strcmp(name, "none") != 0 ? name : NULL;
}

static char *copy_of(const char *text)
{
    const size_t bytes = text != NULL ? strlen(text) + 1 : 0;
    char *copy = bytes > 0 ? ddl_alloc(bytes) : NULL;
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

/* What is looked for in files. It may be given up, so it has what it needs itself, but for the name of a home
 * directory, which comes first. */
struct search {
    enum { NOTHING, NAMED, OF_HOST, OF_HOME } where; /* the secret is */
    char *file;                                      /* NAMED */
    char *job;                                       /* of which there are several with that; NULL: not */
    ddl_config config;
    ddl_prover *prover; /* may have been found without files */
    ddl_encryption *encryption;
};

static void forget(void *state)
{
    struct search *search = state;
    ddl_encryption_destroy(search->encryption);
    ddl_proof_destroy(search->prover);
    ddl_free(search->file);
    ddl_free(search->job);
    ddl_free(search);
}

static ddl_status use(struct search *search, const ddl_secret *secret, ddl_error *err)
{
    return ddl_proof_create(ddl_secret_view(secret), ddl_secret_source(secret), search->config.security,
                            &search->prover, err);
}

static ddl_status use_file(struct search *search, const char *file, const char *job, ddl_error *err)
{
    search->where = NAMED;
    search->file = copy_of(file);
    search->job = copy_of(job);
    if (search->file == NULL || (search->job == NULL && job != NULL))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the name of a file");
    return DDL_OK;
}

/* One of this process, or a place to look for it. */
static ddl_status choose(struct search *search, ddl_error *err)
{
    const ddl_config *config = &search->config;
    const char *file = env("DDL_SECRET_FILE");
    ddl_error unwanted;
    ddl_status taken = take_from_launcher(err);
    mark_note();
    ddl_status also_taken = take_from_environment(config->rank, taken == DDL_OK ? err : &unwanted);
    if (config->nranks == 1 || config->security == DDL_SECURITY_OFF)
        return DDL_OK;
    if (launcher_lost && file != NULL) /* whoever closed the descriptor has set it instead */
        return use_file(search, file, job_name(), err);
    DDL_TRY(taken);
    DDL_TRY(also_taken);
    if (is_wiped(of_launcher) || (file == NULL && is_wiped(of_environment)))
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "this process was forked from one that had the job's secret, which it has not; start it "
            "with exec, or give all ranks the same DDL_SECRET_FILE");
    if (is_wiped(of_process)) {
        ddl_secret_destroy(of_process);
        of_process = NULL;
    }
    if (of_launcher != NULL && (file != NULL || of_environment != NULL))
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "%s is set, but ddl-launch has handed over the secret of this job; unset it, or start "
            "ddl-launch with --secret_file",
            file != NULL ? "DDL_SECRET_FILE" : "DDL_SECRET");
    if (of_launcher != NULL)
        return use(search, of_launcher, err);
    if (file != NULL)
        return use_file(search, file, NULL, err);
    if (of_environment != NULL)
        return use(search, of_environment, err);
    if (strncmp(config->store, "mem://", 6) == 0) {
        if (of_process == NULL)
            DDL_TRY(ddl_secret_make("of this process", &of_process, err));
        return use(search, of_process, err);
    }
    search->where = is_loopback_place(config->store) ? OF_HOST : OF_HOME;
    return DDL_OK;
}

/* ---- looking ---- */

static ddl_status read_named(const char *file, const char *job, ddl_secret **secret, ddl_error *err)
{
    ddl_error why;
    const ddl_status status = ddl_secret_read(file, secret, &why);
    if (status != DDL_OK && err != NULL) {
        *err = why;
        snprintf(err->text, sizeof err->text, "DDL_SECRET_FILE: %.480s", why.text);
    }
    return status == DDL_OK ? ddl_secret_name_job(secret, job, err) : status;
}

static ddl_status read_secret(const struct search *search, ddl_secret **secret, ddl_error *err)
{
    char path[DDL_SECRET_PATH];
    if (search->where == NAMED)
        return read_named(search->file, search->job, secret, err);
    return search->where == OF_HOST ? ddl_secret_of_host(secret, err)
                                    : ddl_secret_of_home(true, path, NULL, secret, err);
}

static ddl_status look_for_secret(void *state, ddl_error *err)
{
    struct search *search = state;
    ddl_secret *secret = NULL;
    DDL_TRY(read_secret(search, &secret, err));
    const ddl_status status = use(search, secret, err);
    ddl_secret_destroy(secret);
    return status;
}

static ddl_status look_for_certificates(void *state, ddl_error *err)
{
    struct search *search = state;
    const ddl_config *config = &search->config;
    const ddl_encryption_options options = { .ca_file = config->tls_ca,
                                             .cert_file = config->tls_cert,
                                             .key_file = config->tls_key,
                                             .job = config->tls_job,
                                             .openssl_aes = config->openssl_aes };
    return ddl_encryption_create(&options, search->prover, &search->encryption, err);
}

/* By deadline. After *lost the search is no longer the caller's. */
static ddl_status look_aside(struct search *search, ddl_status (*look)(void *state, ddl_error *err),
                             const char *what, bool *lost, ddl_error *err)
{
    const int rank = search->config.rank;
    const ddl_aside looking = { look, forget, search, what };
    const ddl_status status = ddl_aside_run(&looking, search->config.start_until, lost, err);
    return *lost ? ddl_error_blame(err, rank) : status;
}

static ddl_status look(struct search *search, bool *lost, ddl_error *err)
{
    char what[256] = "reading the secret of this user's home directory";
    if (search->where == NAMED)
        snprintf(what, sizeof what, "reading DDL_SECRET_FILE=%.200s", search->file);
    else if (search->where == OF_HOST)
        snprintf(what, sizeof what, "reading the secret of this user on this host");
    if (search->where != NOTHING)
        DDL_TRY(look_aside(search, look_for_secret, what, lost, err));
    if (ddl_prover_level(search->prover) != DDL_SECURITY_TLS)
        return DDL_OK;
    snprintf(what, sizeof what, "reading what certifies this rank%s%.200s",
             search->config.tls_cert[0] != '\0' ? ", DDL_TLS_CERT=" : "", search->config.tls_cert);
    return look_aside(search, look_for_certificates, what, lost, err);
}

ddl_status ddl_membership_find(const ddl_config *config, ddl_prover **prover, ddl_encryption **encryption,
                               ddl_error *err)
{
    bool lost = false;
    *prover = NULL;
    *encryption = NULL;
    struct search *search = ddl_alloc(sizeof *search);
    if (search == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for what shows that this rank belongs to the job");
    search->config = *config;
    pthread_mutex_lock(&lock);
    ddl_status status = choose(search, err);
    pthread_mutex_unlock(&lock);
    if (status == DDL_OK)
        status = look(search, &lost, err);
    if (lost)
        return status;
    *prover = search->prover;
    *encryption = search->encryption;
    search->prover = NULL;
    search->encryption = NULL;
    forget(search);
    return status;
}
