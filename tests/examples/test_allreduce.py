"""examples/allreduce: one line, from rank 0, the same mean however it is started.

    test_allreduce.py LAUNCHER ALLREDUCE [LIBRARY]

With the library, which a sanitizer's cannot be, also the one in Python.
"""
import os
import re
import sys
import unittest

from jobs import launch, run

LAUNCHER, ALLREDUCE = sys.argv[1:3]
LIBRARY = sys.argv[3] if len(sys.argv) > 3 else None
IN_PYTHON = os.path.join(os.path.dirname(__file__), "../../examples/allreduce.py")


class Allreduce(unittest.TestCase):
    def check(self, done, nranks):
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.fullmatch(r"(\d+) process" + ("es" if nranks > 1 else "") + r" measured (\d+) times: (\S+), spread (\S+)\n", done.stdout)
        self.assertIsNotNone(found, done.stdout)
        self.assertEqual((int(found[1]), int(found[2])), (nranks, 1000 * nranks))
        self.assertAlmostEqual(float(found[3]), 20, delta=0.05)
        self.assertAlmostEqual(float(found[4]), 12 ** -0.5, delta=0.02)  # of a uniform distribution

    def test_it_averages_over_all_processes(self):
        for nranks in 2, 3, 5:
            self.check(launch(LAUNCHER, nranks, ALLREDUCE), nranks)

    @unittest.skipIf(LIBRARY is None, "a sanitizer is to be there first")
    def test_it_is_the_same_in_python(self):
        command = [sys.executable, IN_PYTHON]
        where = {"LD_LIBRARY_PATH": os.path.dirname(os.path.abspath(LIBRARY))}
        self.check(run([LAUNCHER, "--no-prefix", "--nproc_per_node", "3", *command], **where), 3)
        self.check(run(command, **where), 1)
        done = run(command, RANK="0", WORLD_SIZE="2", **where)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nowhere to meet", done.stderr)

    def test_nothing_is_said_but_the_result(self):
        for done in launch(LAUNCHER, 3, ALLREDUCE), run([ALLREDUCE]):
            self.assertEqual(done.stderr, "")

    def test_settings_that_ddl_does_not_have_are_told_once(self):
        wrong = {"DDL_ALL_REDUCE": "ring", "DDL_FOO": "bar", "DDL_EMPTY": ""}
        told = "ddl: ignored, as ddl has no such setting: DDL_ALL_REDUCE (DDL_ALLREDUCE?), DDL_FOO\n"
        for nranks in 1, 3:
            done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", str(nranks), ALLREDUCE], **wrong)
            self.check(done, nranks)
            self.assertEqual(done.stderr, told)

    def test_a_start_that_lacks_what_was_meant_says_so(self):
        done = run([ALLREDUCE], RANK="0", WORLD_SIZE="2", DDL_STOER="file:///nowhere")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no such setting: DDL_STOER (DDL_STORE?)\n", done.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs a file that is full")
    def test_a_result_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = run([ALLREDUCE], stdout=full)
        self.assertEqual((done.returncode, done.stderr), (1, "standard output: No space left on device\n"))

    def test_it_works_alone(self):
        self.check(run([ALLREDUCE]), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
