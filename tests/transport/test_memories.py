"""Holds explore.c to its memories: what small programs may find in them, and what they must not.

    test_memories.py EXPLORE [TESTS]

Most of the programs are known by these names wherever memories are discussed: Maranget, Sarkar and Sewell, "A tutorial
introduction to the ARM and POWER relaxed memory models", 2012; Lahav, Vafeiadis, Kang, Hur and Dreyer, "Repairing
sequential consistency in C/C++11", PLDI 2017.
"""
import unittest

from interleavings import ACQ_REL, ACQUIRE, ANYTHING, C11, PLAIN, RELAXED, RELEASE, SEQ_CST, X86, Explorer, main

SC = ("fence", SEQ_CST)


def r(name, found, order=RELAXED):
    """A load that finds this."""
    return ("load", name, order, found)


def w(name, value, order=RELAXED):
    return ("store", name, value, order)


def s(name, found, value, order=RELAXED):
    """A swap that finds this."""
    return ("swap", name, value, order, found)


def fence(order):
    return ("fence", order)


def process(steps):
    """Stands still at the end if it has found what it should, and runs for ever if not: so nobody can go on only where
    all have found that."""
    for number, step in enumerate(steps):
        finds = step[0] in ("load", "swap")
        result = yield step[:-1] if finds else step
        if finds and result != step[-1]:
            while True:
                yield ("load", "nothing", RELAXED)
    yield ("until", "never", 1, RELAXED)


def may_find(memory, *programs):
    said = Explorer([lambda steps=steps: process(steps) for steps in programs], memory).lost()
    if said is not None and "nobody can go on" not in said:
        raise AssertionError(said)
    return said is not None


BOTH, ONLY_X86, ONLY_C11, NEITHER = (X86, C11), (X86,), (C11,), ()

# What all processes find together: in which memories they may.
STORE_BUFFERING = {
    "relaxed": (BOTH, [w("x", 1), r("y", 0)], [w("y", 1), r("x", 0)]),
    "release and acquire": (BOTH, [w("x", 1, RELEASE), r("y", 0, ACQUIRE)], [w("y", 1, RELEASE), r("x", 0, ACQUIRE)]),
    "fences that are not seq_cst": (BOTH, [w("x", 1), fence(ACQ_REL), r("y", 0)], [w("y", 1), fence(ACQ_REL), r("x", 0)]),
    "one fence": (BOTH, [w("x", 1), SC, r("y", 0)], [w("y", 1), r("x", 0)]),
    "fences": (NEITHER, [w("x", 1), SC, r("y", 0)], [w("y", 1), SC, r("x", 0)]),
    "fences, and one that acquires behind them": (NEITHER, [w("x", 1), SC, fence(ACQUIRE), r("y", 0)],
                                                  [w("y", 1), SC, fence(ACQUIRE), r("x", 0)]),
    "swaps": (ONLY_C11, [s("x", 0, 1), r("y", 0)], [s("y", 0, 1), r("x", 0)]),
    "swaps of one variable": (NEITHER, [w("x", 1), s("z", 0, 1, ACQ_REL), r("y", 0)],
                              [w("y", 1), s("z", 1, 2, ACQ_REL), r("x", 0)]),
    "three in a ring": (NEITHER, [w("x", 1), SC, r("y", 0)], [w("y", 1), SC, r("z", 0)], [w("z", 1), SC, r("x", 0)]),
    "three in a ring, two fences": (BOTH, [w("x", 1), SC, r("y", 0)], [w("y", 1), SC, r("z", 0)], [w("z", 1), r("x", 0)]),
    "a reader and two fences": (NEITHER, [w("x", 1)], [r("x", 1), SC, r("y", 0)], [w("y", 1), SC, r("x", 0)]),
    "a reader and one fence": (BOTH, [w("x", 1)], [r("x", 1), SC, r("y", 0)], [w("y", 1), r("x", 0)]),
}

