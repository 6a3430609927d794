/* listener.c - the door, and the strangers who stand at it. */
#include "rendezvous/listener.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "io/host.h"
#include "io/local.h"
#include "io/socket.h"
#include "io/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    HANDSHAKE_LIMIT_MS = 5000,
    LINGER_MS = 1000,         /* for a refused client to read why */
    TAKE_BYTES = 512,         /* from a stranger: its hello, and once it is refused what it said besides */
    TAKE_TLS_BYTES = 2 * 512, /* the same, besides what its session took: its signature may be on its way */
    PATIENCE_MS = 250, /* for a newcomer the older half of those who have spoken is not sent away before */
    TLS_PATIENCE_MS = 600, /* the same, with a handshake more */
    SILENCE_MS = 20,       /* nor who has not spoken: ranks do as soon as they are connected */
    ACCEPTS_PER_TURN = 64,
    STRANGERS_LEAST = 64, /* places for them, where there are descriptors */
    QUEUE_LEAST = 1024,   /* in front of the door: whom the system drops calls again after a second */
    SOURCE_MORE = 16,     /* from one address: two for each rank, and so many more */
    PAUSE_MS = 100,       /* when descriptors or memory ran out */
    TELL_EVERY_MS = 10000 /* of those who could not prove that they belong here, and of what is lacking */
};

struct stranger {
    ddl_link link; /* in listener->strangers, oldest first */
    ddl_listener *listener;
    ddl_wire wire;
    ddl_watch *watch;
    int64_t since_ns;
    ddl_deadline until;
    bool has_spoken; /* its first message came whole, or what a session begins with */
    bool has_shaken; /* hands, in TLS, and so it has proved that it has a key or a certificate */
    bool may_greet;  /* TLS is done with, or not there */
    bool leaving;    /* was refused; everything is sent, its end is awaited */
    size_t taken;    /* of what it said, but for what its session took */
    ddl_address from;
    ddl_hello hello;
};

struct ddl_listener {
    ddl_service *service;
    ddl_hello_party self;
    ddl_encryption_door door;
    const ddl_listener_events *events;
    void *arg;
    int fd;
    int spare; /* a descriptor with which somebody is let come when there are no others; -1: it is in use */
    ddl_watch *watch;
    ddl_alarm *alarm; /* rings for the oldest stranger's limit, or to accept again */
    bool paused;
    ddl_list strangers;
    int stranger_count, stranger_limit;
    int source_limit;  /* of strangers from one address */
    unsigned unproven; /* turned away since that was last told */
    bool has_told;
    ddl_deadline tell_next, tell_lack_next;
    ddl_address last_from; /* of the last of them */
    char last_reason[DDL_HELLO_REASON_TEXT];
};

static void set_alarm(ddl_listener *listener)
{
    ddl_deadline first = DDL_DEADLINE_NEVER;
    DDL_LIST_FOR_EACH (link, &listener->strangers) {
        struct stranger *stranger = DDL_CONTAINER(link, struct stranger, link);
        first = stranger->until < first ? stranger->until : first;
    }
    int64_t after_ms = listener->paused ? PAUSE_MS : ddl_deadline_left_ms(first);
    if (first != DDL_DEADLINE_NEVER || listener->paused)
        ddl_alarm_set(listener->alarm, after_ms < PAUSE_MS ? after_ms : PAUSE_MS);
    else if (listener->unproven > 0)
        ddl_alarm_set(listener->alarm, ddl_deadline_left_ms(listener->tell_next));
    else
        ddl_alarm_rest(listener->alarm);
}

/* ---- those who are turned away ---- */

static void tell_of_unproven(ddl_listener *listener)
{
    char from[DDL_ADDRESS_FULL_TEXT];
    if (listener->unproven == 0)
        return;
    ddl_address_text(&listener->last_from, from);
    if (listener->has_told)
        ddl_log(DDL_LOG_WARNING, "rank %d turned away %u more, the last of them %s: %s", listener->self.rank,
                listener->unproven, from, listener->last_reason);
    else
        ddl_log(DDL_LOG_WARNING, "rank %d turned away %s: %s", listener->self.rank, from,
                listener->last_reason);
    listener->has_told = true;
    listener->unproven = 0;
    listener->tell_next = ddl_deadline_in_ms(TELL_EVERY_MS);
}

