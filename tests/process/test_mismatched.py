"""Ranks that call different things: all hear of the first pair that differs, and of both calls.

    test_mismatched.py ACTOR [CLASS[.TEST]...] [-v]
"""
import os
import re
import signal
import time

from failures import LARGE, SMALL, Failures, main
from world import bound, on_two_cpus


class Mismatched(Failures):
    """Ranks call different things: every rank learns both calls, within a second."""

    # usual call, the odd rank's call, words of the one, words of the other
    PAIRS = [
        ("allreduce:1000:float32:sum", "allreduce:1001:float32:sum", ["1000"], ["1001"]),
        ("allreduce:1000:float32:sum", "allreduce:1000:int32:sum", ["float32"], ["int32"]),
        ("allreduce:1000:float32:sum", "allreduce:1000:float64:sum", ["float32"], ["float64"]),
        ("allreduce:1000:float32:sum", "allreduce:1000:float32:max", ["sum"], ["max"]),
        ("allreduce:1000:float32:sum", "allreduce:0:float32:sum", ["1000"], ["0"]),
        ("allreduce:1000:float32:sum", "barrier", ["allreduce"], ["barrier"]),
        ("allreduce:1000:float32:sum", "broadcast:1000:float32:0", ["allreduce"], ["broadcast"]),
        ("allreduce:1000:float32:sum", "reduce:1000:float32:sum:0", ["allreduce"], ["reduce"]),
        ("allgather:1000:float32", "reduce_scatter:1000:float32:sum", ["allgather"], ["reduce_scatter"]),
        ("allgather:1000:float32", "alltoall:1000:float32", ["allgather"], ["alltoall"]),
        ("broadcast:1000:float32:0", "broadcast:1000:float32:1", ["root 0"], ["root 1"]),
        ("reduce:1000:float32:sum:0", "reduce:1000:float32:sum:1", ["root 0"], ["root 1"]),
        ("broadcast:10:float32:0", "broadcast:20:float32:0", ["10"], ["20"]),
        ("allreduce:1000000:float32:sum", "allreduce:1000001:float32:sum", ["1000000"], ["1000001"]),
        ("allreduce:1000000:float32:sum", "allreduce:10:float32:sum", ["1000000"], ["10"]),
        ("alltoall:300:int16", "alltoall:301:int16", ["300"], ["301"]),
        ("reduce_scatter:300:int16:sum", "reduce_scatter:300:int16:bxor", ["sum"], ["bxor"]),
        ("barrier", "allgather:5:uint8", ["barrier"], ["allgather"]),
    ]

    def test_algorithms_that_are_forced_on_some_ranks_are_told_by_their_variable(self):
        for transport in ("auto", "tcp"):
            with self.subTest(transport=transport):
                world = self.world(3, DDL_TRANSPORT=transport, DDL_TIMEOUT="10s")
                for rank in [world.start(r, "init", LARGE, DDL_ALLREDUCE="direct" if r == 1 else "ring") for r in range(3)]:
                    rank.expect("init", "DDL_OK")
                    self.assert_names(rank.expect("call", "DDL_EMISMATCH"), "rank 0", "rank 1", "by ring", "by direct",
                                      "DDL_ALLREDUCE must be the same on every rank")

    def test_of_an_algorithm_that_is_forced_on_one_rank_the_others_do_not_say_that_it_is_set(self):
        for transport in ("auto", "tcp"):
            with self.subTest(transport=transport):
                world = self.world(2, DDL_TRANSPORT=transport, DDL_TIMEOUT="10s")
                forced = {"DDL_ALLREDUCE": "circulant"}
                ranks = [world.start(r, "init", LARGE, **(forced if r == 1 else {})) for r in range(2)]
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    record = rank.expect("call", "DDL_EMISMATCH")
                    self.assertRegex(record["text"], "DDL_ALLREDUCE( is not set on rank 0, nor| must be the same on every)")

    def check(self, usual, odd, odd_rank, nranks, words):
        world = self.world(nranks, DDL_TIMEOUT="10s")
        rest = [f"forever={SMALL}", SMALL, "free"]
        ranks = world.start_all("init", SMALL, "line", usual, *rest,
                                others={odd_rank: ["init", SMALL, "line", odd, *rest]})
        culprit = odd_rank if odd_rank > 0 else 1
        self.together(ranks, "init", "call")
        records = [rank.next() for rank in ranks]
        entered = max(record["begin_ns"] for record in records)
        for rank, record in zip(ranks, records):
            # Whose part was only to send, or nothing, was done before anybody could disagree: a later call tells.
            early = record["status"] == "DDL_OK" and record["call"].startswith(("broadcast", "reduce:", "allreduce:0"))
            after = self.next_of_forever(rank)
            if early:
                record = after
            else:
                self.assertEqual(after["status"], "DDL_EABORTED", rank.story())
            self.assertEqual(record["status"], "DDL_EMISMATCH", rank.story())
            self.assertEqual(record["culprit"], culprit, record)
            self.assert_names(record, f"rank {culprit}", *words)
            self.assert_within(record, entered, 1)
            self.assert_gone_bad(rank)
            rank.finish(0)

    def sweep(self, nranks, odd_ranks):
        for usual, odd, left, right in self.PAIRS:
            for odd_rank in odd_ranks:
                with self.subTest(usual=usual, odd=odd, odd_rank=odd_rank):
                    self.check(usual, odd, odd_rank, nranks, left + right)

    def test_two_ranks(self):
        self.sweep(2, (1,))

    def test_three_ranks(self):
        self.sweep(3, (0, 2))

    def test_nothing_comes_of_a_message_that_does_not_fit(self):
        """Whoever is told of the mismatch may still get that message, and what it sends then may come before the news:
        how it goes is a matter of luck, so it is tried many times."""
        usual, odd = "allreduce:1000:float32:sum", "allreduce:1000:int32:sum"
        for _ in range(5):
            self.at_once(*[(self.check, usual, odd, 2, 3, ["float32", "int32"])] * 3)

    def blame(self, nranks, calls, others, culprit, *words, **environment):
        """All have the same culprit, in the first of their calls that has not succeeded. What each says of it."""
        world = self.world(nranks, DDL_TIMEOUT="10s", **environment)
        begin, end = ["init", "line"], ["wait", "barrier", "barrier", "free"]
        ranks = world.start_all(*begin, *calls, *end, others={r: [*begin, *odd, *end] for r, odd in others.items()})
        self.together(ranks, "init")
        texts = []
        for rank in ranks:
            record = rank.next()
            while record["event"] == "started" or record["status"] == "DDL_OK":
                record = rank.next()
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EMISMATCH", culprit), rank.story())
            self.assert_names(record, f"rank {culprit}", *words)
            texts.append(record["text"])
        return texts

    def test_a_call_that_one_rank_leaves_out(self):
        """It differs from the others in each of its calls from then on; the first of them counts."""
        calls = ["+gather:166:int32:3", "+reduce:1469:int32:sum:3", "+broadcast:45:int32:0", "+broadcast:46:int32:0"]
        for _ in range(4):
            self.at_once(*[(self.blame, 4, calls, {2: calls[1:]}, 2, "gather(", "reduce(")] * 3)

    def test_of_several_in_flight_the_first_that_differs_is_named(self):
        """Whichever of them is found to differ first."""
        same, first, second = "+barrier", "+allreduce:1000:float32:sum", "+broadcast:1000:float32:0"
        for transport in ("auto", "tcp"):
            for nranks in (2, 3, 5):
                for before in ([], [same]):
                    texts = self.blame(nranks, [*before, first, second, same], {1: [*before, second, first, same]}, 1,
                                       DDL_TRANSPORT=transport)
                    for text in texts:
                        self.assertRegex(text, "rank 0 .* called allreduce.*, but rank 1 .* called broadcast")

    def test_all_name_the_lowest_pair_that_differs(self):
        """Whichever they hear of first, and whoever comes to the call when that is known already."""
        calls, odd = (["+broadcast:1000:int32:3", "+alltoall:22:int32"], ["+broadcast:1000:float32:3", "+alltoall:22:int32"])
        for _ in range(4):
            self.at_once(*[(self.blame, 5, calls, {2: odd}, 2, "rank 0", "int32", "float32")] * 3)

    def test_whoever_is_still_in_the_call_before_is_heard(self):
        """Rank 0 is stopped in a gather, and reads of the next call, in which 1 and 2 differ, before it has all for this one."""
        world = self.world(3, DDL_TIMEOUT="10s", DDL_TRANSPORT="tcp")
        calls, odd = (["gather:8:int32:0", "alltoall:300:int16"], ["gather:8:int32:0", "alltoall:301:int16"])
        ranks = world.start_all("init", "line", *calls, others={1: ["init", "line", *odd]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        ranks[0].go()
        time.sleep(0.05)
        os.kill(ranks[0].pid, signal.SIGSTOP)
        for rank in ranks[1:]:
            rank.go()
        for rank in ranks[1:]:
            rank.expect("call", "DDL_OK")
        time.sleep(0.03)
        os.kill(ranks[0].pid, signal.SIGCONT)
        went_on_ns = time.monotonic_ns()
        before = ranks[0].expect("call")
        records = [rank.expect("call") for rank in ranks]
        if bound(1) > 1 or went_on_ns - min(record["begin_ns"] for record in records[1:]) > 1e8:
            return  # too late to be waited for: the others settle after 0.2 s
        self.assertEqual(before["status"], "DDL_OK", ranks[0].story())
        for record in records:
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EMISMATCH", 1), records)

    def finish_and_idle(self, transport):
        """Rank 0 differs; the others have done their parts, and are not in the library when it comes out. Returns
        whom all of them name."""
        world = self.world(3, DDL_TIMEOUT="10s", DDL_TRANSPORT=transport)
        usual, odd = "broadcast:36:int32:2", "broadcast:36:float32:2"
        begin, end = ["init", SMALL, "line"], ["line", "barrier", "free"]
        ranks = world.start_all(*begin, usual, *end, others={0: [*begin, odd, "free"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        for rank in ranks[1:]:
            rank.go()
        for rank in ranks[1:]:
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        time.sleep(0.05)
        ranks[0].go()
        records = [ranks[0].expect("call", "DDL_EMISMATCH")]
        for rank in ranks[1:]:
            rank.go()
            records.append(rank.expect("call", "DDL_EMISMATCH"))
        for record in records:
            self.assertEqual(record["culprit"], records[0]["culprit"], records)
        return records[0]["culprit"]

    def test_a_request_that_ends_by_the_mismatch_of_another_says_so(self):
        """The first calls are alike, the second ones differ, and rank 2 comes to neither for a while."""
        world = self.world(3, DDL_TIMEOUT="10s", DDL_TRANSPORT="tcp")
        first, second = "+allreduce:5:int32:sum", "+allreduce:%d:int32:sum"
        ranks = [world.start(r, "init", SMALL, "line", first, second % (5 + (r == 1)), "wait", "wait") for r in range(3)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        ranks[0].go()
        ranks[1].go()
        for rank in ranks[:2]:
            rank.expect("started", "DDL_OK")
            rank.expect("started", "DDL_OK")
            records = [rank.expect("wait", "DDL_EMISMATCH") for _ in range(2)]
            for record, number, where in zip(records, (2, 3), ("in allreduce#3, ", "")):
                self.assertRegex(record["text"], rf"allreduce#{number} comm=world rank \d@\S+: {where}rank 0 \(pid .* called ")
        ranks[2].go()

    def test_a_message_is_none_of_the_collectives_though_its_number_is_the_same(self):
        world = self.world(2, DDL_TIMEOUT="10s")
        ranks = [world.start(r, "init", f"+recv:1:int32:{1 - r}", f"+allreduce:{1 + r}:int32:sum", "wait", "wait")
                 for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("started", "DDL_OK")
            rank.expect("started", "DDL_OK")
            texts = {record["operation"]: record["text"] for record in [rank.expect("wait", "DDL_EMISMATCH") for _ in range(2)]}
            self.assertRegex(texts["recv"], r"recv#1 comm=world rank \d@\S+: in allreduce#1, rank 0 ")
            self.assertRegex(texts["allreduce"], r"allreduce#1 comm=world rank \d@\S+: rank 0 ")

    def test_who_has_finished_and_is_idle_is_heard(self):
        """The lowest pair is told by a rank that is idle, and answers in time: within 0.2 s, which a machine that
        stands still may take from one of nine."""
        culprits = []
        for _ in range(3):
            self.at_once(*[(lambda transport: culprits.append(self.finish_and_idle(transport)), transport)
                           for transport in ("tcp", "auto", "tcp")])
        self.assertGreaterEqual(culprits.count(1), len(culprits) - 1, culprits)
        if culprits.count(1) < len(culprits):
            self.assertEqual([self.finish_and_idle(transport) for transport in ("tcp", "auto")], [1, 1])

    def comes_late_as_root(self, connect, *odd):
        """Two of four ranks that share two CPUs: what is small goes over their board, what is larger by messages."""
        usual = ["init", "split:pair:0:0", "use:pair", "4=barrier", "line"]
        apart = ["init", "split:pair:-1:0", "line"]
        with on_two_cpus():
            world = self.world(4, DDL_TIMEOUT="10s", DDL_CONNECT=connect)
            ranks = world.start_all(*apart, others={0: [*usual, "scatter:5168:int32:1"], 1: [*usual, *odd]})[:2]
        for rank in ranks:
            for event in ("init", "split", "repeated"):
                rank.expect(event, "DDL_OK")
            rank.expect("ready")
        ranks[0].go()
        time.sleep(bound(0.3))  # it asks who is in the call
        ranks[1].go()
        came_ns = time.monotonic_ns()
        for rank in ranks:
            record = rank.next()
            while record["event"] == "running" or record["status"] == "DDL_OK":
                record = rank.next()
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EMISMATCH", 1), rank.story())
            self.assert_names(record, "5168", "168")
            self.assert_within(record, came_ns, 1)

    def test_a_late_root_that_posts_what_others_await_in_messages(self):
        """They had asked for it before it came; it hears nothing of them by itself, and goes on."""
        odd = "scatter:168:int32:1"
        for connect in "eager", "lazy":
            self.at_once((self.comes_late_as_root, connect, odd, "forever=reduce:9752:uint8:sum:0"),
                         (self.comes_late_as_root, connect, f"forever={odd}"))

    def test_who_comes_when_all_is_over_has_the_end_of_the_others(self):
        """Rank 0 and rank 1 would be a lower pair than 1 and 2, which had their end long ago."""
        world = self.world(3, DDL_TIMEOUT="10s")
        odd = {1: ["init", "line", "alltoall:301:int16", "free"], 0: ["init", "line", "line", "alltoall:300:int16", "free"]}
        ranks = world.start_all("init", "line", "alltoall:300:int16", "free", others=odd)
        self.together(ranks, "init")
        ranks[0].expect("ready")
        records = {r: ranks[r].expect("call", "DDL_EMISMATCH") for r in (1, 2)}
        ranks[0].go()
        records[0] = ranks[0].expect("call", "DDL_EMISMATCH")
        for record in records.values():
            self.assertEqual(record["culprit"], 2, records)
            self.assert_names(record, "rank 1", "300", "rank 2", "301")

    def runs_on_past_calls_that_differ(self):
        world = self.world(9, DDL_TRANSPORT="tcp", DDL_TIMEOUT="10s")
        usual, odd = "reduce:120:int32:max:2", "reduce:120:uint32:max:2"
        first, then = ["init", f"200={usual}", "line"], f"forever={usual}"
        ranks = world.start_all(*first, usual, then, others={7: [*first, odd, then]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("repeated", "DDL_OK")
            rank.expect("ready")
        ranks[7].go()
        time.sleep(0.03)
        for rank in ranks[:7] + ranks[8:]:
            rank.go()
        records = []
        for rank in ranks:
            record = rank.next()
            while record["event"] == "running" or record["status"] == "DDL_OK":
                record = rank.next()
            records.append(record)
        pairs = {(record["status"], *re.findall(r"rank [0-9]+ \(", record["text"])) for record in records}
        self.assertEqual(len(pairs), 1, pairs)

    def test_who_has_run_on_past_calls_that_differ(self):
        """Some have made hundreds of calls by then, and know no more how they made that one: rank 0 says who is named."""
        for _ in range(8):  # one after the other: nine ranks that spin keep other tests from their CPU
            self.runs_on_past_calls_that_differ()

    def test_who_would_name_the_pair_stands_still(self):
        """Rank 0 is stopped: the others say by themselves which calls differ, and later it says so too."""
        for transport in "auto", "tcp":
            world = self.world(4, DDL_TIMEOUT="10s", DDL_TRANSPORT=transport)
            ranks = world.start_all("init", SMALL, "line", "alltoall:300:int16", others={2: ["init", SMALL, "line", "alltoall:301:int16"]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("ready")
            os.kill(ranks[0].pid, signal.SIGSTOP)
            for rank in ranks:
                rank.go()
            records = [rank.expect("call", "DDL_EMISMATCH") for rank in ranks[1:]]
            os.kill(ranks[0].pid, signal.SIGCONT)
            for record in records:
                self.assert_within(record, max(each["begin_ns"] for each in records), 1)
                self.assertEqual(record["culprit"], 2, record)
            self.assertEqual(ranks[0].expect("call", "DDL_EMISMATCH")["culprit"], 2)

    def test_whoever_is_a_little_late_is_heard_and_nobody_else_is_waited_for(self):
        """With rank 0, 0.1 s late, 0 and 1 differ, without it 1 and 2; when all are there it is over within 0.15 s."""
        took = []
        for late in 0, None, None, None:
            world = self.world(3, DDL_TIMEOUT="10s")
            ranks = world.start_all("init", SMALL, "line", "alltoall:300:int16", others={1: ["init", SMALL, "line", "alltoall:301:int16"]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("ready")
            for r in (1, 2, 0):
                if r == late:
                    time.sleep(0.1)
                ranks[r].go()
            records = [rank.expect("call", "DDL_EMISMATCH") for rank in ranks]
            begun = [record["begin_ns"] for record in records]
            if max(begun) - min(begun) < 1.5e8:
                self.assertEqual([record["culprit"] for record in records], [1, 1, 1], records)
            if late is None:
                took.append(max(record["end_ns"] for record in records) - max(begun))
        self.assertLess(self.seconds(0, min(took)), bound(0.15))

    def dies_as_calls_differ(self, nranks, moment_us):
        world = self.world(nranks, DDL_TIMEOUT="10s")
        usual = "allreduce:4:int32:sum"
        ranks = world.start_all("init", SMALL, "line", usual, others={1: ["init", SMALL, "line", "allreduce:5:int32:sum"],
                                                                      2: ["init", SMALL, "line", f"mortal:{moment_us}", usual]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        for rank in reversed(ranks):
            rank.go()
        ends = set()
        for rank in ranks[:2] + ranks[3:]:
            record = rank.expect("call")
            ends.add((record["status"], record["culprit"]))
        self.assertEqual(len(ends), 1, ends)
        self.assertIn(ends.pop(), (("DDL_EMISMATCH", 1), ("DDL_EPEERLOST", 2)))

    def test_a_death_in_the_same_moment(self):
        """It may be either, but the same for all. By a board, ranks see that calls differ before they have read anything."""
        for moment_us in range(50, 850, 50):
            self.dies_as_calls_differ(3 if moment_us % 100 else 5, moment_us)

    def test_who_has_forgotten_a_call_says_nothing_of_it(self):
        """Ranks 0 and 1 are long past the call about which rank 2, and later 3, asks: they were in it, and that is all."""
        world = self.world(4, DDL_TRANSPORT="tcp", DDL_TIMEOUT="10s")
        ranks = [world.start(r, "init", *(["400=broadcast:0:int32:1"] if r < 2 else ["line", f"gather:4:int32:{r}"]), "barrier", "free")
                 for r in range(4)]
        for r, rank in enumerate(ranks):
            rank.expect("init", "DDL_OK")
            rank.expect("repeated" if r < 2 else "ready")
        for rank in ranks[2:]:
            rank.go()
            time.sleep(bound(0.15))  # it asks after 0.1 s
        culprits = set()
        for rank in ranks:
            record = rank.next()
            while record["status"] == "DDL_OK":
                record = rank.next()
            self.assertEqual(record["status"], "DDL_EMISMATCH", rank.story())
            self.assertNotRegex(record["text"], "rank [01] .* called gather|rank [23] .* called broadcast")
            culprits.add(record["culprit"])
        self.assertEqual(len(culprits), 1, culprits)

    def test_in_the_last_call(self):
        """A rank that only sent, or got nothing, was done: leaving tells it."""
        for usual, odd in (("broadcast:8:float32:0", "reduce:8:float32:sum:0"),
                           ("broadcast:8:float32:0", "broadcast:8:float32:1")):
            with self.subTest(usual=usual, odd=odd):
                world = self.world(2)
                ranks = world.start_all("init", SMALL, "line", usual, "free",
                                        others={1: ["init", SMALL, "line", odd, "free"]})
                self.together(ranks, "init", "call")
                for rank in ranks:
                    said = [rank.next(), rank.next()]
                    self.assertEqual([record["event"] for record in said], ["call", "free"], rank.story())
                    self.assertIn("DDL_EMISMATCH", [record["status"] for record in said], rank.story())

    def test_a_call_that_others_wait_behind(self):
        """A rank that had nothing to do in a call, and comes late to it, did not post for it."""
        world = self.world(2, DDL_TIMEOUT="20s")
        ranks = [world.start(0, "init", SMALL, "line", "broadcast:8:float32:0", "broadcast:8:float32:0", SMALL, "free"),
                 world.start(1, "init", SMALL, "line", "line", "broadcast:0:float32:0", "broadcast:8:float32:0",
                             SMALL, "free")]
        self.together(ranks, "init", "call")
        ranks[1].expect("ready")
        time.sleep(0.4)  # the other one has asked by then, and was not heard
        ranks[1].go()
        for rank in ranks:
            record = rank.next()
            while record["status"] == "DDL_OK":
                record = rank.next()
            self.assertEqual(record["status"], "DDL_EMISMATCH", rank.story())
            self.assert_names(record, "8", "0")

    def test_four_ranks_with_two_odd_ones_name_the_lower(self):
        world = self.world(4)
        odd = ["init", SMALL, "line", "allreduce:1001:float32:sum", SMALL, "free"]
        ranks = world.start_all("init", SMALL, "line", "allreduce:1000:float32:sum", SMALL, "free",
                                others={2: odd, 3: odd})
        self.together(ranks, "init", "call")
        for rank in ranks:
            record = rank.expect("call", "DDL_EMISMATCH")
            self.assertEqual(record["culprit"], 2, record)
            self.assert_names(record, "1000", "1001")

    def test_point_to_point(self):
        for sent, received in (("send:10:int32:1", "recv:20:int32:0"), ("send:10:int32:1", "recv:10:float32:0"),
                               ("send:500000:int32:1", "recv:10:int32:0"), ("send:10:int32:1", "recv:500000:int32:0"),
                               ("send:0:int32:1", "recv:10:int32:0"), ("send:0:int32:1", "recv:500000:int32:0"),
                               ("send:10:int32:1", "recv:0:int32:0"), ("send:500000:int32:1", "recv:0:int32:0")):
            with self.subTest(sent=sent, received=received):
                world = self.world(2, DDL_TIMEOUT="10s")
                # A send may complete before its receive is posted, and one of the two that has no elements does
                # at once: then the next call tells.
                ranks = [world.start(r, "init", SMALL, "line", call, f"forever={SMALL}")
                         for r, call in enumerate((sent, received))]
                self.together(ranks, "init", "call")
                for rank in ranks:
                    record = rank.next()
                    if record["status"] == "DDL_OK":
                        record = self.next_of_forever(rank)
                    self.assertEqual((record["status"], record["culprit"]), ("DDL_EMISMATCH", 1),
                                     ranks[0].story() + ranks[1].story())
                    self.assert_within(record, record["begin_ns"], 1)

    def test_with_others_in_flight(self):
        world = self.world(3)
        usual = ["init", "line", "+" + LARGE, "+allgather:100:int32", "+" + SMALL, "wait", SMALL, "free"]
        odd = ["init", "line", "+" + LARGE, "+allgather:101:int32", "+" + SMALL, "wait", SMALL, "free"]
        ranks = world.start_all(*usual, others={1: odd})
        self.together(ranks, "init")
        for rank in ranks:
            waits = []
            record = rank.next()
            while record["event"] in ("started", "wait"):
                if record["event"] == "wait":
                    waits.append(record)
                record = rank.next()
            failed = [w for w in waits if w["status"] != "DDL_OK"]
            self.assertTrue(failed, rank.story())
            for wait in failed:
                self.assertEqual((wait["status"], wait["culprit"]), ("DDL_EMISMATCH", 1), rank.story())
            for wait in waits:
                self.assertTrue(wait["exact"] or wait["status"] != "DDL_OK", wait)
            self.assertEqual(record["status"], "DDL_EABORTED", rank.story())
            rank.expect("free", "DDL_OK")


if __name__ == "__main__":
    main(__doc__)
