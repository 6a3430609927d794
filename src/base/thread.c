/* thread.c - everything is blocked around the creation of a thread. */
#include "base/thread.h"

#include <signal.h>

int ddl_thread_start(void *(*run)(void *), void *arg, pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int ddl_thread_start_detached(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    int error = ddl_thread_start(run, arg, &thread);
    if (error == 0)
        pthread_detach(thread);
    return error;
}

static _Thread_local bool is_own;

void ddl_thread_be_own(void)
{
    is_own = true;
}

bool ddl_thread_is_own(void)
{
    return is_own;
}
