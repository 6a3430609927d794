/* contexts.c - what happens to worlds at fork and at exit. */
#include "api/contexts.h"

#include "api/abort.h"
#include "api/gpu.h"
#include "api/votes.h"
#include "base/crier.h"
#include "io/tls_use.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { GOODBYE_MS = 100, CLEARING_MS = 100, STOPPING_MS = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once_forks = PTHREAD_ONCE_INIT, once = PTHREAD_ONCE_INIT,
                      once_encrypted = PTHREAD_ONCE_INIT;
static ddl_list contexts = { { &contexts.head, &contexts.head } };
static ddl_list lost = { { &lost.head, &lost.head } };
static ddl_list graves = { { &graves.head, &graves.head } };
static bool forked;
static atomic_bool have_ended; /* other threads may be in calls while the process exits */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* Only closes: the child shares the epoll sets with its parent and must not change them. */
static void after_fork_in_child(void)
{
    pthread_mutex_unlock(&lock);
    if (forked) /* a child of such a child: the numbers are those of its own files by now */
        return;
    DDL_LIST_FOR_EACH (link, &contexts) {
        ddl_world *world = DDL_CONTAINER(link, ddl_world, link);
        forked = true;
        atomic_store(&have_ended, true);
        world->forked = true;
        for (int rank = 0; !world->made && world->wires != NULL && rank < world->config.nranks; rank++)
            if (world->wires[rank].fd >= 0)
                close(world->wires[rank].fd);
        /* Until it is made another thread may be about to set these. */
        if (world->made && world->engine != NULL) {
            ddl_mesh_close_in_child(world->mesh);
            if (world->lanes != NULL)
                ddl_lanes_close_in_child(world->lanes);
            ddl_engine_close_in_child(world->engine);
        }
        ddl_bootstrap_close_in_child(world->bootstrap);
        ddl_service_close_in_child(world->service);
    }
    DDL_LIST_FOR_EACH (link, &lost) {
        forked = true;
        atomic_store(&have_ended, true);
        ddl_service_close_in_child(DDL_CONTAINER(link, ddl_world, link)->service);
    }
}

/* What stops NCCL are threads that call the driver: handlers that follow take that away from under them. */
static void await_nccl(ddl_world *world, bool has_entered)
{
    const ddl_deadline deadline = ddl_deadline_in_ms(STOPPING_MS);
    if (has_entered)
        DDL_LIST_FOR_EACH (active, &world->active) /* also those that have failed, of which no call is left */
            ddl_votes_await_abort(DDL_CONTAINER(active, ddl_comm, active), deadline);
    ddl_abort_await_alone_at_exit(world, deadline);
}

/* A process that ends without freeing its worlds says so, where it can do it at once, lets that arrive (a
 * second at most for each), and clears up. */
static void at_exit(void)
{
    pthread_mutex_lock(&lock);
    DDL_LIST_FOR_EACH (link, &contexts) {
        ddl_world *world = DDL_CONTAINER(link, ddl_world, link);
        if (!world->made || world->forked || world->exited)
            continue;
        ddl_abort_alone_at_exit(world);
        if (world->engine == NULL) {
            await_nccl(world, false);
            continue;
        }
        /* The baton is kept: nothing is sent after the goodbye. */
        const bool entered = ddl_engine_enter(world->engine, ddl_deadline_in_ms(GOODBYE_MS));
        if (entered)
            ddl_mesh_say_goodbye(world->mesh);
        /* Nobody ends operations any more, and handlers that follow may wait for streams of the program, or
         * for the GPU. */
        ddl_gpu_let_go(NULL);
        if (entered)
            DDL_LIST_FOR_EACH (voting, &world->voting)
                ddl_votes_abort(DDL_CONTAINER(voting, ddl_comm, voting));
        if (entered)
            ddl_mesh_part(world->mesh, ddl_deadline_in_ms(DDL_WORLD_PARTING_MS));
        await_nccl(world, entered);
        if (entered)
            DDL_LIST_FOR_EACH (active, &world->active)
                atomic_store(&DDL_CONTAINER(active, ddl_comm, active)->pool->has_exited, true);
        atomic_store(&world->exited, true);
        atomic_store(&have_ended, true);
        if (entered)
            ddl_engine_keep(world->engine); /* calls that other threads are in end with what was said here */
        ddl_bootstrap_clear_up(world->bootstrap, ddl_deadline_in_ms(CLEARING_MS));
    }
    ddl_crier_end(); /* what it is called with may be freed by handlers that follow */
    pthread_mutex_unlock(&lock);
}

static void install_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Not before OpenSSL has registered a handler of its own for what a world needs of it. */
static void install(void)
{
    atexit(at_exit);
}

/* Handlers run in the opposite order of their registration: by now OpenSSL has registered its own, if ever,
 * which keeps all threads out of it first (io/tls_use.c). */
static void install_encrypted(void)
{
    atexit(at_exit);
}

void ddl_contexts_add(ddl_world *world)
{
    pthread_once(&once_forks, install_forks);
    pthread_mutex_lock(&lock);
    ddl_list_append(&contexts, &world->link);
    pthread_mutex_unlock(&lock);
}

void ddl_contexts_made(ddl_world *world)
{
    pthread_once(&once, install);
    if (ddl_tls_used())
        pthread_once(&once_encrypted, install_encrypted);
    pthread_mutex_lock(&lock);
    world->made = true;
    pthread_mutex_unlock(&lock);
}

void ddl_contexts_remove(ddl_world *world)
{
    pthread_mutex_lock(&lock);
    if (ddl_link_linked(&world->link))
        ddl_list_remove(&world->link);
    pthread_mutex_unlock(&lock);
}

void ddl_contexts_lose(ddl_world *world)
{
    pthread_mutex_lock(&lock);
    ddl_list_append(&lost, &world->link);
    pthread_mutex_unlock(&lock);
}

void ddl_contexts_bury(ddl_comm *comm)
{
    pthread_mutex_lock(&lock);
    ddl_list_append(&graves, &comm->sibling);
    pthread_mutex_unlock(&lock);
}

bool ddl_contexts_dig_up(ddl_comm *comm)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    DDL_LIST_FOR_EACH (link, &graves)
        found = found || DDL_CONTAINER(link, ddl_comm, sibling) == comm;
    if (found)
        ddl_list_remove(&comm->sibling);
    pthread_mutex_unlock(&lock);
    if (found)
        ddl_free(comm);
    return found;
}

void ddl_contexts_clear_graves(void)
{
    pthread_mutex_lock(&lock);
    for (ddl_link *link; (link = ddl_list_take_first(&graves)) != NULL;)
        ddl_free(DDL_CONTAINER(link, ddl_comm, sibling));
    pthread_mutex_unlock(&lock);
}

bool ddl_contexts_forked(void)
{
    return forked;
}

bool ddl_contexts_have_ended(void)
{
    return atomic_load_explicit(&have_ended, memory_order_relaxed);
}
