"""Explores every interleaving of the protocol by which ranks sleep beside their lanes and wake each other.

    test_lane_model.py EXPLORE [TESTS]

Writers and a reader run the steps of lane.c, lanes.c and transport_mesh.c: publish, look whether the other end
sleeps, ring; doze, look again, sleep. Acquire and release give on other processors what the order of stores does
here, as every look that matters follows a fence. A state in which nobody can go on and not everything has been taken is
a lost wake-up. That the search finds those is shown by leaving out one fence after the other.

A ring has room for few messages of size 1. The 20 ms tick, which would end any sleep, is left out.
"""
import unittest

from interleavings import Explorer, main


def nudge(other, fences):
    """Wake the other end if it sleeps."""
    if "nudge" in fences:
        yield ("fence",)
    asleep = yield ("load", f"asleep {other}")
    if asleep:
        was = yield ("swap", f"asleep {other}", 0)
        if was:
            yield ("swap", f"bell {other}", 1)


def writer(lane, reader, capacity, messages, fences, order=("asleep", "wants")):
    me = f"writer {lane}"
    written = 0
    while written < messages:
        seen = yield ("load", f"taken {lane}")
        if written - seen < capacity:
            written += 1
            yield ("store", f"written {lane}", written)
            yield from nudge(reader, fences)
            continue
        for name in order:
            yield ("store", f"{name} {lane if name == 'wants' else me}", 1)
        if "doze" in fences:
            yield ("fence",)
        seen = yield ("load", f"taken {lane}")
        if written - seen >= capacity:
            yield ("await", f"bell {me}")
        yield ("store", f"asleep {me}", 0)


def reader(lanes, capacity, messages, fences, half_full):
    taken = {lane: 0 for lane in lanes}
    while any(taken[lane] < messages[lane] for lane in lanes):
        found = False
        for lane in lanes:
            seen = yield ("load", f"written {lane}")
            if seen == taken[lane]:
                continue
            found = True
            before = taken[lane]
            taken[lane] += 1
            yield ("store", f"taken {lane}", taken[lane])
            if half_full:
                seen = yield ("load", f"written {lane}")
                if 2 * (seen - before) < capacity:
                    continue
            if "room" in fences:
                yield ("fence",)
            wanted = yield ("load", f"wants {lane}")
            if wanted:
                was = yield ("swap", f"wants {lane}", 0)
                if was:
                    yield from nudge(f"writer {lane}", fences)
        if found:
            continue
        yield ("store", "asleep reader", 1)
        if "doze" in fences:
            yield ("fence",)
        something = False
        for lane in lanes:
            seen = yield ("load", f"written {lane}")
            something = something or seen > taken[lane]
        if not something:
            yield ("await", "bell reader")
        yield ("store", "asleep reader", 0)


ALL = frozenset({"nudge", "doze", "room"})


def world(messages, capacity, fences=ALL, half_full=False, prompt=None, order=("asleep", "wants")):
    """messages: of each writer."""
    lanes = range(len(messages))
    programs = [lambda lane=lane: writer(lane, "reader", capacity, messages[lane], fences, order) for lane in lanes]
    programs.append(lambda: reader(lanes, capacity, messages, fences, half_full))
    return Explorer(programs, prompt)


class Lanes(unittest.TestCase):
    def test_two_ranks(self):
        for capacity, messages in ((1, 5), (1, 12), (2, 12), (3, 12)):
            self.assertIsNone(world([messages], capacity).lost())

    def test_three_ranks(self):
        for messages in ([1, 1], [2, 1], [2, 2]):
            self.assertIsNone(world(messages, 1).lost())

    def test_every_fence_is_needed(self):
        for fence in ALL:
            with self.subTest(without=fence):
                self.assertIsNotNone(world([3], 1, fences=ALL - {fence}).lost())

    def test_a_wish_that_is_seen_before_the_sleep_is_lost(self):
        self.assertIsNotNone(world([3], 1, order=("wants", "asleep")).lost())

    def test_a_reader_that_looks_for_wishes_only_in_lanes_that_are_half_full(self):
        """Sound if a store is visible before a writer has filled half a lane, which takes thousands of stores; and
        not without that."""
        self.assertIsNone(world([5], 4, half_full=True, prompt=2).lost())
        self.assertIsNotNone(world([6], 4, half_full=True).lost())


if __name__ == "__main__":
    main()