MESSAGES = {
    "relaxed": (ONLY_C11, [w("x", 1), w("y", 1)], [r("y", 1), r("x", 0)]),
    "release and acquire": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "only release": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), r("x", 0)]),
    "only acquire": (ONLY_C11, [w("x", 1), w("y", 1)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "fences": (NEITHER, [w("x", 1), fence(RELEASE), w("y", 1)], [r("y", 1), fence(ACQUIRE), r("x", 0)]),
    "a release fence and an acquire load": (NEITHER, [w("x", 1), fence(RELEASE), w("y", 1)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "a release store and an acquire fence": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), fence(ACQUIRE), r("x", 0)]),
    "seq_cst fences": (NEITHER, [w("x", 1), SC, w("y", 1)], [r("y", 1), SC, r("x", 0)]),
    "a release fence too early": (ONLY_C11, [fence(RELEASE), w("x", 1), w("y", 1)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "an acquire fence too early": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [fence(ACQUIRE), r("y", 1), r("x", 0)]),
    "an acquire fence for a release": (ONLY_C11, [w("x", 1), fence(ACQUIRE), w("y", 1)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "a release fence for an acquire": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), fence(RELEASE), r("x", 0)]),
    "acq_rel swaps": (NEITHER, [w("x", 1), s("y", 0, 1, ACQ_REL)], [s("y", 1, 2, ACQ_REL), r("x", 0)]),
    "swaps that release and acquire": (NEITHER, [w("x", 1), s("y", 0, 1, RELEASE)], [s("y", 1, 2, ACQUIRE), r("x", 0)]),
    "a swap that only acquires": (ONLY_C11, [w("x", 1), s("y", 0, 1, ACQUIRE)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "a swap that only releases": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [s("y", 1, 2, RELEASE), r("x", 0)]),
    "one who waits": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [("until", "y", 1, ACQUIRE), r("x", 0)]),
    "one who waits, relaxed": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [("until", "y", 1, RELAXED), r("x", 0)]),
    "a bell": (NEITHER, [w("x", 1), s("y", 0, 1, RELEASE)], [("await", "y", ACQUIRE), r("x", 0)]),
    "a bell, relaxed": (ONLY_C11, [w("x", 1), s("y", 0, 1, RELEASE)], [("await", "y", RELAXED), r("x", 0)]),
}

# What was released goes on with swaps, whatever they are themselves, and with nothing else.
RELEASES = {
    "a swap of another one": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [s("y", 1, 2)], [r("y", 2, ACQUIRE), r("x", 0)]),
    "two swaps": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [s("y", 1, 2)], [s("y", 2, 3)], [r("y", 3, ACQUIRE), r("x", 0)]),
    "a store of another one": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), w("y", 2)],
                               [r("y", 2, ACQUIRE), r("x", 0)]),
    "an own store": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE), w("y", 2)], [r("y", 2, ACQUIRE), r("x", 0)]),
    "an own swap": (NEITHER, [w("x", 1), w("y", 1, RELEASE), s("y", 1, 2)], [r("y", 2, ACQUIRE), r("x", 0)]),
    "a swap behind a fence": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [w("z", 1), fence(RELEASE), s("y", 1, 2)],
                              [r("y", 2, ACQUIRE), r("x", 0)]),
    "the fence before a swap": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [w("z", 1), fence(RELEASE), s("y", 1, 2)],
                                [r("y", 2, ACQUIRE), r("z", 0)]),
}

