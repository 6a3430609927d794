/*
 * fuzz_introductions.c - what an usher says, as a rank of its host takes it. What is accepted names ranks to
 * be connected to, each with a descriptor or none, and no descriptor that came is lost.
 * Input: 0 how many descriptors come with it | 1 the note, sent at once.
 */
#include "base/assert.h"
#include "io/local.h"
#include "io/socket.h"
#include "rendezvous/meshing_introducer.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 70, OWN = 3, MOST_DESCRIPTORS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Of one host, and of another one the last. */
static const ddl_roster *roster_of_a_host(void)
{
    static ddl_roster *roster;
    if (roster != NULL)
        return roster;
    DDL_ASSERT(ddl_roster_create(OWN, RANKS, &roster, NULL) == DDL_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(roster->members[rank].host, DDL_HOST_TEXT, rank < RANKS - 1 ? "here" : "there");
        memset(roster->members[rank].host_id, rank < RANKS - 1 ? 7 : 8, DDL_HOST_ID_BYTES);
    }
    ddl_roster_derive(roster);
    return roster;
}

/* The lowest that is free: it is the same again if none has been left open. */
static int next_descriptor(void)
{
    int next = dup(STDERR_FILENO);
    close(next);
    return next;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const ddl_roster *roster = roster_of_a_host();
    ddl_introductions some;
    int pair[2], descriptors[MOST_DESCRIPTORS] = { STDERR_FILENO, STDERR_FILENO, STDERR_FILENO };
    if (bytes < 2)
        return 0;
    const int before = next_descriptor();
    DDL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    DDL_ASSERT(ddl_local_send(pair[0], data + 1, bytes - 1, descriptors, data[0] % (MOST_DESCRIPTORS + 1),
                              NULL) == DDL_OK);
    ddl_socket_close(&pair[0]);
    for (int turn = 0; turn < 3; turn++) {
        if (ddl_introductions_take(roster, pair[1], &some, NULL) != DDL_OK)
            continue;
        DDL_ASSERT(some.count >= 0 && some.count <= DDL_INTRODUCTIONS);
        for (int i = 0; i < some.count; i++) {
            DDL_ASSERT(some.ranks[i] > 0 && some.ranks[i] < RANKS - 1 && some.ranks[i] != OWN);
            DDL_ASSERT(some.fds[i] >= -1);
            ddl_socket_close(&some.fds[i]);
        }
    }
    ddl_socket_close(&pair[1]);
    DDL_ASSERT(next_descriptor() == before);
    return 0;
}
