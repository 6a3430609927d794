"""examples/allreduce: one line, from rank 0, the same mean however it is started.

    test_allreduce.py LAUNCHER ALLREDUCE
"""
import re
import sys
import unittest

from jobs import launch, run

LAUNCHER, ALLREDUCE = sys.argv[1:3]


class Allreduce(unittest.TestCase):
    def check(self, done, nranks):
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.fullmatch(r"(\d+) processes measured (\d+) times: (\S+), spread (\S+)\n", done.stdout)
        self.assertIsNotNone(found, done.stdout)
        self.assertEqual((int(found[1]), int(found[2])), (nranks, 1000 * nranks))
        self.assertAlmostEqual(float(found[3]), 20, delta=0.05)
        self.assertAlmostEqual(float(found[4]), 12 ** -0.5, delta=0.02)  # of a uniform distribution

    def test_it_averages_over_all_processes(self):
        for nranks in 2, 3, 5:
            self.check(launch(LAUNCHER, nranks, ALLREDUCE), nranks)

    def test_it_works_alone(self):
        self.check(run([ALLREDUCE]), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
