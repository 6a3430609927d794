/*
 * ranks.h - ranks as threads of this process that meet at a mem:// store, for tests with cmocka.
 *
 * A test gives each rank the same part to play. What a rank finds wrong it writes down, as cmocka wants its
 * assertions on the main thread; ranks_play fails the test with the first complaint.
 */
#ifndef DDL_TESTS_CONFORMANCE_RANKS_H
#define DDL_TESTS_CONFORMANCE_RANKS_H

#include <ddl/ddl.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { RANKS_AT_MOST = 16, RANKS_TIMEOUT_MS = 60000 };

typedef struct rank_thread {
    int rank, nranks;
    ddl_comm *world; /* may be freed by the part; otherwise it is freed after it */
    void *arg;
    struct ranks_play *play;
    pthread_t thread;
    bool complained;
} rank_thread;

typedef void rank_part(rank_thread *me);

/* store names the meeting place and has to be unique in the program: "mem://name". */
void ranks_play(const char *store, int nranks, rank_part *part, void *arg);

/* As above, and returns the first complaint ("" if there is none), in a buffer of the caller. */
void ranks_try(const char *store, int nranks, rank_part *part, void *arg, char complaint[1024]);

/*
 * DDL_TEST_HOSTS: files of network namespaces, with spaces between, which are hosts to the library. Ranks are
 * dealt out to them in turn; the sockets of a thread, and of those that it starts, are those of its own. So
 * many there are; 1 without it.
 */
int ranks_hosts(void);
/* As ranks_play does: the calling thread goes to the host of this rank. False: it cannot. */
bool ranks_go_to_host(int rank);

/* Wait, without the library, until all ranks have come here; a complaint if they do not in time. */
void ranks_meet(rank_thread *me);

/* Write down what is wrong; of all ranks the first to do so is heard. */
void ranks_complain(rank_thread *me, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define EXPECT(me, condition)                                                                         \
    do {                                                                                              \
        if (!(condition))                                                                             \
            ranks_complain(me, "line %d: %s (%.500s)", __LINE__, #condition, ddl_last_error()->text); \
    } while (0)

#endif
