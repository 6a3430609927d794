"""Communication goes on while its caller computes: two hosts on a link of 1 Gbit/s, shaped both ways.

    test_overlap.py LAUNCHER OVERLAP [CLASS[.TEST]...] [-v]

Needs the right to make network namespaces and to shape their traffic; exits with 77 (skipped) where it is not given.
"""
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "bench"))

from link import ADDRESSES, Link, refused  # noqa: E402
from world import DEADLINE, Rank, clean_environment, run_unless  # noqa: E402

LAUNCHER = OVERLAP = None
PORT = 29500
MEGABIT_PER_S = 1000
ROUNDS = 3
# What computing and communicating at once may take of the longer of the two.
LIMIT = 1.3


class TestOverlap(unittest.TestCase):
    def measure(self, requests, mib_each):
        """(communication, computation, both at once) in seconds"""
        with Link(MEGABIT_PER_S) as link:
            ranks = []
            for host in range(2):
                command = ["--nnodes", 2, "--node_rank", host, "--nproc_per_node", 1, "--master_addr", ADDRESSES[0],
                           "--master_port", PORT, "--no-prefix", OVERLAP, requests, mib_each, ROUNDS]
                rank = Rank(LAUNCHER, [str(c) for c in command], clean_environment(), f"the launcher on host {host}",
                            link.on(host))
                ranks.append(rank)
                self.addCleanup(rank.close)
            record = ranks[0].next()
            for rank in ranks:
                self.assertEqual(rank.process.wait(DEADLINE), 0, rank.story())
        self.assertIsNotNone(record, ranks[0].story())
        found = re.match(r"communication (\S+) computation (\S+) together (\S+)$", record.get("line", ""))
        self.assertIsNotNone(found, ranks[0].story())
        return [float(value) for value in found.groups()]

    def describe(self, requests, mib_each, attempts):
        return f"{requests} of {mib_each} MiB: " + "; ".join(
            f"communication {a:.3f} s, computation {b:.3f} s, together {c:.3f} s" for a, b, c in attempts)

    def check(self, requests, mib_each):
        # Of two ranks each sends the whole vector once, half of it to the other and half of it back.
        least = requests * mib_each * 2**20 * 8 / (MEGABIT_PER_S * 1e6)
        attempts = []
        for _ in range(12):  # what else runs on this machine, or beside it, may disturb one
            communication, computation, together = self.measure(requests, mib_each)
            self.assertGreater(communication, 0.9 * least, "the link is not as slow as it was made")
            attempts.append((communication, computation, together))
            if not 0.75 < computation / communication < 1.33:
                continue  # something disturbed it: they were to take equally long
            if together < LIMIT * max(communication, computation):
                break
        else:
            self.fail(self.describe(requests, mib_each, attempts))
        print(self.describe(requests, mib_each, attempts), flush=True)

    def test_one_large_allreduce(self):
        self.check(1, 32)

    def test_eight_allreduces_in_flight(self):
        self.check(8, 4)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    LAUNCHER, OVERLAP = [os.path.abspath(a) for a in sys.argv[1:3]]
    del sys.argv[1:3]
    run_unless(refused())
