/* sink.c - two buffers and the thread that empties them. */
#include "sink.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/thread.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

enum { FULL_BYTES = 1 << 20 };

struct launch_sink {
    int fd, wake_fd;
    bool in_line; /* the last text put was author's, and ended in the middle of a line; the loop's alone */
    const void *author;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    ddl_bytes filling, writing; /* the thread alone touches writing while busy */
    bool busy, ending;
    bool awaited; /* the loop wants to be woken */
    int error;
};

static void wake(launch_sink *sink)
{
    if (!sink->awaited)
        return;
    sink->awaited = false;
    /* A full pipe is as good: the loop is going to wake. */
    ssize_t written = write(sink->wake_fd, "", 1);
    (void)written;
}

/* 0, or the errno of the failure. */
static int write_all(int fd, ddl_view text)
{
    const uint8_t *at = text.data;
    size_t left = text.bytes;
    while (left > 0) {
        ssize_t written = DDL_FAILPOINT_OS("launch.write", ENOSPC) ? -1 : write(fd, at, left);
        if (written >= 0) {
            at += written;
            left -= (size_t)written;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) { /* somebody made the descriptor so */
            struct pollfd room = { fd, POLLOUT, 0 };
            poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static void *run(void *argument)
{
    launch_sink *sink = argument;
    pthread_mutex_lock(&sink->mutex);
    for (;;) {
        while (sink->filling.bytes == 0 && !sink->ending)
            pthread_cond_wait(&sink->changed, &sink->mutex);
        if (sink->filling.bytes == 0)
            break;
        ddl_bytes full = sink->filling;
        sink->filling = sink->writing;
        sink->writing = full;
        sink->busy = true;
        wake(sink);
        pthread_mutex_unlock(&sink->mutex);
        int error = write_all(sink->fd, ddl_bytes_view(&full));
        pthread_mutex_lock(&sink->mutex);
        sink->writing.bytes = 0;
        sink->busy = false;
        if (error != 0) {
            sink->error = error;
            sink->filling.bytes = 0;
            sink->awaited = true;
        }
        wake(sink);
    }
    pthread_mutex_unlock(&sink->mutex);
    return NULL;
}

ddl_status launch_sink_create(int fd, int wake_fd, launch_sink **sink, ddl_error *err)
{
    launch_sink *made = ddl_alloc(sizeof *made);
    if (made == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for output");
    made->fd = fd;
    made->wake_fd = wake_fd;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    int failed = DDL_FAILPOINT("launch.thread") ? EAGAIN : ddl_thread_start(run, made, &made->thread);
    if (failed != 0) {
        pthread_cond_destroy(&made->changed);
        pthread_mutex_destroy(&made->mutex);
        ddl_free(made);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, failed,
                           "cannot start a thread to write output (" DDL_THREAD_LIMITS ")");
    }
    *sink = made;
    return DDL_OK;
}

void launch_sink_put(launch_sink *sink, const void *author, ddl_view text)
{
    if (text.bytes == 0)
        return;
    bool ends_other = sink->in_line && sink->author != author;
    pthread_mutex_lock(&sink->mutex);
    if (sink->error == 0 && ((ends_other && !ddl_bytes_append(&sink->filling, "\n", 1)) ||
                             !ddl_bytes_append(&sink->filling, text.data, text.bytes)))
        sink->error = ENOMEM;
    pthread_cond_signal(&sink->changed);
    pthread_mutex_unlock(&sink->mutex);
    sink->author = author;
    sink->in_line = ((const uint8_t *)text.data)[text.bytes - 1] != '\n';
}

bool launch_sink_awaits(const launch_sink *sink, const void *author)
{
    return sink->in_line && sink->author == author;
}

bool launch_sink_full(launch_sink *sink)
{
    pthread_mutex_lock(&sink->mutex);
    bool full = sink->filling.bytes >= FULL_BYTES;
    if (full)
        sink->awaited = true;
    pthread_mutex_unlock(&sink->mutex);
    return full;
}

bool launch_sink_idle(launch_sink *sink)
{
    pthread_mutex_lock(&sink->mutex);
    bool idle = sink->filling.bytes == 0 && !sink->busy;
    if (!idle)
        sink->awaited = true;
    pthread_mutex_unlock(&sink->mutex);
    return idle;
}

int launch_sink_error(launch_sink *sink)
{
    pthread_mutex_lock(&sink->mutex);
    int error = sink->error;
    pthread_mutex_unlock(&sink->mutex);
    return error;
}

void launch_sink_destroy(launch_sink *sink)
{
    if (sink == NULL)
        return;
    pthread_mutex_lock(&sink->mutex);
    DDL_ASSERT(!sink->busy);
    sink->ending = true;
    pthread_cond_signal(&sink->changed);
    pthread_mutex_unlock(&sink->mutex);
    pthread_join(sink->thread, NULL);
    pthread_cond_destroy(&sink->changed);
    pthread_mutex_destroy(&sink->mutex);
    ddl_bytes_fini(&sink->filling);
    ddl_bytes_fini(&sink->writing);
    ddl_free(sink);
}
