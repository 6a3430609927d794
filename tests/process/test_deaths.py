"""A rank that is killed, or leaves too early: the others know within a second who it was.

    test_deaths.py ACTOR [CLASS[.TEST]...] [-v]
"""
import errno
import os
import random
import signal
import socket
import time

from failures import LARGE, ROUNDS, SEED, SMALL, WARM, Failures, main
from world import DEADLINE, alive, bound, terminate


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


if __name__ == "__main__":
    main(__doc__)
