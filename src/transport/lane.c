/* lane.c - the ring. */
#include "transport/lane.h"

#include "base/assert.h"
#include "base/size.h"
#include "transport/doze.h"

/* Positions are shared with other processes, whose locks would be others. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "positions must be lock-free");

enum {
    PORTION = 32 * 1024, /* after which a position is published, so that both ends work at the same time */
    LARGEST_PEEK = 256 * 1024 /* of long rings; else an eighth, but a portion at least */
};

void ddl_lane_open(ddl_lane_end *end, ddl_lane *lane, uint8_t *ring, size_t capacity)
{
    DDL_ASSERT(((uintptr_t)lane & 127) == 0 && capacity > 0 && (capacity & (capacity - 1)) == 0);
    *end = (ddl_lane_end){
        .lane = lane, .ring = ring, .capacity = capacity, .outlet = { .until_timed = capacity }
    };
    end->largest_peek = ddl_size_max(PORTION, ddl_size_min(capacity / 8, LARGEST_PEEK));
}

void ddl_lane_withdraw(ddl_lane_end *end)
{
    atomic_fetch_add_explicit(&end->lane->withdrawals, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

uint32_t ddl_lane_withdrawals(const ddl_lane_end *end)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&end->lane->withdrawals, memory_order_relaxed);
}

/* ---- writer ---- */

uint64_t ddl_lane_taken(const ddl_lane_end *end)
{
    return atomic_load_explicit(&end->lane->taken, memory_order_relaxed);
}

size_t ddl_lane_room(ddl_lane_end *end)
{
    uint64_t taken = atomic_load_explicit(&end->lane->taken, memory_order_acquire);
    if (end->own - taken <= end->capacity) /* else it cannot be */
        end->other = taken;
    return end->capacity - (size_t)(end->own - end->other);
}

static void copy_in(ddl_lane_end *end, const uint8_t *data, size_t bytes)
{
    size_t at = (size_t)end->own & (end->capacity - 1);
    size_t before_end = ddl_size_min(bytes, end->capacity - at);
    ddl_outlet_copy(&end->outlet, end->ring + at, data, before_end);
    ddl_outlet_copy(&end->outlet, end->ring, data + before_end, bytes - before_end);
    end->own += bytes;
}

static void publish(ddl_lane_end *end)
{
    atomic_store_explicit(&end->lane->written, end->own, memory_order_release);
}

size_t ddl_lane_write(ddl_lane_end *end, const struct iovec parts[], int count)
{
    uint64_t begin = end->own, published = end->own;
    size_t wanted = 0;
    for (int i = 0; i < count; i++)
        wanted += parts[i].iov_len;
    size_t room = end->capacity - (size_t)(end->own - end->other);
    if (room < wanted)
        room = ddl_lane_room(end);
    for (int i = 0; i < count; i++) {
        const uint8_t *data = parts[i].iov_base;
        for (size_t left = parts[i].iov_len; left > 0 && room > 0;) {
            size_t bytes = ddl_size_min(ddl_size_min(left, room), PORTION);
            copy_in(end, data, bytes);
            data += bytes;
            left -= bytes;
            room -= bytes;
            if (end->own - published >= PORTION) {
                publish(end);
                published = end->own;
            }
        }
    }
    if (end->own != published)
        publish(end);
    return (size_t)(end->own - begin);
}

void ddl_lane_want_room(ddl_lane_end *end)
{
    atomic_store_explicit(&end->lane->wants_room, 1, memory_order_release); /* who sees it sees the sleep */
}

/* ---- reader ---- */

bool ddl_lane_room_wanted(ddl_lane_end *end)
{
    uint64_t written = atomic_load_explicit(&end->lane->written, memory_order_relaxed);
    if (written - end->before < end->capacity / 2)
        return false;
    ddl_doze_told(); /* that so much was taken */
    return atomic_load_explicit(&end->lane->wants_room, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&end->lane->wants_room, 0, memory_order_acquire) != 0;
}

ddl_view ddl_lane_peek(ddl_lane_end *end)
{
    if (end->other == end->own)
        end->other = atomic_load_explicit(&end->lane->written, memory_order_acquire);
    uint64_t there = end->other - end->own;
    if (there > end->capacity)
        return (ddl_view){ NULL, 0 };
    size_t at = (size_t)end->own & (end->capacity - 1);
    size_t bytes = ddl_size_min((size_t)there, ddl_size_min(end->capacity - at, end->largest_peek));
    return (ddl_view){ end->ring + at, bytes };
}

void ddl_lane_take(ddl_lane_end *end, size_t bytes)
{
    DDL_ASSERT(bytes <= end->other - end->own);
    end->before = end->own;
    end->own += bytes;
    atomic_store_explicit(&end->lane->taken, end->own, memory_order_release);
}

bool ddl_lane_is_broken(const ddl_lane_end *end)
{
    return end->other - end->own > end->capacity;
}
