/*
 * actor - one rank that does what its arguments say, and tells on stdout what came of it.
 *
 *     actor init allreduce:1000:float32:sum free
 *
 * Each command prints one line of JSON: the call, its status, when it began and ended (monotonic
 * nanoseconds, comparable between processes), and the error record where it failed. A failing call does
 * not end the program. Commands:
 *
 *     init  free  timeout:MS  facts  resources
 *     chosen:COLLECTIVE:COUNT   the algorithm for so many float32
 *     free_at_exit   free the world after the library's own exit handler
 *     calls_at_exit  likewise, and before that make a call, wait for all started, split and abort
 *     joins_at_exit  likewise, and before that join a thread that waits for all started from here on
 *     exit_in_free:USEC   free the world in another thread, and exit with 0 so long after it has begun
 *     split:NAME:COLOR:KEY  shrink:NAME  abort:REASON  use:NAME
 *     cases:SEED:N   so many random calls (see cases.h), on parts of the communicator too
 *     allreduce:COUNT:DTYPE:OP  reduce_scatter:COUNT:DTYPE:OP  reduce:COUNT:DTYPE:OP:ROOT
 *     gather:COUNT:DTYPE:ROOT  scatter:COUNT:DTYPE:ROOT  allgather:COUNT:DTYPE  alltoall:COUNT:DTYPE
 *     broadcast:COUNT:DTYPE:ROOT  barrier  send:COUNT:DTYPE:PEER  recv:COUNT:DTYPE:PEER
 *     +CALL          start it
 *     wait           wait for all started, in order, a line for each
 *     N=CALL         repeat it N times, or until it fails
 *     forever=CALL   repeat it until it fails
 *     paced:MS=CALL  likewise, so long apart
 *     cycle:N        init, allreduce, free, N times
 *     stuck_log      lines of the log go to a function that takes 20 s for each
 *     line           wait for a line on stdin
 *     mortal:USEC    tell the time and die by SIGKILL that many microseconds from now
 *     fork:exit  fork:_exit   a child calls the library, forks, and ends that way; wait for it
 *                    (1: files of its own are closed in its child)
 *     fork:stay      a child that does nothing but live on with what it inherited
 *     forking:MS     fork such a child so many ms from now, in another thread
 *     exit:CODE  _exit:CODE
 *     set:NAME=VALUE   a variable of the environment
 *     close:ADDRESS  replace:ADDRESS   of the library's connections with that IPv4 address: close the
 *                    descriptors, or have them be /dev/null
 *
 * Calls are on the communicator in use: the world ("world") until another was split off or shrunk from it and
 * chosen by its name; after freeing that one the world again. Results are compared with the serial oracle;
 * "exact" says how that went.
 */
#include "../conformance/cases.h"
#include "../support/now.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STARTED_AT_MOST = 16,
    COMMS_AT_MOST = 8,
    CASES_MAX_COUNT = 5000,
    STAY_SECONDS = 60,
    FDS_AT_MOST = 1024
};

/* A call with its buffers; made once and run many times. */
struct job {
    oracle_call what;
    ddl_comm *comm;
    int rank;             /* in comm */
    bool sends, receives; /* point to point */
    int other;
    void *send, *recv, *first; /* first: an earlier result that the oracle agreed with */
    size_t recv_bytes;
    ddl_request *request;
    char text[80];
};

struct named {
    char name[16];
    ddl_comm *comm;
};

struct actor {
    struct named comms[COMMS_AT_MOST]; /* the first is the world */
    int ncomms;
    struct named *in_use;
    struct job *started[STARTED_AT_MOST];
    int nstarted;
};

static void die(const char *what, const char *argument)
{
    fprintf(stderr, "actor: %s: %s\n", what, argument);
    exit(2);
}

static void *room(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL)
        die("no memory", "");
    return memory;
}

/* ---- records ---- */

static void print_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        if ((unsigned char)*text < ' ')
            printf("\\u%04x", (unsigned)*text);
        else
            putchar(*text);
    }
    putchar('"');
}