/*
 * Somebody came who has another secret, or none, or means another program: whose rank is missing looks for
 * that. Who leaves by himself is not counted, as ranks that call several addresses do that.
 */
static void count_unproven(ddl_listener *listener, const ddl_address *from, const char *reason)
{
    listener->unproven++;
    listener->last_from = *from;
    snprintf(listener->last_reason, sizeof listener->last_reason, "%s", reason);
    if (ddl_deadline_passed(listener->tell_next))
        tell_of_unproven(listener);
}

/* Of those, whoever speaks as ranks do is more than a scanner. */
static void count_kin(ddl_listener *listener, const ddl_address *from, const char *reason)
{
    char who[DDL_ADDRESS_FULL_TEXT], text[DDL_SERVICE_TURNED_AWAY];
    ddl_address_text(from, who);
    snprintf(text, sizeof text, "%s: %s", who, reason);
    ddl_service_set_turned_away(listener->service, text);
    count_unproven(listener, from, reason);
}

/* Its connection is closed unless it was handed on before. */
static void dismiss(struct stranger *stranger)
{
    ddl_watch_close(stranger->watch);
    ddl_wire_close(&stranger->wire);
    ddl_list_remove(&stranger->link);
    stranger->listener->stranger_count--;
    ddl_free(stranger);
}

/* It has had its time, or others need its place; who is leaving has been told why. */
static void send_away(struct stranger *stranger, const char *reason)
{
    if (!stranger->leaving)
        count_unproven(stranger->listener, &stranger->from, reason);
    dismiss(stranger);
}

static void let_in(struct stranger *stranger)
{
    ddl_listener *listener = stranger->listener;
    ddl_hello hello = stranger->hello;
    ddl_address from = stranger->from;
    ddl_wire wire = stranger->wire;
    /* Forget the descriptor first: the owner may watch it at once. */
    stranger->wire = ddl_no_wire;
    dismiss(stranger);
    ddl_encryption_trust(&wire);
    listener->events->entered(listener->arg, wire, &hello, &from);
}

/* Send what the hello has to say; false if the connection is of no more use. */
static bool speak(struct stranger *stranger)
{
    for (;;) {
        ddl_view out = ddl_hello_output(&stranger->hello);
        if (out.bytes == 0)
            return ddl_wire_flush(&stranger->wire) || errno == EAGAIN;
        ssize_t count = ddl_wire_write(&stranger->wire, out.data, out.bytes);
        if (count < 0)
            return errno == EAGAIN;
        ddl_hello_sent(&stranger->hello, (size_t)count);
    }
}

/* Let the owner judge, unless the certificate is another's. */
static void judge(struct stranger *stranger)
{
    ddl_listener *listener = stranger->listener;
    ddl_hello *hello = &stranger->hello;
    ddl_error error;
    if (ddl_encryption_check_peer(listener->door.encryption, &stranger->wire, hello->peer.rank,
                                  hello->peer.host, &stranger->from, &error) == DDL_OK) {
        listener->events->judge(listener->arg, hello, &stranger->from);
        return;
    }
    ddl_hello_judge(hello, DDL_HELLO_OTHER_NAME);
    snprintf(hello->reason, sizeof hello->reason, "%.*s", DDL_HELLO_REASON_TEXT - 1, error.text);
}

