#define _GNU_SOURCE /* setns */
#include "ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct ranks_play {
    const char *store;
    int nranks;
    rank_part *part;
    pthread_mutex_t lock;
    pthread_cond_t all_came;
    int waiting;
    unsigned meetings;
    char complaint[1024];
};

void ranks_complain(rank_thread *me, const char *format, ...)
{
    struct ranks_play *play = me->play;
    va_list args;

    me->complained = true;
    pthread_mutex_lock(&play->lock);
    if (play->complaint[0] == '\0') {
        int begin = snprintf(play->complaint, sizeof play->complaint, "rank %d: ", me->rank);
        va_start(args, format);
        vsnprintf(play->complaint + begin, sizeof play->complaint - (size_t)begin, format, args);
        va_end(args);
    }
    pthread_mutex_unlock(&play->lock);
}

static const char *const *host_files(int *count)
{
    static char text[1024], *names[8];
    static int nnames = -1;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *hosts = getenv("DDL_TEST_HOSTS");

    pthread_mutex_lock(&lock);
    if (nnames < 0) {
        char *rest = text;
        snprintf(text, sizeof text, "%s", hosts != NULL ? hosts : "");
        nnames = 0;
        for (char *name; hosts != NULL && nnames < 8 && (name = strsep(&rest, " ")) != NULL;)
            names[nnames++] = name;
    }
    *count = nnames;
    pthread_mutex_unlock(&lock);
    return (const char *const *)names;
}

int ranks_hosts(void)
{
    int count;
    host_files(&count);
    return count > 0 ? count : 1;
}

bool ranks_go_to_host(int rank)
{
    int count;
    const char *const *files = host_files(&count);

    if (count == 0)
        return true;
#ifdef __linux__
    int file = open(files[rank % count], O_RDONLY | O_CLOEXEC);
    bool gone = file >= 0 && setns(file, CLONE_NEWNET) == 0;
    if (file >= 0)
        close(file);
    return gone;
#else
    (void)files;
    (void)rank;
    return false;
#endif
}

static void *live(void *arg)
{
    rank_thread *me = arg;
    ddl_options options = DDL_OPTIONS_INIT;

    EXPECT(me, ranks_go_to_host(me->rank));
    options.rank = me->rank;
    options.world_size = me->nranks;
    options.store = me->play->store;
    options.start_timeout_ms = RANKS_TIMEOUT_MS;
    options.timeout_ms = RANKS_TIMEOUT_MS;
    EXPECT(me, ddl_init(&me->world, &options) == DDL_OK);
    if (me->world == NULL)
        return NULL;
    me->play->part(me);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    return NULL;
}

void ranks_try(const char *store, int nranks, rank_part *part, void *arg, char complaint[1024])
{
    struct ranks_play play = { .store = store, .nranks = nranks, .part = part };
    rank_thread *ranks = calloc((size_t)nranks, sizeof *ranks);
    pthread_condattr_t attributes;

    assert_non_null(ranks);
    pthread_mutex_init(&play.lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&play.all_came, &attributes);
    pthread_condattr_destroy(&attributes);
    for (int r = 0; r < nranks; r++) {
        ranks[r] = (rank_thread){ .rank = r, .nranks = nranks, .arg = arg, .play = &play };
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, live, &ranks[r]), 0);
    }
    for (int r = 0; r < nranks; r++)
        assert_int_equal(pthread_join(ranks[r].thread, NULL), 0);
    memcpy(complaint, play.complaint, sizeof play.complaint);
    pthread_cond_destroy(&play.all_came);
    pthread_mutex_destroy(&play.lock);
    free(ranks);
}

void ranks_play(const char *store, int nranks, rank_part *part, void *arg)
{
    char complaint[1024];

    ranks_try(store, nranks, part, arg, complaint);
    if (complaint[0] != '\0')
        fail_msg("%s, of %d ranks: %s", store, nranks, complaint);
}

void ranks_meet(rank_thread *me)
{
    struct ranks_play *play = me->play;
    struct timespec deadline;
    unsigned meeting;
    bool late = false;

    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += RANKS_TIMEOUT_MS / 1000;
    pthread_mutex_lock(&play->lock);
    meeting = play->meetings;
    if (++play->waiting == play->nranks) {
        play->waiting = 0;
        play->meetings++;
        pthread_cond_broadcast(&play->all_came);
    }
    while (play->meetings == meeting && !late)
        late = pthread_cond_timedwait(&play->all_came, &play->lock, &deadline) != 0;
    pthread_mutex_unlock(&play->lock);
    EXPECT(me, !late);
}
