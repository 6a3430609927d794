"""Explores every interleaving of a reader that takes messages from the memory of their sender, and a sender that takes
some of them back and writes something else there.

    test_pull_model.py EXPLORE [TESTS]

A sender tells where a message lies, and how often it has taken something back so far (ddl_lane_withdrawals); before it
writes to what it has taken back it counts that (ddl_lane_withdraw). The reader copies, and then looks whether the count
is the one that it was told; if so, and only then, it keeps what it has read (pull in mesh_pages.c). A state in which it
keeps anything but the message is found, as is one in which nobody can go on. That the search finds those is shown by
leaving out what prevents them, and by making orders weaker.

The words of a message are relaxed here, though to the program they are plain: the system copies them, and that it may
find others meanwhile is what the count is for. Where nothing is taken back they are plain, as each end then has them for
itself while it is at them.
"""
import itertools
import unittest

from interleavings import ACQ_REL, ACQUIRE, C11, MEMORIES, PLAIN, RELAXED, RELEASE, SEQ_CST, X86, Explorer, main, orders_of

# That a message was taken is told as the message was; a fence is ahead of it, too.
ACCESSES = {
    "tell": (RELEASE, "transport/lane.c", "publish", "store written"),
    "hear": (ACQUIRE, "transport/lane.c", "ddl_lane_peek", "load written"),  # by the reader
    "hear taken": (ACQUIRE, "transport/lane.c", "ddl_lane_peek", "load written"),  # by the sender
    "count": (RELAXED, "transport/lane.c", "ddl_lane_withdraw", "fetch_add withdrawals"),
    "counted": (SEQ_CST, "transport/lane.c", "ddl_lane_withdraw", "fence"),
    "copied": (SEQ_CST, "transport/lane.c", "ddl_lane_withdrawals", "fence"),
    "look": (RELAXED, "transport/lane.c", "ddl_lane_withdrawals", "load withdrawals"),
}
ORDERS = orders_of(ACCESSES)
WORDS = ("low", "high")  # of a message: a reader may find one of it and one of what is there later


class Rules:
    """What the protocol has; a test takes something away."""

    def __init__(self, orders=ORDERS, counts=True, counts_first=True, looks=True, looks_last=True):
        self.orders = orders
        self.counts, self.counts_first, self.looks, self.looks_last = counts, counts_first, looks, looks_last


def write(value, words):
    for word in WORDS:
        yield ("store", word, value, words)


def sender(takes_back, words, rules):
    """takes_back: of each message, whether. The others are there until they were taken."""
    count = 0
    for k, is_taken_back in enumerate(takes_back, 1):
        yield from write(k, words)
        yield ("store", f"told {k}", 1 + count, rules.orders["tell"])
        if is_taken_back:
            count += 1
            if not rules.counts_first:
                yield from write(32 + k, words)
            if rules.counts:
                yield ("swap", "count", count, RELAXED)
                yield ("fence", rules.orders["counted"])
            if rules.counts_first:
                yield from write(32 + k, words)
        else:
            yield ("until", f"taken {k}", 1, rules.orders["hear taken"])


def reader(takes_back, words, rules):
    count = 0  # as it is told with each
    for k, is_taken_back in enumerate(takes_back, 1):
        yield ("until", f"told {k}", 1 + count, rules.orders["hear"])
        now = count
        if rules.looks and not rules.looks_last:
            now = yield ("load", "count", RELAXED)
        found = []
        for word in WORDS:
            found.append((yield ("load", word, words)))
        yield ("fence", rules.orders["copied"])
        if rules.looks and rules.looks_last:
            now = yield ("load", "count", RELAXED)
        if now == count and found != [k] * len(WORDS):
            yield ("expect", (("nothing else", 1),))  # it keeps what is not the message
        yield ("store", f"taken {k}", 1, rules.orders["tell"])
        count += 1 if is_taken_back else 0


def world(takes_back, memory=X86, **rules):
    rules = Rules(**rules)
    words = RELAXED if any(takes_back) else PLAIN
    return Explorer([lambda: sender(takes_back, words, rules), lambda: reader(takes_back, words, rules)], memory)


class Pulls(unittest.TestCase):
    def test_what_is_kept_is_the_message(self):
        for memory, takes_back in itertools.product(MEMORIES, itertools.product((False, True), repeat=4)):
            with self.subTest(memory=memory, takes_back=takes_back):
                self.assertIsNone(world(takes_back, memory).lost())

    def is_found(self, **without):
        for memory in MEMORIES:
            with self.subTest(memory=memory, **without):
                self.assertIn("expected", world((True,), memory, **without).lost())
                self.assertIn("expected", world((False, True, False), memory, **without).lost())

    def test_it_is_counted_before_anything_else_is_written(self):
        self.is_found(counts=False)
        self.is_found(counts_first=False)

    def test_the_count_is_looked_at_after_the_message(self):
        self.is_found(looks=False)
        self.is_found(looks_last=False)

    def test_every_order_is_needed(self):
        """Of the fences acq_rel ones would do: neither end stores something and looks then."""
        for what in ORDERS:
            with self.subTest(relaxed=what):
                orders = {**ORDERS, what: RELAXED}
                if what == "hear taken":
                    self.assertIn("race", world((False, False), C11, orders=orders).lost())
                else:
                    self.assertIn("expected", world((False, True), C11, orders=orders).lost())
        fences = {what: ACQ_REL for what, order in ORDERS.items() if order == SEQ_CST}
        self.assertIsNone(world((True, False, True), C11, orders={**ORDERS, **fences}).lost())


if __name__ == "__main__":
    main("Pulls")