/* Hear what the hello wants to know; false if the connection is of no more use. */
static bool listen_to(struct stranger *stranger)
{
    ddl_hello *hello = &stranger->hello;
    uint8_t data[TAKE_BYTES];
    while (ddl_hello_wants(hello) > 0 && ddl_hello_output(hello).bytes == 0) { /* it waits for our answer */
        size_t wanted = ddl_hello_wants(hello);
        ssize_t count = ddl_wire_read(&stranger->wire, data, wanted < sizeof data ? wanted : sizeof data);
        if (count <= 0)
            return count < 0 && errno == EAGAIN;
        stranger->taken += (size_t)count;
        ddl_hello_feed(hello, data, (size_t)count);
        if (hello->state == DDL_HELLO_JUDGING)
            judge(stranger);
        DDL_ASSERT(hello->state != DDL_HELLO_JUDGING);
        stranger->has_spoken = stranger->has_spoken || ddl_hello_output(hello).bytes > 0;
    }
    return true;
}

/* Read and drop what is left of its hello, or of TLS, so that closing does not cut off the refusal on its
 * way. False at its end, or when that is all that is taken from it, as then nothing can be read. */
static bool drain(struct stranger *stranger)
{
    uint8_t data[TAKE_TLS_BYTES];
    const size_t limit = stranger->wire.tls != NULL ? TAKE_TLS_BYTES : TAKE_BYTES;
    ssize_t count = ddl_socket_read(stranger->wire.fd, data, limit - stranger->taken);
    stranger->taken += count > 0 ? (size_t)count : 0;
    return count > 0 || (count < 0 && errno == EAGAIN);
}

/* What was said to it must arrive, so its end is awaited, within the time that it has. */
static void take_leave(struct stranger *stranger)
{
    shutdown(stranger->wire.fd, SHUT_WR);
    stranger->leaving = true;
    const ddl_deadline lingers = ddl_deadline_in_ms(LINGER_MS);
    stranger->until = lingers < stranger->until ? lingers : stranger->until;
    ddl_watch_set(stranger->watch, DDL_READABLE);
    set_alarm(stranger->listener);
}

/*
 * At level tls: begin a session with who begins as TLS does; the others' hello tells them why that does not
 * do. Below it a rank that calls in TLS is told so, and strangers hear nothing. False: the connection is of
 * no more use.
 */
static bool begin_session(struct stranger *stranger)
{
    uint8_t first[DDL_ENCRYPTION_CALL_BYTES];
    char from[DDL_ADDRESS_FULL_TEXT];
    const ddl_encryption_door *door = &stranger->listener->door;
    ssize_t count = ddl_socket_peek(stranger->wire.fd, first, sizeof first);
    if (count <= 0)
        return count < 0 && errno == EAGAIN;
    stranger->may_greet = door->encryption == NULL || !ddl_encryption_begins(first[0]);
    if (!stranger->may_greet) {
        if (ddl_socket_has_ended(stranger->wire.fd))
            return false; /* a session would be work for nobody */
        stranger->has_spoken = true;
        ddl_address_text(&stranger->from, from);
        return ddl_encryption_answer(door, from, &stranger->wire);
    }
    if (door->encryption == NULL && ddl_encryption_is_call((ddl_view){ first, (size_t)count }))
        ddl_hello_refuse_tls(&stranger->hello);
    return true;
}

/* Come to where the hello may be heard. False: not yet, or never; then it has been dealt with. */
static bool shake_hands(struct stranger *stranger)
{
    ddl_listener *listener = stranger->listener;
    ddl_error error;
    bool done = false;
    if (stranger->may_greet)
        return true;
    if (stranger->wire.tls == NULL && !begin_session(stranger)) {
        dismiss(stranger);
        return false;
    }
    if (stranger->wire.tls == NULL)
        return stranger->may_greet;
    ddl_status status = ddl_encryption_shake(listener->door.encryption, listener->self.rank, true,
                                             &stranger->wire, &stranger->hello, &done, &error);
    if (status == DDL_EAUTH || status == DDL_EPROTO) {
        (status == DDL_EAUTH ? count_kin : count_unproven)(listener, &stranger->from, error.text);
        take_leave(stranger);
        return false;
    }
    if (status != DDL_OK) {
        dismiss(stranger);
        return false;
    }
    if (!done)
        ddl_watch_set(stranger->watch,
                      ddl_wire_has_unsent(&stranger->wire) ? DDL_READABLE | DDL_WRITABLE : DDL_READABLE);
    stranger->may_greet = stranger->has_shaken = done;
    return done;
}

