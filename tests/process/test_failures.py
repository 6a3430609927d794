"""What happens when things break: each test breaks one thing in a small world and compares what all ranks say.

    test_failures.py ACTOR [CLASS[.TEST]...] [-v]

The bounds are those that the library promises; DDL_TEST_PATIENCE stretches them in slow builds.
"""
import contextlib
import errno
import itertools
import os
import re
import random
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from relay import Relay
from world import DEADLINE, World, alive, await_rest, bound, end_well, listening_ports, on_two_cpus, terminate, wait_until

ACTOR = None
SEED = int(os.environ.get("DDL_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("DDL_TEST_ROUNDS", "1"))  # `./check --long` asks for more
# What the process keeps for good (libuv's pipe for signals) is opened by a first world.
WARM = ["cycle:1"]
SMALL, LARGE = "allreduce:16:float32:sum", "allreduce:400000:float32:sum"


class Failures(unittest.TestCase):
    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, **environment)
        self.addCleanup(world.__exit__)
        return world

    def seconds(self, begin_ns, end_ns):
        return (end_ns - begin_ns) / 1e9

    def assert_within(self, record, begin_ns, seconds):
        took = self.seconds(begin_ns, record["end_ns"])
        self.assertLess(took, bound(seconds), f"took {took:.3f} s: {record}")

    def assert_names(self, record, *words):
        for word in words:
            self.assertIn(str(word), record["text"])

    def assert_same_resources(self, before, after):
        for what in ("descriptors", "threads"):
            self.assertEqual(before[what], after[what], f"{what}: {before} then {after}")

    def together(self, ranks, *events):
        """Let all go on at once, when each has had these events: a failure that is found by a fast rank ends
        operations that a slow one has not finished, and what comes before is not to be among them."""
        for rank in ranks:
            for event in events:
                rank.expect(event, "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()

    def at_once(self, *checks):
        """Do several checks that mostly wait; each has a world of its own."""
        with ThreadPoolExecutor(len(checks)) as pool:
            for check in [pool.submit(*check) for check in checks]:
                check.result()

    def next_of_forever(self, rank):
        """How a call ended that is repeated until it fails."""
        record = rank.next()
        return rank.next() if record["event"] == "running" else record

    def expect_warm(self, rank):
        rank.expect("allreduce", "DDL_OK")
        rank.expect("cycle", "DDL_OK")

    def assert_gone_bad(self, rank):
        """After a failure calls say so at once, and freeing is quick and leaves nothing behind."""
        again = rank.expect("call", "DDL_EABORTED")
        self.assertLess(self.seconds(again["begin_ns"], again["end_ns"]), bound(0.5), rank.story())
        freed = rank.expect("free", "DDL_OK")
        self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1), rank.story())