static void open_record(const char *event)
{
    printf("{\"event\":");
    print_text(event);
    printf(",\"pid\":%ld", (long)getpid());
}

static void close_record(void)
{
    printf("}\n");
    fflush(stdout);
}

static void print_outcome(ddl_status status, int64_t begin_ns)
{
    const ddl_error *e = ddl_last_error();

    printf(",\"status\":\"%s\",\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64, ddl_status_name(status),
           begin_ns, now_ns());
    if (status == DDL_OK)
        return;
    printf(",\"code\":\"%s\",\"rank\":%d,\"culprit\":%d,\"sequence\":%" PRIu64
           ",\"os_errno\":%d,\"operation\":",
           ddl_status_name(e->code), e->rank, e->culprit, e->sequence, e->os_errno);
    print_text(e->operation);
    printf(",\"text\":");
    print_text(e->text);
}

static void tell(const char *event, ddl_status status, int64_t begin_ns)
{
    open_record(event);
    print_outcome(status, begin_ns);
    close_record();
}

/* ---- calls ---- */

static long field_number(char **rest, long missing)
{
    char *field = strsep(rest, ":");
    return field == NULL ? missing : strtol(field, NULL, 10);
}

static struct job *job_create(const struct actor *a, const char *text)
{
    static const char *const ways[] = { "send", "recv" };
    struct job *job = room(sizeof *job);
    char copy[sizeof job->text], *rest = copy, *name, *field;
    oracle_call *w = &job->what;
    int kind;

    if (strlen(text) >= sizeof copy)
        die("too long", text);
    job->comm = a->in_use->comm;
    job->rank = ddl_rank(job->comm);
    strcpy(copy, text);
    strcpy(job->text, text);
    name = strsep(&rest, ":");
    kind = oracle_kind_parse(name);
    job->sends = strcmp(name, ways[0]) == 0;
    job->receives = strcmp(name, ways[1]) == 0;
    if ((kind < 0 && !job->sends && !job->receives) || (kind >= 0 && oracle_is_uneven((oracle_kind)kind)))
        die("unknown command", text);
    w->kind = kind < 0 ? ORACLE_PAIR : (oracle_kind)kind;
    w->nranks = ddl_size(job->comm) > 0 ? ddl_size(job->comm) : 1;
    w->count = (size_t)field_number(&rest, 0);
    w->dtype = DDL_FLOAT32;
    if ((field = strsep(&rest, ":")) != NULL)
        w->dtype = (ddl_dtype)oracle_dtype_parse(field);
    if (oracle_reduces(w->kind) && (field = strsep(&rest, ":")) != NULL)
        w->op = (ddl_op)oracle_op_parse(field);
    job->other = (int)field_number(&rest, 0);
    w->root = job->receives ? job->other : job->sends ? job->rank : job->other;
    w->peer = job->receives ? job->rank : job->other;
    job->send = room((size_t)w->nranks * w->count * 8);
    job->recv = room((size_t)w->nranks * w->count * 8);
    job->first = room((size_t)w->nranks * w->count * 8);
    if (job->comm != NULL) {
        job->recv_bytes = oracle_recv_count(w, job->rank) * ddl_dtype_bytes(w->dtype);
        oracle_fill(w, 1, job->rank, w->kind == ORACLE_BROADCAST ? job->recv : job->send);
    }
    return job;
}

static void job_destroy(struct job *job)
{
    free(job->send);
    free(job->recv);
    free(job->first);
    free(job);
}