/* It may be a rank that is missed, and nothing that it has proved. A question of version 0 is from none. */
static bool is_worth_telling(const ddl_hello *hello)
{
    return hello->verdict == DDL_HELLO_NOT_PROVEN || hello->verdict == DDL_HELLO_OTHER_LEVEL ||
           hello->verdict == DDL_HELLO_OTHER_NAME || hello->verdict == DDL_HELLO_NOT_DDL ||
           (hello->verdict == DDL_HELLO_OTHER_VERSION && hello->peer_version != 0);
}

static void on_stranger(void *arg, int events)
{
    struct stranger *stranger = arg;
    ddl_listener *listener = stranger->listener;
    ddl_hello *hello = &stranger->hello;
    (void)events;
    if (stranger->leaving) {
        if (!drain(stranger))
            dismiss(stranger);
        return;
    }
    if (!shake_hands(stranger))
        return;
    if (!listen_to(stranger) || !speak(stranger)) {
        dismiss(stranger);
        return;
    }
    bool sent = ddl_hello_output(hello).bytes == 0 && !ddl_wire_has_unsent(&stranger->wire);
    if (hello->state == DDL_HELLO_ACCEPTED && sent) {
        let_in(stranger);
    } else if (hello->state == DDL_HELLO_REFUSED && sent) {
        if (is_worth_telling(hello))
            (hello->verdict == DDL_HELLO_NOT_DDL ? count_unproven : count_kin)(listener, &stranger->from,
                                                                               hello->reason);
        if (listener->events->refused != NULL)
            listener->events->refused(listener->arg, hello, &stranger->from);
        if (hello->verdict == DDL_HELLO_NOT_DDL || hello->verdict == DDL_HELLO_NOT_PROVEN) {
            dismiss(stranger);
            return;
        }
        take_leave(stranger);
    } else {
        ddl_watch_set(stranger->watch, sent ? DDL_READABLE : DDL_READABLE | DDL_WRITABLE);
    }
}

static bool is_of_descriptors(int os_errno)
{
    return os_errno == EMFILE || os_errno == ENFILE;
}

