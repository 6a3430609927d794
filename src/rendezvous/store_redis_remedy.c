/* store_redis_remedy.c - see store_redis_remedy.h. */
#include "rendezvous/store_redis_remedy.h"

#include "protocol/hello.h"

#include <stdio.h>
#include <string.h>

bool ddl_redis_is_error(const ddl_redis_reply *reply, const char *begins)
{
    return reply->kind == DDL_REDIS_ERROR && strncmp(reply->text, begins, strlen(begins)) == 0;
}

bool ddl_redis_is_not_yet(const ddl_redis_reply *reply)
{
    return ddl_redis_is_error(reply, "LOADING") || ddl_redis_is_error(reply, "BUSY ");
}

const char *ddl_redis_remedy(const ddl_redis_reply *reply)
{
    static const struct {
        const char *begins, *remedy;
    } known[] = {
        { "NOAUTH", "it wants a password: name a file with it, as in redis://:/home/me/password@host:6379" },
        { "NOPERM", "a user needs ~PREFIX:* &PREFIX:* +select +multi +exec +watch +xadd +xread +expire +sadd "
                    "+spop +del "
                    "+subscribe +pubsub|numsub, for the ?prefix= of DDL_STORE or ddl" },
        { "READONLY", "it is a replica: name its master in DDL_STORE" },
        { "MASTERDOWN", "it is a replica: name its master in DDL_STORE" },
        { "NOREPLICAS", "it takes nothing without its replicas: see its min-replicas-to-write" },
        { "OOM", "its memory is full: raise its maxmemory, or use another server" },
        { "MISCONF", "it cannot save to its disk, and takes nothing until it can: see its log" },
        { "MOVED", "it is a node of a cluster, which does not do: name a server by itself" },
        { "ASK ", "it is a node of a cluster, which does not do: name a server by itself" },
        { "CROSSSLOT", "it is a node of a cluster, which does not do: name a server by itself" },
        { "CLUSTERDOWN", "it is a node of a cluster, which does not do: name a server by itself" },
        { "LOADING", "wait until it has" },
        { "BUSY ", "a script of somebody keeps it from all else: end that by SCRIPT KILL" },
        { "DENIED", "it lets only its own host in: set its bind and requirepass" },
        { "ERR max number of clients", "raise its maxclients: each rank needs two" },
        { "ERR DB index", "it has fewer databases than the /N of DDL_STORE says" },
        { "WRONGTYPE",
          "something else has written keys that begin with the prefix of ddl: remove them, or choose another "
          "by ?prefix= behind DDL_STORE" },
        { "ERR unknown command", "it has to be Redis 5 or newer, no sentinel, with no command renamed" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (ddl_redis_is_error(reply, known[i].begins))
            return known[i].remedy;
    return NULL;
}

void ddl_redis_reason(const ddl_redis_reply *reply, char reason[DDL_REDIS_REASON_TEXT])
{
    const char *remedy = ddl_redis_remedy(reply);
    snprintf(reason, DDL_REDIS_SAID_TEXT, "%s", reply->text);
    ddl_hello_clean(reason);
    const size_t used = strlen(reason);
    if (remedy != NULL)
        snprintf(reason + used, DDL_REDIS_REASON_TEXT - used, "; %s", remedy);
}