ONE_VARIABLE = {
    "a store and two loads": (NEITHER, [w("x", 1)], [r("x", 1), r("x", 0)]),
    "two stores of one": (NEITHER, [w("x", 1), w("x", 2)], [r("x", 2), r("x", 1)]),
    "two stores seen in two orders": (NEITHER, [w("x", 1)], [w("x", 2)], [r("x", 1), r("x", 2)], [r("x", 2), r("x", 1)]),
    "two stores seen in any order": (BOTH, [w("x", 1)], [w("x", 2)], [r("x", 2), r("x", 1)]),
    "an own store": (NEITHER, [w("x", 1), r("x", 0)]),
    "a load of another store after the own": (NEITHER, [w("x", 1), r("x", 2)], [w("x", 2)], [r("x", 2), r("x", 1)]),
    "a store after a load": (NEITHER, [r("x", 2), w("x", 1)], [w("x", 2)], [r("x", 1), r("x", 2)]),
    "two stores of one, and another between": (NEITHER, [w("x", 3)], [w("x", 1), w("x", 2)], [r("x", 2), r("x", 1)]),
    "a load behind what was shown, and another store before that": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [w("x", 2)],
                                                                    [r("y", 1, ACQUIRE), r("x", 2)], [r("x", 2), r("x", 1)]),
    "a load of what was shown": (BOTH, [w("x", 1), w("x", 2), w("y", 1, RELEASE)], [r("x", 1), r("y", 1, ACQUIRE), r("x", 2)]),
    "one who waits, and sees what goes": (BOTH, [w("x", 1), w("y", 1), w("x", 2), w("x", 1, RELEASE)],
                                          [("until", "x", 1, ACQUIRE), r("y", 0)]),
    "a store of what comes later": (NEITHER, [r("x", 1), w("x", 1)]),
    "a load of what was seen by others": (NEITHER, [w("x", 1)], [r("x", 1), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "a store behind what was seen by others": (NEITHER, [w("x", 1)], [r("x", 1), w("y", 1, RELEASE)],
                                               [r("y", 1, ACQUIRE), w("x", 2)], [r("x", 2), r("x", 1)]),
}

SWAPS = {
    "two that find the same": (NEITHER, [s("x", 0, 1)], [s("x", 0, 2)]),
    "three that find the same": (NEITHER, [s("x", 0, 1)], [s("x", 1, 2)], [s("x", 1, 3)]),
    "one after the other": (BOTH, [s("x", 0, 1)], [s("x", 1, 2)]),
    "a store between": (NEITHER, [s("x", 0, 1)], [w("x", 2)], [r("x", 2), r("x", 1)]),
    "between two stores": (BOTH, [w("x", 1), w("x", 2)], [s("x", 1, 3)], [r("x", 3), r("x", 2)]),
    "behind what it has not found": (NEITHER, [w("x", 1), w("x", 2)], [s("x", 1, 3)], [r("x", 2), r("x", 3)]),
    "of what was overwritten for the own eyes": (NEITHER, [w("x", 1), s("x", 0, 2)]),
    "a bell that is silent afterwards": (NEITHER, [s("x", 0, 1)], [("await", "x", RELAXED), r("x", 1)]),
}

MANY = {
    "independent reads": (ONLY_C11, [w("x", 1, RELEASE)], [w("y", 1, RELEASE)], [r("x", 1, ACQUIRE), r("y", 0, ACQUIRE)],
                          [r("y", 1, ACQUIRE), r("x", 0, ACQUIRE)]),
    "independent reads, fences": (NEITHER, [w("x", 1)], [w("y", 1)], [r("x", 1), SC, r("y", 0)], [r("y", 1), SC, r("x", 0)]),
    "independent reads, one fence": (ONLY_C11, [w("x", 1)], [w("y", 1)], [r("x", 1), SC, r("y", 0)],
                                     [r("y", 1, ACQUIRE), r("x", 0)]),
    "2+2W": (ONLY_C11, [w("x", 1), w("y", 2)], [w("y", 1), w("x", 2)], [r("x", 2), r("x", 1)], [r("y", 2), r("y", 1)]),
    "2+2W, release": (ONLY_C11, [w("x", 1, RELEASE), w("y", 2, RELEASE)], [w("y", 1, RELEASE), w("x", 2, RELEASE)],
                      [r("x", 2), r("x", 1)], [r("y", 2), r("y", 1)]),
    "2+2W, fences": (NEITHER, [w("x", 1), SC, w("y", 2)], [w("y", 1), SC, w("x", 2)], [r("x", 2), r("x", 1)],
                     [r("y", 2), r("y", 1)]),
    "WRC": (NEITHER, [w("d", 1), w("x", 1, RELEASE)], [r("x", 1, ACQUIRE), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), r("d", 0)]),
    "WRC, relaxed at first": (NEITHER, [w("x", 1)], [r("x", 1), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "WRC, relaxed at last": (ONLY_C11, [w("x", 1)], [r("x", 1, ACQUIRE), w("y", 1, RELEASE)], [r("y", 1), r("x", 0)]),
    "WRC, relaxed in between": (ONLY_C11, [w("x", 1, RELEASE)], [r("x", 1, ACQUIRE), w("y", 1)], [r("y", 1, ACQUIRE), r("x", 0)]),
    "ISA2": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), w("z", 1, RELEASE)], [r("z", 1, ACQUIRE), r("x", 0)]),
    "ISA2, not acquired in between": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), w("z", 1, RELEASE)],
                                      [r("z", 1, ACQUIRE), r("x", 0)]),
    "ISA2, an acq_rel fence in between": (NEITHER, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), fence(ACQ_REL), w("z", 1)],
                                          [r("z", 1, ACQUIRE), r("x", 0)]),
    "ISA2, a release fence in between": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [r("y", 1), fence(RELEASE), w("z", 1)],
                                         [r("z", 1, ACQUIRE), r("x", 0)]),
    "Z6.3": (ONLY_C11, [w("x", 1), w("y", 1, RELEASE)], [w("y", 2), w("z", 1, RELEASE)], [r("z", 1, ACQUIRE), r("x", 0)],
             [r("y", 1), r("y", 2)]),
    "Z6.3, fences": (NEITHER, [w("x", 1), SC, w("y", 1)], [w("y", 2), SC, w("z", 1)], [r("z", 1), SC, r("x", 0)],
                     [r("y", 1), r("y", 2)]),
    "R": (BOTH, [w("x", 1), fence(ACQ_REL), w("y", 1)], [w("y", 2), fence(ACQ_REL), r("x", 0)], [r("y", 1), r("y", 2)]),
    "R, fences": (NEITHER, [w("x", 1), SC, w("y", 1)], [w("y", 2), SC, r("x", 0)], [r("y", 1), r("y", 2)]),
    "S": (NEITHER, [w("x", 2), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), w("x", 1)], [r("x", 1), r("x", 2)]),
    "S, relaxed": (ONLY_C11, [w("x", 2), w("y", 1)], [r("y", 1), w("x", 1)], [r("x", 1), r("x", 2)]),
    # What fences have seen goes on by release and acquire.
    "a fence, and one told of it": (NEITHER, [w("x", 1), SC, r("y", 0)], [w("y", 1), SC, w("z", 1, RELEASE)],
                                    [r("z", 1, ACQUIRE), r("x", 0)]),
    "a fence, and one not told of it": (ONLY_C11, [w("x", 1), SC, r("y", 0)], [w("y", 1), SC, w("z", 1, RELEASE)],
                                        [r("z", 1), r("x", 0)]),
}