/* Whoever waits at the door meanwhile only sees that nobody answers. */
static void tell_of_lack(ddl_listener *listener, int os_errno)
{
    char reason[128];
    ddl_service_set_lack(listener->service, os_errno);
    if (!ddl_deadline_passed(listener->tell_lack_next))
        return;
    if (strerror_r(os_errno, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", os_errno);
    ddl_log(DDL_LOG_WARNING, "rank %d cannot let anybody in for now: %s; %s", listener->self.rank, reason,
            is_of_descriptors(os_errno) ? "see ulimit -n"
                                        : "is there memory, and may this process accept connections?");
    listener->tell_lack_next = ddl_deadline_in_ms(TELL_EVERY_MS);
}

static void pause_accepting(ddl_listener *listener)
{
    listener->paused = true;
    ddl_watch_set(listener->watch, 0);
    set_alarm(listener);
}

static bool has_stayed(const struct stranger *stranger, int ms)
{
    return ddl_now_ns() - stranger->since_ns >= ms * DDL_NS_PER_MS;
}

/* How far it has come, of those who have not proved all that a rank has to. */
enum standing { IDLE, SPEAKING, SHAKEN };

static enum standing standing_of(const struct stranger *stranger)
{
    if (!stranger->has_spoken || stranger->leaving)
        return IDLE;
    return stranger->has_shaken ? SHAKEN : SPEAKING;
}

static bool is_from(const struct stranger *stranger, const ddl_address *from)
{
    return from == NULL || ddl_address_same_host(&stranger->from, from);
}

/* One of the younger half of these many of this standing, by lot. */
static struct stranger *draw_lots(ddl_listener *listener, const ddl_address *from, enum standing standing,
                                  int count)
{
    uint32_t draw = 0;
    if (ddl_host_random(&draw, sizeof draw, NULL) != DDL_OK)
        draw = 0;
    int before_drawn = count / 2 + (int)(draw % (uint32_t)(count - count / 2));
    DDL_LIST_FOR_EACH (link, &listener->strangers) {
        struct stranger *stranger = DDL_CONTAINER(link, struct stranger, link);
        if (is_from(stranger, from) && standing_of(stranger) == standing && before_drawn-- == 0)
            return stranger;
    }
    return NULL;
}

/* The first of those who have come least far; *count: how many those are. NULL: nobody is there. */
static struct stranger *first_of_last(ddl_listener *listener, const ddl_address *from, int *count)
{
    struct stranger *first = NULL;
    *count = 0;
    DDL_LIST_FOR_EACH (link, &listener->strangers) {
        struct stranger *stranger = DDL_CONTAINER(link, struct stranger, link);
        if (!is_from(stranger, from))
            continue;
        if (first == NULL || standing_of(stranger) < standing_of(first)) {
            first = stranger;
            *count = 0;
        }
        *count += standing_of(stranger) == standing_of(first);
    }
    return first;
}

/* As long as a rank may need to come further than this. */
static bool has_had_time(const struct stranger *stranger)
{
    if (standing_of(stranger) == IDLE)
        return has_stayed(stranger, SILENCE_MS);
    return has_stayed(stranger, stranger->listener->door.encryption != NULL ? TLS_PATIENCE_MS : PATIENCE_MS);
}

/*
 * Who is sent away for a newcomer, NULL: nobody. The first of those who have said nothing that could be
 * answered, or are leaving; or else, for one who speaks, who has been here for long; or else anybody of the
 * younger half: so a rank near by, whose messages take little time, comes in after a few calls however many
 * others call, and one far away if it has come into the older half, which is left in peace for as long as it
 * may need. Who has shaken hands in TLS goes last: how a session begins anybody can say who has heard it
 * once, and not how it goes on. From: of those from this address, unless it is NULL.
 */
static struct stranger *least_wanted(ddl_listener *listener, const ddl_address *from, bool speaks)
{
    int count;
    struct stranger *first = first_of_last(listener, from, &count);
    if (standing_of(first) == IDLE)
        return speaks || has_had_time(first) ? first : NULL;
    if (!speaks)
        return NULL;
    return has_had_time(first) ? first : draw_lots(listener, from, standing_of(first), count);
}

/* Send this one away, unless its proof has come since it was last heard. */
static void part_with(struct stranger *stranger)
{
    ddl_listener *listener = stranger->listener;
    const int all = listener->stranger_count;
    const enum standing before = standing_of(stranger);
    on_stranger(stranger, DDL_READABLE);
    if (listener->stranger_count == all && standing_of(stranger) <= before)
        send_away(stranger, "it had not proved anything when others needed its place");
}

static int count_from(ddl_listener *listener, const ddl_address *from)
{
    int count = 0;
    DDL_LIST_FOR_EACH (link, &listener->strangers)
        count += ddl_address_same_host(&DDL_CONTAINER(link, struct stranger, link)->from, from);
    return count;
}

/* A place for who has just come, among so many; who is behind one address cannot keep others out, nor who
 * says nothing or has left. */
static bool make_room(ddl_listener *listener, int places, int fd, const ddl_address *from)
{
    uint8_t first;
    bool speaks = false, has_looked = false;
    for (;;) {
        int count = count_from(listener, from), all = listener->stranger_count;
        bool source_is_full = count >= listener->source_limit;
        if (!source_is_full && all < places)
            return true;
        speaks = has_looked ? speaks : ddl_socket_peek(fd, &first, 1) > 0 && !ddl_socket_has_ended(fd);
        has_looked = true;
        struct stranger *leaver = least_wanted(listener, source_is_full ? from : NULL, speaks);
        if (leaver == NULL)
            return false;
        part_with(leaver);
    }
}

static ddl_status meet(ddl_listener *listener, int fd, const ddl_address *from)
{
    struct stranger *stranger = ddl_alloc(sizeof *stranger);
    if (stranger == NULL)
        return DDL_ENOMEM;
    ddl_hello_party self = listener->self;
    ddl_status status = ddl_host_random(self.nonce, sizeof self.nonce, NULL);
    if (status == DDL_OK)
        status = ddl_watch_open(listener->service, fd, on_stranger, stranger, &stranger->watch, NULL);
    if (status != DDL_OK) {
        ddl_free(stranger);
        return status;
    }
    stranger->listener = listener;
    stranger->wire = (ddl_wire){ fd, NULL };
    stranger->from = *from;
    stranger->since_ns = ddl_now_ns();
    stranger->until = ddl_deadline_in_ms(HANDSHAKE_LIMIT_MS);
    ddl_hello_start_server(&stranger->hello, &self);
    ddl_list_append(&listener->strangers, &stranger->link);
    listener->stranger_count++;
    ddl_watch_set(stranger->watch, DDL_READABLE);
    on_stranger(stranger, DDL_READABLE); /* mostly it has spoken before it was accepted */
    return DDL_OK;
}

/* ---- descriptors that have run out ---- */

static bool open_spare(ddl_listener *listener)
{
    if (listener->spare >= 0)
        return true;
    listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (listener->spare >= 0 && !ddl_service_hold(listener->service, listener->spare))
        ddl_socket_close(&listener->spare);
    return listener->spare >= 0;
}

static void close_spare(ddl_listener *listener)
{
    if (listener->spare >= 0)
        ddl_service_release(listener->service, listener->spare);
    ddl_socket_close(&listener->spare);
}

/* Somebody else has taken what the spare was before. Of who waits outside nothing is known, so only who has
 * had its time is sent away for it. */
static bool regain_spare(ddl_listener *listener)
{
    int count;
    if (open_spare(listener))
        return true;
    struct stranger *first = first_of_last(listener, NULL, &count);
    if (first != NULL && has_had_time(first))
        part_with(first);
    return open_spare(listener);
}

/* That descriptors have run out is said before anybody is there. */
static bool has_callers(const ddl_listener *listener)
{
    return ddl_socket_wait(listener->fd, POLLIN, ddl_now_ns());
}

/* As ddl_socket_accept. *places: so many strangers may stand here; where descriptors have run out as many as
 * do, and the one for who comes is the spare. */
static int accept_next(ddl_listener *listener, int *fd, ddl_address *from, int *places)
{
    int error = ddl_socket_accept(listener->fd, fd, from);
    *places = listener->stranger_limit;
    if (!is_of_descriptors(error) || listener->stranger_count == 0 || !has_callers(listener) ||
        !regain_spare(listener))
        return error;
    close_spare(listener);
    *places = listener->stranger_count > 0 ? listener->stranger_count : 1;
    return ddl_socket_accept(listener->fd, fd, from);
}

static void on_arrival(void *arg, int events)
{
    ddl_listener *listener = arg;
    int broken = 0, refused = 0; /* and why the last of them was */
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd, places;
        ddl_address from;
        (void)open_spare(listener);
        int error = accept_next(listener, &fd, &from, &places);
        if (error == EAGAIN) {
            ddl_service_set_lack(listener->service, 0);
            break;
        }
        if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
            if (!has_callers(listener))
                break;
            tell_of_lack(listener, error);
            pause_accepting(listener);
            return;
        }
        if (error != 0) {
            broken++; /* that connection, before it was accepted */
            refused = error;
            continue;
        }
        if (from.socket.ss_family == AF_UNIX && !ddl_local_is_own_user(fd)) {
            ddl_socket_close(&fd); /* who belongs here calls another way */
            continue;
        }
        if (!make_room(listener, places, fd, &from)) {
            count_unproven(listener, &from, "there are too many at the door");
            ddl_socket_close(&fd); /* a rank calls again */
            continue;
        }
        if (meet(listener, fd, &from) != DDL_OK) {
            ddl_socket_close(&fd);
            tell_of_lack(listener, ENOMEM);
            pause_accepting(listener);
            return;
        }
        ddl_service_set_lack(listener->service, 0);
    }
    (void)open_spare(listener);
    /* It is not they: we may not accept, say, and would be asked at once again. */
    if (broken == ACCEPTS_PER_TURN) {
        tell_of_lack(listener, refused);
        pause_accepting(listener);
    }
    set_alarm(listener);
}

