/* store_file_clerk.c - the thread that does the calls on files, and what waits for it. */
#include "rendezvous/store_file_clerk.h"

#include "base/assert.h"
#include "base/bell.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    WARNING_TICKS = 50,
    GRACE_MS = 700, /* beyond the deadline, of all calls together */
    SPARE_MS = 300, /* of it, for calls that may be left out */
    CLOSED_LATE = 2 /* descriptors */
};

/* One call: what is to be done, and what came of it. */
struct deed {
    void (*act)(struct deed *deed);
    const char *what; /* "creating" */
    char path[DDL_RECORD_PATH], reference[DDL_RECORD_PATH];
    ddl_bytes bytes; /* content, or names */
    size_t limit;
    int fd, os_errno;
    bool yes; /* created, found, or held */
    int64_t number;
    ddl_record_life life;
    ddl_status status;
    ddl_error error;
};

typedef enum step { FREE, ASKED, DONE } step;

struct ddl_clerk {
    ddl_bell bell; /* guards all that follows, but the deed while it is done; rings at each change */
    step step;
    struct deed deed;
    bool stops, lost;            /* lost: given up, so the thread releases it, once nobody has it any more */
    ddl_error why;               /* of lost */
    int64_t late_ns;             /* of the grace */
    int ncalls;                  /* that have returned */
    int64_t busy_ns, longest_ns; /* and what they took */
    int late[CLOSED_LATE], nlate;
    pthread_t thread;
};

/* ---- the thread ---- */

static void release(ddl_clerk *clerk)
{
    ddl_bell_fini(&clerk->bell);
    ddl_free(clerk);
}

/* What was still under way when it was given up, and what came to be closed since. */
static void clear_up(ddl_clerk *clerk)
{
    ddl_bytes_fini(&clerk->deed.bytes);
    if (clerk->deed.fd >= 0)
        close(clerk->deed.fd);
    for (int i = 0; i < clerk->nlate; i++)
        close(clerk->late[i]);
    release(clerk);
}

static void *serve(void *arg)
{
    ddl_clerk *clerk = arg;
    ddl_bell_lock(&clerk->bell);
    while (!clerk->stops) {
        if (clerk->step != ASKED || clerk->lost) {
            (void)ddl_bell_wait(&clerk->bell, DDL_DEADLINE_NEVER);
            continue;
        }
        ddl_bell_unlock(&clerk->bell);
        clerk->deed.act(&clerk->deed);
        ddl_bell_lock(&clerk->bell);
        clerk->step = DONE;
        ddl_bell_ring(&clerk->bell);
    }
    const bool lost = clerk->lost;
    ddl_bell_unlock(&clerk->bell);
    if (lost)
        clear_up(clerk);
    return NULL;
}

ddl_status ddl_clerk_create(ddl_clerk **out, ddl_error *err)
{
    ddl_clerk *clerk = ddl_alloc(sizeof *clerk);
    if (clerk == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a thread that does calls on files");
    ddl_bell_init(&clerk->bell);
    const int error =
        DDL_FAILPOINT("rendezvous.clerk") ? EAGAIN : ddl_thread_start(serve, clerk, &clerk->thread);
    if (error != 0) {
        release(clerk);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, error,
                           "cannot start a thread that does calls on files (" DDL_THREAD_LIMITS ")");
    }
    *out = clerk;
    return DDL_OK;
}

void ddl_clerk_destroy(ddl_clerk *clerk)
{
    if (clerk == NULL)
        return;
    ddl_bell_lock(&clerk->bell);
    const bool lost = clerk->lost;
    const pthread_t thread = clerk->thread;
    clerk->stops = true;
    ddl_bell_ring(&clerk->bell);
    ddl_bell_unlock(&clerk->bell);
    if (lost) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    release(clerk);
}

/* ---- whoever has a deed ---- */

/* With the bell's lock, as all that follows. */
static void give_up(ddl_clerk *clerk, const struct deed *deed, int64_t waited_ns)
{
    if (clerk->ncalls == 0 || waited_ns > 2 * clerk->longest_ns)
        (void)DDL_FAIL(
            &clerk->why, DDL_ESTORE,
            "file store: %s %.400s has not returned for %.1f s; does the server of that file system "
            "answer?",
            deed->what, deed->path, (double)waited_ns / 1e9);
    else
        (void)DDL_FAIL(&clerk->why, DDL_ESTORE,
                       "file store: no time was left for %s %.300s: %d calls on files had taken %.1f s, the "
                       "longest %.1f s; the server of that file system is slow, so raise DDL_START_TIMEOUT",
                       deed->what, deed->path, clerk->ncalls, (double)clerk->busy_ns / 1e9,
                       (double)clerk->longest_ns / 1e9);
    clerk->lost = true;
    ddl_bell_ring(&clerk->bell);
}