# C11 allows this one; but a process makes its steps one after the other here.
LOAD_BUFFERING = {
    "relaxed": (NEITHER, [r("x", 1), w("y", 1)], [r("y", 1), w("x", 1)]),
    "release and acquire": (NEITHER, [r("x", 1, ACQUIRE), w("y", 1, RELEASE)], [r("y", 1, ACQUIRE), w("x", 1, RELEASE)]),
}


class Outcomes(unittest.TestCase):
    def are(self, cases):
        for name, (memories, *programs) in cases.items():
            for memory in (X86, C11):
                with self.subTest(name, memory=memory):
                    self.assertEqual(may_find(memory, *programs), memory in memories)

    def test_stores_that_are_seen_late(self):
        self.are(STORE_BUFFERING)

    def test_messages(self):
        self.are(MESSAGES)

    def test_what_was_released_goes_on_with_swaps(self):
        self.are(RELEASES)

    def test_one_variable_has_one_order(self):
        self.are(ONE_VARIABLE)

    def test_nothing_comes_into_a_swap(self):
        self.are(SWAPS)

    def test_many_who_look(self):
        self.are(MANY)

    def test_no_store_is_seen_before_the_loads_ahead_of_it(self):
        self.are(LOAD_BUFFERING)


def pw(name, value):
    return ("store", name, value, PLAIN)


def pr(name):
    return ("load", name, PLAIN)


def until(name, value, order=ACQUIRE):
    return ("until", name, value, order)