static void on_alarm(void *arg)
{
    ddl_listener *listener = arg;
    DDL_LIST_FOR_EACH (link, &listener->strangers) {
        struct stranger *stranger = DDL_CONTAINER(link, struct stranger, link);
        if (ddl_deadline_passed(stranger->until))
            send_away(stranger, "it proved nothing in the time that it had");
    }
    if (ddl_deadline_passed(listener->tell_next))
        tell_of_unproven(listener);
    if (listener->paused) {
        listener->paused = false;
        ddl_watch_set(listener->watch, DDL_READABLE);
        on_arrival(listener, DDL_READABLE); /* which also finds that nothing is lacking any more */
    }
    set_alarm(listener);
}

static ddl_status open_door(const ddl_listener_options *options, const ddl_address *address,
                            ddl_listener *listener, ddl_address *bound, ddl_error *err)
{
    const int backlog = listener->stranger_limit > QUEUE_LEAST ? listener->stranger_limit : QUEUE_LEAST;
    if (options->ports.first == 0)
        return ddl_socket_listen(address, backlog, &listener->fd, bound, err);
    return ddl_socket_listen_within(address, options->ports, options->self.rank, backlog, &listener->fd,
                                    bound, err);
}

int ddl_listener_places(int nranks)
{
    return 2 * nranks > STRANGERS_LEAST ? 2 * nranks : STRANGERS_LEAST;
}

