"""Explores every interleaving of a reader that takes messages from the memory of their sender, and a sender that takes
some of them back and writes something else there.

    test_pull_model.py EXPLORE [TESTS]

A sender tells where a message lies, and how often it has taken something back so far (ddl_lane_withdrawals); before it
writes to what it has taken back it counts that (ddl_lane_withdraw). The reader copies, and then looks whether the count
is the one that it was told; if so, and only then, it keeps what it has read (pull in mesh_pages.c). A state in which it
keeps anything but the message is found, as is one in which nobody can go on. That the search finds those is shown by
leaving out what prevents them.
"""
import itertools
import unittest

from interleavings import Explorer, main

WORDS = ("low", "high")  # of a message: a reader may find one of it and one of what is there later


class Rules:
    """What the protocol has; a test takes something away."""

    def __init__(self, counts=True, counts_first=True, looks=True, looks_last=True):
        self.counts, self.counts_first, self.looks, self.looks_last = counts, counts_first, looks, looks_last


def write(value):
    for word in WORDS:
        yield ("store", word, value)


def sender(takes_back, rules):
    """takes_back: of each message, whether. The others are there until they were taken."""
    count = 0
    for k, is_taken_back in enumerate(takes_back, 1):
        yield from write(k)
        yield ("store", f"told {k}", 1 + count)
        if is_taken_back:
            count += 1
            if not rules.counts_first:
                yield from write(32 + k)
            if rules.counts:
                yield ("swap", "count", count)
            if rules.counts_first:
                yield from write(32 + k)
        else:
            yield ("until", f"taken {k}", 1)


def reader(takes_back, rules):
    count = 0  # as it is told with each
    for k, is_taken_back in enumerate(takes_back, 1):
        yield ("until", f"told {k}", 1 + count)
        now = count
        if rules.looks and not rules.looks_last:
            now = yield ("load", "count")
        found = []
        for word in WORDS:
            found.append((yield ("load", word)))
        if rules.looks and rules.looks_last:
            now = yield ("load", "count")
        if now == count and found != [k] * len(WORDS):
            yield ("expect", (("nothing else", 1),))  # it keeps what is not the message
        yield ("store", f"taken {k}", 1)
        count += 1 if is_taken_back else 0


def world(takes_back, **rules):
    rules = Rules(**rules)
    return Explorer([lambda: sender(takes_back, rules), lambda: reader(takes_back, rules)])


class Pulls(unittest.TestCase):
    def test_what_is_kept_is_the_message(self):
        for takes_back in itertools.product((False, True), repeat=4):
            with self.subTest(takes_back=takes_back):
                self.assertIsNone(world(takes_back).lost())

    def test_it_is_counted_before_anything_else_is_written(self):
        for without in ({"counts": False}, {"counts_first": False}):
            with self.subTest(**without):
                self.assertIn("expected", world((True,), **without).lost())
                self.assertIn("expected", world((False, True, False), **without).lost())

    def test_the_count_is_looked_at_after_the_message(self):
        for without in ({"looks": False}, {"looks_last": False}):
            with self.subTest(**without):
                self.assertIn("expected", world((True,), **without).lost())


if __name__ == "__main__":
    main("Pulls")
