/*
 * limits.c - what this machine can do at best, for the libraries to be held against.
 *
 *     limits shm|sums|tcp PROCESSES SECONDS BYTES...
 *
 * Prints a line of JSON for each fact: its name, how many processes did it at once, the bytes that each of
 * them moved, and the microseconds that took, of the slowest. SECONDS is the time for one fact.
 *
 *     shm   flag      a word in shared memory changes until another process has seen it
 *     shm   memcpy    from a private buffer to another, by one process and by all; small ones stay cached
 *     sums            flag, memcpy, and sum
 *     sums  sum       of a part of buffers that all share, written into all; nobody waits for others
 *     tcp   message   one byte from one process to another over the loopback, half of a round trip
 *     tcp   stream    from one process to another
 *     tcp   exchange  every process to the next, while it receives from the one before
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PROCESSES = 64,
    BATCH = 256 * 1024,
    WINDOW = 512 * 1024,
    ROUND_TRIPS = 20000,
    BATCH_TRIPS = 1000,
    CACHE_LINE = 64
};

/* Each word has a line of the cache to itself. */
struct word {
    _Alignas(CACHE_LINE) atomic_int value;
};

static struct shared {
    struct word arrived, ping, pong;
    double us[MAX_PROCESSES];
} * shared;

static double seconds;

