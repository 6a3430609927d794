/* engine_step.c - one step of who drives: a sweep, a tick if it is time, the loop. */
#include "io/engine_state.h"

#include "base/thread.h"

enum {
    LOCATE_MS = 4, /* ranks that begin unevenly on CPUs take half as long again for each call until then */
    LISTEN_NS = 1000 * 1000
};

static void locate(ddl_engine *engine, int64_t now_ns)
{
    if (now_ns < engine->next_locate_ns || engine->client.locate == NULL || ddl_thread_is_own())
        return;
    engine->next_locate_ns = now_ns + LOCATE_MS * DDL_NS_PER_MS;
    engine->client.locate(engine->client.arg, now_ns);
}

void ddl_engine_tick(ddl_engine *engine, int64_t now_ns)
{
    locate(engine, now_ns);
    if (now_ns < engine->next_tick_ns)
        return;
    engine->next_tick_ns = now_ns + DDL_ENGINE_TICK_MS * DDL_NS_PER_MS;
    engine->client.tick(engine->client.arg, now_ns);
}

bool ddl_engine_progress(ddl_engine *engine)
{
    bool moved = ddl_engine_do_sweep(engine);
    engine->progress_ns = ddl_now_ns();
    ddl_engine_tick(engine, engine->progress_ns);
    return ddl_engine_run_loop(engine) || moved;
}

void ddl_engine_listen(ddl_engine *engine)
{
    if (ddl_now_ns() - engine->progress_ns > LISTEN_NS)
        ddl_engine_progress(engine);
}

unsigned ddl_engine_loops(const ddl_engine *engine)
{
    return atomic_load_explicit(&engine->loops, memory_order_relaxed);
}

void ddl_engine_sweep(ddl_engine *engine)
{
    ddl_engine_do_sweep(engine);
}

void ddl_engine_moved(ddl_engine *engine)
{
    engine->moved = true;
}

void ddl_engine_received(ddl_engine *engine, size_t bytes, size_t to_come)
{
    engine->moved = true;
    engine->received += bytes;
    engine->to_come = to_come;
}

void ddl_engine_tick_soon(ddl_engine *engine)
{
    engine->next_tick_ns = 0;
}