void ddl_desk_limit(ddl_desk *desk, ddl_deadline until)
{
    ddl_bell_lock(&desk->clerk->bell);
    desk->until = until;
    if (!ddl_deadline_passed(until))
        desk->clerk->late_ns = 0;
    ddl_bell_ring(&desk->clerk->bell);
    ddl_bell_unlock(&desk->clerk->bell);
}

static bool has_time(const ddl_desk *desk, int grace_ms)
{
    return !ddl_deadline_passed(desk->until) || desk->clerk->late_ns < grace_ms * DDL_NS_PER_MS;
}

bool ddl_desk_has_time_to_spare(const ddl_desk *desk)
{
    ddl_bell_lock(&desk->clerk->bell);
    const bool spare = has_time(desk, SPARE_MS);
    ddl_bell_unlock(&desk->clerk->bell);
    return spare;
}

/* For a tick at most, which is the most that counts: where this process hardly runs, it takes longer. */
static void wait_a_tick(const ddl_desk *desk, step wanted)
{
    ddl_clerk *clerk = desk->clerk;
    const int64_t start_ns = ddl_now_ns();
    const ddl_deadline tick = ddl_deadline_in_ms(TICK_MS);
    while (clerk->step != wanted && !clerk->lost && ddl_bell_wait(&clerk->bell, tick))
        continue;
    const int64_t waited_ns = ddl_now_ns() - (start_ns > desk->until ? start_ns : desk->until);
    if (waited_ns > 0)
        clerk->late_ns += waited_ns < TICK_MS * DDL_NS_PER_MS ? waited_ns : TICK_MS * DDL_NS_PER_MS;
}

/* False: the clerk is given up. */
static bool wait_for(const ddl_desk *desk, const struct deed *deed, step wanted)
{
    ddl_clerk *clerk = desk->clerk;
    const int64_t start_ns = ddl_now_ns();
    for (int ticks = 0; clerk->step != wanted && !clerk->lost; ticks++) {
        if (ticks == WARNING_TICKS && desk->until != DDL_DEADLINE_NEVER)
            ddl_log(DDL_LOG_WARNING,
                    "%s %s has not returned for 5 s; does the server of that file system answer?", deed->what,
                    deed->path);
        if (has_time(desk, GRACE_MS))
            wait_a_tick(desk, wanted);
        else
            give_up(clerk, deed, ddl_now_ns() - start_ns);
    }
    return !clerk->lost;
}

static void give_to(ddl_clerk *clerk, struct deed *deed)
{
    clerk->deed = *deed;
    clerk->deed.os_errno = 0;
    clerk->step = ASKED;
    deed->bytes = (ddl_bytes){ 0 }; /* the clerk's by now */
    deed->fd = -1;
    ddl_bell_ring(&clerk->bell);
}

static void take_from(ddl_clerk *clerk, struct deed *deed, int64_t took_ns)
{
    *deed = clerk->deed;
    clerk->deed.bytes = (ddl_bytes){ 0 };
    clerk->deed.fd = -1;
    clerk->step = FREE;
    clerk->ncalls++;
    clerk->busy_ns += took_ns;
    if (clerk->longest_ns < took_ns)
        clerk->longest_ns = took_ns;
    ddl_bell_ring(&clerk->bell);
}

/* Have the clerk do a deed, and take what came of it, and what was in it. */
static ddl_status hand_over(const ddl_desk *desk, struct deed *deed, ddl_error *err)
{
    ddl_clerk *clerk = desk->clerk;
    ddl_bell_lock(&clerk->bell);
    bool done = wait_for(desk, deed, FREE);
    if (done) {
        const int64_t start_ns = ddl_now_ns();
        give_to(clerk, deed);
        done = wait_for(desk, deed, DONE);
        if (done)
            take_from(clerk, deed, ddl_now_ns() - start_ns);
    }
    if (!done) {
        ddl_bytes_fini(&deed->bytes);
        deed->os_errno = ETIMEDOUT;
        if (err != NULL)
            *err = clerk->why;
    }
    ddl_bell_unlock(&clerk->bell);
    return done ? DDL_OK : DDL_ESTORE;
}

static struct deed deed_on(void (*act)(struct deed *deed), const char *what, const char *path)
{
    struct deed deed = { .act = act, .what = what, .fd = -1 };
    snprintf(deed.path, sizeof deed.path, "%s", path);
    return deed;
}

static ddl_status outcome_of(const struct deed *deed, ddl_error *err)
{
    if (deed->status != DDL_OK && err != NULL)
        *err = deed->error;
    return deed->status;
}

