"""Explores every interleaving of the protocol by which ranks sleep beside their lanes and wake each other.

    test_lane_model.py EXPLORE [TESTS]

Writers and a reader run the steps of lane.c, lanes.c and mesh_turn.c: write, publish, look whether the other end
sleeps, ring; doze, look again, sleep. A state in which nobody can go on and not everything has been taken is a lost
wake-up; one in which the reader finds anything but what comes next, or in which both ends are at the same bytes, is an
order that is missing. That the search finds those is shown by making one order after the other weaker.

A ring has room for few messages of size 1. The 20 ms tick, which would end any sleep, is left out. Nothing rests on the
order that the system gives who rings a bell and who hears it.
"""
import unittest

from interleavings import (ACQUIRE, C11, MEMORIES, PLAIN, RELAXED, RELEASE, SEQ_CST, SLEEPING, X86, Explorer, main, orders_of,
                           weakened)

ACCESSES = {
    "room": (ACQUIRE, "transport/lane.c", "ddl_lane_room", "load taken"),
    "publish": (RELEASE, "transport/lane.c", "publish", "store written"),
    "want room": (RELEASE, "transport/lane.c", "ddl_lane_want_room", "store wants_room"),
    "peek": (ACQUIRE, "transport/lane.c", "ddl_lane_peek", "load written"),
    "take": (RELEASE, "transport/lane.c", "ddl_lane_take", "store taken"),
    "half full": (RELAXED, "transport/lane.c", "ddl_lane_room_wanted", "load written"),
    "taken": (SEQ_CST, "transport/lane.c", "ddl_lane_room_wanted", "ddl_doze_told"),
    "see wish": (RELAXED, "transport/lane.c", "ddl_lane_room_wanted", "load wants_room"),
    # Instead of this one the fence in ddl_lanes_wake would do.
    "take wish": (ACQUIRE, "transport/lane.c", "ddl_lane_room_wanted", "exchange wants_room"),
    **SLEEPING,
}
ORDERS = orders_of(ACCESSES)


def nudge(other, orders):
    """Wake the other end if it sleeps."""
    yield ("fence", orders["nudge"])
    asleep = yield ("load", f"asleep {other}", RELAXED)
    if asleep:
        was = yield ("swap", f"asleep {other}", 0, RELAXED)
        if was:
            yield ("swap", f"bell {other}", 1, RELAXED)


def writer(lane, reader, capacity, messages, orders, wishes_last, has_bytes):
    me = f"writer {lane}"
    written = 0
    while written < messages:
        seen = yield ("load", f"taken {lane}", orders["room"])
        if written - seen < capacity:
            if has_bytes:
                yield ("store", f"byte {lane} {written % capacity}", written + 1, PLAIN)
            written += 1
            yield ("store", f"written {lane}", written, orders["publish"])
            yield from nudge(reader, orders)
            continue
        if not wishes_last:
            yield ("store", f"wants {lane}", 1, orders["want room"])
        yield ("store", f"asleep {me}", 1, RELAXED)
        if wishes_last:
            yield ("store", f"wants {lane}", 1, orders["want room"])
        yield ("fence", orders["doze"])
        seen = yield ("load", f"taken {lane}", orders["room"])
        if written - seen >= capacity:
            yield ("await", f"bell {me}", RELAXED)
        yield ("store", f"asleep {me}", 0, RELAXED)


def reader(lanes, capacity, messages, orders, half_full, has_bytes):
    taken = {lane: 0 for lane in lanes}
    while any(taken[lane] < messages[lane] for lane in lanes):
        found = False
        for lane in lanes:
            seen = yield ("load", f"written {lane}", orders["peek"])
            if seen == taken[lane]:
                continue
            found = True
            before = taken[lane]
            if has_bytes:
                yield ("expect", ((f"byte {lane} {before % capacity}", before + 1),))
            taken[lane] += 1
            yield ("store", f"taken {lane}", taken[lane], orders["take"])
            if half_full:
                seen = yield ("load", f"written {lane}", RELAXED)
                if 2 * (seen - before) < capacity:
                    continue
            yield ("fence", orders["taken"])
            wanted = yield ("load", f"wants {lane}", RELAXED)
            if wanted:
                was = yield ("swap", f"wants {lane}", 0, orders["take wish"])
                if was:
                    yield from nudge(f"writer {lane}", orders)
        if found:
            continue
        yield ("store", "asleep reader", 1, RELAXED)
        yield ("fence", orders["doze"])
        something = False
        for lane in lanes:
            seen = yield ("load", f"written {lane}", orders["peek"])
            something = something or seen > taken[lane]
        if not something:
            yield ("await", "bell reader", RELAXED)
        yield ("store", "asleep reader", 0, RELAXED)


def world(messages, capacity, memory=X86, orders=ORDERS, half_full=False, prompt=None, wishes_last=True, has_bytes=True):
    """messages: of each writer. has_bytes: they are written and read; else they are only counted."""
    lanes = range(len(messages))
    programs = [lambda lane=lane: writer(lane, "reader", capacity, messages[lane], orders, wishes_last, has_bytes)
                for lane in lanes]
    programs.append(lambda: reader(lanes, capacity, messages, orders, half_full, has_bytes))
    return Explorer(programs, memory, prompt)


class Lanes(unittest.TestCase):
    def test_two_ranks(self):
        for capacity, messages in ((1, 5), (1, 12), (2, 12), (3, 12)):
            self.assertIsNone(world([messages], capacity, has_bytes=False).lost())
        for memory in MEMORIES:
            for capacity, messages in ((1, 8), (2, 5), (3, 5)):
                self.assertIsNone(world([messages], capacity, memory).lost())

    def test_three_ranks(self):
        for messages in ([1, 1], [2, 1], [2, 2]):
            self.assertIsNone(world(messages, 1, has_bytes=False).lost())
        for memory in MEMORIES:
            self.assertIsNone(world([1, 1], 1, memory).lost())

    def test_every_fence_is_needed(self):
        for what in ("taken", "nudge", "doze"):
            with self.subTest(without=what):
                self.assertIsNotNone(world([3], 1, orders={**ORDERS, what: RELAXED}).lost())

    def test_every_order_is_needed(self):
        for what, orders in weakened(ORDERS):
            with self.subTest(weaker=what):
                said = world([3], 1, C11, orders).lost()
                (self.assertIsNone if what == "take wish" else self.assertIsNotNone)(said)

    def test_a_wish_that_is_seen_before_the_sleep_is_lost(self):
        for memory in MEMORIES:
            self.assertIsNotNone(world([3], 1, memory, wishes_last=False).lost())

    def test_a_reader_that_looks_for_wishes_only_in_lanes_that_are_half_full(self):
        """Sound if a store is visible before a writer has filled half a lane, which takes thousands of stores; and
        not without that."""
        self.assertIsNone(world([5], 4, half_full=True, prompt=2, has_bytes=False).lost())
        for memory in MEMORIES:
            self.assertIsNotNone(world([6], 4, memory, half_full=True, has_bytes=False).lost())


class Long(unittest.TestCase):
    """With --long."""

    def test_two_ranks_in_c11(self):
        for capacity in (1, 2, 3):
            self.assertIsNone(world([12], capacity, C11).lost())

    def test_three_ranks_in_c11(self):
        self.assertIsNone(world([2, 1], 1, C11).lost())


if __name__ == "__main__":
    main("Lanes")