# Whether they race.
RACES = {
    "two stores": (True, [pw("d", 1)], [pw("d", 2)]),
    "a store and a load": (True, [pw("d", 1)], [pr("d")]),
    "two loads": (False, [pr("d")], [pr("d")]),
    "two loads of what one has stored": (False, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1), pr("d")], [until("f", 1), pr("d")]),
    "of one": (False, [pw("d", 1), pr("d"), pw("d", 2)]),
    "two variables": (False, [pw("d", 1), pr("e")], [pr("e")]),
    "a load when it was told": (False, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1), pr("d")]),
    "a load when it was told, relaxed": (True, [pw("d", 1), w("f", 1)], [until("f", 1), pr("d")]),
    "a load when it was told, not acquired": (True, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1, RELAXED), pr("d")]),
    "a store when it was told": (False, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1), pw("d", 2)]),
    "a store when it was told, relaxed": (True, [pw("d", 1), w("f", 1)], [until("f", 1), pw("d", 2)]),
    "a store after a load": (False, [pr("d"), w("f", 1, RELEASE)], [until("f", 1), pw("d", 1)]),
    "a store after a load, relaxed": (True, [pr("d"), w("f", 1)], [until("f", 1), pw("d", 1)]),
    "a store after a load, not acquired": (True, [pr("d"), w("f", 1, RELEASE)], [until("f", 1, RELAXED), pw("d", 1)]),
    "a load after it was told": (True, [pr("d"), w("f", 1, RELEASE), pr("d")], [until("f", 1), pw("d", 1)]),
    "a store after it was told": (True, [pw("d", 1), w("f", 1, RELEASE), pw("d", 2)], [until("f", 1), pr("d")]),
    "a store after two loads": (False, [pr("d"), w("f", 1, RELEASE)], [pr("d"), w("g", 1, RELEASE)],
                                [until("f", 1), until("g", 1), pw("d", 1)]),
    "a store after one of two loads": (True, [pr("d"), w("f", 1, RELEASE)], [pr("d"), w("g", 1, RELEASE)],
                                       [until("f", 1), until("g", 1, RELAXED), pw("d", 1)]),
    "fences": (False, [pw("d", 1), fence(RELEASE), w("f", 1)], [until("f", 1, RELAXED), fence(ACQUIRE), pr("d")]),
    "a release fence before the store": (True, [fence(RELEASE), pw("d", 1), w("f", 1)], [until("f", 1), pr("d")]),
    "a release fence before the load": (True, [fence(RELEASE), pr("d"), w("f", 1)], [until("f", 1), pw("d", 1)]),
    "by way of a third": (False, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1), w("g", 1, RELEASE)], [until("g", 1), pr("d")]),
    "by way of a third that does not acquire": (True, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1, RELAXED), w("g", 1, RELEASE)],
                                                [until("g", 1), pr("d")]),
    "by way of a third's swap": (False, [pw("d", 1), w("f", 1, RELEASE)], [until("f", 1, RELAXED), ("swap", "f", 2, RELAXED)],
                                 [until("f", 2), pr("d")]),
    "a loan that is given back": (False, [pw("d", 1), w("f", 1, RELEASE), until("f", 2), pw("d", 3)],
                                  [until("f", 1), pr("d"), pw("d", 2), w("f", 2, RELEASE)]),
    "expected": (True, [pw("d", 1)], [("expect", (("d", 0),))]),
}


def straight(steps):
    for number, step in enumerate(steps):
        yield step


class Races(unittest.TestCase):
    """Of plain accesses, in C11."""

    def said_of(self, *programs):
        return Explorer([lambda steps=steps: straight(steps) for steps in programs], C11).lost()

    def test_what_nothing_keeps_apart(self):
        for name, (race, *programs) in RACES.items():
            with self.subTest(name):
                said = self.said_of(*programs)
                self.assertEqual(said is not None, race)
                self.assertIn("race", said or "race")

    def test_that_a_fence_came_first_is_known_to_nobody(self):
        """Who finds 1 in z had the later one of two fences; but without an acquire he may not look at what is plain."""
        def first():
            yield pw("d", 1)
            yield SC
            if (yield ("load", "y", RELAXED)) == 0:
                yield w("z", 1)

        def second(*then):
            yield w("y", 1)
            yield SC
            if (yield ("load", "z", RELAXED)) == 1:
                yield from straight(then)
        self.assertIn("race", Explorer([first, lambda: second(pr("d"))], C11).lost())
        self.assertIsNone(Explorer([first, lambda: second(fence(ACQUIRE), pr("d"))], C11).lost())

    def test_what_is_found_is_what_was_stored(self):
        told = [pw("d", 1), pw("d", 2), w("f", 1, RELEASE)]
        self.assertIsNone(self.said_of(told, [until("f", 1), ("expect", (("d", 2),))]))
        self.assertIn("expected", self.said_of(told, [until("f", 1), ("expect", (("d", 1),))]))

    def test_a_variable_is_plain_or_atomic(self):
        with self.assertRaises(AssertionError):
            self.said_of([pw("d", 1), w("d", 1)])


