"""Explores every interleaving of the protocol by which ranks say something to all others of their host.

    test_board_model.py

Ranks run the steps of board.c and posting.c, and of those that sleep meanwhile: write the bytes and the number of
one of the two sheets in turn, look at the others', look who sleeps and ring; doze, look again, sleep; read. A state
in which nobody can go on and not everybody has read everything is a lost wake-up, or a sheet that was written before
all had read it. That the search finds those is shown by leaving out what prevents them.

The 20 ms tick, which would end any sleep, is left out.
"""
import sys
import unittest

from interleavings import Explorer

ALL = frozenset({"post", "doze"})


def rank(me, nranks, posts, fences, sheets, look_first, sleeps):
    others = [r for r in range(nranks) if r != me]
    for k in range(1, posts + 1):
        side = k % sheets
        found = 0
        yield ("store", f"bytes {me} {side}", k)
        yield ("store", f"number {me} {side}", k)
        while look_first and found < len(others):
            if (yield ("load", f"number {others[found]} {side}")) != k:
                break
            found += 1
        if "post" in fences:
            yield ("fence",)
        for other in others if sleeps else ():
            if (yield ("load", f"asleep {other}")):
                if (yield ("swap", f"asleep {other}", 0)):
                    yield ("swap", f"bell {other}", 1)
        dozes = False
        while found < len(others):
            if not sleeps:
                yield ("until", f"number {others[found]} {side}", k)
                found += 1
            elif (yield ("load", f"number {others[found]} {side}")) == k:
                found += 1
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
        for other in others:
            if (yield ("load", f"bytes {other} {side}")) != k:
                yield ("await", "what was overwritten")


def world(nranks, posts, fences=ALL, sheets=2, look_first=True, sleeps=True):
    return Explorer([lambda me=me: rank(me, nranks, posts, fences, sheets, look_first, sleeps) for me in range(nranks)])


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


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    unittest.main()