static ddl_status job_issue(struct job *job, ddl_request **request)
{
    const oracle_call *w = &job->what;

    switch (w->kind) {
    case ORACLE_ALLREDUCE:
        return ddl_allreduce(job->send, job->recv, w->count, w->dtype, w->op, job->comm, request);
    case ORACLE_REDUCE:
        return ddl_reduce(job->send, job->recv, w->count, w->dtype, w->op, w->root, job->comm, request);
    case ORACLE_REDUCE_SCATTER:
        return ddl_reduce_scatter(job->send, job->recv, w->count, w->dtype, w->op, job->comm, request);
    case ORACLE_ALLGATHER:
        return ddl_allgather(job->send, job->recv, w->count, w->dtype, job->comm, request);
    case ORACLE_BROADCAST:
        return ddl_broadcast(job->recv, w->count, w->dtype, w->root, job->comm, request);
    case ORACLE_ALLTOALL:
        return ddl_alltoall(job->send, job->recv, w->count, w->dtype, job->comm, request);
    case ORACLE_GATHER:
        return ddl_gather(job->send, job->recv, w->count, w->dtype, w->root, job->comm, request);
    case ORACLE_SCATTER:
        return ddl_scatter(job->send, job->recv, w->count, w->dtype, w->root, job->comm, request);
    case ORACLE_BARRIER:
        return ddl_barrier(job->comm, request);
    default:
        if (job->sends)
            return ddl_send(job->send, w->count, w->dtype, job->other, job->comm, request);
        return ddl_recv(job->recv, w->count, w->dtype, job->other, job->comm, request);
    }
}

/* Against the oracle the first time, against that result from then on. */
static bool job_exact(struct job *job, bool first)
{
    const oracle_call *w = &job->what;
    const void **sends;
    char want[32], have[32];
    size_t index = 0;
    bool exact;

    if (!first)
        return memcmp(job->first, job->recv, job->recv_bytes) == 0;
    sends = room((size_t)w->nranks * sizeof *sends);
    for (int r = 0; r < w->nranks; r++) {
        void *input = room(oracle_send_count(w, r) * ddl_dtype_bytes(w->dtype));
        oracle_fill(w, 1, r, input);
        sends[r] = input;
    }
    exact = oracle_agrees(w, sends, job->rank, job->recv, &index, want, have);
    if (!exact)
        fprintf(stderr, "actor: %s: element %zu is %s, must be %s\n", job->text, index, have, want);
    for (int r = 0; r < w->nranks; r++)
        free((void *)(uintptr_t)sends[r]);
    free(sends);
    memcpy(job->first, job->recv, job->recv_bytes);
    return exact;
}

static void job_tell(const struct job *job, const char *event, ddl_status status, int64_t begin_ns, long done,
                     bool exact)
{
    open_record(event);
    print_outcome(status, begin_ns);
    printf(",\"call\":");
    print_text(job->text);
    printf(",\"done\":%ld,\"exact\":%s", done, exact ? "true" : "false");
    close_record();
}

/* times < 0: until it fails. begin_ns is that of the last call. */
static void run_call(const struct actor *a, const char *text, const char *event, long times, long apart_ms)
{
    struct job *job = job_create(a, text);
    ddl_status status = DDL_OK;
    int64_t begin_ns = now_ns();
    bool exact = true;
    long done = 0;

    while (status == DDL_OK && done != times) {
        begin_ns = now_ns();
        status = job_issue(job, NULL);
        if (status == DDL_OK && !job_exact(job, done == 0))
            exact = false;
        done += status == DDL_OK;
        if (times < 0 && done == 1 && status == DDL_OK) {
            open_record("running");
            close_record();
        }
        if (apart_ms > 0)
            nap_us(apart_ms * 1000);
    }
    job_tell(job, event, status, begin_ns, done, exact);
    job_destroy(job);
}

static void start_call(struct actor *a, const char *text)
{
    struct job *job = job_create(a, text);
    int64_t begin_ns = now_ns();
    ddl_status status = job_issue(job, &job->request);

    tell("started", status, begin_ns);
    if (status != DDL_OK)
        job_destroy(job);
    else if (a->nstarted == STARTED_AT_MOST)
        die("too many started", text);
    else
        a->started[a->nstarted++] = job;
}

