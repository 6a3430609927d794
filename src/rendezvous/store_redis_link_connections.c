/* store_redis_link_connections.c - the two connections of a link to Redis, each from its address to its
 * replies. */
#include "rendezvous/store_redis_link_parts.h"

#include "io/socket.h"
#include "rendezvous/store_redis_remedy.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    PRESENCE_LEAST_MS = 100, /* between two times that we make it */
    UNSTEADY_MS = 1000,      /* after connecting again; all ranks have by then, unless the server is slow */
    LOGIN_BYTES = DDL_REDIS_WORD_TEXT + DDL_REDIS_PASSWORD_BYTES + 128
};

void ddl_redis_link_drop(ddl_redis_link *link, int which)
{
    ddl_redis_connection *connection = &link->connections[which];
    link->held[which] = -1;
    ddl_stream_close(connection->stream);
    ddl_redis_reader_destroy(connection->reader);
    *connection = (ddl_redis_connection){ .stream = NULL };
}

/* ---- talking ---- */

/*
 * Wait for bytes on a connection. While that lasts, a presence that breaks is made anew at once: others would
 * take us for dead. A failure of that shows here by the same deadline.
 */
static void wait_for_bytes(ddl_redis_link *link, const ddl_redis_connection *connection,
                           ddl_deadline deadline)
{
    struct pollfd items[2] = { { .fd = link->held[DDL_REDIS_COMMANDS], .events = POLLIN },
                               { .fd = link->held[DDL_REDIS_PRESENCE], .events = POLLIN } };
    ddl_error unwanted;
    if (connection != &link->connections[DDL_REDIS_COMMANDS] || items[0].fd < 0 || items[1].fd < 0)
        (void)ddl_socket_wait(ddl_stream_descriptor(connection->stream), POLLIN, deadline);
    else if (poll(items, 2, ddl_deadline_left_ms(deadline)) > 0 && items[0].revents == 0)
        (void)!ddl_redis_link_renew_presence(link, deadline, &unwanted);
}

ddl_status ddl_redis_link_next(ddl_redis_link *link, ddl_redis_connection *connection, ddl_deadline deadline,
                               ddl_redis_reply **reply, ddl_error *err)
{
    for (;;) {
        uint8_t data[DDL_REDIS_READ_BYTES];
        size_t count;
        bool late = ddl_deadline_passed(deadline);
        DDL_TRY(ddl_redis_reader_next(connection->reader, reply, err));
        if (*reply != NULL)
            return DDL_OK;
        DDL_TRY(ddl_stream_read(connection->stream, data, sizeof data, ddl_now_ns(), &count, err));
        if (count > 0)
            DDL_TRY(ddl_redis_reader_feed(connection->reader, data, count, err));
        if (late)
            return ddl_redis_reader_next(connection->reader, reply, err);
        if (count == 0)
            wait_for_bytes(link, connection, deadline);
        if (link->is_broken) /* as the presence could not be made anew */
            return ddl_redis_link_say_why(link, err);
    }
}

ddl_status ddl_redis_link_talk(ddl_redis_link *link, ddl_redis_connection *connection,
                               const ddl_redis_request *request, ddl_deadline deadline,
                               ddl_redis_reply *replies[], ddl_error *err)
{
    ddl_status status =
        ddl_stream_write(connection->stream, request->bytes.data, request->bytes.bytes, deadline, err);
    int got = 0;
    if (connection->owed == 0)
        ddl_redis_reader_begin(connection->reader);
    while (status == DDL_OK && got < request->count) {
        ddl_redis_reply *reply = NULL;
        status = ddl_redis_link_next(link, connection, deadline, &reply, err);
        if (status == DDL_OK && reply == NULL)
            status = DDL_FAIL(err, DDL_ETIMEDOUT, "it does not answer");
        else if (status == DDL_OK && connection->owed > 0)
            connection->owed--, ddl_redis_reply_destroy(reply);
        else if (status == DDL_OK)
            replies[got++] = reply;
    }
    link->has_answered = link->has_answered || got > 0;
    if (status != DDL_OK)
        ddl_redis_link_release(replies, got);
    return status;
}

/* ---- connecting ---- */

/* Our words only: an old Redis repeats what it does not understand, the password included. */
static ddl_status judge_login(const ddl_redis_link *link, const ddl_redis_reply *reply, ddl_error *err)
{
    if (reply->kind != DDL_REDIS_ERROR)
        return DDL_OK;
    const char *who = link->url.user[0] != '\0' ? link->url.user : "default";
    const char *remedy = ddl_redis_remedy(reply);
    if (ddl_redis_is_error(reply, "WRONGPASS") || ddl_redis_is_error(reply, "ERR invalid password"))
        return DDL_FAIL(err, DDL_EAUTH,
                        "wrong password, or no user %s; see the first line of %s, and the user in DDL_STORE",
                        who, link->url.password_file);
    if (ddl_redis_is_error(reply, "ERR Client sent AUTH, but no password is set") ||
        ddl_redis_is_error(reply, "ERR AUTH <password> called without any password"))
        return DDL_FAIL(err, DDL_ECONFIG, "it has no password, but DDL_STORE names one: leave %s out of it",
                        link->url.password_file);
    if (remedy != NULL) /* it refuses everybody */
        return DDL_FAIL(err, DDL_ESTORE, "it does not log in user %s; %s", who, remedy);
    return DDL_FAIL(err, DDL_EAUTH, "it refuses to log in user %s", who);
}

