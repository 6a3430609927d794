"""ddl-bench: its table, its JSON, its flags.

    test_bench.py LAUNCHER DDL_BENCH [TEST...]
"""
import datetime
import json
import os
import re
import socket
import stat
import sys
import time
import unittest

from jobs import LIMIT_S, JobTest, launch, run, start, wait_until

LAUNCHER, BENCH = sys.argv[1:3]
SHORT = ["--seconds", "0.01"]
BUS_FACTORS = {
    "allreduce": lambda n: 2 * (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n, "allgather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1, "reduce": lambda n: 1, "alltoall": lambda n: (n - 1) / n, "barrier": lambda n: 1,
    "sendrecv": lambda n: 1, "gather": lambda n: (n - 1) / n, "scatter": lambda n: (n - 1) / n,
    # rank 0, which is the root, has an empty block
    **dict.fromkeys(("reduce_scatterv", "allgatherv", "gatherv", "scatterv", "alltoallv"), lambda n: 1),
}
# count is that of one rank's block, or of the mean one
BLOCKS = ("reduce_scatter", "allgather", "alltoall", "gather", "scatter", "reduce_scatterv", "allgatherv", "gatherv",
          "scatterv", "alltoallv")
ROOTED = "broadcast", "reduce", "gather", "scatter", "gatherv", "scatterv"


def inside_hosts(latency_ns, message_ns, byte_ns):
    """A profile for links inside a host, whichever they are."""
    return "".join(f"{kind}.latency_ns = {latency_ns}\n{kind}.message_ns = {message_ns}\n{kind}.byte_ns = {byte_ns}\n"
                   for kind in ("local", "shared"))


def bench(nranks, *arguments):
    return launch(LAUNCHER, nranks, BENCH, *arguments)


class Case(JobTest):
    def content(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

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

    def test_json_tells_where_when_and_with_which_settings(self):
        self.succeed(run([LAUNCHER, "--no-prefix", "-np", "2", "env", "DDL_TRANSPORT=tcp", b"DDL_IFACE=^\xff0", "DDL_BARRIER=tree",
                          "DDL_ALLREDUCE=ring", "DDL_STORE=", BENCH, "barrier", *SHORT,
                          "--json", self.path("json")]))
        with open(self.path("json"), encoding="utf-8") as file:
            found = json.load(file)
        began = datetime.datetime.strptime(found["date"], "%Y-%m-%dT%H:%M:%S%z")
        since = datetime.datetime.now(datetime.timezone.utc) - began
        self.assertLess(abs(since.total_seconds()), LIMIT_S)
        self.assertEqual(found["host"], socket.gethostname())
        self.assertEqual(found["settings"], {"DDL_TRANSPORT": "tcp", "DDL_IFACE": "^?0", "DDL_BARRIER": "tree"})

    def test_all_algorithms_are_measured_in_turn(self):
        found = self.results("allreduce", "--algorithm", "all", "--min", "4k", "--max", "4k", nranks=4)
        names = [r["algorithm"] for r in found["results"]]
        self.assertLessEqual({"flat", "ring", "direct", "circulant"}, set(names))
        self.assertEqual(len(names), len(set(names)))

    def test_of_all_algorithms_the_chosen_one_is_marked(self):
        free = self.rows(bench(4, "allreduce", "--min", "4", "--max", "1M", "--factor", "512", *SHORT))
        done = bench(4, "allreduce", "--min", "4", "--max", "1M", "--factor", "512", "--algorithm", "all", "--rounds", "2",
                     "--json", self.path("json"), *SHORT)
        starred = [(row[0], row[2]) for row in self.rows(done) if row[2].endswith("*")]
        self.assertEqual(starred, [(row[0], row[2] + "*") for row in free])
        with open(self.path("json"), encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual([(r["bytes"], r["algorithm"] + "*") for r in found["results"] if r["chosen"]], starred)
        self.assertEqual([(c["bytes"], c["chosen"] + "*") for c in found["choices"]], starred)
        for choice in found["choices"]:
            of_size = [r for r in found["results"] if r["bytes"] == choice["bytes"]]
            best = min(of_size, key=lambda r: r["mean_us"])
            chosen, = [r for r in of_size if r["chosen"]]
            self.assertEqual((choice["best"], choice["best_us"]), (best["algorithm"], best["mean_us"]))
            self.assertAlmostEqual(choice["slower_percent"], (chosen["mean_us"] / best["mean_us"] - 1) * 100)
        said = re.findall(r"^# (\d+) bytes: chosen (\w+), [\d.]+ us in the mean; best (\w+), [\d.]+ us; "
                          r"([\d.]+) % slower$", done.stdout, re.M)
        self.assertEqual([(int(size), chosen, best) for size, chosen, best, _ in said],
                         [(c["bytes"], c["chosen"], c["best"]) for c in found["choices"]])
        worst = max(found["choices"], key=lambda c: c["slower_percent"])
        self.assertIn(f"# the chosen one is at most {worst['slower_percent']:.1f} % slower than the best, "
                      f"at {worst['bytes']} bytes" if worst["slower_percent"] > 0 else
                      "# the chosen one is the best at every size", done.stdout)

    def test_what_cannot_run_here_is_left_out_of_all(self):
        done = self.succeed(bench(3, "reduce_scatter", "--algorithm", "all", "--min", "4k", "--max", "4k", *SHORT))
        self.assertEqual(done.stdout.count("# halving is left out"), 1)
        self.assertIn("ring", [row[2].rstrip("*") for row in self.rows(done)])

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
        for collective in "allreduce", "reduce", *BLOCKS:
            with self.subTest(collective):
                rows = self.rows(bench(3, collective, "--inplace", "1", "--max", "64k", "--factor", "32", *SHORT))
                self.assertGreaterEqual(len(rows), 3)

    def test_where_shared_buffers_are_from_and_why_there_are_none(self):
        for transport in "auto", "tcp":
            done = self.succeed(run([LAUNCHER, "--no-prefix", "-np", "2", BENCH, "allreduce", "--memory", "shared", "--max", "4", *SHORT],
                                    DDL_TRANSPORT=transport))
            self.assertIn("2 processes on 1 host, buffers from ddl_mem_alloc\n", done.stdout)
        for kind, told in ("plain", r"float32$"), ("shared", r"float32: \S.*memory"):
            done = run([BENCH, "allreduce", "--memory", kind, "--min", "100000000G", "--max", "100000000G"])
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "(?m)^ddl-bench: out of memory for 26843545600000000 elements of " + told)

    def test_shared_memory_is_right(self):
        for collective in "allreduce", *BLOCKS:
            with self.subTest(collective):
                rows = self.rows(bench(3, collective, "--memory", "shared", "--min", "300k", "--max", "3M", "--factor", "9",
                                       "--iters", "2", "--warmup", "0"))
                self.assertGreaterEqual(len(rows), 2)

    def test_any_rank_may_be_root(self):
        for collective in ROOTED:
            with self.subTest(collective):
                self.rows(bench(3, collective, "--root", "2", "--max", "4k", "--factor", "1024", *SHORT))
                self.rows(bench(4, collective, "--root", "1", "--max", "100k", "--factor", "1024", *SHORT))

    def test_iterations_can_be_given(self):
        rows = self.rows(bench(2, "barrier", "--iters", "7"))
        self.assertEqual(rows[0][5], 7)

    def test_a_world_of_one_needs_no_launcher(self):
        rows = self.rows(run([BENCH, "allreduce", "--max", "64", *SHORT]))
        self.assertEqual([row[0] for row in rows], [4, 16, 64])


class Profiles(Case):
    def write(self, text, name="profile"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def calibrate(self, nranks, left=("profile",), **environment):
        done = self.succeed(run([LAUNCHER, "--no-prefix", "--nproc_per_node", str(nranks), BENCH, "--calibrate",
                                 self.path("profile"), "--seconds", "0.05"], **environment))
        with open(self.path("profile"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(done.stdout, text)
        self.assertEqual(sorted(os.listdir(self.folder)), [*left])  # and nothing half written
        return text, {name: float(value) for name, value in re.findall(r"^([\w.]+) = ([\d.]+)$", text, re.M)}

    def chosen(self, size, **environment):
        """What 4 ranks choose for an allreduce of this size."""
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", "4", BENCH, "allreduce", "--min", size, "--max", size,
                    *SHORT], **environment)
        (row,) = self.rows(done)
        return row[2], done.stdout

    def test_what_was_measured_can_be_used(self):
        for nranks in 2, 3:
            with self.subTest(nranks=nranks):
                text, constants = self.calibrate(nranks)
                kind = "shared" if "shared.byte_ns" in constants else "local"  # in the portable build
                self.assertEqual(set(constants), {f"{kind}.latency_ns", f"{kind}.message_ns", f"{kind}.byte_ns", "reduce_ns"})
                self.assertTrue(all(value > 0 for value in constants.values()), constants)
                self.assertLess(constants[f"{kind}.byte_ns"], 1000)
                self.assertRegex(text, r"# on \S+, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, by %d processes on 1 host\." % nranks)
                self.assertIn("remote links keep their defaults", text)
                _, told = self.chosen("64k", DDL_PROFILE=self.path("profile"))
                self.assertIn(f"# chosen by the constants in {self.path('profile')}", told)

    def test_a_profile_is_replaced_as_a_whole(self):
        self.write("what was there before, longer than any profile\n" * 1000)
        text, _ = self.calibrate(2)
        self.assertNotIn("before", text)

    def test_connections_are_told_from_shared_memory(self):
        _, constants = self.calibrate(2, DDL_TRANSPORT="tcp")
        self.assertIn("local.latency_ns", constants)

    def test_the_profile_decides_what_is_chosen(self):
        dear_bytes = self.write(inside_hosts(1, 1, 1000))
        self.assertNotIn(self.chosen("64k", DDL_PROFILE=dear_bytes)[0], ("flat", "doubling"))
        dear_rounds = self.write(inside_hosts(1000000000, 1, 0.001))
        self.assertEqual(self.chosen("64k", DDL_PROFILE=dear_rounds)[0], "flat")

    def test_rank_0_alone_reads_the_profile(self):
        dear_rounds = self.write(inside_hosts(1000000000, 1, 0.001))
        per_rank = 'test "$RANK" = 0 && DDL_PROFILE="$1" || DDL_PROFILE=/no/such/file; export DDL_PROFILE; shift; exec "$@"'
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", "4", "sh", "-c", per_rank, "sh", dear_rounds, BENCH,
                    "allreduce", "--min", "64k", "--max", "64k", *SHORT])
        self.assertEqual([row[2] for row in self.rows(done)], ["flat"])

    def test_a_profile_that_cannot_be_used_is_an_error(self):
        unreadable = self.path("fifo")
        os.mkfifo(unreadable)
        cases = [("/no/such/file", "DDL_PROFILE=/no/such/file cannot be opened"),
                 (self.folder, f"DDL_PROFILE={self.folder} is a directory"),
                 (unreadable, f"DDL_PROFILE={unreadable} is no regular file"),
                 (self.write("#" * 70000, "large"), "is too large"),
                 (self.write("#\nlocal.byte_ns = -1\n", "value"),
                  f"{self.path('value')}:2: local.byte_ns = '-1': accepted is a decimal number"),
                 (self.write("bytes = 1\n", "name"),
                  f"{self.path('name')}:1: there is no constant 'bytes'; accepted are local.latency_ns,")]
        for path, message in cases:
            with self.subTest(path):
                done = run([BENCH, "allreduce", "--max", "4"], DDL_PROFILE=path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)

    def test_a_profile_that_cannot_be_used_ends_all_ranks(self):
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", "3", BENCH, "allreduce", "--max", "4"],
                   DDL_PROFILE="/no/such/file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("DDL_PROFILE=/no/such/file cannot be opened", done.stderr)

    def test_a_profile_that_cannot_be_written_ends_all_ranks(self):
        done = bench(3, "--calibrate", self.path("no/such/directory"), "--seconds", "0.01")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no/such/directory: no file can be made beside it: No such file", done.stderr)
        os.mkdir(self.path("directory"))
        done = bench(2, "--calibrate", self.path("directory"), "--seconds", "0.01")
        self.assertEqual(done.returncode, 1)
        self.assertIn("directory: Is a directory", done.stderr)
        self.assertEqual(os.listdir(self.folder), ["directory"])

    def test_that_a_profile_cannot_be_written_is_told_before_measuring(self):
        def took_s(path, returncode):
            start_s = time.monotonic()
            done = bench(2, "--calibrate", path, "--seconds", "0.25")
            self.assertEqual(done.returncode, returncode, done.stderr)
            return time.monotonic() - start_s
        self.assertLess(took_s(self.folder, 1), took_s(self.path("profile"), 0) / 2)

    def test_what_the_name_of_a_profile_leads_to_is_replaced(self):
        os.mkdir(self.path("there"))
        os.symlink("there/link", self.path("profile"))
        os.symlink("target", self.path("there/link"))
        for before in "nothing yet", "a profile":
            with self.subTest(before):
                self.calibrate(2, left=["profile", "there"])
                self.assertTrue(os.path.islink(self.path("profile")) and os.path.islink(self.path("there/link")))
                self.assertTrue(os.path.isfile(self.path("there/target")))
                self.assertEqual(sorted(os.listdir(self.path("there"))), ["link", "target"])

    def test_a_profile_keeps_its_mode(self):
        for mode in 0o600, 0o664:
            with self.subTest(oct(mode)):
                os.chmod(self.write("what was there before"), mode)
                self.calibrate(2)
                self.assertEqual(stat.S_IMODE(os.stat(self.path("profile")).st_mode), mode)

    def test_a_profile_goes_into_a_pipe(self):
        os.mkfifo(self.path("profile"))
        reader = os.open(self.path("profile"), os.O_RDONLY | os.O_NONBLOCK)
        try:
            done = self.succeed(bench(2, "--calibrate", self.path("profile"), "--seconds", "0.01"))
            self.assertEqual(os.read(reader, 65536).decode(), done.stdout)
        finally:
            os.close(reader)
        self.assertEqual(os.listdir(self.folder), ["profile"])
        done = bench(2, "--calibrate", self.path("profile"), "--seconds", "0.01")
        self.assertEqual(done.returncode, 1)
        self.assertIn("it is a pipe that nobody reads", done.stderr)

    def test_a_profile_never_takes_the_place_of_a_device(self):
        device = self.path("device")
        try:
            os.mknod(device, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
            open(device, "wb").close()
        except PermissionError:
            self.skipTest("may not make devices")
        self.succeed(bench(2, "--calibrate", device, "--seconds", "0.01"))
        self.assertTrue(stat.S_ISCHR(os.lstat(device).st_mode))
        self.assertEqual(os.listdir(self.folder), ["device"])

    def test_an_interrupted_calibration_changes_nothing(self):
        self.write("what was there before")
        touched_ns = os.stat(self.folder).st_mtime_ns
        with start(LAUNCHER, 2, BENCH, "--calibrate", self.path("profile"), "--seconds", "60") as job:
            # It has looked whether it can write, and has measured for a while.
            wait_until(lambda: os.stat(self.folder).st_mtime_ns != touched_ns, LIMIT_S, "it looks into the directory")
            try:
                wait_until(lambda: os.listdir(self.folder) == ["profile"], 5, "nothing but the profile is there")
            finally:
                job.terminate()
        self.assertNotEqual(job.returncode, 0)
        self.assertEqual(os.listdir(self.folder), ["profile"])
        self.assertEqual(self.content("profile"), "what was there before")

    def test_calibration_takes_two_processes(self):
        done = run([BENCH, "--calibrate", self.path("profile")])
        self.assertEqual(done.returncode, 2)
        self.assertIn("two processes", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])


class Consistency(Case):
    RULES = [("allreduce", "reduce + broadcast"), ("allreduce", "reduce_scatter + allgather"),
             ("allgather", "gather + broadcast"), ("reduce_scatter", "reduce + scatter"),
             ("broadcast", "scatter + allgather")]

    def lines(self, done):
        return [(int(size), one, two, float(one_us), float(two_us), float(ratio)) for size, one, one_us, two, two_us, ratio
                in re.findall(r"^ *(\d+)  (\w+) +([\d.]+)  (\w+ \+ \w+) +([\d.]+) +([\d.]+)(?:  INCONSISTENT)?$", done.stdout, re.M)]

    def test_each_rule_is_measured_at_each_size(self):
        done = self.succeed(bench(3, "--consistency", "--max", "64k", "--factor", "128", "--rounds", "1", "--tolerance",
                                  "1000", *SHORT))
        lines = self.lines(done)
        self.assertEqual([(one, two, size) for size, one, two, *_ in lines],
                         [(*rule, size) for rule in self.RULES for size in (4, 512, 65536)])
        for _, _, _, one_us, two_us, ratio in lines:
            self.assertGreater(two_us, 0)
            self.assertAlmostEqual(ratio, one_us / two_us, delta=0.01)

    @unittest.skipUnless("DDL_TEST_SPOIL" in os.environ, "needs a library that can be preloaded")
    def test_a_wrong_result_is_told_instead_of_timed(self):
        for call, rank in ("allreduce", 1), ("reduce", 0), ("broadcast", 1):
            with self.subTest(call):
                done = run([LAUNCHER, "--no-prefix", "-np", "2", "env", "LD_PRELOAD=" + os.environ["DDL_TEST_SPOIL"], BENCH,
                            "--consistency", "--max", "4", "--rounds", "1", *SHORT], SPOILED=call)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stderr, r"(?m)^ddl-bench: rank %d: wrong result of %s by \S+, 1 elements of float32: element 0 of 1 "
                                 "has the bits" % (rank, call))
                self.assertEqual(self.lines(done), [])

    def test_one_process_is_one(self):
        done = run([BENCH, "--consistency", "--max", "4", "--rounds", "1", "--tolerance", "1000", *SHORT])
        self.assertIn("beside two, 1 process;", self.succeed(done).stdout)

    def test_what_takes_longer_than_two_is_told(self):
        # Eight bytes on their way around a ring of 8 processes, 14 steps one after the other, beside two calls through
        # the memory that all share, of which some pair is quicker however busy the machine is.
        done = run([LAUNCHER, "--no-prefix", "--nproc_per_node", "8", BENCH, "--consistency", "--min", "8", "--max", "8",
                    "--tolerance", "0", "--rounds", "3", *SHORT], DDL_ALLREDUCE="ring")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^ +8  allreduce .*  INCONSISTENT$")
        told = [line.endswith("INCONSISTENT") for line in done.stdout.splitlines() if re.match(r" +\d", line)]
        lines = self.lines(done)
        self.assertEqual(len(told), len(lines), done.stdout)
        for is_told, (*_, ratio) in zip(told, lines):
            self.assertTrue(ratio == 1 or is_told == (ratio > 1), done.stdout)


