/* request.c - the pool of requests, and waiting for them. */
#include "api/request.h"

#include "api/comm.h"
#include "api/contexts.h"
#include "api/last_error.h"
#include "base/bytes.h"
#include "base/failpoint.h"

#include <stdio.h>
#include <string.h>

enum { REQUESTS_KEPT = 1024 }; /* what a burst of calls took is not the communicator's for ever */

static void destroy(ddl_request *request)
{
    ddl_free(request->kept);
    ddl_free(request->refusal);
    ddl_free(request);
}

ddl_request_pool *ddl_request_pool_create(int rank, const char *prefix, int nrequests)
{
    ddl_request_pool *pool = ddl_alloc(sizeof *pool);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    ddl_list_init(&pool->idle);
    atomic_init(&pool->references, 1);
    pool->rank = rank;
    snprintf(pool->prefix, sizeof pool->prefix, "%s", prefix);
    for (int i = 0; i <= nrequests; i++) {
        ddl_request *request = ddl_alloc(sizeof *request);
        if (request == NULL) {
            ddl_request_pool_release(pool);
            return NULL;
        }
        if (pool->reserve == NULL)
            pool->reserve = request;
        else {
            ddl_list_append(&pool->idle, &request->link);
            pool->nidle++;
        }
    }
    return pool;
}

void ddl_request_pool_release(ddl_request_pool *pool)
{
    if (pool == NULL)
        return;
    if (atomic_fetch_sub(&pool->references, 1) > 1)
        return;
    ddl_request *spare = atomic_load(&pool->spare);
    if (spare != NULL)
        destroy(spare);
    if (pool->reserve != NULL)
        destroy(pool->reserve);
    for (ddl_link *first; (first = ddl_list_take_first(&pool->idle)) != NULL;)
        destroy(DDL_CONTAINER(first, ddl_request, link));
    pthread_mutex_destroy(&pool->lock);
    ddl_free(pool);
}

ddl_request *ddl_request_take(ddl_request_pool *pool)
{
    if (DDL_FAILPOINT("api.request"))
        return NULL;
    atomic_fetch_add(&pool->references, 1);
    ddl_request *request = atomic_exchange(&pool->spare, NULL);
    if (request == NULL) {
        pthread_mutex_lock(&pool->lock);
        ddl_link *first = ddl_list_take_first(&pool->idle);
        request = first != NULL ? DDL_CONTAINER(first, ddl_request, link) : NULL;
        pool->nidle -= first != NULL;
        pthread_mutex_unlock(&pool->lock);
    }
    if (request != NULL)
        *request = (ddl_request){ .kept = request->kept, .kept_bytes = request->kept_bytes };
    else
        request = ddl_alloc(sizeof *request);
    if (request != NULL)
        request->pool = pool;
    else
        ddl_request_pool_release(pool);
    return request;
}

ddl_request *ddl_request_take_reserve(ddl_request_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    ddl_request *request = pool->reserve;
    pool->reserve = NULL;
    pthread_mutex_unlock(&pool->lock);
    if (request == NULL)
        return NULL;
    atomic_fetch_add(&pool->references, 1);
    *request = (ddl_request){ .pool = pool, .kept = request->kept, .kept_bytes = request->kept_bytes };
    return request;
}

void ddl_request_give_back(ddl_request *request)
{
    ddl_request_pool *pool = request->pool;
    ddl_request *none = NULL;
    memset(&request->link, 0, sizeof request->link);
    ddl_free(request->refusal);
    request->refusal = NULL;
    if (!atomic_compare_exchange_strong(&pool->spare, &none, request)) {
        pthread_mutex_lock(&pool->lock);
        const bool is_kept = pool->reserve == NULL || pool->nidle < REQUESTS_KEPT;
        if (pool->reserve == NULL) {
            pool->reserve = request;
        } else if (is_kept) {
            ddl_list_prepend(&pool->idle, &request->link); /* the last one has room for what calls have */
            pool->nidle++;
        }
        pthread_mutex_unlock(&pool->lock);
        if (!is_kept)
            destroy(request);
    }
    ddl_request_pool_release(pool);
}