static ddl_status log_in(ddl_redis_link *link, ddl_redis_connection *connection, ddl_deadline deadline,
                         ddl_error *err)
{
    const char *password = link->access->password;
    ddl_redis_reply *reply = NULL;
    ddl_redis_request request = { .count = 0 };
    /* Large enough at once: memory that is moved as it grows would leave the password where it was. */
    request.bytes.data = ddl_alloc(LOGIN_BYTES);
    request.bytes.capacity = request.bytes.data != NULL ? LOGIN_BYTES : 0;
    if (link->url.user[0] != '\0')
        DDL_REDIS_ADD(&request, ddl_redis_word("AUTH"), ddl_redis_word(link->url.user),
                      ddl_redis_word(password));
    else if (link->url.password_file[0] != '\0')
        DDL_REDIS_ADD(&request, ddl_redis_word("AUTH"), ddl_redis_word(password));
    ddl_status status = request.incomplete ? DDL_FAIL(err, DDL_ENOMEM, "no memory to log in") : DDL_OK;
    if (status == DDL_OK && request.count > 0)
        status = ddl_redis_link_talk(link, connection, &request, deadline, &reply, err);
    if (status == DDL_OK && request.count > 0)
        status = judge_login(link, reply, err);
    ddl_clear(request.bytes.data, request.bytes.bytes);
    ddl_bytes_fini(&request.bytes);
    ddl_redis_reply_destroy(reply);
    return status;
}

/* A command with one argument that a connection begins with. By itself: who refuses a connection does so
 * once, and hangs up. */
static ddl_status begin_with(ddl_redis_link *link, ddl_redis_connection *connection, const char *command,
                             const char *argument, ddl_deadline deadline, ddl_error *err)
{
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    DDL_REDIS_ADD(&request, ddl_redis_word(command), ddl_redis_word(argument));
    ddl_status status = request.incomplete ? DDL_FAIL(err, DDL_ENOMEM, "no memory for a request") : DDL_OK;
    if (status == DDL_OK)
        status = ddl_redis_link_talk(link, connection, &request, deadline, &reply, err);
    if (status == DDL_OK && reply->kind == DDL_REDIS_ERROR) {
        char reason[DDL_REDIS_REASON_TEXT];
        ddl_redis_reason(reply, reason);
        status =
            DDL_FAIL(err, ddl_redis_is_not_yet(reply) ? DDL_ENETWORK : DDL_ESTORE, "%s: %s", command, reason);
    }
    ddl_redis_reply_destroy(reply);
    ddl_bytes_fini(&request.bytes);
    return status;
}

static ddl_status enter(ddl_redis_link *link, int which, const ddl_address *address,
                        ddl_deadline connected_by, ddl_deadline deadline, ddl_error *err)
{
    ddl_redis_connection *connection = &link->connections[which];
    DDL_TRY(
        ddl_stream_open(address, link->access->tls, link->url.host, connected_by, &connection->stream, err));
    link->is_met = true;
    DDL_TRY(ddl_redis_reader_create(&connection->reader, err));
    DDL_TRY(log_in(link, connection, deadline, err));
    if (link->url.db != 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", link->url.db);
        DDL_TRY(begin_with(link, connection, "SELECT", db, deadline, err));
    }
    /* Say on the second connection that we are here, for as long as it stands. */
    return which == DDL_REDIS_PRESENCE
               ? begin_with(link, connection, "SUBSCRIBE", link->channel, deadline, err)
               : DDL_OK;
}

/* What the first of them said counts for more than that the last refused. */
ddl_status ddl_redis_link_up(ddl_redis_link *link, int which, ddl_deadline deadline, ddl_error *err)
{
    ddl_status status = DDL_ENETWORK;
    ddl_error why = { .code = DDL_OK };
    for (int i = 0; i < link->address_count && status == DDL_ENETWORK; i++) {
        ddl_deadline least = ddl_deadline_in_ms(DDL_REDIS_CONNECT_LEAST_MS);
        bool is_last = i + 1 == link->address_count;
        status = enter(link, which, &link->addresses[i],
                       is_last ? deadline : ddl_deadline_earlier(least, deadline), deadline, err);
        if (status != DDL_OK)
            ddl_redis_link_drop(link, which);
        if (status == DDL_ENETWORK && why.code == DDL_OK && err->os_errno != ECONNREFUSED)
            why = *err;
    }
    if (status == DDL_ENETWORK && why.code != DDL_OK)
        *err = why;
    if (status != DDL_OK)
        return status;
    if (which == DDL_REDIS_PRESENCE ? link->presence_pause > 0 : link->generation > 0)
        link->unsteady_until = ddl_deadline_in_ms(UNSTEADY_MS);
    if (which == DDL_REDIS_PRESENCE)
        link->presence_pause = ddl_deadline_in_ms(PRESENCE_LEAST_MS);
    link->generation += which == DDL_REDIS_COMMANDS;
    link->held[which] = ddl_stream_descriptor(link->connections[which].stream);
    return DDL_OK;
}