/* A call of which nothing but an errno is wanted. */
static int errno_of(const ddl_desk *desk, void (*act)(struct deed *deed), const char *what, const char *path)
{
    struct deed deed = deed_on(act, what, path);
    (void)!hand_over(desk, &deed, NULL);
    return deed.os_errno;
}

/* ---- records ---- */

static void act_create(struct deed *deed)
{
    deed->status = ddl_record_create(deed->path, ddl_bytes_view(&deed->bytes), &deed->yes, &deed->error);
}

static void act_replace(struct deed *deed)
{
    deed->status = ddl_record_replace(deed->path, ddl_bytes_view(&deed->bytes), &deed->error);
}

static ddl_status write_record(const ddl_desk *desk, struct deed *deed, ddl_view content, ddl_error *err)
{
    if (!ddl_bytes_append(&deed->bytes, content.data, content.bytes))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a record of %zu bytes", content.bytes);
    DDL_TRY(hand_over(desk, deed, err));
    ddl_bytes_fini(&deed->bytes);
    return outcome_of(deed, err);
}

ddl_status ddl_desk_create(const ddl_desk *desk, const char *path, ddl_view content, bool *created,
                           ddl_error *err)
{
    struct deed deed = deed_on(act_create, "creating", path);
    *created = false;
    DDL_TRY(write_record(desk, &deed, content, err));
    *created = deed.yes;
    return DDL_OK;
}

ddl_status ddl_desk_replace(const ddl_desk *desk, const char *path, ddl_view content, ddl_error *err)
{
    struct deed deed = deed_on(act_replace, "replacing", path);
    return write_record(desk, &deed, content, err);
}

static void act_read(struct deed *deed)
{
    deed->status = ddl_record_read(deed->path, deed->limit, &deed->bytes, &deed->yes, &deed->error);
}

ddl_status ddl_desk_read(const ddl_desk *desk, const char *path, size_t limit, ddl_bytes *content,
                         bool *found, ddl_error *err)
{
    struct deed deed = deed_on(act_read, "reading", path);
    deed.limit = limit;
    *found = false;
    DDL_TRY(hand_over(desk, &deed, err));
    DDL_TRY(outcome_of(&deed, err));
    *found = deed.yes;
    if (deed.yes)
        *content = deed.bytes;
    return DDL_OK;
}

static void act_folder(struct deed *deed)
{
    deed->status = ddl_record_folder(deed->path, &deed->error);
}

ddl_status ddl_desk_folder(const ddl_desk *desk, const char *path, ddl_error *err)
{
    struct deed deed = deed_on(act_folder, "making", path);
    DDL_TRY(hand_over(desk, &deed, err));
    return outcome_of(&deed, err);
}

static void act_new_folder(struct deed *deed)
{
    deed->status = ddl_record_new_folder(deed->path, &deed->error);
}

ddl_status ddl_desk_new_folder(const ddl_desk *desk, const char *path, ddl_error *err)
{
    struct deed deed = deed_on(act_new_folder, "making", path);
    DDL_TRY(hand_over(desk, &deed, err));
    return outcome_of(&deed, err);
}

static void act_lock(struct deed *deed)
{
    deed->status = ddl_record_lock(deed->path, &deed->fd, &deed->yes, &deed->error);
}

ddl_status ddl_desk_lock(const ddl_desk *desk, const char *path, int *fd, bool *held, ddl_error *err)
{
    struct deed deed = deed_on(act_lock, "locking", path);
    *held = false;
    DDL_TRY(hand_over(desk, &deed, err));
    DDL_TRY(outcome_of(&deed, err));
    *held = deed.yes;
    if (deed.yes)
        *fd = deed.fd;
    return DDL_OK;
}

static void act_life_of(struct deed *deed)
{
    deed->life = ddl_record_life_of(deed->path);
}

ddl_record_life ddl_desk_life_of(const ddl_desk *desk, const char *path)
{
    struct deed deed = deed_on(act_life_of, "looking at the lock of", path);
    return hand_over(desk, &deed, NULL) == DDL_OK ? deed.life : DDL_RECORD_UNKNOWN;
}

static void act_remove_tree(struct deed *deed)
{
    ddl_record_remove_tree(deed->path);
}

void ddl_desk_remove_tree(const ddl_desk *desk, const char *path)
{
    (void)errno_of(desk, act_remove_tree, "removing", path);
}

/* ---- other calls ---- */

static void act_find(struct deed *deed)
{
    deed->os_errno = access(deed->path, F_OK) == 0 ? 0 : errno;
}

int ddl_desk_find(const ddl_desk *desk, const char *path)
{
    return errno_of(desk, act_find, "looking for", path);
}