const char *ddl_request_operation(const ddl_request *request)
{
    if (request->task.signature.collective == DDL_SIGNATURE_FREE)
        return "comm_free";
    if (request->task.signature.collective == DDL_SIGNATURE_SPLIT)
        return "comm_split";
    return ddl_collective_name(request->task.algorithm->collective);
}

void ddl_request_end(ddl_request *request)
{
    const ddl_hold hold = request->task.hold;
    atomic_store(&request->done, true); /* pairs with pool->waiters, see ddl_request_pool */
    ddl_hold_end(hold);                 /* last: who has waited for the stream finds the request done */
}

/* "it" in the text of a cause may be another operation than this. */
static void say_where(const ddl_request *request, const ddl_notice *cause, char *where, size_t capacity)
{
    const bool is_mismatch = cause->code == DDL_EMISMATCH; /* in which ranks call different operations */
    const bool is_of_this = cause->sequence == request->task.sequence &&
                            (strcmp(cause->operation, ddl_request_operation(request)) == 0 ||
                             (is_mismatch && ddl_request_is_collective(request)));
    where[0] = '\0';
    if ((is_mismatch || cause->code == DDL_ETIMEDOUT) && cause->sequence > 0 && !is_of_this)
        snprintf(where, capacity, "in %s#%llu, ", cause->operation, (unsigned long long)cause->sequence);
}

ddl_status ddl_request_finish(ddl_request *request)
{
    ddl_status status = request->status;
    if (status != DDL_OK) {
        const ddl_notice *cause = &request->pool->cause;
        ddl_error error;
        char where[64];
        say_where(request, cause, where, sizeof where);
        ddl_error_set(&error, status, "%s#%llu %s: %s%s%s", ddl_request_operation(request),
                      (unsigned long long)request->task.sequence, request->pool->prefix,
                      request->root_cause ? "" : "this communicator has failed before: ", where, cause->text);
        error.rank = request->pool->rank;
        error.culprit = cause->culprit;
        error.sequence = request->task.sequence;
        error.os_errno = request->pool->cause_os_errno;
        snprintf(error.operation, sizeof error.operation, "%s", ddl_request_operation(request));
        ddl_last_error_keep(&error);
        atomic_store(&request->pool->is_told, true);
    }
    ddl_request_give_back(request);
    return status;
}

static bool has_exited(const ddl_request *request)
{
    return ddl_contexts_have_ended() && atomic_load(&request->pool->has_exited);
}

/* The engine did not end the operation by its deadline: nobody could drive it, or nobody will. The request is
 * never given back, as whoever is stuck with the baton may still touch it. */
static ddl_status give_up(ddl_request **handle)
{
    ddl_request *request = *handle;
    *handle = NULL;
    ddl_hold_end(request->task.hold);
    if (has_exited(request))
        return ddl_last_error_set(DDL_EABORTED, request->pool->rank, ddl_request_operation(request),
                                  "%s: " DDL_REQUEST_EXITED, request->pool->prefix);
    return ddl_last_error_set(DDL_ETIMEDOUT, request->pool->rank, ddl_request_operation(request),
                              "no end after %lld ms (%s), and the engine is stuck in another thread",
                              (long long)request->timeout_ms, request->limit);
}

static ddl_status finish(ddl_request **handle)
{
    ddl_request *request = *handle;
    *handle = NULL;
    return ddl_request_finish(request);
}

/* It is not waited for in vain if it was put off meanwhile. */
static bool is_put_off(const ddl_request *request, ddl_deadline deadline)
{
    return atomic_load(&request->deadline) > deadline;
}