static void wait_started(struct actor *a)
{
    for (int i = 0; i < a->nstarted; i++) {
        struct job *job = a->started[i];
        int64_t begin_ns = now_ns();
        ddl_status status = ddl_wait(&job->request);
        job_tell(job, "wait", status, begin_ns, 1, status == DDL_OK && job_exact(job, true));
        job_destroy(job);
    }
    a->nstarted = 0;
}

static void cycle(struct actor *a, long times)
{
    for (long i = 0; i < times; i++) {
        int64_t begin_ns = now_ns();
        ddl_status status = ddl_init(&a->comms[0].comm, NULL);
        if (status == DDL_OK)
            run_call(a, "allreduce:1000:int32:sum", "allreduce", 1, 0);
        if (status == DDL_OK)
            status = ddl_comm_free(&a->comms[0].comm);
        tell("cycle", status, begin_ns);
        if (status != DDL_OK)
            return;
    }
}

/* ---- the process itself ---- */

static long entries(const char *path)
{
    DIR *dir = opendir(path);
    long count = -3; /* ".", ".." and the descriptor of this listing */
    if (dir == NULL)
        return -1;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static long resident_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* Threads of this process; -1 where the system does not tell. One that has been joined is listed until the
 * kernel has taken it apart, so it is the fewest of a while that counts. */
static long threads_alive(void)
{
    long fewest = -1;
    for (int looks = 0; looks < 40; looks++) {
        long listed = entries("/proc/self/task");
        if (listed < 0)
            return -1;
        if (fewest < 0 || listed + 1 < fewest)
            fewest = listed + 1; /* the listing's own descriptor is not among them */
        if (fewest == 1)
            break;
        nap_us(5000);
    }
    return fewest;
}

/* Each -1 where the system does not tell. */
static void tell_resources(void)
{
    long threads = threads_alive();
    open_record("resources");
    printf(",\"descriptors\":%ld,\"threads\":%ld,\"rss_kib\":%ld", entries("/proc/self/fd"), threads,
           resident_kib());
    close_record();
}

static void tell_facts(const ddl_comm *world)
{
    open_record("facts");
    printf(",\"rank\":%d,\"size\":%d,\"local_rank\":%d,\"local_size\":%d,\"node_rank\":%d,\"node_count\":%d",
           ddl_rank(world), ddl_size(world), ddl_local_rank(world), ddl_local_size(world),
           ddl_node_rank(world), ddl_node_count(world));
    close_record();
}

static void tell_chosen(const ddl_comm *comm, const char *argument)
{
    char collective[32];
    size_t count;
    if (sscanf(argument, "%31[a-z_]:%zu", collective, &count) != 2)
        die("no collective and count", argument);
    const char *name = ddl_algorithm_name(comm, collective, count, DDL_FLOAT32);
    open_record("chosen");
    printf(",\"name\":\"%s\"", name != NULL ? name : "");
    close_record();
}

static void die_now(int signal_number)
{
    char line[64], digits[24];
    int64_t t = now_ns();
    size_t length = 0, n = 0;

    (void)signal_number;
    memcpy(line, "{\"event\":\"killed\",\"end_ns\":", 27);
    length = 27;
    do
        digits[n++] = (char)('0' + t % 10);
    while ((t /= 10) > 0);
    while (n > 0)
        line[length++] = digits[--n];
    memcpy(line + length, "}\n", 2);
    if (write(STDOUT_FILENO, line, length + 2) >= 0)
        raise(SIGKILL);
}

static void set_variable(const char *text)
{
    char name[64];
    size_t bytes = strcspn(text, "=");
    if (text[bytes] == '\0' || bytes >= sizeof name)
        die("no NAME=VALUE", text);
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    setenv(name, text + bytes + 1, 1);
}

static void become_mortal(long usec)
{
    struct itimerval timer = { { 0, 0 }, { usec / 1000000, usec % 1000000 } };
    signal(SIGALRM, die_now);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* ---- communicators ---- */

static struct named *find_comm(struct actor *a, const char *name)
{
    for (int i = 0; i < a->ncomms; i++)
        if (strcmp(a->comms[i].name, name) == 0)
            return &a->comms[i];
    return NULL;
}

/* A place for a communicator of this name: the one that had the name before, or a new one. */
static struct named *place_comm(struct actor *a, const char *name)
{
    struct named *place = name == NULL ? NULL : find_comm(a, name);
    if (place == NULL) {
        if (a->ncomms == COMMS_AT_MOST || name == NULL || strlen(name) >= sizeof place->name)
            die("no place for a communicator", name == NULL ? "" : name);
        place = &a->comms[a->ncomms++];
        strcpy(place->name, name);
    }
    place->comm = NULL;
    return place;
}

static void tell_new_comm(const char *event, ddl_status status, int64_t begin_ns, const ddl_comm *comm)
{
    open_record(event);
    print_outcome(status, begin_ns);
    printf(",\"new_rank\":%d,\"new_size\":%d", ddl_rank(comm), ddl_size(comm));
    close_record();
}

static void split(struct actor *a, const char *text)
{
    char copy[80], *rest = copy, *name;
    int64_t begin_ns = now_ns();
    struct named *place;
    ddl_status status;
    int color, key;

    snprintf(copy, sizeof copy, "%s", text);
    name = strsep(&rest, ":");
    color = (int)field_number(&rest, 0);
    key = (int)field_number(&rest, 0);
    place = place_comm(a, name);
    status = ddl_comm_split(a->in_use->comm, color, key, &place->comm);
    tell_new_comm("split", status, begin_ns, place->comm);
}

static void shrink(struct actor *a, const char *name)
{
    int64_t begin_ns = now_ns();
    struct named *place = place_comm(a, name);
    ddl_status status = ddl_comm_shrink(a->in_use->comm, &place->comm);
    tell_new_comm("shrink", status, begin_ns, place->comm);
}

static void run_cases(const struct actor *a, const char *text)
{
    char copy[80], *rest = copy, failure[CASES_FAILURE_BYTES] = "";
    cases_plan plan = { .max_count = CASES_MAX_COUNT, .only = -1, .splits = true };
    int64_t begin_ns = now_ns();
    bool good;

    snprintf(copy, sizeof copy, "%s", text);
    plan.seed = (uint64_t)field_number(&rest, 1);
    plan.ncases = (int)field_number(&rest, 1);
    good = cases_run(a->in_use->comm, &plan, failure);
    open_record("cases");
    print_outcome(DDL_OK, begin_ns);
    printf(",\"exact\":%s,\"failure\":", good ? "true" : "false");
    print_text(failure);
    close_record();
}

static bool is_forked_child;

/* Those that a forked child opens, in a child of its own. */
static bool files_survive_another_fork(void)
{
    enum { FILES = 64 };
    int fds[FILES], ended = 1;
    for (int i = 0; i < FILES; i++)
        if ((fds[i] = open("/dev/null", O_RDWR)) < 0)
            die("cannot open", "/dev/null");
    pid_t child = fork();
    if (child == 0) {
        int lost = 0;
        for (int i = 0; i < FILES; i++)
            lost += fcntl(fds[i], F_GETFD) < 0;
        _exit(lost > 0);
    }
    return child > 0 && waitpid(child, &ended, 0) == child && ended == 0;
}

static void fork_child(const struct actor *a, const char *how)
{
    pid_t child = fork();
    float x = 1;
    int ended = 0;

    if (child < 0)
        die("cannot fork", how);
    if (child == 0) {
        is_forked_child = true;
        if (strcmp(how, "stay") == 0) {
            alarm(STAY_SECONDS);
            for (;;)
                pause();
        }
        int64_t begin_ns = now_ns();
        tell("child", ddl_allreduce(&x, &x, 1, DDL_FLOAT32, DDL_SUM, a->in_use->comm, NULL), begin_ns);
        const int code = files_survive_another_fork() ? 0 : 1;
        if (strcmp(how, "exit") == 0)
            exit(code);
        _exit(code);
    }
    if (strcmp(how, "stay") != 0 && waitpid(child, &ended, 0) != child)
        die("cannot wait for the child", how);
    open_record("fork");
    printf(",\"child\":%ld,\"ended\":%d", (long)child, ended);
    close_record();
}

static void *fork_soon(void *ms)
{
    nap_us(*(const long *)ms * 1000);
    fork_child(NULL, "stay");
    return NULL;
}

static void fork_aside(const char *ms)
{
    static long soon;
    pthread_t thread;
    soon = strtol(ms, NULL, 10);
    if (pthread_create(&thread, NULL, fork_soon, &soon) != 0 || pthread_detach(thread) != 0)
        die("cannot start a thread", ms);
}

/* Of the leak sanitizer: in a forked child it could wait for ever, for a lock of the allocator that another
 * thread of the parent held at the fork. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_forked_child;
}

static void get_stuck(void *arg, const char *line)
{
    (void)arg;
    (void)line;
    nap_us(20000 * 1000);
}

static void wait_for_line(void)
{
    char line[80];
    open_record("ready");
    close_record();
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(0); /* the test has gone */
}

static bool takes(const char *command, const char *name, const char **argument)
{
    size_t bytes = strlen(name);
    if (strncmp(command, name, bytes) != 0)
        return false;
    *argument = command + bytes;
    return true;
}

/* But for those with a store, which are at the port where ranks meet. */
static void meddle(const char *address, bool replaces)
{
    const int meeting_port = atoi(getenv("MASTER_PORT")), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDERR_FILENO + 1; fd < FDS_AT_MOST; fd++) {
        struct sockaddr_in own, other;
        socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
        char text[INET_ADDRSTRLEN];
        if (getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0 ||
            getpeername(fd, (struct sockaddr *)&other, &other_bytes) != 0 || other.sin_family != AF_INET ||
            ntohs(own.sin_port) == meeting_port || ntohs(other.sin_port) == meeting_port ||
            strcmp(inet_ntop(AF_INET, &other.sin_addr, text, sizeof text), address) != 0)
            continue;
        if (replaces)
            dup2(null, fd);
        else
            close(fd);
    }
    close(null);
}

