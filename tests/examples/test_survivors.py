"""examples/survivors: whoever is lost, and whenever, the others find what all would have found.

    test_survivors.py LAUNCHER SURVIVORS
"""
import re
import signal
import sys
import unittest

from jobs import run

LAUNCHER, SURVIVORS = sys.argv[1:3]
FOUND = "y = 2.9994 x + 1.0005, found by "


class Survivors(unittest.TestCase):
    def check(self, nranks, *victim):
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", str(nranks), "--on_failure", "continue", SURVIVORS,
                    *map(str, victim)])
        told = done.stdout.splitlines()
        self.assertEqual(told[-1], f"{FOUND}{nranks - bool(victim)} processes", done.stdout + done.stderr)
        self.assertEqual(told[:-1], [f"{nranks - 1} of {nranks} processes go on"] if victim else [])
        self.assertEqual(done.returncode, 128 + signal.SIGKILL if victim else 0)
        return done

    def test_nobody_is_lost(self):
        self.assertEqual(self.check(3).stderr, "")

    def test_one_is_lost(self):
        for victim, step in (2, 50), (0, 399), (3, 0), (1, 400):
            with self.subTest(victim=victim, step=step):
                done = self.check(4, victim, step)
                self.assertTrue(re.search(rf"DDL_EPEERLOST {'allreduce' if step < 400 else 'barrier'}#{step + 1} .*: rank {victim} ", done.stderr), done.stderr)

    def test_a_wrong_argument_is_refused(self):
        done = run([SURVIVORS, "x"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", "usage: survivors [RANK STEP]\n"))

    def test_fewer_than_half_do_not_go_on(self):
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", "2", "--on_failure", "continue", SURVIVORS, "0", "7"])
        self.assertEqual(done.stdout, "")
        self.assertIn("this process cannot go on: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
