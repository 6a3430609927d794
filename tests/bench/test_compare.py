"""bench/compare: what it computes and writes, and a short run of it with ddl alone.

    test_compare.py BUILD_DIR [CLASS[.TEST]...]
"""
import csv
import dataclasses
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "bench"))

import figures  # noqa: E402
import job  # noqa: E402
import peers  # noqa: E402
import plot  # noqa: E402
import report  # noqa: E402
from figures import Case, Results  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("compare", str(TOP / "bench" / "compare"))  # it has no .py
COMPARE = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", LOADER))
LOADER.exec_module(COMPARE)
BUILD = os.path.abspath(sys.argv.pop(1))
ALLREDUCE = Case("shm", "allreduce", 2)


def line(size, mean_us, library="a library 1.0"):
    return {"library": library, "collective": "allreduce", "bytes": size, "operations": 7, "median_us": mean_us,
            "mean_us": mean_us, "p99_us": 2 * mean_us}


def results():
    """ddl takes half of what Open MPI does; MPICH is slower still, and hung at the greater size."""
    made = Results()
    for turn, us in enumerate((9, 1, 2)):
        add(made, "ddl", "ddl 0", {turn: us}, 1024)
    add(made, "ddl", "ddl 0", {1: 8}, 4096)
    add(made, "openmpi", "Open MPI 4", {1: 2, 2: 4, 3: 50}, 1024)
    add(made, "openmpi", "Open MPI 4", {1: 16}, 4096)
    add(made, "mpich", "MPICH 4", {1: 8}, 1024)
    made.give_up(ALLREDUCE, "mpich", 4096, "timeout")
    for name, processes, size, us in (("flag", 2, 0, 0.1), ("memcpy", 1, 1024, 0.1), ("memcpy", 2, 1024, 0.5),
                                      ("memcpy", 1, 4096, 0.2), ("memcpy", 2, 4096, 4)):
        made.add_limit(ALLREDUCE, 1, {"limit": name, "processes": processes, "bytes": size, "us": us})
    return made


def add(made, peer, library, times, size):
    for turn, us in times.items():
        made.add(ALLREDUCE, peer, turn, line(size, us, library))