class Killed(Failures):
    """A rank is killed by SIGKILL: every survivor names it within a second."""

    def check(self, nranks, victim, call, moment_us):
        world = self.world(nranks)
        survivor = [*WARM, "resources", "init", "line", f"forever={call}", SMALL, "free", "resources"]
        mortal = [*WARM, "resources", "init", "line", f"mortal:{moment_us}", f"forever={call}"]
        ranks = world.start_all(*survivor, others={victim: mortal})
        before = {}
        for rank in ranks:
            self.expect_warm(rank)
            before[rank] = rank.expect("resources")
        self.together(ranks, "init")
        dead = ranks[victim]
        killed = self.next_of_forever(dead)
        self.assertEqual(killed["event"], "killed", dead.story())
        for r, rank in enumerate(ranks):
            if r == victim:
                continue
            record = self.next_of_forever(rank)
            self.assertEqual((record["event"], record["status"]), ("forever", "DDL_EPEERLOST"), rank.story())
            self.assertEqual(record["culprit"], victim, record)
            self.assertEqual(record["rank"], r, record)
            self.assertEqual(record["code"], "DDL_EPEERLOST", record)
            self.assertEqual(record["operation"], "allreduce", record)
            self.assertTrue(record["exact"], record)
            self.assert_names(record, f"rank {victim}")
            self.assert_within(record, killed["end_ns"], 1)
            self.assert_gone_bad(rank)
            self.assert_same_resources(before[rank], rank.expect("resources"))
            rank.finish(0)
        dead.finish(-signal.SIGKILL)

    def sweep(self, call):
        draw = random.Random(SEED)
        for _ in range(ROUNDS):
            for nranks in (2, 3, 4):
                for victim in sorted({0, nranks // 2, nranks - 1}):
                    moment = draw.randrange(1, 60000)
                    with self.subTest(nranks=nranks, victim=victim, moment_us=moment):
                        self.check(nranks, victim, call, moment)

    def test_in_small_allreduce(self):
        self.sweep(SMALL)

    def test_in_large_allreduce(self):
        self.sweep(LARGE)

    def test_while_idle(self):
        world = self.world(3)
        ranks = world.start_all("init", "barrier", "line", SMALL, SMALL, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        ranks[1].kill()
        ranks[1].finish(-signal.SIGKILL)
        for rank in (ranks[0], ranks[2]):
            rank.go()
        for rank in (ranks[0], ranks[2]):
            record = rank.expect("call", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assert_within(record, record["begin_ns"], 1)
            self.assert_gone_bad(rank)
            rank.finish(0)

    def test_with_a_forked_child_that_lives_on(self):
        """The child has inherited every descriptor, and still its parent's end is seen."""
        world = self.world(3)
        rest = ["init", SMALL, "line", f"forever={LARGE}", SMALL, "free"]
        ranks = world.start_all(*rest, others={2: ["init", SMALL, "line", "fork:stay", "mortal:1000",
                                                   f"forever={LARGE}"]})
        self.together(ranks, "init", "call")
        child = ranks[2].expect("fork")["child"]
        self.addCleanup(terminate, child)
        killed = self.next_of_forever(ranks[2])
        self.assertEqual(killed["event"], "killed")
        for rank in ranks[:2]:
            record = self.next_of_forever(rank)
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 2), rank.story())
            self.assert_within(record, killed["end_ns"], 1)
            self.assertTrue(alive(child), "the child is to outlive its parent here")
            self.assert_gone_bad(rank)
        terminate(child)

    def test_with_a_child_that_was_forked_while_the_ranks_meet(self):
        """Rank 3 never comes. The child of rank 0 does not keep the port, nor those of others their connections."""
        for dying in (0, 2):
            with self.subTest(dying=dying):
                world = self.world(4)
                soon = f"forking:{1000 * bound(1.5):.0f}"  # once all three have met
                ranks = [world.start(r, *([soon] if r == dying else []), "init") for r in range(3)]
                child = ranks[dying].expect("fork")["child"]
                self.addCleanup(terminate, child)
                ranks[dying].kill()
                killed_ns = time.monotonic_ns()
                for rank in ranks[:dying] + ranks[dying + 1:]:
                    record = rank.expect("init", "DDL_EPEERLOST")
                    self.assertEqual(record["culprit"], dying, record)
                    self.assert_within(record, killed_ns, 1)
                self.assertTrue(alive(child), "the child is to outlive its parent here")
                ranks[dying].process.wait(DEADLINE)
                with socket.create_server(("127.0.0.1", world.port)):
                    pass
                terminate(child)

    def test_what_the_system_said_is_in_the_record(self):
        """Who ends with bytes unread resets the connection."""
        world = self.world(2, DDL_TRANSPORT="tcp")
        ranks = world.start_all("init", "line", "send:1000:int32:1", "barrier", others={1: ["init", "line"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        os.kill(ranks[1].pid, signal.SIGSTOP)
        ranks[0].go()
        ranks[0].expect("call", "DDL_OK")
        ranks[1].kill()
        record = ranks[0].expect("call", "DDL_EPEERLOST")
        self.assertEqual((record["culprit"], record["os_errno"]), (1, errno.ECONNRESET), record)

    def test_with_requests_in_flight(self):
        world = self.world(3)
        started = ["+" + LARGE, "+" + SMALL, "+recv:10:int32:1"]
        ranks = world.start_all("init", "line", *started, "wait", SMALL, "free",
                                others={1: ["init", "line", "mortal:1", "line"]})
        self.together(ranks, "init")
        for r in (0, 2):
            for _ in started:
                first = ranks[r].next()
                self.assertEqual(first["event"], "started")
                self.assertIn(first["status"], ("DDL_OK", "DDL_EPEERLOST", "DDL_EABORTED"), ranks[r].story())
            record = ranks[r].next()
            while record["event"] == "wait":
                self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1), ranks[r].story())
                record = ranks[r].next()
            self.assertEqual((record["event"], record["status"]), ("call", "DDL_EABORTED"), ranks[r].story())
            ranks[r].expect("free", "DDL_OK")


class Left(Failures):
    """A rank ends normally, too early."""

    def check(self, ending, words):
        world = self.world(3)
        ranks = world.start_all("init", SMALL, "line", SMALL, SMALL, "free",
                                others={1: ["init", SMALL, "line", ending]})
        self.together(ranks, "init", "call")
        left = ranks[1].expect("exit")
        ranks[1].finish(3)
        for rank in (ranks[0], ranks[2]):
            record = rank.expect("call", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assert_names(record, "rank 1", *words)
            self.assert_within(record, max(left["end_ns"], record["begin_ns"]), 1)
            self.assert_gone_bad(rank)
            rank.finish(0)

    def test_exit_without_free_is_told_as_leaving(self):
        self.check("exit:3", ["left"])

    def test_exit_without_goodbye(self):
        self.check("_exit:3", [])

    def test_who_never_waits_for_it_hears_of_it(self):
        """Calls that are done at once, one after the other or far apart, are not done for ever."""
        paces = ("forever=", "paced:1=", "paced:50=")  # in ms
        between_two = [(pace + "send:1:int32:1", pace + "recv:1:int32:0") for pace in paces]
        of_all = [(pace + "broadcast:1:int32:0",) * 2 for pace in paces[1:]]
        endings = (("exit:0", "DDL_EPEERLOST", "exit"), ("_exit:0", "DDL_EPEERLOST", "exit"),
                   ("abort:enough", "DDL_EABORTED", "abort"))

        def check(first, second, ending, status, told):
            world = self.world(3)
            ranks = [world.start(r, "init", SMALL, "line", call) for r, call in enumerate((first, second, ending))]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("ready")
            for rank in ranks[:2]:
                rank.go()
            for rank in ranks[:2]:
                rank.expect("running")
            ranks[2].go()
            ended = ranks[2].expect(told)
            for rank in ranks[:2]:
                record = rank.next()
                self.assertEqual((record["status"], record["culprit"]), (status, 2), rank.story())
                self.assert_within(record, ended["end_ns"], 1)

        for ending in endings:
            has_left = ending[0] == "exit:0"  # whom others need not know as long as they do not need him
            self.at_once(*((check, *pair, *ending) for pair in of_all + ([] if has_left else between_two)))

    def test_who_comes_late_with_another_call_hears_why_it_ended(self):
        """What the others sent in the call that they have given up comes before the reason, and is not his call."""
        def check(ending, status, told, before):
            world = self.world(4)
            started = "+allreduce:10:int64:sum"
            ranks = world.start_all("init", *before, started, "wait",
                                    others={0: ["init", *before, "line", "barrier"],
                                            3: ["init", *before, started, "line", ending]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                for _ in before:
                    rank.expect("call", "DDL_OK")
            for rank in ranks[1:]:
                rank.expect("started", "DDL_OK")
            ranks[0].expect("ready")
            ranks[3].expect("ready")
            ranks[3].go()
            ranks[3].expect(told)
            for rank in ranks[1:3]:
                record = rank.expect("wait", status)
                self.assertEqual(record["culprit"], 3, record)
            ranks[0].go()
            record = ranks[0].expect("call", status)
            self.assertEqual(record["culprit"], 3, record)

        repeated = ["barrier", "barrier"]  # so that the late one is a repetition, too
        for before in [[SMALL], repeated] * 3:
            self.at_once((check, "abort:enough", "DDL_EABORTED", "abort", before),
                         (check, "_exit:0", "DDL_EPEERLOST", "exit", before))

    def test_freeing_early_is_told(self):
        world = self.world(2)
        early = world.start(1, "init", SMALL, "free")
        other = world.start(0, "init", SMALL, SMALL, "free")
        other.expect("init", "DDL_OK")
        other.expect("call", "DDL_OK")
        record = other.next()
        self.assertIn(record["status"], ("DDL_EPEERLOST", "DDL_EMISMATCH"), other.story())
        self.assertEqual(record["culprit"], 1, record)
        self.assert_names(record, "rank 1")
        self.assertRegex(record["text"], "left|free")
        other.expect("free", "DDL_OK")
        other.finish(0)
        early.finish(0)


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


class Silent(Failures):
    """A rank that is waited for gives no sign of life: its process stands still. Nobody waits for the deadline then."""
    LIMIT = min(bound(2), 4)  # s

    def start(self, nranks, *calls, others=None, **environment):
        """Ranks that have met; rank 1 stands before the calls."""
        world = self.world(nranks, DDL_UNRESP_TIMEOUT=f"{self.LIMIT}s", DDL_TIMEOUT=f"{bound(40)}s", **environment)
        ranks = world.start_all("init", SMALL, *calls, SMALL, "free", others={1: ["init", SMALL, "line", *calls, SMALL, "free"],
                                                                             **(others or {})})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[1].expect("ready")
        return ranks

    def stop(self, rank):
        os.kill(rank.pid, signal.SIGSTOP)

    def go_on(self, rank):
        os.kill(rank.pid, signal.SIGCONT)

    def all_is_well(self, ranks, ncalls):
        for rank in ranks:
            for _ in range(ncalls):
                self.assertTrue(rank.expect("call", "DDL_OK")["exact"])
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def stopped(self, call):
        ranks = self.start(3, call)
        self.stop(ranks[1])
        stopped = time.monotonic_ns()
        for r in (0, 2):
            record = ranks[r].expect("call", "DDL_EUNRESPONSIVE")
            self.assertEqual((record["culprit"], record["code"]), (1, "DDL_EUNRESPONSIVE"), record)
            self.assert_names(record, "rank 1", "no sign of life", "DDL_UNRESP_TIMEOUT")
            self.assertGreater(self.seconds(stopped, record["end_ns"]), self.LIMIT, record)
            self.assertLess(self.seconds(stopped, record["end_ns"]), self.LIMIT + bound(3), record)
            self.assert_gone_bad(ranks[r])
            ranks[r].finish(0)
        self.go_on(ranks[1])
        ranks[1].go()
        record = ranks[1].expect("call")
        was_complete = record["status"] == "DDL_OK"  # by what the others had posted; then the next call tells
        if was_complete:
            record = ranks[1].expect("call")
        self.assertEqual((record["status"], record["culprit"]), ("DDL_EUNRESPONSIVE", 1), ranks[1].story())
        if was_complete:
            ranks[1].expect("free", "DDL_OK")
        else:
            self.assert_gone_bad(ranks[1])
        ranks[1].finish(0)

    def stopped_sender(self):
        ranks = self.start(2, others={0: ["init", SMALL, "recv:300000:int32:1", SMALL, "free"]})
        self.stop(ranks[1])
        record = ranks[0].expect("call", "DDL_EUNRESPONSIVE")
        self.assertEqual((record["culprit"], record["operation"]), (1, "recv"), record)
        self.assert_gone_bad(ranks[0])
        self.go_on(ranks[1])

    def stopped_in_the_middle(self):
        ranks = self.world(3, DDL_UNRESP_TIMEOUT=f"{self.LIMIT}s").start_all("init", "line", f"forever={LARGE}", SMALL, "free")
        self.together(ranks, "init")
        for rank in ranks:
            rank.expect("running")
        time.sleep(0.1)
        self.stop(ranks[1])
        for r in (0, 2):
            record = ranks[r].expect("forever", "DDL_EUNRESPONSIVE")
            self.assertEqual(record["culprit"], 1, record)
            self.assertTrue(record["exact"], record)
            self.assert_gone_bad(ranks[r])
        self.go_on(ranks[1])
        self.assertEqual(ranks[1].expect("forever", "DDL_EUNRESPONSIVE")["culprit"], 1)

    def stopped_before(self):
        """Silence counts from the call on, not from when the rank was asked for a sign first."""
        limit = 8
        ranks = self.world(2, DDL_UNRESP_TIMEOUT=f"{limit}s").start_all("init", SMALL, "line", SMALL, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        self.stop(ranks[1])
        ranks[0].go()
        record = ranks[0].expect("call", "DDL_EUNRESPONSIVE")
        took = self.seconds(record["begin_ns"], record["end_ns"])
        self.assertGreater(took, limit, record)
        self.assertLess(took, limit + bound(1.5), record)
        self.go_on(ranks[1])

    def test_a_stopped_process_is_named(self):
        self.at_once(*((self.stopped, call) for call in (SMALL, LARGE, "broadcast:300000:int32:1", "barrier", "allgather:20:int32")),
                     (self.stopped_sender,), (self.stopped_in_the_middle,), (self.stopped_before,))

    def is_left_behind(self, stops_late):
        """The others go on without who is found so, before they call ddl_comm_shrink or in it."""
        world = self.world(5, DDL_UNRESP_TIMEOUT=f"{self.LIMIT}s", DDL_TIMEOUT=f"{bound(40)}s")
        ranks = world.start_all("init", "line", f"forever={SMALL}", "line", "shrink:rest", "use:rest", SMALL, LARGE, "line", "free", "free")
        self.together(ranks, "init")
        left = [ranks[r] for r in ((0, 2, 4) if stops_late else (0, 2, 3, 4))]
        for rank in ranks:
            rank.expect("running")
        if stops_late:
            os.kill(ranks[3].pid, signal.SIGKILL)
        else:
            self.stop(ranks[1])
        for rank in left:
            rank.expect("forever", "DDL_EPEERLOST" if stops_late else "DDL_EUNRESPONSIVE")
            rank.expect("ready")
        if stops_late:
            ranks[1].expect("forever", "DDL_EPEERLOST")
            ranks[1].expect("ready")
            self.stop(ranks[1])
        for rank in left:
            rank.go()
        for place, rank in enumerate(left):
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual((record["new_rank"], record["new_size"]), (place, len(left)), rank.story())
            took = self.seconds(record["begin_ns"], record["end_ns"])
            self.assertLess(took, (self.LIMIT if stops_late else 0) + bound(3), record)
        for rank in left:
            for call in ("call", "call"):
                self.assertTrue(rank.expect(call, "DDL_OK")["exact"])
            rank.expect("ready")
        self.go_on(ranks[1])
        if not stops_late:
            ranks[1].expect("forever", "DDL_EUNRESPONSIVE")
            ranks[1].expect("ready")
        ranks[1].go()
        self.assert_names(ranks[1].expect("shrink", "DDL_EABORTED"), "do not go on with it")
        for rank in left:
            rank.go()
        end_well(left, "free", "free")

    def test_the_others_go_on_without_it(self):
        self.at_once((self.is_left_behind, False), (self.is_left_behind, True))

    def goes_on_in_time(self):
        ranks = self.start(3, LARGE, SMALL)
        for _ in range(3):
            self.stop(ranks[1])
            time.sleep(0.5 * self.LIMIT)
            self.go_on(ranks[1])
            time.sleep(0.5)
        ranks[1].go()
        self.all_is_well(ranks, 3)

    def does_something_else(self, **environment):
        """Nor is who waits for it in turn silent."""
        ranks = self.start(4, "broadcast:10:int32:0", LARGE, **environment)
        time.sleep(2.5 * self.LIMIT)
        ranks[1].go()
        self.all_is_well(ranks, 3)

    def stood_still_itself(self):
        ranks = self.start(3, LARGE)
        time.sleep(1.5)  # it looks at rank 1, which lives
        for r in (0, 2):
            self.stop(ranks[r])
        time.sleep(2 * self.LIMIT)
        for r in (0, 2):
            self.go_on(ranks[r])
        time.sleep(1)
        ranks[1].go()
        self.all_is_well(ranks, 2)

    def test_who_lives_is_not_blamed(self):
        binomial = lambda: self.does_something_else(DDL_BROADCAST="binomial")  # noqa: E731
        self.at_once((self.goes_on_in_time,), (self.does_something_else,), (binomial,), (self.stood_still_itself,))


class Late(Failures):
    """A rank does not enter an operation."""

    LIMIT = 2

    def test_a_function_for_the_log_that_hangs_keeps_nobody_from_the_deadline(self):
        """Nor do those others wait for whom it was set."""
        world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s", DDL_WARN_AFTER="0.2s")
        ranks = world.start_all("init", SMALL, LARGE, others={1: ["stuck_log", "init", SMALL, LARGE],
                                                              2: ["init", SMALL, "line"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for rank in ranks[:2]:
            record = rank.expect("call", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 2, record)
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), self.LIMIT + bound(1), record)

    def check(self, nranks, late, call):
        world = self.world(nranks, DDL_TIMEOUT=f"{self.LIMIT}s")
        ranks = world.start_all("init", SMALL, call, SMALL, "free",
                                others={r: ["init", SMALL, "line", call, SMALL, SMALL, "free"] for r in late})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for r in late:
            ranks[r].expect("ready")
        for r, rank in enumerate(ranks):
            if r in late:
                continue
            record = rank.next()
            self.assertEqual(record["status"], "DDL_ETIMEDOUT", rank.story())
            took = self.seconds(record["begin_ns"], record["end_ns"])
            self.assertGreater(took, self.LIMIT - 1.1, record)  # another rank may have entered earlier
            self.assertLess(took, self.LIMIT + bound(1), record)
            self.assertEqual(record["culprit"], min(late), record)
            self.assert_names(record, f"rank {min(late)}", "DDL_TIMEOUT")
            self.assert_gone_bad(rank)
        for r in late:
            ranks[r].go()
            # What the others sent before they gave up may complete it here; then the next call tells.
            record = ranks[r].expect("call")
            completed = record["status"] == "DDL_OK"
            if completed:
                record = ranks[r].next()
            self.assertEqual((record["status"], record.get("culprit")), ("DDL_ETIMEDOUT", min(late)),
                             ranks[r].story())
            if not completed:
                ranks[r].expect("call", "DDL_EABORTED")
            self.assert_gone_bad(ranks[r])
        for rank in ranks:
            rank.finish(0)

    def test_allreduce(self):
        self.at_once((self.check, 3, [2], SMALL), (self.check, 4, [1, 3], SMALL), (self.check, 3, [1], LARGE))

    def test_others(self):
        self.at_once(*((self.check, 3, [0], call) for call in (
            "barrier", "broadcast:10:int32:0", "reduce:1000000:float32:sum:1", "allgather:10:int32",
            "alltoall:50000:int32")))

    def test_who_comes_once_all_have_given_up_is_not_let_through(self):
        """A repeated call that could be done at once, by what the others have left on the board."""
        def check(call):
            world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s")
            ranks = world.start_all("init", call, call, call, "line",
                                    others={1: ["init", call, call, "line", call]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("call", "DDL_OK")
            ranks[1].expect("ready")
            for rank in (ranks[0], ranks[2]):
                record = rank.expect("call", "DDL_ETIMEDOUT")
                self.assertEqual(record["culprit"], 1, record)
            time.sleep(bound(0.5))  # it is told, but runs nothing that would read it
            ranks[1].go()
            record = ranks[1].expect("call", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 1, record)

        self.at_once((check, SMALL), (check, "barrier"), (check, "allgather:10:int32"))

    def check_innocent(self, call, root):
        """The root is in the call, and waits; for the others, who are through, it is late for the next one."""
        world = self.world(4, DDL_TIMEOUT=f"{self.LIMIT}s")
        ranks = world.start_all("init", SMALL, call, "barrier", others={2: ["init", SMALL, "line", call]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for r in (0, 1, 3):
            record = ranks[r].next()
            if r != root and record["status"] == "DDL_OK":
                record = ranks[r].next()
            self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 2), ranks[r].story())
            self.assert_names(record, "rank 2", "DDL_TIMEOUT")

    def test_who_waits_for_another_is_not_to_blame(self):
        self.at_once(*((self.check_innocent, call, root) for call, root in (
            ("reduce:1000:float32:sum:1", 1), ("gather:1000:int32:0", 0), ("reduce:10:float32:sum:3", 3))))

    def check_warned(self, call, late, speaker, **environment):
        """Long before the deadline one of those who wait says for whom, and again after twice as long."""
        world = self.world(4, DDL_WARN_AFTER=f"{bound(1):g}s", **environment)
        ranks = world.start_all("init", SMALL, call, "barrier", "free",
                                others={r: ["init", SMALL, "line", call, "barrier", "free"] for r in late})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        time.sleep(bound(3.2))
        for r in late:
            ranks[r].expect("ready")
            ranks[r].go()
        end_well(ranks, "call", "call", "free")
        for r, rank in enumerate(ranks):
            said = [line for line in "".join(rank.errors).splitlines() if "waiting for" in line and "#2 " in line]
            if r == speaker:
                self.assertGreaterEqual(len(said), 2, rank.story())
                self.assertRegex(said[0], rf"ddl: {call.split(':')[0]}#2 comm=world rank {r}@\S+: waiting for \d+\.\d s: "
                                 rf"rank {late[0]} \(pid \d+ on \S+\) has not entered it(, nor ha.*)?"
                                 r"; \d+ s left \(DDL_TIMEOUT\)$")
                others = ["", ", nor has another", ", nor have 2 others"][len(late) - 1]
                self.assertIn(f" has not entered it{others}; ", said[-1], rank.story())
            elif r not in late and r != 0:  # the lowest and a root may both wait
                self.assertEqual(said, [], rank.story())

    def check_warned_of_silence(self):
        """Whoever stands still may have entered it for all that is known."""
        world = self.world(2, DDL_WARN_AFTER="7s", DDL_UNREACH_TIMEOUT="2s")  # of which a quarter passes before it looks for signs
        ranks = world.start_all("init", SMALL, SMALL, others={1: ["init", SMALL, "line", SMALL]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[1].expect("ready")
        os.kill(ranks[1].pid, signal.SIGSTOP)
        told = r"rank 1 \(.*\) has not entered it, as far as is known: it is not heard for \d+ s; "
        deadline = time.monotonic() + bound(15)
        while not re.search(told, "".join(ranks[0].errors)):
            self.assertLess(time.monotonic(), deadline, ranks[0].story())
            time.sleep(0.05)

    def test_who_is_waited_for_is_told_in_time(self):
        self.at_once((self.check_warned, SMALL, [2], 0), (self.check_warned, SMALL, [0, 2], 1),
                     (self.check_warned, SMALL, [0, 1, 2], 3), (self.check_warned, "broadcast:300000:int32:0", [0], 1),
                     (self.check_warned, "gather:300000:int32:3", [1], 3), (self.check_warned_of_silence,))
        # Of these only 3, which the late one is to pass it on to, waits for it.
        self.check_warned("broadcast:10:int32:0", [2], 3, DDL_BROADCAST="binomial", DDL_TRANSPORT="tcp")

    def test_of_several_the_lowest_is_named(self):
        """Also by those that wait for another one of them, or for none."""
        self.at_once(*((self.check, 4, [0, 3], call) for call in (
            "broadcast:10:int32:3", "broadcast:300000:int32:3", "scatter:300000:int32:3")))

    def check_stopped(self, in_a_wait):
        """Whose process stands still when its time is over, be it in the call or before it waits, hears why it
        ended all the same, and when it hears of it the library is done with the buffers."""
        world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s")
        stopped = ["init", SMALL, "+" + SMALL, "line", "wait"] if in_a_wait else ["init", SMALL, SMALL]
        ranks = world.start_all("init", SMALL, SMALL, "free",
                                others={0: ["init", SMALL, "line"], 1: [*stopped, SMALL, "free"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        if in_a_wait:
            ranks[1].expect("started", "DDL_OK")
            ranks[1].expect("ready")
        time.sleep(self.LIMIT / 2)  # it waits, and has told so
        os.kill(ranks[1].pid, signal.SIGSTOP)
        record = ranks[2].expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 0, record)
        time.sleep(self.LIMIT)
        if in_a_wait:
            ranks[1].go()
        os.kill(ranks[1].pid, signal.SIGCONT)
        continued = time.monotonic_ns()
        record = ranks[1].expect("wait" if in_a_wait else "call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 0, record)
        self.assert_names(record, "rank 0", "DDL_TIMEOUT")
        self.assert_within(record, continued, 1)
        self.assert_gone_bad(ranks[1])

    def test_whose_process_stood_still_meanwhile(self):
        self.at_once((self.check_stopped, False), (self.check_stopped, True))

    def begin_all_but_rank_0(self, **environment):
        """1 is in a call and 2 has started it; the others' limit is reached in it unless 0 comes."""
        world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s", **environment)
        ranks = world.start_all("init", SMALL, SMALL, "free", others={
            0: ["init", SMALL, "line", SMALL, "free"], 2: ["init", SMALL, "+" + SMALL, "line", "wait", "free"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[2].expect("started", "DDL_OK")
        for r in 0, 2:
            ranks[r].expect("ready")
        return ranks

    def stop_all(self, ranks, seconds):
        for number in signal.SIGSTOP, signal.SIGCONT:
            for rank in ranks:
                os.kill(rank.pid, number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)

    def check_all_stopped(self, transport):
        """As by Ctrl-Z: for longer than the limit, and then they have the rest of their time."""
        ranks = self.begin_all_but_rank_0(DDL_TRANSPORT=transport)
        time.sleep(self.LIMIT / 2)
        self.stop_all(ranks, 1.5 * self.LIMIT)
        time.sleep(self.LIMIT / 8)
        ranks[0].go()
        ranks[2].go()
        for rank, event in zip(ranks, ("call", "call", "wait")):
            rank.expect(event, "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def check_limit_after_stop(self):
        ranks = self.begin_all_but_rank_0()
        time.sleep(self.LIMIT / 2)
        self.stop_all(ranks, 1.5 * self.LIMIT)
        continued = time.monotonic_ns()
        record = ranks[1].expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 0, record)
        self.assertGreater(self.seconds(continued, record["end_ns"]), self.LIMIT / 4)
        self.assert_within(record, continued, self.LIMIT / 2 + 1)

    def check_seldom_run(self):
        """Who gets no CPU most of the time has no more time than others for that."""
        ranks = self.begin_all_but_rank_0()
        begun = time.monotonic()
        while time.monotonic() - begun < 4 * self.LIMIT:
            self.stop_all(ranks, 1.2)
            time.sleep(0.05)
        record = ranks[1].expect("call", "DDL_ETIMEDOUT")
        # They run, and find it out and settle it, for 50 ms in each 1.25 s.
        self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), 2 * self.LIMIT + bound(2) + 1.25, record)

    def test_time_in_which_all_were_stopped_does_not_count(self):
        self.at_once((self.check_all_stopped, "auto"), (self.check_all_stopped, "tcp"), (self.check_limit_after_stop,),
                     (self.check_seldom_run,))

    def test_a_receive_without_a_send(self):
        world = self.world(2, DDL_TIMEOUT="1s")
        ranks = [world.start(0, "init", SMALL, "recv:10:int32:1", SMALL, "free"),
                 world.start(1, "init", SMALL, "line")]
        ranks[0].expect("init", "DDL_OK")
        ranks[0].expect("call", "DDL_OK")
        record = ranks[0].expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 1, record)
        self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), 1 + bound(1))
        self.assert_gone_bad(ranks[0])

    def check_elsewhere(self, call, words):
        """All are told whose message it is that did not end, also those that are in something else."""
        world = self.world(3, DDL_TIMEOUT="60s")
        ranks = [world.start(0, "init", SMALL, "barrier"), world.start(1, "init", SMALL, "line", "barrier"),
                 world.start(2, "init", SMALL, call, DDL_TIMEOUT="1s")]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for r in (0, 2):
            record = ranks[r].expect("call", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 1, record)
            self.assertRegex(record["text"], rf"{'barrier#2' if r == 0 else call.split(':')[0] + '#1'} comm=world rank {r}@\S+: "
                                             rf"rank 1 \(pid \d+ on \S+\) has not {words} within")

    def test_a_message_that_does_not_end_is_told_as_such_by_all(self):
        self.at_once((self.check_elsewhere, "recv:10:int32:1", r"sent all of what rank 2 receives \(recv#1\)"),
                     (self.check_elsewhere, "send:2000000:int32:1", r"taken all of what rank 2 sends \(send#1\)"))

    def test_started_and_never_waited_for(self):
        """The deadline holds without anybody waiting: a later wait returns at once."""
        world = self.world(2, DDL_TIMEOUT="1s")
        late = world.start(1, "init", SMALL, "line")
        rank = world.start(0, "init", SMALL, "+" + SMALL, "line", "wait", SMALL, "free")
        rank.expect("init", "DDL_OK")
        rank.expect("call", "DDL_OK")
        started = rank.expect("started", "DDL_OK")
        rank.expect("ready")
        late.expect("init", "DDL_OK")
        late.expect("call", "DDL_OK")
        late.expect("ready")
        rank.go()
        record = rank.expect("wait", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 1, record)
        self.assertLess(self.seconds(started["begin_ns"], record["end_ns"]), 1 + bound(1))
        self.assert_gone_bad(rank)

    def test_an_argument_error_changes_nothing(self):
        """The peers entered, wait, and time out naming the rank whose call was refused."""
        world = self.world(2, DDL_TIMEOUT="1s")
        good = world.start(0, "init", "allreduce:8:float32:sum", SMALL, "free")
        bad = world.start(1, "init", "allreduce:8:float32:band", "line", SMALL)
        bad.expect("init", "DDL_OK")
        bad.expect("call", "DDL_EINVAL")
        bad.expect("ready")
        good.expect("init", "DDL_OK")
        record = good.expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 1, record)
        self.assert_gone_bad(good)


class Configuration(Failures):
    """Wrong settings: a clear error quickly, never a hang and never silent worlds of one."""

    # environment (None: unset), codes that fit, words that the text must have
    WRONG = [
        ({"WORLD_SIZE": None}, ["DDL_ECONFIG"], ["RANK", "WORLD_SIZE"]),
        ({"RANK": None}, ["DDL_ECONFIG"], ["RANK", "WORLD_SIZE"]),
        ({"WORLD_SIZE": "abc"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "abc"]),
        ({"WORLD_SIZE": ""}, ["DDL_ECONFIG"], ["WORLD_SIZE"]),
        ({"WORLD_SIZE": "0"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "0"]),
        ({"WORLD_SIZE": "-4"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "-4"]),
        ({"WORLD_SIZE": "4x"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "4x"]),
        ({"WORLD_SIZE": "99999999999999999999"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "99999999999999999999"]),
        ({"RANK": "9"}, ["DDL_ECONFIG"], ["RANK", "9", "4"]),
        ({"RANK": "4"}, ["DDL_ECONFIG"], ["RANK", "4"]),
        ({"RANK": "-1"}, ["DDL_ECONFIG"], ["RANK", "-1"]),
        ({"RANK": "one"}, ["DDL_ECONFIG"], ["RANK", "one"]),
        ({"MASTER_ADDR": None}, ["DDL_ECONFIG"], ["MASTER_ADDR"]),
        ({"MASTER_ADDR": "10.0.0.1:2950"}, ["DDL_ECONFIG"], ["MASTER_ADDR=10.0.0.1 and MASTER_PORT=2950"]),
        ({"MASTER_PORT": None}, ["DDL_ECONFIG"], ["MASTER_PORT"]),
        ({"MASTER_PORT": "http"}, ["DDL_ECONFIG"], ["MASTER_PORT", "http"]),
        ({"MASTER_PORT": "65536"}, ["DDL_ECONFIG"], ["MASTER_PORT", "65536"]),
        ({"MASTER_PORT": "-1"}, ["DDL_ECONFIG"], ["MASTER_PORT", "-1"]),
        ({"MASTER_ADDR": "no-such-host.invalid"}, ["DDL_ENETWORK", "DDL_ECONFIG"], ["no-such-host.invalid"]),
        ({"MASTER_ADDR": "not a host"}, ["DDL_ENETWORK", "DDL_ECONFIG"], ["not a host"]),
        ({"MASTER_ADDR": "192.0.2.1"}, ["DDL_ENETWORK", "DDL_ECONFIG"], ["192.0.2.1"]),
        ({"DDL_TIMEOUT": "soon"}, ["DDL_ECONFIG"], ["DDL_TIMEOUT", "soon"]),
        ({"DDL_TIMEOUT": "0"}, ["DDL_ECONFIG"], ["DDL_TIMEOUT", "0"]),
        ({"DDL_TIMEOUT": "-5s"}, ["DDL_ECONFIG"], ["DDL_TIMEOUT", "-5s"]),
        ({"DDL_START_TIMEOUT": "5 lightyears"}, ["DDL_ECONFIG"], ["DDL_START_TIMEOUT", "5 lightyears"]),
        ({"DDL_TRANSPORT": "pigeon"}, ["DDL_ECONFIG"], ["DDL_TRANSPORT", "pigeon", "tcp"]),
        ({"DDL_IFACE": "nosuch0"}, ["DDL_ENETWORK"], ["DDL_IFACE", "nosuch0", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "203.0.113.0/24"}, ["DDL_ENETWORK"], ["DDL_IFACE", "203.0.113.0/24", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "nosuch0,203.0.113.0/24"}, ["DDL_ENETWORK"], ["DDL_IFACE", "nosuch0,203.0.113.0/24", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "lo,10.0.0/8"}, ["DDL_ECONFIG"], ["DDL_IFACE", "10.0.0/8", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "^0.0.0.0/0,::/0"}, ["DDL_ENETWORK"], ["DDL_IFACE", "^0.0.0.0/0", "leaves nothing", "lo 127.0.0.1"]),
        ({"DDL_TLS_CERT": "/no/such"}, ["DDL_ECONFIG"], ["DDL_TLS_CERT", "DDL_SECURITY", "nothing would be encrypted"]),
        ({"DDL_TLS_CA": "/no/such"}, ["DDL_ECONFIG"], ["DDL_TLS_CA", "DDL_SECURITY"]),
        ({"DDL_PORT_RANGE": "30000:30010"}, ["DDL_ECONFIG"], ["DDL_PORT_RANGE", "30000:30010", "30000-30099"]),
        ({"DDL_PORT_RANGE": "30010-30000"}, ["DDL_ECONFIG"], ["DDL_PORT_RANGE", "30010-30000", "65535"]),
        ({"DDL_ADVERTISE": "0.0.0.0"}, ["DDL_ECONFIG"], ["DDL_ADVERTISE", "0.0.0.0", "lo 127.0.0.1"]),
        ({"DDL_ADVERTISE": "203.0.113.7:31000"}, ["DDL_ECONFIG"], ["DDL_ADVERTISE", "31000", "DDL_PORT_RANGE"]),
        ({"DDL_ADVERTISE": "no-such-host.invalid"}, ["DDL_ENETWORK"], ["DDL_ADVERTISE", "no-such-host.invalid"]),
        ({"DDL_STORE": "carrier://pigeon"}, ["DDL_ECONFIG"], ["DDL_STORE", "carrier"]),
        ({"DDL_ALLREDUCE": "quantum"}, ["DDL_ECONFIG"], ["DDL_ALLREDUCE", "quantum", "ring"]),
    ]

    def test_the_deadline_is_kept_on_a_long_way_to_the_meeting(self):
        """Who gives up finds out who is missing in a few questions, not one for each rank."""
        world = self.world(200, DDL_CONNECT="lazy")
        world.start(0, "init", DDL_START_TIMEOUT="60s")
        world.ranks[0].await_ports()
        relay = Relay(world.port, 0.05)
        self.addCleanup(relay.cut)
        record = world.start(1, "init", DDL_START_TIMEOUT="3s", MASTER_PORT=relay.port).expect("init", "DDL_ETIMEDOUT")
        self.assert_names(record, "ranks 2-199 of 200 (joined: 0-1 on ")
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(4), record)

    def test_wrong_settings_are_told(self):
        for i in range(0, len(self.WRONG), 6):  # who tells the others waits for those that may be about to come
            self.at_once(*[(self.check_wrong, *wrong) for wrong in self.WRONG[i:i + 6]])

    def check_wrong(self, environment, codes, words):
        world = self.world(4)
        rank = world.start(0, "init", **environment)
        record = rank.next()
        self.assertIn(record["status"], codes, rank.story())
        self.assertEqual(record["status"], record["code"], record)
        self.assertEqual(record["operation"], "init", record)
        self.assert_names(record, *words)
        self.assert_within(record, record["begin_ns"], 1.5 if "DDL_IFACE" in environment else 2)
        rank.finish(0)

    def test_an_unknown_name_on_a_later_rank(self):
        world = self.world(4)
        rank = world.start(2, "init", MASTER_ADDR="no-such-host.invalid", DDL_START_TIMEOUT="1s")  # else 10 s, as it may be new
        record = rank.next()
        self.assertIn(record["status"], ("DDL_ENETWORK", "DDL_ECONFIG"), rank.story())
        self.assert_names(record, "no-such-host.invalid")
        self.assert_within(record, record["begin_ns"], 2)

    def test_a_scheduler_without_an_address(self):
        schedulers = [("Slurm", {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}),
                      ("Open MPI", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}),
                      ("PMI", {"PMI_RANK": "1", "PMI_SIZE": "4"}), ("PALS", {"PALS_RANKID": "1", "PMI_SIZE": "4"}),
                      ("Horovod", {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}), ("Flux", {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"}),
                      ("Flux", {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4", "PMI_RANK": "1", "PMI_SIZE": "4"}),
                      ("PALS", {"PALS_RANKID": "1", "PMI_RANK": "1", "PMI_SIZE": "4"}),
                      ("MVAPICH", {"MVP_COMM_WORLD_RANK": "1", "MVP_COMM_WORLD_SIZE": "4"}),
                      ("MVAPICH2", {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"}),
                      ("jsrun", {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "4"})]
        for name, variables in schedulers:
            with self.subTest(**variables):
                world = self.world(1)
                rank = world.start(0, "init", RANK=None, WORLD_SIZE=None, MASTER_ADDR=None, MASTER_PORT=None,
                                   **variables)
                record = rank.next()
                self.assertEqual(record["status"], "DDL_ECONFIG", rank.story())
                self.assert_names(record, f"started by {name} as", "MASTER_ADDR", "MASTER_PORT")

    def test_half_of_what_a_launcher_sets(self):
        """Several ranks are not as many worlds of one."""
        halves = [{"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, {"OMPI_COMM_WORLD_RANK": "3"}, {"PMI_RANK": "1"},
                  {"OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "0"}, {"PMIX_RANK": "1"}, {"HOROVOD_RANK": "0"},
                  {"DDL_LAUNCH": "1/2"}, {"DDL_LAUNCH": "0/2"}]
        for variables in halves:
            with self.subTest(**variables):
                rank = self.world(1).start(0, "init", RANK=None, WORLD_SIZE=None, **variables)
                record = rank.next()
                self.assertEqual(record["status"], "DDL_ECONFIG", rank.story())
                self.assert_names(record, "RANK", "WORLD_SIZE", *variables.values() if "DDL_LAUNCH" in variables else
                                  list(variables)[:1])

    def test_nothing_set_is_a_world_of_one(self):
        """Nor is anything said by a batch script of Slurm, which is the first of its tasks."""
        for variables in ({}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, {"DDL_LAUNCH": "0/1"}):
            world = self.world(1)
            rank = world.start(0, "init", "facts", SMALL, "free", RANK=None, WORLD_SIZE=None, MASTER_ADDR=None,
                               MASTER_PORT=None, **variables)
            rank.expect("init", "DDL_OK")
            self.assertEqual(rank.expect("facts")["size"], 1)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_a_place_to_meet_alone_is_a_world_of_one_that_says_so(self):
        for variables in ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, {"DDL_STORE": "redis://nowhere:1"}, {"LOCAL_RANK": "1"}, {"PMIX_RANK": "0"}):
            with self.subTest(**variables):
                rank = self.world(1).start(0, "init", SMALL, "free", **{"RANK": None, "WORLD_SIZE": None, "MASTER_ADDR": None,
                                                                        "MASTER_PORT": None, **variables})
                for event in ("init", "call", "free"):
                    rank.expect(event, "DDL_OK")
                rank.finish(0)
                self.assertIn(f"a world of one: {list(variables)[0]} is set, but neither RANK nor WORLD_SIZE", "".join(rank.errors))

    def test_worlds_of_one_below_a_rank_of_the_launcher_say_so(self):
        """ddl-launch -np 1 mpirun -np 2 ./program: RANK and WORLD_SIZE count, and are the same for both."""
        for launched, size, told in (("0/1", "2", True), ("0/1", "1", False), (None, "2", False)):
            with self.subTest(launched=launched, size=size):
                rank = self.world(1).start(0, "init", SMALL, "free", RANK="0", WORLD_SIZE="1", DDL_LAUNCH=launched,
                                           OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE=size)
                for event in ("init", "call", "free"):
                    rank.expect(event, "DDL_OK")
                rank.finish(0)
                self.assertEqual("a world of one: ddl-launch has started one rank, and Open MPI below it 2 processes"
                                 in "".join(rank.errors), told)

    def test_an_impossible_algorithm_is_an_error(self):
        """recursive doubling is for powers of two: forced on three ranks it is refused, not replaced."""
        world = self.world(3, DDL_ALLGATHER="doubling")
        for rank in world.start_all("init", "allgather:10:int32", "free"):
            record = rank.next()
            if record["status"] == "DDL_OK":
                record = rank.next()
            self.assertEqual(record["status"], "DDL_ECONFIG", rank.story())
            self.assert_names(record, "DDL_ALLGATHER", "doubling", "3")

    def test_port_in_use(self):
        for address in ("127.0.0.1", "0.0.0.0"):
            with self.subTest(address=address), socket.socket() as other:
                other.bind((address, 0))
                other.listen(1)
                world = self.world(2)
                world.port = other.getsockname()[1]
                rank = world.start(0, "init")
                record = rank.expect("init", "DDL_ENETWORK")
                self.assert_names(record, f"port {world.port} on 127.0.0.1")
                self.assertEqual(record["os_errno"], errno.EADDRINUSE, record)
                self.assert_within(record, record["begin_ns"], 1)

    def test_a_second_init_at_the_place_of_the_first(self):
        world = self.world(2)
        ranks = world.start_all("init", SMALL, "free", others={0: ["init", "init", SMALL, "free"]})
        ranks[0].expect("init", "DDL_OK")
        record = ranks[0].expect("init", "DDL_ENETWORK")
        self.assert_names(record, f"port {world.port} on 127.0.0.1", "in this very process", "free that communicator")
        for rank in ranks:
            rank.close()

    def test_who_never_comes_is_named(self):
        self.at_once((self.check_peers_never_come,), (self.check_rank_0_never_comes,), (self.check_progress_is_told,),
                     (self.check_a_crowd_is_quiet,),
                     (self.check_who_waits_longer_hears_of_it,), (self.check_rank_0_stops_while_others_wait,),
                     (self.check_something_else_closes_every_call,))

    def check_peers_never_come(self):
        world = self.world(4, DDL_START_TIMEOUT="2s")
        ranks = [world.start(r, "init") for r in (0, 2)]
        for rank in ranks:
            record = rank.expect("init", "DDL_ETIMEDOUT")
            self.assert_within(record, record["begin_ns"], 3)
            self.assert_names(record, f"ranks 1, 3 of 4 (joined: 0, 2 on {socket.gethostname()})", "DDL_START_TIMEOUT")
            self.assertEqual(record["culprit"], 1, record)
            rank.finish(0)

    def check_who_waits_longer_hears_of_it(self):
        """Who was started first gives up first, and all the others with it."""
        world = self.world(3)
        ranks = [world.start(0, "init"), world.start(1, "init", DDL_START_TIMEOUT="2s")]
        records = [rank.expect("init", "DDL_ETIMEDOUT") for rank in ranks]
        for rank, record in zip(ranks, records):
            self.assert_within(record, records[1]["end_ns"], 1)
            self.assert_names(record, f"rank 2 of 3 (joined: 0-1 on {socket.gethostname()})")
            self.assertEqual(record["culprit"], 2, record)
            rank.finish(0)

    def await_connections(self, port, count):
        """That have been accepted there, or are about to be."""
        def connections():
            with open("/proc/net/tcp", encoding="ascii") as table:
                rows = [line.split() for line in table.readlines()[1:]]
            return sum(row[1].endswith(f":{int(port):04X}") and row[3] == "01" for row in rows)
        wait_until(lambda: connections() >= count, bound(2), f"{count} connections to port {port}")

    def check_rank_0_stops_while_others_wait(self):
        world = self.world(8)
        ranks = [world.start(r, "init", **({"DDL_START_TIMEOUT": "3s"} if r else {})) for r in range(3)]
        self.await_connections(world.port, 2)
        await_rest(ranks)  # they have joined
        os.kill(ranks[0].pid, signal.SIGSTOP)
        for rank in ranks[1:]:
            record = rank.expect("init", "DDL_ETIMEDOUT")
            self.assert_within(record, record["begin_ns"], 4.5)
            self.assert_names(record, "rank 0 at tcp://", "does not answer")
            self.assertEqual(record["culprit"], 0, record)
            rank.finish(0)
        os.kill(ranks[0].pid, signal.SIGCONT)
        ranks[0].expect("init")
        ranks[0].finish(0)

    def check_rank_0_never_comes(self):
        world = self.world(3, DDL_START_TIMEOUT="2s")
        ranks = [world.start(r, "init") for r in (1, 2)]
        for rank in ranks:
            record = rank.expect("init")
            self.assertIn(record["status"], ("DDL_ETIMEDOUT", "DDL_ENETWORK"), record)
            self.assert_within(record, record["begin_ns"], 3)
            self.assert_names(record, world.port)
            rank.finish(0)

    def check_something_else_closes_every_call(self):
        """It is called again and again, and told what was seen of it, whatever the deadline cuts short."""
        calls = []

        def close_all(door):
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = door.accept()
                    caller.close()
                    calls.append(time.monotonic())
        with socket.create_server(("127.0.0.1", 0)) as door:
            world = self.world(3, DDL_START_TIMEOUT="2s")
            world.port = door.getsockname()[1]
            closer = threading.Thread(target=close_all, args=(door,))
            closer.start()
            try:
                rank = world.start(1, "init")
                record = rank.expect("init", "DDL_ETIMEDOUT")
            finally:
                door.shutdown(socket.SHUT_RDWR)
                closer.join()
        self.assertGreater(len(calls), 20)  # one in 50 ms
        self.assert_within(record, record["begin_ns"], 3)
        self.assert_names(record, "rank 0 did not open the meeting place", world.port)
        self.assertEqual(record["culprit"], 0, record)
        rank.finish(0)

    def check_progress_is_told(self):
        """By rank 0, and by the first rank of each other host, or who does not know that it is another."""
        world = self.world(4, DDL_START_TIMEOUT="7s")
        ranks = [world.start(0, "init"), world.start(1, "init"), world.start(2, "init", LOCAL_RANK=1)]
        for rank, tells in zip(ranks, (1, 1, 0)):
            rank.expect("init", "DDL_ETIMEDOUT")
            rank.finish(0)
            said = "".join(rank.errors)
            self.assertEqual(said.count("waiting for rank 3 of 4 (joined: 0-2 on 1 host), "), tells, said)
            self.assertNotIn("~/.ddl/secret", said)  # which no rank of this host needs

    def check_a_crowd_is_quiet(self):
        """Nobody says which ranks are the first of their hosts, and all would ask the store for all."""
        world = self.world(65, DDL_START_TIMEOUT="7s")
        ranks = [world.start(r, "init") for r in (0, 1)]
        for rank, tells in zip(ranks, (1, 0)):
            rank.expect("init", "DDL_ETIMEDOUT")
            rank.finish(0)
            self.assertEqual("".join(rank.errors).count("waiting for ranks 2-64 of 65"), tells, rank.story())

    def test_duplicate_rank_during_start(self):
        """Of two that come as rank 1 exactly one is refused, at once, and the job goes on with the other."""
        world = self.world(3)
        commands = ["init", SMALL, "free"]
        job = [world.start(0, *commands)]
        twins = [world.start(1, *commands), world.start(1, *commands)]
        latecomer = wait_until(lambda: next((twin for twin in twins if not twin.records.empty()), None), DEADLINE,
                               lambda: "one twin is refused; " + twins[0].story() + twins[1].story())
        record = latecomer.expect("init", "DDL_ECONFIG")
        self.assert_names(record, "rank 1", *[f"[{twin.pid}]" for twin in twins])
        self.assert_within(record, record["begin_ns"], 1)
        job += [twin for twin in twins if twin is not latecomer]
        job.append(world.start(2, *commands))
        end_well(job, "init", "call", "free")

    def test_duplicate_rank_once_the_job_runs(self):
        world = self.world(2)
        ranks = world.start_all("init", SMALL, "line", LARGE, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        late = world.start(1, "init")
        record = late.expect("init", "DDL_ECONFIG")
        self.assert_names(record, "rank 1", f"[{ranks[1].pid}]", f"[{late.pid}]")
        self.assert_within(record, record["begin_ns"], 1)
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")

    def test_wrong_world_size_on_one_rank(self):
        world = self.world(3)
        ranks = [world.start(0, "init"), world.start(1, "init", WORLD_SIZE=5)]
        records = [rank.expect("init", "DDL_ECONFIG") for rank in ranks]
        contact = max(record["begin_ns"] for record in records)
        for rank, record in zip(ranks, records):
            self.assert_names(record, f"[{ranks[1].pid}] has world size 5", "rank 0 on ",
                              f"[{ranks[0].pid}] has world size 3", "WORLD_SIZE")
            self.assertEqual(record["culprit"], 1, record)
            self.assert_within(record, contact, 1)
            rank.finish(0)

    def test_who_comes_to_a_running_job_of_another_kind_is_told(self):
        """Over a file store nobody of it waits for callers any more. Another size, of ranks that it has or not; another secret."""
        with tempfile.TemporaryDirectory(prefix="ddl-place-") as folder:
            secret = os.path.join(folder, "other")
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write("5" * 64)
            world = self.world(3, DDL_STORE=f"file://{folder}")
            running = world.start_all("init", "line", SMALL, "free")
            for rank in running:
                rank.expect("init", "DDL_OK")
                rank.expect("ready")
            cases = ((3, {"WORLD_SIZE": 4}, "DDL_ECONFIG", "world size 4"), (1, {"WORLD_SIZE": 4}, "DDL_ECONFIG", "world size 4"),
                     (2, {"DDL_SECRET_FILE": secret}, "DDL_EAUTH", "secret"))
            for rank, environment, status, words in cases:
                with self.subTest(rank=rank, status=status):
                    record = world.start(rank, "init", **environment).expect("init", status)
                    self.assert_names(record, words)
                    self.assert_within(record, record["begin_ns"], 2.5)
            for rank in running:
                rank.go()
            end_well(running, "call")

    def test_who_comes_just_after_the_failure_hears_of_it(self):
        """All were started together, and somebody is always the last."""
        with tempfile.TemporaryDirectory(prefix="ddl-late-") as folder:
            for store in (None, f"file://{folder}"):
                with self.subTest(store):
                    world = self.world(3, DDL_STORE=store)
                    ranks = [world.start(0, "init"), world.start(2, "line", "init")]
                    ranks[1].expect("ready")
                    world.start(1, "init", WORLD_SIZE=5).expect("init", "DDL_ECONFIG")
                    ranks[1].go()
                    record = ranks[1].expect("init", "DDL_ECONFIG")
                    self.assert_names(record, "has world size 5")
                    self.assert_within(record, record["begin_ns"], 1.5)
                    ranks[0].expect("init", "DDL_ECONFIG")

    def test_a_rank_that_dies_during_start(self):
        """While a third is waited for: the server of the store sees the connection end. Who comes just then hears of it."""
        world = self.world(3, DDL_START_TIMEOUT="20s")
        ranks = [world.start(0, "init"), world.start(1, f"mortal:{int(bound(1e6))}", "init"), world.start(2, "line", "init")]
        ranks[2].expect("ready")
        killed = ranks[1].expect("killed")
        ranks[2].go()
        for rank in (ranks[0], ranks[2]):
            record = rank.expect("init", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assert_names(record, f"rank 1 on ", f"[{ranks[1].pid}] ended before all ranks were connected")
            self.assert_within(record, killed["end_ns"], 1)

    def test_what_one_rank_lacks_is_told_to_all(self):
        """Who cannot come says why, also where it finds out before it has met anybody; rank 0 as any other."""
        with socket.socket() as other, tempfile.TemporaryDirectory() as folder:
            other.bind(("", 0))
            other.listen()
            port = other.getsockname()[1]
            interface, ports = ("DDL_IFACE", "nosuch0"), ("DDL_PORT_RANGE", f"{port}-{port}")
            name = ("DDL_ADVERTISE", "no-such-host.invalid")
            for store, lack, culprit in ((None, interface, 2), (None, interface, 0), (None, ports, 2), (None, name, 0),
                                         ("file://" + folder, interface, 0), ("file://" + folder, ports, 0)):
                with self.subTest(store=store, lack=lack, culprit=culprit):
                    self.check_told(self.world(3, DDL_START_TIMEOUT="20s", DDL_STORE=store), "DDL_ENETWORK", culprit, *lack)

    def test_what_is_wrong_with_the_settings_of_one_rank_is_told_to_all(self):
        wrong = [("DDL_PROFILE", "/no/such", 0), ("DDL_TRANSPORT", "pigeon", 0), ("DDL_TRANSPORT", "pigeon", 2),
                 ("DDL_ALLREDUCE", "quantum", 1), ("DDL_LOG", "loud", 2), ("DDL_TIMEOUT", "soon", 0), ("DDL_GPU", "abacus", 1), ("DDL_START_TIMEOUT", "later", 0),
                 ("DDL_PORT_RANGE", "30000:30010", 2)]
        with tempfile.TemporaryDirectory() as folder:
            for store in None, "file://" + folder:
                worlds = [self.world(3, DDL_START_TIMEOUT="20s", DDL_STORE=store) for _ in wrong]
                self.at_once(*[(self.check_told, world, "DDL_ECONFIG", culprit, variable, value)
                               for world, (variable, value, culprit) in zip(worlds, wrong)])

    def test_who_tells_what_is_wrong_keeps_the_limit_of_the_start(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            world = self.world(3, DDL_STORE=f"redis://127.0.0.1:{silent.getsockname()[1]}", DDL_START_TIMEOUT="2s")
            for limit, seconds in ("2s", 2.7), ("10ms", 0.5):
                rank = world.start(0, "init", DDL_TRANSPORT="pigeon", DDL_START_TIMEOUT=limit)
                record = rank.expect("init", "DDL_ECONFIG")
                self.assert_within(record, record["begin_ns"], seconds)

    def test_a_limit_of_descriptors_that_one_rank_has_is_told_to_all(self):
        for culprit in 0, 2:
            world = self.world(200, DDL_START_TIMEOUT="20s", DDL_CONNECT="eager")
            others = [world.start(r, "init") for r in (0, 1, 2) if r != culprit]
            self.await_comers(others)
            begun = time.monotonic_ns()
            few = world.start(culprit, "init", prefix=["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"])
            for rank in [few, *others]:
                record = rank.expect("init", "DDL_ERESOURCE")
                self.assertEqual(record["culprit"], culprit, record)
                self.assert_names(record, f"rank {culprit} on ", f"[{few.pid}]", "64")
                self.assert_within(record, begun, 2)

    def await_comers(self, ranks):
        """Until they call at the place of rank 0, or wait there: who came later would find rank 0 gone."""
        for rank in ranks:
            rank.await_threads(2)
        time.sleep(bound(0.3))

    def check_told(self, world, status, culprit, variable, value):
        ranks = {r: world.start(r, "init") for r in range(3) if r != culprit}
        self.await_comers(ranks.values())
        ranks[culprit] = world.start(culprit, "init", **{variable: value})
        begun = time.monotonic_ns()
        for rank in ranks.values():
            record = rank.expect("init", status)
            self.assertEqual(record["culprit"], culprit, record)
            self.assert_names(record, f"rank {culprit} on ", f"[{ranks[culprit].pid}]: {variable}", value)
            self.assert_within(record, begun, 2)

    def check_tries_again(self, store, name, wrong, right, culprits):
        world = self.world(3, DDL_START_TIMEOUT="20s", DDL_STORE=store)
        ranks = [world.start(r, *([f"set:{name}={wrong}"] if r in culprits else []), "line", "init", f"set:{name}={right}", "init",
                             SMALL, "free") for r in range(3)]
        for rank in ranks:
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        for rank in ranks:
            self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
            record = rank.expect("init", "DDL_OK")
            self.assert_within(record, record["begin_ns"], 3)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_who_tries_another_setting_does_not_hear_of_the_last_try(self):
        """Tried by all, or by one alone. Rank 0 stays a moment for those who have not heard of it; the others are in their
        next try by then."""
        tries = [("DDL_IFACE", "nosuch0", "", (0, 1, 2)), ("DDL_IFACE", "nosuch0", "", (0,)), ("DDL_IFACE", "nosuch0", "", (1,)),
                 ("DDL_TRANSPORT", "pigeon", "auto", (0, 1, 2)), ("DDL_PORT_RANGE", "99-1", "", (0, 1, 2)),
                 ("WORLD_SIZE", "4", "3", (2,))]
        with tempfile.TemporaryDirectory() as folder:
            for store in None, "file://" + folder:
                self.at_once(*[(self.check_tries_again, store, *tried) for tried in tries])

    def test_who_cannot_tell_what_it_lacks_says_so(self):
        world = self.world(3, DDL_TRANSPORT="pigeon")
        with socket.socket() as other:
            other.bind(("127.0.0.1", world.port))
            rank = world.start(0, "init")
            rank.expect("init", "DDL_ECONFIG")
            rank.finish()
        self.assertRegex("".join(rank.errors), f"^ddl: the other ranks are not told .* port {world.port} .* is in use")

    def test_who_fails_by_itself_is_the_culprit_where_there_are_others(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = {"MASTER_PORT": other.getsockname()[1], "DDL_START_TIMEOUT": "2s"}
            name = {"MASTER_ADDR": "no-such-host.invalid", "DDL_START_TIMEOUT": "2s"}
            store = {"DDL_STORE": "file:///no/such"}
            ranks = [(self.world(nranks).start(rank, "init", **setting), culprit) for nranks, rank, setting, culprit in
                     [(2, 0, port, 0), (3, 1, name, 1), (3, 2, store, 2), (1, 0, {"DDL_TRANSPORT": "pigeon"}, -1),
                      (2, 0, {"RANK": None, "DDL_TRANSPORT": "pigeon"}, -1)]]
            for rank, culprit in ranks:
                record = rank.expect("init")
                self.assertIn(record["status"], ("DDL_ENETWORK", "DDL_ESTORE", "DDL_ECONFIG"), record)
                self.assertEqual(record["culprit"], culprit, record)

    def test_what_a_second_rank_of_that_number_lacks_harms_nobody(self):
        world = self.world(3)
        ranks = [world.start(r, "init", SMALL, "free") for r in range(2)]
        self.await_comers(ranks)
        record = world.start(1, "init", DDL_IFACE="nosuch0").expect("init", "DDL_ENETWORK")
        self.assert_names(record, "DDL_IFACE", "nosuch0")
        ranks.append(world.start(2, "init", SMALL, "free"))
        end_well(ranks, "init", "call", "free")


class Lacking(Failures):
    def test_no_memory_for_a_call_is_told_to_all(self):
        """Be it for one that blocks, for one that is only started, or for a split; nobody waits for a deadline."""
        for at, calls in (("api.request:2", (SMALL, LARGE)), ("api.request:2", (SMALL, "+" + LARGE, "wait")),
                          ("api.request:1", ("allgather:10:int32",)), ("api.cards", (SMALL, "split:part:0:0"))):
            for transport in ("shm", "tcp"):
                with self.subTest(at=at, calls=calls, transport=transport):
                    world = self.world(3, DDL_TRANSPORT=transport, DDL_TIMEOUT="20s")
                    ranks = [world.start(r, "init", *calls, "barrier", "free", **({"DDL_FAILPOINTS": at} if r == 1 else {}))
                             for r in range(3)]
                    for rank in ranks:
                        rank.expect("init", "DDL_OK")
                        for call in calls[:-1]:
                            rank.expect("started" if call.startswith("+") else "call", "DDL_OK")
                        record = rank.expect({"wait": "wait", "split:part:0:0": "split"}.get(calls[-1], "call"), "DDL_ENOMEM")
                        self.assertEqual(record["culprit"], 1, record)
                        self.assert_names(record, "rank 1", f"pid {ranks[1].pid}", "no memory")
                        self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(1), record)
                        rank.expect("call", "DDL_EABORTED")
                        rank.expect("free", "DDL_OK")
                        rank.finish(0)
                    for r, rank in enumerate(ranks):
                        self.assertRegex("".join(rank.errors), rf"ddl: DDL_ENOMEM \w+#\d comm=world rank {r}@\S+: rank 1 ")


    def test_who_frees_without_knowing_that_it_is_counted_in_is_left_behind(self):
        """It has called shrink, is out of time, and does nothing for 5 s as it frees, while others count it in."""
        world = self.world(4)
        made = ["init", "split:part:0:0", "use:part", SMALL]
        rest = [*made, f"forever={SMALL}", "timeout:20000", "line", "shrink:rest", "use:rest", SMALL, "shrink:again",
                "use:again", SMALL, "free", "use:rest", "free", "use:part", "free", "free"]
        early = [*made, "abort:enough", "timeout:300", "shrink:rest", "free", "line", "free"]
        ranks = [world.start(r, *(early if r == 2 else rest), DDL_FAILPOINTS="api.shrink_free" if r == 2 else None) for r in range(4)]
        for rank in ranks:
            for event in ("init", "split", "call"):
                rank.expect(event, "DDL_OK")
        others = [ranks[0], ranks[1], ranks[3]]
        for rank in others:
            self.assertEqual(self.next_of_forever(rank)["status"], "DDL_EABORTED", rank.story())
            rank.expect("timeout", "DDL_OK")
            rank.expect("ready")
        for event, status in (("abort", "DDL_OK"), ("timeout", "DDL_OK"), ("shrink", "DDL_ETIMEDOUT")):
            ranks[2].expect(event, status)
        for rank in others:
            rank.go()
        for place, rank in enumerate(others):
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual(record["new_size"], 4, rank.story())
            record = rank.expect("call", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 2, record)
            self.assert_names(record, "was counted in by ddl_comm_shrink, but does not go on")
            self.assert_within(record, record["begin_ns"], 1)
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual((record["new_rank"], record["new_size"]), (place, 3), rank.story())
            self.assert_within(record, record["begin_ns"], 1)
            self.assertTrue(rank.expect("call", "DDL_OK")["exact"])
        ranks[2].expect("free", "DDL_OK")
        ranks[2].expect("ready")
        ranks[2].go()
        for rank in others:
            for _ in range(4):
                rank.expect("free", "DDL_OK")
            rank.finish(0)
        ranks[2].expect("free", "DDL_OK")
        ranks[2].finish(0)

    def test_a_connection_that_one_end_gives_up_is_heard_of_at_the_other(self):
        """Though both processes go on, as after an error of the network that one of them sees."""
        world = self.world(2, DDL_TRANSPORT="tcp", DDL_TIMEOUT="20s")
        ranks = [world.start(r, "init", "1000=" + SMALL, "line", **({"DDL_FAILPOINTS": "mesh.recv:30"} if r == 1 else {}))
                 for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
        for rank in ranks[::-1]:
            record = rank.next()
            while record["event"] != "repeated":
                record = rank.next()
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1 - ranks.index(rank)), rank.story())
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(1), record)


class Forked(Failures):
    """A child that was forked in the middle of the start does not keep what dies with its parent; needs failpoints."""

    def test_once_all_are_connected(self):
        """Rank 0 takes 5 s then, before it says so, or before it begins to make the mesh; no pair is whole without it."""
        for transport, nranks, at in itertools.product(("shm", "tcp"), (2, 3), ("rendezvous.settle", "api.met")):
            with self.subTest(transport=transport, nranks=nranks, at=at):
                world = self.world(nranks, DDL_TRANSPORT=transport, DDL_TIMEOUT=f"{bound(5)}s")
                dying = nranks - 1
                ranks = [world.start(r, *(["forking:2500"] if r == dying else []), "init", SMALL, "line", LARGE,
                                     **({"DDL_FAILPOINTS": at} if r == 0 or at == "api.met" else {})) for r in range(nranks)]
                child = ranks[dying].expect("fork")["child"]
                self.addCleanup(terminate, child)
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    rank.expect("call", "DDL_OK")
                    rank.expect("ready")
                for rank in ranks[:-1]:
                    rank.go()
                time.sleep(bound(0.1))
                ranks[dying].kill()
                killed_ns = time.monotonic_ns()
                for rank in ranks[:-1]:
                    record = rank.expect("call", "DDL_EPEERLOST")
                    self.assertEqual(record["culprit"], dying, record)
                    self.assert_within(record, killed_ns, 1)
                self.assertTrue(alive(child), "the child is to outlive its parent here")
                terminate(child)


class Stuck(Failures):
    """A thread of the library's own does nothing for 5 s, as if a debugger had stopped it: no call waits for it longer
    than it may wait for others, and no harm is done when it goes on."""

    def check(self, stuck, at, call, seconds, *words, others=("init", SMALL, "free")):
        """Rank `stuck` is, where `at` says; what it says of `call`, and what the other rank says after it."""
        world = self.world(2)
        other = world.start(1 - stuck, "line", *others) if others else None
        rank = world.start(stuck, "line", "init", *((SMALL, "free") if call == "free" else ()), "fork:_exit", "line",
                           DDL_FAILPOINTS=at, **({"DDL_START_TIMEOUT": "2s"} if call == "init" else {}))
        self.together([rank, other] if others else [rank])
        if call == "free":
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        record = rank.expect(call, "DDL_ETIMEDOUT")
        self.assertEqual((record["code"], record["rank"]), ("DDL_ETIMEDOUT", stuck), record)
        self.assert_names(record, *words)
        self.assert_within(record, record["begin_ns"], seconds)
        rank.expect("child")  # nothing is left for it that it could close
        self.assertEqual(rank.expect("fork")["ended"], 0)
        rank.expect("ready")
        time.sleep(max(0, 5.5 - self.seconds(record["begin_ns"], time.monotonic_ns())))
        rank.go()
        rank.finish(0)
        if other is not None:
            return other.next()
        return None

    def at_the_start(self, stuck, at, where, others=()):
        return self.check(stuck, at, "init", 3, f"rank {stuck} on ", f" in {where}", "DDL_START_TIMEOUT", others=others)

    def told(self, at, where):
        record = self.at_the_start(1, at, where, others=("init",))
        self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 1), record)
        self.assert_names(record, "rank 1 on ", f" in {where}")

    def left(self, at, where):
        """All others are connected: they see that it has gone."""
        record = self.at_the_start(1, at, where, others=("init",))
        self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1), record)

    def at_the_end(self, at, *words):
        record = self.check(1, at, "free", 6, *words)
        self.assertEqual((record["event"], record["status"]), ("init", "DDL_OK"), record)

    def waited_for(self):
        """Rank 0 looks at the store now and then; a thread that is slow has as long as the start."""
        world = self.world(2)
        for rank in [world.start(stuck, "init", SMALL, "free", DDL_FAILPOINTS=at)
                     for stuck, at in ((0, "io.call:3"), (1, "none"))]:
            record = rank.expect("init", "DDL_OK")
            self.assertGreater(self.seconds(record["begin_ns"], record["end_ns"]), 4)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_service_thread_and_engine(self):
        self.at_once((self.waited_for,), (self.at_the_start, 0, "io.call:1", "opening the store's door;"),
                     (self.at_the_start, 0, "io.event:1", "what came over a connection, and did not come to closing the store's"),
                     (self.told, "io.call:2", "calling other ranks;"),
                     (self.told, "io.event:1", "what came over a connection, and did not come to answering;"),
                     (self.left, "io.call:3", "closing its door to other ranks;"),
                     (self.at_the_end, "io.call:4", "in answering;"),
                     (self.at_the_end, "io.background", "the engine's thread is stuck"))


@unittest.skipUnless("DDL_TEST_NAMING" in os.environ, "nothing can be preloaded here")
class Names(Failures):
    """The system's look-up of a name takes half a minute (naming.c), and is waited for by none: not by its rank beyond ten
    seconds, nor by the end of the process, nor by those who wait for that rank. Addresses are never asked for their names."""

    def world(self, nranks, **environment):
        return super().world(nranks, LD_PRELOAD=os.environ["DDL_TEST_NAMING"], **environment)

    def gives_up(self, number, seconds, **environment):
        rank = self.world(2, DDL_START_TIMEOUT="60s" if seconds == 10 else f"{seconds}s").start(number, "init", **environment)
        self.has_given_up(rank, seconds)

    def has_given_up(self, rank, seconds):
        record = rank.expect("init", "DDL_ENETWORK", bound(20))
        self.assert_names(record, " s to the lookup of host slow.test", "name server")
        tried = float(re.search(r"no answer within (\d+\.\d) s", record["text"]).group(1))
        self.assertLess(abs(tried - seconds), bound(0.5), record)  # a busy machine comes to it a little later
        took = self.seconds(record["begin_ns"], record["end_ns"])
        self.assertGreaterEqual(took, seconds, record)
        self.assertLess(took, seconds + bound(2), record)  # rank 0 stays for 0.85 s, so that who comes just then hears it
        began = time.monotonic()
        rank.finish(0)
        self.assertLess(time.monotonic() - began, bound(1))

    def others_go_on(self):
        """Who hangs has not joined: another may come in its place."""
        world = self.world(3)
        ranks = [world.start(0, "init", SMALL, "free")]
        hangs = world.start(2, "init", DDL_ADVERTISE="slow.test")
        time.sleep(2 * bound(1))  # until it has found rank 0
        began = time.monotonic()
        ranks += [world.start(r, "init", SMALL, "free") for r in (1, 2)]
        end_well(ranks, "init", "call", "free")
        self.assertLess(time.monotonic() - began, bound(5))
        self.has_given_up(hangs, 10)

    def test_a_look_up_that_hangs_holds_nobody(self):
        self.at_once((self.others_go_on,), *((lambda number=number, seconds=seconds, name=name: self.gives_up(
            number, seconds, **{name: "slow.test"}),) for number, seconds, name in (
                (0, 10, "MASTER_ADDR"), (1, 10, "MASTER_ADDR"), (1, 2, "MASTER_ADDR"), (0, 10, "DDL_ADVERTISE"))))


@unittest.skipUnless("DDL_TEST_JUMPING" in os.environ, "nothing can be preloaded here")
class Clocks(Failures):
    """The clock on the wall jumps by an hour, to and fro, all the time (jumping.c): nobody notices."""

    def world(self, nranks, **environment):
        return super().world(nranks, LD_PRELOAD=os.environ["DDL_TEST_JUMPING"], **environment)

    def computes(self, **environment):
        world = self.world(3, **environment)
        for rank in world.start_all("init", f"2000={SMALL}", f"3={LARGE}", "free"):
            rank.expect("init", "DDL_OK", 30 * bound(1))
            self.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 2000)
            self.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 3)
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def meets_at_files(self):
        with tempfile.TemporaryDirectory(prefix="ddl-clock-") as folder:
            self.computes(DDL_STORE=f"file://{folder}")

    def ends_in_time(self, record, status):
        """Neither early nor late: after one second."""
        self.assertEqual(record["status"], status, record)
        took = self.seconds(record["begin_ns"], record["end_ns"])
        self.assertGreaterEqual(took, 1, record)
        self.assertLess(took, bound(2), record)

    def waits_for_a_rank(self):
        self.ends_in_time(self.world(2).start(0, "init", DDL_START_TIMEOUT="1s").next(), "DDL_ETIMEDOUT")

    def waits_for_a_call(self):
        world = self.world(2)
        ranks = world.start_all("init", "timeout:1000", SMALL, others={1: ["init", "line", "free"]})
        for event in ("init", "timeout"):
            ranks[0].expect(event, "DDL_OK")
        self.ends_in_time(ranks[0].next(), "DDL_ETIMEDOUT")

    def test_nobody_goes_by_the_wall(self):
        self.at_once((self.computes,), (self.meets_at_files,), (self.waits_for_a_rank,), (self.waits_for_a_call,))


class Strangers(Failures):
    """Bytes from outside at any port leave results exact and memory flat."""

    def attack(self, port, draw):
        """One connection of a kind that real networks bring."""
        kinds = [
            draw.randbytes(draw.randrange(1, 2000)),
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(300),
            b"SSH-2.0-OpenSSH_9.2p1\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\xff" * 4096,
            b"\x00" * 64,
            b"",
        ]
        payload = draw.choice(kinds)
        stranger = socket.socket()
        stranger.settimeout(DEADLINE)
        try:
            stranger.connect(("127.0.0.1", port))
            stranger.sendall(payload)
            if draw.random() < 0.3:  # a reset instead of an end
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # closed on us: as it should be
        return stranger

    def storm(self, ports, draw, connections):
        """Some stay half open until the end, at most 50 at a time."""
        kept = []
        for _ in range(connections):
            stranger = self.attack(draw.choice(ports), draw)
            if draw.random() < 0.3:
                kept.append(stranger)
                self.addCleanup(stranger.close)
            else:
                stranger.close()
            while len(kept) > 50:
                kept.pop(0).close()
        return kept

    def test_during_start(self):
        draw = random.Random(SEED)
        world = self.world(3)
        first = world.start(0, "line", "init", LARGE, "free")
        first.expect("ready")
        first.go()
        if not os.path.isdir(f"/proc/{first.pid}/fd"):
            self.skipTest("this system does not tell which ports a process listens at")
        ports = first.await_ports()
        self.storm(ports, draw, 150)
        ranks = [first, world.start(1, "init", LARGE, "free")]
        self.storm(ports, draw, 150)
        ranks.append(world.start(2, "init", LARGE, "free"))
        end_well(ranks, "init", "call", "free")

    def test_during_operations(self):
        draw = random.Random(SEED + 1)
        world = self.world(3)
        # So many that every page of the buffers has been touched before the first measurement.
        ranks = world.start_all("init", "3000=allreduce:20000:int32:sum", "resources", "line",
                                "300=allreduce:20000:int32:sum", "resources", "line", "free")
        before = []
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("repeated", "DDL_OK")
            before.append(rank.expect("resources"))
            rank.expect("ready")
        targets = {rank.pid: listening_ports(rank.pid) for rank in ranks}
        ports = sorted({port for list_ in targets.values() for port in list_})
        if not ports:
            self.skipTest("no rank listens any more, or this system does not tell")
        self.storm(ports, draw, 100)
        for rank in ranks:
            rank.go()
        for stranger in self.storm(ports, draw, 400):
            stranger.close()
        for rank, earlier in zip(ranks, before):
            self.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 300)
            later = rank.expect("resources")
            if bound(1) == 1 and earlier["rss_kib"] >= 0:
                self.assertLess(later["rss_kib"] - earlier["rss_kib"], 2048, (earlier, later))
        self.together(ranks)
        end_well(ranks, "free")


class LifeCycle(Failures):
    """Freeing, starting again, forking: nothing is left behind and nothing is disturbed."""

    def test_init_and_free_many_times_on_one_address(self):
        world = self.world(3)
        ranks = world.start_all("cycle:1", "resources", "cycle:20", "resources")
        for rank in ranks:
            rank.expect("allreduce", "DDL_OK")
            rank.expect("cycle", "DDL_OK")
            before = rank.expect("resources")
            for _ in range(20):
                rank.expect("allreduce", "DDL_OK")
                rank.expect("cycle", "DDL_OK")
            after = rank.expect("resources")
            self.assert_same_resources(before, after)
            if bound(1) == 1 and before["rss_kib"] >= 0:
                self.assertLess(after["rss_kib"] - before["rss_kib"], 2048, (before, after))
            rank.finish(0)

    def test_closed_standard_descriptors(self):
        """Nothing of ours gets their numbers, which libuv would end the process for."""
        world = self.world(2)
        closing = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]  # stdout tells what happens
        end_well([world.start(r, "init", SMALL, "free", "init", SMALL, "free", prefix=closing) for r in range(2)],
                 *("init", "call", "free") * 2)

    def test_everything_is_given_back(self):
        world = self.world(4)
        ranks = world.start_all(*WARM, "resources", "init", SMALL, LARGE, "+" + LARGE, "wait", "alltoall:1000:int32",
                                "free", "resources")
        for rank in ranks:
            self.expect_warm(rank)
            before = rank.expect("resources")
            rank.expect("init", "DDL_OK")
            for event in ("call", "call", "started", "wait", "call", "free"):
                rank.expect(event, "DDL_OK")
            self.assert_same_resources(before, rank.expect("resources"))
            rank.finish(0)

    def test_freeing_in_an_exit_handler_after_the_goodbye_is_quick(self):
        """The library has said goodbye for this process by then: there is nobody to meet any more."""
        world = self.world(2)
        ranks = [world.start(0, "free_at_exit", "init", SMALL), world.start(1, "init", SMALL, "line", "free")]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[1].expect("ready")
        freed = ranks[0].expect("free", "DDL_OK")
        self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1))
        ranks[0].finish(0)
        ranks[1].go()
        freed = ranks[1].expect("free")
        self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1))
        ranks[1].finish(0)

    def start_to_exit(self, *commands):
        """Rank 0 of two is about to exit with a call in flight, for which rank 1 does not come."""
        world = self.world(2, DDL_TIMEOUT="20s")
        ranks = [world.start(0, *commands, "line"), world.start(1, "init", SMALL, "line", "free")]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[0].expect("started", "DDL_OK")
        ranks[0].expect("ready")
        ranks[1].expect("ready")
        return ranks

    def end_after_exit(self, ranks):
        ranks[0].expect("free", "DDL_OK")
        ranks[0].finish(0)
        ranks[1].go()
        ranks[1].expect("free")
        ranks[1].finish(0)

    def test_calls_in_an_exit_handler_after_the_goodbye_are_refused_at_once(self):
        """As destructors make them in C++; so is the wait for what was in flight."""
        ranks = self.start_to_exit("calls_at_exit", "init", SMALL, "+" + LARGE)
        ranks[0].go()
        for event in ("call", "wait", "split", "abort"):
            record = ranks[0].expect(event, "DDL_EABORTED")
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(0.2), record)
            self.assert_names(record, "exiting")
        self.end_after_exit(ranks)

    def test_a_call_that_another_thread_is_in_ends_with_the_exit_handler(self):
        """Who sleeps there, and also who had to be asked out: a later handler may join that thread."""
        for waits in (0, 0.05):
            with self.subTest(waits=waits):
                ranks = self.start_to_exit("init", SMALL, "+" + LARGE, "joins_at_exit")
                time.sleep(waits)
                exits_ns = time.monotonic_ns()
                ranks[0].go()
                record = ranks[0].expect("wait", "DDL_EABORTED")
                self.assertLess(self.seconds(exits_ns, record["end_ns"]), bound(1), record)
                self.assert_names(record, "exiting")
                self.end_after_exit(ranks)

    def test_a_process_may_exit_while_another_thread_frees_the_world(self):
        for usec in range(0, 1000, 60):
            world = self.world(2)
            ranks = [world.start(0, "init", SMALL, f"exit_in_free:{usec}"), world.start(1, "init", SMALL, "free")]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            ranks[0].finish(0)
            ranks[1].expect("free")
            ranks[1].finish(0)

    def test_everything_is_given_back_after_a_failed_init(self):
        for number, environment in ((0, {"DDL_TRANSPORT": "pigeon"}), (0, {"DDL_START_TIMEOUT": "1s"}),
                                    (0, {"DDL_IFACE": "nosuch0"}), (1, {"DDL_IFACE": "nosuch0"})):
            with self.subTest(rank=number, **environment):
                world = self.world(2)
                rank = world.start(number, "init", "resources", "init", "resources", **environment)
                self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
                before = rank.expect("resources")
                self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
                self.assert_same_resources(before, rank.expect("resources"))
                rank.finish(0)

    def test_nothing_is_left_of_many_inits_that_failed(self):
        """Also not in a process that tries again and again, nor with those who refuse it."""
        world = self.world(2)
        first = world.start(0, "init", SMALL, "free")
        if os.path.isdir(f"/proc/{first.pid}/fd"):
            first.await_ports(2)
        cases = [(1, {"DDL_SECRET": "a secret of another job"}, "DDL_EAUTH"), (1, {"DDL_SECURITY": "off"}, "DDL_EAUTH"),
                 (1, {"DDL_STORE": "file:///no/such"}, "DDL_ESTORE"), (0, {}, "DDL_ENETWORK")]
        times = 20
        commands = ["init", "resources", *["init"] * times, "resources", "line"]
        for rank, environment, status in cases:
            with self.subTest(**environment):
                poor = world.start(rank, *commands, **environment)
                poor.expect("init", status)
                before = poor.expect("resources")
                for _ in range(times):
                    poor.expect("init", status)
                after = poor.expect("resources")
                self.assert_same_resources(before, after)
                if bound(1) == 1 and before["rss_kib"] >= 0:
                    self.assertLess(after["rss_kib"] - before["rss_kib"], 256, (before, after))
                poor.expect("ready")
                self.assertEqual(listening_ports(poor.pid), [])
                if os.path.exists(f"/proc/{poor.pid}/maps"):
                    with open(f"/proc/{poor.pid}/maps") as maps:
                        self.assertNotIn("memfd:ddl", maps.read())
                poor.go()
                poor.finish(0)
        second = world.start(1, "init", SMALL, "free")
        end_well((first, second), "init", "call", "free")

    def check_late_ones(self, nranks, late, **environment):
        """One after the other, long after the rest: none of them has missed anything."""
        world = self.world(nranks, **environment)
        ranks = world.start_all("init", SMALL, "free", others={r: ["init", SMALL, "line", "free"] for r in late})
        for r, rank in enumerate(ranks):
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            if r not in late:
                rank.expect("free", "DDL_ETIMEDOUT")
                rank.finish(0)
        for r in late:
            ranks[r].expect("ready")
            ranks[r].go()
            ranks[r].expect("free", "DDL_OK")
            ranks[r].finish(0)

    def check_unended(self):
        """Receives that nobody has waited for, and that no send of the peer fits."""
        world = self.world(2)
        ranks = [world.start(r, "init", SMALL, f"+recv:10:int32:{1 - r}", "free") for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("started", "DDL_OK")
        ends = sorted(((rank, rank.expect("free")) for rank in ranks), key=lambda end: end[1]["end_ns"])
        for rank, record in ends:
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(5), record)
            if record["status"] == "DDL_OK" and record is not ends[0][1]:
                continue  # the other one has given up, and gone, before this one looked again
            self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 1 - ranks.index(rank)), rank.story())
            self.assert_names(record, "recv#1", "had not ended", "waits for rank")
            self.assertEqual(rank.expect("wait", "DDL_EABORTED")["culprit"], 1 - ranks.index(rank))

    def test_who_has_set_a_limit_is_told(self):
        """By a call, here or where a communicator was split from; comm_free has one of its own."""
        def check(*commands):
            world = self.world(2, DDL_WARN_AFTER="1s")
            waits = world.start(0, "init", SMALL, *commands, SMALL, "free")
            late = world.start(1, "init", SMALL, *[c for c in commands if not c.startswith("timeout")], "line", "free")
            for rank in (waits, late):
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            while (record := waits.next())["event"] != "call":
                self.assertEqual(record.get("status", "DDL_OK"), "DDL_OK", record)
            self.assertEqual(record["status"], "DDL_ETIMEDOUT", record)
            self.assert_names(record, "within 1500 ms (ddl_comm_set_timeout)")
            self.assertIn("s left (ddl_comm_set_timeout)", "".join(waits.errors))

        self.at_once((check, "timeout:1500"), (check, "timeout:1500", "split:part:0:0", "use:part"))

    def test_who_left_in_another_call_has_not_freed(self):
        def check(call):
            world = self.world(2)
            late = world.start(1, "init", SMALL, "line", "free")
            other = world.start(0, "init", SMALL, "+" + call, "exit:0")
            for rank in (late, other):
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            other.expect("started", "DDL_OK")
            late.expect("ready")
            self.assertEqual(other.process.wait(DEADLINE), 0)
            late.go()
            record = late.next()
            self.assertIn(record["status"], ("DDL_EPEERLOST", "DDL_EMISMATCH"), late.story())

        self.at_once((check, SMALL), (check, LARGE))

    def test_who_or_what_frees_wait_for_is_named(self):
        def check(nranks):
            world = self.world(nranks)
            ranks = world.start_all("init", SMALL, "free", others={nranks - 1: ["init", SMALL, "line", "free"]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            for rank in ranks[:-1]:
                record = rank.expect("free", "DDL_ETIMEDOUT")
                self.assertEqual(record["culprit"], nranks - 1, record)
                self.assert_names(record, f"rank {nranks - 1} (pid ", "did not free")
                self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(6), record)
            for rank in ranks[:-1]:
                rank.finish(0)
            ranks[-1].expect("ready")
            ranks[-1].go()  # after all others have gone, which it need not wait for, and which is no failure
            record = ranks[-1].expect("free", "DDL_OK")
            ranks[-1].finish(0)
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(2), record)

        self.at_once((check, 2), (check, 4), (self.check_unended,), (self.check_late_ones, 4, (1, 3)),
                     (lambda: self.check_late_ones(3, (1, 2), DDL_TRANSPORT="tcp"),))

    def test_free_completes_what_is_in_flight(self):
        world = self.world(3)
        ranks = world.start_all("init", "+" + LARGE, "+allgather:1000:int32", "+" + SMALL, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            for _ in range(3):
                rank.expect("started", "DDL_OK")
            rank.expect("free", "DDL_OK")
            for _ in range(3):
                rank.expect("wait", "DDL_OK")
            rank.finish(0)

    def test_a_forked_child_may_not_call_and_does_not_disturb(self):
        for how in ("exit", "_exit"):
            with self.subTest(how=how):
                world = self.world(3)
                ranks = world.start_all("init", SMALL, "free",
                                        others={1: ["init", f"fork:{how}", SMALL, "free"]})
                ranks[1].expect("init", "DDL_OK")
                record = ranks[1].expect("child", "DDL_EUNSUPPORTED")
                self.assert_names(record, "fork")
                self.assertEqual(ranks[1].expect("fork")["ended"], 0)
                for r, rank in enumerate(ranks):
                    if r != 1:
                        rank.expect("init", "DDL_OK")
                    rank.expect("call", "DDL_OK")
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)

    def test_ranks_may_start_in_any_order(self):
        for order in ((2, 1, 0), (1, 0, 2), (0, 2, 1)):
            with self.subTest(order=order):
                world = self.world(3)
                for r in order:
                    # Each has surely begun before the next: it is told so by its first line.
                    rank = world.start(r, "line", "init", SMALL, "facts", "free")
                    rank.expect("ready")
                    rank.go()
                for rank, r in zip(world.ranks, order):
                    rank.expect("init", "DDL_OK")
                    rank.expect("call", "DDL_OK")
                    facts = rank.expect("facts")
                    self.assertEqual((facts["rank"], facts["local_rank"], facts["local_size"]), (r, r, 3))
                    self.assertEqual((facts["node_rank"], facts["node_count"]), (0, 1))
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)

    def test_two_worlds_meet_at_a_file_store(self):
        with tempfile.TemporaryDirectory() as directory:
            world = self.world(3, DDL_STORE=f"file://{directory}")
            for rank in world.start_all("cycle:3"):
                for _ in range(3):
                    rank.expect("allreduce", "DDL_OK")
                    rank.expect("cycle", "DDL_OK")
                rank.finish(0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ACTOR = sys.argv.pop(1)
    unittest.main()
