"""Explores every interleaving of the protocol by which ranks say something to all others of their host.

    test_board_model.py

Ranks run the steps of board.c and posting.c, and of those that sleep meanwhile: see that all have come to the call
before, write the bytes and the number of one of the two sheets in turn, look at the sheets that the call needs, look
who sleeps and ring; doze, look again, sleep; read. A state in which nobody can go on and not everybody has read
everything is a lost wake-up, or a sheet that was written before all had read it. That the search finds those is shown
by leaving out what prevents them.

The 20 ms tick, which would end any sleep, is left out.
"""
import itertools
import sys
import unittest

from interleavings import Explorer

ALL = frozenset({"post", "doze"})
AMONG_ALL = "among all"  # a call; others are ("from", root) and ("to", root)


def needed(call, me, others):
    if call == AMONG_ALL:
        return others
    direction, root = call
    if direction == "from":
        return [root] if me != root else []
    return others if me == root else []


def rank(me, nranks, calls, fences, sheets, look_first, sleeps, gate):
    others = [r for r in range(nranks) if r != me]
    awaited = []
    for k, call in enumerate(calls, 1):
        needs = needed(call, me, others)
        for posted in (k - 1, k) if gate else (k,):
            side = posted % sheets
            if posted == k:
                yield ("store", f"bytes {me} {side}", k)
                yield ("store", f"number {me} {side}", k)
                awaited = list(needs)
                while look_first and awaited:
                    if (yield ("load", f"number {awaited[0]} {side}")) != k:
                        break
                    awaited.pop(0)
                if "post" in fences:
                    yield ("fence",)
                for other in others if sleeps else ():
                    if (yield ("load", f"asleep {other}")):
                        if (yield ("swap", f"asleep {other}", 0)):
                            yield ("swap", f"bell {other}", 1)
            dozes = False
            while awaited:
                if not sleeps:
                    yield ("until", f"number {awaited[0]} {side}", posted)
                    awaited.pop(0)
                elif (yield ("load", f"number {awaited[0]} {side}")) == posted:
                    awaited.pop(0)
                elif dozes:
                    yield ("await", f"bell {me}")
                    yield ("store", f"asleep {me}", 0)
                    dozes = False
                else:
                    yield ("store", f"asleep {me}", 1)
                    if "doze" in fences:
                        yield ("fence",)
                    dozes = True
            if dozes:
                yield ("store", f"asleep {me}", 0)
        for other in needs:
            if (yield ("load", f"bytes {other} {side}")) != k:
                yield ("await", "what was overwritten")
        awaited = [r for r in others if r not in needs]


def world(nranks, calls, fences=ALL, sheets=2, look_first=True, sleeps=True, gate=True):
    if isinstance(calls, int):
        calls = [AMONG_ALL] * calls
    return Explorer([lambda me=me: rank(me, nranks, calls, fences, sheets, look_first, sleeps, gate)
                     for me in range(nranks)])


class Boards(unittest.TestCase):
    def test_two_ranks(self):
        for look_first in (True, False):
            self.assertIsNone(world(2, 5, look_first=look_first).lost())

    def test_three_ranks(self):
        self.assertIsNone(world(3, 1).lost())
        self.assertIsNone(world(3, 3, look_first=False, sleeps=False).lost())

    def test_every_fence_is_needed(self):
        for fence in ALL:
            with self.subTest(without=fence):
                self.assertIsNotNone(world(2, 2, fences=ALL - {fence}).lost())

    def test_one_sheet_is_not_enough(self):
        for sleeps in (True, False):
            self.assertIsNotNone(world(2, 2, sheets=1, sleeps=sleeps).lost())


class RootedCalls(unittest.TestCase):
    def test_any_four_calls_of_two_ranks(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0), ("from", 1)), repeat=4):
            with self.subTest(calls=calls):
                self.assertIsNone(world(2, calls, sleeps=False).lost())

    def test_three_calls_of_two_ranks_that_sleep(self):
        for calls in itertools.product((("from", 0), ("from", 1)), repeat=3):
            with self.subTest(calls=calls):
                self.assertIsNone(world(2, calls).lost())

    def test_three_ranks(self):
        for calls in itertools.product((("from", 0), ("to", 1)), (AMONG_ALL, ("from", 0), ("to", 1)), (("from", 0), ("from", 1))):
            with self.subTest(calls=calls):
                self.assertIsNone(world(3, calls, look_first=False, sleeps=False).lost())

    def test_everybody_has_to_have_come_to_the_call_before(self):
        for sleeps in (True, False):
            self.assertIsNotNone(world(2, [("from", 0)] * 3, sleeps=sleeps, gate=False).lost())


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    unittest.main()