static void perform(struct actor *a, const char *command)
{
    const char *argument;
    int64_t begin_ns = now_ns();

    if (strcmp(command, "init") == 0) {
        tell("init", ddl_init(&a->comms[0].comm, NULL), begin_ns);
    } else if (strcmp(command, "free") == 0) {
        tell("free", ddl_comm_free(&a->in_use->comm), begin_ns);
        a->in_use = a->comms;
        wait_started(a); /* what was in flight can still be waited for */
    } else if (strcmp(command, "wait") == 0) {
        wait_started(a);
    } else if (strcmp(command, "facts") == 0) {
        tell_facts(a->in_use->comm);
    } else if (takes(command, "chosen:", &argument)) {
        tell_chosen(a->in_use->comm, argument);
    } else if (takes(command, "split:", &argument)) {
        split(a, argument);
    } else if (takes(command, "shrink:", &argument)) {
        shrink(a, argument);
    } else if (takes(command, "abort:", &argument)) {
        tell("abort", ddl_comm_abort(a->in_use->comm, argument), begin_ns);
    } else if (takes(command, "use:", &argument)) {
        if ((a->in_use = find_comm(a, argument)) == NULL)
            die("no such communicator", argument);
    } else if (takes(command, "cases:", &argument)) {
        run_cases(a, argument);
    } else if (strcmp(command, "resources") == 0) {
        tell_resources();
    } else if (strcmp(command, "stuck_log") == 0) {
        ddl_set_log(get_stuck, NULL);
    } else if (strcmp(command, "line") == 0) {
        wait_for_line();
    } else if (takes(command, "timeout:", &argument)) {
        tell("timeout", ddl_comm_set_timeout(a->in_use->comm, strtol(argument, NULL, 10)), begin_ns);
    } else if (takes(command, "cycle:", &argument)) {
        cycle(a, strtol(argument, NULL, 10));
    } else if (takes(command, "mortal:", &argument)) {
        become_mortal(strtol(argument, NULL, 10));
    } else if (takes(command, "forking:", &argument)) {
        fork_aside(argument);
    } else if (takes(command, "set:", &argument)) {
        set_variable(argument);
    } else if (takes(command, "close:", &argument)) {
        meddle(argument, false);
    } else if (takes(command, "replace:", &argument)) {
        meddle(argument, true);
    } else if (takes(command, "fork:", &argument)) {
        fork_child(a, argument);
    } else if (takes(command, "exit:", &argument)) {
        open_record("exit");
        print_outcome(DDL_OK, begin_ns);
        close_record();
        exit((int)strtol(argument, NULL, 10));
    } else if (takes(command, "_exit:", &argument)) {
        open_record("exit");
        print_outcome(DDL_OK, begin_ns);
        close_record();
        _exit((int)strtol(argument, NULL, 10));
    } else if (command[0] == '+') {
        start_call(a, command + 1);
    } else if (takes(command, "forever=", &argument)) {
        run_call(a, argument, "forever", -1, 0);
    } else if (takes(command, "paced:", &argument)) {
        run_call(a, strchr(argument, '=') + 1, "paced", -1, strtol(argument, NULL, 10));
    } else if (strchr(command, '=') != NULL) {
        run_call(a, strchr(command, '=') + 1, "repeated", strtol(command, NULL, 10), 0);
    } else {
        run_call(a, command, "call", 1, 0);
    }
}