static void act_touch(struct deed *deed)
{
    deed->os_errno = ddl_record_touch(deed->path);
}

int ddl_desk_touch(const ddl_desk *desk, const char *path)
{
    return errno_of(desk, act_touch, "creating", path);
}

static void act_remove(struct deed *deed)
{
    deed->os_errno = ddl_record_remove(deed->path);
}

int ddl_desk_remove(const ddl_desk *desk, const char *path)
{
    return errno_of(desk, act_remove, "removing", path);
}

static void act_remove_folder(struct deed *deed)
{
    deed->os_errno = rmdir(deed->path) == 0 ? 0 : errno;
}

int ddl_desk_remove_folder(const ddl_desk *desk, const char *path)
{
    return errno_of(desk, act_remove_folder, "removing", path);
}

static void act_refresh(struct deed *deed)
{
    const int fd = open(deed->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

void ddl_desk_refresh(const ddl_desk *desk, const char *path)
{
    (void)errno_of(desk, act_refresh, "opening", path);
}

static void act_list(struct deed *deed)
{
    bool has_room = true;
    errno = 0;
    DIR *folder = ddl_record_list(deed->path);
    if (folder != NULL)
        errno = 0;
    for (struct dirent *item; folder != NULL && has_room; errno = 0) {
        if ((item = readdir(folder)) == NULL)
            break;
        has_room = ddl_bytes_append(&deed->bytes, item->d_name, strlen(item->d_name) + 1);
    }
    if (!has_room)
        deed->status = DDL_FAIL(&deed->error, DDL_ENOMEM, "no memory for the names in %s", deed->path);
    else if (errno != 0 && errno != ENOENT && errno != ESTALE)
        deed->status =
            DDL_FAIL_OS(&deed->error, DDL_ESTORE, errno, "file store: listing %s failed", deed->path);
    if (folder != NULL)
        closedir(folder);
}

ddl_status ddl_desk_names(const ddl_desk *desk, const char *path, ddl_bytes *names, ddl_error *err)
{
    struct deed deed = deed_on(act_list, "listing", path);
    DDL_TRY(hand_over(desk, &deed, err));
    if (deed.status == DDL_OK)
        *names = deed.bytes;
    else
        ddl_bytes_fini(&deed.bytes);
    return outcome_of(&deed, err);
}

ddl_bytes ddl_desk_list(const ddl_desk *desk, const char *path)
{
    struct deed deed = deed_on(act_list, "listing", path);
    (void)!hand_over(desk, &deed, NULL);
    return deed.bytes;
}

const char *ddl_desk_next(const ddl_bytes *names, const char *name)
{
    const char *first = (const char *)names->data;
    const char *next = name == NULL ? first : name + strlen(name) + 1;
    return (size_t)(next - first) < names->bytes ? next : NULL;
}

static void act_age(struct deed *deed)
{
    struct stat then, now;
    const bool known = lstat(deed->path, &then) == 0 && lstat(deed->reference, &now) == 0 &&
                       then.st_mtime >= 0 && then.st_mtime <= now.st_mtime;
    deed->number = known ? (int64_t)(now.st_mtime - then.st_mtime) : -1;
}

int64_t ddl_desk_age_s(const ddl_desk *desk, const char *path, const char *reference)
{
    struct deed deed = deed_on(act_age, "looking at", path);
    snprintf(deed.reference, sizeof deed.reference, "%s", reference);
    return hand_over(desk, &deed, NULL) == DDL_OK ? deed.number : -1;
}

static void act_device(struct deed *deed)
{
    struct stat info;
    deed->number = lstat(deed->path, &info) == 0 ? (int64_t)info.st_dev : 0;
}

int64_t ddl_desk_device(const ddl_desk *desk, const char *path)
{
    struct deed deed = deed_on(act_device, "looking at", path);
    return hand_over(desk, &deed, NULL) == DDL_OK ? deed.number : 0;
}

static void act_close(struct deed *deed)
{
    close(deed->fd);
    deed->fd = -1;
}

void ddl_desk_close(const ddl_desk *desk, int *fd)
{
    struct deed deed = deed_on(act_close, "closing", "a lock");
    ddl_clerk *clerk = desk->clerk;
    if (*fd < 0)
        return;
    deed.fd = *fd;
    *fd = -1;
    if (hand_over(desk, &deed, NULL) == DDL_OK || deed.fd < 0)
        return;
    ddl_bell_lock(&clerk->bell);
    DDL_ASSERT(clerk->nlate < CLOSED_LATE);
    clerk->late[clerk->nlate++] = deed.fd;
    ddl_bell_unlock(&clerk->bell);
}
