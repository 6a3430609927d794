#!/usr/bin/env python3
"""What ddl-sim prints and how it ends: test_ddl_sim.py PATH-OF-DDL-SIM"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

PROGRAM = ""


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100, check=False)


class Usage(unittest.TestCase):
    def refused(self, *arguments, saying):
        """Exit code 2, nothing on stdout, one line that says why."""
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(saying, result.stderr)

    def test_help_of_each_command_goes_to_stdout(self):
        for arguments in (["--help"], ["list", "--help"], ["check", "--help"], ["show", "-h"], ["cost", "--help"],
                          ["startup", "--help"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout.startswith("usage: ddl-sim"), result.stdout)
            self.assertEqual(result.stderr, "")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_output_that_cannot_be_written_is_told(self):
        for arguments in (["--help"], ["--version"], ["list"], ["cost", "--help"]):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                result = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100,
                                        check=False)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stderr, "ddl-sim: cannot write standard output\n")

    def test_no_command_is_an_error_that_helps(self):
        result = run()
        self.assertEqual(result.returncode, 2)
        self.assertIn("usage: ddl-sim", result.stderr)

    def test_version(self):
        self.assertRegex(run("--version").stdout, r"^ddl-sim \d+\.\d+\.\d+\n$")

    def test_wrong_usage_is_told(self):
        for arguments, saying in (
            (["prove"], "no command 'prove'"),
            (["list", "--long"], "no option --long"),
            (["check", "--rank", "3", "--fast"], "no option --fast"),
            (["check", "-p"], "-p needs a value"),
            (["check", "-x"], "no option -x"),
            (["check", "ring", "direct"], "'direct'"),
            (["check", "-p", "0"], "'0' is not a range"),
            (["check", "-p", "5-3"], "'5-3' is not a range"),
            (["check", "-p", "1,,2"], "'1,,2' is not a range"),
            (["check", "-p", "1,"], "'1,' is not a range"),
            (["check", "-p", "9999999"], "not a range"),
            (["check", "-p", "four"], "'four' is not a range"),
            (["startup", "-p", "1"], "'1' is not numbers of ranks"),
            (["startup", "-p", "8,"], "'8,' is not numbers of ranks"),
            (["startup", "--rtt", "long"], "'long' is not a time"),
            (["startup", "--cores", "0"], "'0' is not a number of cores"),
            (["startup", "ring"], "startup takes no 'ring'"),
            (["show", "-p", "4"], "needs the name"),
            (["show", "ring"], "needs a number of ranks"),
            (["show", "ring", "-p", "x"], "'x' is not a number of ranks"),
            (["show", "ring", "-p", "4", "--rank", "4"], "rank 4 is not among 4"),
            (["show", "broadcast", "-p", "4", "--root", "7"], "rank 7 is not among 4"),
            (["show", "allreduce", "-p", "4", "--root", "2"], "allreduce has no root"),
            (["show", "halving", "-p", "6"], "does not work for 6 ranks"),
            (["show", "two_level", "--hosts", "2x"], "'2x' is not hosts"),
            (["show", "two_level", "--hosts", "4,,1"], "'4,,1' is not hosts"),
            (["show", "two_level", "--hosts", "0x4"], "'0x4' is not hosts"),
            (["show", "two_level", "--hosts", "99x99"], "'99x99' is not hosts"),
            (["show", "two_level", "-p", "7", "--hosts", "2x4"], "places 8 ranks, not 7"),
            (["check", "two_level", "-p", "8", "--hosts", "2x4"], "both say how many"),
            (["check", "reduce_scatter/halving", "-p", "3,5-7"], "reduce_scatter/halving does not work for 3,5-7 ranks"),
            (["check", "send", "-p", "1"], "send does not work for 1 ranks"),
            (["check", "two_level", "--hosts", "a,b"], "'a,b' is not hosts"),
            (["check", "two_level", "--hosts", "2000"], "'2000' is not hosts"),
            (["check", "two_level", "--hosts", "1000,100"], "'1000,100' is not hosts"),
            (["check", "two_level", "--hosts", "4,9999999999999999999999"], "'4,9999999999999999999999' is not hosts"),
            (["check", "two_level", "--hosts", "4,0"], "'4,0' is not hosts"),
            (["cost", "ring", "-p", "8"], "needs a size"),
            (["cost", "ring", "--bytes", "1M"], "needs a number of ranks"),
            (["cost", "ring", "-p", "8", "--bytes", "much"], "'much' is not a size"),
            (["cost", "ring", "-p", "8", "--bytes", "1M", "--latency", "-1us"], "'-1us' is not a time"),
            (["cost", "ring", "-p", "8", "--bytes", "1M", "--bandwidth", "25"], "'25' is not a rate"),
            (["cost", "ring", "-p", "8", "--bytes", "1M", "--bandwidth", "0Gbit"], "'0Gbit' is not a rate"),
        ):
            with self.subTest(arguments):
                self.refused(*arguments, saying=saying)

    def test_an_unknown_algorithm_is_answered_with_those_that_exist(self):
        for command in (["list", "rign"], ["check", "rign"], ["show", "rign", "-p", "4"], ["cost", "rign", "-p", "4", "--bytes", "1"]):
            result = run(*command)
            self.assertEqual(result.returncode, 2)
            self.assertIn("no algorithm 'rign'", result.stderr)
            self.assertIn("allreduce/ring", result.stderr)
            self.assertIn("barrier/dissemination", result.stderr)


class List(unittest.TestCase):
    def test_every_algorithm_has_a_line_with_its_source(self):
        lines = run("list").stdout.splitlines()
        self.assertEqual(len(lines), 78)
        for line in lines:
            self.assertRegex(line, r"^\w+/\w+ +(any p|p = 2\^k) +.* \(.+\)$")


class Check(unittest.TestCase):
    def test_a_line_per_algorithm_tells_what_was_proved(self):
        result = run("check", "-p", "1-3,5")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 78)
        for line in lines:
            self.assertRegex(line, r"^\w+/\w+ +[1-9]\d* shapes proved in +\d+\.\d\d s$")

    def test_names_choose_algorithms(self):
        for name, count in (("ring", 5), ("allreduce", 10), ("allreduce/ring", 1), ("barrier", 3)):
            lines = run("check", name, "-p", "2").stdout.splitlines()
            self.assertEqual(len(lines), count, lines)

    def test_what_has_few_steps_is_proved_for_many_ranks_too(self):
        lines = run("check", "barrier").stdout.splitlines()
        numbers = {line.split()[0]: int(line.split()[1]) for line in lines}
        self.assertEqual(numbers["barrier/flat"] + 1, numbers["barrier/tree"], lines)
        self.assertEqual(numbers["barrier/flat"] + 1, numbers["barrier/dissemination"], lines)

    def test_hosts_are_a_placement_to_be_proved(self):
        for hosts in ("2x4", "4,3,1", "1,1,1", "5"):
            result = run("check", "two_level", "--hosts", hosts)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(len(result.stdout.splitlines()), 8)


class Show(unittest.TestCase):
    def test_steps_name_slices_and_peers(self):
        text = run("show", "allgather/ring", "-p", "3", "--count", "2").stdout
        self.assertIn("allgather/ring on 3 ranks, count 2", text)
        self.assertEqual(len(re.findall(r"^rank \d: 5 steps, 4 messages", text, re.M)), 3)
        self.assertIn("OUT[0..2) = IN[0..2)", text)
        self.assertIn("IN[0..2) -> rank 1 #0", text)
        self.assertRegex(text, r"step 2 +round 2 +recv +OUT\[2\.\.4\) <- rank 2 #1")

    def test_one_rank_can_be_chosen(self):
        text = run("show", "allreduce/direct", "-p", "4", "--rank", "2").stdout
        self.assertEqual(re.findall(r"^rank \d", text, re.M), ["rank 2"])
        self.assertIn("OUT[2..3) = SCRATCH[0..1) op SCRATCH[1..2) op IN[2..3) op SCRATCH[3..4)", text)

    def test_the_root_sends_first(self):
        text = run("show", "broadcast", "-p", "4", "--root", "3", "--rank", "3").stdout
        self.assertNotIn("<-", text)
        self.assertIn("-> rank 1", text)

    def test_an_average_ends_with_a_division(self):
        self.assertIn("itself / 3", run("show", "allreduce/flat", "-p", "3", "--average").stdout)

    def test_slices_go_between_hosts_and_blocks_inside(self):
        text = run("show", "allreduce/two_level", "--hosts", "2x2", "--count", "4", "--rank", "0").stdout
        # inside: slice 1 to rank 1; between: half of slice 0 with rank 2
        self.assertIn("IN[2..4) -> rank 1 #0", text)
        self.assertIn("OUT[1..2) -> rank 2 #0", text)
        self.assertNotIn("rank 3", text)

    def test_an_alltoall_on_two_levels_has_one_message_for_each_other_host(self):
        for hosts, ranks, others in (("3x4", 12, 2), ("4,3,1", 8, 2)):
            text = run("show", "alltoall/two_level", "--hosts", hosts, "--rank", "0").stdout
            sent = [int(peer) for peer in re.findall(r"send .* -> rank (\d+)", text)]
            self.assertEqual(len([peer for peer in sent if peer >= 4]), others, text)
            self.assertEqual(len(sent), 3 + others, text)
        # each of four ranks of one host lies where it is received
        self.assertRegex(run("show", "alltoall/two_level", "--hosts", "3x4", "--rank", "0").stdout,
                         r"recv +OUT\[4\.\.8\) <- rank 4 #0")

    def test_blocks_of_the_v_forms_differ_in_size(self):
        text = run("show", "allgatherv/direct", "-p", "3", "--count", "6", "--rank", "1").stdout
        self.assertIn("IN[0..4) -> rank 2 #0", text)
        self.assertIn("OUT[6..12) <- rank 2 #0", text)

    def test_the_graph_has_each_step_and_each_message(self):
        dot = run("show", "dissemination", "-p", "4", "--dot").stdout
        self.assertTrue(dot.startswith("digraph"))
        self.assertEqual(dot.count("{"), dot.count("}"))
        self.assertEqual(dot.count("style=dashed"), 8)
        self.assertEqual(len(re.findall(r"r\d_\d \[label", dot)), 16)


class Docs(unittest.TestCase):
    def test_listings_in_the_docs_are_what_is_shown(self):
        text = (pathlib.Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
        listings = re.findall(r"```\n\$ ddl-sim (show .*)\n([^`]*)```", text)
        self.assertGreater(len(listings), 30)
        for command, listing in listings:
            with self.subTest(command):
                shown = run(*command.split()).stdout
                self.assertIn(listing.removesuffix("  ...\n"), shown)

    def test_every_algorithm_has_its_place(self):
        """In the chapter of its collective: its cost and source as they are listed, and its steps, or those of the form
        with even blocks or uneven ones."""
        text = (pathlib.Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
        chapters = {chapter.split("\n", 1)[0]: chapter for chapter in re.split(r"^## ", text, flags=re.M)[1:]}
        title = {"reduce_scatter": "Reduce-scatter", "broadcast": "Broadcast and reduce", "reduce": "Broadcast and reduce",
                 "gather": "Gather and scatter", "scatter": "Gather and scatter", "send": "Send and receive",
                 "recv": "Send and receive"}
        for line in run("list").stdout.splitlines():
            collective, name = re.match(r"(\w+)/(\w+) ", line).groups()
            even = collective.removesuffix("v") if collective != "recv" else collective
            chapter = chapters[title.get(even, even.capitalize())]
            sections = [section for section in re.split(r"^### ", chapter, flags=re.M)[1:]
                        if name in section.split("\n", 1)[0].replace(",", "").split()]
            with self.subTest(line):
                self.assertEqual(len(sections), 1)
                self.assertIn("\n" + line + "\n", sections[0])
                self.assertRegex(sections[0], rf"\n\$ ddl-sim show {even}v?/{name} ")


class Startup(unittest.TestCase):
    def rows(self, *arguments):
        lines = run("startup", "--csv", *arguments).stdout.splitlines()
        names = lines[0].split(",")
        return [dict(zip(names, line.split(","))) for line in lines[1:]]

    def test_counts_are_those_of_the_protocol(self):
        """Five requests of each rank; n (n - 1) / 2 pairs, or those at distances of powers of two and, of 8 ranks of a
        host, those of its usher at distances 3, 5, 6 and 7. Of those 8 ranks 21 pairs are handed out by the usher, 8 in a
        message to each end."""
        eager, lazy = self.rows("-p", "512")
        self.assertEqual((eager["connect"], lazy["connect"]), ("eager", "lazy"))
        for row in (eager, lazy):
            self.assertEqual((row["ranks"], row["store_requests"]), ("512", str(5 * 512)))
        self.assertEqual(eager["connections"], str(512 * 511 // 2))
        few = 512 * 17 // 2 + 512 // 8 * 4
        self.assertEqual(lazy["connections"], str(few))
        introduced = 512 // 8 * 21
        self.assertEqual(eager["mesh_messages"], str(4 * (512 * 511 // 2 - introduced) + 2 * introduced // 8))
        self.assertEqual(lazy["mesh_messages"], str(4 * few))

    def test_bytes_of_the_store_grow_linearly_for_each_rank(self):
        some, more = (float(rows[0]["store_bytes"]) / int(rows[0]["ranks"])
                      for rows in (self.rows("-p", "10000"), self.rows("-p", "20000")))
        self.assertAlmostEqual(more / some, 2, delta=0.05)

    def test_what_the_store_does_not_take_is_marked(self):
        fine, marked = run("startup", "-p", "16384").stdout, run("startup", "-p", "16384,20000").stdout
        self.assertNotIn("*", fine)
        self.assertEqual([line.split()[0] for line in marked.splitlines() if line.endswith("*")], ["20000", "20000"])
        self.assertIn("\n* not possible: the roster would be above 1024 KiB", marked)

    def test_lazy_is_never_slower_and_time_grows_with_ranks(self):
        rows = self.rows("-p", "16,64,256,1024,16384,100000")
        for eager, lazy in zip(rows[::2], rows[1::2]):
            self.assertLessEqual(float(lazy["seconds"]), float(eager["seconds"]))
        times = [float(row["seconds"]) for row in rows[1::2]]
        self.assertEqual(times, sorted(times))

    def test_more_cores_take_less_time(self):
        few, many = (float(self.rows("-p", "512", "--per-host", "512", "--cores", cores)[1]["seconds"])
                     for cores in ("2", "64"))
        self.assertLess(many, few / 3)


class Cost(unittest.TestCase):
    def row(self, *arguments):
        result = run("cost", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()[3:]

    def test_a_ring_costs_what_its_formula_says(self):
        # 14 latencies of 20 us, 1.75 MiB at 25 Gbit/s, 0.875 MiB of operands at 10 GB/s
        row = self.row("allreduce/ring", "-p", "8", "--bytes", "1M", "--latency", "20us", "--bandwidth", "25Gbit",
                       "--overhead", "0us", "--reduce", "10GB")[0].split()
        self.assertEqual(row[0], "allreduce/ring")
        microseconds = float(row[1]) * (1000 if row[2] == "ms" else 1)
        self.assertAlmostEqual(microseconds, 14 * 20 + 1.75 * 1048576 / 3125 + 0.875 * 1048576 / 1e4, delta=30)
        bound = float(row[3])
        self.assertAlmostEqual(bound, 1.75 * 1048576 / 3125, delta=1)
        self.assertAlmostEqual(float(row[5]), microseconds / bound, delta=0.02)
        self.assertEqual(row[6:8], ["14", "14"])

    def test_all_algorithms_of_a_collective_are_compared(self):
        rows = self.row("allreduce", "-p", "8", "--bytes", "64K")
        self.assertEqual(len(rows), 10)

    def test_the_same_seed_gives_the_same_time(self):
        arguments = ("allreduce/ring", "-p", "5", "--bytes", "64K", "--jitter", "50us")
        first, again = self.row(*arguments, "--seed", "3"), self.row(*arguments, "--seed", "3")
        other = self.row(*arguments, "--seed", "4")
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_one_rank_and_no_bytes_cost_nothing(self):
        self.assertIn("0 ns", self.row("allreduce/ring", "-p", "1", "--bytes", "1M")[0])
        for name in ("allreduce/ring", "broadcast", "alltoall", "send"):
            for row in self.row(name, "-p", "4" if name != "send" else "2", "--bytes", "0"):
                self.assertEqual(row.split()[1:6], ["0", "ns", "0", "ns", "-"])

    def test_no_algorithm_is_below_the_lower_bound(self):
        """And the best allreduce comes near it, be it latency, bytes or operands that take longest."""
        slow = ("--reduce", "200MB")
        for p in (2, 3, 8):
            for size, *more in (("256",), ("256", "--overhead", "0us"), ("48K",), ("16M",), ("16M", *slow)):
                for collective in ("allreduce", "reduce_scatter", "reduce_scatterv", "allgather", "gather", "scatter",
                                   "alltoall", "broadcast", "reduce", "barrier"):
                    ratios = [float(row.split()[5]) for row in self.row(collective, "-p", str(p), "--bytes", size, *more)]
                    self.assertGreaterEqual(min(ratios), 1, (collective, p, size, more))
                    if size != "48K" and collective == "allreduce":
                        self.assertLess(min(ratios), 1.25, (collective, p, size, more))


    def test_less_than_an_element_is_no_size(self):
        for name, ranks, size, least in (("allgather/ring", "64", "128", "256"), ("allreduce/ring", "4", "3", "4")):
            result = run("cost", name, "-p", ranks, "--bytes", size)
            self.assertEqual(result.returncode, 1)
            self.assertIn("%s of %s bytes: the least with %s ranks is %s" % (name, size, ranks, least), result.stderr)

    def test_two_levels_send_the_least_between_hosts(self):
        rows = {row.split()[0]: row.split() for row in self.row("allreduce", "--hosts", "2x4", "--bytes", "1M")}
        self.assertEqual(rows["allreduce/two_level"][-2:], ["1", "MiB"])  # 2n(h-1)/h
        self.assertEqual(rows["allreduce/direct"][-2:], ["4", "MiB"])

    def test_circulant_allreduce_has_few_rounds_and_the_least_bytes_for_every_p(self):
        for p in range(2, 129):
            row = self.row("allreduce/circulant", "-p", str(p), "--bytes", str(4 * p))[0].split()
            self.assertLessEqual(int(row[6]), 2 * (p - 1).bit_length(), row)
            self.assertEqual(float(row[8]) * {"B": 1, "KiB": 1024}[row[9]], 2 * 4 * (p - 1), row)

    def test_large_allreduce_costs_about_the_same_per_byte_for_all_p(self):
        """The fastest of all against the neighbouring powers of two, less the share (p-1)/p that grows with p."""

        def per_byte(p):
            nanoseconds = min(
                float(row.split()[1]) * {"s": 1e9, "ms": 1e6, "us": 1e3}[row.split()[2]]
                for row in self.row("allreduce", "-p", str(p), "--bytes", "64M")
            )
            return nanoseconds / ((p - 1) / p)

        for p, powers in ((3, (2, 4)), (5, (4, 8)), (6, (4, 8)), (7, (4, 8)), (12, (8, 16)), (13, (8, 16)), (24, (16, 32))):
            with self.subTest(p):
                self.assertLess(per_byte(p), 1.1 * min(per_byte(q) for q in powers))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