class Figures(unittest.TestCase):
    PEERS = ["ddl", "openmpi", "mpich"]

    def test_sizes(self):
        self.assertEqual(figures.parse_sizes("4,1K"), [4, 1024])
        self.assertEqual(figures.parse_sizes("16K..1m"), [1 << 14, 1 << 16, 1 << 18, 1 << 20])
        for wrong in ("0", "1.5K", "", "4..", "k"):
            with self.subTest(wrong), self.assertRaises(ValueError):
                figures.parse_sizes(wrong)
        self.assertEqual(figures.whole_sizes(Case("shm", "alltoall", 3), [4, 1024, 1025]), [12, 1020])
        self.assertEqual(figures.whole_sizes(Case("shm", "barrier", 3), [4, 1024]), [0])

    def test_everybody_comes_first_once(self):
        firsts = [figures.rotated(["a", "b", "c"], number)[0] for number in range(6)]
        self.assertEqual(firsts, ["a", "b", "c", "a", "b", "c"])

    def test_the_median_of_rounds_counts(self):
        self.assertEqual(results().point(ALLREDUCE, "ddl", 1024).mean_us, 2)

    def test_what_is_divided_is_of_the_same_turn(self):
        """A machine that is four times as slow in most of the turns in which one library was measured."""
        made = Results()
        add(made, "ddl", "ddl 0", {1: 40, 2: 40, 3: 10}, 1024)
        add(made, "openmpi", "Open MPI 4", {1: 80, 2: 80, 3: 20, 4: 20, 5: 20, 6: 20}, 1024)
        add(made, "mpich", "MPICH 4", {3: 25, 4: 25}, 1024)
        for turn, us in {1: 8, 2: 8, 3: 2, 4: 2, 5: 2}.items():
            made.add_limit(ALLREDUCE, turn, {"limit": "memcpy", "processes": 2, "bytes": 1024, "us": us})
            made.add_limit(ALLREDUCE, turn, {"limit": "flag", "processes": 2, "bytes": 0, "us": 0.1})
        self.assertEqual([made.point(ALLREDUCE, peer, 1024).mean_us for peer in self.PEERS], [40, 20, 25])
        self.assertEqual(made.ratio(ALLREDUCE, 1024, self.PEERS), 0.5)
        self.assertEqual(made.ratio(ALLREDUCE, 1024, ["ddl", "mpich"]), 0.4)
        self.assertEqual(made.limit_share(ALLREDUCE, "ddl", 1024), 0.2)
        self.assertEqual(made.limits(ALLREDUCE)["memcpy", 2, 1024], 2)
        add(made, "gloo", "Gloo", {7: 1}, 1024)  # never beside ddl
        self.assertIsNone(made.ratio(ALLREDUCE, 1024, ["ddl", "gloo"]))
        self.assertIsNone(made.limit_share(ALLREDUCE, "gloo", 1024))

    def test_sizes_are_measured_in_groups(self):
        self.assertEqual(figures.near(list(range(9))), [[0, 1, 2, 3], [4, 5, 6, 7], [8]])

    def test_ratios_are_to_the_best_of_the_others(self):
        made = results()
        self.assertEqual(made.ratio(ALLREDUCE, 1024, self.PEERS), 0.5)
        self.assertEqual(made.ratio(ALLREDUCE, 4096, self.PEERS), 0.5)
        self.assertIsNone(made.ratio(ALLREDUCE, 4096, ["ddl", "mpich"]))
        self.assertEqual(made.limit_share(ALLREDUCE, "ddl", 4096), 0.5)
        self.assertEqual(made.bus_gbps(ALLREDUCE, "ddl", 4096), 4096 / 8 / 1000)

    def test_bounds_follow_from_what_was_measured(self):
        def limit(transport, collective, ranks, size, facts):
            return figures.bound_us(Case(transport, collective, ranks), size, facts)

        copies = {("flag", 2, 0): 0.1, ("memcpy", 4, 4): 0.01, ("memcpy", 4, 4096): 8}
        self.assertEqual(limit("shm", "allreduce", 4, 4, copies), 0.1)  # the flag's, as the copy takes less
        self.assertEqual(limit("shm", "barrier", 4, 0, copies), 0.1)
        self.assertEqual(limit("shm", "alltoall", 4, 4096, copies), 8)
        self.assertEqual(limit("shm", "reduce_scatter", 4, 4096, copies), 8 * (1 + 1 / 4) / 2)
        for collective in "reduce", "gather", "scatter":
            self.assertEqual(limit("shm", collective, 4, 4096, {**copies, ("memcpy", 4, 1024): 3}), 3)
        self.assertEqual(limit("shm", "allreduce_in_place", 4, 4096, {**copies, ("sum", 4, 4096): 6}), 6)
        wires = {("exchange", 4, 4): 5, ("exchange", 4, 6144): 7, ("exchange", 4, 3072): 6, ("stream", 2, 4096): 3,
                 ("stream", 2, 3072): 2}
        self.assertEqual(limit("tcp", "barrier", 4, 0, wires), 5)
        self.assertEqual(limit("tcp", "allreduce", 4, 4096, wires), 7)  # 2 * 3/4 of its bytes
        self.assertEqual(limit("tcp", "allgather", 4, 4096, wires), 6)
        self.assertEqual(limit("tcp", "broadcast", 4, 4096, wires), 3)
        self.assertEqual(limit("tcp", "reduce", 4, 4096, wires), 3)
        self.assertEqual(limit("tcp", "gather", 4, 4096, wires), 2)

    def test_the_sizes_of_limits_are_those_that_bounds_ask_for(self):
        for transport in report.TRANSPORTS:
            for collective in figures.COLLECTIVES:
                for ranks in 2, 3, 8:
                    case = Case(transport, collective, ranks)
                    sizes = figures.whole_sizes(case, [4, 1000, 1 << 20])
                    measured = figures.limit_sizes(case, sizes)
                    facts = {(name, processes, size): 1 for name in ("memcpy", "sum", "exchange", "stream")
                             for processes in (2, ranks) for size in measured}
                    for size in sizes:
                        self.assertGreater(figures.bound_us(case, size, {**facts, ("flag", 2, 0): 1}), 0)

    def test_the_table_and_the_csv_say_it(self):
        made, cases = results(), {ALLREDUCE: ([1024, 4096], self.PEERS)}
        rows = report.table(made, ALLREDUCE, [1024, 4096], self.PEERS).splitlines()
        self.assertEqual(rows[2], "| 1 KiB | 2.00 | 4.00 | 8.00 | 0.50 | 0.51 | 50 % |")
        self.assertEqual(rows[3], "| 4 KiB | 8.00 | 16.0 | timeout | 0.50 | 0.51 | 50 % |")
        file = io.StringIO()
        report.write_csv(file, made, cases)
        written = list(csv.DictReader(io.StringIO(file.getvalue())))
        self.assertEqual([row["library"] for row in written], self.PEERS * 2)
        self.assertEqual(written[0]["over_best_other"], "0.5")
        self.assertEqual((written[-1]["word"], written[-1]["mean_us"]), ("timeout", ""))
        text = report.document(made, cases, types.SimpleNamespace(rounds=3, seconds=0.1, command="bench/compare --rounds 3"), {})
        self.assertIn("ddl takes 0.50 times as long as the fastest other library", text)
        self.assertIn("`bench/compare --rounds 3`", text)

    @unittest.skipUnless(plot.is_possible(), "there is no gnuplot")
    def test_a_plot_has_a_line_for_each_library_that_was_measured(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "plot.svg")
            self.assertTrue(plot.draw(path, results(), ALLREDUCE, [1024, 4096], [*self.PEERS, "gloo"]))
            drawn = pathlib.Path(path).read_text(encoding="utf-8")
            for label in "ddl", "Open MPI", "MPICH", "limit of this machine", "1 KiB", "10 GB/s", "1 us":
                self.assertIn(f">{label}<", drawn.replace("\n", ""))
            self.assertNotIn("Gloo", drawn)
            self.assertFalse(plot.draw(path, results(), Case("shm", "barrier", 2), [0], self.PEERS))

    def test_a_block_is_replaced_and_nothing_else(self):
        text = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
        self.assertEqual(report.replace_block(text, "new\n"), f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n")
        for wrong in ("nothing", report.BEGIN, f"{report.END}{report.BEGIN}", text + text):
            with self.subTest(wrong), self.assertRaises(ValueError):
                report.replace_block(wrong, "new")
        report.replace_block((TOP / "README.md").read_text(encoding="utf-8"), "")  # which has one


class Readme(unittest.TestCase):
    def options(self, *words):
        return COMPARE.parse_arguments(["--readme", *words])

    def test_as_it_is_it_measures_what_the_readme_shows(self):
        options = self.options()
        shown = (TOP / "README.md").read_text(encoding="utf-8").split(report.BEGIN)[1].split(report.END)[0]
        cases = [Case(transport, collective, ranks) for ranks in options.ranks for transport in options.transport
                 for collective in options.collective]
        self.assertEqual(re.findall(r"^\*\*(.*?)\.\*\*", shown, re.M), [report.title(case) for case in cases])
        self.assertIn(f"{options.rounds} rounds of {options.seconds:g} s per size", shown)
        sizes = [figures.size_name(size) for size in options.sizes]
        self.assertEqual(re.findall(r"^\| (\d.*?) \|", shown, re.M), sizes * len(cases))
        for label in (peers.PEERS[name].label for name in options.peers):
            self.assertIn(f"{label}, us", shown)

    def test_what_is_said_counts_all_the_same(self):
        options = self.options("--ranks", "3", "--seconds", "0.5", "--prefix", "a b")
        self.assertEqual((options.ranks, options.seconds), ([3], 0.5))
        self.assertEqual(options.command, "bench/compare --readme --ranks 3 --seconds 0.5 --prefix 'a b'")
        self.assertEqual(COMPARE.parse_arguments([]).ranks, [2])

    def test_it_loses_neither_pictures_nor_libraries(self):
        """Before anything is measured; README.md is as it was."""
        possible, plot.is_possible = plot.is_possible, lambda: False
        try:
            with self.assertRaisesRegex(ValueError, "--readme needs gnuplot-nox"):
                COMPARE.choose_peers(self.options("--peers", "ddl"))
            self.assertEqual(len(COMPARE.choose_peers(COMPARE.parse_arguments(["--peers", "ddl"]))), 1)
        finally:
            plot.is_possible = possible
        before = (TOP / "README.md").read_bytes()
        with tempfile.TemporaryDirectory() as nothing:
            done = subprocess.run([sys.executable, TOP / "bench" / "compare", "--readme", "--build", nothing],
                                  env={**os.environ, "PATH": nothing}, capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "compare: --readme needs .*gnuplot-nox")
        self.assertEqual((TOP / "README.md").read_bytes(), before)


class Peers(unittest.TestCase):
    def test_nobody_gets_shared_memory_where_tcp_is_compared(self):
        for peer in peers.PEERS.values():
            tools = {peer.driver: "driver", "ddl-launch": "ddl-launch"}
            if "tcp" in peer.transports:
                words, environment = peer.start(tools, "tcp", 2)
                self.assertEqual(words[-1], "driver")
                for word in (*words, *environment.values()):
                    self.assertNotRegex(word, r"vader|\bshm\b|coll_sm")

    def test_what_is_not_installed_is_known(self):
        gloo = peers.PEERS["gloo"]
        self.assertFalse(dataclasses.replace(gloo, header="no/such/header.h").is_here())
        self.assertFalse(dataclasses.replace(gloo, compiler=("no-such-compiler",)).is_here())
        self.assertFalse(dataclasses.replace(peers.PEERS["ddl"], module="no_such_module").is_here())
        self.assertTrue(peers.PEERS["ddl"].is_here())

    def test_what_is_to_be_installed_is_told(self):
        self.assertEqual(peers.PEERS["gloo"].needs(), "g++ libgloo-dev (--install gets them)")
        self.assertRegex(peers.PEERS["torch"].needs(), "^Python's module torch .pip install torch, for /.*python.*.$")

    def test_each_has_a_line_of_its_own_in_plots(self):
        self.assertEqual(len({plot.STYLES[name] for name in peers.PEERS}), len(peers.PEERS))


class Jobs(unittest.TestCase):
    def run_shell(self, script, limit_s=20):
        return list(job.run(["sh", "-c", script], {}, limit_s))

    def test_what_a_driver_says(self):
        good = ('{"library": "x", "collective": "allreduce", "bytes": 4, "operations": 1, "median_us": 1, "mean_us": 1, '
                '"p99_us": 1}')
        self.assertEqual(self.run_shell(f"echo '{good}'")[0]["bytes"], 4)
        self.assertEqual(len(self.run_shell(f"echo; echo '{good}'; echo a launcher says goodbye")), 1)
        for script, error in (("echo '{nonsense'", job.Failed), (f"echo '{good}'; exit 3", job.Failed),
                              (f"printf '%s' '{good}'", job.Failed), ("kill -9 $$", job.Failed),
                              ("""echo '{"wrong": "element 3", "rank": 1, "bytes": 4}'""", job.WrongResult)):
            with self.subTest(script), self.assertRaises(error):
                self.run_shell(script)

    def test_what_a_launcher_writes_of_a_rank_that_hung_is_a_timeout(self):
        with self.assertRaises(job.TimedOut):
            self.run_shell("sleep 1.2; echo; echo BAD TERMINATION; exit 14", 1)
        with self.assertRaises(job.Failed):
            self.run_shell("echo BAD TERMINATION; exit 14", 1)

    def test_one_that_hangs_is_ended(self):
        grace, job.GRACE_S = job.GRACE_S, 1
        try:
            with tempfile.TemporaryDirectory() as directory:
                with self.assertRaises(job.TimedOut):
                    self.run_shell(f"echo $$ > {directory}/pid; sleep 100", 1)
                pid = int(pathlib.Path(directory, "pid").read_text())
                with self.assertRaises(ProcessLookupError):
                    os.kill(pid, 0)
        finally:
            job.GRACE_S = grace


class Run(unittest.TestCase):
    def test_ddl_is_measured(self):
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run(
                [TOP / "bench" / "compare", "--prefix", BUILD, "--build", directory, "--peers", "ddl,ddl-shared", "--sizes", "4,64K",
                 "--collective", "allreduce,allreduce_in_place,alltoall,barrier", "--seconds", "0.01", "--rounds", "1"],
                capture_output=True, text=True, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr)
            written = list(csv.DictReader(pathlib.Path(directory, "results", "compare.csv").read_text().splitlines()))
            self.assertEqual(len(written), (2 + 1) * (2 + 2 + 2 + 1))  # shm twice, as shared too; a barrier has one size
            for row in written:
                self.assertGreater(float(row["mean_us"]), 0)
                self.assertGreater(float(row["limit_us"]), 0)
            self.assertIn("| 64 KiB |", done.stdout)
            self.assertIn("allreduce in place, shared memory, 2 ranks", done.stdout)

    def test_the_drivers_of_the_others_are_built_where_they_are_installed(self):
        here = [peer for peer in peers.PEERS.values() if peer.is_here()]
        with tempfile.TemporaryDirectory() as directory:
            tools = peers.build_drivers(here, BUILD, directory)
            for peer in here:
                self.assertTrue(os.access(tools[peer.driver], os.X_OK), peer.name)

    def test_a_driver_finds_what_is_wrong_and_ends_what_hangs(self):
        drivers, source = TOP / "bench" / "drivers", TOP / "tests" / "bench" / "wrong.c"
        with tempfile.TemporaryDirectory() as directory:
            program = os.path.join(directory, "wrong")
            subprocess.run(["cc", *peers.C, "-I", drivers, drivers / "driver.c", source, "-o", program], check=True)
            with self.assertRaisesRegex(job.WrongResult, "^404 bytes: rank 0 .*: element 100 is 0, not 100$"):
                list(job.run([program, "allreduce", "0.001", "20", "400", "404"], {}, 20))
            with self.assertRaisesRegex(job.WrongResult, "^404 bytes: rank 0 .*: element 100 is 0, not 100$"):
                list(job.run([program, "allreduce_in_place", "0.001", "20", "400", "404"], {}, 20))
            began = time.monotonic()
            with self.assertRaises(job.TimedOut):
                list(job.run([program, "alltoall", "0.001", "1", "4"], {}, 1))
            self.assertLess(time.monotonic() - began, job.GRACE_S)  # by itself: its alarm
            with self.assertRaisesRegex(job.Failed, "6 bytes cannot be divided among 1 ranks"):
                list(job.run([program, "broadcast", "0.001", "20", "6"], {}, 20))

    def test_who_has_measured_and_does_not_end_has_measured(self):
        """But ddl is to end."""
        drivers, source = TOP / "bench" / "drivers", TOP / "tests" / "bench" / "wrong.c"
        with tempfile.TemporaryDirectory() as directory:
            program = os.path.join(directory, "wrong")
            subprocess.run(["cc", *peers.C, "-I", drivers, drivers / "driver.c", source, "-o", program], check=True)
            options = COMPARE.parse_arguments(["--limit", "1", "--seconds", "0.001"])
            for name, failures in ("mpich", []), ("ddl", ["itself"]):
                peer = dataclasses.replace(peers.PEERS["mpich"], name=name, label="itself", driver="wrong", launcher=(),
                                           transports={"shm": ((), {"WRONG_END": "1"})})
                comparison = COMPARE.Comparison(options, [peer], {"wrong": program})
                comparison.measure(peer, ALLREDUCE, 0, [400])
                self.assertEqual(comparison.failures, failures)
                self.assertEqual(bool(comparison.results.means(ALLREDUCE, name, 400)), not failures)
                self.assertEqual(bool(comparison.given_up), bool(failures))
            peer = dataclasses.replace(peer, name="mpich")
            comparison = COMPARE.Comparison(options, [peer], {"wrong": program})
            comparison.measure(peer, ALLREDUCE._replace(collective="alltoall"), 0, [400])  # which hangs before
            self.assertEqual(comparison.given_up, {("mpich", 2)})

    def test_each_turn_has_a_sample_of_everybody_and_somebody_else_first(self):
        options = COMPARE.parse_arguments(["--ranks", "2,3,4", "--transport", "tcp", "--rounds", "5"])
        comparison = COMPARE.Comparison(options, [peers.PEERS[name] for name in peers.DEFAULT], {})
        turns, firsts = [], {}

        def take_turns(names, case, turn, sizes):
            turns.append(turn)
            self.assertEqual(set(names), {*peers.DEFAULT, COMPARE.LIMITS})
            for size in sizes:
                firsts.setdefault((case, size), []).append(names[0])
        comparison.take_turns = take_turns
        comparison.run()
        self.assertEqual(turns, list(range(3 * 5 * 4)))  # cases, rounds, groups of sizes
        self.assertEqual(len(firsts), 3 * len(options.sizes))
        for names in firsts.values():
            self.assertEqual((len(names), len(set(names))), (5, 5))

    def test_limits_are_of_the_turn_of_what_is_held_against_them(self):
        options = COMPARE.parse_arguments([])
        comparison = COMPARE.Comparison(options, [peers.PEERS["ddl"]], {COMPARE.LIMITS: "limits"})
        wrong = job.run
        try:
            job.run = lambda command, environment, limit_s: [{"limit": "flag", "processes": 2, "bytes": 0, "us": 1.0}]
            comparison.measure_limits(ALLREDUCE, 3, [4])
        finally:
            job.run = wrong
        self.assertEqual(list(comparison.results.facts[ALLREDUCE]), [3])

    def test_what_makes_no_sense_is_told(self):
        for words, said in ((["--sizes", "4x"], "'4x' is no size"), (["--ranks", "1"], "numbers of ranks"),
                            (["--peers", "none"], "choose from ddl"), (["--prefix", "/no/such", "--peers", "ddl"], "no ddl")):
            with self.subTest(words):
                done = subprocess.run([TOP / "bench" / "compare", *words], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
