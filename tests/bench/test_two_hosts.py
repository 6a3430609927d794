"""bench/two_hosts: what it measures is plausible, and what goes by two levels is not slower than what does not.

    test_two_hosts.py BUILD_ROOT [TEST...]

DDL_TEST_ROUNDS above 1 (./check --long) holds large calls to 95 % of a stream. Needs the right to make network
namespaces and to shape their traffic; exits with 77 (skipped) where it is not given.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))

from link import refused  # noqa: E402

BUILD = sys.argv.pop(1)
SKIPPED = 77
LONG = int(os.environ.get("DDL_TEST_ROUNDS", "1")) > 1


def two_hosts(*arguments):
    return subprocess.run([BENCH / "two_hosts", *arguments], capture_output=True, text=True, timeout=600)


class TwoHosts(unittest.TestCase):
    def test_a_slow_link_is_filled(self):
        done = two_hosts("--prefix", BUILD, "--megabit", "400", "--mebibytes", "4", "--rounds", "1", "--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout, flush=True)
        stream = float(re.search(r"one TCP stream +([\d.]+)", done.stdout)[1])
        self.assertGreater(stream, 35)  # MB/s, of a link of 50
        self.assertLess(stream, 55)
        rates = {name: float(rate) for name, rate in re.findall(r"^ +2 x 2 +(\S.*?\S) +([\d.]+) ", done.stdout, re.M)}
        chosen = rates.pop("two_level (chosen)")
        self.assertEqual(set(rates), {"ring", "halving_doubling", "circulant", "two_level"})
        self.assertGreater(chosen, 0.8 * stream)
        self.assertLess(chosen, 1.05 * stream)  # nothing goes past the link
        for flat in "ring", "halving_doubling", "circulant":
            self.assertGreater(chosen, rates[flat])

    def test_a_small_alltoall_is_quicker_by_one_message_for_each_other_host(self):
        done = two_hosts("--prefix", BUILD, "--alltoall", "8", "--ranks", "4", "--rounds", "3", "--megabit", "10000")
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout, flush=True)
        times = {name: float(us) for name, us in re.findall(r"^ +2 x 4 +8 +(\S.*?\S) +([\d.]+)$", done.stdout, re.M)}
        self.assertEqual(set(times), {"two_level (chosen)", "direct", "pairwise", "bruck", "two_level"})
        for flat in "direct", "pairwise":
            self.assertLess(times["two_level (chosen)"], 0.8 * times[flat])

    @unittest.skipUnless(LONG, "takes minutes: ./check --long")
    def test_a_large_call_takes_what_a_stream_takes(self):
        done = two_hosts("--prefix", BUILD)
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout, flush=True)
        chosen = {ranks: float(share) for ranks, share in
                  re.findall(r"^ +(2 x \d) .*\(chosen\) +[\d.]+ +([\d.]+)$", done.stdout, re.M)}
        self.assertEqual(set(chosen), {"2 x 1", "2 x 2"})
        for share in chosen.values():
            self.assertGreaterEqual(share, 0.95)

    @unittest.skipIf(refused(100), "no rates for single connections here")
    def test_several_connections_carry_what_each_may(self):
        done = two_hosts("--prefix", BUILD, "--flow", "100", "--streams", "1,3", "--mebibytes", "2", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout, flush=True)
        stream = float(re.search(r"one TCP stream +([\d.]+)", done.stdout)[1])
        self.assertLess(stream, 14)  # MB/s, of a rate of 12.5
        one, three = (float(re.search(rf"DDL_STREAMS={n} +([\d.]+)", done.stdout)[1]) for n in (1, 3))
        self.assertLess(one, 14)
        self.assertLess(three, 42)
        self.assertGreater(three, 1.5 * one)

    def test_what_is_not_there_is_told(self):
        done = two_hosts("--prefix", "/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere", done.stderr)


if __name__ == "__main__":
    reason = refused()
    if reason is not None:
        print(f"skipped: no shaped link between network namespaces here: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