static void fail(const char *what)
{
    fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void *need(size_t bytes)
{
    void *buffer = NULL;
    if (posix_memalign(&buffer, 4096, bytes) != 0)
        fail("memory");
    memset(buffer, 1, bytes); /* touched, so that no page is missing later */
    return buffer;
}

/* Spins, but lets others run now and then: processes may outnumber the cores. */
static void wait_until(struct word *word, int wanted)
{
    for (int looks = 1; atomic_load_explicit(&word->value, memory_order_acquire) < wanted; looks++)
        if (looks % 1000 == 0)
            sched_yield();
}

static void start_together(int processes)
{
    atomic_fetch_add(&shared->arrived.value, 1);
    wait_until(&shared->arrived, processes);
}

/* ---- one process's part of each fact; returns microseconds ---- */

struct task {
    int me, processes;
    size_t bytes;
    char *buffers;        /* of all, one after the other */
    int send_fd, recv_fd; /* of sockets; one that only sends or only receives has -1 */
};

static double copy(const struct task *task)
{
    char *from = need(task->bytes), *to = need(task->bytes);
    int batch = task->bytes < BATCH ? (int)(BATCH / task->bytes) : 1; /* the clock costs something too */
    long copies = 0;
    start_together(task->processes);
    double start = now_us(), spent;
    do {
        for (int i = 0; i < batch; i++) {
            memcpy(to, from, task->bytes);
            __asm__ volatile("" ::"r"(to) : "memory"); /* or the compiler would copy once */
        }
        copies += batch;
        spent = now_us() - start;
    } while (spent < seconds * 1e6);
    return spent / (double)copies;
}

/* One register of the widest; the program is compiled for this machine. */
typedef float vector __attribute__((vector_size(CACHE_LINE), may_alias));

static void add_part(const struct task *task)
{
    size_t all = task->bytes / sizeof(vector), count = (size_t)task->processes;
    size_t begin = all * (size_t)task->me / count, end = all * ((size_t)task->me + 1) / count;
    for (size_t i = begin; i < end; i++) {
        vector sum = ((vector *)task->buffers)[i];
        for (size_t buffer = 1; buffer < count; buffer++)
            sum += ((vector *)(task->buffers + buffer * task->bytes))[i];
        for (size_t buffer = 0; buffer < count; buffer++)
            ((vector *)(task->buffers + buffer * task->bytes))[i] = sum;
    }
}

static double sum(const struct task *task)
{
    int batch = task->bytes < BATCH ? (int)(BATCH / task->bytes) : 1;
    long sums = 0;
    add_part(task); /* which maps its pages */
    start_together(task->processes);
    double start = now_us(), spent;
    do {
        for (int i = 0; i < batch; i++)
            add_part(task);
        sums += batch;
        spent = now_us() - start;
    } while (spent < seconds * 1e6);
    return spent / (double)sums;
}

/* Half a round trip, in the best of some batches: what is possible is what others do not disturb. */
struct trips {
    double best, batch_start;
};

static void count_trip(struct trips *trips, int trip)
{
    if (trip % BATCH_TRIPS != 0)
        return;
    double now = now_us(), each = (now - trips->batch_start) / BATCH_TRIPS / 2;
    trips->best = trip == BATCH_TRIPS || each < trips->best ? each : trips->best;
    trips->batch_start = now;
}

static double flag(const struct task *task)
{
    struct word *mine = task->me == 0 ? &shared->ping : &shared->pong;
    struct word *other = task->me == 0 ? &shared->pong : &shared->ping;
    start_together(task->processes);
    struct trips trips = { .batch_start = now_us() };
    for (int trip = 1; trip <= ROUND_TRIPS; trip++) {
        if (task->me == 1)
            wait_until(other, trip);
        atomic_store_explicit(&mine->value, trip, memory_order_release);
        if (task->me == 0)
            wait_until(other, trip);
        count_trip(&trips, trip);
    }
    return trips.best;
}

/* What came of a call on a socket that does not block: 0 if it would have to wait. */
static size_t moved(ssize_t result, const char *what)
{
    if (result >= 0)
        return (size_t)result;
    if (errno != EAGAIN && errno != EINTR)
        fail(what);
    return 0;
}

static double message(const struct task *task)
{
    char byte = 0;
    start_together(task->processes);
    struct trips trips = { .batch_start = now_us() };
    for (int trip = 1; trip <= ROUND_TRIPS; trip++) {
        for (int turn = 0; turn < 2; turn++) {
            if (turn == task->me)
                moved(send(task->send_fd, &byte, 1, 0), "send");
            else
                while (moved(recv(task->recv_fd, &byte, 1, 0), "recv") == 0)
                    continue;
        }
        count_trip(&trips, trip);
    }
    return trips.best;
}

/* Sends from one buffer and receives into another, over and over, with no more than a window ahead of what
 * has come: what is under way stays in the cache, and a small exchange is a message each way. */
static double stream(const struct task *task)
{
    char *out = need(task->bytes), *in = need(task->bytes);
    bool sending = task->send_fd >= 0, receiving = task->recv_fd >= 0;
    size_t window = !receiving ? SIZE_MAX : task->bytes < WINDOW ? task->bytes : WINDOW;
    size_t sent = 0, received = 0;
    start_together(task->processes);
    double start = now_us(), end = start + seconds * 1e6, now = start;
    while (sending || receiving) {
        bool progress = false;
        if (sending && sent < received + window) {
            size_t place = sent % task->bytes, allowed = received + window - sent;
            size_t part = allowed < task->bytes - place ? allowed : task->bytes - place;
            size_t done = moved(send(task->send_fd, out + place, part, MSG_NOSIGNAL), "send");
            sent += done;
            progress = done > 0;
        }
        if (receiving) {
            size_t place = received % task->bytes;
            ssize_t result = recv(task->recv_fd, in + place, task->bytes - place, 0);
            receiving = result != 0;
            received += moved(result, "recv");
            progress |= result > 0;
        }
        if (!progress)
            sched_yield();
        now = now_us();
        if (sending && now >= end) {
            shutdown(task->send_fd, SHUT_WR);
            sending = false;
        }
    }
    return (now - start) * (double)task->bytes / (double)(task->recv_fd >= 0 ? received : sent);
}

/* ---- all processes of a fact ---- */

/* Two ends of a connection over the loopback. */
static void connect_loopback(int *from, int *to)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        fail("listen");
    *from = socket(AF_INET, SOCK_STREAM, 0);
    if (*from < 0 || connect(*from, (struct sockaddr *)&address, length) != 0)
        fail("connect");
    *to = accept(listener, NULL, NULL);
    if (*to < 0)
        fail("accept");
    close(listener);
    int fds[] = { *from, *to };
    for (int i = 0; i < 2; i++) {
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef TCP_CONGESTION
        /* The system's default may pace; a limit is what is possible. It is no loss where there is no reno.
         */
        (void)setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
#endif
        if (fcntl(fds[i], F_SETFL, O_NONBLOCK) != 0)
            fail("fcntl");
    }
}