class Flags(Case):
    def test_the_letters_of_nccl_tests(self):
        long = self.results("allreduce", "--min", "1k", "--max", "8k", "--factor", "2", "--dtype", "float64", "--op", "max", nranks=2)
        short = self.results("allreduce", "-b", "1K", "-e", "8K", "-f", "2", "-d", "double", "-o", "max", "-w", "1", nranks=2)
        self.assertEqual([row["bytes"] for row in short["results"]], [1024, 2048, 4096, 8192])
        self.assertEqual((short["dtype"], short["op"]), (long["dtype"], long["op"]))
        rows = self.rows(bench(2, "broadcast", "-b", "4", "-e", "4", "-n", "25", "-r", "1"))
        self.assertEqual(rows[0][5], 25)

    def test_of_their_other_letters_what_is_done_anyway_is_accepted(self):
        accepted = ["-g", "1", "-t", "1", "-c", "1", "-p0", "-m1", "-a3", "-z1", "-G0"]
        self.assertEqual(len(self.rows(run([BENCH, "allreduce", "-b", "4", "-e", "4", *accepted, *SHORT]))), 1)
        for letter, value, told in (("g", "8", "start more processes"), ("t", "2", "start more processes"), ("c", "0", "checked once per size"),
                                    ("p", "1", "starts one rank"), ("i", "1024", "--factor"), ("F", "f", "--json"), ("g", "", "leave it out")):
            with self.subTest(letter):
                done = run([BENCH, "allreduce", "-" + letter, value])
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, "(?m)^ddl-bench: -%s %s: .*%s" % (letter, value, told))

    def test_bad_flags_end_with_2(self):
        cases = [([], "name a collective"), (["allreduce", "reduce"], "name one collective"), (["shuffle"], "shuffle"),
                 (["allreduce", "--min", "4x"], "--min 4x"), (["allreduce", "--min", "0"], "--min 0"),
                 (["allreduce", "--min", "-4"], "--min -4"), (["allreduce", "--max", "99999999999G"], "--max"),
                 (["allreduce", "--max", "1MBi"], "--max 1MBi"), (["allreduce", "--min", "8", "--max", "4"], "--min 8"),
                 (["allreduce", "--factor", "1"], "--factor 1"), (["allreduce", "--dtype", "floats"], "--dtype floats"),
                 (["allreduce", "--op", "mean"], "--op mean"), (["allreduce", "--op", "band"], "--op band"),
                 (["allreduce", "--algorithm", "magic"], "magic"), (["sendrecv", "--algorithm", "all"], "sendrecv"),
                 (["allreduce", "--factor", "99999999999"], "from 2 to 2147483647"),
                 (["allreduce", "--iters", "9999999999"], "from 1 to 2147483647"),
                 (["allreduce", "--warmup", "2147483648"], "from 0 to 2147483647"),
                 (["allreduce", "--root", "0"], "--root has no meaning for allreduce"),
                 (["sendrecv", "--root", "1"], "--root has no meaning for sendrecv"),
                 (["--calibrate", "f", "--root", "0"], "--root has no meaning for --calibrate"),
                 (["--calibrate", "f", "--min", "4"], "--min has no meaning for --calibrate"),
                 (["--calibrate", "f", "--consistency"], "has no meaning for"),
                 (["broadcast", "--op", "max"], "--op has no meaning for broadcast"),
                 (["allreduce", "--rounds", "2"], "--rounds has no meaning without --algorithm all"),
                 (["allreduce", "--algorithm", "ring", "--rounds", "2"], "--rounds has no meaning without"),
                 (["allreduce", "--iters", "2", "--seconds", "1"], "--seconds and --iters exclude each other"),
                 (["allreduce", "--tolerance", "5"], "--tolerance has no meaning for allreduce"),
                 (["allreduce", "--iters", "0"], "--iters 0"), (["allreduce", "--seconds", "0"], "--seconds 0"),
                 (["allreduce", "--seconds", "nan"], "--seconds nan"), (["allreduce", "--warmup", "-1"], "--warmup -1"),
                 (["broadcast", "--root", "-1"], "--root -1"), (["allreduce", "--inplace", "2"], "--inplace 2"),
                 (["allreduce", "--memory", "fast"], "--memory fast"),
                 (["broadcast", "--inplace", "1"], "--inplace 1"), (["allreduce", "--what"], "what"),
                 (["broadcast", "--root", "1"], "--root"), (["sendrecv"], "two processes"),
                 (["allreduce", "--rounds", "0"], "--rounds 0"), (["--consistency", "--tolerance", "x"], "--tolerance x"),
                 (["--consistency", "allreduce"], "take no collective"), (["--calibrate"], "calibrate"),
                 (["--calibrate", "f", "allreduce"], "take no collective"),
                 (["--calibrate", "f", "--algorithm", "ring"], "--algorithm"),
                 (["--calibrate", "-"], "--calibrate -: expected the name of a file"),
                 (["allreduce", "--json", "-"], "--json -: expected the name of a file"),
                 (["allreduce", "--json", ""], "--json : expected the name of a file"),
                 (["--consistency", "--json", "f"], "--json"), (["scatterv", "--root", "1"], "--root")]
        for flags, message in cases:
            with self.subTest(flags):
                done = run([BENCH, *flags])
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_numbers_reach_their_limits(self):
        self.succeed(run([BENCH, "allreduce", "--max", "4", "--factor", "2147483647", *SHORT]))

    def test_units_may_be_written_out(self):
        done = self.succeed(run([BENCH, "allreduce", "--min", "1KiB", "--max", "2kb", "--factor", "2", *SHORT]))
        self.assertRegex(done.stdout, r"(?m)^ +1024 ")
        self.assertRegex(done.stdout, r"(?m)^ +2048 ")
        self.succeed(run([BENCH, "allreduce", "--min", "64B", "--max", "64", *SHORT]))

    def test_what_is_compared_may_have_a_root(self):
        done = bench(2, "--consistency", "--max", "4", "--root", "1", "--rounds", "1", "--tolerance", "1000", *SHORT)
        self.succeed(done)

    def test_what_concerns_all_ranks_is_told_once(self):
        for flags, code, told in ((["shuffle"], 2, "there is no such collective"), (["allreduce", "--what"], 2, "what"),
                                  (["allreduce", "--algorithm", "magic"], 2, "magic"), (["--help"], 0, "usage:"),
                                  (["--version"], 0, "ddl-bench ")):
            with self.subTest(flags):
                done = bench(3, *flags)
                self.assertEqual(done.returncode, code, done.stderr)
                own = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(("ddl-launch:", "["))]
                self.assertEqual(sum(told in line for line in own), 1, own)
        by_mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
        done = run([BENCH, "shuffle"], **by_mpi)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (2, ""))
        by_hand = {"RANK": "1", "WORLD_SIZE": "2"}  # on a terminal of its own, where nobody else would say it
        done = run([BENCH, "shuffle"], **by_hand)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no such collective", done.stderr)

    def test_the_launcher_passes_2_on(self):
        self.assertEqual(bench(2, "allreduce", "--min", "none").returncode, 2)
        for mode in ("broadcast", "--consistency"):
            self.assertEqual(bench(2, mode, "--root", "2").returncode, 2)

    def test_a_json_file_that_cannot_be_written_ends_all_ranks(self):
        done = bench(3, "allreduce", "--json", self.path("no/such/directory"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)

    def test_a_json_file_keeps_what_it_had_until_all_results_are_there(self):
        with open(self.path("json"), "w", encoding="utf-8") as file:
            file.write("what was there before")
        os.chmod(self.path("json"), 0o600)
        os.symlink("json", self.path("link"))
        with start(LAUNCHER, 2, BENCH, "allreduce", "--min", "4", "--max", "4", "--iters", "2000000000", "--json",
                   self.path("link")) as job:
            try:
                self.assertIn("allreduce of float32", job.stdout.readline())  # the report is open
                self.assertEqual(self.content("json"), "what was there before")
            finally:
                job.terminate()
        self.assertNotEqual(job.returncode, 0)
        self.assertEqual(self.content("json"), "what was there before")
        self.assertEqual(sorted(os.listdir(self.folder)), ["json", "link"])
        self.succeed(bench(2, "allreduce", "--max", "4", *SHORT, "--json", self.path("link")))
        self.assertIs(json.loads(self.content("json"))["shared_memory"], False)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("json")).st_mode), 0o600)
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(sorted(os.listdir(self.folder)), ["json", "link"])

    def test_a_run_that_fails_leaves_the_json_file(self):
        with open(self.path("json"), "w", encoding="utf-8") as file:
            file.write("what was there before")
        # The second of two sizes is more than any memory.
        done = run([BENCH, "allreduce", "--min", "4M", "--max", "100000000G", "--factor", "2000000000", "--iters", "1",
                    "--json", self.path("json")])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(self.content("json"), "what was there before")

    def test_an_algorithm_that_cannot_run_here_is_an_error_when_named(self):
        done = bench(3, "reduce_scatter", "--algorithm", "halving", "--max", "4k")
        self.assertEqual(done.returncode, 1)
        self.assertIn("halving", done.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_output_that_cannot_be_written_is_told(self):
        for flags in ["--help"], ["--version"], ["allreduce", "--max", "64", *SHORT], ["--consistency", "--max", "4", *SHORT]:
            with self.subTest(flags), open("/dev/full", "wb") as full:
                done = run([BENCH, *flags], stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertIn("ddl-bench: cannot write standard output", done.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_results_reach_the_json_file_where_standard_output_is_full(self):
        with open("/dev/full", "wb") as full:
            done = run([BENCH, "allreduce", "--max", "64", "--json", self.path("json"), *SHORT], stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assertEqual([r["bytes"] for r in json.loads(self.content("json"))["results"]], [4, 16, 64])

    def test_help_and_version(self):
        done = self.succeed(run([BENCH, "--help"]))
        for word in ("--min", "--max", "--factor", "--dtype", "--op", "--algorithm", "--iters", "--seconds", "--warmup",
                     "--json", "--root", "--inplace", "--memory", "--calibrate", "--consistency", "--rounds", "--tolerance",
                     *BUS_FACTORS):
            self.assertIn(word, done.stdout)
        self.assertRegex(self.succeed(run([BENCH, "--version"])).stdout, r"^ddl-bench \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