ddl_status ddl_listener_open(const ddl_listener_options *options, const ddl_address *address,
                             ddl_address *bound, ddl_listener **out, ddl_error *err)
{
    ddl_status status;
    ddl_listener *listener = ddl_alloc(sizeof *listener);
    if (listener == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a listener");
    int nranks = options->self.nranks;
    listener->service = options->service;
    listener->self = options->self;
    listener->door = (ddl_encryption_door){ options->encryption, options->self.channel, options->self.rank };
    listener->events = options->events;
    listener->arg = options->arg;
    listener->fd = listener->spare = -1;
    const int places = ddl_listener_places(nranks), allowed = ddl_service_strangers(options->service);
    listener->stranger_limit = allowed > 0 && allowed < places ? allowed : places;
    /* Three quarters, where the ranks are so many that two for each would be all places. */
    int three_quarters = listener->stranger_limit / 4 * 3;
    listener->source_limit =
        2 * nranks + SOURCE_MORE < three_quarters ? 2 * nranks + SOURCE_MORE : three_quarters;
    ddl_list_init(&listener->strangers);
    if ((status = open_door(options, address, listener, bound, err)) != DDL_OK)
        goto fail;
    if ((status = ddl_alarm_open(options->service, on_alarm, listener, &listener->alarm, err)) != DDL_OK)
        goto fail;
    status = ddl_watch_open(options->service, listener->fd, on_arrival, listener, &listener->watch, err);
    if (status != DDL_OK)
        goto fail;
    ddl_watch_set(listener->watch, DDL_READABLE);
    (void)open_spare(listener);
    *out = listener;
    return DDL_OK;
fail:
    ddl_listener_close(listener);
    return status;
}

void ddl_listener_close(ddl_listener *listener)
{
    if (listener == NULL)
        return;
    DDL_LIST_FOR_EACH (link, &listener->strangers)
        dismiss(DDL_CONTAINER(link, struct stranger, link));
    tell_of_unproven(listener);
    ddl_alarm_close(listener->alarm);
    ddl_watch_close(listener->watch);
    ddl_socket_close(&listener->fd);
    close_spare(listener);
    ddl_free(listener);
}
