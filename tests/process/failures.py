"""What tests that break one thing in a small world have in common: the world, its bounds, and what is to hold in the end.

The bounds are those that the library promises; DDL_TEST_PATIENCE stretches them in slow builds.
"""
import os
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

from world import World, bound

ACTOR = None
SEED = int(os.environ.get("DDL_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("DDL_TEST_ROUNDS", "1"))  # `./check --long` asks for more
# What the process keeps for good (libuv's pipe for signals) is opened by a first world.
WARM = ["cycle:1"]
SMALL, LARGE = "allreduce:16:float32:sum", "allreduce:400000:float32:sum"


class Failures(unittest.TestCase):
    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, **environment)
        self.addCleanup(world.__exit__)
        return world

    def seconds(self, begin_ns, end_ns):
        return (end_ns - begin_ns) / 1e9

    def assert_within(self, record, begin_ns, seconds):
        took = self.seconds(begin_ns, record["end_ns"])
        self.assertLess(took, bound(seconds), f"took {took:.3f} s: {record}")

    def assert_names(self, record, *words):
        for word in words:
            self.assertIn(str(word), record["text"])

    def assert_same_resources(self, before, after):
        for what in ("descriptors", "threads"):
            self.assertEqual(before[what], after[what], f"{what}: {before} then {after}")

    def together(self, ranks, *events):
        """Let all go on at once, when each has had these events: a failure that is found by a fast rank ends
        operations that a slow one has not finished, and what comes before is not to be among them."""
        for rank in ranks:
            for event in events:
                rank.expect(event, "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()

    def at_once(self, *checks):
        """Do several checks that mostly wait; each has a world of its own."""
        with ThreadPoolExecutor(len(checks)) as pool:
            for check in [pool.submit(*check) for check in checks]:
                check.result()

    def next_of_forever(self, rank):
        """How a call ended that is repeated until it fails."""
        record = rank.next()
        return rank.next() if record["event"] == "running" else record

    def expect_warm(self, rank):
        rank.expect("allreduce", "DDL_OK")
        rank.expect("cycle", "DDL_OK")

    def assert_gone_bad(self, rank):
        """After a failure calls say so at once, and freeing is quick and leaves nothing behind."""
        again = rank.expect("call", "DDL_EABORTED")
        self.assertLess(self.seconds(again["begin_ns"], again["end_ns"]), bound(0.5), rank.story())
        freed = rank.expect("free", "DDL_OK")
        self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1), rank.story())


def main(usage):
    """Run the classes or tests that are asked for; the first argument is the actor."""
    global ACTOR
    if len(sys.argv) < 2:
        sys.exit(usage)
    ACTOR = sys.argv.pop(1)
    unittest.main()
