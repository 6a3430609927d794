"""Ranks that share CPUs: test_balance.py DDL_LAUNCH CROWD"""
import os
import re
import subprocess
import sys
import unittest

from world import on_two_cpus

LAUNCHER = CROWD = None
ROUNDS = 20


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "there is one CPU")
class Balance(unittest.TestCase):
    def run_crowd(self, *how, **environment):
        """What four ranks say that keep beginning three to one on two CPUs."""
        with on_two_cpus():
            ended = subprocess.run([LAUNCHER, "-n", "4", "--no_prefix", CROWD, str(ROUNDS), *how], capture_output=True, text=True, timeout=120,
                                   env={**os.environ, "DDL_LOG": "debug", **environment})
        self.assertEqual(ended.returncode, 0, ended.stderr[-2000:])
        return ended.stderr

    def moves(self, **environment):
        return self.run_crowd(**environment).count("where fewer ranks of this host are")

    def test_one_of_three_moves(self):
        # Where the system has not done it before.
        self.assertGreater(self.moves(), 0)

    def test_who_waits_does_not_move_to_where_others_compute(self):
        # Who had looked, and was kept from running before it moved, is one now and then.
        moves = [int(said) for said in re.findall(r"crowd: moved (\d+) times while others computed", self.run_crowd("late"))]
        self.assertEqual(len(moves), 4)
        self.assertLess(sum(moves), ROUNDS // 10, moves)

    def test_who_shares_no_memory_does_not(self):
        self.assertEqual(self.moves(DDL_TRANSPORT="tcp"), 0)


if __name__ == "__main__":
    LAUNCHER, CROWD = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()
