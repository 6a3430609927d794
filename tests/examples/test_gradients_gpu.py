"""examples/gradients_gpu over what stands in for the CUDA driver: averages are right however ranks share GPUs.

    test_gradients_gpu.py LAUNCHER GRADIENTS_GPU
"""
import sys
import unittest

from jobs import run

LAUNCHER, GRADIENTS = sys.argv[1:3]


def train(nranks, driver, *flags):
    return run([LAUNCHER, "--no-prefix", "--nproc_per_node", str(nranks), GRADIENTS, *flags], DDL_TEST_STANDIN=driver)


class GradientsGpu(unittest.TestCase):
    def check(self, done, nranks):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf"\A{nranks} processes, 4 layers: \S+ ms per step, the host busy for \S+ ms of them; 0 averages wrong\n\Z")

    def test_averages_are_right_however_gpus_are_shared(self):
        for nranks, driver in ((1, "gpus=1"), (2, "gpus=1,delay=200"), (3, "gpus=2")):
            with self.subTest(nranks=nranks):
                self.check(train(nranks, driver, "--steps", "2"), nranks)

    def test_an_average_that_fails_is_told(self):
        """Rank 1 goes on to a step that rank 0 does not come to."""
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", "2", "sh", "-c", 'exec "$0" --steps $((RANK + 1))', GRADIENTS],
                   DDL_TEST_STANDIN="gpus=2")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("averages wrong", done.stdout)
        self.assertRegex(done.stderr, r"gradients_gpu: .*allreduce#\d+.*rank [01]")

    def test_without_a_gpu_it_says_so(self):
        done = train(1, "gpus=0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("GPU", done.stderr)

    def test_bad_flags_are_refused(self):
        for flags in (["--steps", "0"], ["--steps", "x"], ["--steps"], ["extra"]):
            with self.subTest(flags=flags):
                self.assertEqual(run([GRADIENTS, *flags]).returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