class Waiting(unittest.TestCase):
    """Who waits sees the newest in the end, but maybe nothing older."""

    def said_of(self, memory, *programs):
        return Explorer([lambda steps=steps: straight(steps) for steps in programs], memory).lost()

    def test_what_stays_is_seen(self):
        for memory in (X86, C11):
            self.assertIsNone(self.said_of(memory, [w("x", 1)], [until("x", 1, RELAXED)]))
            self.assertIsNone(self.said_of(memory, [w("x", 1), w("x", 2)], [until("x", 2, RELAXED)]))

    def test_what_goes_may_be_missed(self):
        for memory in (X86, C11):
            self.assertIn("nobody", self.said_of(memory, [w("x", 1), w("x", 2)], [until("x", 1, RELAXED)]))
            self.assertIn("nobody", self.said_of(memory, [w("x", 1)], [w("x", 2)], [until("x", 2, RELAXED)]))

    def test_what_comes_later_may_be_older(self):
        """The second store of x, if nothing tells who makes it of the first one; not so on x86."""
        for order, load, is_missed in ((RELAXED, RELAXED, True), (RELEASE, ACQUIRE, False)):
            programs = [w("x", 1)], [until("y", 1, load), w("x", 2)], [until("x", 1), w("y", 1, order), until("x", 2)]
            self.assertEqual("nobody" in (self.said_of(C11, *programs) or ""), is_missed)
            self.assertIsNone(self.said_of(X86, *programs))

    def test_a_bell_that_was_rung_before_is_heard(self):
        for memory in (X86, C11):
            ring = ("swap", "x", 1, RELAXED)
            self.assertIsNone(self.said_of(memory, [ring], [("await", "x", RELAXED)]))
            self.assertIsNone(self.said_of(memory, [ring, until("y", 1, RELAXED), ring],
                                           [("await", "x", RELAXED), w("y", 1), ("await", "x", RELAXED)]))
            self.assertIn("nobody", self.said_of(memory, [ring, ring], [("await", "x", RELAXED), ("await", "x", RELAXED)]))


def finder(step, found):
    if (yield step) == found:
        yield ("expect", (("nothing", 1),))


class Results(unittest.TestCase):
    """Of steps that find something, or choose: which there are."""

    def are(self, wanted, step, *programs):
        for memory in (X86, C11):
            found = set()
            for value in range(5):
                others = [lambda steps=steps: straight(steps) for steps in programs]
                said = Explorer([lambda: finder(step, value), *others], memory).lost()
                if said is not None and "expected" in said:
                    found.add(value)
            self.assertEqual(found, wanted)

    def test_of_who_waits_for_anything(self):
        step = ("until", "x", ANYTHING, RELAXED)
        self.are(set(), step)
        self.are({1, 3}, step, [w("x", 1), w("x", 3)])
        self.are({1, 3}, step, [w("x", 1)], [w("x", 3)])

    def test_of_who_chooses(self):
        self.are({0}, ("choose", 1))
        self.are({0, 1, 2}, ("choose", 3), [w("x", 1)])


class Bounds(unittest.TestCase):
    """What is more than there is room for ends the search; nothing else is written over."""

    def fails(self, memory, steps):
        with self.assertRaises(AssertionError):
            Explorer([lambda: straight(steps), lambda: straight(steps[:1])], memory).lost()

    def test_variables(self):
        for memory in (X86, C11):
            self.fails(memory, [w(f"x{i}", 1) for i in range(65)])
            steps = [step for i in range(64) for step in ((w(f"x{i}", 63)), SC)]
            self.assertIsNone(Explorer([lambda: straight(steps), lambda: straight(steps[-3:])], memory).lost())

    def test_values(self):
        for memory in (X86, C11):
            self.fails(memory, [w("x", 64)])

    def test_histories(self):
        self.fails(C11, [w("x", i) for i in range(40)])
        self.fails(X86, [w("x", i) for i in range(40)])


if __name__ == "__main__":
    main()