/* Runs the work in as many processes as there are tasks; the time of the slowest. */
static double together(double (*work)(const struct task *), const struct task *tasks, int processes)
{
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child > 0)
            continue;
        shared->us[i] = work(&tasks[i]);
        _exit(0);
    }
    double slowest = 0;
    for (int i = 0, status; i < processes; i++)
        if (wait(&status) < 0 || status != 0)
            exit(1);
    for (int i = 0; i < processes; i++)
        slowest = shared->us[i] > slowest ? shared->us[i] : slowest;
    return slowest;
}

static void report(const char *name, int at_work, size_t bytes, double us)
{
    printf("{\"limit\": \"%s\", \"processes\": %d, \"bytes\": %zu, \"us\": %.6f}\n", name, at_work, bytes,
           us);
    fflush(stdout);
}

static void measure_copies(int processes, size_t bytes)
{
    struct task tasks[MAX_PROCESSES];
    for (int i = 0; i < processes; i++)
        tasks[i] = (struct task){ .me = i, .processes = processes, .bytes = bytes };
    report("memcpy", processes, bytes, together(copy, tasks, processes));
}

static void measure_sums(int processes, size_t bytes)
{
    size_t whole = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE, all = whole * (size_t)processes;
    char *buffers = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (buffers == MAP_FAILED)
        fail("buffers");
    memset(buffers, 1, all); /* some processors write zeros quicker than other values */
    struct task tasks[MAX_PROCESSES];
    for (int i = 0; i < processes; i++)
        tasks[i] = (struct task){ .me = i, .processes = processes, .bytes = whole, .buffers = buffers };
    report("sum", processes, bytes, together(sum, tasks, processes));
    munmap(buffers, all);
}

static void measure_flag(void)
{
    const struct task tasks[2] = { { .me = 0, .processes = 2 }, { .me = 1, .processes = 2 } };
    report("flag", 2, 0, together(flag, tasks, 2));
}

static void measure_message(void)
{
    struct task tasks[2] = { { .me = 0, .processes = 2 }, { .me = 1, .processes = 2 } };
    int ends[2];
    connect_loopback(&ends[0], &ends[1]);
    for (int i = 0; i < 2; i++)
        tasks[i].send_fd = tasks[i].recv_fd = ends[i];
    report("message", 2, 1, together(message, tasks, 2));
    close(ends[0]);
    close(ends[1]);
}

static void measure_stream(size_t bytes)
{
    int from, to;
    connect_loopback(&from, &to);
    const struct task tasks[2] = { { .processes = 2, .bytes = bytes, .send_fd = from, .recv_fd = -1 },
                                   { .processes = 2, .bytes = bytes, .send_fd = -1, .recv_fd = to } };
    report("stream", 2, bytes, together(stream, tasks, 2));
    close(from);
    close(to);
}

static void measure_exchange(int processes, size_t bytes)
{
    struct task tasks[MAX_PROCESSES] = { { 0 } };
    for (int i = 0; i < processes; i++)
        tasks[i] = (struct task){ .me = i, .processes = processes, .bytes = bytes };
    for (int i = 0; i < processes; i++)
        connect_loopback(&tasks[i].send_fd, &tasks[(i + 1) % processes].recv_fd);
    report("exchange", processes, bytes, together(stream, tasks, processes));
    for (int i = 0; i < processes; i++) {
        close(tasks[i].send_fd);
        close(tasks[i].recv_fd);
    }
}

int main(int argc, char **argv)
{
    bool sums = argc > 1 && strcmp(argv[1], "sums") == 0,
         shm = sums || (argc > 1 && strcmp(argv[1], "shm") == 0);
    bool tcp = argc > 1 && strcmp(argv[1], "tcp") == 0;
    int processes = argc > 3 ? atoi(argv[2]) : 0;
    seconds = argc > 3 ? atof(argv[3]) : 0;
    if (!(shm || tcp) || processes < 2 || processes > MAX_PROCESSES || !(seconds > 0)) {
        fprintf(stderr, "usage: limits shm|sums|tcp PROCESSES SECONDS BYTES...\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("shared memory");
    if (shm)
        measure_flag();
    else
        measure_message();
    for (int i = 4; i < argc; i++) {
        size_t bytes = (size_t)strtoull(argv[i], NULL, 10);
        if (shm) {
            measure_copies(1, bytes);
            measure_copies(processes, bytes);
            if (sums)
                measure_sums(processes, bytes);
        } else {
            measure_stream(bytes);
            measure_exchange(processes, bytes);
        }
    }
    return 0;
}