static struct actor self = { .comms = { { "world", NULL } }, .ncomms = 1 };
static bool frees_at_exit, calls_at_exit, joins_at_exit;
static pthread_t waiter;

static void *wait_aside(void *a)
{
    wait_started(a);
    return NULL;
}

static bool lingers_at_exit;
static atomic_bool has_begun;

static void *free_aside(void *comm)
{
    atomic_store(&has_begun, true);
    (void)ddl_comm_free(comm);
    return NULL;
}

static void exit_in_free(struct actor *a, const char *usec)
{
    pthread_t thread;
    lingers_at_exit = true;
    if (pthread_create(&thread, NULL, free_aside, &a->comms[0].comm) != 0 || pthread_detach(thread) != 0)
        die("cannot start a thread", usec);
    while (!atomic_load(&has_begun))
        sched_yield();
    nap_us(strtol(usec, NULL, 10));
    exit(0);
}

/* Comes after the library's own exit handler, as it is registered before that. */
static void free_late(void)
{
    if (lingers_at_exit)
        nap_us(100 * 1000);
    if (!frees_at_exit)
        return;
    if (calls_at_exit) {
        run_call(&self, "allreduce:16:float32:sum", "call", 1, 0);
        wait_started(&self);
        split(&self, "part:0:0");
        tell("abort", ddl_comm_abort(self.comms[0].comm, "late"), now_ns());
    }
    if (joins_at_exit)
        pthread_join(waiter, NULL);
    int64_t begin_ns = now_ns();
    tell("free", ddl_comm_free(&self.comms[0].comm), begin_ns);
    fflush(stdout);
}

int main(int argc, char *argv[])
{
    if (atexit(free_late) != 0)
        die("cannot register", "an exit handler");
    self.in_use = self.comms;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "free_at_exit") == 0)
            frees_at_exit = true;
        else if (strcmp(argv[i], "calls_at_exit") == 0)
            frees_at_exit = calls_at_exit = true;
        else if (strcmp(argv[i], "joins_at_exit") == 0)
            frees_at_exit = joins_at_exit = pthread_create(&waiter, NULL, wait_aside, &self) == 0;
        else if (strncmp(argv[i], "exit_in_free:", 13) == 0)
            exit_in_free(&self, argv[i] + 13);
        else
            perform(&self, argv[i]);
    return 0;
}