/* False: the engine is stuck. */
static bool await(const ddl_request *request)
{
    ddl_deadline deadline;
    bool done;
    do {
        deadline = atomic_load(&request->deadline);
        done = ddl_engine_wait(request->engine, &request->done, deadline);
    } while (!done && is_put_off(request, deadline));
    return done;
}

ddl_status ddl_request_wait_entered(ddl_request **handle)
{
    const ddl_request *request = *handle;
    const ddl_deadline deadline = atomic_load_explicit(&request->deadline, memory_order_relaxed);
    const bool done = ddl_engine_wait_entered(request->engine, &request->done, deadline) ||
                      (is_put_off(request, deadline) && await(request));
    return done ? finish(handle) : give_up(handle);
}

static ddl_status check_forked(const char *operation)
{
    if (!ddl_contexts_forked())
        return DDL_OK;
    return ddl_last_error_set(DDL_EUNSUPPORTED, -1, operation, "a forked child must not use the library");
}

ddl_status ddl_wait(ddl_request **handle)
{
    if (handle == NULL || *handle == NULL)
        return DDL_OK;
    DDL_TRY(check_forked("wait"));
    ddl_request *request = *handle;
    atomic_fetch_add(&request->pool->waiters, 1);
    bool done = ddl_request_is_done(request) || (!has_exited(request) && await(request));
    atomic_fetch_sub(&request->pool->waiters, 1);
    return done ? finish(handle) : give_up(handle);
}

ddl_status ddl_wait_all(size_t n, ddl_request *requests[])
{
    if (n > 0 && requests == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, "wait_all", "requests is NULL");
    ddl_status first = DDL_OK;
    ddl_error first_error;
    for (size_t i = 0; i < n; i++) {
        ddl_status status = ddl_wait(&requests[i]);
        /* DDL_EABORTED only says that something failed before. */
        if (status != DDL_OK && (first == DDL_OK || (first == DDL_EABORTED && status != DDL_EABORTED))) {
            first = status;
            first_error = *ddl_last_error();
        }
    }
    if (first != DDL_OK)
        ddl_last_error_keep(&first_error);
    return first;
}

enum { FLAGS_ON_STACK = 64 };

/* The one whose deadline is first; n if all are NULL. */
static size_t find_first(size_t n, ddl_request *requests[])
{
    size_t first = n;
    for (size_t i = 0; i < n; i++)
        if (requests[i] != NULL && (first == n || requests[i]->deadline < requests[first]->deadline))
            first = i;
    return first;
}

/* Wait until one of n requests of one engine is done. False: the engine is stuck, beyond this deadline. */
static bool wait_on_engine(size_t n, ddl_request *requests[], const ddl_request *first)
{
    const atomic_bool *on_stack[FLAGS_ON_STACK] = { NULL };
    const atomic_bool **flags = n > FLAGS_ON_STACK ? ddl_alloc_array(n, sizeof *flags) : on_stack;
    if (flags == NULL) { /* then those that fit; they end by their deadlines, and the caller looks again */
        flags = on_stack;
        n = FLAGS_ON_STACK;
    }
    for (size_t i = 0; i < n; i++)
        flags[i] = requests[i] != NULL ? &requests[i]->done : NULL;
    const ddl_deadline deadline = atomic_load(&first->deadline);
    const bool goes_on =
        ddl_engine_wait_any(first->engine, flags, n, deadline) || is_put_off(first, deadline);
    if (flags != on_stack)
        ddl_free(flags);
    return goes_on;
}

static void drive(ddl_engine *engine)
{
    ddl_engine_progress(engine);
    ddl_engine_leave(engine);
}

/* Requests of several worlds: drive each in turn. False: the engine of the first one, whose deadline has
 * passed, is stuck. */
static bool poll_engines(size_t n, ddl_request *requests[], const ddl_request *first)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i] != NULL && ddl_engine_try_enter(requests[i]->engine))
            drive(requests[i]->engine);
    if (ddl_deadline_passed(first->deadline)) {
        if (!ddl_engine_enter(first->engine, ddl_deadline_in_ms(DDL_ENGINE_GRACE_MS)))
            return false;
        drive(first->engine);
    }
    ddl_pause_us(20);
    return true;
}

