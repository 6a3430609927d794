"""ddl-bench: its table, its JSON, its flags.

    test_bench.py LAUNCHER DDL_BENCH [TEST...]
"""
import json
import os
import sys
import tempfile
import unittest

from jobs import launch, run

LAUNCHER, BENCH = sys.argv[1:3]
SHORT = ["--seconds", "0.01"]
BUS_FACTORS = {
    "allreduce": lambda n: 2 * (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n, "allgather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1, "reduce": lambda n: 1, "alltoall": lambda n: (n - 1) / n, "barrier": lambda n: 1,
    "sendrecv": lambda n: 1,
}
BLOCKS = "reduce_scatter", "allgather", "alltoall"  # count is that of one rank's block


def bench(nranks, *arguments):
    return launch(LAUNCHER, nranks, BENCH, *arguments)


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def succeed(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def rows(self, done):
        lines = [line for line in self.succeed(done).stdout.splitlines() if not line.startswith("#")]
        return [(int(size), int(count), algorithm, float(median), float(p99), int(iterations), float(alg), float(bus))
                for size, count, algorithm, median, p99, iterations, alg, bus in map(str.split, lines)]

    def results(self, *arguments, nranks):
        self.succeed(bench(nranks, *SHORT, "--json", self.path("json"), *arguments))
        with open(self.path("json"), encoding="utf-8") as file:
            return json.load(file)


class Measures(Case):
    def test_every_collective_has_a_table(self):
        for collective in BUS_FACTORS:
            with self.subTest(collective):
                rows = self.rows(bench(3, collective, "--max", "64k", "--factor", "16", *SHORT))
                if collective == "barrier":
                    self.assertEqual([row[:2] for row in rows], [(0, 0)])
                    continue
                self.assertEqual(len(rows), 4)
                for size, count, _, median, p99, iterations, _, _ in rows:
                    self.assertEqual(size, count * 4 * (3 if collective in BLOCKS else 1))
                    self.assertGreater(median, 0)
                    self.assertGreaterEqual(p99, median)
                    self.assertGreaterEqual(iterations, 4)
                sizes = [row[0] for row in rows]
                self.assertEqual(sizes, sorted(set(sizes)))

    def test_json_has_what_the_table_has(self):
        for collective, factor in BUS_FACTORS.items():
            with self.subTest(collective):
                found = self.results(collective, "--min", "1k", "--max", "16k", nranks=2)
                self.assertEqual((found["collective"], found["ranks"], found["nodes"]), (collective, 2, 1))
                self.assertEqual([r["bytes"] for r in found["results"]],
                                 [0] if collective == "barrier" else [1024, 4096, 16384])
                for r in found["results"]:
                    self.assertLessEqual(r["median_us"], r["p99_us"])
                    self.assertAlmostEqual(r["algorithm_GBps"], r["bytes"] / r["median_us"] / 1e3)
                    self.assertAlmostEqual(r["bus_GBps"], r["algorithm_GBps"] * factor(2))

    def test_all_algorithms_are_measured_in_turn(self):
        found = self.results("allreduce", "--algorithm", "all", "--min", "4k", "--max", "4k", nranks=4)
        names = [r["algorithm"] for r in found["results"]]
        self.assertLessEqual({"flat", "ring", "direct", "circulant"}, set(names))
        self.assertEqual(len(names), len(set(names)))

    def test_what_cannot_run_here_is_left_out_of_all(self):
        done = self.succeed(bench(3, "reduce_scatter", "--algorithm", "all", "--min", "4k", "--max", "4k", *SHORT))
        self.assertIn("# halving is left out", done.stdout)
        self.assertIn("ring", [row[2] for row in self.rows(done)])

    def test_a_forced_algorithm_is_used(self):
        rows = self.rows(bench(2, "allreduce", "--algorithm", "ring", "--min", "4", "--max", "1M", "--factor", "512",
                               *SHORT))
        self.assertEqual([row[2] for row in rows], ["ring"] * 3)

    def test_every_type_and_operator_is_right(self):
        for dtype in "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float64":
            for op in "sum", "prod", "min", "max", "avg", "band", "bor", "bxor":
                if "float" in dtype and op.startswith("b"):
                    continue
                with self.subTest(dtype=dtype, op=op):
                    self.rows(bench(3, "allreduce", "--dtype", dtype, "--op", op, "--min", "100", "--max", "10000",
                                    "--factor", "100", "--iters", "1", "--warmup", "0"))

    def test_in_place_is_right(self):
        for collective in "allreduce", "reduce_scatter", "allgather", "reduce", "alltoall":
            with self.subTest(collective):
                rows = self.rows(bench(3, collective, "--inplace", "1", "--max", "64k", "--factor", "32", *SHORT))
                self.assertGreaterEqual(len(rows), 3)

    def test_any_rank_may_be_root(self):
        for collective in "broadcast", "reduce":
            with self.subTest(collective):
                self.rows(bench(3, collective, "--root", "2", "--max", "4k", "--factor", "1024", *SHORT))

    def test_iterations_can_be_given(self):
        rows = self.rows(bench(2, "barrier", "--iters", "7"))
        self.assertEqual(rows[0][5], 7)

    def test_a_world_of_one_needs_no_launcher(self):
        rows = self.rows(run([BENCH, "allreduce", "--max", "64", *SHORT]))
        self.assertEqual([row[0] for row in rows], [4, 16, 64])


class Flags(Case):
    def test_bad_flags_end_with_2(self):
        cases = [([], "name a collective"), (["allreduce", "reduce"], "name one collective"), (["shuffle"], "shuffle"),
                 (["allreduce", "--min", "4x"], "--min 4x"), (["allreduce", "--min", "0"], "--min 0"),
                 (["allreduce", "--min", "-4"], "--min -4"), (["allreduce", "--max", "99999999999G"], "--max"),
                 (["allreduce", "--max", "1MB"], "--max 1MB"), (["allreduce", "--min", "8", "--max", "4"], "--min 8"),
                 (["allreduce", "--factor", "1"], "--factor 1"), (["allreduce", "--dtype", "float"], "--dtype float"),
                 (["allreduce", "--op", "mean"], "--op mean"), (["allreduce", "--op", "band"], "--op band"),
                 (["allreduce", "--algorithm", "magic"], "magic"), (["sendrecv", "--algorithm", "all"], "sendrecv"),
                 (["allreduce", "--iters", "0"], "--iters 0"), (["allreduce", "--seconds", "0"], "--seconds 0"),
                 (["allreduce", "--seconds", "nan"], "--seconds nan"), (["allreduce", "--warmup", "-1"], "--warmup -1"),
                 (["broadcast", "--root", "-1"], "--root -1"), (["allreduce", "--inplace", "2"], "--inplace 2"),
                 (["broadcast", "--inplace", "1"], "--inplace 1"), (["allreduce", "--what"], "what"),
                 (["broadcast", "--root", "1"], "--root"), (["sendrecv"], "two processes")]
        for flags, message in cases:
            with self.subTest(flags):
                done = run([BENCH, *flags])
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_the_launcher_passes_2_on(self):
        self.assertEqual(bench(2, "allreduce", "--min", "none").returncode, 2)
        self.assertEqual(bench(2, "broadcast", "--root", "2").returncode, 2)

    def test_a_json_file_that_cannot_be_written_ends_all_ranks(self):
        done = bench(3, "allreduce", "--json", self.path("no/such/directory"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)

    def test_an_algorithm_that_cannot_run_here_is_an_error_when_named(self):
        done = bench(3, "reduce_scatter", "--algorithm", "halving", "--max", "4k")
        self.assertEqual(done.returncode, 1)
        self.assertIn("halving", done.stderr)

    def test_help_and_version(self):
        done = self.succeed(run([BENCH, "--help"]))
        for word in ("--min", "--max", "--factor", "--dtype", "--op", "--algorithm", "--iters", "--seconds", "--warmup",
                     "--json", "--root", "--inplace", *BUS_FACTORS):
            self.assertIn(word, done.stdout)
        self.assertRegex(self.succeed(run([BENCH, "--version"])).stdout, r"^ddl-bench \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