/* Once for those of one communicator that stand together. */
static void count_waiters(size_t n, ddl_request *requests[], int change)
{
    const ddl_request_pool *last = NULL;
    for (size_t i = 0; i < n; i++)
        if (requests[i] != NULL && requests[i]->pool != last) {
            last = requests[i]->pool;
            atomic_fetch_add(&requests[i]->pool->waiters, change);
        }
}

/* n if none is. */
static size_t find_done(size_t n, ddl_request *requests[])
{
    size_t i = 0;
    while (i < n && (requests[i] == NULL || !ddl_request_is_done(requests[i])))
        i++;
    return i;
}

static bool are_of_one_engine(size_t n, ddl_request *requests[], const ddl_engine *engine)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i] != NULL && requests[i]->engine != engine)
            return false;
    return true;
}

ddl_status ddl_wait_any(size_t n, ddl_request *requests[], size_t *index)
{
    if (index == NULL || (n > 0 && requests == NULL))
        return ddl_last_error_set(DDL_EINVAL, -1, "wait_any", "%s is NULL",
                                  index == NULL ? "index" : "requests");
    DDL_TRY(check_forked("wait_any"));
    for (;;) {
        const size_t done = find_done(n, requests);
        if (done < n) {
            *index = done;
            return finish(&requests[done]);
        }
        const size_t first = find_first(n, requests);
        if (first == n)
            return ddl_last_error_set(DDL_EINVAL, -1, "wait_any", "no request among the %zu given", n);
        bool goes_on = true;
        count_waiters(n, requests, 1);
        if (find_done(n, requests) < n)
            ; /* since the look above: its engine may be gone by now */
        else if (has_exited(requests[first]))
            goes_on = false;
        else if (are_of_one_engine(n, requests, requests[first]->engine))
            goes_on = wait_on_engine(n, requests, requests[first]);
        else
            goes_on = poll_engines(n, requests, requests[first]);
        count_waiters(n, requests, -1);
        if (!goes_on && find_done(n, requests) == n) {
            *index = first;
            return give_up(&requests[first]);
        }
    }
}

/* Whether nobody has been able to drive since the deadline, for as long as that may take; by the tests of
 * one who does not wait. */
static bool is_stuck(ddl_request *request, bool driven)
{
    if (driven || !ddl_deadline_passed(request->deadline)) {
        request->stuck_by = 0;
        return false;
    }
    if (request->stuck_by == 0)
        request->stuck_by = ddl_deadline_in_ms(DDL_ENGINE_GRACE_MS);
    return ddl_deadline_passed(request->stuck_by);
}

ddl_status ddl_test(ddl_request **handle, bool *done)
{
    if (done != NULL)
        *done = true; /* whoever tests until it is must not do so for ever where that fails */
    if (handle == NULL || done == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, "test", "%s is NULL", handle == NULL ? "request" : "done");
    if (*handle == NULL)
        return DDL_OK;
    DDL_TRY(check_forked("test"));
    ddl_request *request = *handle;
    atomic_fetch_add(&request->pool->waiters, 1);
    bool moved = false, driven = false;
    if (!ddl_request_is_done(request) && ddl_engine_try_enter(request->engine)) {
        driven = true;
        moved = ddl_engine_progress(request->engine);
        ddl_engine_leave(request->engine);
    }
    /* Who tests again and again keeps the CPU from those it waits for. */
    if (!moved && !ddl_request_is_done(request))
        ddl_engine_give_way(request->engine);
    atomic_fetch_sub(&request->pool->waiters, 1);
    *done = ddl_request_is_done(request);
    if (*done)
        return finish(handle);
    *done = is_stuck(request, driven) || has_exited(request);
    return *done ? give_up(handle) : DDL_OK;
}
